"""PostgreSQL as a source, through ADBC: rows arrive as Arrow batches of the binary COPY format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import pyarrow as pa

from fcac.exceptions import DataError, RequestError
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import is_numeric
from fcac.tables.sources.database import DatabaseTable, lost, quoted

_BATCH_BYTES = "4000000"
_CONNECT_SECONDS = "15"
_SECRETS = ("password", "sslpassword")
_CHANGES = ("read-only transaction", "read-write mode", "data-modifying")
_LOST = ("closed the connection", "terminating connection", "PQgetCopyData", "no connection to the server")


class PostgresTable(DatabaseTable):
    """The result of a query to a PostgreSQL server, ``postgresql://host:port/database``.

    User and password come from where libpq, PostgreSQL's own client library, looks for them: the environment
    (``PGUSER``, ``PGPASSWORD``), a password file (``~/.pgpass`` or ``PGPASSFILE``) or a service file (``PGSERVICE``).
    """

    usual_schema: ClassVar[str] = "public"

    def __init__(self, address: str, options: ReadOptions) -> None:
        name = public_name(address)
        self._address = _with_timeout(address, name)
        self._kinds: dict[str, str] = {}
        self._found: pa.Schema = pa.schema([])
        super().__init__(name, options)

    @contextmanager
    def _batches(self, sql: str) -> Iterator[Iterator[pa.RecordBatch]]:
        dbapi = _driver()
        connection: Any = None
        n_rows = 0

        def read(cursor: Any) -> Iterator[pa.RecordBatch]:
            nonlocal n_rows
            reader = cursor.fetch_record_batch()
            self._found = reader.schema
            for batch in reader:
                n_rows += batch.num_rows
                yield batch

        try:
            connection = dbapi.connect(self._address, autocommit=True)
            with connection.cursor() as cursor:
                # from here on, every statement is a read-only transaction of its own
                cursor.execute("set default_transaction_read_only = on")
            with connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": _BATCH_BYTES})
                cursor.execute(sql)
                yield read(cursor)
        except (dbapi.Error, pa.ArrowException, OSError) as error:
            raise self._explained(error, connection is not None, n_rows) from None
        finally:
            if connection is not None:
                _close(connection)

    def _columns(self) -> pa.Schema:
        with self._batches(self._select("*", "limit 0")) as batches:
            for _ in batches:
                pass
            found = self._found
        fields = []
        for field in found:
            kind = str((field.metadata or {}).get(b"POSTGRESQL:type", b""), "utf-8")
            plain = is_numeric(field.type) or pa.types.is_string(field.type) or _is_moment(field.type)
            self._kinds[field.name] = kind if plain or kind == "numeric" else "other"
            fields.append((field.name, pa.float64() if kind == "numeric" else field.type if plain else pa.string()))
        return pa.schema(fields)

    def _as_number(self, name: str) -> str:
        # numeric has no limit of digits and would arrive as text
        return f"{quoted(name)}::float8" if self._kinds.get(name) == "numeric" else quoted(name)

    def _as_it_is(self, name: str) -> str:
        if self._kinds.get(name) == "numeric":
            return self._as_number(name)
        return f"{quoted(name)}::text" if self._kinds.get(name) == "other" else quoted(name)

    def _explained(self, error: Exception, connected: bool, n_rows: int) -> DataError:
        """Explain an error; the server's message may quote a row, so it is passed on only if it cannot."""
        text = str(error)
        if not connected:
            return RequestError(f"{self.path}: {_why_not_connected(text)}")
        state = getattr(error, "sqlstate", None) or ""
        if any(words in text for words in _LOST):
            return lost(self.path, n_rows)
        if state.startswith("42"):
            # about names and syntax, found before any row was read
            return RequestError(f"{self.path}: the query cannot be used: {_first_line(text)}")
        if state == "25006" or any(words in text for words in _CHANGES):
            return RequestError(f"{self.path}: the query would change the database: it must be one select")
        return DataError(
            f"{self.path}: the query failed after {n_rows:,} rows ({_kind_of_failure(text)}): nothing was learned. Run "
            "the query in psql to see why"
        )


def public_name(address: str) -> str:
    """Return an address without user and settings, for messages; refuse one that contains a password.

    >>> public_name("postgresql://anna@db.example:5433/clinic?sslmode=require")
    'postgresql://db.example:5433/clinic'
    """
    try:
        parts = urlsplit(address)
        settings = dict(parse_qsl(parts.query, keep_blank_values=True))
        host, port, secret = parts.hostname or "", parts.port, parts.password
    except ValueError:
        raise RequestError("the address of the database cannot be read: write postgresql://host:port/name") from None
    if secret is not None or any(name.lower() in _SECRETS for name in settings):
        raise RequestError(
            f"postgresql://{host}{parts.path}: leave the password out of the address, where others can see it: set "
            "PGPASSWORD, or write it to the file that PGPASSFILE names (~/.pgpass)"
        )
    if not host and not settings.get("host", "").startswith("/"):
        host = settings.get("host", "")
    return f"postgresql://{host}{'' if port is None else f':{port}'}{parts.path}"


def _with_timeout(address: str, name: str) -> str:
    """Return the address with a limit on the time that connecting may take, unless there is one."""
    parts = urlsplit(address)
    settings = parse_qsl(parts.query, keep_blank_values=True)
    if "PGCONNECT_TIMEOUT" not in os.environ and "connect_timeout" not in dict(settings):
        settings.append(("connect_timeout", _CONNECT_SECONDS))
    # not urlunsplit, which drops the slashes before an empty host
    return f"postgresql://{parts.netloc}{parts.path}?{urlencode(settings)}"


def _driver() -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ModuleNotFoundError:
        raise RequestError("reading from PostgreSQL needs pip install 'fcac[sql]'") from None
    return dbapi


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # after a lost connection there is nothing left to close
        return


def _is_moment(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _why_not_connected(text: str) -> str:
    if "no password supplied" in text or "authentication failed" in text:
        return "user or password was not accepted: set PGUSER and PGPASSWORD, or use a password file (PGPASSFILE)"
    if "role" in text and "does not exist" in text:
        return "there is no such user: set PGUSER"
    if "database" in text and "does not exist" in text:
        return "there is no such database: correct the name after the last slash"
    if "pg_hba.conf" in text or "SSL" in text:
        return "the server does not accept this user from this machine, or asks for another sslmode"
    if "could not translate host name" in text:
        return "there is no such host: correct the name after postgresql://"
    return "no connection: check host and port, and that the server is running"


def _first_line(text: str) -> str:
    message = text.partition("ERROR:")[2] or text
    return message.strip().splitlines()[0].strip()


def _kind_of_failure(text: str) -> str:
    for words in ("division by zero", "statement timeout", "out of range", "permission denied", "out of memory"):
        if words in text:
            return words
    return "a value could not be converted" if "invalid input syntax" in text else "error in the database"
