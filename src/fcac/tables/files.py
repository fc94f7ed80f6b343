"""Find table files and read each one batch by batch, in little memory whatever its size.

One small class per format, all with the same three things: the Arrow schema, the number of rows if it is known cheaply,
and the batches of the columns asked for.
"""

from __future__ import annotations

import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fcac._sites import SiteName
from fcac.exceptions import DataError, RequestError
from fcac.tables.schema import is_numeric

#: Name endings of the formats that can be read.
FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
}

# A batch is at most this many bytes as float64; readers hold a few of them at a time.
_BATCH_BYTES = 8_000_000
_MOST_ROWS = 65_536
_CSV_BLOCK = 1 << 20
# All columns of a Parquet file are read side by side, each through a buffer of its own; together they have this much.
_PARQUET_BUFFERS = 32 << 20


class SourceFile(NamedTuple):
    """A file and the site that it belongs to unless something else says so."""

    path: Path
    site: SiteName


def site_from_text(text: str) -> SiteName:
    """Read a site's name: digits are a number, so that site 9 comes before site 10; all else is text.

    Examples
    --------
    >>> from fcac.tables.files import site_from_text
    >>> site_from_text("10"), site_from_text("007"), site_from_text("north")
    (10, '007', 'north')
    """
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def find_files(paths: Sequence[str | Path]) -> list[SourceFile]:
    """List the table files behind files and directories.

    In a directory every file is a site, named by the file; every sub-directory is a site too, with all files below it.

    Parameters
    ----------
    paths : sequence of path-like

    Returns
    -------
    list of SourceFile
        In the order given; within a directory, sorted by site.
    """
    from fcac._sites import order_key

    found: list[SourceFile] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [
                SourceFile(file, site_from_text(stem(entry)))
                for entry in path.iterdir()
                if not entry.name.startswith((".", "_"))
                for file in (_files_below(entry) if entry.is_dir() else [entry])
                if format_of(file) is not None
            ]
            if not inside:
                raise RequestError(f"{path} holds no table: files must end in {', '.join(FORMATS)}")
            found.extend(sorted(inside, key=lambda item: (order_key(item.site), str(item.path))))
        elif not path.exists():
            raise RequestError(f"there is no file or directory {path}")
        elif format_of(path) is None:
            raise RequestError(f"{path}: unknown kind of file; it must end in {', '.join(FORMATS)}")
        else:
            found.append(SourceFile(path, site_from_text(stem(path))))
    if not found:
        raise RequestError("no data: name at least one file or directory")
    return found


def stem(path: Path) -> str:
    """Name of a file without its ending."""
    name = path.name
    if path.is_dir():
        return name
    for ending in sorted(FORMATS, key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)] or name
    return path.stem


def format_of(path: Path) -> str | None:
    """Kind of a file by its ending; None if unknown."""
    endings = [ending for ending in FORMATS if path.name.lower().endswith(ending)]
    return FORMATS[max(endings, key=len)] if endings else None


def _files_below(directory: Path) -> list[Path]:
    return [p for p in sorted(directory.rglob("*")) if p.is_file() and not p.name.startswith((".", "_"))]


def open_file(path: Path) -> TableFile:
    """Open one file of any known format; only its description is read."""
    kind = format_of(path)
    readers: dict[str, Callable[[Path], TableFile]] = {
        "csv": CsvFile,
        "parquet": ParquetFile,
        "arrow": ArrowFile,
        "npz": NpzFile,
    }
    reader = readers.get(kind or "")
    if reader is None:
        raise RequestError(f"{path}: unknown kind of file; it must end in {', '.join(FORMATS)}")
    try:
        table = reader(path)
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as {kind} ({type(error).__name__}): is it complete?") from None
    names = table.schema.names
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{path}: column {', '.join(twice[:5])} appears more than once: give every column its own name")
    return table


class TableFile(ABC):
    """A table on disk that is read batch by batch.

    Attributes
    ----------
    path : Path
    schema : pyarrow.Schema
        Columns and their types; those of a CSV file are guessed from its beginning.
    n_rows : int or None
        None if only reading all of it would tell.
    not_features : set of str
        Columns that are never features, such as labels stored beside the table in an NPZ file.
    """

    path: Path
    schema: pa.Schema
    n_rows: int | None = None
    not_features: frozenset[str] = frozenset()

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield batches with these columns, and the share of the file that has been read.

        Parameters
        ----------
        numbers, texts : sequence of str
            Columns wanted as numbers, and columns wanted as they are (names, ids, categories).
        """
        try:
            yield from self._read(list(numbers), list(texts))
        except (pa.ArrowException, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            if isinstance(error, DataError):
                raise
            # the library's own words may quote a row, so they are not passed on
            raise DataError(f"{self.path} cannot be read to the end ({type(error).__name__}): is it damaged?") from None

    @abstractmethod
    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield batches and the share of the file that was read; each kind of file knows how."""

    def _share(self, done: int) -> float:
        return min(1.0, done / self.n_rows) if self.n_rows else 1.0


