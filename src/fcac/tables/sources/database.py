"""What all databases have in common: a query whose result is the table, read in batches and read-only."""

from __future__ import annotations

import copy
import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa

from fcac.exceptions import DataError, RequestError
from fcac.tables.delimited import without_gap_words
from fcac.tables.read_options import ReadOptions
from fcac.tables.table_file import TableFile

#: A value of the column that tells new rows: a whole number, or anything else as text.
KeyValue = int | str

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class DatabaseTable(TableFile):
    """The result of a query.

    The query becomes a subquery that is asked only for the columns needed, in a read-only transaction, and whose result
    is fetched batch by batch. A query that is not a single ``select`` is refused by the database. The name is for
    messages and must not contain credentials.
    """

    #: Where tables are that need no prefix.
    usual_schema: ClassVar[str] = ""

    def __init__(self, name: str | Path, options: ReadOptions) -> None:
        self.path = name
        self._options, self.forgiving = options, options.forgiving
        self._where = ""
        self._order = ""
        self._query = "" if options.query is None else options.query.strip().rstrip(";").rstrip()
        if options.query is not None and not self._query:
            raise RequestError(f"{name}: the query is empty")
        if not self._query:
            self._query = f"select * from {self._only_table()}"
        self.schema = self._columns()

    # ------------------------------------------------------------ implemented by each kind of database

    @abstractmethod
    def _batches(self, sql: str) -> AbstractContextManager[Iterator[pa.RecordBatch]]:
        """Run a statement and iterate over its result; errors become :class:`DataError` without values."""

    @abstractmethod
    def _columns(self) -> pa.Schema:
        """Return the columns of the query."""

    @abstractmethod
    def _as_number(self, name: str) -> str:
        """Return the SQL expression of a column that is read as numbers."""

    @abstractmethod
    def _as_it_is(self, name: str) -> str:
        """Return the SQL expression of a column that is read as it is."""

    # ------------------------------------------------------------ reading

    @property
    def weight(self) -> int:
        return 1 << 20

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        chosen = [
            *(f"{self._as_number(name)} as {quoted(name)}" for name in numbers),
            *(f"{self._as_it_is(name)} as {quoted(name)}" for name in texts),
        ]
        blank = self._options.gaps_in_texts
        with self._batches(self._select(", ".join(chosen), self._order)) as batches:
            for batch in batches:
                for place, column in enumerate(batch.columns):
                    if pa.types.is_string(column.type):
                        batch = batch.set_column(place, batch.schema.names[place], without_gap_words(column, blank))
                if batch.num_rows:
                    yield batch, 0.0

    def _select(self, what: str, tail: str = "") -> str:
        # the line breaks end a comment in the query's last line
        return f"select {what} from (\n{self._query}\n) as fcac_rows {self._where} {tail}".rstrip()

    def _value(self, sql: str) -> list[Any]:
        """Return the first row of a result."""
        with self._batches(sql) as batches:
            for batch in batches:
                if batch.num_rows:
                    return [column[0].as_py() for column in batch.columns]
        return []

    def _tables(self) -> list[str]:
        """Return the names of the tables and views there are, quoted where necessary."""
        sql = (
            "select cast(table_schema as text) as s, table_name as t from information_schema.tables "
            "where table_schema not in ('information_schema', 'pg_catalog') order by 1, 2"
        )
        with self._batches(sql) as batches:
            rows = [row for batch in batches for row in batch.to_pylist()]
        usual = self.usual_schema
        return [shown(row["t"]) if row["s"] == usual else f"{shown(row['s'])}.{shown(row['t'])}" for row in rows]

    def _only_table(self) -> str:
        names = self._tables()
        if len(names) == 1:
            return names[0]
        if not names:
            raise RequestError(f"{self.path} has no table that this user may see")
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise RequestError(
            f"{self.path} has {len(names)} tables ({some}): give --query, as in --query 'select * from {names[0]}'"
        )

    # ------------------------------------------------------------ new rows

    def newest(self, column: str, after: KeyValue | None) -> tuple[KeyValue | None, int, int]:
        """Return the highest value of a column, the number of rows above a value, and the number up to it.

        A row without a value is a DataError, or passed over: it could never be told whether it is new.
        """
        if column not in self.schema.names:
            raise RequestError(f"{self.path}: the query has no column {column!r}, which was given as --new-by")
        key = quoted(column)
        is_new = "1 = 1" if after is None else f"{key} > {literal(after)}"
        found = self._value(
            self._select(
                f"{self._key_text(key)} as a, sum(case when {is_new} then 1 else 0 end) as b, "
                f"sum(case when {key} is null then 1 else 0 end) as c, count(*) as d"
            )
        )
        highest, new, nothing, total = found if found else (None, 0, 0, 0)
        if nothing and not self.forgiving:
            raise DataError(
                f"{self.path}: {int(nothing):,} rows have no value in column {column!r}, which tells new rows: fill "
                "it, or leave these rows out in the query"
            )
        return _key_value(highest), int(new or 0), int(total or 0) - int(new or 0)

    def _key_text(self, key: str) -> str:
        return f"cast(max({key}) as text)"

    def between(self, column: str, low: KeyValue | None, high: KeyValue) -> Self:
        """Return the table of the rows above `low` and up to `high`, in the order of the column."""
        part = copy.copy(self)
        key = quoted(column)
        above = "" if low is None else f"{key} > {literal(low)} and "
        part._where = f"where {above}{key} <= {literal(high)}"
        part._order = f"order by {key}"
        return part


def quoted(name: str) -> str:
    """Return a column's name as SQL, quotes in it doubled."""
    return '"' + name.replace('"', '""').replace("\x00", "") + '"'


def shown(name: str) -> str:
    """Return a table's name as a person would write it."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def literal(value: KeyValue) -> str:
    """Return a value as SQL; text is given the column's type by the database."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''").replace("\x00", "") + "'"


def _key_value(found: Any) -> KeyValue | None:
    if found is None or isinstance(found, int):
        return found
    text = str(found)
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def lost(name: str | Path, n_rows: int) -> DataError:
    """Return the error for a connection that ended while rows were being read."""
    return DataError(
        f"{name}: the connection was lost after {n_rows:,} rows: nothing was learned from them. Run this again when "
        "the database can be reached"
    )
