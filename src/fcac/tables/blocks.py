"""Blocks: which features belong to one column of a table, and how much the column counts."""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """The features of one column of a table: how many they are, what they are, and how much the column counts.

    "numbers" are several that together count as one column; "category" means levels: of a category, a boolean or an
    ordinal, or months and weekdays. The weight is a factor of squared distances.
    """

    width: int
    kind: str
    weight: float = 1.0
