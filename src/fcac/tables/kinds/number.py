"""``kind = "number"``: one feature, scaled by public constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._typing import Floats
from fcac.tables.kind import Encoded, Kind, as_numbers, refuse

if TYPE_CHECKING:
    from fcac.tables.column import Column


class Number(Kind):
    """Numbers as they are, or scaled: range (min..max to 0..1), standard ((x - center) / spread) or log."""

    keys = ("min", "max", "scaling", "center", "spread", "fill", "clip", "unit")

    def check(self, column: Column) -> None:
        check_scaling(column)

    def feature_names(self, column: Column) -> list[str]:
        return [column.name]

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        if column.min is None or column.max is None:
            return None
        low, high = scaled(column, np.array([column.min, column.max], dtype=np.float64))
        return [(float(low), float(high))]

    def encode(self, column: Column, values: Any) -> Encoded:
        return Encoded(prepared(column, as_numbers(column, values, "numbers"))[None, :])

    def decode(self, column: Column, features: Floats) -> Floats:
        return unscaled(column, features)


def check_scaling(column: Column) -> None:
    """Check bounds, scaling and clipping of a column whose values are numbers."""
    low, high = column.min, column.max
    if low is not None and high is not None and not low < high:
        raise refuse(column, "min must be below max")
    if column.scaling == "range" and (low is None or high is None):
        raise refuse(column, 'scaling = "range" needs min and max')
    if column.scaling == "standard" and (column.center is None or column.spread is None or column.spread <= 0):
        raise refuse(column, 'scaling = "standard" needs the public constants center and spread (above 0)')
    if column.scaling == "log" and low is not None and low <= 0:
        raise refuse(column, 'scaling = "log" needs a min above 0: the logarithm of other numbers does not exist')
    if column.clip and low is None and high is None:
        raise refuse(column, "clip = true needs min or max, to which values are clipped")
    if column.missing == "fill" and column.fill is None:
        raise refuse(column, 'missing = "fill" needs fill, the public constant to use instead')


def prepared(column: Column, values: Floats) -> Floats:
    """Return numbers clipped, filled and scaled, as the column says; missing and infinite ones become NaN."""
    gone = ~np.isfinite(values)
    if gone.any():
        values = np.where(gone, np.nan if column.missing != "fill" else column.fill, values)  # type: ignore[arg-type]
    if column.clip:
        values = np.clip(values, column.min, column.max)
    return scaled(column, values)


def scaled(column: Column, values: Floats) -> Floats:
    """Return values in the units used for clustering."""
    if column.scaling == "range":
        return (values - column.min) / (column.max - column.min)  # type: ignore[operator]
    if column.scaling == "standard":
        return (values - column.center) / column.spread  # type: ignore[operator]
    if column.scaling == "log":
        if column.min is not None:
            values = np.maximum(values, column.min)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs: Floats = np.log(values)
        # without a public min, a number that has no logarithm is a gap
        return np.where(np.isfinite(logs), logs, np.nan)
    return values


def unscaled(column: Column, values: Floats) -> Floats:
    """Return values in the units of the table: the inverse of :func:`scaled`."""
    if column.scaling == "range":
        return column.min + values * (column.max - column.min)  # type: ignore[operator]
    if column.scaling == "standard":
        return column.center + values * column.spread  # type: ignore[operator]
    return np.exp(values) if column.scaling == "log" else values
