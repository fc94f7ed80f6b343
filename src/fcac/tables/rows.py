"""Conversion of tables to numbers: the only place where a schema is applied to what a reader yields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from fcac.tables.readers import TableFile
from fcac.tables.schema import Converted, Schema


class ReadRows(NamedTuple):
    """Some rows of a table: as read, as converted by the schema, and the fraction of the table read so far."""

    table: pa.RecordBatch
    converted: Converted
    share: float


def read_rows(file: TableFile, schema: Schema, beside: Sequence[str] = ()) -> Iterator[ReadRows]:
    """Read a table batch by batch, as numbers; the columns `beside` (sites, ids) are read as they are."""
    numbers, texts = wanted_columns(schema)
    texts = list(dict.fromkeys([*texts, *(name for name in beside if name not in numbers)]))
    for table, share in file.batches(numbers, texts):
        yield ReadRows(table, schema.convert(table), share)


def wanted_columns(schema: Schema) -> tuple[list[str], list[str]]:
    """Return the columns that a schema needs as numbers and those it needs as text."""
    numbers = [field.name for field in schema.used if field.how.reads == "numbers"]
    return numbers, [field.name for field in schema.used if field.how.reads == "text"]
