"""One-line names of clusters, from what sets them apart: "older, high creatinine, mostly E11"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fcac.tables.shown_column import day

if TYPE_CHECKING:
    from fcac.report.profiles import ColumnProfile

# A difference below this many standard deviations of all rows is not worth a word.
_TELLING = 0.6
# A category is named if at least this share of the cluster has it.
_NAMED_SHARE = 0.3
_MOSTLY = 0.6
_MAX_NAME = 28


def name_of(columns: Sequence[ColumnProfile], most: int) -> str:
    """Return a name made of at most so many terms, the most telling first.

    Parameters
    ----------
    columns : sequence of ColumnProfile
        The most telling first.
    most : int
    """
    terms: list[str] = []
    for column in columns:
        if len(terms) == most or abs(column.effect) < _TELLING:
            break
        term = _term(column)
        if term and term not in terms:
            terms.append(term)
    return ", ".join(terms) if terms else "close to the average"


def _term(profile: ColumnProfile) -> str:
    column, name = profile.column, _short(profile.column.name)
    if column.kind == "category":
        return _categories(profile)
    if column.kind == "date":
        return f"{name} around {day(profile.own.median)[-8:]}"
    up = profile.effect > 0
    if column.kind == "ordinal":
        return f"{name} {column.shown(profile.own.mean)}"
    if column.kind == "share" or _is_yes_or_no(profile):
        if up:
            return f"mostly {name}" if profile.own.mean >= _MOSTLY else f"often {name}"
        return f"not {name}" if profile.own.mean < 0.05 else f"seldom {name}"
    if re.search(r"(^|[\W_])age($|[\W_])", column.name.lower()):
        return "older" if up else "younger"
    return f"{'high' if up else 'low'} {name}"


def _categories(profile: ColumnProfile) -> str:
    """The categories that most of the cluster has and others have less; or the one it lacks."""
    shares, usual = profile.own.bars, profile.all.bars
    order = sorted(range(len(shares)), key=lambda c: -shares[c])
    named = [c for c in order[:2] if shares[c] >= _NAMED_SHARE and shares[c] > usual[c]]
    words = "/".join(_short(profile.column.categories[c]) for c in named)
    together = sum(float(shares[c]) for c in named)
    if named and together >= _MOSTLY:
        # noised shares near a bound are moved to it: that all have it is not known
        return f"{'all' if together >= 0.995 and profile.error is None else 'mostly'} {words}"
    if profile.effect > 0 and profile.category >= 0:
        return f"more {_short(profile.column.categories[profile.category])}"
    return f"hardly any {_short(profile.column.categories[profile.category])}" if profile.category >= 0 else ""


def _is_yes_or_no(profile: ColumnProfile) -> bool:
    """Whether nearly all values of all rows are 0 or 1."""
    bars = profile.all.bars
    return float(bars[0] + bars[-1]) > 0.8 and profile.all.ends == (0.0, 1.0)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1].rstrip()}…"
