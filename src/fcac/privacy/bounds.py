"""Public bounds: what anybody may know about the range of each feature without seeing a single record."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._typing import Floats


def check_bounds(bounds: Any) -> Floats:
    """Return bounds as an array of (low, high) rows, or raise an error that says what is wrong.

    They may also be an object with an attribute ``bounds``. They must be public knowledge, for example from a data
    dictionary: bounds computed from the records reveal information about the records.

    >>> check_bounds([[0, 16], [0, 16]]).shape
    (2, 2)
    """
    if bounds is None:
        raise ValueError(
            "bounds are missing: give the public (low, high) of every feature as an array of shape (d, 2), or a schema"
        )
    given = getattr(bounds, "bounds", bounds)
    if given is None:
        raise ValueError("the schema has no bounds: add min and max to every feature in it")
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("bounds must be numbers in an array of shape (d, 2)") from None
    if array.ndim != 2 or array.shape[1] != 2 or array.shape[0] == 0:
        raise ValueError(f"bounds must have shape (d, 2), one (low, high) per feature, got {array.shape}")
    with np.errstate(over="ignore"):
        width = array[:, 1] - array[:, 0]
    for problem, found in (
        ("not finite", ~np.isfinite(array).all(axis=1) | ~np.isfinite(width)),
        ("inverted (low above high)", width < 0),
        ("of zero width", width == 0),
    ):
        if found.any():
            where = ", ".join(str(int(i)) for i in np.flatnonzero(found)[:5])
            raise ValueError(f"bounds of feature {where} are {problem}: give low < high, both finite")
    array.setflags(write=False)
    return array


def check_rows(X: Any, n_features: int, *, gaps: bool = False) -> Floats:
    """Return rows as a float array, or raise an error that says what is wrong; an empty batch is allowed.

    With `gaps`, NaN is a gap and allowed.
    """
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("X must be numeric rows of shape (n, d)") from None
    if rows.ndim != 2:
        raise ValueError(f"X must have shape (n, d), got {rows.ndim} dimension(s); reshape one record to (1, d)")
    if rows.shape[1] != n_features:
        raise ValueError(f"X has {rows.shape[1]} features, but bounds describe {n_features}: they must agree")
    if not (np.isfinite(rows) | (np.isnan(rows) & gaps)).all():
        column = int(np.flatnonzero(~np.isfinite(rows).all(axis=0))[0])
        raise ValueError(f"X has NaN or infinite values (first in feature {column}): fill or drop them first")
    return rows


def to_unit(rows: Floats, bounds: Floats) -> Floats:
    """Map rows into [0, 1] by the public bounds; values outside are clipped.

    Every value is handled separately, in correctly rounded operations, so that the result for one record cannot
    depend on the other records of the batch. A gap (NaN) stays one.
    """
    low, high = bounds[:, 0], bounds[:, 1]
    inside = np.clip(rows, low, high)
    return np.clip((inside - low) / (high - low), 0.0, 1.0)


def from_unit(points: Floats, bounds: Floats) -> Floats:
    """Map points in [0, 1] back to the units of the bounds."""
    low, high = bounds[:, 0], bounds[:, 1]
    result: Floats = low + points * (high - low)
    return result
