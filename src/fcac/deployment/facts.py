"""The state of a federation as plain values: what the console, ``status --json`` and the metrics show."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcac._sites import in_reading_order
from fcac._text import plain
from fcac.deployment import certificates, presence
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings

_ANSWERS = ("accepted", "nothing new", "unavailable", "model taken", "rejected", "budget used up", "not now")
_LATEST_EVENTS = 200

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
        self.missed += event in ("no reply", "failed") and entry.get("kind") != "model"
        if event in _ANSWERS:
            self.heard = str(entry["time"])
        if event == "accepted" and "privacy" in entry:
            self.privacy = entry["privacy"]


class Observer:
    """Looks at a federation again and again; what a look costs does not grow with the rounds.

    Parameters
    ----------
    root : Path
        Directory of the federation.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read, self._tallies = 0, defaultdict[str, _Tally](_Tally)
        self._events: deque[dict[str, Any]] = deque(maxlen=_LATEST_EVENTS)
        self._version = -1
        self._stored: dict[str, Any] = {}

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
                "model": None if summary is None else {"clusters": summary.n_clusters, "nodes": summary.n_nodes},
                "lineage": lineage,
                "n_changes": n_changes,
                "newest": hub.holdings(),
                "amounts": hub.store.amounts(),
            }
        shown = {name: value for name, value in self._stored.items() if name not in ("newest", "amounts")}
        return {
            "name": plain(settings.name, 100),
            "address": settings.address,
            "protection": "TLS and certificates",
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
        if hub.journal_size() < self._read:  # a back-up was brought back
            self.__init__(self.root)  # type: ignore[misc]
        entries, self._read = hub.journal_since(self._read)
        for entry in entries:
            self._events.append(_event(entry))
            site = str(entry.get("site", ""))
            if entry["event"] == "forgotten":
                self._tallies.pop(site, None)
            elif site:
                self._tallies[site].add(entry)

    def _sites(self, settings: FederationSettings, hub: Hub) -> list[dict[str, Any]]:
        newest, amounts, seen = self._stored["newest"], self._stored["amounts"], presence.read(hub.state)
        found = []
        for name in in_reading_order(settings.members):
            here, tally, status = seen.get(name), self._tallies.get(name, _Tally()), settings.members[name].status
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
