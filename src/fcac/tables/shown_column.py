"""Columns as people read them: which features each became, and its values in the units of the table."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from fcac._typing import Floats

Kind = Literal["number", "share", "ordinal", "category", "date"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CIRCLES = {"month": _MONTHS, "weekday": _WEEKDAYS, "hour": tuple(f"{hour}:00" for hour in range(24))}


@dataclass(frozen=True)
class ShownColumn:
    """One column of the table, as a summary or a report shows it.

    A "share" is of yes among yes and no, an "ordinal" a position among ordered levels, a "date" a number of days since
    1970-01-01. `features` are the positions of its features, one for each of the categories of a category. `decode`
    turns features (n, width) into values in the table's units; None where they are that already.
    """

    name: str
    kind: Kind
    features: tuple[int, ...]
    categories: tuple[str, ...] = ()
    unit: str = ""
    decode: Callable[[Floats], Floats] | None = None

    def values(self, nodes: Floats) -> Floats:
        """Return the column's values at nodes, in the table's units: shape (n,), or (n, categories) as shares."""
        own = nodes[:, list(self.features)]
        decoded = own if self.decode is None else np.asarray(self.decode(own), dtype=np.float64)
        if self.kind == "category":
            return np.clip(decoded, 0.0, 1.0)
        values: Floats = decoded.reshape(len(nodes), -1)[:, 0]
        return values

    def shown(self, value: float, range_of_all: float = 0.0) -> str:
        """Return a value as text; a number below a thousandth of the range of all rows is 0, not 2.8e-05."""
        if self.kind == "date":
            return day(value)
        if self.kind in ("category", "share"):
            return percent(value)
        if self.kind == "ordinal" and np.isfinite(value):
            return self.categories[int(np.clip(np.rint(value), 0, len(self.categories) - 1))]
        return figure(0.0 if abs(value) < range_of_all / 1000 else value) + (f" {self.unit}" if self.unit else "")

    def shown_gap(self, gap: float) -> str:
        """Return a difference of two values as text."""
        if self.kind == "date":
            return f"{figure(gap)} days"
        return percent(gap) if self.kind in ("category", "share") else figure(gap)


def columns_of(schema: Any, names: Sequence[str]) -> list[ShownColumn]:
    """Return the columns behind features; without a schema, each name is a column.

    Texts and categories without a list of levels are left out: they became codes, which mean nothing to a reader.

    >>> from fcac.tables.schema import Column, Schema
    >>> schema = Schema([Column("age", min=0, max=100, scaling="range"), Column("ward", categories=("a", "b"))])
    >>> [(c.name, c.kind, c.features) for c in columns_of(schema, schema.feature_names)]
    [('age', 'number', (0,)), ('ward', 'category', (1, 2))]
    """
    if schema is None:
        return [ShownColumn(str(name), "number", (j,)) for j, name in enumerate(names)]
    found, at = [], 0
    for field in schema.fields:
        positions = tuple(range(at, at + len(field.feature_names)))
        at += len(positions)
        if positions:
            found += _columns_of_field(field, positions)
    return found or [ShownColumn(str(name), "number", (j,)) for j, name in enumerate(names)]


def _columns_of_field(field: Any, positions: tuple[int, ...]) -> list[ShownColumn]:
    kind, unit = getattr(field, "kind", None), str(getattr(field, "unit", None) or "")
    levels = tuple(getattr(field, "groups", None) or field.categories or ())
    if levels and len(levels) == len(positions):
        # schemas that name no kind have 1 for a category, and nothing to decode
        decode = None if kind is None else field.unscaled
        return [ShownColumn(field.name, "category", positions, levels, decode=decode)]
    if kind in (None, "number"):
        return [ShownColumn(field.name, "number", positions, unit=unit, decode=field.unscaled)]
    if kind == "boolean":
        return [ShownColumn(field.name, "share", positions, decode=field.unscaled)]
    if kind == "ordinal":
        return [ShownColumn(field.name, "ordinal", positions, tuple(field.order), decode=field.unscaled)]
    if kind == "date":
        return _dates(field, positions)
    if kind in ("category", "text"):
        return []
    # a kind without words of its own here: its value, or each of its features as it is clustered
    if len(positions) == 1:
        return [ShownColumn(field.name, "number", positions, unit=unit, decode=field.unscaled)]
    return [ShownColumn(name, "number", (j,)) for name, j in zip(field.feature_names, positions, strict=True)]


def _dates(field: Any, positions: tuple[int, ...]) -> list[ShownColumn]:
    if not field.parts:
        first = 0.0 if field.since is None else _days(field.since)
        return [ShownColumn(field.name, "date", positions, decode=lambda own: field.unscaled(own) + first)]
    columns = []
    for number, part in enumerate(field.parts):
        steps = _CIRCLES[part]
        name = f"{field.name} ({part})"
        decode = partial(_on_circle, n_steps=len(steps))
        columns.append(ShownColumn(name, "category", positions[2 * number : 2 * number + 2], steps, decode=decode))
    return columns


def _on_circle(own: Floats, n_steps: int) -> Floats:
    """Share of each step of a circle, all of it to the nearest one, from cosine and sine."""
    angle = np.arctan2(own[:, 1], own[:, 0])
    step = np.rint(np.mod(angle / (2 * np.pi) * n_steps, n_steps)).astype(int) % n_steps
    shares: Floats = np.eye(n_steps)[step]
    return shares


def _days(text: str) -> float:
    return float((datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days)


def figure(value: float) -> str:
    """Return a number to three digits, or whole from 1,000 on.

    >>> figure(0.012345), figure(88.12), figure(-4321.9), figure(30303.0), figure(1.5e9)
    ('0.0123', '88.1', '−4,322', '30,303', '1.50e+09')
    """
    if value == 0 or not np.isfinite(value):
        return "0" if value == 0 else "–"
    if abs(value) >= 1e7 or abs(value) < 1e-4:
        text = f"{value:.2e}"
    elif abs(value) >= 999.5:
        text = f"{value:,.0f}"
    else:
        digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
        text = f"{value:.{digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def percent(share: float) -> str:
    """Return a share as a percentage, finer where it is small.

    >>> percent(0.5), percent(0.034), percent(0.0004)
    ('50 %', '3.4 %', '0.04 %')
    """
    if share >= 0.0995 or share == 0:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %" if share >= 0.001 else f"{100 * share:.2f} %"


def day(value: float) -> str:
    """Return a number of days since 1970-01-01 as a date.

    >>> day(19_800.4)
    '18 Mar 2024'
    """
    if not np.isfinite(value) or abs(value) > 700_000:
        return "–"
    found = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(np.floor(value)))
    return f"{found.day} {found:%b %Y}"
