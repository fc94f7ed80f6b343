"""Blocks: which features belong to one column of a table, and how much the column counts."""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """The features of one column of a table.

    Attributes
    ----------
    width : int
        Number of its features.
    kind : {"number", "numbers", "category"}
        One number, several numbers that together count as one column, or levels: of a category, a boolean or an
        ordinal, or months and weekdays.
    weight : float
        How much the column counts beside others, in squared distances.
    """

    width: int
    kind: str
    weight: float = 1.0