def rows_per_batch(n_columns: int) -> int:
    """How many rows of this width are read at a time."""
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // (8 * max(1, n_columns))))


class ParquetFile(TableFile):
    """A Parquet file, decoded page by page: a row group larger than memory is no obstacle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open(1) as file:
            self.schema = file.schema_arrow
            self.n_rows = file.metadata.num_rows

    def _open(self, n_columns: int) -> Any:
        import pyarrow.parquet as pq

        size = min(1 << 20, max(1 << 14, _PARQUET_BUFFERS // max(1, n_columns)))
        # no pre-buffering: it would hold whole row groups
        return pq.ParquetFile(self.path, buffer_size=size, pre_buffer=False)

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        columns, done = [*numbers, *texts], 0
        with self._open(len(columns)) as file:
            for batch in file.iter_batches(rows_per_batch(len(columns)), columns=columns, use_threads=False):
                done += batch.num_rows
                yield batch, self._share(done)


class ArrowFile(TableFile):
    """A Feather (version 2) or Arrow IPC file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            self.schema = file.schema
            self._n_batches = file.num_record_batches
            self.n_rows = self._count(file)

    def _count(self, file: Any) -> int:
        import pyarrow.dataset as ds

        return int(ds.dataset(self.path, format="ipc").count_rows())

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        columns, done = [*numbers, *texts], 0
        wanted = [self.schema.names.index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        size = rows_per_batch(len(columns))
        with pa.memory_map(str(self.path)) as source:
            file = pa.ipc.open_file(source, options=options)
            for number in range(self._n_batches):
                whole = file.get_batch(number)
                for start in range(0, whole.num_rows, size):
                    batch = whole.slice(start, size)
                    done += batch.num_rows
                    yield batch.select(columns), self._share(done)


class NpzFile(TableFile):
    """A NumPy archive: a table ``X``, optionally the names of its ``columns``, and more arrays with one entry per row.

    ``y`` and the other arrays are there for the asking (labels, sites, ids) and are never features.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            shapes = {
                name.removesuffix(".npy"): _npy_header(archive, name)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        if "X" not in shapes:
            raise DataError(f"{path} has no array X: save the table as np.savez(path, X=table, columns=names)")
        shape, dtype, _ = shapes["X"]
        if len(shape) != 2 or dtype.kind not in "biuf":
            raise DataError(f"{path}: X must be a table of numbers with two dimensions; it is {dtype} of shape {shape}")
        self.n_rows = shape[0]
        with np.load(path, allow_pickle=False) as arrays:
            names = next((arrays[name] for name in ("columns", "feature_names") if name in shapes), None)
        self._names = [f"x{i}" for i in range(shape[1])] if names is None else [str(name) for name in names]
        if len(self._names) != shape[1]:
            raise DataError(f"{path}: columns names {len(self._names)} columns, X has {shape[1]}")
        self._others = {
            name: form[1]
            for name, form in shapes.items()
            if name != "X" and name not in self._names and form[0] == shape[:1] and form[1].kind in "biufUS"
        }
        kinds = [pa.float64()] * shape[1] + [pa.from_numpy_dtype(d) for d in self._others.values()]
        self.schema = pa.schema(list(zip([*self._names, *self._others], kinds, strict=True)))
        self.not_features = frozenset(self._others)

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        columns, done = [*numbers, *texts], 0
        places = {name: i for i, name in enumerate(self._names)}
        with np.load(self.path, allow_pickle=False) as arrays:
            others = {name: arrays[name] for name in columns if name in self._others}
        for block in self._blocks():
            rows = slice(done, done + len(block))
            # one turn for all columns: each is then contiguous and Arrow need not copy it
            turned = np.ascontiguousarray(block.T, dtype=np.float64)
            values = [pa.array(others[name][rows] if name in others else turned[places[name]]) for name in columns]
            done += len(block)
            yield pa.RecordBatch.from_arrays(values, columns), self._share(done)

    def _blocks(self) -> Iterator[Any]:
        """Rows of X in order, read from the archive piece by piece unless it was stored column after column."""
        with zipfile.ZipFile(self.path) as archive:
            shape, dtype, by_column = _npy_header(archive, "X.npy")
            size = rows_per_batch(shape[1])
            if by_column:
                with np.load(self.path, allow_pickle=False) as arrays:
                    whole = arrays["X"]
                yield from (whole[start : start + size] for start in range(0, shape[0], size))
                return
            with archive.open("X.npy") as stream:
                _read_npy_header(stream)
                width = shape[1] * dtype.itemsize
                for start in range(0, shape[0], size):
                    n = min(size, shape[0] - start)
                    data = stream.read(n * width)
                    if len(data) != n * width:
                        raise EOFError
                    yield np.frombuffer(data, dtype).reshape(n, shape[1])


def _npy_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    with archive.open(name) as stream:
        return _read_npy_header(stream)


def _read_npy_header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_column, dtype = read(stream)
    return shape, dtype, by_column and len(shape) > 1 and min(shape) > 1


class CsvFile(TableFile):
    """A CSV file with a line of column names; the separator is found from that line."""

    def __init__(self, path: Path) -> None:
        import pyarrow.csv as csv

        self.path = path
        with pa.input_stream(str(path), compression="detect") as stream:
            first = stream.read(_CSV_BLOCK)
        if not first.strip():
            raise DataError(f"{path} is empty: the first line must name the columns")
        line = first.split(b"\n", 1)[0]
        self._separator = max(",;\t|", key=lambda sign: line.count(sign.encode()))
        try:
            with self._open({}, csv) as reader:
                self.schema = reader.schema
            names = self.schema.names
        except UnicodeDecodeError:
            raise DataError(f"{path} is not UTF-8 text: save it as UTF-8") from None
        except pa.ArrowInvalid as error:
            raise self._explained(error) from None
        if len(names) > 1 and all(_is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
            raise DataError(f"{path}: the first line holds numbers, not names: add a line that names the columns")
        if "" in names:
            raise DataError(
                f"{path}: column {names.index('') + 1} has no name (often a row number): name it or leave it out"
            )

    def _open(self, kinds: dict[str, Any], csv: Any, columns: list[str] | None = None, source: Any = None) -> Any:
        self._bad_row: Any = None

        def remember(row: Any) -> str:
            self._bad_row = row
            return "error"

        return csv.open_csv(
            str(self.path) if source is None else source,
            # without threads, blocks are read one at a time and errors know their line
            read_options=csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=self._separator, invalid_row_handler=remember),
            convert_options=csv.ConvertOptions(column_types=kinds, include_columns=columns),
        )

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        import pyarrow.csv as csv

        kinds = {name: pa.string() for name in texts}
        for name in numbers:
            kind = self.schema.field(name).type
            # what looks like whole numbers at the beginning may have decimals further down
            kinds[name] = pa.float64() if is_numeric(kind) and not pa.types.is_boolean(kind) else kind
        size = max(1, self.path.stat().st_size)
        with pa.OSFile(str(self.path)) as raw:
            packed = self.path.name.lower().endswith(".gz")
            source = pa.CompressedInputStream(raw, "gzip") if packed else raw
            try:
                for batch in self._open(kinds, csv, [*numbers, *texts], source):
                    if batch.num_rows:
                        yield _empty_as_missing(batch, texts), min(1.0, raw.tell() / size)
            except pa.ArrowInvalid as error:
                raise self._explained(error, numbers) from None

    def _explained(self, error: Exception, numbers: Sequence[str] = ()) -> DataError:
        """Say what is wrong with a CSV file; the library's message quotes the row, so only its numbers are used."""
        if self._bad_row is not None:
            row, where = self._bad_row, f" in line {self._bad_row.number}" if self._bad_row.number else ""
            return DataError(
                f"{self.path}: a row{where} has {row.actual_columns} cells, the first line names "
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
        return DataError(f"{self.path} cannot be read as CSV: does every row have the cells the first line names?")

    def _count_texts(self, numbers: Sequence[str]) -> dict[str, int]:
        """Count, per column, the cells that are no numbers."""
        import pyarrow.csv as csv

        blank = set(csv.ConvertOptions().null_values)
        counts: dict[str, int] = {}
        for batch in self._open({name: pa.string() for name in numbers}, csv, list(numbers)):
            for name in numbers:
                odd = sum(text not in blank and not _is_number(text) for text in batch.column(name).to_pylist())
                if odd:
                    counts[name] = counts.get(name, 0) + odd
        return counts


def _empty_as_missing(batch: pa.RecordBatch, texts: Sequence[str]) -> pa.RecordBatch:
    """Make empty cells of text columns missing; a site or category may well be called NA."""
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
