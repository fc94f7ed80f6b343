"""Databases as tables: one module for each kind, opened by :func:`open_database`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fcac.exceptions import RequestError

if TYPE_CHECKING:
    from fcac.tables.read_options import ReadOptions
    from fcac.tables.sources.database import DatabaseTable

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_SERVERS = ("postgresql", "postgres")
_FILES = ("sqlite", "duckdb")


def is_address(source: str | Path) -> bool:
    """Return whether this names a database server, as in ``postgresql://host/database``."""
    return isinstance(source, str) and _ADDRESS.match(source) is not None


def as_source(source: str | Path) -> str | Path:
    """Return the address of a database server, or a path; an address of a file becomes its path.

    >>> str(as_source("sqlite:///data/visits.db")), as_source("postgresql://hub/clinic")
    ('/data/visits.db', 'postgresql://hub/clinic')
    """
    found = _ADDRESS.match(source) if isinstance(source, str) else None
    if found is None:
        return Path(source)
    kind, rest = found[1].lower(), found[2]
    if kind in _SERVERS:
        return str(source)
    if kind in _FILES:
        return Path(rest)
    raise RequestError(f"{kind}:// is not known; databases are postgresql://host/name, or SQLite and DuckDB files")


def is_database_file(path: Path) -> bool:
    """Return whether this file is a SQLite or DuckDB database, by its content."""
    return _kind_of_file(path) is not None


def _kind_of_file(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError:
        return None
    if start == b"SQLite format 3\x00":
        return "sqlite"
    return "duckdb" if start[8:12] == b"DUCK" else None


def open_database(source: str | Path, options: ReadOptions | None = None) -> DatabaseTable:
    """Open a table of a database, by address or file: the result of the query in the options, or the only table."""
    from fcac.tables.read_options import ReadOptions

    options = options or ReadOptions()
    source = as_source(source)
    if isinstance(source, str):
        from fcac.tables.sources.postgresql import PostgresTable

        return PostgresTable(source, options)
    kind = _kind_of_file(source)
    if kind == "sqlite":
        from fcac.tables.sources.sqlite import SqliteTable

        return SqliteTable(source, options)
    if kind == "duckdb":
        from fcac.tables.sources.duckdb import DuckdbTable

        return DuckdbTable(source, options)
    raise RequestError(f"{source} is neither a SQLite nor a DuckDB database")
