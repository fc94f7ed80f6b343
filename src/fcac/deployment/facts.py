"""The state of a federation as plain values: what the console, ``status --json`` and the metrics show."""

from __future__ import annotations

import json
from collections import Counter
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
    settings = FederationSettings.load(root)
    hub = Hub(root / STATE, settings)
    journal, summary, closed = hub.journal(), hub.summary(), hub.store.closed
    return {
        "name": plain(settings.name, 100),
        "address": settings.address,
        "protection": "TLS and certificates",
        "certificate_until": _certificate(root),
        "rounds_closed": closed,
        "arrived": hub.arrived(),
        "missing": hub.missing(),
        "model": None if summary is None else {"clusters": summary.n_clusters, "nodes": summary.n_nodes},
        "sites": _sites(settings, hub, journal),
        "lineage": _lineage(hub),
        "events": [_event(entry) for entry in journal[-_LATEST_EVENTS:]][::-1],
    }


def _sites(settings: FederationSettings, hub: Hub, journal: list[dict[str, Any]]) -> list[dict[str, Any]]:
    newest, seen, amounts = hub.holdings(), presence.read(hub.state), hub.store.amounts()
    found = []
    for name in in_reading_order(settings.members):
        mine = [entry for entry in journal if entry.get("site") == name]
        events = Counter(entry["event"] for entry in mine)
        heard = [entry["time"] for entry in mine if entry["event"] in _ANSWERS]
        here = seen.get(name)
        if here is not None:
            heard.append(here.time)
        status = settings.members[name].status
        spent = [entry["privacy"] for entry in mine if entry["event"] == "accepted" and "privacy" in entry]
        found.append(
            {
                "site": name,
                "status": status,
                "presence": _presence(status, here, bool(heard)),
                "last_heard": max(heard) if heard else None,
                "clock_skew": None if here is None else round(here.clock_skew, 1),
                "version": None if here is None else plain(here.version, 40),
                "contributed": events["accepted"],
                "rejected": events["rejected"],
                "missed": sum(e["event"] in ("no reply", "failed") and e.get("kind") != "model" for e in mine),
                "newest_round": newest.get(name),
                "nodes": amounts[name].n_nodes if name in amounts else None,
                "privacy": _privacy(spent[-1]) if spent else None,
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


def _lineage(hub: Hub) -> list[dict[str, Any]]:
    with hub.store.reading() as connection:
        query = "SELECT change FROM lineage ORDER BY position DESC LIMIT ?"
        rows = connection.execute(query, (_LATEST_EVENTS,)).fetchall()
    names = ("round", "kind", "cluster", "others", "before", "rows")
    changes = [dict(zip(names, json.loads(value), strict=True)) for (value,) in rows]
    return [{**change, "rows": round(change["rows"])} for change in changes[::-1]]


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
