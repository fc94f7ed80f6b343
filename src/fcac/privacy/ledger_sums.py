"""What the charges of a ledger add up to: queries on its open file, in rho."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime
from typing import Any


def insert(connection: sqlite3.Connection, **values: Any) -> int:
    values = {"time": _now(), **values}
    marks = ", ".join("?" * len(values))
    cursor = connection.execute(f"INSERT INTO charges ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def for_everybody(connection: sqlite3.Connection, site: str | None = None) -> float:
    """Return what every record has cost at most, apart from charges to people."""
    where, given = ("", ()) if site is None else (" AND site = ?", (site,))
    query = f"SELECT rho FROM charges WHERE counted = 'all'{where}"
    return math.fsum(row[0] for row in connection.execute(query, given))


def spent_rho(connection: sqlite3.Connection, site: str | None) -> float:
    """Return general charges plus the maximum over people: nobody can have cost more."""
    if site is None:
        # a person has one id, but may have rows under several names
        query: tuple[Any, ...] = ("SELECT MAX(spent) FROM (SELECT SUM(rho) AS spent FROM ids GROUP BY id)",)
    else:
        query = ("SELECT MAX(rho) FROM ids WHERE site = ?", (site,))
    (dearest,) = connection.execute(*query).fetchone()
    return math.fsum([for_everybody(connection, site), dearest or 0.0])


def slack_of_all(connection: sqlite3.Connection) -> float:
    """Return the probability, over all charges, that something was shown that rho does not account for.

    It is 0 for Gaussian noise; a release of names (levels of a category) has a little. Differential privacy at delta
    then needs rho to be converted at delta less this sum (docs/privacy/agreement.md).
    """
    return math.fsum(row[0] for row in connection.execute("SELECT slack FROM charges"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
