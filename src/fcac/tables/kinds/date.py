"""``kind = "date"``: days since a public day, or parts of the date on a circle."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import DataError
from fcac.tables.kind import ROOM, Encoded, Kind, as_text, kind_in_words, refuse, spread_of, whole_array
from fcac.tables.kinds.number import check_scaling, prepared, scaled, unscaled

if TYPE_CHECKING:
    from fcac.tables.column import Column

#: Parts of a date, and how many steps their circle has.
PARTS = {"month": 12, "weekday": 7, "hour": 24}
_FIRST_DAY = datetime.date(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds


class Date(Kind):
    """Dates and times: days since `since` (1970-01-01 by default), or each of `parts` as a point on a circle."""

    keys = ("since", "parts", "format", "min", "max", "scaling", "center", "spread", "fill", "clip")
    reads = "text"
    room = ROOM

    def check(self, column: Column) -> None:
        if column.since is not None:
            days(column, "since", column.since)
        if column.parts is None:
            check_scaling(column)
            return
        strange = [part for part in column.parts if part not in PARTS]
        if strange or not column.parts or len(set(column.parts)) < len(column.parts):
            raise refuse(column, f"parts must be some of {', '.join(PARTS)}, each once")
        for key in ("since", "min", "max", "center", "spread", "fill"):
            if getattr(column, key) is not None:
                raise refuse(column, f"{key} is for days; with parts leave it out")
        if column.missing == "fill":
            raise refuse(column, 'missing = "fill" is for days; with parts use "native", "error" or "drop"')

    def feature_names(self, column: Column) -> list[str]:
        if column.parts is None:
            return [column.name]
        return [f"{column.name}.{part}.{side}" for part in column.parts for side in ("cos", "sin")]

    def block_of(self, column: Column) -> Literal["number", "numbers", "category"]:
        # months and weekdays are a few places on the circle, hours and days are everywhere
        return "category" if {"month", "weekday"} & set(column.parts or ()) else "number"

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        if column.parts is not None:
            wide = spread_of(column) * math.sqrt(12.0) / 2.0
            return [(-wide, wide)] * (2 * len(column.parts))
        if column.min is None or column.max is None:
            return None
        low, high = scaled(column, np.array([column.min, column.max], dtype=np.float64))
        return [(float(low), float(high))]

    def encode(self, column: Column, values: Any) -> Encoded:
        stamps, unknown = _microseconds(column, values)
        if column.parts is None:
            first = 0.0 if column.since is None else days(column, "since", column.since)
            return Encoded(prepared(column, stamps / _DAY - first)[None, :], unknown)
        day = np.floor(stamps / _DAY)
        features = []
        for part in column.parts:
            if part == "hour":
                step = (stamps / _DAY - day) * 24.0
            elif part == "weekday":
                step = np.mod(day + 3.0, 7.0)  # the first of January 1970 was a Thursday
            else:
                step = _months(day)
            angle = 2.0 * math.pi * step / PARTS[part]
            # on a circle of this radius each of the two features has half the variance of a number
            radius = spread_of(column)
            features += [radius * np.cos(angle), radius * np.sin(angle)]
        return Encoded(np.array(features), unknown)

    def decode(self, column: Column, features: Floats) -> Floats:
        return features / spread_of(column) if column.parts is not None else unscaled(column, features)


def days(column: Column, key: str, value: Any) -> float:
    """Return a public day of a schema, written as 2024-12-31, as days since the first of January 1970."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    if isinstance(value, str):
        try:
            value = datetime.date.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime.date):
        raise refuse(column, f'{key} must be a day, as in {key} = "2020-01-31"')
    return float((value - _FIRST_DAY).days)


def _microseconds(column: Column, values: Any) -> tuple[Floats, int]:
    """Microseconds since 1970, NaN for gaps, and how many values are no dates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = whole_array(values)
    is_type, kind = pa.types, values.type
    unknown = 0
    if is_type.is_string(kind) or is_type.is_large_string(kind) or is_type.is_string_view(kind):
        values, unknown = _parsed(column, pc.utf8_trim_whitespace(as_text(column, values, "dates")))
    elif is_type.is_timestamp(kind) or is_type.is_date(kind):
        values = values.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False)
    elif not is_type.is_null(kind):
        raise DataError(f"column {column.name!r} has {kind_in_words(kind)}, but dates are needed")
    whole = pc.cast(values, pa.int64()) if not is_type.is_null(kind) else pa.nulls(len(values), pa.int64())
    gone = np.asarray(whole.is_null().to_numpy(zero_copy_only=False))
    stamps = np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.float64)
    stamps[gone] = np.nan
    return stamps, unknown


def _parsed(column: Column, text: Any) -> tuple[Any, int]:
    """Text as timestamps: in the format given, or as ISO 8601."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.format is not None:
        try:
            read = pc.strptime(text, format=column.format, unit="us", error_is_null=True)
        except (pa.ArrowInvalid, ValueError):
            raise refuse(column, f"format = {column.format!r} cannot be used to read dates") from None
        return read, read.null_count - text.null_count
    # one by one there is no year 0, so there is none here: what a row says does not depend on others
    dates = pc.if_else(pc.starts_with(text, "0000"), pa.scalar(None, text.type), text)
    try:
        return dates.cast(pa.timestamp("us")), dates.null_count - text.null_count
    except pa.ArrowInvalid:
        pass
    # some are no dates, or carry a time zone: one by one
    read_one = [None if one is None else _iso(one) for one in text.to_pylist()]
    read = pa.array(read_one, pa.timestamp("us"))
    return read, read.null_count - text.null_count


def _iso(text: str) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is None else found.astimezone(datetime.UTC).replace(tzinfo=None)


def _months(day: Floats) -> Floats:
    """Month of days since 1970, from 0."""
    gone = np.isnan(day)
    months = np.where(gone, 0, day).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    return np.where(gone, np.nan, months)
