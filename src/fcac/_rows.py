"""Reads arrays, memory maps, data frames and Arrow tables as float64 blocks, never copying the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils import check_array

from fcac._typing import Floats

# Squares of larger values overflow; no measurement is that large.
_LARGEST = 1e150

# What a table of mixed columns needs, for the end of a message.
_MEANING = "FCAC().fit(X), which tells what columns mean; under privacy it needs a schema with public bounds"

# A block has at most this many bytes as float64, whatever the number of features.
_BLOCK_BYTES = 8_000_000


class Rows:
    """A table of numbers that can be read block by block.

    The constructor checks the shape of the table (two-dimensional, numeric) and every value; the errors are those of
    scikit-learn, but name the column and `estimator`. Blocks are views where the data are C-contiguous float64 already.
    Zero rows, gaps (NaN) and sparse matrices, of which one block at a time is dense, are errors unless allowed.
    """

    def __init__(
        self,
        X: Any,
        estimator: Any = None,
        *,
        allow_empty: bool = False,
        allow_gaps: bool = False,
        allow_sparse: bool = False,
    ) -> None:
        self._gaps = allow_gaps
        X = arrow_if_polars(X)
        if is_arrow(X):
            X = as_arrow_table(X)
            self._slice = _slice_arrow
            self.n_rows, self.n_features = X.num_rows, X.num_columns
        elif allow_sparse and is_sparse(X):
            X = X.tocsr()
            self._slice = _slice_sparse
            self.n_rows, self.n_features = X.shape
        elif is_frame(X):
            refuse_wrong_columns(X)
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
        part = self._slice(self._X, start, start + self.n_block)
        try:
            block = check_array(
                part,
                dtype="numeric",
                order="C",
                estimator=self._estimator,
                ensure_all_finite="allow-nan" if self._gaps else True,
                ensure_min_samples=self._min_rows,
                input_name="X",
            )
        except ValueError as error:
            if "contains NaN" in str(error) or "contains infinity" in str(error):
                raise ValueError(_what_is_missing(part, self._names())) from None
            raise
        if block.dtype.kind not in "biuf":
            raise ValueError(f"X has values of type {block.dtype}, which are not numbers: convert or drop them")
        # booleans and float16 become float64 here; the kernels are compiled for writable arrays, so a read-only memory
        # map costs a copied block instead of a second compilation
        floats: Floats = np.require(block, np.float64, ("C", "W"))
        # also false for NaN, which check_array accepts if scikit-learn is configured to assume finite numbers
        if floats.size and not (floats.max() <= _LARGEST and floats.min() >= -_LARGEST):
            if self._gaps and (np.isnan(floats) | (np.abs(floats) <= _LARGEST)).all():
                return floats
            raise ValueError(
                f"Input X contains NaN, infinity or a value beyond {_LARGEST:g}, whose square overflows float64."
            )
        return floats

    def _names(self) -> list[str] | None:
        return self._X.column_names if is_arrow(self._X) else column_names(self._X)


def is_frame(X: Any) -> bool:
    """Whether X is a pandas frame, or anything that can be used as one."""
    return hasattr(X, "iloc") and hasattr(X, "dtypes") and hasattr(X, "columns")


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix of SciPy, of any format."""
    return hasattr(X, "tocsr") and getattr(X, "ndim", 0) == 2


def arrow_if_polars(X: Any) -> Any:
    """Return a polars frame as an Arrow table, which shares its memory; anything else as it is."""
    if type(X).__module__.partition(".")[0] == "polars" and hasattr(X, "to_arrow"):
        return X.to_arrow()
    return X


def column_names(X: Any) -> list[str] | None:
    """Return the names of a table's columns; None for arrays and for frames whose columns are numbered."""
    if is_arrow(X):
        return list(X.schema.names) if hasattr(X, "schema") else None
    if not is_frame(X):
        return None
    names = list(X.columns)
    if not any(isinstance(name, str) for name in names):
        return None
    if not all(isinstance(name, str) for name in names):
        raise TypeError(
            "X: some column names are text and others are not: make them all text first, "
            "X.columns = X.columns.astype(str)"
        )
    return names


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
    kinds = pa.types
    wrong: dict[str, list[str]] = {}
    for name, kind in zip(X.column_names, X.schema.types, strict=True):
        if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind):
            continue
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        if kinds.is_temporal(kind):
            wrong.setdefault("dates or times", []).append(name)
        elif kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
            wrong.setdefault("text", []).append(name)
        else:
            wrong.setdefault(f"values of type {kind}", []).append(name)
    if wrong:
        raise ValueError(_how_to_mend(wrong, "X.drop_columns({})"))
    return X


