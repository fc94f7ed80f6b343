"""Tell somebody when something happens: run a command, or post to an address on this machine.

The event is handed to the command on standard input, and to the address as the body, as one JSON object with ``event``,
``site`` (or ``cluster``), ``round`` and ``text``. A hook that fails or hangs never stops the console.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 10.0
_LOW_BUDGET = 0.2

#: Changes in the life of clusters that are told.
_CHANGES = {"born": "cluster born", "merged": "clusters merged", "died": "cluster died"}


@dataclass(frozen=True)
class Hook:
    """Somebody to tell: a command, or an address that begins with ``http://`` or ``https://``.

    Only addresses on this machine are taken unless `elsewhere` is set, since what happens in a study is not for
    everybody.
    """

    target: str
    elsewhere: bool = False

    def __post_init__(self) -> None:
        if not self.target.strip():
            raise ValueError("hook: give a command, or an address that begins with http://")
        host = urlsplit(self.target).hostname if self.is_address else None
        if host is not None and not self.elsewhere and host not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"hook: {host} is not this machine; add --hook-elsewhere if that is meant")

    @property
    def is_address(self) -> bool:
        """Whether events are posted, not handed to a command."""
        return self.target.startswith(("http://", "https://"))

    def tell(self, event: dict[str, Any]) -> str:
        """Hand over one event; return what went wrong, or an empty text."""
        body = json.dumps(event).encode()
        try:
            if self.is_address:
                request = urllib.request.Request(
                    self.target, data=body, headers={"Content-Type": "application/json"}, method="POST"
                )
                with urllib.request.urlopen(request, timeout=_SECONDS):
                    return ""
            done = subprocess.run(
                shlex.split(self.target), input=body, timeout=_SECONDS, check=False, capture_output=True
            )
            return "" if done.returncode == 0 else f"the command ended with {done.returncode}"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return type(error).__name__


def news(before: dict[str, Any] | None, after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what has happened between two :func:`facts` that somebody should be told; None: everything is known
    already.
    """
    if before is None:
        return []
    found: list[dict[str, Any]] = []
    old = {site["site"]: site for site in before["sites"]}
    for site in after["sites"]:
        was = old.get(site["site"])
        if was is None:
            continue
        name = site["site"]
        if was["presence"] == "here" and site["presence"] == "away":
            found.append({"event": "site away", "site": name, "text": f"{name} has not called for a minute"})
        if site["rejected"] > was["rejected"]:
            text = f"a contribution of {name} was rejected"
            found.append({"event": "contribution rejected", "site": name, "text": text})
        if _low(site) and not _low(was):
            text = f"{name} reports less than a fifth of its budget left"
            found.append({"event": "budget low", "site": name, "text": text})
    fresh = max(0, after["n_changes"] - before["n_changes"])
    for change in after["lineage"][-fresh:] if fresh else []:
        if change["kind"] in _CHANGES:
            event = _CHANGES[change["kind"]]
            text = f"{event} in round {change['round']}: cluster {change['cluster']}"
            found.append({"event": event, "cluster": change["cluster"], "round": change["round"], "text": text})
    return found


def _low(site: dict[str, Any]) -> bool:
    privacy = site["privacy"] or {}
    budget, spent = privacy.get("budget"), privacy.get("spent")
    return budget is not None and spent is not None and budget - spent < _LOW_BUDGET * budget
