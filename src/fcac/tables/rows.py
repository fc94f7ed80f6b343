"""Conversion of tables to numbers: the only place where a schema is applied to what a reader yields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from fcac.tables.readers import TableFile
from fcac.tables.schema import Converted, Schema


class ReadRows(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    table : pyarrow.RecordBatch
        The rows as read: the columns of the schema and the additional ones requested.
    converted : Converted
        The rows as converted by the schema, and counts of what is wrong with them.
    share : float
        Fraction of the table that has been read, 0 to 1.
    """

    table: pa.RecordBatch
    converted: Converted
    share: float


def read_rows(file: TableFile, schema: Schema, beside: Sequence[str] = ()) -> Iterator[ReadRows]:
    """Read a table batch by batch, as numbers.

    Parameters
    ----------
    file : TableFile
    schema : Schema
    beside : sequence of str
        Additional columns to be read as they are, such as those of sites and ids.

    Yields
    ------
    ReadRows
    """
    numbers, texts = wanted_columns(schema)
    texts = list(dict.fromkeys([*texts, *(name for name in beside if name not in numbers)]))
    for table, share in file.batches(numbers, texts):
        yield ReadRows(table, schema.convert(table), share)


def wanted_columns(schema: Schema) -> tuple[list[str], list[str]]:
    """Return the columns that a schema needs as numbers and those it needs as text."""
    numbers = [field.name for field in schema.used if field.how.reads == "numbers"]
    return numbers, [field.name for field in schema.used if field.how.reads == "text"]
