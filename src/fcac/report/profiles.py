"""What a cluster is: its values beside those of all rows, small distributions, a name such as "older, mostly E11"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers
from fcac.exceptions import RequestError
from fcac.tables.shown_column import ShownColumn, day

N_BINS = 16
# Values beyond these quantiles share the outermost bars of a histogram.
_SHOWN = (0.01, 0.99)
# A difference must exceed this many standard errors of the noise to be told.
_ERRORS = 2.0
_MAX_SHARES = 3
# A difference below this many standard deviations of all rows is not worth a word.
_TELLING = 0.6
# A category is named if at least this share of the cluster has it.
_NAMED_SHARE = 0.3
_MOSTLY = 0.6
_MAX_NAME = 28
# Words told for each cluster of texts, and how many of them its name takes.
_N_WORDS, _IN_NAME = 5, 3


@dataclass(frozen=True)
class Distribution:
    """How a column's values are distributed, from nodes and counts.

    Mean, and quantiles .25, .5 and .75; all NaN for categories. `bars` are shares of the rows by bin of the histogram,
    which has these ends, or by category.
    """

    mean: float
    low: float
    median: float
    high: float
    bars: Floats
    ends: tuple[float, float] = (np.nan, np.nan)


@dataclass(frozen=True)
class ColumnProfile:
    """One column of one cluster, beside the distribution in all rows.

    `effect` is the distance of the cluster's mean from the mean of all, in standard deviations of all; for categories
    of the one that differs most, `category`. `error` is the standard error of the mean because of known noise, in the
    table's units.
    """

    column: ShownColumn
    own: Distribution
    all: Distribution
    effect: float
    error: float | None = None
    category: int = -1

    @property
    def leading(self) -> list[tuple[str, float, float]]:
        """The largest categories: name, share here, share of all rows."""
        shown = [int(c) for c in np.argsort(-self.own.bars, kind="stable")[:_MAX_SHARES] if self.own.bars[c] >= 0.005]
        return [(self.column.categories[c], float(self.own.bars[c]), float(self.all.bars[c])) for c in shown]

    def shown(self, rows: Distribution) -> str:
        """Return the middle of a distribution as text: the mean, or the median of dates."""
        low, high = self.all.ends
        return self.column.shown(rows.median if self.column.kind == "date" else rows.mean, high - low)

    def in_words(self, brief: bool = False) -> str:
        """Return a column of numbers in words, for tips and readers who do not see the chart."""
        own, usual, shown = self.own, self.all, self.column.shown
        if self.column.kind == "date":
            return f"{self.column.name}: median {shown(own.median)}, middle half {shown(own.low)} to {shown(own.high)}"
        if brief:
            return f"{self.column.name}: median {shown(own.median)}, all rows {shown(usual.median)}"
        error = "" if self.error is None else f" ± {self.column.shown_gap(2 * self.error)} (95 % of the noise)"
        return (
            f"{self.column.name}: mean {shown(own.mean)}{error}, median {shown(own.median)}, middle half "
            f"{shown(own.low)} to {shown(own.high)}; all rows: mean {shown(usual.mean)}, median {shown(usual.median)}"
        )

    @property
    def is_certain(self) -> bool:
        """Whether the difference exceeds what noise can make."""
        if self.error is None:
            return True
        if self.column.kind == "category":
            gap = abs(float(self.own.bars[self.category] - self.all.bars[self.category]))
        else:
            gap = abs(self.own.mean - self.all.mean)
        return gap > _ERRORS * self.error


@dataclass(frozen=True)
class ClusterProfile:
    """What sets a cluster apart: its columns, the most telling first, a name made from them, and words for texts."""

    label: int
    name: str
    columns: list[ColumnProfile] = field(default_factory=list)
    words: list[tuple[str, list[str]]] = field(default_factory=list)


@dataclass(frozen=True)
class Profiles:
    """All clusters' profiles; `importance` is the share of each column's variance between clusters, largest first."""

    clusters: dict[int, ClusterProfile]
    importance: list[tuple[ShownColumn, float]]
    edges: dict[str, Floats]
    overall: dict[str, Distribution]

    def number(self, column: str) -> int:
        """Return the number of a described column."""
        return list(self.overall).index(column)

    def reach(self, column: str) -> float:
        """Return the width of a column's histogram."""
        edges = self.edges.get(column)
        return 0.0 if edges is None or not len(edges) else float(edges[-1] - edges[0])

    def name(self, label: int) -> str:
        """Return the name of a cluster; empty if it is not described."""
        return self.clusters[label].name if label in self.clusters else ""


