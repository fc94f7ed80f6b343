"""A lock between processes that is released even if the process that holds it is killed."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

# SQLite has no unlimited timeout; nothing that holds a lock here takes a day.
_A_DAY = 86_400.0


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], timeout: float | None = None) -> Iterator[None]:
    """Hold the lock of a path; others that request it wait.

    The lock is an exclusive transaction on an empty SQLite file: it works on every system, across threads and
    processes, and ends with the process that holds it.

    Parameters
    ----------
    path : path-like
        A file used only for the lock; created if it does not exist. Its directory must exist.
    timeout : float, optional
        Seconds to wait before a ``TimeoutError`` is raised; None waits as long as necessary.

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
