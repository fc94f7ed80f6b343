"""Columns by name: tables brought into one order, and the column that names the site of each row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._rows import column_names, is_arrow, is_missing


def in_order(X: Any, names: Sequence[str] | None, what: str = "") -> Any:
    """Return a table with its columns in the order of `names`; arrays have no names and stay as they are.

    A name that is missing, unknown or there twice is a ValueError, which says in what ("site b").
    """
    own = column_names(X)
    if own is None or names is None or own == list(names):
        return X
    missing, unseen = sorted(set(names) - set(own)), sorted(set(own) - set(names))
    twice = sorted({name for name in own if own.count(name) > 1})
    if missing or unseen or twice or len(own) != len(names):
        # the words of scikit-learn, which other programs look for
        message = "The feature names should match those that were passed during fit.\n"
        for heading, some in (
            ("Feature names unseen at fit time", unseen),
            ("Feature names seen at fit time, yet now missing", missing),
            ("Feature names that are there twice", twice),
        ):
            if some:
                message += f"{heading}:\n" + "".join(f"- {name}\n" for name in some[:5])
                message += "- ...\n" if len(some) > 5 else ""
        raise ValueError(f"{what}: {message}" if what else message)
    return X.select(list(names)) if is_arrow(X) else X[list(names)]


def take_site_column(X: Any, column: str) -> tuple[Any, NDArray[Any]]:
    """Return a table without the column that names the site of each row, and that column."""
    names = column_names(X)
    if names is None:
        raise ValueError(
            f"groups={column!r} names a column, but X has no column names: pass the site of each row instead"
        )
    if column not in names:
        listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"groups: X has no column {column!r}; its columns are {listed}")
    if names.count(column) > 1:
        raise ValueError(f"groups: X has several columns named {column!r}: give each a name of its own")
    values = _arrow_values(X.column(column)) if is_arrow(X) else np.asarray(X[column])
    gap = values.dtype.kind == "f" and np.isnan(values).any()
    if gap or (values.dtype.kind == "O" and any(is_missing(value) for value in values)):
        raise ValueError(
            f"groups: column {column!r} has missing values: every row must belong to a site; "
            "drop those rows or name their site"
        )
    return without_column(X, column), values


def without_column(X: Any, column: str | None) -> Any:
    """Return a table without a column, if it is there."""
    names = None if column is None else column_names(X)
    if names is None or column not in names:
        return X
    return X.select([name for name in names if name != column]) if is_arrow(X) else X.drop(columns=column)


def _arrow_values(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    return np.array(column.to_pylist(), dtype=object)


def warn_of_names(estimator: Any, own: Sequence[str] | None) -> None:
    """Warn, as scikit-learn does, if only one of the model and a table has column names: nothing can be matched."""
    known, name = getattr(estimator, "feature_names_in_", None), type(estimator).__name__
    if own is not None and known is None:
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", UserWarning, stacklevel=3)
    if own is None and known is not None:
        warnings.warn(
            f"X does not have valid feature names, but {name} was fitted with feature names", UserWarning, stacklevel=3
        )
