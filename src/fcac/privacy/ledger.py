"""The ledger: what a site has spent of its privacy budget, recorded on disk before any noise is drawn.

It is one SQLite file at the site, with one row per charge. A crash may waste budget but can never hide spending: a
charge is on disk before the noise it pays for exists. Costs are stored as rho (which adds up exactly) and shown as
epsilon at delta.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fcac.exceptions import BudgetExceeded, LedgerError, RepeatedBatch
from fcac.privacy._plain import PlainObject
from fcac.privacy.zcdp import check_delta, check_epsilon, epsilon_from_rho, rho_from_epsilon, show

RecordIds = Sequence[Any] | None

_FORMAT = "1"
_KEY_BYTES = 32
_WAIT_SECONDS = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, site TEXT NOT NULL, round INTEGER,
    rho REAL NOT NULL, what TEXT NOT NULL, counted TEXT NOT NULL, part TEXT, batch BLOB,
    completed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS charges_by_site ON charges (site, batch);
CREATE TABLE IF NOT EXISTS ids (
    site TEXT NOT NULL, id BLOB NOT NULL, rho REAL NOT NULL, PRIMARY KEY (site, id)) WITHOUT ROWID;
"""


class Ledger(PlainObject):
    """Privacy budget of one or more sites, in one SQLite file.

    The object consists of a path, a budget and a delta; every operation opens the file, performs one transaction and
    closes it, so copies and processes can share it. Charges of a site add up. They count as disjoint only if the caller
    gives record ids (the largest total of any id counts) or a partition that was defined without looking at values (the
    largest total of any part counts).

    A key is kept beside the file (``PATH.key``): ids and batches are stored only as keyed hashes. Back up both files.

    Parameters
    ----------
    path : path-like
    budget : float
        Epsilon, at delta, that a site may spend per record over all rounds.
    delta : float

    Examples
    --------
    >>> import tempfile, os
    >>> from fcac.privacy import Ledger
    >>> from fcac.privacy.zcdp import rho_from_epsilon
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(os.path.join(folder.name, "site.db"), budget=4.0)
    >>> number = ledger.charge("A", rho_from_epsilon(2.0, 1e-6), round=1)
    >>> ledger.summary_line("A")
    'site A: eps = 2.00 at delta = 1e-6 per record, budget 4.0'
    >>> folder.cleanup()
    """

    _fields = ("path", "budget", "delta")

    def __init__(self, path: str | os.PathLike[str], budget: float, delta: float = 1e-6) -> None:
        self.path = os.fspath(path)
        self.budget = check_epsilon(budget, "budget")
        self.delta = check_delta(delta)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing ledger with its own budget and delta."""
        if not Path(path).is_file():
            raise LedgerError(f"there is no ledger at {os.fspath(path)}")
        with _plain_errors(os.fspath(path)), contextlib.closing(_connect(os.fspath(path))) as connection:
            facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
        if "budget" not in facts:
            raise LedgerError(f"{os.fspath(path)} is not a privacy ledger")
        return cls(path, float(facts["budget"]), float(facts["delta"]))

    def charge(
        self,
        site: str,
        rho: float,
        *,
        round: int | None = None,
        batch: Any = None,
        record_ids: RecordIds = None,
        partition: str | None = None,
        what: str = "release",
    ) -> int:
        """Record a cost durably, or refuse it. Call this before drawing any noise.

        Parameters
        ----------
        site : str
        rho : float
            Cost in zCDP for one record.
        round : int, optional
        batch : ndarray, optional
            The rows; exactly the same rows are refused the second time. This is only a safeguard: changing a single row
            evades it. Empty batches are never refused. A batch whose earlier charge was not completed (after a crash)
            may be charged again.
        record_ids : sequence, optional
            One id per row; an id with m rows is charged m^2 times rho.
        partition : str, optional
            Name of a fixed part of the data.
        what : str
            Description for human readers.

        Returns
        -------
        int
            Number of the charge, for :meth:`complete`.

        Raises
        ------
        BudgetExceeded, RepeatedBatch
            In that case nothing was recorded.
        """
        if not isinstance(site, str) or not site:
            raise ValueError(f"site must be a non-empty name, got {site!r}")
        if not (isinstance(rho, int | float | np.floating) and math.isfinite(rho) and rho > 0):
            raise ValueError(f"rho must be a positive number, got {rho!r}")
        if record_ids is not None and partition is not None:
            raise ValueError("give record_ids or partition, not both")
        check_partition(partition)
        counted = "ids" if record_ids is not None else "partition" if partition is not None else "all"
        names = None if record_ids is None else check_record_ids(record_ids)
        with self._transaction() as (connection, key):
            mark = _batch_mark(key, site, batch)
            if (
                mark is not None
                and connection.execute(
                    "SELECT 1 FROM charges WHERE site = ? AND batch = ? AND completed = 1", (site, mark)
                ).fetchone()
            ):
                raise RepeatedBatch(
                    f"exactly these rows of site {site} were released before, and a second draw would reveal more "
                    "about them: use the contribution or the model that was stored then"
                )
            cursor = connection.execute(
                "INSERT INTO charges (time, site, round, rho, what, counted, part, batch) VALUES (?,?,?,?,?,?,?,?)",
                (_now(), site, round, float(rho), what, counted, partition, mark),
            )
            if names is not None:
                connection.executemany(
                    "INSERT INTO ids VALUES (?, ?, ?) ON CONFLICT (site, id) DO UPDATE SET rho = rho + excluded.rho",
                    [(site, _keyed(key, "id", name.encode()), rho * (m * m)) for name, m in Counter(names).items()],
                )
            total = _spent_rho(connection, site)
            after = epsilon_from_rho(total, self.delta)
            if after > self.budget:
                # The exception rolls back the transaction, so the refused charge leaves no trace.
                raise BudgetExceeded(
                    f"site {site}: this release would bring eps to {after:.3g} at delta = {show(self.delta)}, "
                    f"the budget is {self.budget:g}; nothing was drawn. Raise the budget or stop here"
                )
            number = cursor.lastrowid
        assert number is not None
        return number

    def complete(self, number: int) -> None:
        """Mark a charge as completed: what it paid for has been stored. This does not change what was spent."""
        with self._transaction() as (connection, _):
            connection.execute("UPDATE charges SET completed = 1 WHERE number = ?", (number,))

    def change_budget(self, budget: float) -> Ledger:
        """Write a new budget to the file, with a visible entry, and return the ledger with that budget."""
        new = Ledger(self.path, budget, self.delta)
        with self._transaction() as (connection, _):
            connection.execute("UPDATE facts SET value = ? WHERE name = 'budget'", (repr(new.budget),))
            connection.execute(
                "INSERT INTO charges (time, site, rho, what, counted, completed) VALUES (?, '', 0, ?, 'all', 1)",
                (_now(), f"budget changed from eps = {self.budget:g} to {new.budget:g}"),
            )
        return new

    def spent_rho(self, site: str) -> float:
        """Return the most that any record of this site has cost, as rho."""
        with self._reading() as connection:
            return 0.0 if connection is None else _spent_rho(connection, site)

    def spent(self, site: str) -> float:
        """Return the most that any record of this site has cost, as epsilon at delta."""
        return epsilon_from_rho(self.spent_rho(site), self.delta)

    def remaining(self, site: str) -> float:
        """Return the largest epsilon (at delta) that one more release may cost."""
        left = rho_from_epsilon(self.budget, self.delta) - self.spent_rho(site)
        return epsilon_from_rho(left, self.delta) if left > 0 else 0.0

    def sites(self) -> list[str]:
        """Return the sites that have been charged."""
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT DISTINCT site FROM charges WHERE site != '' ORDER BY site").fetchall()
        return [row[0] for row in rows]

    def entries(self, site: str | None = None) -> list[dict[str, Any]]:
        """Return all charges, oldest first, each as a dict of plain values."""
        query = "SELECT number, time, site, round, rho, what, counted, part, completed FROM charges"
        with self._reading() as connection:
            if connection is None:
                return []
            if site is None:
                rows = connection.execute(query + " ORDER BY number").fetchall()
            else:
                rows = connection.execute(query + " WHERE site = ? ORDER BY number", (site,)).fetchall()
        names = ("number", "time", "site", "round", "rho", "what", "counted", "partition", "completed")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for entry in found:
            entry["completed"] = bool(entry["completed"])
            entry["epsilon"] = epsilon_from_rho(entry["rho"], self.delta)
        return found

    def summary_line(self, site: str) -> str:
        """Return a one-line summary. It must stay at the site: with record ids it depends on who is in the data."""
        eps = math.ceil(self.spent(site) * 100 - 1e-6) / 100
        return f"site {site}: eps = {eps:.2f} at delta = {show(self.delta)} per record, budget {self.budget}"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, bytes]]:
        """Run one exclusive, durable transaction; it is rolled back if anything inside raises."""
        path = self._check_place()
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with _plain_errors(self.path), contextlib.closing(_connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection, self._prepare(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Read the ledger: needs no key, creates nothing, and yields None if nothing was ever charged."""
        if not self._check_place().exists():
            yield None
            return
        with _plain_errors(self.path), contextlib.closing(_connect(self.path)) as connection:
            connection.execute("BEGIN")
            yield connection if self._is_prepared(connection) else None

    def _check_place(self) -> Path:
        path, key_path = Path(self.path), Path(self.path + ".key")
        if not path.parent.is_dir():
            raise LedgerError(f"the directory of the ledger, {path.parent}, does not exist")
        if key_path.exists() and not path.exists():
            raise LedgerError(
                f"{path} is missing but its key exists: earlier spending would be forgotten. Restore the ledger from a "
                f"backup; only if nothing was ever charged, delete {key_path.name} and start again"
            )
        return path

    def _is_prepared(self, connection: sqlite3.Connection) -> bool:
        """Return False if the file is still empty; raise an error if it is not this ledger."""
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone():
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise LedgerError(f"{self.path} is a database, but not a privacy ledger")
            return False
        facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
        if facts.get("format") != _FORMAT:
            raise LedgerError(
                f"{self.path} has format {facts.get('format')}, this version reads {_FORMAT}: upgrade fcac"
            )
        for name, mine in (("budget", self.budget), ("delta", self.delta)):
            if float(facts[name]) != mine:
                raise LedgerError(
                    f"{self.path} was made with {name} = {float(facts[name]):g}, not {mine:g}; "
                    "open it with its own settings (Ledger.open), or use change_budget"
                )
        return True

    def _prepare(self, connection: sqlite3.Connection) -> bytes:
        """Create the tables on first use; check that file, key and settings belong together."""
        key_path = Path(self.path + ".key")
        if not self._is_prepared(connection):
            key = key_path.read_bytes() if key_path.exists() else _new_key(key_path)
            for statement in _TABLES.split(";")[:-1]:
                connection.execute(statement)
            check = _keyed(key, "check", b"").hex()
            facts = {"format": _FORMAT, "budget": repr(self.budget), "delta": repr(self.delta), "key_check": check}
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            return key
        if not key_path.exists():
            raise LedgerError(
                f"{key_path} is missing: ids and repeated batches cannot be recognised. Restore it from a backup"
            )
        key = key_path.read_bytes()
        (expected,) = connection.execute("SELECT value FROM facts WHERE name = 'key_check'").fetchone()
        if _keyed(key, "check", b"").hex() != expected:
            raise LedgerError(f"{key_path} is not the key of this ledger. Restore the right one from a backup")
        return key


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    # EXTRA also flushes the directory after the journal is deleted: otherwise a power cut could bring the journal back
    # and undo a charge that was already reported.
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _plain_errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise LedgerError(f"the ledger {path} cannot be used at the moment: {error}. Nothing was charged") from None
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{path} is not a privacy ledger, or is damaged: {error}. Nothing was charged") from None


