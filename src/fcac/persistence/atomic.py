"""Atomic writes: files that change completely or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


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
