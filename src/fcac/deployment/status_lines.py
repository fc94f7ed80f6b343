"""The output of ``fcac federation status``."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from fcac._text import plain
from fcac.deployment import certificates
from fcac.deployment.facts import Observer, Summed
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings, Summing
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon, up

#: No clock matters to a round; one that is so far off is told, because dates of certificates do.
_CLOCK_SECONDS = 60.0


def describe(root: Path, rejected: bool = False) -> list[str]:
    """Return the state of a federation as lines of text; with `rejected`, also what was rejected, and why."""
    settings, observer = FederationSettings.load(root), Observer(root)
    now = observer.look()
    closed, model = now["rounds_closed"], now["model"]
    lines = [f"{now['name']} at {settings.address} ({_protection(root)})"]
    lines.append(f"rounds closed: {closed}; round {closed + 1} is open")
    if model is not None:
        lines.append(f"model: {model['clusters']} clusters, {model['nodes']} nodes ({model['kind']})")
    else:
        lines.append("model: none yet")
    if settings.summing is not None:
        lines += _summed(settings.summing, closed, observer.summed)
    if now["arrived"]:
        lines.append(f"arrived for the open round: {', '.join(now['arrived'])}")
    said = {name: tally.privacy for name, tally in observer.tallies.items() if tally.privacy is not None}
    lines += ["", *_table(now["sites"], said)]
    skews = {site["site"]: site["clock_skew"] or 0.0 for site in now["sites"]}
    lines += [
        f"{site}: its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the hub's"
        for site, skew in skews.items()
        if abs(skew) > _CLOCK_SECONDS
    ]
    if any(line.partition(" eps ")[1] for line in lines):
        lines += [
            "",
            "Privacy spent: at most this by anybody at the site over all rounds, as reported by the sites.",
            "Each site sets its own budget.",
            *_several_sites(settings, list(said.values())),
        ]
    refused = {name: n for name, n in now["counts"].items() if "refused" in name or "timed" in name}
    if refused:
        counts = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in sorted(refused.items()))
        lines += ["", f"Strangers and mishaps at the hub's ports: {counts}"]
    recent = [event for event in observer.notable if (event["round"] or closed) >= closed - 1]
    if recent:
        lines += ["", "Worth a look:"]
        lines += [f"{e['time'][:19]} {e['site'] or ''} {e['event']}: {e['reason']}" for e in recent]
    if rejected:
        journal = Hub(root / STATE, settings).journal()
        lines += ["", *(_rejection(entry) for entry in journal if entry["event"] == "rejected")]
    return lines


def _summed(summing: Summing, closed: int, known: Summed) -> list[str]:
    """Return what can be said of sites that are summed before anyone sees: only what they did together."""
    lines = [
        f"all sites are summed (secure aggregation): eps {summing.epsilon:g} at delta {summing.delta:g} per round; "
        f"at least {summing.least} sites, {summing.tolerance} may vanish or collude"
    ]
    if known.sites is not None:
        rho = (closed + known.failed) * rho_from_epsilon(summing.epsilon, summing.delta)
        rounds = "the only round" if closed == 1 else f"all {closed} rounds"
        failed = f", with {known.failed} attempts that were broken off, each counted as a whole round"
        lines.append(
            f"sites in the latest total: {known.sites}; a record in {rounds} has cost at most "
            f"eps {up(epsilon_from_rho(rho, summing.delta))}{failed if known.failed else ''}"
        )
    if known.failed_round == closed + 1:
        lines.append(plain(f"round {closed + 1} was broken off: {known.reason}", 300))
    lines.append("What single sites contributed is known to nobody, so it is not listed.")
    return lines


def _protection(root: Path) -> str:
    ends = certificates.ends(root / "server" / "server.crt")
    left = (ends - datetime.datetime.now(datetime.UTC)).days
    return f"TLS, certificates of sites; the hub's until {ends:%Y-%m-%d}" + (", RENEW IT" if left < 30 else "")


def _table(sites: list[dict[str, Any]], said: dict[str, Any]) -> list[str]:
    heads = ("site", "status", "last heard", "contributed", "newest", "rejected", "missed", "privacy spent")
    rows = [heads]
    for site in sites:
        heard, newest = site["last_heard"], site["newest_round"]
        rows.append(
            (
                site["site"],
                site["status"],
                "never" if heard is None else heard[:19].replace("T", " "),
                _times(site["contributed"]),
                "-" if newest is None else f"round {newest}",
                str(site["rejected"]),
                str(site["missed"]),
                _spent(said.get(site["site"])),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _several_sites(settings: FederationSettings, said: list[dict[str, Any]]) -> list[str]:
    """Return what a person has spent who is at several sites, as far as the study assumes that."""
    from fcac.privacy.statements import at_several_sites

    assumed = "not stated" if settings.people_overlap is None else f"at most {settings.people_overlap}"
    return [
        f"Sites at which one person may be: {assumed} (people_overlap in federation.toml).",
        *at_several_sites(said, settings.people_overlap),
    ]


def _times(n: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")


def _spent(newest: dict[str, Any] | None) -> str:
    """Return what a site reports to have spent, from its newest contribution."""
    if newest is None:
        return "-"
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
