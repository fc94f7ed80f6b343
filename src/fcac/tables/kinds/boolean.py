"""``kind = "boolean"``: yes or no, as one feature."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._typing import Floats
from fcac.tables.kind import ROOM, Encoded, Kind, as_text, refuse, spread_of

if TYPE_CHECKING:
    from fcac.tables.column import Column

_YES, _NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


class Boolean(Kind):
    """True and false, 1 and 0, yes and no, or the words given as `yes` and `no`; anything else is a gap."""

    keys = ("scaling", "yes", "no", "fill")
    reads = "text"
    block = "category"
    room = ROOM

    def check(self, column: Column) -> None:
        if column.missing == "fill" and column.fill not in (0.0, 1.0):
            raise refuse(column, 'missing = "fill" needs fill, which is 0 or 1 for a boolean')
        if (column.yes is None) != (column.no is None):
            raise refuse(column, 'give both yes and no, as in yes = ["ja"], no = ["nein"]')
        if column.yes is not None and set(column.yes) & set(column.no or ()):
            raise refuse(column, "a word means both yes and no")

    def feature_names(self, column: Column) -> list[str]:
        return [column.name]

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        return [(0.0, spread_of(column) * math.sqrt(12.0))]

    def encode(self, column: Column, values: Any) -> Encoded:
        import pyarrow as pa
        import pyarrow.compute as pc

        text = as_text(column, values, "yes and no")
        yes, no = _YES if column.yes is None else column.yes, _NO if column.no is None else column.no
        if column.yes is None:
            text = pc.utf8_lower(pc.utf8_trim_whitespace(text))
        answers = pa.array([*yes, *no])
        place = pc.index_in(text, value_set=answers).cast(pa.float64())
        found = np.asarray(place.to_numpy(zero_copy_only=False))
        answer = np.where(np.isnan(found), np.nan, found < len(yes))
        unknown = int(np.isnan(answer).sum()) - text.null_count
        if column.missing == "fill":
            answer = np.where(np.isnan(answer), column.fill, answer)  # type: ignore[arg-type]
        return Encoded((answer * self._height(column))[None, :], unknown)

    def decode(self, column: Column, features: Floats) -> Floats:
        return features / self._height(column)

    def _height(self, column: Column) -> float:
        # yes and no in equal parts then have the spread of a number
        return 2.0 * spread_of(column)
