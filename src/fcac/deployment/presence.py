"""Which site is connected, when it was heard of and which version it runs; and what the hub had to refuse.

The hub's service writes one small file whenever something has changed; ``run``, ``status`` and the console read it.
Losing it loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fcac import persistence
from fcac._text import plain

_FILE = "presence.json"
_WRITE_SECONDS = 5.0
#: A site that was not heard of for this long is away.
AWAY_SECONDS = 60.0


class Heard(NamedTuple):
    """What is known of a site that has called; `open`: its question for messages is open at the hub."""

    time: str
    clock_skew: float
    version: str
    open: bool = False

    def is_here(self, now: datetime | None = None) -> bool:
        """Return whether the site has called within the last minute; a stamp from the future says nothing."""
        age = (now or datetime.now(UTC)) - datetime.fromisoformat(self.time)
        return abs(age.total_seconds()) < AWAY_SECONDS


class Presence:
    """What the hub's process has heard, written to disk when it changes.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> presence = Presence(folder.name)
    >>> presence.heard("north", True, 0.25, "0.2.0")
    >>> presence.write()
    >>> read(folder.name)["north"].clock_skew, read(folder.name)["north"].open
    (0.2, True)
    >>> folder.cleanup()
    """

    def __init__(self, state: str | Path) -> None:
        self.path = Path(state) / _FILE
        # nobody is connected to a hub that has just started
        self._sites = {site: heard._replace(open=False) for site, heard in read(state).items()}
        self.counts: Counter[str] = Counter(counters(state))
        self._urgent, self._written = True, 0.0

    def heard(self, site: str, open: bool, clock_skew: float | None = None, version: str | None = None) -> None:
        """Note that a site has called, or that its connection has ended."""
        before = self._sites.get(site)
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        known = before or Heard(stamp, 0.0, "")
        skew = known.clock_skew if clock_skew is None else round(clock_skew, 1)
        said = known.version if version is None else plain(version, 20)
        self._urgent |= before is None or before.open != open
        self._sites[site] = Heard(stamp, skew, said, open)

    def lost(self, site: str) -> None:
        """Note that a site's connection has ended, some time after it was last heard of."""
        if site in self._sites and self._sites[site].open:
            self._sites[site] = self._sites[site]._replace(open=False)
            self._urgent = True

    def write(self, now: bool = False) -> None:
        """Write to disk if somebody has come or gone, and otherwise every few seconds."""
        if not (now or self._urgent) and time.monotonic() - self._written < _WRITE_SECONDS:
            return
        self._urgent, self._written = False, time.monotonic()
        sites = {site: heard._asdict() for site, heard in self._sites.items()}
        with contextlib.suppress(OSError):
            persistence.write_atomic(self.path, json.dumps({"sites": sites, "counts": self.counts}).encode())


def read(state: str | Path) -> dict[str, Heard]:
    """Return what is known of every site that has ever called."""
    try:
        return {str(site): Heard(**entry) for site, entry in _read(state)["sites"].items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}


def counters(state: str | Path) -> dict[str, int]:
    """Return how often the hub has done, or refused, what: connections, requests, strangers."""
    try:
        return {str(name): int(value) for name, value in _read(state)["counts"].items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}


def _read(state: str | Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((Path(state) / _FILE).read_text("utf-8"))
        if isinstance(found, dict):
            return found
    return {}
