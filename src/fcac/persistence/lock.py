"""A lock between processes that a killed process loses by itself."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

# SQLite takes no "for ever"; nothing that holds a lock here lasts a day.
_A_DAY = 86_400.0


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], timeout: float | None = None) -> Iterator[None]:
    """Hold the lock of a path; others that ask for it wait.

    The lock is an exclusive transaction on an empty SQLite file: it works on every system, across threads and
    processes, and goes with the process that holds it.

    Parameters
    ----------
    path : path-like
        A file of its own; made if it is not there. Its directory must exist.
    timeout : float, optional
        Seconds to wait before a ``TimeoutError``; None waits as long as it takes.

    Examples
    --------
    >>> import tempfile, os
    >>> from fcac.persistence import locked
    >>> with tempfile.TemporaryDirectory() as folder, locked(os.path.join(folder, "lock")):
    ...     print("nobody else is here")
    nobody else is here
    """
    held = sqlite3.connect(Path(path), timeout=_A_DAY if timeout is None else timeout, isolation_level=None)
    try:
        try:
            held.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "busy" not in str(error):
                raise OSError(f"{os.fspath(path)} cannot be locked: {error}") from None
            raise TimeoutError(f"{os.fspath(path)} is locked by another process") from None
        yield
    finally:
        held.close()
