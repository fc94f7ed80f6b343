"""``kind = "ordinal"``: levels with a public order, in equal steps from 0 to 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._typing import Floats
from fcac.tables.gap_words import GAP_WORDS
from fcac.tables.kind import ROOM, Encoded, Kind, as_text, refuse, spread_of

if TYPE_CHECKING:
    from fcac.tables.column import Column


class Ordinal(Kind):
    """One feature: the position of a level in the order. A level that is not in it is a gap."""

    keys = ("order", "scaling", "fill")
    reads = "text"
    block = "category"
    room = ROOM

    def check(self, column: Column) -> None:
        order = column.order
        if order is None or len(order) < 2:
            raise refuse(column, 'an ordinal column needs its levels in order, as in order = ["low", "high"]')
        if column.missing == "fill" and (
            column.fill is None or not 0 <= column.fill < len(order) or column.fill != int(column.fill)
        ):
            raise refuse(column, f'missing = "fill" needs fill, a position in the order from 0 to {len(order) - 1}')

    def feature_names(self, column: Column) -> list[str]:
        return [column.name]

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        return [(0.0, self._step(column) * (len(column.order or ()) - 1))]

    def encode(self, column: Column, values: Any) -> Encoded:
        import pyarrow as pa
        import pyarrow.compute as pc

        text = as_text(column, values, "levels", GAP_WORDS - frozenset(column.order or ()))
        found = pc.index_in(text, value_set=pa.array(column.order))
        place = np.asarray(found.cast(pa.float64()).to_numpy(zero_copy_only=False))
        unknown = int(np.isnan(place).sum()) - text.null_count
        if column.missing == "fill":
            place = np.where(np.isnan(place), column.fill, place)  # type: ignore[arg-type]
        return Encoded((place * self._step(column))[None, :], unknown)

    def decode(self, column: Column, features: Floats) -> Floats:
        return features / self._step(column)

    def _step(self, column: Column) -> float:
        return spread_of(column) * math.sqrt(12.0) / (len(column.order or "ab") - 1)
