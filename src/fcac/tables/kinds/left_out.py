"""Columns that a schema may name but that never become a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fcac.tables.kind import Encoded, Kind, whole_array

if TYPE_CHECKING:
    from fcac.tables.column import Column


class Ignore(Kind):
    """Left out. A column that a schema does not list is left out too; this says that somebody meant it."""

    reads = "nothing"

    def feature_names(self, column: Column) -> list[str]:
        return []

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        return []

    def encode(self, column: Column, values: Any) -> Encoded:
        return Encoded(np.empty((0, len(whole_array(values)))))


class Id(Ignore):
    """The id of a record, such as a patient's number. It never becomes a feature."""
