"""The output of ``fcac federation status``."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

from fcac.deployment import certificates
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings
from fcac.deployment.study import STATE


def describe(root: Path, rejected: bool = False) -> list[str]:
    """Return the state of a federation as lines of text.

    Parameters
    ----------
    root : Path
    rejected : bool
        Also list what was rejected, and why.
    """
    settings = FederationSettings.load(root)
    hub = Hub(root / STATE, settings)
    closed, summary, journal = hub.store.closed, hub.summary(), hub.journal()
    lines = [f"{settings.name} at {settings.address} ({_protection(root, settings)})"]
    lines.append(f"rounds closed: {closed}; round {closed + 1} is open")
    if summary is not None:
        lines.append(f"model: {summary.n_clusters} clusters, {summary.n_nodes} nodes ({summary.kind})")
    else:
        lines.append("model: none yet")
    waiting = hub.arrived()
    if waiting:
        lines.append(f"arrived for the open round: {', '.join(waiting)}")
    lines += ["", *_table(settings, hub.holdings(), journal)]
    if any(line.partition(" eps ")[1] for line in lines):
        lines += [
            "",
            "Privacy spent: at most this by anybody at the site over all rounds, as reported by the sites.",
            "Each site sets its own budget.",
            *_several_sites(settings, journal),
        ]
    if rejected:
        lines += ["", *(_rejection(entry) for entry in journal if entry["event"] == "rejected")]
    return lines


def _protection(root: Path, settings: FederationSettings) -> str:
    if settings.insecure:
        return "PLAIN, no keys"
    ends = certificates.server_certificate_ends(root / "server" / "server.crt")
    left = (ends - datetime.datetime.now(datetime.UTC)).days
    return f"TLS, node keys; server certificate until {ends:%Y-%m-%d}" + (", RENEW IT" if left < 30 else "")


def _table(settings: FederationSettings, newest: dict[str, int], journal: list[dict[str, Any]]) -> list[str]:
    heads = ("site", "status", "last heard", "contributed", "newest", "rejected", "missed", "privacy spent")
    rows = [heads]
    by_site: dict[str, list[dict[str, Any]]] = {}
    for entry in journal:
        by_site.setdefault(str(entry.get("site")), []).append(entry)
    for name in sorted(settings.members):
        mine = _since_forgotten(by_site.get(name, []))
        events = Counter(entry["event"] for entry in mine)
        heard = [e for e in mine if e["event"] in ("accepted", "nothing new", "unavailable", "model taken", "rejected")]
        missed = events["no reply"] + events["failed"] + events["unavailable"]
        rows.append(
            (
                name,
                settings.members[name].status,
                heard[-1]["time"][:19].replace("T", " ") if heard else "never",
                _times(events["accepted"]),
                f"round {newest[name]}" if name in newest else "-",
                str(events["rejected"]),
                str(missed),
                _spent([entry["privacy"] for entry in mine if entry["event"] == "accepted"]),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _several_sites(settings: FederationSettings, journal: list[dict[str, Any]]) -> list[str]:
    """Return what a person has spent who is at several sites, as far as the study assumes that."""
    from fcac.privacy.statements import at_several_sites

    newest = {entry["site"]: entry["privacy"] for entry in journal if entry["event"] == "accepted"}
    lines = at_several_sites(list(newest.values()), settings.people_overlap)
    assumed = "not stated" if settings.people_overlap is None else f"at most {settings.people_overlap}"
    return [f"Sites at which one person may be: {assumed} (people_overlap in federation.toml).", *lines]


def _since_forgotten(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the part of a site's history that counts: nothing from before it was forgotten."""
    last = max((i for i, entry in enumerate(entries) if entry["event"] == "forgotten"), default=-1)
    return entries[last + 1 :]


def _times(n: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")


def _spent(statements: list[dict[str, Any]]) -> str:
    """Return what a site reports to have spent, from its newest contribution."""
    if not statements:
        return "-"
    newest = statements[-1]
    if newest.get("mechanism") == "none":
        return "NO PRIVACY"
    if "spent" in newest:
        return f"eps {newest['spent']:.3g} at delta {newest.get('delta', 0):g}"
    return str(newest.get("mechanism", "not stated"))


def _rejection(entry: dict[str, Any]) -> str:
    return f"{entry['time'][:19]} round {entry['round']} {entry['site']}: {entry['reason']}"
