"""Clusters of tables that hold levels only (yes or no, categories): latent classes.

Rows of levels coincide or differ by whole steps, so that there is no density between them to look for a gap in. What
makes a group of such rows is that some levels go together: inside a group columns are independent, and the columns of
the whole are not. That is the latent class model (Lazarsfeld and Henry 1968), a mixture of independent columns, fitted
by expectation and maximisation (Goodman 1974). The number of classes is the one of the largest log-likelihood
less one and a half for every parameter (AIC3, Bozdogan 1994), which counts classes of categories best (Andrews and
Currim 2003, and generated tables, where BIC sees too few). Classes that share many rows are one heap that takes several
classes to describe, as a smooth trait does; they are joined.

References
----------
P. F. Lazarsfeld, N. W. Henry, "Latent Structure Analysis", 1968.
L. A. Goodman, "Exploratory latent structure analysis using both identifiable and unidentifiable models", Biometrika 61,
1974.
H. Bozdogan, "Mixture-model cluster analysis using model selection criteria", 1994.
R. L. Andrews, I. S. Currim, "A comparison of segment retention criteria for finite mixture logit models", Journal of
Marketing Research 40, 2003.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fcac._typing import Floats, Integers
from fcac.clusters.cluster_tree import Tree
from fcac.tables.kind import Block

# Two classes are one if so large a share of the smaller one could as well be the other's: where two bell curves of one
# size touch without a dip between them it is a third.
_SHARED = 0.2
# Each number of classes is begun from so many drawings of rows, the best of which after a few steps is carried on.
_STARTS, _FEW_STEPS, _MOST_STEPS = 6, 15, 200
# What a parameter must gain in the logarithm of likelihood (AIC3).
_PRICE = 1.5
# Steps end when a row gains less than this on average.
_GAIN = 1e-6
# More classes are tried until so many numbers in a row were no better.
_PATIENCE = 2
# Beyond so many values the steps would take minutes; the graph is read instead.
_MOST_VALUES = 2_000_000
# A mean of zeros and ones, times its number of rows, is whole up to this.
_WHOLE = 1e-6


class Levels(NamedTuple):
    """Distinct rows of a table that holds levels only: shares of levels in the rows behind each point.

    Shares of one column add up to one. `n_free` is the number of parameters of a class: levels of each column but one.
    """

    shares: Floats
    mass: Floats
    n_free: int


class _Fit(NamedTuple):
    """A number of classes with its evidence, its levels, and how probably each point belongs to each."""

    evidence: float
    levels: Floats
    belongs: Floats


def levels_of(points: Floats, mass: Floats, blocks: Sequence[Block] | None) -> Levels | None:
    """Return a table of levels as shares of each; None if there is anything else in it, or too much for this method.

    Columns of two values are told by these, also where a point is the mean of several rows. Neighbouring ones of which
    exactly one is set in every row are one category.
    """
    if blocks is not None and any(block.kind != "category" for block in blocks):
        return None
    n, d = points.shape
    # any two rows have but two values in every column
    if n < 3 or 2 * n * d > _MOST_VALUES:
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    # a column that does not vary tells nothing
    shares = (points - low) / np.where(high > low, high - low, 1.0)
    rows = shares * mass[:, None]
    if not ((shares < _WHOLE) | (shares > 1 - _WHOLE) | (np.abs(rows - np.rint(rows)) < _WHOLE)).all():
        return None
    widths = _widths(shares) if blocks is None else [block.width for block in blocks]
    parts, n_free = [], 0
    for part in np.split(shares, np.cumsum(widths)[:-1], axis=1):
        varying = part[:, np.ptp(part, axis=0) > 0]
        rest = 1.0 - varying.sum(axis=1, keepdims=True)
        if rest.min() < -_WHOLE:
            return None
        if varying.shape[1]:
            parts.append(varying)
            if rest.max() > _WHOLE:
                parts.append(np.maximum(rest, 0.0))
            n_free += varying.shape[1] - (rest.max() <= _WHOLE)
    # what goes together shows in two columns at least
    if len([width for width in widths if width]) < 2 or n_free < 2:
        return None
    return Levels(np.concatenate(parts, axis=1), mass, int(n_free))


def _widths(shares: Floats) -> list[int]:
    """How many features each column has: several if one of them is set in every row."""
    widths, start, d = [], 0, shares.shape[1]
    while start < d:
        total, width = np.zeros(len(shares)), 1
        for end in range(start, d):
            total = total + shares[:, end]
            if total.max() > 1 + _WHOLE:
                break
            if total.min() > 1 - _WHOLE:
                width = end + 1 - start
                break
        widths.append(width)
        start += width
    return widths


def latent_tree(table: Levels, n_clusters: int | None = None) -> Tree:
    """Return latent classes as a tree over the points; of so many clusters, if that is known.

    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=600)
    >>> yes = rng.random((600, 8)) < np.where(group, 0.8, 0.2)[:, None]
    >>> rows, which, mass = np.unique(yes * 1.0, axis=0, return_inverse=True, return_counts=True)
    >>> labels = latent_tree(levels_of(rows, mass * 1.0, None)).labels()[which]
    >>> labels.max(), bool(max((labels == group).mean(), (labels != group).mean()) > 0.9)
    (np.int64(1), True)
    """
    # in an order of their own, so that drawings do not depend on the order of sites
    order = np.lexsort(table.shares.T)
    own = Levels(table.shares[order], table.mass[order], table.n_free)
    fits = _fits(own, n_clusters)
    best = max(fits, key=lambda fit: fit.evidence)
    belongs = best.belongs[np.argsort(order, kind="stable")]
    likely = belongs.argmax(axis=1)
    used = np.unique(likely)
    belongs = belongs[:, used] / np.maximum(belongs[:, used].sum(axis=1, keepdims=True), 1e-300)
    parts = [np.flatnonzero(likely == k) for k in used]
    between, n_joined, firm = _joins(belongs, table.mass, _SHARED if n_clusters is None else np.inf)
    finer = max(2 * len(parts) + 4, n_clusters or 0)
    splits = _split(parts, table, finer)
    atom_of = np.empty(len(likely), dtype=np.int64)
    for number, part in enumerate(parts):
        atom_of[part] = number
    joins = [*reversed(splits), *between]
    evidence = np.array([fit.evidence for fit in fits])
    probable = np.exp(evidence - evidence.max())
    probable /= probable.sum()
    if len(firm) == 1:
        firm = np.array([probable[int(evidence.argmax())]])
    # evidence is of classes; joined ones are fewer clusters than that
    known = n_clusters is None and n_joined == 0 and len(used) == 1 + int(evidence.argmax())
    tree = Tree.of_joins(atom_of, joins, len(splits) + n_joined, firm, probable if known else np.zeros(0))
    # clusters are numbered by first point
    root = np.arange(len(parts))
    for into, gone in joins[: len(splits) + n_joined]:
        root[root == gone] = into
    kept = {part: position for position, part in enumerate(sorted(set(root.tolist())))}
    sure = np.zeros(tree.n_clusters)
    sure[tree.labels()] = firm[[kept[part] for part in root[atom_of].tolist()]]
    return replace(tree, sure=sure)


def _fits(table: Levels, n_clusters: int | None) -> list[_Fit]:
    """Fits of one class, two classes and so on until more are no better; of the number that is wanted only."""
    rng = np.random.default_rng(len(table.mass))
    if n_clusters is not None:
        return [_best_of(table, min(n_clusters, len(table.mass)), rng)]
    fits: list[_Fit] = []
    best = 0
    while len(fits) - best <= _PATIENCE and len(fits) < len(table.mass):
        fits.append(_best_of(table, len(fits) + 1, rng))
        if fits[-1].evidence > fits[best].evidence:
            best = len(fits) - 1
    return fits


def _best_of(table: Levels, k: int, rng: np.random.Generator) -> _Fit:
    """The best fit of k classes from several starts."""
    whole = table.mass @ table.shares / table.mass.sum()
    if k == 1:
        return _steps(table, whole[None], whole, 1)
    starts = [_steps(table, (_drawn(table, k, rng) + whole) / 2, whole, _FEW_STEPS) for _ in range(_STARTS)]
    return _steps(table, max(starts, key=lambda fit: fit.evidence).levels, whole, _MOST_STEPS)


def _drawn(table: Levels, k: int, rng: np.random.Generator) -> Floats:
    """Rows far from one another, drawn by their squared distance from those before (Arthur and Vassilvitskii 2007)."""
    chosen: list[int] = []
    apart = np.ones(len(table.mass))
    for _ in range(k):
        weight = table.mass * apart
        chosen.append(int(rng.choice(len(weight), p=weight / weight.sum())) if weight.sum() > 0 else chosen[-1])
        to_last = ((table.shares - table.shares[chosen[-1]]) ** 2).sum(axis=1)
        apart = to_last if len(chosen) == 1 else np.minimum(apart, to_last)
    drawn: Floats = table.shares[chosen]
    return drawn


def _steps(table: Levels, levels: Floats, whole: Floats, most: int) -> _Fit:
    """Steps of expectation and maximisation; a row's worth of the whole table is added to every class."""
    n, k = table.mass.sum(), len(levels)
    share, before = np.full(k, 1.0 / k), -np.inf
    for step in range(1, most + 1):
        log = table.shares @ np.log(np.maximum(levels, 1e-12)).T + np.log(share)
        top = log.max(axis=1, keepdims=True)
        belongs = np.exp(log - top)
        total = belongs.sum(axis=1, keepdims=True)
        belongs /= total
        likelihood = float(table.mass @ (top + np.log(total))[:, 0])
        if step == most or likelihood - before < _GAIN * n:
            break
        before = likelihood
        rows = belongs * table.mass[:, None]
        size = rows.sum(axis=0)
        share = (size + 1.0 / k) / (n + 1.0)
        levels = (rows.T @ table.shares + whole) / (size + 1.0)[:, None]
    return _Fit(likelihood - _PRICE * (k * table.n_free + k - 1), levels, belongs)


