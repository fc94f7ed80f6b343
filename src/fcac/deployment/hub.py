"""What the server of a federation keeps and checks; nothing here knows Flower.

In the state directory:

- ``server.fcac``: the server (model and all contributions), with the number of the last closed round;
- ``inbox/ROUND/SITE.fcac``: contributions of the open round, stored the moment they arrive;
- ``global.fcac``: what sites may fetch (a codebook); ``journal.jsonl``: what happened; ``report.html``.

A round is closed by one atomic write of ``server.fcac``. Before it, the inbox says who need not be asked again; after
it, the inbox is rubbish. So a crash at any moment neither loses a contribution that arrived nor counts one twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcac import persistence
from fcac.deployment.limits import cap_round
from fcac.deployment.settings import FederationSettings, outside_bounds
from fcac.deployment.shared_codebook import for_sites
from fcac.estimators import models
from fcac.federation import Contribution, Server

_SERVER_FILE = "server.fcac"
_MODEL_FILE = "global.fcac"
_JOURNAL = "journal.jsonl"
# Squares of such values still fit a float with room to spare.
_LARGEST_VALUE = 1e100


class Verdict(NamedTuple):
    """What became of a delivery: "accepted", "duplicate" or "rejected", and why."""

    outcome: str
    reason: str = ""


class Book(NamedTuple):
    """The durable heart: server, last closed round, and digests of the newest contribution of every site as sent."""

    server: Server
    closed: int
    newest: dict[str, tuple[int, str]]


class Coordinator:
    """Keeps a federation's server on disk and takes contributions, round by round.

    Parameters
    ----------
    state : path-like
        State directory.
    settings : FederationSettings

    Examples
    --------
    >>> import tempfile
    >>> from fcac.federation import Contribution
    >>> from fcac.deployment.hub import Coordinator
    >>> from fcac.deployment.settings import FederationSettings, Member
    >>> from fcac.tables.schema import Schema
    >>> settings = FederationSettings(Schema(["x", "y"]), members={"a": Member(), "b": Member()})
    >>> folder = tempfile.TemporaryDirectory()
    >>> desk = Coordinator(folder.name, settings)
    >>> desk.receive("a", Contribution("a", 1, [[0.0, 1.0]], [3]).to_bytes()).outcome
    'accepted'
    >>> desk.receive("b", b"no contribution").outcome
    'rejected'
    >>> desk.missing(), [item.site for item in desk.close_round()], desk.open_round
    (['b'], ['a'], 2)
    >>> folder.cleanup()
    """

    def __init__(self, state: str | os.PathLike[str], settings: FederationSettings) -> None:
        self.state = Path(state)
        self.settings = settings
        self.state.mkdir(parents=True, exist_ok=True)

    # ------------------------------------------------------------ reading

    def book(self) -> Book:
        """Read what is on disk."""
        path = self.state / _SERVER_FILE
        if not path.exists():
            return Book(Server(self.settings.server, self.settings.seed), 0, {})
        meta, arrays = persistence.read(path, kind="federation")
        newest = {site: (int(number), str(digest)) for site, (number, digest) in meta["newest"].items()}
        return Book(Server.from_parts(meta["server"], arrays), int(meta["closed"]), newest)

    @property
    def open_round(self) -> int:
        """Number of the round that is being collected."""
        path = self.state / _SERVER_FILE
        return 1 + (int(persistence.read(path, kind="federation")[0]["closed"]) if path.exists() else 0)

    def inbox(self) -> dict[str, Contribution]:
        """Return the contributions of the open round that have arrived."""
        folder = self._inbox(self.open_round)
        files = sorted(folder.glob("*.fcac")) if folder.is_dir() else []
        return {path.stem: Contribution.from_bytes(path.read_bytes()) for path in files}

    def missing(self) -> list[str]:
        """Return the active sites whose contribution to the open round is not here."""
        folder = self._inbox(self.open_round)
        return [name for name in self.settings.active if not (folder / f"{name}.fcac").exists()]

    def holdings(self) -> dict[str, int]:
        """Return the newest round held of every site."""
        return {site: number for site, (number, _) in self.book().newest.items()}

    # ------------------------------------------------------------ a round

    def receive(self, site: str, data: bytes) -> Verdict:
        """Check a delivery of this site (as its key says) and store it durably if it is good."""
        with self._alone():
            book = self.book()
            verdict, item = self._judge(book, site, data)
            if verdict.outcome == "accepted" and item is not None:
                folder = self._inbox(book.closed + 1)
                folder.mkdir(parents=True, exist_ok=True)
                persistence.write_atomic(folder / f"{site}.fcac", data)
            facts: dict[str, Any] = {"bytes": len(data)}
            if item is not None:
                facts |= {"nodes": len(item.nodes), "answers": item.round, "privacy": item.privacy}
            if verdict.reason:
                facts["reason"] = verdict.reason
            self.note(verdict.outcome, site=site, round=book.closed + 1, **facts)
            return verdict

    def _judge(self, book: Book, site: str, data: bytes) -> tuple[Verdict, Contribution | None]:
        d, limits = self.settings.schema.n_features, self.settings.limits
        if site not in self.settings.active:
            return Verdict("rejected", "the site does not take part"), None
        # Before anything is parsed: a contribution cannot be longer than the most nodes allowed.
        most = limits.max_nodes * (d + 1) * 8 + 2000
        if len(data) > most:
            return Verdict("rejected", f"{len(data)} bytes; {limits.max_nodes} nodes need at most {most}"), None
        try:
            item = Contribution.from_bytes(data)
        except ValueError as error:
            return Verdict("rejected", str(error)[:300]), None
        digest = hashlib.sha256(data).hexdigest()
        held_round, held_digest = book.newest.get(site, (0, ""))
        waiting = self._inbox(book.closed + 1) / f"{site}.fcac"
        if waiting.exists():
            kept = waiting.read_bytes()
            held_round, held_digest = Contribution.from_bytes(kept).round, hashlib.sha256(kept).hexdigest()
        if item.site != site:
            return Verdict("rejected", f"it bears the name of another site ({str(item.site)[:70]!r})"), None
        if item.round == held_round and digest == held_digest:
            return Verdict("duplicate"), item
        if waiting.exists():
            return Verdict("rejected", "another contribution of this site is in already"), item
        if not held_round < item.round <= book.closed + 1:
            return Verdict("rejected", f"it answers round {item.round}; newest held is {held_round}"), item
        if item.n_features != d:
            return Verdict("rejected", f"nodes have {item.n_features} features, the schema has {d}"), item
        if len(item.nodes) > limits.max_nodes:
            return Verdict("rejected", f"{len(item.nodes)} nodes; at most {limits.max_nodes} are taken"), item
        if len(item.nodes) and np.abs(item.nodes).max() > _LARGEST_VALUE:
            return Verdict("rejected", "values are too large to compute with"), item
        bounds = self.settings.schema.bounds
        if bounds is not None and outside_bounds(item.nodes, bounds, limits.bounds_margin):
            return Verdict("rejected", f"nodes lie over {limits.bounds_margin:g} widths outside the bounds"), item
        return Verdict("accepted"), item

    def close_round(self) -> list[Contribution]:
        """Let the server learn what is in the inbox; nothing in it: the round stays open."""
        with self._alone():
            book = self.book()
            number = book.closed + 1
            arrived = {path.stem: path.read_bytes() for path in sorted(self._inbox(number).glob("*.fcac"))}
            # a site may have been forgotten or revoked after it contributed
            arrived = {site: data for site, data in arrived.items() if site in self.settings.active}
            if not arrived:
                return []
            batch = cap_round([Contribution.from_bytes(data) for data in arrived.values()], self.settings.limits)
            accepted = book.server.absorb(batch)
            newest = dict(book.newest)
            for item in accepted:
                newest[str(item.site)] = (item.round, hashlib.sha256(arrived[str(item.site)]).hexdigest())
            self._write(Book(book.server, number, newest))
            shutil.rmtree(self._inbox(number), ignore_errors=True)
            self.note("closed", round=number, sites=[item.site for item in accepted])
            self._publish(book.server, number)
            return accepted

    def forget(self, site: str) -> bool:
        """Become the federation in which this site never contributed; False if it never had."""
        with self._alone():
            book = self.book()
            known = site in book.server.sites
            if known:
                book.server.forget(site)
            self._write(Book(book.server, book.closed, {k: v for k, v in book.newest.items() if k != site}))
            (self._inbox(book.closed + 1) / f"{site}.fcac").unlink(missing_ok=True)
            self.note("forgotten", site=site, round=book.closed)
            self._publish(book.server, book.closed)
            return known

    def _write(self, book: Book) -> None:
        meta, arrays = book.server.to_parts()
        header = {"server": meta, "closed": book.closed, "newest": {k: list(v) for k, v in book.newest.items()}}
        persistence.write_atomic(self.state / _SERVER_FILE, persistence.pack("federation", header, arrays))

    # ------------------------------------------------------------ what others see

    def _publish(self, server: Server, round: int) -> None:
        """Write what sites may fetch; afterwards, and only as well as it goes, the report."""
        path = self.state / _MODEL_FILE
        if not server.log or not any(len(item.nodes) for batch in server.log for item in batch):
            path.unlink(missing_ok=True)
            return
        book = for_sites(server, list(self.settings.schema.feature_names))
        if book is None:
            path.unlink(missing_ok=True)
            self.note("no model for sites", round=round, reason="too few nodes to hide a single one among others")
        else:
            persistence.write_atomic(path, models.to_bytes(book))
        self._report(server, round)

    def _report(self, server: Server, round: int) -> None:
        """Write the report; a round counts whether or not this works."""
        from fcac.report import write_report

        try:
            names = list(self.settings.schema.feature_names)
            write_report(server, self.state / "report.html", title=self.settings.name, feature_names=names)
        except Exception as error:
            self.note("no report", round=round, reason=f"{type(error).__name__}: {error}"[:300])

    def model_bytes(self) -> bytes | None:
        """Return the model that sites may fetch, or None before the first round."""
        path = self.state / _MODEL_FILE
        return path.read_bytes() if path.exists() else None

    # ------------------------------------------------------------ journal and lock

    def note(self, event: str, **facts: Any) -> None:
        """Append one line to the journal, durably."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
        with (self.state / _JOURNAL).open("a+b") as stream:
            # a crash can leave half a line; the next one must not continue it
            if stream.tell() and (stream.seek(-1, os.SEEK_END), stream.read(1))[1] != b"\n":
                stream.write(b"\n")
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def journal(self) -> list[dict[str, Any]]:
        """Read the journal; half a line, left by a crash, is passed over."""
        path = self.state / _JOURNAL
        entries = []
        for line in path.read_text("utf-8").splitlines() if path.exists() else []:
            with contextlib.suppress(json.JSONDecodeError):
                entries.append(json.loads(line))
        return entries

    def _inbox(self, round: int) -> Path:
        return self.state / "inbox" / f"{round:09d}"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Running rounds and commands such as forget take turns; a killed process loses the lock by itself."""
        with (self.state / "lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
