"""The columns of the user's table: which features each became, and its values in the units of the table."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fcac._typing import Floats

Kind = Literal["number", "category", "date"]


@dataclass(frozen=True)
class ReportColumn:
    """One column of the table, as the report shows it.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "date"}
        A date is a number of days since 1970-01-01.
    features : tuple of int
        Positions of its features; one per category for a column of categories.
    categories : tuple of str
    unit : str
        Written behind values; may be empty.
    field : schema column or None
        What decodes values; None where features are in the table's own units.
    """

    name: str
    kind: Kind
    features: tuple[int, ...]
    categories: tuple[str, ...] = ()
    unit: str = ""
    field: Any = None

    def values(self, nodes: Floats) -> Floats:
        """Return the column's values at nodes, in the table's units: shape (n,), or (n, categories) as shares."""
        own = nodes[:, list(self.features)]
        if self.kind == "category":
            return np.clip(own, 0.0, 1.0)
        values: Floats = own[:, 0] if self.field is None else np.asarray(self.field.unscaled(own[:, 0]))
        return values

    def per_feature_unit(self) -> float:
        """Return how many of the table's units one unit of the feature is."""
        if self.field is None or self.kind == "category":
            return 1.0
        low, high = self.field.unscaled(np.array([0.0, 1.0]))
        return abs(float(high - low))

    def shown(self, value: float) -> str:
        """Return a value as text."""
        if self.kind == "date":
            return day(value)
        if self.kind == "category":
            return percent(value)
        return figure(value) + (f" {self.unit}" if self.unit else "")


def columns_of(schema: Any, names: Sequence[str]) -> list[ReportColumn]:
    """Return the columns behind features.

    Parameters
    ----------
    schema : Schema or None
        What turned tables into rows.
    names : sequence of str
        Names of the features, used where there is no schema.

    Examples
    --------
    >>> from fcac.report.columns import columns_of
    >>> from fcac.tables.schema import Column, Schema
    >>> schema = Schema([Column("age", min=0, max=100, scaling="range"), Column("ward", categories=("a", "b"))])
    >>> [(c.name, c.kind, c.features) for c in columns_of(schema, schema.feature_names)]
    [('age', 'number', (0,)), ('ward', 'category', (1, 2))]
    """
    if schema is None:
        return [ReportColumn(str(name), "number", (j,)) for j, name in enumerate(names)]
    found, at = [], 0
    for field in schema.fields:
        positions = tuple(range(at, at + len(field.feature_names)))
        at += len(positions)
        if field.categories is not None:
            found.append(ReportColumn(field.name, "category", positions, tuple(field.categories), field=field))
        else:
            unit = str(getattr(field, "unit", None) or "")
            found.append(ReportColumn(field.name, "number", positions, unit=unit, field=field))
    return found


def figure(value: float) -> str:
    """Return a number to three digits, or whole from 1,000 on.

    Examples
    --------
    >>> from fcac.report.columns import figure
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

    Examples
    --------
    >>> from fcac.report.columns import percent
    >>> percent(0.5), percent(0.034), percent(0.0004)
    ('50 %', '3.4 %', '0.04 %')
    """
    if share >= 0.0995 or share == 0:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %" if share >= 0.001 else f"{100 * share:.2f} %"


def day(value: float) -> str:
    """Return a number of days since 1970-01-01 as a date.

    Examples
    --------
    >>> from fcac.report.columns import day
    >>> day(19_800.4)
    '18 Mar 2024'
    """
    if not np.isfinite(value) or abs(value) > 700_000:
        return "–"
    found = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(np.floor(value)))
    return f"{found.day} {found:%b %Y}"
