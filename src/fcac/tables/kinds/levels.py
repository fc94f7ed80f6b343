"""Columns of levels: yes or no, levels without order, and levels with a public order."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._typing import Floats
from fcac.tables.kind import ROOM, Encoded, Kind, as_text, refuse, spread_of
from fcac.tables.read_options import ALWAYS, GAP_WORDS

if TYPE_CHECKING:
    from fcac.tables.column import Column

YES, NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")

#: Features of a category whose levels are not listed.
CODE_FEATURES = 16
_MOST_FEATURES = 64


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
        yes, no = YES if column.yes is None else column.yes, NO if column.no is None else column.no
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


class Category(Kind):
    """One feature for every listed level, or a public code of a few features where levels are not listed.

    Levels are equally far from each other, and so far that the column counts as much as a number of the same scaling.
    A level that is not listed is "other": no level at all, nearer to each of them than they are to one another.
    Without a list every level has a code of plus and minus signs made from a hash of its name, the same at all sites:
    nothing about the data has to be known (feature hashing; Weinberger et al., ICML 2009).
    """

    keys = ("categories", "scaling", "prefix", "groups", "features")
    reads = "text"
    block = "category"
    room = ROOM

    def check(self, column: Column) -> None:
        if column.missing == "fill":
            raise refuse(column, 'missing = "fill" is for numbers; use "native", "error" or "drop" with categories')
        if column.prefix is not None and column.groups is not None:
            raise refuse(column, "give prefix or groups, not both")
        if column.groups is not None and column.categories is not None:
            raise refuse(column, "groups are the levels of this column: leave out categories")
        if column.features is not None and self._levels(column) is not None:
            raise refuse(column, "features is for a category without a list of levels: leave it out")
        if column.features is not None and not 2 <= column.features <= _MOST_FEATURES:
            raise refuse(column, f"features must be a whole number from 2 to {_MOST_FEATURES}")

    def feature_names(self, column: Column) -> list[str]:
        levels = self._levels(column)
        if levels is None:
            return [f"{column.name}~{number}" for number in range(1, self._n_codes(column) + 1)]
        return [f"{column.name}={level}" for level in levels]

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        levels = self._levels(column)
        # as wide beside the levels as the bounds of a number are beside its spread
        wide = spread_of(column) * math.sqrt(12.0)
        if levels is None:
            return [(-wide / 2.0, wide / 2.0)] * self._n_codes(column)
        return [(0.0, max(wide, self._height(column)))] * len(levels)

    def encode(self, column: Column, values: Any) -> Encoded:
        import pyarrow as pa

        # a level that is listed is a level, whatever it is called
        gaps = ALWAYS - frozenset(self._levels(column) or ())
        found = as_text(column, values, "categories", gaps).dictionary_encode()
        names = found.dictionary.to_pylist()
        codes = np.asarray(found.indices.fill_null(-1).cast(pa.int64()).to_numpy(zero_copy_only=False))
        table = np.full((len(names) + 1, len(self.feature_names(column))), np.nan)  # the last row is for gaps
        other = np.zeros(len(names) + 1, bool)
        for number, name in enumerate(names):
            table[number], other[number] = self._code(column, name)
        # written level by level into columns: nothing of the size of the batch is transposed
        features = np.ascontiguousarray(table.T)[:, codes]
        return Encoded(features, 0, int(other[codes].sum()))

    def decode(self, column: Column, features: Floats) -> Floats:
        return features / self._height(column)

    # ------------------------------------------------------------ levels

    def _levels(self, column: Column) -> tuple[str, ...] | None:
        return column.categories if column.groups is None else tuple(column.groups)

    def _n_codes(self, column: Column) -> int:
        return column.features or CODE_FEATURES

    def _height(self, column: Column) -> float:
        """Value of a level's own feature."""
        levels = self._levels(column)
        mixed = 1.0 - 1.0 / len(levels) if levels is not None and len(levels) > 1 else 1.0
        return spread_of(column) / math.sqrt(mixed)

    def _code(self, column: Column, name: str) -> tuple[Floats, bool]:
        """Features of a level, and whether it counts as other."""
        level: str | None = name if column.prefix is None else name[: column.prefix]
        if column.groups is not None:
            level = _group_of(name, column.groups)
        levels = self._levels(column)
        if levels is None:
            assert level is not None
            return self._height(column) * _signs(level, self._n_codes(column)), False
        code = np.zeros(len(levels))
        if level not in levels:
            return code, True
        code[levels.index(level)] = self._height(column)
        return code, False


def _group_of(name: str, groups: dict[str, tuple[str, ...]]) -> str | None:
    """The group with the longest prefix of a name."""
    prefixes = [(prefix, group) for group, some in groups.items() for prefix in some]
    fits = [(len(prefix), group) for prefix, group in prefixes if name.startswith(prefix)]
    return max(fits)[1] if fits else None


def _signs(level: str, n: int) -> Floats:
    """Plus or minus one over the root of n, by a hash of the level: the same everywhere, of length one."""
    digest = hashlib.blake2b(level.encode(), digest_size=8, person=b"fcac category").digest()
    bits = np.unpackbits(np.frombuffer(digest, np.uint8))[:n]
    signs: Floats = 2.0 * bits.astype(np.float64) - 1.0
    return signs / math.sqrt(n)