def refuse_wrong_columns(X: Any) -> None:
    """Raise an error that names the columns of a frame which are not numbers, and never quotes a value."""
    wrong: dict[str, list[str]] = {}
    for at, (name, dtype) in enumerate(X.dtypes.items()):
        kind = getattr(dtype, "kind", "O")
        if kind in "mM":
            wrong.setdefault("dates or times", []).append(name)
        elif kind in "OUST":
            column = X.iloc[:, at]
            try:
                np.asarray(column, dtype=np.float64)  # numbers kept as objects are numbers
            except (ValueError, TypeError):
                wrong.setdefault(_held_by(column), []).append(name)
    if wrong:
        raise ValueError(_how_to_mend(wrong, "X.drop(columns={})"))


def _held_by(column: Any) -> str:
    first = next((value for value in column if not is_missing(value)), None)
    if isinstance(first, str):
        return "text"
    if hasattr(first, "isoformat"):
        return "dates or times"
    return f"values of type {type(first).__name__}"


def is_missing(value: Any) -> bool:
    """Whether a value in a column of objects is None, NaN or one of pandas' missing values."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def _how_to_mend(wrong: dict[str, list[str]], drop: str) -> str:
    said = [f"{_columns(names)} {'holds' if len(names) == 1 else 'hold'} {what}" for what, names in wrong.items()]
    everything = [name for names in wrong.values() for name in names]
    message = f"X: {'; '.join(said)}, which is not numeric. Leave it out, {drop.format(everything)}"
    if "text" in wrong:
        message += ", turn text into numbers first, for instance with sklearn.preprocessing.OneHotEncoder"
    if "dates or times" in wrong:
        message += ", turn dates into a number of days since a fixed day first"
    return f"{message}, or use {_MEANING}"


def _columns(names: list[Any], most: int = 10) -> str:
    listed = ", ".join(repr(name) for name in names[:most]) + (", ..." if len(names) > most else "")
    return f"column {listed}" if len(names) == 1 else f"columns {listed}"


def _what_is_missing(part: Any, names: list[str] | None) -> str:
    """Say which columns of a part of a table hold NaN or infinity, and what can be done about it."""
    table = part.to_numpy(dtype=np.float64, na_value=np.nan) if is_frame(part) else np.asarray(part, dtype=np.float64)
    gaps, far = np.isnan(table).any(axis=0), np.isinf(table).any(axis=0)
    known: list[Any] = list(range(table.shape[1])) if names is None else names
    counted = "" if names is not None else " (counted from 0)"
    if gaps.any():
        which = _columns([known[j] for j in np.flatnonzero(gaps)])
        return (
            f"Input X contains NaN: {which}{counted} {'has' if gaps.sum() == 1 else 'have'} missing values. "
            "Drop those rows or columns, or fill the gaps, for instance with sklearn.impute.SimpleImputer"
            + ("." if names is None else f", or use {_MEANING}")
        )
    which = _columns([known[j] for j in np.flatnonzero(far)])
    return (
        f"Input X contains infinity: {which}{counted} {'has' if far.sum() == 1 else 'have'} infinite values. "
        "Drop those rows, or cap them at the largest value that can be."
    )


def _slice_array(X: Any, start: int, stop: int) -> Any:
    if getattr(X, "ndim", 0) != 2 or hasattr(X, "tocsr"):
        return X  # the check that follows reports what is wrong with it
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X[start:stop].astype(np.float64), np.nan)  # masked values count as missing
    return X[start:stop]


def _slice_sparse(X: Any, start: int, stop: int) -> Any:
    return X[start:stop].toarray()


def _slice_frame(X: Any, start: int, stop: int) -> Any:
    return X.iloc[start:stop]


def _slice_arrow(X: Any, start: int, stop: int) -> Any:
    part = X.slice(start, stop - start)
    block = np.empty((part.num_rows, part.num_columns))
    for j, column in enumerate(part.columns):
        block[:, j] = column.to_numpy()  # nulls become NaN, which the check that follows refuses
    return block
