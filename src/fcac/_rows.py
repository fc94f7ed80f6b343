"""Reads NumPy arrays, memory maps, pandas frames and Arrow tables as float64 blocks, never copying the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils import check_array

from fcac._typing import Floats

# Squares of larger values overflow; no measurement is that large.
_LARGEST = 1e150

# A block has at most this many bytes as float64, whatever the number of features.
_BLOCK_BYTES = 8_000_000


class Rows:
    """A table of numbers that can be read block by block.

    The constructor checks the shape of the table (two-dimensional, numeric, not sparse) and every value; the errors are
    those of scikit-learn. Blocks are views where the data are C-contiguous float64 already.

    Parameters
    ----------
    X : array-like, DataFrame, Arrow table or memory map
    estimator : object or str
        Its name appears in error messages.
    allow_empty : bool
        Accept zero rows (a site may have nothing new).
    """

    def __init__(self, X: Any, estimator: Any = None, *, allow_empty: bool = False) -> None:
        if is_arrow(X):
            X = as_arrow_table(X)
            self._slice = _slice_arrow
            self.n_rows, self.n_features = X.num_rows, X.num_columns
        elif hasattr(X, "iloc") and hasattr(X, "dtypes") and hasattr(X, "columns"):
            self._slice = _slice_frame
            self.n_rows, self.n_features = X.shape
        else:
            X = X if isinstance(X, np.ndarray) or hasattr(X, "tocsr") else _as_array(X)
            self._slice = _slice_array
            shape: tuple[int, ...] = getattr(X, "shape", ())
            # check_array, called below, explains a wrong number of dimensions in terms that users know
            self.n_rows, self.n_features = (shape[0], shape[1]) if len(shape) == 2 else (1, 1)
        self._X = X
        self._estimator = estimator
        self._min_rows = 0 if allow_empty else 1
        self.n_block = max(1, _BLOCK_BYTES // (8 * max(self.n_features, 1)))
        starts = range(0, max(self.n_rows, 1), self.n_block)
        # a single block is kept, so that small tables are converted once
        self._only = self._checked(0) if len(starts) == 1 else None
        for start in starts if self._only is None else ():
            self._checked(start)

    def blocks(self) -> Iterator[Floats]:
        """Yield the rows in order as C-contiguous float64 arrays."""
        if self._only is not None:
            yield self._only
            return
        for start in range(0, self.n_rows, self.n_block):
            yield self._checked(start)

    def _checked(self, start: int) -> Floats:
        block = check_array(
            self._slice(self._X, start, start + self.n_block),
            dtype="numeric",
            order="C",
            estimator=self._estimator,
            ensure_min_samples=self._min_rows,
            input_name="X",
        )
        if block.dtype.kind not in "biuf":
            raise ValueError(f"X has values of type {block.dtype}, which are not numbers: convert or drop them")
        # booleans and float16 become float64 here; the kernels are compiled for writable arrays, so a read-only memory
        # map costs a copied block instead of a second compilation
        floats: Floats = np.require(block, np.float64, ("C", "W"))
        # also false for NaN, which check_array accepts if scikit-learn is configured to assume finite numbers
        if floats.size and not (floats.max() <= _LARGEST and floats.min() >= -_LARGEST):
            raise ValueError(
                f"Input X contains NaN, infinity or a value beyond {_LARGEST:g}, whose square overflows float64."
            )
        return floats


def is_arrow(X: Any) -> bool:
    """Whether X comes from pyarrow; pyarrow need not be imported to find out."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def _as_array(X: Any) -> Any:
    if hasattr(X, "__array__") or isinstance(X, list | tuple):
        return np.asarray(X)
    return X


def as_arrow_table(X: Any) -> Any:
    """Return a table or a record batch as a table; refuse columns that are not numeric."""
    import pyarrow as pa

    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if not isinstance(X, pa.Table):
        raise ValueError(f"X is a pyarrow {type(X).__name__}; pass a pyarrow Table or RecordBatch")
    wrong = [
        name
        for name, kind in zip(X.column_names, X.schema.types, strict=True)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
    ]
    if wrong:
        raise ValueError(f"columns {', '.join(wrong)} are not numeric: select numeric columns, or encode these first")
    return X


def _slice_array(X: Any, start: int, stop: int) -> Any:
    if getattr(X, "ndim", 0) != 2 or hasattr(X, "tocsr"):
        return X  # the check that follows reports what is wrong with it
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X[start:stop].astype(np.float64), np.nan)  # masked values count as missing
    return X[start:stop]


def _slice_frame(X: Any, start: int, stop: int) -> Any:
    return X.iloc[start:stop]


def _slice_arrow(X: Any, start: int, stop: int) -> Any:
    part = X.slice(start, stop - start)
    block = np.empty((part.num_rows, part.num_columns))
    for j, column in enumerate(part.columns):
        block[:, j] = column.to_numpy()  # nulls become NaN, which the check that follows refuses
    return block
