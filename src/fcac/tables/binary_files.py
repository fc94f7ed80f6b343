"""Parquet, Feather and NumPy files as tables that are read batch by batch."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fcac.exceptions import DataError
from fcac.tables.table_file import TableFile, rows_per_batch

# All columns of a Parquet file are read side by side, each through its own buffer; this is their total size.
_PARQUET_BUFFERS = 32 << 20


class ParquetFile(TableFile):
    """A Parquet file, decoded page by page, so that row groups may be larger than memory."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open(1) as file:
            self.schema = file.schema_arrow
            self.n_rows = file.metadata.num_rows

    def _open(self, n_columns: int) -> Any:
        import pyarrow.parquet as pq

        size = min(1 << 20, max(1 << 14, _PARQUET_BUFFERS // max(1, n_columns)))
        # no pre-buffering: it would keep whole row groups in memory
        return pq.ParquetFile(self.path, buffer_size=size, pre_buffer=False)

    def _read(self, numbers: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, float]]:
        columns, done = [*numbers, *texts], 0
        with self._open(len(columns)) as file:
            for batch in file.iter_batches(rows_per_batch(len(columns)), columns=columns, use_threads=False):
                done += batch.num_rows
                yield batch, self._share(done)


class ArrowFile(TableFile):
    """A Feather (version 2) or Arrow IPC file, mapped into memory."""

    path: Path

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

    ``y`` and the other arrays can be requested by name (labels, sites, ids) and are never features.
    """

    path: Path

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
            raise DataError(f"{path}: the array columns names {len(self._names)} columns, but X has {shape[1]}")
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
            # transposed once for all columns: each is then contiguous, and Arrow need not copy it
            turned = np.ascontiguousarray(block.T, dtype=np.float64)
            values = [pa.array(others[name][rows] if name in others else turned[places[name]]) for name in columns]
            done += len(block)
            yield pa.RecordBatch.from_arrays(values, columns), self._share(done)

    def _blocks(self) -> Iterator[Any]:
        """Yield the rows of X in order, read from the archive block by block unless X is stored in column order."""
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
