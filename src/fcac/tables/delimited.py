"""CSV and similar files: text with a header line of column names, read whole or from a byte offset."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from fcac.exceptions import DataError, ReadWarning, RequestError
from fcac.tables.dialect import Head, NumberForms, find_number_forms, grouping_pattern, number_pattern, read_head
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import is_numeric
from fcac.tables.table_file import TableFile

_CSV_BLOCK = 1 << 20
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+\Z")
# So many rows show how a column writes its numbers.
_SAMPLE_ROWS = 2000
_NO_ROWS = "Empty CSV file"
_NO_NAME = "\x00unnamed "


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


class _LinesAlone(io.RawIOBase):
    """The lines of a stream as UTF-8, such that none changes how another is read.

    A line whose quotes do not end in it is left out: a reader would take the lines below it for a part of its last
    cell. So is one too long for a block.
    """

    def __init__(self, stream: Any, encoding: str, separator: str) -> None:
        super().__init__()
        self._stream, self._rest, self._ready, self._ended = stream, "", b"", False
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        sign = re.escape(separator)
        cell = rf'(?:"(?:[^"]|"")*"|[^"{sign}][^{sign}]*|)'
        self._whole = re.compile(rf"{cell}(?:{sign}{cell})*[\r\n]*", re.DOTALL)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ended and (size < 0 or len(self._ready) < size):
            data = self._stream.read(_CSV_BLOCK)
            self._ended = not data
            text = self._rest + self._decoder.decode(data, final=self._ended)
            end = len(text) if self._ended else text.rfind("\n") + 1
            text, self._rest = text[:end], text[end:]
            if '"' in text or len(text) > _CSV_BLOCK // 8:
                text = "".join([line for line in _LINE.findall(text) if self._is_whole(line)])
            self._ready += text.encode("utf-8", "replace")
        size = len(self._ready) if size < 0 else size
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _is_whole(self, line: str) -> bool:
        return len(line) < _CSV_BLOCK // 8 and ('"' not in line or self._whole.fullmatch(line) is not None)


class CsvFile(TableFile):
    """A CSV file with a header line of column names; encoding, separator and the form of numbers are detected.

    Only the lines between the byte offsets `start`, where a line below the header begins, and `end` are read; by
    default all. What is not to be detected is in the options.
    """

    path: Path

    def __init__(self, path: Path, start: int = 0, end: int | None = None, options: ReadOptions | None = None) -> None:
        self.path = path
        self._options = options or ReadOptions()
        self.forgiving = self._options.forgiving
        self._packed = path.name.lower().endswith(".gz")
        if self._packed and (start or end is not None):
            raise ValueError("a compressed file cannot be read partially")
        self._head = _read_head(path, self._options)
        self._start, self._end = max(start, self._head.end), end
        if not any(self._head.names):
            raise DataError(f"{path} is empty: the first line must name the columns")
        self._names = [name or f"{_NO_NAME}{place}" for place, name in enumerate(self._head.names)]
        self._gaps = self._options.gaps_in_numbers
        self._forms = NumberForms({}, [])
        self._bad_row: Any = None
        try:
            with self._source() as (source, _), self._open(source, {}) as reader:
                found = reader.schema
            self._forms = self._find_forms(found)
        except UnicodeError:
            raise self._wrong_encoding() from None
        except pa.ArrowInvalid as error:
            if _NO_ROWS not in str(error):
                raise self._explained(error) from None
            found = pa.schema([(name, pa.null()) for name in self._names])
        self.schema = pa.schema(
            [
                pa.field(field.name, pa.float64() if field.name in self._forms.decimals else field.type)
                for field in found
                if not field.name.startswith(_NO_NAME)
            ]
        )
        self._unnamed = {self._names.index(f.name): f.type for f in found if f.name.startswith(_NO_NAME)}
        self._warn()

    def _warn(self) -> None:
        if self._head.guessed:
            warnings.warn(
                f"{self.path} is not UTF-8: it is read as {self._head.encoding} (Western European). If letters come "
                "out wrong, give --read encoding=NAME",
                ReadWarning,
                stacklevel=4,
            )
        if self._forms.doubtful:
            column = ", ".join(self._forms.doubtful[:5])
            comma = self._forms.decimals[self._forms.doubtful[0]] == ","
            reading, other = ("decimals", "point") if comma else ("thousands", "comma")
            warnings.warn(
                f"{self.path}: the commas and points in column {column} are read as {reading}; if that is wrong, give "
                f"--read decimal={other}",
                ReadWarning,
                stacklevel=4,
            )

    def check_names(self) -> None:
        path, names = self.path, self.schema.names
        super().check_names()
        if len(names) > 1 and all(_is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
            raise DataError(
                f"{path}: the first line has numbers, not names: add a line that names the columns, or give "
                "--read header=no"
            )
        # R, pandas and spreadsheets write row names into a first column without a name, and may end every line with a
        # separator; nothing is lost without those
        lost = [place for place, kind in self._unnamed.items() if place > 0 and not pa.types.is_null(kind)]
        if lost:
            raise DataError(f"{path}: column {lost[0] + 1} has no name: write one into the first line")

    @contextlib.contextmanager
    def _source(self) -> Iterator[tuple[Any, Callable[[], float]]]:
        """Open the bytes of the rows, decompressed, with a function that returns the fraction read so far."""
        if self._packed:
            with pa.OSFile(str(self.path)) as raw:
                size = max(1, raw.size())
                stream = pa.CompressedInputStream(raw, "gzip")
                stream.read(self._start)
                yield self._alone(stream), lambda: min(1.0, raw.tell() / size)
            return
        with self.path.open("rb") as stream:
            end = stream.seek(0, io.SEEK_END) if self._end is None else self._end
            length = max(0, end - self._start)
            stream.seek(self._start)
            part = _Window(stream, length)
            yield self._alone(part), lambda: 1.0 - part.left / max(1, length)

    def _alone(self, stream: Any) -> Any:
        forgiving = self._options.forgiving
        return _LinesAlone(stream, self._head.encoding, self._head.separator) if forgiving else stream

    def _open(self, source: Any, kinds: dict[str, Any], columns: list[str] | None = None) -> Any:
        """Start reading at the first row."""
        import pyarrow.csv as csv

        self._bad_row = None

        def remember(row: Any) -> str:
            self._bad_row = row
            return "skip" if self._options.forgiving else "error"

        encoding = "utf-8" if self._options.forgiving else self._head.encoding
        return csv.open_csv(
            source,
            # without threads, blocks are read one at a time and errors have line numbers
            read_options=csv.ReadOptions(
                column_names=self._names,
                block_size=_CSV_BLOCK,
                use_threads=False,
                encoding="utf8" if encoding == "utf-8" else encoding,
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._head.separator,
                newlines_in_values=self._head.newlines,
                invalid_row_handler=remember,
            ),
            convert_options=csv.ConvertOptions(
                column_types=kinds, include_columns=columns, null_values=sorted(self._gaps)
            ),
        )

    def _find_forms(self, found: pa.Schema) -> NumberForms:
        """Look at the first rows of columns that are not plain numbers: they may have decimal commas or thousands."""
        if self._options.forgiving:  # no row decides how others are read
            return NumberForms({}, [])
        texts = [field.name for field in found if pa.types.is_string(field.type)]
        decimals = [field.name for field in found if pa.types.is_floating(field.type)]
        wanted = list(dict.fromkeys(name for name in [*texts, *decimals] if self._names.count(name) == 1))
        if not wanted or not (texts or self._options.decimal == ","):
            return NumberForms({}, [])
        kinds = {name: pa.string() for name in wanted}
        with self._source() as (source, _), self._open(source, kinds, wanted) as reader:
            first = next(iter(reader), None)
        if first is None:
            return NumberForms({}, [])
        first = first.slice(0, _SAMPLE_ROWS)
        cells = {
            name: [cell for text in column.to_pylist() if (cell := text.strip()) not in self._gaps]
            for name, column in zip(wanted, first.columns, strict=True)
        }
        return find_number_forms(cells, decimals, self._head.separator, self._options.decimal)

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        # in a text column every word is a value, but for those that cannot be one: a site may well be called NA
        kinds = {name: pa.string() for name in texts}
        for name in numbers:
            kind = self.schema.field(name).type
            # a column that starts with whole numbers may have decimals further down
            kinds[name] = pa.float64() if is_numeric(kind) and not pa.types.is_boolean(kind) else kind
        formed = {name: sign for name, sign in self._forms.decimals.items() if name in numbers}
        if self._options.forgiving:
            formed = dict.fromkeys(numbers, self._options.decimal or ".")
        kinds.update(dict.fromkeys(formed, pa.string()))
        with self._source() as (source, share):
            try:
                for batch in self._open(source, kinds, [*numbers, *texts]):
                    if batch.num_rows:
                        yield self._finished(batch, formed, texts), share()
            except UnicodeError:
                raise self._wrong_encoding() from None
            except pa.ArrowInvalid as error:
                if _NO_ROWS not in str(error):
                    raise self._explained(error, numbers) from None

    def _finished(self, batch: pa.RecordBatch, formed: dict[str, str], texts: Sequence[str]) -> pa.RecordBatch:
        """Turn numbers written with a decimal comma or with thousands into numbers, and gap words into gaps."""
        places = {name: place for place, name in enumerate(batch.schema.names)}
        for name, decimal in formed.items():
            batch = batch.set_column(
                places[name], name, as_numbers(batch.column(places[name]), decimal, self._gaps, self._options.forgiving)
            )
        blank = self._options.gaps_in_texts
        for name in texts:
            batch = batch.set_column(places[name], name, without_gap_words(batch.column(places[name]), blank))
        return batch

    def _wrong_encoding(self) -> DataError:
        if self._head.encoding == "utf-8":
            return DataError(f"{self.path} is not UTF-8 text: give its encoding, as in --read encoding=latin-1")
        return DataError(
            f"{self.path} cannot be read as {self._head.encoding} text: give its encoding, as in --read encoding=utf-8"
        )

    def _explained(self, error: Exception, numbers: Sequence[str] = ()) -> DataError:
        """Explain an error in a CSV file; the library's message quotes the row, so only its numbers are used."""
        if self._bad_row is not None:
            row = self._bad_row
            where = f" in line {self._lines_before() + row.number}" if row.number else ""
            return DataError(
                f"{self.path}: a row{where} has {row.actual_columns} cells, but the first line names "
                f"{row.expected_columns}: correct or remove that row"
                + ("" if self._head.newlines else ", or give --read newlines=yes if quoted cells contain line breaks")
            )
        text = str(error)
        if "conversion error" in text:
            odd = self._count_texts(numbers)
            if odd:
                counts = ", ".join(f"{name} ({count:,})" for name, count in odd.items())
                return DataError(
                    f"{self.path}: text where numbers are expected in column {counts}: correct these cells, or name "
                    "the word that stands for a missing value (--read gaps=WORD)"
                )
        if "UTF8" in text or "UTF-8" in text:
            return self._wrong_encoding()
        return DataError(f"{self.path} cannot be read as CSV: does every row have as many cells as the first line?")

    def _count_texts(self, numbers: Sequence[str]) -> dict[str, int]:
        """Count the cells that are not numbers, per column."""
        counts: Counter[str] = Counter()
        patterns = {name: re.compile(number_pattern(sign)) for name, sign in self._forms.decimals.items()}
        kinds = {name: pa.string() for name in numbers}
        with self._source() as (source, _):
            for batch in self._open(source, kinds, list(numbers)):
                for name in numbers:
                    cells = [text.strip() for text in batch.column(name).to_pylist()]
                    cells = [cell for cell in cells if cell not in self._gaps]
                    pattern = patterns.get(name)
                    odd = sum(not (_is_number(cell) if pattern is None else pattern.fullmatch(cell)) for cell in cells)
                    if odd:
                        counts[name] += odd
        return dict(counts)

    def _lines_before(self) -> int:
        """Count the lines before the first one that is read."""
        if self._start == self._head.end:
            return self._head.lines
        left, lines = self._start, 0
        with self.path.open("rb") as stream:
            while left and (data := stream.read(min(left, _CSV_BLOCK))):
                lines += data.count(b"\n")
                left -= len(data)
        return lines


