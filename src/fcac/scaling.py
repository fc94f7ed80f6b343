"""The scale of each feature in a distance: what the condenser of rows and the read-out of nodes both measure with.

Columns in one unit are compared as they are: their spreads carry meaning, as those of pixels, counts or coordinates do.
Columns in different units, as age and income, cannot be compared before each is divided by its spread. Which of the two
a table is shows in quantities that have a unit: if the spreads of all columns are of one order, or the quotients of
variance and mean of columns that reach down to zero (as counts, shares, levels and brightness do: a Poisson count has a
quotient of one), the columns share a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fcac._kernels import kernel
from fcac._typing import Booleans, Floats

#: What a user may ask for.
SCALES = ("auto", "none", "standard", "robust")

# Columns share a unit if the mean of their variances is at most so many times the geometric mean (the two agree if all
# are equal: Bartlett's statistic). Among two columns spreads may then differ eightfold: more is rare in one unit.
_ONE_UNIT = 4.0
# Columns reach down to zero if what lies below their smallest values is at most this share of their means.
_AT_ZERO = 0.1
# A column whose spread is this share of the largest is constant, and what varies in it is the rounding of numbers.
_CONSTANT = 1e-10
# The middle half of a normal column is so many standard deviations wide.
_MIDDLE_HALF = 1.349
# From this many nodes on means and variances are summed without copies of all nodes.
_SUMMED_FROM = 20_000


class Columns(NamedTuple):
    """What the scale of features is decided from; `middle` is the width of the middle half, where it was asked for."""

    mean: Floats
    variance: Floats
    low: Floats
    middle: Floats | None = None

    @classmethod
    def of(cls, means: Floats, weights: Floats, squares: Floats | None = None, scale: str = "auto") -> Columns:
        """Return what is known of the columns from weighted means of rows, and sums of squared deviations from them."""
        if weights.ndim == 1:
            mean, variance = moments(means, weights)
            total, low = weights.sum(), means.min(axis=0)
        else:
            total = np.maximum(weights.sum(axis=0), 1e-300)
            mean = (means * weights).sum(axis=0) / total
            variance = (weights * (means - mean) ** 2).sum(axis=0) / total
            low = np.where(weights > 0, means, np.inf).min(axis=0)
        if squares is not None:
            variance = variance + squares.sum(axis=0) / total
        return cls(mean, variance, low, _middle_halves(means, weights) if scale == "robust" else None)


@dataclass(frozen=True, eq=False)
class Scaling:
    """How columns were made comparable: the factor of each feature in a distance, and a sentence that says why.

    The `kind` is "none", "standard" (divided by spread), "robust" (by the width of the middle half), "noise" (in units
    of the noise that was added), "columns" (with categories, each column brought to one scale) or "levels" (clusters
    found without distances).
    """

    kind: str
    factors: Floats
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def check_scale(scale: Any) -> str:
    """Return the name of a scale, or say with a ``ValueError`` which there are."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}; it is {scale!r}")
    return str(scale)