def make_profiles(
    columns: Sequence[ShownColumn],
    nodes: Floats,
    counts: Floats,
    labels: Integers,
    described: Sequence[int],
    noise: Floats | None,
    n_telling: int,
) -> Profiles:
    """Describe clusters by nodes and counts, with `n_telling` columns for each.

    `noise` is the known standard deviation of the noise in nodes.
    """
    if not len(nodes):
        return Profiles({}, [], {}, {})
    weights = counts / max(float(counts.sum()), 1e-300)
    described = [k for k in described if (labels == k).any()]
    inside = [labels == k for k in described]
    effects = np.zeros((len(described), len(columns)))
    telling_category = np.full((len(described), len(columns)), -1)
    shares_between = np.zeros(len(columns))
    present, place = np.unique(labels, return_inverse=True)
    rank = np.searchsorted(present, described)
    for j, column in enumerate(columns):
        values = column.values(nodes)
        table = values if values.ndim == 2 else values[:, None]
        mean = weights @ table
        within = weights @ (table - mean) ** 2
        # the variance of a category is that of single rows, which nodes, being means of rows, do not show
        variance = mean * (1 - mean) if column.kind == "category" else within
        own = _means_by(place.ravel(), weights, table)
        between = own.mass @ (own.means - mean) ** 2
        total = float(variance.sum())
        shares_between[j] = float(between.sum()) / total if total > 0 else 0.0
        spread, gap = np.sqrt(variance), own.means[rank] - mean
        units = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 1e-12 * (1e-300 + np.abs(mean)))
        top = np.argmax(np.abs(units), axis=1)
        effects[:, j] = units[np.arange(len(units)), top]
        if column.kind == "category":
            telling_category[:, j] = top
    order = sorted(range(len(columns)), key=lambda j: -shares_between[j])
    chosen = [np.argsort(-np.abs(row), kind="stable")[:n_telling] for row in effects]
    used = sorted({int(j) for row in chosen for j in row} | set(order[: max(n_telling, 12)]))
    edges = {columns[j].name: _edges(columns[j], nodes, weights) for j in used}
    overall = {columns[j].name: _distribution(columns[j], nodes, counts, edges[columns[j].name]) for j in used}
    clusters = {}
    for i, label in enumerate(described):
        some, mass = nodes[inside[i]], counts[inside[i]]
        error = None if noise is None else noise[inside[i]]
        told = [
            ColumnProfile(
                columns[j],
                _distribution(columns[j], some, mass, edges[columns[j].name]),
                overall[columns[j].name],
                float(effects[i, j]),
                _error(columns[j], error, some, mass),
                int(telling_category[i, j]),
            )
            for j in chosen[i]
            if effects[i, j] != 0
        ]
        clusters[label] = ClusterProfile(label, "", told)
    named = _named(clusters, len(described))
    return Profiles(named, [(columns[j], float(shares_between[j])) for j in order], edges, overall)


@dataclass(frozen=True)
class _Means:
    means: Floats
    mass: Floats


def _means_by(place: Integers, weights: Floats, table: Floats) -> _Means:
    mass = np.asarray(np.bincount(place, weights=weights), dtype=np.float64)
    sums = np.column_stack([np.bincount(place, weights=weights * column) for column in table.T])
    return _Means(sums / np.maximum(mass, 1e-300)[:, None], mass)


