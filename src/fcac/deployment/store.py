"""The hub's store: the contributions of closed rounds, and the server's state after each, in one SQLite file.

Why SQLite here, and plain files for what is still arriving (:mod:`fcac.deployment.inbox`): a delivery concerns one
contribution, and one atomically written file is the cheapest durable form of it. Closing a round concerns all of them,
the server's new state and the number of the round at once, and forgetting a site changes every round; each of these is
one transaction here, whereas files would need a journal of their own to survive a crash between two writes.

- A delivery reads a few rows of its own site and writes nothing here.
- Closing a round reads the newest state and the newest contribution of every site, and appends what is new.
- Only forgetting a site (or requesting the whole log) reads all contributions.

The caller ensures that only one process at a time changes the store; readers need no lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fcac import persistence
from fcac.deployment import seen
from fcac.deployment.limits import Amount
from fcac.deployment.stored_log import StoredLog
from fcac.federation import Contribution
from fcac.federation.log import Entry

if TYPE_CHECKING:
    # `status` reads what is stored and needs nothing that learns
    from fcac.federation import Server

FORMAT = 2
_STATE_KIND = "hub state"
_WAIT_SECONDS = 60.0

# batch: the round in which the contribution was accepted; late ones answer an earlier round.
# digest: of the bytes as the site sent them; the body may have been reduced by caps.
_TABLES = (
    """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE contributions (
    id INTEGER PRIMARY KEY, site TEXT NOT NULL, round INTEGER NOT NULL, batch INTEGER NOT NULL, digest TEXT NOT NULL,
    n_nodes INTEGER NOT NULL, n_rows INTEGER NOT NULL, privacy TEXT NOT NULL, UNIQUE (site, round));
