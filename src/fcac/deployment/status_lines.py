"""The output of ``fcac federation status``."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

from fcac._sites import in_reading_order
from fcac._text import plain
from fcac.deployment import certificates, presence
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon, up


def describe(root: Path, rejected: bool = False) -> list[str]:
    """Return the state of a federation as lines of text; with `rejected`, also what was rejected, and why."""
    settings = FederationSettings.load(root)
    hub = Hub(root / STATE, settings)
    closed, summary, journal = hub.store.closed, hub.summary(), hub.journal()
    lines = [f"{settings.name} at {settings.address} ({_protection(root, settings)})"]
    lines.append(f"rounds closed: {closed}; round {closed + 1} is open")
    if summary is not None:
        lines.append(f"model: {summary.n_clusters} clusters, {summary.n_nodes} nodes ({summary.kind})")
    else:
        lines.append("model: none yet")
    if settings.summing is not None:
        lines += _summed(settings, closed, journal)
    waiting = hub.arrived()
    if waiting:
        lines.append(f"arrived for the open round: {', '.join(waiting)}")
    seen = presence.read(root / STATE)
    lines += ["", *_table(settings, hub.holdings(), journal, seen)]
    lines += _clocks(seen)
    if any(line.partition(" eps ")[1] for line in lines):
        lines += [
            "",
            "Privacy spent: at most this by anybody at the site over all rounds, as reported by the sites.",
            "Each site sets its own budget.",
            *_several_sites(settings, journal),
        ]
    refused = {name: n for name, n in presence.counters(root / STATE).items() if "refused" in name or "timed" in name}
    if refused:
        said = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in sorted(refused.items()))
        lines += ["", f"Strangers and mishaps at the hub's ports: {said}"]
    lines += _worth_a_look(journal, closed)
    if rejected:
        lines += ["", *(_rejection(entry) for entry in journal if entry["event"] == "rejected")]
    return lines


def _worth_a_look(journal: list[dict[str, Any]], closed: int) -> list[str]:
    """Return what the operator should see of the last rounds: what was unusual, capped or refused."""
    recent = [
        entry
        for entry in journal
        if entry["event"] in ("unusual", "capped", "refused") and entry.get("round", closed) >= closed - 1
    ]
    lines = [plain(f"{e['time'][:19]} {e.get('site', '')} {e['event']}: {e.get('reason', '')}", 300) for e in recent]
    return ["", "Worth a look:", *lines[-10:]] if lines else []


def _summed(settings: FederationSettings, closed: int, journal: list[dict[str, Any]]) -> list[str]:
    """Return what can be said of sites that are summed before anyone sees: only what they did together."""
    summing = settings.summing
    assert summing is not None
    lines = [
        f"all sites are summed (secure aggregation): eps {summing.epsilon:g} at delta {summing.delta:g} per round; "
        f"at least {summing.least} sites, {summing.tolerance} may vanish or collude"
    ]
    rounds = [entry for entry in journal if entry["event"] == "closed" and entry.get("summed") is not None]
    failed = [entry for entry in journal if entry["event"] == "too few sites"]
    if rounds:
        rho = (closed + len(failed)) * rho_from_epsilon(summing.epsilon, summing.delta)
        lines.append(
            f"sites in the latest total: {rounds[-1]['summed']}; a record in {_all(closed)} has cost at most "
            f"eps {up(epsilon_from_rho(rho, summing.delta))}{_broken_off(len(failed))}"
        )
    if failed and failed[-1]["round"] == closed + 1:
        lines.append(f"round {closed + 1} was broken off: {failed[-1]['reason']}")
    lines.append("What single sites contributed is known to nobody, so it is not listed.")
    return lines


def _broken_off(n_failed: int) -> str:
    return f", with {n_failed} attempts that were broken off, each counted as a whole round" if n_failed else ""


def _all(closed: int) -> str:
    return "the only round" if closed == 1 else f"all {closed} rounds"


def _protection(root: Path, settings: FederationSettings) -> str:
    ends = certificates.ends(root / "server" / "server.crt")
    left = (ends - datetime.datetime.now(datetime.UTC)).days
    return f"TLS, certificates of sites; the hub's until {ends:%Y-%m-%d}" + (", RENEW IT" if left < 30 else "")


def _clocks(seen: dict[str, presence.Heard]) -> list[str]:
    """Return a line for every site whose clock is far from the hub's: soon it would be locked out."""
    far = {site: heard.clock_skew for site, heard in sorted(seen.items()) if not -60 < heard.clock_skew < 3}
    return [
        f"{site}: its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the hub's"
        for site, skew in far.items()
    ]


def _table(
    settings: FederationSettings,
    newest: dict[str, int],
    journal: list[dict[str, Any]],
    seen: dict[str, presence.Heard],
) -> list[str]:
    heads = ("site", "status", "last heard", "contributed", "newest", "rejected", "missed", "privacy spent")
    rows = [heads]
    by_site: dict[str, list[dict[str, Any]]] = {}
    for entry in journal:
        by_site.setdefault(str(entry.get("site")), []).append(entry)
    for name in in_reading_order(settings.members):
        mine = _since_forgotten(by_site.get(name, []))
        events = Counter(entry["event"] for entry in mine)
        answers = ("accepted", "nothing new", "unavailable", "model taken", "rejected", "budget used up", "not now")
        heard = [e["time"] for e in mine if e["event"] in answers]
        if name in seen:
            heard.append(seen[name].time)
        # hand-outs that failed are no missed rounds
        missed = sum(e["event"] in ("no reply", "failed", "unavailable") and e.get("kind") != "model" for e in mine)
        rows.append(
            (
                name,
                settings.members[name].status,
                max(heard)[:19].replace("T", " ") if heard else "never",
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
        return "UNPROTECTED"
    try:
        if "spent" in newest:
            return f"eps {up(float(newest['spent']))} at delta {float(newest.get('delta', 0)):g}"
    except (TypeError, ValueError):  # stored before statements were checked
        return "not readable"
    return plain(str(newest.get("mechanism", "not stated")), 40)


def _rejection(entry: dict[str, Any]) -> str:
    return plain(f"{entry['time'][:19]} round {entry['round']} {entry['site']}: {entry['reason']}", 500)