def _edges(column: ShownColumn, nodes: Floats, weights: Floats) -> Floats:
    """Bin edges between the outer quantiles of all rows; months for dates that span at most three years."""
    if column.kind == "category":
        return np.arange(len(column.categories) + 1.0)
    low, high = weighted_quantiles(column.values(nodes), weights, _SHOWN)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    if column.kind == "date":
        return month_edges(low, high)
    return np.linspace(low, high, N_BINS + 1)


def month_edges(low: float, high: float) -> Floats:
    """Return the first days of months, quarters or years around two days, at most 24 bins.

    >>> from fcac.tables.shown_column import day
    >>> [day(x) for x in month_edges(19_800.0, 19_850.0)]
    ['1 Mar 2024', '1 Apr 2024', '1 May 2024', '1 Jun 2024']
    """
    first, last = (np.datetime64("1970-01-01") + int(np.floor(x)) for x in (low, high))
    start, end = first.astype("datetime64[M]").astype(int), last.astype("datetime64[M]").astype(int) + 1
    step = next((s for s in (1, 3, 6, 12, 60, 120) if (end - start) / s <= 24), 1200)
    start -= start % step
    months = np.arange(start, end + step, step)
    days: Floats = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.float64)
    return days


def _distribution(column: ShownColumn, nodes: Floats, counts: Floats, edges: Floats) -> Distribution:
    values = column.values(nodes)
    weights = counts / max(float(counts.sum()), 1e-300)
    if column.kind == "category":
        return Distribution(np.nan, np.nan, np.nan, np.nan, weights @ values)
    low, median, high = weighted_quantiles(values, weights, (0.25, 0.5, 0.75))
    bars, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges, weights=weights)
    return Distribution(float(weights @ values), low, median, high, bars, (float(edges[0]), float(edges[-1])))


def weighted_quantiles(values: Floats, weights: Floats, at: Sequence[float]) -> tuple[float, ...]:
    """Return quantiles of values that stand for several rows each.

    >>> weighted_quantiles(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 8.0]), (0.15, 0.5))
    (2.0, 9.0)
    """
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    place = np.searchsorted(upto, np.array(at) * upto[-1], side="left")
    return tuple(float(v) for v in values[order[np.minimum(place, len(values) - 1)]])


def _error(column: ShownColumn, noise: Floats | None, nodes: Floats, counts: Floats) -> float | None:
    """Standard error of a weighted mean of noised nodes, in the table's units: what it moves the decoded mean by."""
    if noise is None:
        return None
    weights = counts / max(float(counts.sum()), 1e-300)
    mean = (weights @ nodes)[None, :]
    error = np.sqrt(((weights[:, None] * noise) ** 2).sum(axis=0))[None, :]
    moved = np.abs(column.values(mean + error) - column.values(mean - error)) / 2
    return float(moved.max())


def _named(clusters: dict[int, ClusterProfile], n_clusters: int) -> dict[int, ClusterProfile]:
    """Give each cluster a name; those that would have the same get another term each."""
    if n_clusters == 1:
        return {k: replace(profile, name="all rows alike") for k, profile in clusters.items()}
    names = {k: name_of([c for c in p.columns if c.is_certain], 3) for k, p in clusters.items()}
    for label, profile in clusters.items():
        if sum(names[label] == other for other in names.values()) > 1:
            names[label] = name_of([c for c in profile.columns if c.is_certain], 4)
    return {k: replace(profile, name=names[k]) for k, profile in clusters.items()}


# ------------------------------------------------------------ names


def name_of(columns: Sequence[ColumnProfile], most: int) -> str:
    """Return a name made of at most so many terms, from columns of which the most telling comes first."""
    terms: list[str] = []
    for column in columns:
        if len(terms) == most or abs(column.effect) < _TELLING:
            break
        term = _term(column, _in_several(columns))
        if term and term not in terms:
            terms.append(term)
    return ", ".join(terms) if terms else "close to the average"


def _in_several(columns: Sequence[ColumnProfile]) -> set[str]:
    """Levels that more than one column has: without its column such a level says nothing."""
    levels = Counter(level for column in columns for level in set(column.column.categories))
    return {level for level, count in levels.items() if count > 1}


