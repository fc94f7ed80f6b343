"""CSV and similar files: text with a header line of column names, read whole or from a byte offset."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from fcac.exceptions import DataError
from fcac.tables.readers import TableFile
from fcac.tables.schema import is_numeric

_CSV_BLOCK = 1 << 20
# Lines of only these bytes are blank: Arrow skips them, and so must any code that looks for the header line.
_BLANK = b"\xef\xbb\xbf\r\n"


class _Window(io.RawIOBase):
    """The next bytes of a stream, for a reader that would otherwise read to the end."""

    def __init__(self, stream: BinaryIO, length: int) -> None:
        super().__init__()
        self._stream, self.left = stream, length

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self.left if size is None or size < 0 else min(size, self.left))
        self.left -= len(data)
        return data


class CsvFile(TableFile):
    """A CSV file with a header line of column names, from which the separator is detected.

    Parameters
    ----------
    path : Path
    start : int
        Byte offset at which a line below the header begins; the rows above it are not read. 0 reads the whole file.
    end : int, optional
        Byte offset at which the last line to be read ends; anything after it is not read.
    """

    def __init__(self, path: Path, start: int = 0, end: int | None = None) -> None:
        self.path = path
        self._packed = path.name.lower().endswith(".gz")
        if self._packed and (start or end is not None):
            raise ValueError("a compressed file cannot be read partially")
        self._start, self._end = start, end
        self._names: list[str] | None = None
        with self._source(0) as (source, _):
            first = source.read(_CSV_BLOCK)
        if not first.strip():
            raise DataError(f"{path} is empty: the first line must name the columns")
        line = first.lstrip(_BLANK).split(b"\n", 1)[0]
        self._separator = max(",;\t|", key=lambda sign: line.count(sign.encode()))
        try:
            if start:
                with path.open("rb") as stream:
                    names = io.BytesIO(_read_names(stream))
                with self._open(names, {}) as reader:
                    self._names = reader.schema.names
            with self._source(start) as (source, _), self._open(source, {}) as reader:
                self.schema = reader.schema
            self._names = self.schema.names
        except UnicodeDecodeError:
            raise DataError(f"{path} is not UTF-8 text: save it as UTF-8") from None
        except pa.ArrowInvalid as error:
            raise self._explained(error) from None

    def check_names(self) -> None:
        path, names = self.path, self.schema.names
        super().check_names()
        if len(names) > 1 and all(_is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
            raise DataError(f"{path}: the first line has numbers, not names: add a line that names the columns")
        if "" in names:
            raise DataError(
                f"{path}: column {names.index('') + 1} has no name (often a row number): name it or leave it out"
            )

    @contextlib.contextmanager
    def _source(self, start: int) -> Iterator[tuple[Any, Callable[[], float]]]:
        """Open the bytes from an offset on, decompressed, with a function that returns the fraction read so far."""
        if start or self._end is not None:
            with self.path.open("rb") as stream:
                end = stream.seek(0, io.SEEK_END) if self._end is None else self._end
                stream.seek(start)
                part = _Window(stream, end - start)
                yield part, lambda: 1.0 - part.left / max(1, end - start)
            return
        with pa.OSFile(str(self.path)) as raw:
            size = max(1, raw.size())
            yield pa.CompressedInputStream(raw, "gzip") if self._packed else raw, lambda: min(1.0, raw.tell() / size)

    def _open(self, source: Any, kinds: dict[str, Any], columns: list[str] | None = None) -> Any:
        """Start reading; the source begins with the header line unless reading starts further down."""
        import pyarrow.csv as csv

        self._bad_row: Any = None
        names = self._names if self._start else None

        def remember(row: Any) -> str:
            self._bad_row = row
            return "error"

        return csv.open_csv(
            source,
            # without threads, blocks are read one at a time and errors have line numbers
            read_options=csv.ReadOptions(column_names=names, block_size=_CSV_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=self._separator, invalid_row_handler=remember),
            convert_options=csv.ConvertOptions(column_types=kinds, include_columns=columns),
        )

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        # in a text column every word is a value: a site or category may well be called NA
        kinds = {name: pa.string() for name in texts}
        for name in numbers:
            kind = self.schema.field(name).type
            # a column that starts with whole numbers may have decimals further down
            kinds[name] = pa.float64() if is_numeric(kind) and not pa.types.is_boolean(kind) else kind
        with self._source(self._start) as (source, share):
            try:
                for batch in self._open(source, kinds, [*numbers, *texts]):
                    if batch.num_rows:
                        yield _empty_as_missing(batch, texts), share()
            except pa.ArrowInvalid as error:
                raise self._explained(error, numbers) from None

    def _explained(self, error: Exception, numbers: Sequence[str] = ()) -> DataError:
        """Explain an error in a CSV file; the library's message quotes the row, so only its numbers are used."""
        if self._bad_row is not None:
            row = self._bad_row
            where = f" in line {self._lines_before() + row.number}" if row.number else ""
            return DataError(
                f"{self.path}: a row{where} has {row.actual_columns} cells, but the first line names "
                f"{row.expected_columns}: correct or remove that row"
            )
        text = str(error)
        if "conversion error" in text:
            odd = self._count_texts(numbers)
            if odd:
                counts = ", ".join(f"{name} ({count:,})" for name, count in odd.items())
                return DataError(
                    f"{self.path}: text where numbers are expected in column {counts}: correct these cells; "
                    "an empty cell is a missing value"
                )
        if "UTF8" in text or "UTF-8" in text:
            return DataError(f"{self.path} is not UTF-8 text: save it as UTF-8")
        return DataError(f"{self.path} cannot be read as CSV: does every row have as many cells as the first line?")

    def _count_texts(self, numbers: Sequence[str]) -> dict[str, int]:
        """Count the cells that are not numbers, per column."""
        blank = missing_words()
        counts: dict[str, int] = {}
        kinds = {name: pa.string() for name in numbers}
        with self._source(self._start) as (source, _):
            for batch in self._open(source, kinds, list(numbers)):
                for name in numbers:
                    odd = sum(text not in blank and not _is_number(text) for text in batch.column(name).to_pylist())
                    if odd:
                        counts[name] = counts.get(name, 0) + odd
        return counts

    def _lines_before(self) -> int:
        """Count the lines before the first one that is read."""
        left, lines = self._start, 0
        with self.path.open("rb") as stream:
            while left and (data := stream.read(min(left, _CSV_BLOCK))):
                lines += data.count(b"\n")
                left -= len(data)
        return lines


def _read_names(stream: BinaryIO) -> bytes:
    """Read a file up to the end of its header line."""
    stream.seek(0)
    text = line = stream.readline()
    while line and not line.strip(_BLANK):
        line = stream.readline()
        text += line
    return text


def end_of_names(stream: BinaryIO) -> int:
    """Return the byte offset at which the header line ends."""
    return len(_read_names(stream))


def missing_words() -> frozenset[str]:
    """Return the words that denote a missing value in a column of numbers."""
    import pyarrow.csv as csv

    return frozenset(csv.ConvertOptions().null_values)


def _empty_as_missing(batch: pa.RecordBatch, texts: Sequence[str]) -> pa.RecordBatch:
    """Turn empty cells of text columns into missing values, but not words such as NA, which may be a name."""
    import pyarrow.compute as pc

    for name in texts:
        place = batch.schema.names.index(name)
        column = batch.column(place)
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
        batch = batch.set_column(place, name, column)
    return batch


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in ("true", "false")
    return True
