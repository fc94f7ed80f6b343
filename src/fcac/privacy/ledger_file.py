"""The file of a ledger: an SQLite database and a key beside it, opened for one transaction at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fcac.exceptions import LedgerError
from fcac.privacy._plain import PlainObject
from fcac.privacy.record_ids import keyed
from fcac.privacy.zcdp import check_delta, check_epsilon

# 1: fcac 0.1.0, which had a budget for every site name; it is brought up to date by the first charge.
# 3: a charge in it takes a part of delta; older versions of fcac would not count that, and must not go on with it.
_FORMATS = ("1", "2", "3")
_ORDINARY = "2"
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
_SECOND_FORMAT = """
ALTER TABLE charges ADD COLUMN seal TEXT;
ALTER TABLE charges ADD COLUMN accounting TEXT NOT NULL DEFAULT 'zcdp';
CREATE INDEX charges_by_seal ON charges (seal);
CREATE INDEX ids_by_id ON ids (id);
"""


class LedgerFile(PlainObject):
    """A path, a budget and a delta, and the transactions on the file."""

    _fields = ("path", "budget", "delta")

    def __init__(self, path: str | os.PathLike[str], budget: float, delta: float = 1e-6) -> None:
        self.path = os.fspath(path)
        self.budget = check_epsilon(budget, "budget")
        self.delta = check_delta(delta)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, bytes]]:
        """Run one exclusive, durable transaction; it is rolled back if anything inside raises."""
        path = self._check_place()
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with plain_errors(self.path), contextlib.closing(connect(self.path)) as connection:
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
        with plain_errors(self.path), contextlib.closing(connect(self.path)) as connection:
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
        if facts.get("format") not in _FORMATS:
            raise LedgerError(
                f"{self.path} has format {facts.get('format')}, this version reads {_FORMATS[-1]}: upgrade fcac"
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
            for statement in (_TABLES + _SECOND_FORMAT).split(";")[:-1]:
                connection.execute(statement)
            check = keyed(key, "check", b"").hex()
            facts = {"format": _ORDINARY, "budget": repr(self.budget), "delta": repr(self.delta), "key_check": check}
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            return key
        if not key_path.exists():
            raise LedgerError(
                f"{key_path} is missing: ids and repeated batches cannot be recognised. Restore it from a backup"
            )
        key = key_path.read_bytes()
        (expected,) = connection.execute("SELECT value FROM facts WHERE name = 'key_check'").fetchone()
        if keyed(key, "check", b"").hex() != expected:
            raise LedgerError(f"{key_path} is not the key of this ledger. Restore the right one from a backup")
        if not is_second_format(connection):
            for statement in _SECOND_FORMAT.split(";")[:-1]:
                connection.execute(statement)
            connection.execute("UPDATE facts SET value = ? WHERE name = 'format'", (_ORDINARY,))
        return key

    @staticmethod
    def _need_slack(connection: sqlite3.Connection) -> None:
        """Make room, inside a transaction, for charges that take a part of delta."""
        if not has_column(connection, "slack"):
            connection.execute("ALTER TABLE charges ADD COLUMN slack REAL NOT NULL DEFAULT 0")
            connection.execute("UPDATE facts SET value = ? WHERE name = 'format'", (_FORMATS[-1],))


def has_column(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether charges have this column."""
    return any(row[1] == name for row in connection.execute("PRAGMA table_info(charges)"))


def is_second_format(connection: sqlite3.Connection) -> bool:
    """Return False for a ledger of fcac 0.1.0 that nothing has been charged to since."""
    return has_column(connection, "seal")


def connect(path: str) -> sqlite3.Connection:
    """Open the database so that what is committed survives a power cut."""
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
def plain_errors(path: str) -> Iterator[None]:
    """Turn errors of SQLite into a LedgerError that names the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise LedgerError(f"the ledger {path} cannot be used at the moment: {error}. Nothing was charged") from None
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"{path} is not a privacy ledger, or is damaged: {error}. Nothing was charged") from None


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