def _spent_rho(connection: sqlite3.Connection, site: str) -> float:
    """Return general charges plus the maxima over ids and over parts: no record can have cost more."""
    everybody = [
        row[0] for row in connection.execute("SELECT rho FROM charges WHERE site = ? AND counted = 'all'", (site,))
    ]
    (dearest_id,) = connection.execute("SELECT MAX(rho) FROM ids WHERE site = ?", (site,)).fetchone()
    parts: dict[str, list[float]] = {}
    for part, rho in connection.execute(
        "SELECT part, rho FROM charges WHERE site = ? AND counted = 'partition'", (site,)
    ):
        parts.setdefault(part, []).append(rho)
    dearest_part = max((math.fsum(costs) for costs in parts.values()), default=0.0)
    return math.fsum([*everybody, dearest_id or 0.0, dearest_part])


def _new_key(path: Path) -> bytes:
    """Write a new key, atomically and durably; only its owner may read it."""
    key = os.urandom(_KEY_BYTES)
    draft = Path(f"{path}.part")
    handle = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(key)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return key


def _keyed(key: bytes, use: str, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=32, person=use.encode()).digest()


def _batch_mark(key: bytes, site: str, batch: Any) -> bytes | None:
    if batch is None:
        return None
    rows = np.ascontiguousarray(batch, dtype=np.float64)
    if rows.size == 0:
        return None
    return _keyed(key, "batch", repr((site, rows.shape)).encode() + rows.tobytes())


def check_record_ids(record_ids: Sequence[Any]) -> list[str]:
    """Return the ids as the ledger writes them; an empty id, or one that is neither number nor text, is an error.

    Parameters
    ----------
    record_ids : sequence
        One id per row.
    """
    if isinstance(record_ids, str | bytes) or not hasattr(record_ids, "__len__"):
        raise ValueError("record_ids must be a sequence with one id per row")
    return [_id_text(value) for value in record_ids]


def check_partition(partition: str | None) -> None:
    """Refuse a partition that is not a non-empty string."""
    if partition is not None and (not isinstance(partition, str) or not partition):
        raise ValueError(f"partition must be a non-empty name, got {partition!r}")


def _id_text(value: Any) -> str:
    """Return one spelling per id, so that 7, 7.0 and NumPy's 7 denote the same person."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        raise ValueError("record_ids has an empty id: every row needs one")
    if not isinstance(value, int | str | float | bytes):
        raise ValueError(f"record_ids must be numbers or texts, got {type(value).__name__}")
    return value.hex() if isinstance(value, bytes) else str(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
