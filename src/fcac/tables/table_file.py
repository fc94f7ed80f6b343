"""A table that is read batch by batch, using little memory whatever its size; a schema makes its rows numbers.

There is a small class for every format: :mod:`fcac.tables.binary_files`, :mod:`fcac.tables.delimited` and others.
"""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fcac.exceptions import DataError
from fcac.tables.schema import Converted, Schema, is_numeric, kind_in_words

# A batch has at most this many bytes as float64; readers keep a few of them at a time.
_BATCH_BYTES = 8_000_000
_MOST_ROWS = 65_536


class TableFile(ABC):
    """A table on disk, or in a database, that is read batch by batch.

    Types in `schema` are inferred from the beginning where the format has none. `n_rows` is None if the whole file must
    be read to know it. Columns in `not_features`, such as labels beside the table in an NPZ file, are never features.
    """

    path: Path | str
    schema: pa.Schema
    n_rows: int | None = None
    not_features: frozenset[str] = frozenset()
    #: Whether a cell that is not what its column holds is a gap; types seen in the first rows then decide nothing.
    forgiving: bool = False

    @property
    def weight(self) -> int:
        """Share of this table in the progress of a pass over several, in bytes."""
        return max(1, Path(self.path).stat().st_size)

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield batches with these columns, as numbers or as they are, and the fraction of the file read so far."""
        self.check_columns(numbers, texts)
        try:
            yield from self._read(list(numbers), list(texts))
        except (pa.ArrowException, OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, DataError):
                raise
            # the library's own message may quote a row, so it is not passed on
            raise DataError(f"{self.path} cannot be read to the end ({type(error).__name__}): is it damaged?") from None

    def check_columns(self, numbers: Sequence[str], texts: Sequence[str]) -> None:
        """Refuse to read columns that occur twice, or columns as numbers that are not numeric."""
        self._refuse_twice([*numbers, *texts])
        for name in () if self.forgiving else numbers:
            kind = self.schema.field(name).type
            if not is_numeric(kind):
                raise DataError(
                    f"{self.path}: column {name} has {kind_in_words(kind)}, but numbers are needed: leave it out, "
                    "or list its public categories in a schema"
                )

    def check_names(self) -> None:
        """Refuse column names that make no sense; for callers that do not say which columns they want."""
        self._refuse_twice(self.schema.names)

    def _refuse_twice(self, wanted: Sequence[str]) -> None:
        counts = Counter(self.schema.names)
        twice = sorted({name for name in wanted if counts[name] > 1})
        if twice:
            raise DataError(
                f"{self.path}: column {', '.join(twice[:5])} appears more than once: give every column its own name"
            )

    @abstractmethod
    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield batches and the fraction of the file that has been read; implemented by each kind of file."""

    def _share(self, done: int) -> float:
        return min(1.0, done / self.n_rows) if self.n_rows else 1.0


def rows_per_batch(n_columns: int) -> int:
    """Return how many rows of this width are read at a time."""
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // (8 * max(1, n_columns))))


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
