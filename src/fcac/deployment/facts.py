"""The state of a federation as plain values: what the console, ``status --json`` and the metrics show."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict, deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fcac import persistence
from fcac._sites import in_reading_order
from fcac._text import plain
from fcac.deployment import certificates, presence
from fcac.deployment.hub import JOURNAL, Hub
from fcac.deployment.settings import STATE, FederationSettings

_ANSWERS = ("accepted", "nothing new", "unavailable", "model taken", "rejected", "budget used up", "not now")
_LATEST_EVENTS = 200
# What was read of the journal is kept on disk, so that a look by another process costs no more after many rounds.
_FILE = "tallies.json"
_WORTH_KEEPING = 2**16
_MARK_BYTES = 512
#: Events that the operator should see, and how many of the last.
_NOTABLE, _MOST_NOTABLE = ("unusual", "capped", "refused"), 10

#: Events of the journal in words an operator reads.
WORDS = {
    "accepted": "sent its nodes",
    "rejected": "sent something that was rejected",
    "duplicate": "sent the same again",
    "nothing new": "has nothing new",
    "unavailable": "is not available",
    "budget used up": "has no budget left",
    "not now": "declined by its own policy",
    "no reply": "did not answer",
    "failed": "could not answer",
    "model taken": "fetched the model",
    "unusual": "sent something unusual",
    "capped": "was counted for less than it sent",
    "refused": "refused the request",
    "closed": "the round was closed",
    "forgotten": "was forgotten",
    "made": "the federation was made",
    "revoked": "was revoked",
    "agreeing": "the sites were asked to agree on bounds",
    "sent counts": "sent noised counts for the agreement",
    "agreed": "the sites have agreed on bounds",
    "has the agreed schema": "has the agreed schema",
}


def facts(root: Path) -> dict[str, Any]:
    """Return the state of a federation as values for JSON."""
    return Observer(root).look()


@dataclass
class _Tally:
    """What the journal says of a site so far."""

    contributed: int = 0
    rejected: int = 0
    missed: int = 0
    heard: str = ""
    privacy: Any = None

    def add(self, entry: dict[str, Any]) -> None:
        event = entry["event"]
        self.contributed += event == "accepted"
        self.rejected += event == "rejected"
        # hand-outs that failed are no missed rounds
        self.missed += event in ("no reply", "failed", "unavailable") and entry.get("kind") != "model"
        if event in _ANSWERS:
            self.heard = str(entry["time"])
        if event == "accepted" and "privacy" in entry:
            self.privacy = entry["privacy"]


class Summed(NamedTuple):
    """What the journal says of rounds in which all sites were summed."""

    sites: int | None = None
    failed: int = 0
    failed_round: int = 0
    reason: str = ""

    def after(self, entry: dict[str, Any]) -> Summed:
        """Return what it says after one more entry."""
        if entry["event"] == "closed" and entry.get("summed") is not None:
            return self._replace(sites=entry["summed"])
        if entry["event"] == "too few sites":
            return Summed(self.sites, self.failed + 1, entry["round"], str(entry["reason"]))
        return self


class Observer:
    """Looks at a federation again and again; what a look costs does not grow with the rounds.

    Parameters
    ----------
    root : Path
        Directory of the federation.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._begin()
        self._version = -1
        self._stored: dict[str, Any] = {}

    def _begin(self) -> None:
        self._read, self._kept = 0, 0
        self.tallies = defaultdict[str, _Tally](_Tally)
        self._events: deque[dict[str, Any]] = deque(maxlen=_LATEST_EVENTS)
        self.notable: deque[dict[str, Any]] = deque(maxlen=_MOST_NOTABLE)
        self.summed = Summed()

    def look(self) -> dict[str, Any]:
        """Return the present state as values for JSON."""
        settings = FederationSettings.load(self.root)
        hub = Hub(self.root / STATE, settings)
        self._follow(hub)
        if hub.store.version != self._version:
            self._version, summary = hub.store.version, hub.summary()
            lineage, n_changes = _lineage(hub)
            self._stored = {
                "rounds_closed": hub.store.closed,
                "model": None
                if summary is None
                else {"clusters": summary.n_clusters, "nodes": summary.n_nodes, "kind": summary.kind},
                "lineage": lineage,
                "n_changes": n_changes,
                "newest": hub.holdings(),
                "amounts": hub.store.amounts(),
            }
        shown = {name: value for name, value in self._stored.items() if name not in ("newest", "amounts")}
        return {
            "name": plain(settings.name, 100),
            "address": settings.address,
            "certificate_until": _certificate(self.root),
            **shown,
            "arrived": hub.arrived(),
            "missing": hub.missing(),
            "sites": self._sites(settings, hub),
            "counts": presence.counters(hub.state),
            "events": list(self._events)[::-1],
        }

    def _follow(self, hub: Hub) -> None:
        """Read what has been added to the journal."""
        if not self._read:
            self._recall(hub)
        if hub.journal_size() < self._read:  # a back-up was brought back
            self._begin()
        entries, self._read = hub.journal_since(self._read)
        for entry in entries:
            self._events.append(_event(entry))
            site, event = str(entry.get("site", "")), entry["event"]
            if event in _NOTABLE:
                self.notable.append(_event(entry))
            self.summed = self.summed.after(entry)
            if event == "forgotten":
                self.tallies.pop(site, None)
            elif site:
                self.tallies[site].add(entry)
        if self._read - self._kept > _WORTH_KEEPING:
            self._keep(hub)

    def _keep(self, hub: Hub) -> None:
        kept = {
            "read": self._read, "mark": _mark(hub, self._read), "events": list(self._events),
            "notable": list(self.notable), "summed": self.summed._asdict(),
            "tallies": {site: asdict(tally) for site, tally in self.tallies.items()},
        }  # fmt: skip
        with contextlib.suppress(OSError):  # whoever may only read looks at all of the journal again
            persistence.write_atomic(hub.state / _FILE, json.dumps(kept).encode())
            self._kept = self._read

    def _recall(self, hub: Hub) -> None:
        """Go on from what an earlier look has kept, if it is of this journal."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            kept = json.loads((hub.state / _FILE).read_text("utf-8"))
            if kept["mark"] == _mark(hub, kept["read"]):
                tallies = {site: _Tally(**tally) for site, tally in kept["tallies"].items()}
                self.summed = Summed(**kept["summed"])
                self.tallies.update(tallies)
                self._events.extend(kept["events"])
                self.notable.extend(kept["notable"])
                self._read = self._kept = kept["read"]

    def _sites(self, settings: FederationSettings, hub: Hub) -> list[dict[str, Any]]:
        newest, amounts, seen = self._stored["newest"], self._stored["amounts"], presence.read(hub.state)
        found = []
        for name in in_reading_order(settings.members):
            here, tally, status = seen.get(name), self.tallies.get(name, _Tally()), settings.members[name].status
            # the newer one is not the one with the later stamp: clocks are put right
            heard = tally.heard if here is None else here.time
            found.append(
                {
                    "site": name,
                    "status": status,
                    "presence": _presence(status, here, bool(heard)),
                    "last_heard": heard or None,
                    "clock_skew": None if here is None else round(here.clock_skew, 1),
                    "version": None if here is None else plain(here.version, 40),
                    "contributed": tally.contributed,
                    "rejected": tally.rejected,
                    "missed": tally.missed,
                    "newest_round": newest.get(name),
                    "nodes": amounts[name].n_nodes if name in amounts else None,
                    "privacy": None if tally.privacy is None else _privacy(tally.privacy),
                }
            )
        return found


def _mark(hub: Hub, end: int) -> str:
    """Return what the journal is recognised by: a digest of what stands before this byte."""
    with (hub.state / JOURNAL).open("rb") as stream:
        stream.seek(max(0, end - _MARK_BYTES))
        return hashlib.sha256(stream.read(min(end, _MARK_BYTES))).hexdigest()


def _presence(status: str, here: presence.Heard | None, heard: bool) -> str:
    if status != "active":
        return status
    if here is not None and here.is_here():
        return "here"
    return "away" if heard else "never seen"


def _privacy(statement: Any) -> dict[str, Any]:
    """Return what a site says of its privacy, cleaned."""
    if not isinstance(statement, dict):
        return {"mechanism": "not readable"}
    found: dict[str, Any] = {"mechanism": plain(str(statement.get("mechanism", "none")), 40)}
    for key in ("spent", "delta", "epsilon"):
        value = statement.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            found[key] = float(value)
    return found


def _certificate(root: Path) -> str:
    return certificates.ends(root / "server" / "server.crt").date().isoformat()


def _lineage(hub: Hub) -> tuple[list[dict[str, Any]], int]:
    """Return the newest changes of clusters, and how many there were in all."""
    with hub.store.reading() as connection:
        query = "SELECT position, change FROM lineage ORDER BY position DESC LIMIT ?"
        rows = connection.execute(query, (_LATEST_EVENTS,)).fetchall()
    names = ("round", "kind", "cluster", "others", "before", "rows")
    changes = [dict(zip(names, json.loads(value), strict=True)) for _, value in rows[::-1]]
    return [{**change, "rows": round(change["rows"])} for change in changes], rows[0][0] + 1 if rows else 0


def _event(entry: dict[str, Any]) -> dict[str, Any]:
    kind = plain(str(entry["event"]), 40)
    return {
        "time": plain(str(entry.get("time", "")), 40),
        "event": kind,
        "site": None if entry.get("site") is None else plain(str(entry["site"]), 70),
        "round": entry.get("round") if isinstance(entry.get("round"), int) else None,
        "words": WORDS.get(kind, kind),
        "reason": plain(str(entry.get("reason", "")), 300),
    }