CREATE INDEX by_site ON contributions (site, batch);
CREATE INDEX by_batch ON contributions (batch, site);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE sites (site TEXT PRIMARY KEY, first INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (batch INTEGER PRIMARY KEY);
CREATE TABLE states (batch INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE lineage (position INTEGER PRIMARY KEY, change TEXT NOT NULL);
"""
    + seen.TABLES
)
# letters: what is asked, once for all who are asked the same. A site has one message at a time, in the outbox until its
# reply was dealt with. asked: reading of the machine's own steady clock; seconds: how long an answer is waited for.
_OUTBOX = """
CREATE TABLE letters (id TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (site TEXT PRIMARY KEY, letter TEXT NOT NULL, asked REAL NOT NULL, seconds REAL NOT NULL,
    reply BLOB) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """The store cannot be used; nothing has been changed."""


class Held(NamedTuple):
    """The newest accepted contribution of a site: its round, and the digest of the bytes as sent."""

    round: int = 0
    digest: str = ""


class Summary(NamedTuple):
    """A short description of the model: the kind of server and its numbers of clusters and nodes."""

    kind: str
    n_clusters: int
    n_nodes: int


class HubStore:
    """Keeps everything that a hub must not lose, in a database that the first write creates.

    >>> import tempfile
    >>> from fcac.federation import Contribution, Server
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = HubStore(os.path.join(folder.name, "hub.db"))
    >>> server = Server()
    >>> accepted = server.absorb([Contribution("a", 1, [[0.0, 1.0]], [3])])
    >>> store.close_round(1, server, accepted, {"a": "digest of what was sent"})
    >>> store.closed, store.newest(), store.server().sites
    (1, {'a': Held(round=1, digest='digest of what was sent')}, ['a'])
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    # ------------------------------------------------------------ reading

    @property
    def closed(self) -> int:
        """Number of the last closed round."""
        with self.reading() as connection:
            return _closed(connection)

    @property
    def version(self) -> int:
        """Number of times that a round was closed or a site forgotten."""
        with self.reading() as connection:
            return int(_fact(connection, "version") or 0)

    def held(self, site: str) -> tuple[int, Held]:
        """Return the number of the last closed round and a site's newest contribution, in one read."""
        with self.reading() as connection:
            row = connection.execute(_HELD, (site,)).fetchone()
            return _closed(connection), Held() if row is None else Held(*row)

    def newest(self) -> dict[str, Held]:
        """Return the newest contribution of every site."""
        with self.reading() as connection:
            sites = [site for (site,) in connection.execute("SELECT site FROM sites ORDER BY site").fetchall()]
            return {site: Held(*connection.execute(_HELD, (site,)).fetchone()) for site in sites}

    def amounts(self) -> dict[str, Amount]:
        """Return how much the newest contribution of every site counts for."""
        query = "SELECT n_nodes, n_rows FROM contributions WHERE site = ? ORDER BY batch DESC LIMIT 1"
        with self.reading() as connection:
            sites = [site for (site,) in connection.execute("SELECT site FROM sites ORDER BY site").fetchall()]
            return {site: Amount(*connection.execute(query, (site,)).fetchone()) for site in sites}

    def summary(self) -> Summary | None:
        """Return a summary of the model after the last closed round; None before the first."""
        with self.reading() as connection:
            value = _fact(connection, "summary")
        return None if value is None else Summary(*json.loads(value))

    def server(self) -> Server | None:
        """Return the server after the last closed round; None before the first.

        Its log stays in the store and is read on demand.
        """
        with self.reading() as connection:
            row = connection.execute("SELECT max(batch) FROM batches").fetchone()
            return None if row[0] is None else self._server(connection, int(row[0]))

    def _server(self, connection: sqlite3.Connection, batch: int) -> Server | None:
        row = connection.execute("SELECT data FROM states WHERE batch = ?", (batch,)).fetchone()
        if row is None:
            return None
        meta, arrays = persistence.unpack(row[0], kind=_STATE_KIND)
        n_changes = meta.pop("n_lineage")
        if n_changes is not None:
            changes = connection.execute(
                "SELECT change FROM lineage WHERE position < ? ORDER BY position", (n_changes,)
            )
            meta["server"]["reader"]["lineage"] = [json.loads(change) for (change,) in changes]
        log = StoredLog(self.reading, batch, meta["n_rounds"], meta["n_features"], meta["released"])
        from fcac.federation import Server

        server = Server.resume(meta["server"], arrays, log)
        server.past = self._past
        return server

    def _past(self, n_rounds: int) -> Server | None:
        """Return the server as it was after its first `n_rounds` rounds, if that state was kept."""
        with self.reading() as connection:
            query = "SELECT batch FROM batches ORDER BY batch LIMIT 1 OFFSET ?"
            row = connection.execute(query, (n_rounds - 1,)).fetchone()
            return None if row is None else self._server(connection, int(row[0]))

    # ------------------------------------------------------------ writing

    def close_round(
        self, number: int, server: Server, accepted: Sequence[Contribution], digests: Mapping[str, str]
    ) -> None:
        """Store a round, all or nothing: what the server has absorbed after applying caps, and the server after that.

        For every site there is the digest of the bytes as sent.
        """
        state, summary = _pack_state(server), _summary(server)
        with self.changing() as connection:
            for item in accepted:
                _insert(connection, item, digests[str(item.site)], number)
            seen.add(connection, (item.nodes for item in accepted))
            connection.execute("INSERT INTO batches VALUES (?)", (number,))
            connection.execute("INSERT INTO states VALUES (?, ?)", (number, state.data))
            _append_lineage(connection, state.lineage)
            _set_facts(connection, closed=str(number), summary=summary)
            _count_change(connection)

    def forget(self, site: str, server: Server) -> None:
        """Remove a site, all or nothing, and store the server after forgetting it."""
        log, states = server.log, _all_states(server)
        with self.changing() as connection:
            where = "(SELECT id FROM contributions WHERE site = ?)"
            connection.execute(f"DELETE FROM bodies WHERE id IN {where}", (site,))
            connection.execute("DELETE FROM contributions WHERE site = ?", (site,))
            connection.execute("DELETE FROM sites WHERE site = ?", (site,))
            connection.execute("DELETE FROM outbox WHERE site = ?", (site,))
            connection.execute("DELETE FROM batches WHERE batch NOT IN (SELECT batch FROM contributions)")
            for table in ("states", "lineage"):
                connection.execute(f"DELETE FROM {table}")
            batches = [batch for (batch,) in connection.execute("SELECT batch FROM batches ORDER BY batch").fetchall()]
            if len(batches) != len(log):
                raise StoreError(f"{self.path} has {len(batches)} rounds without {site}, but the server has {len(log)}")
            _write_states(connection, batches, states)
            seen.clear(connection)
            seen.add(connection, (item.nodes for batch in log for item in batch))
            _set_facts(connection, summary=_summary(server))
            _count_change(connection)

    # ------------------------------------------------------------ connections

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a consistent view for reading; a store that does not exist yet appears empty."""
        # A new connection for each read: a permanent one would not survive a fork.
        with self._plain_errors(), contextlib.closing(self._open_to_read()) as connection:
            connection.execute("BEGIN")
            yield connection

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Run one durable transaction; it is rolled back if anything inside raises."""
        with self._plain_errors(), contextlib.closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._prepare(connection)
                yield connection
                self._commit(connection)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def _open_to_read(self) -> sqlite3.Connection:
        if self.path.exists():
            connection = self._connect()
            try:
                if not self._is_prepared(connection):
                    connection.execute("BEGIN IMMEDIATE")
                    self._prepare(connection)
                    connection.execute("COMMIT")
                return connection
            except BaseException:
                connection.close()
                raise
        empty = self._connect(":memory:")
        _create(empty)
        return empty

    def _connect(self, name: str | None = None) -> sqlite3.Connection:
        name = str(self.path) if name is None else name
        connection = sqlite3.connect(name, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            # EXTRA also flushes the directory after the journal is deleted: otherwise a power cut could bring the
            # journal back and undo a delivery that was already acknowledged.
            connection.execute("PRAGMA synchronous = EXTRA")
            # forgotten data are overwritten, not only unlinked
            connection.execute("PRAGMA secure_delete = ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _is_prepared(self, connection: sqlite3.Connection) -> bool:
        return self._version(connection) == FORMAT

    def _version(self, connection: sqlite3.Connection) -> int:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise StoreError(f"{self.path} has format {version}, but this fcac reads format {FORMAT}: upgrade fcac")
        return int(version)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create what is missing."""
        match self._version(connection):
            case 0:
                _create(connection)
            case 1:
                _run(connection, _OUTBOX)

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path} cannot be used at the moment: {error}. Nothing was changed") from None
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path} is damaged or not a hub's store: {error}. Nothing was changed. Bring it back with 'fcac "
                "federation restore', or a copy of it from 'fcac federation backup'"
            ) from None


_HELD = "SELECT round, digest FROM contributions WHERE site = ? ORDER BY batch DESC LIMIT 1"


class _State(NamedTuple):
    data: bytes
    lineage: list[Any] | None


def _pack_state(server: Server) -> _State:
    """Pack a server without its log; the lineage of clusters is stored once for all rounds, not with each state."""
    meta, arrays = server.state_parts()
    reader = dict(meta["reader"])
    lineage = reader.pop("lineage", None)
    header = {
        "server": {**meta, "reader": reader},
        "n_lineage": None if lineage is None else len(lineage),
        "n_rounds": server.n_rounds,
        "n_features": server.n_features,
        "released": server.released,
    }
    return _State(persistence.pack(_STATE_KIND, header, arrays), lineage)


def _summary(server: Server) -> str:
    counted = (server.n_clusters, len(server.nodes)) if server.has_nodes else (0, 0)
    return json.dumps([server.kind, *counted])


def _all_states(server: Server) -> dict[int, _State]:
    """Return the states after every round, or only after the last one if replaying the rounds would take too long."""
    log = server.log
    states: dict[int, _State] = {}
    if sum(len(item.nodes) for batch in log for item in batch) <= server.readout.max_replayed_nodes:
        again = server.blank()
        for position, batch in enumerate(log[:-1], 1):
            again.learn(batch)
            states[position] = _pack_state(again)
    return {**states, len(log): _pack_state(server)}


def _write_states(connection: sqlite3.Connection, batches: Sequence[int], states: Mapping[int, _State]) -> None:
    for position, batch in enumerate(batches, 1):
        if position in states:
            connection.execute("INSERT INTO states VALUES (?, ?)", (batch, states[position].data))
    _append_lineage(connection, states[len(batches)].lineage)


def _append_lineage(connection: sqlite3.Connection, lineage: list[Any] | None) -> None:
    (stored,) = connection.execute("SELECT count(*) FROM lineage").fetchone()
    fresh = enumerate((lineage or [])[stored:], stored)
    connection.executemany("INSERT INTO lineage VALUES (?, ?)", ((at, json.dumps(change)) for at, change in fresh))


def _insert(connection: sqlite3.Connection, item: Contribution, digest: str, batch: int) -> None:
    entry = Entry.of(item)
    cursor = connection.execute(
        "INSERT INTO contributions (site, round, batch, digest, n_nodes, n_rows, privacy) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (item.site, item.round, batch, digest, entry.n_nodes, entry.n_rows, json.dumps(item.privacy)),
    )
    connection.execute("INSERT INTO bodies VALUES (?, ?)", (cursor.lastrowid, item.to_bytes()))
    connection.execute("INSERT OR IGNORE INTO sites VALUES (?, ?)", (item.site, batch))


def _closed(connection: sqlite3.Connection) -> int:
    return int(_fact(connection, "closed") or 0)


def _fact(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _set_facts(connection: sqlite3.Connection, **facts: str) -> None:
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _count_change(connection: sqlite3.Connection) -> None:
    _set_facts(connection, version=str(int(_fact(connection, "version") or 0) + 1))


def _create(connection: sqlite3.Connection) -> None:
    _run(connection, _TABLES + _OUTBOX)


def _run(connection: sqlite3.Connection, statements: str) -> None:
    """Run statements inside the open transaction, which ``executescript`` would end."""
    for statement in statements.split(";")[:-1]:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT}")
