"""Small distributions beside a value: histograms from nodes and counts, and shares of categories."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fcac._typing import Floats
from fcac.report.markup import Markup, tag
from fcac.report.profiles import ColumnProfile, Distribution
from fcac.tables.shown_column import day, percent

_WIDTH, _HEIGHT = 120, 28
_MAX_SHARES = 3


def shared_shapes(overall: Mapping[str, Distribution]) -> Markup:
    """Return the histograms of all rows, once for all clusters: each chart refers to them."""
    drawn = [
        tag("path", d=_steps(found.bars), id=f"all-{number}")
        for number, found in enumerate(overall.values())
        if np.isfinite(found.mean)
    ]
    return tag("svg", tag("defs", drawn), class_="unseen", aria_hidden="true", focusable="false")


def distribution(profile: ColumnProfile, edges: Floats, colour: str, number: int) -> Markup:
    """Return a histogram of a cluster before that of all rows, or the shares of its leading categories.

    Parameters
    ----------
    profile : ColumnProfile
    edges : array
        Of the bins.
    colour : str
    number : int
        Of the column among the shared shapes.
    """
    if profile.column.kind == "category":
        return _shares(profile, colour)
    drawn = [
        tag("use", href=f"#all-{number}", class_="all"),
        tag("path", d=_steps(profile.own.bars), class_=f"own {colour}"),
    ]
    span = float(edges[-1] - edges[0]) or 1.0
    at = float(np.clip((profile.own.mean - edges[0]) / span, 0, 1)) * _WIDTH
    drawn.append(tag("path", d=f"M{at:.0f} 0V{_HEIGHT}", class_="mean"))
    if profile.error is not None:
        half = 2 * profile.error / span * _WIDTH
        low, high = max(at - half, 0.0), min(at + half, _WIDTH)
        drawn.append(tag("path", d=f"M{low:.0f} 3H{high:.0f}M{low:.0f} 0V6M{high:.0f} 0V6", class_="error"))
    return tag("svg", drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", class_="mini", aria_hidden="true", focusable="false")


def _steps(bars: Floats) -> str:
    """A filled staircase in whole units, the highest step as high as the chart."""
    n, heights = len(bars), bars / max(float(bars.max(initial=0.0)), 1e-12)
    xs = np.rint(np.linspace(0, _WIDTH, n + 1)).astype(int)
    ys = np.rint((1 - heights) * (_HEIGHT - 1) + 1).astype(int)
    parts = [f"M0 {_HEIGHT}"]
    for j in range(n):
        parts.append(f"V{ys[j]}H{xs[j + 1]}")
    return "".join(parts) + f"V{_HEIGHT}Z"


def _shares(profile: ColumnProfile, colour: str) -> Markup:
    own, usual = profile.own.bars, profile.all.bars
    order = np.argsort(-own, kind="stable")[:_MAX_SHARES]
    lines = []
    for c in order:
        if own[c] < 0.005:
            continue
        lines.append(
            tag(
                "span",
                tag("b", profile.column.categories[int(c)], title=profile.column.categories[int(c)]),
                tag(
                    "span",
                    tag("i", style=f"width:{100 * min(float(own[c]), 1.0):.0f}%"),
                    tag("u", style=f"left:{100 * min(float(usual[c]), 1.0):.0f}%"),
                    class_=f"track {colour}",
                ),
                tag("span", percent(float(own[c]))),
                data_t=f"{profile.column.categories[int(c)]}: {percent(float(own[c]))} here, "
                f"{percent(float(usual[c]))} of all",
            )
        )
    return tag("span", lines, class_="shares")


def in_words(profile: ColumnProfile, *, brief: bool = False) -> str:
    """Return a column of a cluster in words, for tips and readers who do not see the chart."""
    column = profile.column
    if column.kind == "category":
        order = np.argsort(-profile.own.bars, kind="stable")[:_MAX_SHARES]
        return ", ".join(
            f"{column.categories[int(c)]} {percent(float(profile.own.bars[c]))} "
            f"(all {percent(float(profile.all.bars[c]))})"
            for c in order
        )
    own, usual = profile.own, profile.all
    if column.kind == "date":
        return f"{column.name}: median {day(own.median)}, middle half {day(own.low)} to {day(own.high)}"
    error = "" if profile.error is None else f" ± {column.shown_gap(2 * profile.error)} (95 % of the noise)"
    if brief:
        return f"{column.name}: median {column.shown(own.median)}, all rows {column.shown(usual.median)}"
    return (
        f"{column.name}: mean {column.shown(own.mean)}{error}, median {column.shown(own.median)}, middle half "
        f"{column.shown(own.low)} to {column.shown(own.high)}; all rows: mean {column.shown(usual.mean)}, "
        f"median {column.shown(usual.median)}"
    )
