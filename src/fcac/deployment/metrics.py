"""The state of a federation in the text format that Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcac.deployment import certificates

_HELP = {
    "fcac_rounds_closed_total": ("counter", "Rounds that have been closed."),
    "fcac_clusters": ("gauge", "Clusters of the present model."),
    "fcac_nodes": ("gauge", "Nodes behind the present model."),
    "fcac_arrived": ("gauge", "Sites whose contribution to the open round has arrived."),
    "fcac_site_here": ("gauge", "Whether a site has called within the last minute."),
    "fcac_site_contributed_total": ("counter", "Contributions of a site that were accepted."),
    "fcac_site_rejected_total": ("counter", "Contributions of a site that were rejected."),
    "fcac_site_missed_total": ("counter", "Rounds in which a site was asked and did not answer."),
    "fcac_site_clock_skew_seconds": ("gauge", "Clock of a site less the clock of the hub."),
    "fcac_certificate_days": ("gauge", "Days until the hub's certificate expires."),
    "fcac_resident_bytes": ("gauge", "Memory of the hub's process."),
    "fcac_site_epsilon_spent": ("gauge", "Privacy spent, as reported by a site."),
}


def as_text(facts: dict[str, Any]) -> str:
    """Return the metrics of a federation, from its :func:`facts`."""
    model = facts["model"] or {"clusters": 0, "nodes": 0}
    values: dict[str, list[tuple[str | None, float | None]]] = {
        "fcac_rounds_closed_total": [(None, facts["rounds_closed"])],
        "fcac_clusters": [(None, model["clusters"])],
        "fcac_nodes": [(None, model["nodes"])],
        "fcac_arrived": [(None, len(facts["arrived"]))],
    }
    for site in facts["sites"]:
        of_site = {
            "fcac_site_here": float(site["presence"] == "here"),
            "fcac_site_contributed_total": site["contributed"],
            "fcac_site_rejected_total": site["rejected"],
            "fcac_site_missed_total": site["missed"],
            "fcac_site_clock_skew_seconds": site["clock_skew"],
            "fcac_site_epsilon_spent": (site["privacy"] or {}).get("spent"),
        }
        for name, value in of_site.items():
            values.setdefault(name, []).append((site["site"], value))
    return _lines(values)


def of_hub(root: Path, facts: dict[str, Any], counts: Mapping[str, int]) -> str:
    """Return the metrics of a hub's process: those of its federation, and what the process itself has counted."""
    days = (certificates.ends(root / "server" / "server.crt").timestamp() - time.time()) / 86_400
    own: dict[str, list[tuple[str | None, float | None]]] = {"fcac_certificate_days": [(None, days)]}
    status = Path("/proc/self/statm")
    if status.exists():
        own["fcac_resident_bytes"] = [(None, int(status.read_text().split()[1]) * 4096)]
    counted = "".join(
        f"# TYPE fcac_hub_{name}_total counter\nfcac_hub_{name}_total {count}\n"
        for name, count in sorted(counts.items())
    )
    return as_text(facts) + _lines(own) + counted


def _lines(values: dict[str, list[tuple[str | None, float | None]]]) -> str:
    lines = []
    for name, samples in values.items():
        kind, text = _HELP[name]
        known = [(site, value) for site, value in samples if value is not None]
        if known:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_label(site)} {float(value):g}" for site, value in known]
    return "\n".join(lines) + "\n"


def _label(site: str | None) -> str:
    if site is None:
        return ""
    return '{site="' + site.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"}'
