"""Which nodes were ever contributed, as fingerprints that can be searched without reading them all.

What is sent to sites must not equal a node of any round. Each round adds one sorted segment of 64-bit fingerprints,
divided into small chunks; eight segments of one level are merged into one of the next, so that a search reads few
chunks however many rounds there were. A collision (probability 2**-64 for each pair) would only omit a codeword.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats
from fcac.federation.log import row_bytes

TABLES = """
CREATE TABLE segments (id INTEGER PRIMARY KEY, level INTEGER NOT NULL);
CREATE TABLE seen (segment INTEGER, first INTEGER, data BLOB NOT NULL, PRIMARY KEY (segment, first)) WITHOUT ROWID;
"""

_CHUNK = 256
_MERGED = 8


def add(connection: sqlite3.Connection, nodes: Iterable[Floats]) -> None:
    """Add the nodes of one round (or of many, when migrating a log)."""
    prints = [_fingerprints(block) for block in nodes]
    if not sum(map(len, prints)):
        return
    _write(connection, np.unique(np.concatenate(prints)), 0)
    level = 0
    while True:
        found = connection.execute("SELECT id FROM segments WHERE level = ?", (level,)).fetchall()
        if len(found) < _MERGED:
            return
        parts = [_read(connection, segment) for (segment,) in found]
        for table, column in (("seen", "segment"), ("segments", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", found)
        level += 1
        _write(connection, np.unique(np.concatenate(parts)), level)


def clear(connection: sqlite3.Connection) -> None:
    """Forget all nodes."""
    connection.execute("DELETE FROM seen")
    connection.execute("DELETE FROM segments")


def holds(connection: sqlite3.Connection, points: Floats) -> NDArray[np.bool_]:
    """Return for every point whether exactly this point was added."""
    wanted = _fingerprints(points)
    found = np.zeros(len(wanted), np.bool_)
    for (segment,) in connection.execute("SELECT id FROM segments").fetchall():
        for position, value in enumerate(wanted.tolist()):
            row = connection.execute(
                "SELECT data FROM seen WHERE segment = ? AND first <= ? ORDER BY first DESC LIMIT 1", (segment, value)
            ).fetchone()
            if row is not None and not found[position]:
                chunk = np.frombuffer(row[0], "<i8")
                place = int(np.searchsorted(chunk, value))
                found[position] = place < len(chunk) and chunk[place] == value
    return found


def _fingerprints(nodes: Floats) -> NDArray[np.int64]:
    # signed, because SQLite orders integers as signed numbers
    digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in row_bytes(nodes))
    return np.frombuffer(digests, "<i8").astype(np.int64)


def _write(connection: sqlite3.Connection, prints: NDArray[np.int64], level: int) -> None:
    segment = connection.execute("INSERT INTO segments (level) VALUES (?)", (level,)).lastrowid
    chunks = (prints[start : start + _CHUNK] for start in range(0, len(prints), _CHUNK))
    connection.executemany(
        "INSERT INTO seen VALUES (?, ?, ?)",
        ((segment, int(chunk[0]), chunk.astype("<i8").tobytes()) for chunk in chunks),
    )


def _read(connection: sqlite3.Connection, segment: int) -> NDArray[np.int64]:
    rows = connection.execute("SELECT data FROM seen WHERE segment = ? ORDER BY first", (segment,))
    return np.frombuffer(b"".join(data for (data,) in rows), "<i8").astype(np.int64)