def scaling_of(columns: Columns, scale: str = "auto") -> Scaling:
    """Return the scale of every column; "auto" divides by spread if columns are in different units.

    Spreads are rounded to powers of the root of two, so that a few new nodes hardly ever change the metric.

    >>> rng = np.random.default_rng(0)
    >>> ages = rng.normal([50, 40_000], [15, 15_000], size=(500, 2))
    >>> print(scaling_of(Columns.of(ages, np.ones(500))))
    columns divided by their spread, because their units differ: spreads differ 1,000-fold
    >>> words = rng.poisson([0.01, 0.02, 0.05, 0.1, 4.0], size=(500, 5)) * 1.0
    >>> print(scaling_of(Columns.of(words, np.ones(500))))
    columns as they are: they vary with their means, as counts do
    """
    variance = columns.variance
    as_they_are = np.ones(len(variance))
    largest = variance.max(initial=0.0)
    varies = variance > _CONSTANT**2 * largest if np.isfinite(largest) else np.zeros(len(variance), dtype=bool)
    if scale == "auto":
        if varies.sum() < 2 or _of_one_order(variance[varies]):
            return Scaling("none", as_they_are, "columns as they are: their spreads are of one order")
        if _vary_with_means(columns, varies):
            return Scaling("none", as_they_are, "columns as they are: they vary with their means, as counts do")
        fold = _in_words(np.sqrt(largest / variance[varies].min()))
        why = f", because their units differ: spreads differ {fold}-fold"
        return Scaling("standard", _divisors(variance, varies), f"columns divided by their spread{why}")
    if scale == "standard":
        return Scaling(scale, _divisors(variance, varies), 'columns divided by their spread (scale="standard")')
    if scale == "robust":
        assert columns.middle is not None
        width = columns.middle / _MIDDLE_HALF
        # a column of mostly one value has no middle half
        variance = np.where(width > _CONSTANT * np.sqrt(variance), width**2, variance)
        said = 'columns divided by the width of their middle half (scale="robust")'
        return Scaling(scale, _divisors(variance, varies), said)
    return Scaling("none", as_they_are, 'columns as they are (scale="none")')


def _of_one_order(squared: Floats) -> bool:
    """Whether squares of quantities with a unit are of one order."""
    logs = np.log(squared)
    return bool(np.log(np.exp(logs - logs.max()).mean()) + logs.max() - logs.mean() <= np.log(_ONE_UNIT))


def _vary_with_means(columns: Columns, varies: Booleans) -> bool:
    """Whether columns reach down to zero and agree in the quotient of variance and mean."""
    mean, low = columns.mean[varies], columns.low[varies]
    if (low < 0).any() or low.sum() > _AT_ZERO * mean.sum():
        return False
    return _of_one_order((columns.variance[varies] / mean) ** 2)


def _divisors(variance: Floats, varies: Booleans) -> Floats:
    """A factor for every column that varies: one over its spread; all ones where spreads are alike."""
    factors = np.ones(len(variance))
    log_spread = np.rint(np.log2(variance[varies])) / 2
    # where all spreads are alike distances are left in the units they came in
    if len(log_spread) and np.ptp(log_spread) > 0:
        factors[varies] = np.exp2(-log_spread)
    return factors


def _in_words(ratio: float) -> str:
    """A ratio to one significant digit, or two below ten."""
    return f"{ratio:.2g}" if ratio < 10 else f"{float(f'{ratio:.0e}'):,.0f}"


def moments(nodes: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of every feature over the records behind nodes."""
    if len(nodes) >= _SUMMED_FROM:
        centre: Floats = _weighted_mean(nodes, counts, np.zeros(nodes.shape[1]), 1)
        return centre, _weighted_mean(nodes, counts, centre, 2)
    centre = np.average(nodes, axis=0, weights=counts)
    return centre, np.average((nodes - centre) ** 2, axis=0, weights=counts)


@kernel
def _weighted_mean(nodes: Any, counts: Any, centre: Any, power: int) -> Any:
    """Weighted mean of each feature's gap to a centre, or of its square."""
    total, weight = np.zeros(nodes.shape[1]), 0.0
    for r in range(nodes.shape[0]):
        weight += counts[r]
        for j in range(nodes.shape[1]):
            gap = nodes[r, j] - centre[j]
            total[j] += counts[r] * (gap if power == 1 else gap * gap)
    return total / weight


def _middle_halves(means: Floats, weights: Floats) -> Floats:
    """Width of the middle half of every column."""
    widths = np.zeros(means.shape[1])
    for j, column in enumerate(means.T):
        order = np.argsort(column, kind="stable")
        below = np.cumsum((weights if weights.ndim == 1 else weights[:, j])[order])
        first, third = order[np.searchsorted(below, np.array([0.25, 0.75]) * below[-1])]
        widths[j] = column[third] - column[first]
    return widths
