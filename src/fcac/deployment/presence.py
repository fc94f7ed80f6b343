"""Which site was heard of when, by how much its clock differs, and which version it runs; kept in one small file.

The hub's process writes it every few seconds; ``status`` and the console read it. It is information for the operator:
nothing depends on it, and losing it loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
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
    """What is known of a site that has called."""

    time: str
    clock_skew: float
    version: str

    def is_here(self, now: datetime | None = None) -> bool:
        """Return whether the site has called within the last minute."""
        age = (now or datetime.now(UTC)) - datetime.fromisoformat(self.time)
        return age.total_seconds() < AWAY_SECONDS


class Presence:
    """What the hub's process has heard, written to disk now and then.

    Parameters
    ----------
    state : path-like
        The hub's state directory.

    Examples
    --------
    >>> import tempfile
    >>> from fcac.deployment.presence import Presence, read
    >>> folder = tempfile.TemporaryDirectory()
    >>> presence = Presence(folder.name)
    >>> presence.heard("north", 0.25, "0.2.0")
    >>> presence.write(now=True)
    >>> read(folder.name)["north"].clock_skew, read(folder.name)["north"].is_here()
    (0.2, True)
    >>> folder.cleanup()
    """

    def __init__(self, state: str | Path) -> None:
        self.path = Path(state) / _FILE
        self._sites: dict[str, dict[str, Any]] = {site: heard._asdict() for site, heard in read(state).items()}
        self._changed, self._written = False, 0.0

    def heard(self, site: str, clock_skew: float, version: str) -> None:
        """Note that a site has called just now."""
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        # a single signature is made before the way to the hub: small differences mean nothing
        self._sites[site] = {"time": stamp, "clock_skew": round(clock_skew, 1), "version": plain(version, 20)}
        self._changed = True

    def write(self, now: bool = False) -> None:
        """Write to disk if something has changed and the last time is some seconds ago."""
        if self._changed and (now or time.monotonic() - self._written > _WRITE_SECONDS):
            self._changed, self._written = False, time.monotonic()
            with contextlib.suppress(OSError):
                persistence.write_atomic(self.path, json.dumps(dict(self._sites)).encode())


def read(state: str | Path) -> dict[str, Heard]:
    """Return what is known of every site that has ever called."""
    try:
        found = json.loads((Path(state) / _FILE).read_text("utf-8"))
        return {str(site): Heard(**entry) for site, entry in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
