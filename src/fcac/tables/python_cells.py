"""Tables whose cells arrive as Python values (JSON lines, workbooks): types of columns, and Arrow batches."""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from fcac.exceptions import DataError
from fcac.tables import gap_words
from fcac.tables.read_options import ReadOptions
from fcac.tables.table_file import TableFile


class PythonRows(TableFile):
    """A table that yields lists of cells; subclasses set `schema` with :func:`kind_of` and implement `_chunks`."""

    _options: ReadOptions

    @abstractmethod
    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[list[list[Any]], float]]:
        """Yield some rows, column by column in the order of the names, and the fraction of the table read."""

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        names = [*numbers, *texts]
        odd: Counter[str] = Counter()
        gaps = gap_words.for_numbers(self._options.gaps)
        for columns, share in self._chunks(names):
            arrays = []
            for name, cells in zip(names, columns, strict=True):
                if name in numbers:
                    values = [as_number(cell, gaps) for cell in cells]
                    odd[name] += sum(value is False for value in values)
                    arrays.append(pa.array([None if value is False else value for value in values], pa.float64()))
                else:
                    arrays.append(self._as_they_are(cells, name))
            # after the first problem, cells are only counted, so that the error can report all problems
            if not odd.total():
                yield pa.RecordBatch.from_arrays(arrays, names), share
        if odd.total():
            counts = ", ".join(f"{name} ({count:,})" for name, count in odd.items() if count)
            raise DataError(
                f"{self.path}: text where numbers are expected in column {counts}: correct these cells, or name the "
                "word that stands for a missing value (--read gaps=WORD)"
            )

    def _as_they_are(self, cells: list[Any], name: str) -> pa.Array:
        kind = self.schema.field(name).type
        blank = gap_words.for_texts(self._options.gaps)
        if pa.types.is_temporal(kind) and all(cell is None or isinstance(cell, datetime.date) for cell in cells):
            return pa.array([_moment(cell) for cell in cells], kind)
        found = [None if cell is None else as_text(cell) for cell in cells]
        return pa.array([None if text in blank else text for text in found], pa.string())


def kind_of(cells: Iterable[Any], gaps: frozenset[str]) -> Any:
    """Return the Arrow type of a column of Python values; gap words fit every type.

    Examples
    --------
    >>> from fcac.tables.gap_words import GAP_WORDS
    >>> from fcac.tables.python_cells import kind_of
    >>> kind_of([1, "n/a", 2.5], GAP_WORDS), kind_of(["x", 1], GAP_WORDS), kind_of([None], GAP_WORDS)
    (DataType(double), DataType(string), DataType(null))
    """
    kinds = {
        _family(cell) for cell in cells if cell is not None and not (isinstance(cell, str) and cell.strip() in gaps)
    }
    if not kinds:
        return pa.null()
    if "nested" in kinds:
        return pa.struct([])
    if kinds == {"boolean"}:
        return pa.bool_()
    if kinds <= {"boolean", "number"}:
        return pa.float64()
    return pa.timestamp("us") if kinds == {"date"} else pa.string()


def _family(cell: Any) -> str:
    if isinstance(cell, bool):
        return "boolean"
    if isinstance(cell, int | float):
        return "number"
    if isinstance(cell, datetime.date):
        return "date"
    return "nested" if isinstance(cell, dict | list) else "text"


def as_number(cell: Any, gaps: frozenset[str]) -> float | bool | None:
    """Return a cell as a number, None if it is a gap, and False if it is neither."""
    if cell is None:
        return None
    if isinstance(cell, int | float):
        try:
            return float(cell)
        except OverflowError:
            return float("inf")
    if isinstance(cell, str):
        text = cell.strip()
        if text in gaps:
            return None
        try:
            return float(text)
        except ValueError:
            return False
    return False


def as_text(cell: Any) -> str:
    """Return a cell as text; a workbook's 3.0 is the 3 that its reader sees."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, datetime.date):
        return cell.isoformat()
    return str(cell)


def _moment(cell: Any) -> Any:
    if cell is None or isinstance(cell, datetime.datetime):
        return cell
    return datetime.datetime(cell.year, cell.month, cell.day)
