"""How a site answers requests: it looks for new rows, contributes once per round and keeps what it has sent.

Nothing here knows how messages travel. Everything durable is in the site's state directory:

- ``site.fcac``: CA+ or released state and the newest round (written by :class:`fcac.federation.Site`);
- ``cursor.json``: which rows have been used, after the newest round and after the one before;
- ``sent/``: the bytes of the latest contributions, which are sent again if a round is requested again;
- ``ledger.db``: the privacy ledger;
- ``model.fcac``: the global model; ``site.log``: what happened, for the operator;
- ``policy.toml``: what the operator allows; ``audit.jsonl``: every decision, hash-chained.

The order within a round is: store the cursor that will be valid after it, let the site learn and store its state, store
the bytes, send them. After a crash at any point, the newest state determines which of the two cursors is valid.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcac import persistence
from fcac._typing import Floats
from fcac.codebook import Codebook
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.policy import Policy, PolicyRefusal, terms_of
from fcac.deployment.settings import SiteSettings, schema_digest
from fcac.exceptions import LedgerError, PrivacyWarning
from fcac.federation import Contribution, Site
from fcac.federation.asking import calibrated_at_site
from fcac.federation.condenser import Condenser
from fcac.model import storage
from fcac.privacy.mechanism import AnyMechanism
from fcac.privacy.record_ids import ids_in_form, names_somebody
from fcac.tables.new_rows import Cursor, NewRowFinder, Piece
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import Schema
from fcac.tables.text_encoder import check_same

_CURSOR_FILE = "cursor.json"
_MODEL_FILE = "model.fcac"
_KEPT_ROUNDS = 50
#: How long a request waits for another; longer than a server waits by default, so that a repeated request gets an
#: answer, not "unavailable".
LOCK_SECONDS = 600.0


class NewRows(NamedTuple):
    """The rows of a summed round, and how the ledger adds up their cost."""

    rows: Floats
    record_ids: list[str] | None


class NothingNew(Exception):
    """There are no new rows and the server has everything; raised only without privacy."""


class SiteAgent:
    """Answers requests for one site, from its own settings; tests may override their mechanism."""

    def __init__(self, settings: SiteSettings, mechanism: AnyMechanism | None = None) -> None:
        self.settings = settings
        self.state = Path(settings.state)
        check_same(settings.encoders)
        self.schema = Schema.load(settings.schema)
        self._mechanism = mechanism if mechanism is not None else settings.mechanism()
        self.policy = Policy.load(self.state)
        self.audit = AuditLog(self.state)

    def contribute(self, round: int, have: int) -> bytes:
        """Return the bytes of this site's contribution.

        `have` is the newest round of this site that the server has. If the site has sent something newer that never
        arrived, and there are no new rows, it is sent again: no contribution is lost.
        """
        if self.settings.summing_key:
            raise ValueError("the sites of this study are summed: no site contributes on its own")
        with self.alone():
            stored = self._sent_path(round)
            if stored.exists():
                self.audit.add("sent again", round=round)
                return stored.read_bytes()
            self.policy.check_with_privacy(self.settings.private)
            self.check_agreed()
            self.policy.check_plain()
            site = Site(self.settings.name, self._mechanism, self.state, self._condenser())
            if round == site.round:  # the process died after storing the state and before storing the bytes
                return self._keep(site.contribute(round=round))
            self.check_ledger(have)
            if round < site.round:
                raise ValueError(f"round {round} is no longer kept; the newest round of this site is {site.round}")
            if self.settings.private:
                unsent = self._unsent(site, round, have)
                if unsent is not None:
                    return unsent
            self.policy.check_request(round, site.round + 1, self.audit.entries(), self.settings.epsilon)
            return self._learn_and_keep(site, round, have)

    def check_agreed(self) -> None:
        """Refuse what the site's operator has not agreed to: other columns, another cost or another unit."""
        settings = self.settings
        self.policy.check_schema(self.schema)
        self.policy.check_terms(terms_of(settings.epsilon, settings.delta, settings.record_id))

    def check_schema(self, digest: str) -> None:
        """Refuse, before anything is charged, a request that was made for another schema than this site's."""
        if digest and digest != schema_digest(self.schema):
            raise PolicyRefusal(
                "the hub's schema is not this site's, so that its answer could not be used: start the site again to "
                "look at the new one",
                "data",
            )

    def _unsent(self, site: Site, round: int, have: int) -> bytes | None:
        """Return a release that was paid for and never reached the hub; None if there is none.

        It is offered instead of a new one: it costs nothing more. Should the hub not take it, a new one follows.
        """
        for path in sorted(self.state.glob("release-*.fcac")):
            number = int(path.stem.rpartition("-")[2])
            if site.round < number <= round:
                # The process died after drawing the noise: that release contains the rows found then, and no later
                # ones.
                self._cursor(number)
                self.audit.add("sent late", round=number, asked=round, epsilon=self.settings.epsilon)
                return self._keep(site.contribute(round=number))
        stored = self._sent_path(site.round)
        if not have < site.round < round or not stored.exists():
            return None
        if any(entry["event"] == "offered" and entry["round"] == site.round for entry in self.audit.entries()):
            return None
        self.audit.add("offered", round=site.round, asked=round)
        return stored.read_bytes()

    def _learn_and_keep(self, site: Site, round: int, have: int) -> bytes:
        cursor = self._cursor(site.round)
        finder = self.finder()
        new = finder.find(cursor)
        n_rows = 0
        for piece in finder.pieces(new):
            rows, ids = self._rows_of_people(piece)
            site.observe(rows, ids)
            n_rows += len(rows)
        if not n_rows and not self.settings.private:
            if site.round > have:
                self.audit.add("sent again", round=site.round)
                return self._keep(site.contribute(round=site.round))
            self.audit.add("nothing new", round=round)
            raise NothingNew
        self.policy.check_new_rows(n_rows)
        # written first: what cannot be logged is not done
        self.audit.add("begun", round=round, new_rows=n_rows)
        self._note_cursor(site.round, cursor, round, finder.advance(cursor, new))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", PrivacyWarning)
            sent = site.contribute(round=round, **self._for_the_ledger())
        for warning in said:  # for the operator alone
            write_log(self.state, f"round {round}: {warning.message}")
        self.audit.add("contributed", round=round, nodes=len(sent.nodes), epsilon=self.settings.epsilon)
        spent = f"; spent: {self.spent()}" if self.settings.private else ""
        write_log(self.state, f"round {round}: {n_rows} new rows, {len(sent.nodes)} nodes sent{spent}")
        return self._keep(sent)

    @property
    def mechanism(self) -> Any:
        """The site's privacy mechanism; None without privacy."""
        return self._mechanism

    def new_rows(self, round: int, closed: int) -> NewRows:
        """Find the rows of a summed round, and note which rows will have been used once the hub has closed it.

        Rows of a round later than the last that the hub has closed were never summed and are found again.
        """
        entries = self._cursors()
        done = max((int(number) for number in entries if int(number) <= closed), default=0)
        cursor = entries.get(str(done), {})
        finder = self.finder()
        new = finder.find(cursor)
        blocks = [np.empty((0, self.schema.n_features))]
        ids: list[str] = []
        for piece in finder.pieces(new):
            own, named = self._rows_of_people(piece)
            blocks.append(np.array(own, dtype=np.float64))
            ids += named or []
        rows = np.concatenate(blocks)
        self.policy.check_new_rows(len(rows))
        self.audit.add("begun", round=round, new_rows=len(rows))
        self._note_cursor(done, cursor, round, finder.advance(cursor, new))
        write_log(self.state, f"round {round}: {len(rows)} new rows to be summed")
        return NewRows(rows, ids if self.settings.record_id is not None else None)

    def _rows_of_people(self, piece: Piece) -> tuple[Floats, list[Any] | None]:
        """Return rows and ids; a row whose id names nobody is passed over, for a refusal would tell of it."""
        if self.settings.record_id is None or piece.tags is None:
            return piece.block, None
        named = [names_somebody(tag) for tag in piece.tags]
        ids = [tag for tag, known in zip(piece.tags, named, strict=True) if known]
        return piece.block[np.array(named, dtype=bool)], list(ids_in_form(ids, self.schema.id_form))

    def finder(self) -> NewRowFinder:
        """Return the finder of this site's new rows."""
        settings = self.settings
        return NewRowFinder(
            settings.data,
            self.schema,
            settings.settle,
            settings.record_id,
            # an error in a row would be an answer about that row
            dataclasses.replace(ReadOptions.from_dict(settings.read), forgiving=settings.private),
        )

    def check_ledger(self, have: int) -> None:
        """Refuse to go on with a ledger that does not know of the newest round the server has, or of an agreement."""
        ledger = getattr(self._mechanism, "ledger", None)
        if ledger is not None:
            from fcac.deployment.agreement_agent import agreement_receipts

            ledger.verify(agreement_receipts(self.state))
        if ledger is None or have < 1 or ledger.knows_round(self.settings.name, have):
            return
        raise LedgerError(
            f"the server has round {have} of this site, but {ledger.path} does not know of it: the ledger, or the "
            "whole state directory, is an older copy. Put the right one back; if it is lost, or if this state was "
            f"started anew, 'fcac ledger {ledger.path} --recover-round {have} --site {self.settings.name} --epsilon E' "
            "charges what that round cost"
        )

    def _for_the_ledger(self) -> dict[str, Any]:
        if self.settings.record_id is not None:
            return {"record_ids": []}  # those of the rows observed; none if there were no rows
        return {}

    def spent(self) -> str:
        """Return the ledger's summary for the site's operator; empty before the first charge."""
        ledger = getattr(self._mechanism, "ledger", None)
        if ledger is None or not ledger.sites():
            return ""
        line: str = ledger.summary_line(self.settings.name)
        return line.partition(": ")[2]

    def budget_left(self) -> float | None:
        """Return the part of the privacy budget that is left, from 0 to 1; None without privacy."""
        ledger = getattr(self._mechanism, "ledger", None)
        if ledger is None:
            return None
        return min(1.0, max(0.0, float(ledger.remaining_at_least()) / float(ledger.budget)))

    def take_model(self, round: int, data: bytes) -> None:
        """Check and store the global model."""
        model = storage.from_bytes(data)
        if not isinstance(model, Codebook) or model.n_features != self.schema.n_features:
            raise ValueError("the model received does not match this site's schema")
        site = Site(self.settings.name, self._mechanism, self.state, self._condenser())
        # by the site's own rows, which stay here: with NodeRelease there are none
        model = calibrated_at_site(model, site)
        persistence.write_atomic(
            self.state / _MODEL_FILE, data if model.calibration is None else storage.to_bytes(model)
        )
        self.audit.add("model received", round=round, nodes=len(model.nodes))
        write_log(self.state, f"model of round {round} received: {len(model.nodes)} nodes")

    # ------------------------------------------------------------ what is on disk

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold a lock so that one request is answered at a time; it is released if the process dies."""
        self.state.mkdir(parents=True, exist_ok=True)
        with persistence.locked(self.state / "lock", LOCK_SECONDS):
            yield

    def _sent_path(self, round: int) -> Path:
        return self.state / "sent" / f"{round:09d}.fcac"

    def _keep(self, sent: Contribution) -> bytes:
        data = self._heavy_enough(sent).to_bytes()
        path = self._sent_path(sent.round)
        path.parent.mkdir(exist_ok=True)
        persistence.write_atomic(path, data)
        for old in sorted(path.parent.glob("*.fcac"))[:-_KEPT_ROUNDS]:
            old.unlink()
        return data

    def _heavy_enough(self, sent: Contribution) -> Contribution:
        """Leave out nodes with fewer rows than the policy allows; noised ones say nothing about single rows."""
        kept = sent.counts >= self.policy.least_count
        if self.settings.private or self.settings.condenser != "ca-plus" or kept.all():
            return sent  # a reservoir joins such nodes to their neighbours by itself
        return sent.only(kept)

    def _condenser(self) -> Condenser:
        """Return how rows become nodes: as the study says, with no fewer rows per node than the policy allows."""
        settings = self.settings
        least = max(settings.min_rows, self.policy.least_count) if settings.condenser != "ca-plus" else 1
        return dataclasses.replace(settings, min_rows=least).make_condenser()

    def _cursor(self, round: int) -> Cursor:
        """Return the cursor that was valid after this round."""
        path = self.state / _CURSOR_FILE
        if not path.exists():
            if round:
                raise ValueError(f"{path} is missing: it records which rows have been used. Restore it from a backup")
            return {}
        entries = self._cursors()
        if str(round) not in entries:
            raise ValueError(f"{path} has no entry for round {round}: state and cursor are not from the same backup")
        cursor: Cursor = entries[str(round)]
        return cursor

    def _cursors(self) -> dict[str, Cursor]:
        path = self.state / _CURSOR_FILE
        if not path.exists():
            return {}
        entries: dict[str, Cursor] = json.loads(path.read_text("utf-8"))["after_round"]
        return entries

    def _note_cursor(self, old_round: int, old: Cursor, round: int, new: Cursor) -> None:
        entries = {"after_round": {str(old_round): old, str(round): new}}
        persistence.write_atomic(self.state / _CURSOR_FILE, json.dumps(entries).encode())


def load_model(state: str | Path) -> Codebook:
    """Return the global model that a site has received."""
    path = Path(state) / _MODEL_FILE
    if not path.exists():
        raise ValueError(f"{path}: no model has arrived yet; one comes after a round while 'fcac federation site' runs")
    model: Codebook = storage.load(path)
    return model


def write_log(state: str | Path, text: str) -> None:
    """Append to the site's log, which only its operator sees; a full disk must not keep the site from answering."""
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    with contextlib.suppress(OSError):
        Path(state).mkdir(parents=True, exist_ok=True)
        with (Path(state) / "site.log").open("a", encoding="utf-8") as stream:
            stream.write(f"{stamp} {text}\n")
