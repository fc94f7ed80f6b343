"""The interface of column kinds: what a column of a table means and how it becomes features."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import DataError, SchemaError
from fcac.tables.read_options import GAP_WORDS

if TYPE_CHECKING:
    from fcac.tables.column import Column

#: Spread of a column in the units of clustering: that of a number between 0 and 1, and that of a standardised number.
RANGE_SPREAD, STANDARD_SPREAD = 1.0 / math.sqrt(12.0), 1.0

#: How much wider the bounds are than the values of a column whose values fill them. The bounds of a number are those of
#: a form or an instrument, usually ten or more deviations apart; levels and dates fill theirs, at three and a half
#: deviations. A private release cuts rows to a common length and adds noise in proportion: without this room the
#: length, and the noise in every column, would be that of the levels.
ROOM = 10.0 / 3.0


class Encoded(NamedTuple):
    """A column as features (width, n), NaN where the value is missing.

    `unknown` values stand for nothing the schema knows and become gaps; `other` ones count as "other".
    """

    features: Floats
    unknown: int = 0
    other: int = 0


class Kind(ABC):
    """One kind of column. To add one, put a subclass named like the kind into a file of ``fcac/tables/kinds``.

    `keys` are the settings of `Column` that it uses, beside kind, missing and weight. `reads` says how a reader should
    read the column: what `encode` is handed then suits `as_numbers` or `as_text`. `block` says how the read-out
    compares it (:class:`fcac.tables.kind.Block`): a column of few values with gaps between them is a category,
    whatever the values mean, since a method that looks for gaps would find each of them. `room` is :data:`ROOM` or 1.
    """

    name: ClassVar[str] = ""
    keys: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[Literal["numbers", "text", "nothing"]] = "numbers"
    block: ClassVar[Literal["number", "numbers", "category"]] = "number"
    room: ClassVar[float] = 1.0

    def check(self, column: Column) -> None:
        """Raise a `SchemaError` that names the field and the fix if the settings do not fit together."""
        if column.missing == "fill" and "fill" not in self.keys and self.reads != "nothing":
            raise refuse(column, f'kind = "{self.name}" cannot fill gaps; use missing = "native", "error" or "drop"')

    @abstractmethod
    def feature_names(self, column: Column) -> list[str]:
        """Return the names of the features."""

    @abstractmethod
    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        """Return public bounds of the features, in the units of clustering; None if they are not known."""

    @abstractmethod
    def encode(self, column: Column, values: Any) -> Encoded:
        """Turn the values of an Arrow array into features."""

    def block_of(self, column: Column) -> Literal["number", "numbers", "category"]:
        """Return how the read-out compares this column, where its settings decide."""
        return self.block

    def decode(self, column: Column, features: Floats) -> Floats:
        """Return features (n, width) in the units of the table, as far as there are any."""
        return features


def spread_of(column: Column) -> float:
    """Return the spread that a column is given so that it counts as much as a number of the same scaling."""
    return STANDARD_SPREAD if column.scaling in ("standard", "log") else RANGE_SPREAD


def refuse(column: Column, what: str) -> SchemaError:
    """Return an error about one column."""
    return SchemaError(f"column {column.name!r}: {what}")


def whole_array(values: Any) -> Any:
    """Return a column of a batch or of a table as one Arrow array without dictionary."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # no chunk at all
            values = pa.array([], values.type)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def as_numbers(column: Column, values: Any, needed: str) -> Floats:
    """Return numbers, also such that are written as text, NaN for missing ones; anything else is a `DataError`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind_in_words(values.type) == "text":
        with contextlib.suppress(pa.ArrowInvalid):
            values = pc.cast(pc.utf8_trim_whitespace(as_text(column, values, needed)), pa.float64())
    if not is_numeric(values.type):
        raise DataError(f"column {column.name!r} has {kind_in_words(values.type)}, but {needed} are needed")
    if pa.types.is_boolean(values.type):
        values = pc.cast(values, pa.int8())
    if not pa.types.is_float64(values.type):
        values = pc.cast(values, pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy())


def as_text(column: Column, values: Any, needed: str, gap_words: frozenset[str] = GAP_WORDS) -> Any:
    """Return values as an Arrow array of text, without gap words; whole numbers are written without decimals."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = whole_array(values)
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise DataError(f"column {column.name!r} has {kind_in_words(kind)}, but {needed} are needed")
    text = pc.cast(values, pa.string())
    if pa.types.is_floating(kind):
        # each value for itself: what a row is called does not depend on others
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        whole = np.isfinite(numbers) & (np.rint(numbers) == numbers) & (np.abs(numbers) < 2**53)
        plain = pc.cast(pa.array(np.where(whole, numbers, 0).astype(np.int64)), pa.string())
        text = pc.if_else(pa.array(whole), plain, pc.if_else(pa.array(np.isnan(numbers)), None, text))
    if not gap_words or not len(text):
        return text
    is_gap = pc.is_in(pc.utf8_trim_whitespace(text), value_set=pa.array(sorted(gap_words)))
    return pc.if_else(is_gap, pa.scalar(None, pa.string()), text)


def is_numeric(kind: Any) -> bool:
    """Return whether an Arrow type can be read as numbers."""
    import pyarrow as pa

    is_type = pa.types
    return bool(
        is_type.is_integer(kind)
        or is_type.is_floating(kind)
        or is_type.is_boolean(kind)
        or is_type.is_decimal(kind)
        or is_type.is_null(kind)
    )


def kind_in_words(kind: Any) -> str:
    """Return a readable name for an Arrow type."""
    import pyarrow as pa

    is_type = pa.types
    if is_type.is_string(kind) or is_type.is_large_string(kind) or is_type.is_string_view(kind):
        return "text"
    if is_type.is_dictionary(kind):
        return "categories"
    if is_type.is_temporal(kind):
        return "dates or times"
    return f"values of type {kind}"


class Block(NamedTuple):
    """The features of one column of a table: how many they are, what they are, and how much the column counts.

    "numbers" are several that together count as one column; "category" means levels: of a category, a boolean or an
    ordinal, or months and weekdays. The weight is a factor of squared distances.
    """

    width: int
    kind: str
    weight: float = 1.0
