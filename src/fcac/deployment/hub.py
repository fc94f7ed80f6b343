"""The hub: keeps the server of a federation on disk and checks what sites send, however it travels.

The state directory contains:

- ``inbox/ROUND/SITE.fcac``: contributions to the open round, stored as soon as they arrive;
- ``hub.db``: the hub's store (:mod:`fcac.deployment.store`): the contributions of closed rounds, the state of the
  server after every round, the number of the last closed round, and the messages that wait for sites;
- ``global.fcac``: the model that sites may fetch (a codebook); ``journal.jsonl``: what happened; ``report.html``.

A round is closed by one transaction of the store. Before it, the inbox shows which sites need not be asked again; after
it, the inbox is obsolete. A crash at any moment therefore neither loses a contribution that has arrived nor counts one
twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fcac import persistence
from fcac._text import plain
from fcac.deployment.inbox import Inbox
from fcac.deployment.incoming import check_statement
from fcac.deployment.limits import Amount, cap_round, unusual
from fcac.deployment.settings import FederationSettings, most_bytes, outside_bounds
from fcac.deployment.store import Held, HubStore, Summary
from fcac.federation import Contribution
from fcac.federation.admission import admit

if TYPE_CHECKING:
    # `status` reads what is stored and needs nothing that learns
    from fcac.federation import Server

_STORE_FILE = "hub.db"
_MODEL_FILE = "global.fcac"
JOURNAL = "journal.jsonl"
# What the report tells of contributions is looked for in this many bytes at the end of the journal.
_TAIL = 2**16
_NOT_AS_SENT = ("rejected", "capped")
# The squares of such values are still far from overflowing.
_LARGEST_VALUE = 1e100


class Verdict(NamedTuple):
    """The outcome of a delivery: "accepted", "duplicate" or "rejected", and the reason."""

    outcome: str
    reason: str = ""


class HubSnapshot(NamedTuple):
    """The server, the last closed round, and the digest of the newest contribution of every site, as sent."""

    server: Server
    closed: int
    newest: dict[str, Held]


class Hub:
    """Keeps a federation's server on disk and accepts contributions, round by round.

    `listen` is called with every entry that this object writes to the journal.

    >>> import tempfile
    >>> from fcac.federation import Contribution
    >>> from fcac.deployment.settings import Member
    >>> from fcac.tables.schema import Schema
    >>> settings = FederationSettings(Schema(["x", "y"]), members={"a": Member(), "b": Member()})
    >>> folder = tempfile.TemporaryDirectory()
    >>> hub = Hub(folder.name, settings)
    >>> hub.receive("a", Contribution("a", 1, [[0.0, 1.0]], [3]).to_bytes()).outcome
    'accepted'
    >>> hub.receive("b", b"no contribution").outcome
    'rejected'
    >>> hub.missing(), [item.site for item in hub.close_round()], hub.open_round
    (['b'], ['a'], 2)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        state: str | os.PathLike[str],
        settings: FederationSettings,
        listen: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.state = Path(state)
        self.settings = settings
        self._listen = listen
        self.state.mkdir(parents=True, exist_ok=True)
        self.store = HubStore(self.state / _STORE_FILE)
        self._inbox = Inbox(self.state / "inbox")
        self._to_report: tuple[Server, int, int, dict[str, str]] | None = None

    # ------------------------------------------------------------ reading

    def _server(self) -> Server:
        """Return the server as stored on disk, or that of a study without rounds."""
        from fcac.federation.rounds import first_server

        chosen = self.settings
        return self.store.server() or first_server(
            chosen.server, chosen.seed, chosen.schema, scale=chosen.scale, false_split_rate=chosen.false_split_rate
        )

    def snapshot(self) -> HubSnapshot:
        """Return the server as stored on disk; its log is read on demand."""
        return HubSnapshot(self._server(), self.store.closed, self.store.newest())

    @property
    def open_round(self) -> int:
        """Number of the round for which contributions are being collected."""
        return 1 + self.store.closed

    def inbox(self) -> dict[str, Contribution]:
        """Return the contributions of the open round that have arrived."""
        return {site: Contribution.from_bytes(data) for site, data in self._waiting(self.open_round).items()}

    def _waiting(self, number: int) -> dict[str, bytes]:
        found = {site: self._inbox.get(number, site) for site in self._inbox.sites(number)}
        return {site: data for site, data in found.items() if data is not None}

    def arrived(self) -> list[str]:
        """Return the sites whose contribution to the open round has arrived."""
        return self._inbox.sites(self.open_round)

    def missing(self) -> list[str]:
        """Return the active sites whose contribution to the open round has not arrived."""
        here = set(self.arrived())
        return [name for name in self.settings.active if name not in here]

    def holdings(self) -> dict[str, int]:
        """Return the newest round of every site that the hub has."""
        return {site: number for site, (number, _) in self.store.newest().items()}

    def summary(self) -> Summary | None:
        """Return the size of the model that sites may fetch; None if there is none yet."""
        return self.store.summary() if (self.state / _MODEL_FILE).exists() else None

    # ------------------------------------------------------------ a round

    def receive(self, site: str, data: bytes) -> Verdict:
        """Check a delivery of this site (identified by its key) and store it durably if it is valid."""
        with self._alone():
            closed, held = self.store.held(site)
            number = closed + 1
            verdict, item = self._judge(number, held, site, data)
            if verdict.outcome == "accepted":
                self._inbox.add(number, site, data)
            facts: dict[str, Any] = {"bytes": len(data)}
            if item is not None:
                facts |= {"nodes": len(item.nodes), "answers": item.round, "privacy": item.privacy}
            if verdict.reason:
                facts["reason"] = verdict.reason
            self.note(verdict.outcome, site=site, round=number, **facts)
            if verdict.outcome == "accepted" and item is not None:
                self._flag(site, number, item)
            return verdict

    def _flag(self, site: str, number: int, item: Contribution) -> None:
        """Show the operator a contribution that does not fit what its site, or the others, contributed so far."""
        amounts = self.store.amounts()
        others = [amount for name, amount in amounts.items() if name != site]
        reason = unusual(Amount(len(item.nodes), round(float(item.counts.sum()))), amounts.get(site), others)
        if reason:
            self.note("unusual", site=site, round=number, reason=reason)

    def _judge(self, number: int, held: Held, site: str, data: bytes) -> tuple[Verdict, Contribution | None]:
        d, limits = self.settings.schema.n_features, self.settings.limits
        member = self.settings.members.get(site)
        if member is None or member.status != "active":
            return Verdict("rejected", "the site does not take part"), None
        # Checked before anything is parsed: no contribution is longer than one with the maximum number of nodes.
        most = most_bytes(self.settings)
        if len(data) > most:
            return Verdict("rejected", f"{len(data)} bytes; {limits.max_nodes} nodes need at most {most}"), None
        try:
            item = Contribution.from_bytes(data)
        except ValueError as error:
            return Verdict("rejected", plain(str(error))), None
        if item.site != site:
            return Verdict("rejected", f"it has the name of another site ({plain(str(item.site), 70)})"), None
        try:
            check_statement(item.privacy)
        except ValueError as error:
            return Verdict("rejected", str(error)), None
        waiting = self._inbox.get(number, site)
        known = item.round == held.round and hashlib.sha256(data).hexdigest() == held.digest
        if waiting == data or (waiting is None and known):
            return Verdict("duplicate"), item
        if waiting is not None:
            return Verdict("rejected", "another contribution of this site has already arrived"), item
        if not held.round < item.round <= number:
            return Verdict("rejected", f"it answers round {item.round}; the newest here is {held.round}"), item
        if item.n_features != d:
            return Verdict("rejected", f"nodes have {item.n_features} features, the schema has {d}"), item
        if len(item.nodes) > limits.max_nodes:
            return Verdict("rejected", f"{len(item.nodes)} nodes; at most {limits.max_nodes} are allowed"), item
        if len(item.nodes) and np.abs(item.nodes).max() > _LARGEST_VALUE:
            return Verdict("rejected", "values are too large to compute with"), item
        bounds = self.settings.schema.bounds
        if bounds is not None and outside_bounds(item.nodes, bounds, limits.bounds_margin):
            return Verdict("rejected", f"nodes lie more than {limits.bounds_margin:g} widths outside the bounds"), item
        try:
            admit(item, bounds)
        except ValueError as error:
            return Verdict("rejected", plain(str(error))), item
        return Verdict("accepted"), item

    def close_round(self) -> list[Contribution]:
        """Let the server learn what has arrived and close the round; if nothing has arrived, it stays open."""
        with self._alone():
            number = self.open_round
            arrived = self._waiting(number)
            # a site may have been forgotten or revoked after it contributed
            active = set(self.settings.active)
            batch = [Contribution.from_bytes(data) for site, data in arrived.items() if site in active]
            if not batch:
                return []
            admitted = [admit(item, self.settings.schema.bounds) for item in batch]
            for item, told in admitted:
                if told:
                    self.note("capped", site=str(item.site), round=number, reason=told)
            batch = [item for item, _ in admitted]
            amounts = self.store.amounts()
            others = [amount for site, amount in amounts.items() if site not in arrived]
            capped = cap_round(batch, self.settings.limits, others)
            self._note_caps(number, batch, capped)
            digests = {site: hashlib.sha256(data).hexdigest() for site, data in arrived.items()}
            accepted = self._close(number, capped, digests)
        self._report()
        return accepted

    def _close(
        self, number: int, batch: list[Contribution], digests: dict[str, str], **facts: Any
    ) -> list[Contribution]:
        """Play the round with what has arrived, store it, and only then publish what it has led to."""
        from fcac.federation.rounds import Received, Round

        server = self._server()
        accepted = Round.play(server, Received(batch), number).accepted
        self.store.close_round(number, server, accepted, digests)
        self._inbox.clear(number)
        self.note("closed", round=number, sites=[item.site for item in accepted], **facts)
        self._publish(server, number)
        return accepted

    def _note_caps(self, number: int, batch: list[Contribution], capped: list[Contribution]) -> None:
        for sent, kept in zip(batch, capped, strict=True):
            if kept is not sent:
                rows = [round(float(item.counts.sum())) for item in (sent, kept)]
                reason = f"{len(sent.nodes)} nodes for {rows[0]:,} rows count as {len(kept.nodes)} for {rows[1]:,}"
                self.note("capped", site=str(sent.site), round=number, reason=reason)

    def close_summed_round(self, item: Contribution) -> None:
        """Let the server learn what all sites have released together, and close the round."""
        with self._alone():
            number = self.open_round
            if item.round != number:
                raise ValueError(f"round {item.round} was summed, but round {number} is open")
            self._close(number, [item], {str(item.site): item.digest()}, summed=item.privacy.get("sites"))
        self._report()

    def forget(self, site: str) -> bool:
        """Restore the state as if this site had never contributed; return False if it never had."""
        with self._alone():
            server, closed = self.snapshot().server, self.store.closed
            known = site in server.sites
            self._inbox.remove(closed + 1, site)
            if known:
                server.forget(site)
                self.store.forget(site, server)
            self.note("forgotten", site=site, round=closed)
            self._publish(self.snapshot().server, closed)
        self._report()
        return known

    # ------------------------------------------------------------ model and report

    def _publish(self, server: Server, round: int) -> None:
        """Write the model that sites may fetch, and note what the report will need."""
        from fcac.deployment.shared_codebook import for_sites
        from fcac.model import storage

        path = self.state / _MODEL_FILE
        if not server.has_nodes:
            path.unlink(missing_ok=True)
            return
        book = for_sites(server, list(self.settings.schema.feature_names))
        if book is None:
            path.unlink(missing_ok=True)
            self.note("no model for sites", round=round, reason="too few nodes to hide a single one among others")
        else:
            persistence.write_atomic(path, storage.to_bytes(book))
        from fcac.report import snapshot

        try:
            # read now, and written when the federation is free again
            self._to_report = (snapshot(server), round, self.store.version, self._refused_or_capped())
        except Exception as error:
            self.note("no report", round=round, reason=plain(f"{type(error).__name__}: {error}"))

    def _report(self) -> None:
        """Write the report, unless there is something newer by now; a round counts whether or not this succeeds."""
        from fcac.report import write_report

        if self._to_report is None:
            return
        server, round, version, facts = self._to_report
        self._to_report = None
        draft = self.state / f".report-{os.getpid()}.html"
        try:
            write_report(server, draft, title=self.settings.name, schema=self.settings.schema, facts=facts)
            with self._alone():
                if self.store.version == version:
                    os.replace(draft, self.state / "report.html")
        except Exception as error:
            self.note("no report", round=round, reason=plain(f"{type(error).__name__}: {error}"))
        finally:
            draft.unlink(missing_ok=True)

    def _refused_or_capped(self) -> dict[str, str]:
        """Return what the report says of contributions that were not taken as they came, the latest ones."""
        found = [e for e in self.journal_since(max(0, self.journal_size() - _TAIL))[0] if e["event"] in _NOT_AS_SENT]
        told = [
            f"{plain(str(e.get('site')), 70)}: {e['event']}, {plain(str(e.get('reason')), 200)}" for e in found[-5:]
        ]
        return {"Contributions not taken as they came": "; ".join(told)} if told else {}

    def model_bytes(self) -> bytes | None:
        """Return the model that sites may fetch, or None before the first round."""
        path = self.state / _MODEL_FILE
        return path.read_bytes() if path.exists() else None

    # ------------------------------------------------------------ journal and lock

    def note(self, event: str, **facts: Any) -> None:
        """Append one line to the journal, durably."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
        with (self.state / JOURNAL).open("a+b") as stream:
            # a crash can leave half a line; the next one must not continue it
            if stream.tell() and (stream.seek(-1, os.SEEK_END), stream.read(1))[1] != b"\n":
                stream.write(b"\n")
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        if self._listen is not None:
            self._listen(line)

    def journal_since(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """Return the complete entries from a byte offset on, and the offset after them."""
        path = self.state / JOURNAL
        if not path.exists():
            return [], 0
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
        data = data[: data.rfind(b"\n") + 1]
        return _entries(data), offset + len(data)

    def journal_size(self) -> int:
        """Return the byte offset at which the next line of the journal will begin."""
        path = self.state / JOURNAL
        return path.stat().st_size if path.exists() else 0

    def journal(self) -> list[dict[str, Any]]:
        """Read the journal; an incomplete line, left by a crash, is skipped."""
        path = self.state / JOURNAL
        return _entries(path.read_bytes()) if path.exists() else []

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that serialises rounds and commands such as forget; it is released if the process dies."""
        with persistence.locked(self.state / "lock"):
            yield


def _entries(data: bytes) -> list[dict[str, Any]]:
    entries = []
    for line in data.splitlines():
        with contextlib.suppress(json.JSONDecodeError, UnicodeDecodeError):
            entries.append(json.loads(line))
    return entries
