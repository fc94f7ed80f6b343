"""An append-only log of decisions, one JSON object per line, each holding the hash of the line before it.

Whoever changes or removes a line breaks the chain from there on; :func:`verify` finds the place. What a chain cannot
show is that its end was cut off: compare the last hash with one noted elsewhere (``fcac federation log`` prints it).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fcac import persistence
from fcac._text import plain

FILE = "audit.jsonl"
_START = "0" * 64
_TAIL = 65_536


class Verdict(NamedTuple):
    """The result of checking a log: entries that are in order, the last hash, and what is wrong, if anything."""

    n_entries: int
    last: str
    problem: str = ""


class AuditLog:
    """The log in the directory of a site or of a hub.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = AuditLog(folder.name)
    >>> log.add("asked", round=1)
    >>> log.add("refused", round=2, reason="the policy allows one round a day")
    >>> [entry["event"] for entry in log.entries()], verify(log.path).n_entries
    (['asked', 'refused'], 2)
    >>> folder.cleanup()
    """

    def __init__(self, state: str | os.PathLike[str], sign: Callable[[bytes], str] | None = None) -> None:
        self.path, self._sign = Path(state) / FILE, sign

    def add(self, event: str, **facts: Any) -> None:
        """Append one entry, durably, or raise an OSError: what cannot be logged must not be done."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with persistence.locked(self.path.with_suffix(".lock")):
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(handle, "r+b") as stream:
                last, end = _last_hash(stream)
                stream.seek(end)
                stream.truncate()  # half a line, left by a crash
                entry = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "event": event,
                    "clock": steady_clock(),
                    **{key: _clean(value) for key, value in facts.items()},
                    "before": last,
                }
                if self._sign is not None:
                    entry["signature"] = self._sign(_line(entry))
                stream.write(_line(entry) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries; half a line at the end, left by a crash, is left out."""
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        found = []
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found


@functools.cache
def _boot() -> str:
    """Return a name for the present run of this machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    return ""


def steady_clock() -> str:
    """Return a name for the present run of this machine and the seconds since its start, which nobody sets."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return f"{_boot()} {time.clock_gettime(clock):.1f}"


def verify(path: str | os.PathLike[str]) -> Verdict:
    """Check that every line of a log follows from the line before it."""
    file = Path(path)
    if not file.exists():
        return Verdict(0, _START)
    with file.open("rb") as stream:
        return verify_lines(stream)


def verify_lines(lines: Iterable[bytes], is_signed: Callable[[bytes, str], bool] | None = None) -> Verdict:
    """Check the lines of a log, and their signatures where there must be some; half a line at the end is left out."""
    last, n_entries = _START, 0
    for line in (line[:-1] for line in lines if line.endswith(b"\n")):
        try:
            entry = json.loads(line)
            sound = isinstance(entry, dict) and entry.get("before") == last and _line(entry) == line
            if sound and is_signed is not None:
                signature = entry.pop("signature", "")
                sound = is_signed(_line(entry), signature)
        except ValueError:
            sound = False
        if not sound:
            return Verdict(n_entries, last, f"line {n_entries + 1} was changed, or the line before it was removed")
        last, n_entries = hashlib.sha256(line).hexdigest(), n_entries + 1
    return Verdict(n_entries, last)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=True, allow_nan=False).encode()


def _last_hash(stream: Any) -> tuple[str, int]:
    """Return the hash of the last complete line and where it ends."""
    size = stream.seek(0, os.SEEK_END)
    begin = max(0, size - _TAIL)
    stream.seek(begin)
    data = stream.read()
    data = data[: data.rfind(b"\n") + 1]
    if not data:
        return _START, begin if begin else 0
    return hashlib.sha256(data[:-1].rpartition(b"\n")[2]).hexdigest(), begin + len(data)


def _clean(value: Any) -> Any:
    """Return a value that can be shown and stored, whatever it was."""
    if isinstance(value, str):
        return plain(value, 500)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {plain(str(key), 100): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else plain(str(value), 500)
