"""Contributions to the open round: one file each, stored as soon as they arrive.

A delivery writes only its own bytes, once and atomically. When its round is closed, the store has a copy, and the files
of that round are obsolete, whether or not they could be removed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fcac import persistence


class Inbox:
    """Files ``ROUND/SITE.fcac`` below a folder.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> inbox = Inbox(folder.name)
    >>> inbox.add(1, "a", b"bytes as sent")
    >>> inbox.sites(1), inbox.get(1, "a"), inbox.get(2, "a")
    (['a'], b'bytes as sent', None)
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def add(self, round: int, site: str, data: bytes) -> None:
        """Store what a site has sent, durably."""
        folder = self._of(round)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            # the directory entries of new folders must survive a power cut, too
            for parent in (self.folder, self.folder.parent):
                handle = os.open(parent, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        persistence.write_atomic(folder / f"{site}.fcac", data)

    def get(self, round: int, site: str) -> bytes | None:
        """Return what a site has sent for a round; None if nothing."""
        try:
            return (self._of(round) / f"{site}.fcac").read_bytes()
        except FileNotFoundError:
            return None

    def sites(self, round: int) -> list[str]:
        """Return the sites that have contributed to a round, sorted."""
        folder = self._of(round)
        return sorted(path.stem for path in folder.glob("*.fcac")) if folder.is_dir() else []

    def remove(self, round: int, site: str) -> None:
        """Delete what a site has sent for a round."""
        (self._of(round) / f"{site}.fcac").unlink(missing_ok=True)

    def clear(self, closed: int) -> None:
        """Remove the files of closed rounds, including those that a crash has left behind."""
        for folder in self.folder.glob("*") if self.folder.is_dir() else ():
            if folder.name.isdecimal() and int(folder.name) <= closed:
                shutil.rmtree(folder, ignore_errors=True)

    def _of(self, round: int) -> Path:
        return self.folder / f"{round:09d}"
