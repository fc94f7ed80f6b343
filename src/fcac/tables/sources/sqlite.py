"""SQLite files as a source, through ADBC; a column's type is what its first rows show, as in a text file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from fcac.exceptions import DataError, RequestError
from fcac.tables.python_cells import kind_of
from fcac.tables.read_options import ReadOptions
from fcac.tables.sources.database import DatabaseTable, literal, quoted, shown

_FIRST_ROWS = 10_000
_BATCH_ROWS = "8192"
# The driver takes a column's type from the first values, which must therefore not be missing; in the conversion to
# numbers, infinite values are missing values.
_GAP = "9e999"


class SqliteTable(DatabaseTable):
    """The result of a query to a SQLite file."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._gaps = options.gaps_in_numbers
        super().__init__(path, options)

    @contextmanager
    def _batches(self, sql: str) -> Iterator[Iterator[pa.RecordBatch]]:
        dbapi = _driver()
        try:
            with (
                dbapi.connect(f"file:{quote(str(Path(self.path).resolve()))}?mode=ro", autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
                cursor.execute(sql)
                yield iter(cursor.fetch_record_batch())
        except (dbapi.Error, pa.ArrowException, OSError) as error:
            raise self._explained(error) from None

    def _columns(self) -> pa.Schema:
        with self._batches(self._select("*", "limit 1")) as batches:
            names = next(batches, pa.record_batch({})).schema.names
        if not names:  # the driver tells no columns of an empty result
            names = self._names_of_nothing()
        parts = []
        for place, name in enumerate(names):
            parts += [
                f"typeof({quoted(name)}) as t{place}",
                f"case typeof({quoted(name)}) when 'text' then {quoted(name)} else '' end as v{place}",
            ]
        kinds: list[set[Any]] = [set() for _ in names]
        with self._batches(self._select(", ".join(parts), f"limit {_FIRST_ROWS}")) as batches:
            for batch in batches:
                for place, found in enumerate(kinds):
                    types, texts = batch.column(2 * place).to_pylist(), batch.column(2 * place + 1).to_pylist()
                    found.update(map(_stand_in, types, texts))
        return pa.schema([(name, kind_of(found, self._gaps)) for name, found in zip(names, kinds, strict=True)])

    def _names_of_nothing(self) -> list[str]:
        with self._batches(f"select * from (select 1) left join (\n{self._query}\n) on 0") as batches:
            return list(next(batches).schema.names[1:])

    def _tables(self) -> list[str]:
        sql = (
            "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%' order by name"
        )
        with self._batches(sql) as batches:
            return [shown(name) for batch in batches for name in batch.column(0).to_pylist()]

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        if not self.forgiving:
            self._refuse_texts(numbers)
        yield from super()._read(numbers, texts)

    def _refuse_texts(self, numbers: list[str]) -> None:
        """A column of numbers can hold text, which would silently become zero: count it before anything is read."""
        words = ", ".join(literal(word) for word in sorted(self._gaps))
        parts = [
            f"sum(typeof({quoted(name)}) in ('text', 'blob') and trim({quoted(name)}) not in ({words})) as n{place}"
            for place, name in enumerate(numbers)
        ]
        counts = self._value(self._select(", ".join(parts))) if parts else []
        odd = [f"{name} ({count:,})" for name, count in zip(numbers, counts, strict=False) if count]
        if odd:
            raise DataError(
                f"{self.path}: text where numbers are expected in column {', '.join(odd)}: correct these cells, or "
                "name the word that stands for a missing value (--read gaps=WORD)"
            )

    def _as_number(self, name: str) -> str:
        column = quoted(name)
        return f"case when typeof({column}) in ('integer', 'real') then cast({column} as real) else {_GAP} end"

    def _as_it_is(self, name: str) -> str:
        if pa.types.is_integer(self.schema.field(name).type) and not self.forgiving:
            return quoted(name)
        return f"coalesce(cast({quoted(name)} as text), '')"

    def _explained(self, error: Exception) -> DataError:
        text = str(error)
        if "Failed to prepare query" in text and "not a database" not in text:
            message = text.partition("Failed to prepare query:")[2].strip().splitlines()[0]
            return RequestError(f"{self.path}: the query cannot be used: {message}")
        if "readonly" in text:
            return RequestError(f"{self.path}: the query would change the database: it must be one select")
        return DataError(f"{self.path} cannot be read as a SQLite database: is it complete?")


def _stand_in(kind: str, text: str) -> Any:
    """Return a value of the same type, so that types are found as in other tables."""
    return {"integer": 0, "real": 0.0, "null": None}.get(kind, text)


def _driver() -> Any:
    try:
        from adbc_driver_sqlite import dbapi
    except ModuleNotFoundError:
        raise RequestError("reading from SQLite needs pip install 'fcac[sql]'") from None
    return dbapi
