"""Which rooms of the package a change touches, so that their tests run first."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def room_of(path: str) -> str:
    """Return the room of a source file or of its tests: the folder or module below ``src/fcac`` or ``tests``."""
    parts = Path(path).parts
    below = parts[2:] if parts[:2] == ("src", "fcac") else parts[1:] if parts[:1] == ("tests",) else ()
    return below[0].removeprefix("test_").removeprefix("_").removesuffix(".py") if below else ""


def rooms_of(paths: Iterable[str]) -> set[str]:
    return {room_of(path) for path in paths} - {"", "testing", "conftest"}


def changed_rooms() -> set[str]:
    """Return the rooms of what is not committed yet, or else of the last commit; none where there is no git."""
    for words in (("status", "--porcelain", "--no-renames"), ("diff", "--name-only", "HEAD~1")):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        found = rooms_of(line.split()[-1] for line in done.stdout.splitlines() if line)
        if found:
            return found
    return set()