def _read_head(path: Path, options: ReadOptions) -> Head:
    import gzip

    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as stream:
        try:
            return read_head(stream, options)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None


def has_lines(path: Path, options: ReadOptions | None = None) -> bool:
    """Return whether a text file can be read from a byte offset, line by line: UTF-16 and quoted breaks prevent it."""
    head = _read_head(path, options or ReadOptions())
    return not head.encoding.startswith(("utf-16", "utf-32")) and not head.newlines


def refuse_guesses(path: Path, numbers: Sequence[str], options: ReadOptions) -> None:
    """Refuse a file that is written in a way that only its rows tell: where rows decide nothing, it has to be said."""
    plain = replace(options, forgiving=False)
    found, head = _read_head(path, plain), _read_head(path, options)
    wanted = {}
    if found.encoding != head.encoding:
        wanted["encoding"] = found.encoding
    if found.separator != head.separator:
        wanted["separator"] = found.separator
    with contextlib.suppress(DataError), warnings.catch_warnings(action="ignore", category=ReadWarning):
        forms = CsvFile(path, options=plain)._forms.decimals
        if any(forms.get(name, ".") != (options.decimal or ".") for name in numbers):
            wanted["decimal"] = "comma"
    if wanted:
        told = " ".join(f"--read {name}={sign}" for name, sign in wanted.items())
        raise RequestError(
            f"{path} seems to be written with {told.replace('--read ', '')}. Say so: give {told}. With an epsilon "
            "nothing is guessed from rows, for one row would decide how others are read"
        )


