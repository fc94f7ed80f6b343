"""JSON lines: one JSON object per line, whose keys are the columns."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fcac.exceptions import DataError
from fcac.tables import gap_words
from fcac.tables.python_cells import PythonRows, kind_of
from fcac.tables.read_options import ReadOptions
from fcac.tables.table_file import rows_per_batch

_FIRST_ROWS = 1000


class JsonLinesFile(PythonRows):
    """A file with one JSON object per line; the columns are the keys of the first thousand objects."""

    path: Path

    def __init__(self, path: Path, options: ReadOptions | None = None) -> None:
        self.path = path
        self._options = options or ReadOptions()
        columns: dict[str, list[Any]] = {}
        for _, row in zip(range(_FIRST_ROWS), self._objects(), strict=False):
            for name, cell in row.items():
                columns.setdefault(name, []).append(cell)
        if not columns:
            raise DataError(f'{path} is empty: every line must be a JSON object, as in {{"age": 71}}')
        gaps = gap_words.for_numbers(self._options.gaps)
        self.schema = pa.schema([(name, kind_of(cells, gaps)) for name, cells in columns.items()])

    def _objects(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self._lines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise DataError(f"{self.path}: line {number} is not a JSON object: correct or remove it") from None
            if not isinstance(row, dict):
                raise DataError(
                    f'{self.path}: line {number} is not a JSON object: every line must be one, as in {{"age": 71}}'
                )
            yield row

    def _lines(self) -> Iterator[str]:
        encoding = self._options.encoding or "utf-8-sig"
        opened: Any = gzip.open if self.path.name.lower().endswith(".gz") else open
        with opened(self.path, "rt", encoding=encoding, newline="\n") as stream:
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