def _term(profile: ColumnProfile, in_several: set[str]) -> str:
    column, name = profile.column, _short(profile.column.name)
    if column.kind == "category":
        return _categories(profile, in_several)
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


def _categories(profile: ColumnProfile, in_several: set[str]) -> str:
    """The categories that most of the cluster has and others have less; or the one it lacks."""
    shares, usual = profile.own.bars, profile.all.bars
    order = sorted(range(len(shares)), key=lambda c: -shares[c])
    named = [c for c in order[:2] if shares[c] >= _NAMED_SHARE and shares[c] > usual[c]]
    levels = profile.column.categories
    of = "" if in_several.isdisjoint(levels) else f"{_short(profile.column.name)} "
    words = of + "/".join(_short(levels[c]) for c in named)
    together = sum(float(shares[c]) for c in named)
    if named and together >= _MOSTLY:
        # noised shares near a bound are moved to it: that all have it is not known
        return f"{'all' if together >= 0.995 and profile.error is None else 'mostly'} {words}"
    if profile.effect > 0 and profile.category >= 0:
        return f"more {of}{_short(levels[profile.category])}"
    return f"hardly any {of}{_short(levels[profile.category])}" if profile.category >= 0 else ""


def _is_yes_or_no(profile: ColumnProfile) -> bool:
    """Whether nearly all values of all rows are 0 or 1."""
    bars = profile.all.bars
    return float(bars[0] + bars[-1]) > 0.8 and profile.all.ends == (0.0, 1.0)


def _short(text: str) -> str:
    """Shorten a long name at the end of a word."""
    if len(text) <= _MAX_NAME:
        return text
    kept = text[: _MAX_NAME - 1]
    return (kept.rsplit(" ", 1)[0] if " " in kept else kept).rstrip(" ,;:(-") + "…"


# ------------------------------------------------------------ words for texts


def words_of_texts(
    schema: Any, nodes: Floats, counts: Floats, labels: Integers, described: Sequence[int]
) -> dict[str, dict[int, list[str]]]:
    """Return, for each text column, a few words for each cluster.

    The words come from the vocabulary of the encoder, which is public, and from the means of nodes, which sites have
    sent anyway: no text is read, so this holds under privacy. Columns whose encoder has no vocabulary of its own, or is
    not installed here, are left out.
    """
    chosen = [k for k in described if (labels == k).any()]
    if schema is None or len(chosen) < 2:
        return {}
    found: dict[str, dict[int, list[str]]] = {}
    at = 0
    for column in schema.fields:
        width = len(column.feature_names)
        features, at = slice(at, at + width), at + width
        if getattr(column, "kind", None) != "text":
            continue
        own = nodes[:, features]
        centers = np.array([np.average(own[labels == k], axis=0, weights=counts[labels == k]) for k in chosen])
        words = _nearest_words(centers, column.encoder)
        if words is not None:
            found[column.name] = dict(zip(chosen, words, strict=True))
    return found


def _nearest_words(centers: Floats, name: str | None) -> list[list[str]] | None:
    from fcac.tables.text_encoder import encoder, words_from_vocabulary

    try:
        known = encoder(name) if name else encoder()
        return words_from_vocabulary(centers, known, n_words=_N_WORDS)
    except (RequestError, ValueError):  # not installed or not trusted here, or without a vocabulary
        return None


def with_words(profiles: Profiles, words: dict[str, dict[int, list[str]]]) -> Profiles:
    """Return profiles whose clusters carry their words, and are named after those of the first text column."""
    if not words:
        return profiles
    first = next(iter(words.values()))
    clusters = {}
    for label, profile in profiles.clusters.items():
        mine = [(column, by_cluster[label]) for column, by_cluster in words.items() if label in by_cluster]
        said = ", ".join(first.get(label, [])[:_IN_NAME])
        more = profile.name if profile.columns and profile.name != "close to the average" else ""
        clusters[label] = replace(profile, name="; ".join(part for part in (said, more) if part), words=mine)
    return replace(profiles, clusters=clusters)