def _joins(belongs: Floats, mass: Floats, most: float) -> tuple[list[tuple[int, int]], int, Floats]:
    """Joins of classes, those that share most first; how many of them share too much; how firm the rest are."""
    rows, names = belongs.copy(), list(range(belongs.shape[1]))
    joins: list[tuple[int, int]] = []
    n_joined, firm = 0, np.ones(1)
    while True:
        size = mass @ rows
        shared = np.array([mass @ np.minimum(rows, rows[:, [a]]) for a in range(len(names))])
        shared /= np.maximum(np.minimum(size, size[:, None]), 1e-300)
        np.fill_diagonal(shared, 0.0)
        if n_joined == len(joins):
            if shared.max() > most:
                n_joined += 1
            else:
                firm = 1.0 - shared.max(axis=0)
        if len(names) == 1:
            return joins, min(n_joined, len(joins)), firm
        a, b = sorted(divmod(int(shared.argmax()), len(names)))
        joins.append((names[a], names[b]))
        rows[:, a] += rows[:, b]
        rows, names = np.delete(rows, b, axis=1), names[:b] + names[b + 1 :]


def _split(parts: list[Integers], table: Levels, wanted: int) -> list[tuple[int, int]]:
    """Split parts in place at their most even level, the heaviest first, until there are as many as wanted."""
    splits: list[tuple[int, int]] = []
    waiting = {number: float(table.mass[part].sum()) for number, part in enumerate(parts) if len(part) > 1}
    while len(parts) < wanted and waiting:
        number = max(waiting, key=lambda name: (waiting[name], -name))
        part = parts[number]
        mean = np.average(table.shares[part], axis=0, weights=table.mass[part])
        even = int(np.average((table.shares[part] - mean) ** 2, axis=0, weights=table.mass[part]).argmax())
        above = table.shares[part, even] > mean[even]
        parts[number] = part[~above]
        parts.append(part[above])
        splits.append((number, len(parts) - 1))
        for name in splits[-1]:
            waiting.pop(name, None)
            if len(parts[name]) > 1:
                waiting[name] = float(table.mass[parts[name]].sum())
    return splits
