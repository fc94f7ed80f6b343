"""Workbooks of spreadsheet programs (xlsx, xlsb, xls, ods), read only; needs the extra ``excel``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fcac.exceptions import DataError, RequestError
from fcac.tables import gap_words
from fcac.tables.python_cells import PythonRows, as_text, kind_of
from fcac.tables.read_options import ReadOptions
from fcac.tables.table_file import rows_per_batch


class Workbook(PythonRows):
    """One sheet of a workbook, whose first row names the columns: the one named, or the only one that is not empty.

    A sheet has at most a million rows, so it is held in memory while it is read.
    """

    path: Path

    def __init__(self, path: Path, options: ReadOptions | None = None) -> None:
        self.path = path
        self._options = options or ReadOptions()
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
        gaps = gap_words.for_numbers(self._options.gaps)
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
