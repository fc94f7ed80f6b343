"""Labels batches of rows with any kind of model, and writes the labels batch by batch."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fcac.cli.terminal import BadUse
from fcac.codebook import Codebook
from fcac.tables import Batch, DataError, Tables

_ENDINGS = (".parquet", ".pq", ".feather", ".arrow", ".csv")


class Labeller:
    """Returns labels, distances and novelty for a block of rows; `alpha` is a rate of false alarms."""

    def __init__(self, model: Any, tables: Tables, alpha: float | None = None) -> None:
        self._model = model
        self._options: dict[str, float] = {}
        if alpha is not None:
            if not 0 < alpha < 1:
                raise BadUse(f"--alpha {alpha:g}: a rate of false alarms lies between 0 and 1")
            if not hasattr(model, "novelty_reach") and not isinstance(model, Codebook):
                raise BadUse(f"--alpha: a {type(model).__name__} knows no rate of false alarms; leave it out")
            self._options["alpha"] = alpha
        expected = model.n_features if isinstance(model, Codebook) else model.n_features_in_
        if tables.n_features != expected:
            raise DataError(f"the data have {tables.n_features} features, but the model has {expected}")

    def __call__(self, block: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        if not len(block):
            return np.empty(0, np.int64), np.empty(0), np.empty(0, bool)
        with warnings.catch_warnings():
            # names were checked when the tables were opened
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            label, distance, novel = self._model.label_rows(block, **self._options)
        return label, distance, novel

    def label_all(self, batches: Iterable[Batch], writer: LabelWriter) -> None:
        """Label rows batch by batch, and write the labels."""
        for batch in batches:
            writer.write(batch, *self(batch.block))


class LabelWriter:
    """Writes labels and kept columns batch by batch; the file, whose ending says its format, appears when whole."""

    def __init__(self, path: Path, keep: list[str], tables: Tables) -> None:
        if path.suffix.lower() not in _ENDINGS:
            raise BadUse(f"--out {path.name} must end in {', '.join(_ENDINGS)}")
        clash = [name for name in keep if name in ("site", "label", "distance", "novel")]
        if clash:
            raise BadUse(f"--keep {clash[0]}: the output already has a column of this name")
        self._path, self._keep = path, keep
        self._with_site = tables.has_sites
        self._writer: Any = None
        self._clusters: set[int] = set()
        self.n_rows = 0
        self.n_novel = 0

    @property
    def n_clusters(self) -> int:
        """Number of different labels written."""
        return len(self._clusters)

    def __enter__(self) -> Self:
        handle, self._temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.", suffix=".part")
        self._sink = os.fdopen(handle, "wb")
        return self

    def write(
        self, batch: Batch, label: NDArray[np.int64], distance: NDArray[np.float64], novel: NDArray[np.bool_]
    ) -> None:
        """Write one line per row read; rows that were dropped get empty cells."""
        columns: dict[str, pa.Array] = {}
        n = batch.table.num_rows
        if self._with_site:
            sites = np.empty(len(batch.block), object)
            for site, rows in batch.sites:
                sites[slice(None) if rows is None else rows] = str(site)
            columns["site"] = _spread(sites, batch.kept, n, pa.string())
        for name in self._keep:
            columns[name] = batch.table.column(batch.table.schema.names.index(name))
        columns["label"] = _spread(label, batch.kept, n, pa.int64())
        columns["distance"] = _spread(distance, batch.kept, n, pa.float64())
        columns["novel"] = _spread(novel, batch.kept, n, pa.bool_())
        table = pa.RecordBatch.from_pydict(columns)
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_batch(table)
        self.n_rows += n
        self.n_novel += int(novel.sum())
        self._clusters.update(np.unique(label).tolist())

    def _open(self, schema: pa.Schema) -> Any:
        ending = self._path.suffix.lower()
        if ending == ".csv":
            import pyarrow.csv as csv

            return csv.CSVWriter(self._sink, schema)
        if ending in (".feather", ".arrow"):
            return pa.ipc.new_file(self._sink, schema)
        import pyarrow.parquet as pq

        return pq.ParquetWriter(self._sink, schema)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            if error is None:
                self._sink.flush()
                os.fsync(self._sink.fileno())
                mask = os.umask(0o077)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)
                os.replace(self._temporary, self._path)
        finally:
            self._sink.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)


def _spread(values: Any, kept: NDArray[np.bool_] | None, n: int, kind: pa.DataType) -> pa.Array:
    """Put the values of the kept rows in their positions among all n rows; the others are empty."""
    if kept is None:
        return pa.array(values, type=kind)
    places = np.full(n, -1, np.int64)
    places[kept] = np.arange(len(values))
    return pa.array(values, type=kind).take(pa.array(places, mask=places < 0))
