"""The file of a ledger: an SQLite database and a key beside it, opened for one transaction at a time."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fcac import persistence
from fcac.exceptions import LedgerError
from fcac.privacy._plain import PlainObject
from fcac.privacy.record_ids import keyed
from fcac.privacy.zcdp import check_delta, check_epsilon

_FORMAT = "4"
_KEY_BYTES = 32
_WAIT_SECONDS = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, site TEXT NOT NULL, round INTEGER,
    rho REAL NOT NULL, what TEXT NOT NULL, counted TEXT NOT NULL, part TEXT, batch BLOB,
    completed INTEGER NOT NULL DEFAULT 0, seal TEXT, slack REAL NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS charges_by_site ON charges (site, batch);
CREATE INDEX IF NOT EXISTS charges_by_seal ON charges (seal);
CREATE TABLE IF NOT EXISTS ids (
    site TEXT NOT NULL, id BLOB NOT NULL, rho REAL NOT NULL, PRIMARY KEY (site, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ids_by_id ON ids (id);
"""


class LastCharge(NamedTuple):
    """What is written beside a ledger after every charge; an older copy of the ledger does not have it.

    `rho` and `slack` are of all charges up to it, added up.
    """

    seal: str
    rho: float
    slack: float


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
        if not path.exists() and (key_path.exists() or Path(self.path + ".last").exists()):
            raise LedgerError(
                f"{path} is missing but its key, or {path.name}.last, exists: earlier spending would be forgotten. "
                f"Restore the ledger from a backup; if there is none, `fcac ledger {path.name} --recover FILE`, with "
                "the model or the site's state, makes a new one with what has left"
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
                f"{self.path} has format {facts.get('format')}, this version reads {_FORMAT} alone: upgrade "
                "fcac, or put the ledger aside and give a new one the budget that is left"
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
            check = keyed(key, "check", b"").hex()
            facts = {"format": _FORMAT, "budget": repr(self.budget), "delta": repr(self.delta), "key_check": check}
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
        return key

    def _last(self) -> LastCharge | None:
        """Return what was written beside the ledger after its last charge."""
        try:
            found = json.loads(Path(self.path + ".last").read_text("utf-8"))
            return LastCharge(str(found["seal"]), float(found["rho"]), float(found["slack"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"{self.path}.last is damaged; it says what the ledger's last charge was") from None

    def _note_last(self, last: LastCharge) -> None:
        persistence.write_atomic(f"{self.path}.last", json.dumps(last._asdict()).encode())


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
