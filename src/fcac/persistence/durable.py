"""Files that change completely or not at all, and a lock between processes that ends with whoever holds it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

# SQLite has no unlimited timeout; nothing that holds a lock here takes a day.
_A_DAY = 86_400.0


def write_atomic(path: str | os.PathLike[str], data: bytes, *, private: bool = False) -> None:
    """Write a file so that readers see either the old content or the new, never a mixture, even after a crash.

    A private file can be read by its owner only, from the first byte on.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists() and not private:
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if os.name == "posix":
        # The new directory entry must survive a power cut as well, so the directory is flushed too.
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], timeout: float | None = None) -> Iterator[None]:
    """Hold the lock of a path; others that request it wait.

    The lock is an exclusive transaction on an empty SQLite file: it works on every system, across threads and
    processes, and ends with the process that holds it. The file is made if there is none. After
    `timeout` seconds there is a ``TimeoutError``; None waits as long as necessary.

    >>> import tempfile, os
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
