"""DuckDB files as a source, through DuckDB's own Arrow interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from fcac.exceptions import DataError, RequestError
from fcac.tables.schema import is_numeric
from fcac.tables.sources.database import DatabaseTable, quoted
from fcac.tables.table_file import rows_per_batch

# Sorting and grouping beyond this use a temporary file; extensions would be downloaded, so they are not.
_CONFIG = {
    "memory_limit": "500MB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


class DuckdbTable(DatabaseTable):
    """The result of a query to a DuckDB file."""

    usual_schema: ClassVar[str] = "main"

    @contextmanager
    def _batches(self, sql: str) -> Iterator[Iterator[pa.RecordBatch]]:
        duckdb = _driver()
        with self._connected(duckdb) as connection:
            result = connection.sql(sql)
            if result is None:
                raise RequestError(f"{self.path}: the query has no result: it must be one select")
            read = result.to_arrow_reader if hasattr(result, "to_arrow_reader") else result.fetch_arrow_reader
            yield iter(read(rows_per_batch(16)))

    @contextmanager
    def _connected(self, duckdb: Any) -> Iterator[Any]:
        try:
            connection = duckdb.connect(str(self.path), read_only=True, config=_CONFIG)
        except duckdb.Error:
            raise DataError(
                f"{self.path} cannot be read as a DuckDB database: is it complete, and not in use?"
            ) from None
        try:
            yield connection
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._explained(error, duckdb) from None
        finally:
            connection.close()

    def _columns(self) -> pa.Schema:
        with self._connected(_driver()) as connection:
            found = connection.sql(self._select("*", "limit 0"))
            table = found.to_arrow_table() if hasattr(found, "to_arrow_table") else found.arrow()
            return pa.schema([(field.name, _kind(field.type)) for field in table.schema])

    def _as_number(self, name: str) -> str:
        return f"cast({quoted(name)} as double)"

    def _as_it_is(self, name: str) -> str:
        return f"cast({quoted(name)} as varchar)" if pa.types.is_string(self.schema.field(name).type) else quoted(name)

    def _explained(self, error: Exception, duckdb: Any) -> DataError:
        if isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException):
            # about names and syntax, found before any row was read
            message = str(error).partition("Error: ")[2].strip().splitlines()[0]
            return RequestError(f"{self.path}: the query cannot be used: {message}")
        if "read-only" in str(error):
            return RequestError(f"{self.path}: the query would change the database: it must be one select")
        return DataError(
            f"{self.path}: the query failed ({type(error).__name__}): nothing was learned. Run it in DuckDB to see why"
        )


def _kind(kind: Any) -> Any:
    plain = is_numeric(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return kind if plain else pa.string()


def _driver() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise RequestError("reading from DuckDB needs pip install 'fcac[sql]'") from None
    return duckdb