def end_of_names(path: Path, options: ReadOptions | None = None) -> int:
    """Return the byte offset at which the header line ends."""
    return _read_head(path, options or ReadOptions()).end


def as_numbers(column: Any, decimal: str, gaps: frozenset[str], forgiving: bool = False) -> Any:
    """Convert text to numbers with this decimal sign and perhaps grouped thousands.

    Other cells are gaps or, unless that is forgiven, an ArrowInvalid.
    """
    import pyarrow.compute as pc

    column = without_gap_words(pc.utf8_trim_whitespace(column), gaps)
    fits = pc.match_substring_regex(column, pattern=f"^{number_pattern(decimal)}$")
    if not pc.all(fits, skip_nulls=True, min_count=0).as_py():
        if not forgiving:
            raise pa.ArrowInvalid("conversion error")
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    column = pc.replace_substring_regex(column, pattern=grouping_pattern(decimal), replacement="")
    return pc.cast(pc.replace_substring(column, pattern=decimal, replacement="."), pa.float64())


def without_gap_words(column: Any, words: frozenset[str]) -> Any:
    """Turn gap words into missing values."""
    import pyarrow.compute as pc

    gone = pc.is_in(column, value_set=pa.array(sorted(words), column.type))
    return pc.if_else(gone, pa.scalar(None, column.type), column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in ("true", "false")
    return True
