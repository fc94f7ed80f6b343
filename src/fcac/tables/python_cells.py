"""Tables whose cells arrive as Python values: JSON lines, and workbooks of spreadsheet programs."""

from __future__ import annotations

import datetime
import gzip
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fcac.exceptions import DataError, RequestError
from fcac.tables.read_options import ReadOptions
from fcac.tables.table_file import TableFile, rows_per_batch


class PythonRows(TableFile):
    """A table that yields lists of cells; subclasses set `schema` with :func:`kind_of` and implement `_chunks`."""

    _options: ReadOptions

    @abstractmethod
    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[list[list[Any]], float]]:
        """Yield some rows, column by column in the order of the names, and the fraction of the table read."""

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        names = [*numbers, *texts]
        odd: Counter[str] = Counter()
        gaps = self._options.gaps_in_numbers
        for columns, share in self._chunks(names):
            arrays = []
            for name, cells in zip(names, columns, strict=True):
                if name in numbers:
                    values = [as_number(cell, gaps) for cell in cells]
                    odd[name] += 0 if self.forgiving else sum(value is False for value in values)
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
        blank = self._options.gaps_in_texts
        if (
            pa.types.is_temporal(kind)
            and not self.forgiving
            and all(cell is None or isinstance(cell, datetime.date) for cell in cells)
        ):
            return pa.array([_moment(cell) for cell in cells], kind)
        found = [None if cell is None else as_text(cell) for cell in cells]
        return pa.array([None if text in blank else text for text in found], pa.string())


def kind_of(cells: Iterable[Any], gaps: frozenset[str]) -> Any:
    """Return the Arrow type of a column of Python values; gap words fit every type.

    >>> from fcac.tables.read_options import GAP_WORDS
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


_FIRST_ROWS = 1000


class JsonLinesFile(PythonRows):
    """A file with one JSON object per line; the columns are the keys of the first thousand objects."""

    path: Path

    def __init__(self, path: Path, options: ReadOptions | None = None) -> None:
        self.path = path
        self._options = options or ReadOptions()
        self.forgiving = self._options.forgiving
        columns: dict[str, list[Any]] = {}
        for _, row in zip(range(_FIRST_ROWS), self._objects(), strict=False):
            for name, cell in row.items():
                columns.setdefault(name, []).append(cell)
        if not columns:
            raise DataError(f'{path} is empty: every line must be a JSON object, as in {{"age": 71}}')
        gaps = self._options.gaps_in_numbers
        self.schema = pa.schema([(name, kind_of(cells, gaps)) for name, cells in columns.items()])

    def _objects(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self._lines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
                if not self.forgiving:
                    raise DataError(f"{self.path}: line {number} is not a JSON object: correct or remove it") from None
            if not isinstance(row, dict):
                if self.forgiving:
                    continue
                raise DataError(
                    f'{self.path}: line {number} is not a JSON object: every line must be one, as in {{"age": 71}}'
                )
            yield row

    def _lines(self) -> Iterator[str]:
        encoding = self._options.encoding or "utf-8-sig"
        opened: Any = gzip.open if self.path.name.lower().endswith(".gz") else open
        errors = "replace" if self.forgiving else "strict"
        with opened(self.path, "rt", encoding=encoding, errors=errors, newline="\n") as stream:
            self._stream = stream
            try:
                yield from stream
            except UnicodeError:
                raise DataError(
                    f"{self.path} is not {encoding.removesuffix('-sig').upper()} text: give its encoding, as in "
                    "--read encoding=latin-1"
                ) from None

    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[list[list[Any]], float]]:
        size, most = max(1, self.path.stat().st_size), rows_per_batch(len(names))
        columns: list[list[Any]] = [[] for _ in names]
        done = 0
        for row in self._objects():
            for name, cells in zip(names, columns, strict=True):
                cells.append(row.get(name))
            done += 1
            if done == most:
                yield columns, min(1.0, self._position() / size)
                columns, done = [[] for _ in names], 0
        if done:
            yield columns, 1.0

    def _position(self) -> int:
        # below the text layer; for a compressed file, below the decompressor
        raw: Any = self._stream.buffer
        packed: Any = getattr(raw, "fileobj", None)
        return int((raw if packed is None else packed).tell())


class Workbook(PythonRows):
    """One sheet of a workbook (xlsx, xlsb, xls, ods; extra ``excel``): the one named, or the only one not empty.

    Its first row names the columns. A sheet has at most a million rows, so it is held in memory while it is read.
    """

    path: Path

    def __init__(self, path: Path, options: ReadOptions | None = None) -> None:
        self.path = path
        self._options = options or ReadOptions()
        self.forgiving = self._options.forgiving
        rows = self._rows()
        if not rows:
            raise DataError(f"{path} is empty: the first row must name the columns")
        width = max(len(row) for row in rows)
        if self._options.header:
            names = [as_text(cell).strip() for cell in rows[0]]
            names += [""] * (width - len(names))
            self._first = 1
        else:
            names, self._first = [f"x{i}" for i in range(width)], 0
        gaps = self._options.gaps_in_numbers
        kinds = [kind_of((_cell(row, place) for row in rows[self._first :]), gaps) for place in range(width)]
        lost = [p for p in range(1, width) if not names[p] and not pa.types.is_null(kinds[p])]
        if lost:
            raise DataError(f"{path}: column {lost[0] + 1} has no name: write one into the first row")
        # a first column without a name holds row numbers
        self._places = {name: place for place, name in reversed(list(enumerate(names))) if name}
        self.schema = pa.schema([(name, kind) for name, kind in zip(names, kinds, strict=True) if name])
        self.n_rows = len(rows) - self._first

    def _rows(self) -> list[list[Any]]:
        try:
            from python_calamine import CalamineError, CalamineWorkbook
        except ModuleNotFoundError:
            raise RequestError(f"{self.path}: reading workbooks needs pip install 'fcac[excel]'") from None
        try:
            with CalamineWorkbook.from_path(str(self.path)) as book:
                wished = self._options.sheet
                names = list(book.sheet_names)
                if wished is not None:
                    if wished not in names:
                        raise RequestError(f"{self.path} has no sheet {wished!r}; it has {', '.join(names)}")
                    return _without_margin(book.get_sheet_by_name(wished).to_python())
                full = {n: rows for n in names if (rows := _without_margin(book.get_sheet_by_name(n).to_python()))}
        except CalamineError:
            raise DataError(
                f"{self.path} cannot be read as a workbook: is it complete, and without a password?"
            ) from None
        if len(full) > 1:
            raise RequestError(
                f"{self.path} has {len(full)} sheets ({', '.join(full)}): give --read sheet=NAME, as in "
                f"--read 'sheet={next(iter(full))}'"
            )
        return next(iter(full.values()), [])

    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[list[list[Any]], float]]:
        rows = self._rows()[self._first :]
        size, places = rows_per_batch(len(names)), [self._places[name] for name in names]
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield [[_cell(row, place) for row in part] for place in places], self._share(start + len(part))


def _without_margin(rows: list[list[Any]]) -> list[list[Any]]:
    """Leave out rows without any value; cells without value are empty text."""
    return [row for row in rows if any(cell != "" for cell in row)]


def _cell(row: list[Any], place: int) -> Any:
    cell = row[place] if place < len(row) else None
    return None if cell == "" else cell
