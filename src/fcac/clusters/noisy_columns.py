"""Noisy nodes of tables with categories: factors that columns share, without the noise, and clusters along them.

A released node of a mixed table is the mean of some rows plus noise, and rows fall into cells by any combination of
levels: diagnosis times sex. A graph of a hundred such nodes finds borders between the combinations. But if columns are
independent of each other inside a group, all that they share is the group: their common covariance has one factor less
than there are groups (latent class analysis). So the known variance of the noise is subtracted from the covariance of
the nodes, the factors above chance are counted by parallel analysis, and the nodes are clustered by Ward's method and
k-means on their factor scores, with one cluster more than there are factors. Groups in one line share a factor: so a
cluster whose scores fall into two, by the test of Duda and Hart, is split. These clusters are taken unless those of the
graph stand apart more clearly, and clearly enough: groups that only one column knows share nothing, and only the graph
sees them. Everything is computed from released values and public scales, so it costs nothing of a privacy budget.

References
----------
J. L. Horn, "A rationale and test for the number of factors in factor analysis", Psychometrika 30, 1965.
R. O. Duda and P. E. Hart, "Pattern Classification and Scene Analysis", 1973, section 6.12 (one cluster or two).
G. H. Thomson, "The Factorial Analysis of Human Ability", 1951 (scores by regression).
F. Husson, J. Josse and J. Pages, "Principal component methods, hierarchical clustering, partitional clustering: why
would we need to choose for visualizing data?", 2010.
L. Kaufman and P. J. Rousseeuw, "Finding Groups in Data", 1990 (what a silhouette says).
G. W. Milligan and M. C. Cooper, "An examination of procedures for determining the number of clusters in a data set",
Psychometrika 50, 1985.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fcac._typing import Floats, Integers
from fcac.clusters.column_metric import whitening_of
from fcac.clusters.noisy_merge import Groups
from fcac.clusters.noisy_nodes import Noise, deviations, reliable_counts, tree_of
from fcac.clusters.snapshot import Fitted
from fcac.tables.kind import Block

# With fewer nodes nothing can be said about covariances; with more than the other number Ward's method needs too much
# memory, and a graph of so many nodes averages the noise out by itself.
_FEWEST, _MOST = 10, 3000
# Parallel analysis: shuffles, the quantile a factor has to exceed, and the public seed.
_SHUFFLES, _QUANTILE, _SEED = 20, 0.95, 1965
# A column of which noise leaves nothing is not blown up beyond this share of its noise.
_LEAST_OF_NOISE = 0.1
# No column is known better from the factors than up to this share of its variance.
_LEAST_UNIQUE = 0.1
_ITERATIONS = 20
# Deviations from what one Gaussian cluster would show, beyond which it is two: the value that Milligan and Cooper
# found best. Fewer nodes than the other number are not split.
_TWO, _LEAST_SPLIT = 3.2, 6
# Clusters of the graph are believed from here on: "a reasonable structure has been found" (Kaufman and Rousseeuw).
_REASONABLE = 0.5


class _Spectrum(NamedTuple):
    whitening: Floats
    correlation: Floats
    values: Floats
    vectors: Floats


def read_columns(
    graph: Fitted, noise: Mapping[Any, Noise], blocks: Sequence[Block], n_clusters: int | None = None
) -> Fitted:
    """Return the reading of noisy nodes of a mixed table: by shared factors if that is clearer, else by the graph."""
    n = len(graph.points)
    if not _FEWEST <= n <= _MOST:
        return graph
    held = dict(zip(graph.sites, graph.parts, strict=True))
    deviation, count_deviation = deviations(graph.sites, held, noise)
    weights = reliable_counts(graph.counts, count_deviation)
    found = shared_factors(graph.nodes, deviation**2, weights, blocks)
    if found is None:
        return graph
    k = min(found.shape[1] + 1 if n_clusters is None else n_clusters, n)
    factors = Fitted(held, graph.sites, map=found)
    groups = ward_groups(graph.nodes @ found, weights, k, more=n_clusters is None)
    first = graph.first
    by_graph = (graph.tree() if n_clusters is None else graph.tree().into(k)).labels()
    by_factors = groups.labels[first]
    if _clearness(graph.points, by_graph) > max(_clearness(graph.points, by_factors), _REASONABLE):
        return graph
    factors.take_tree(tree_of(groups, factors))
    return factors


def shared_factors(nodes: Floats, variance: Floats, weights: Floats, blocks: Sequence[Block]) -> Floats | None:
    """Return the matrix from features to scores of the factors that columns share; None if they share nothing.

    `variance` is that of the nodes' noise, `weights` the rows each stands for. Two columns that tell the same groups,
    and one that tells nothing:

    >>> from fcac.tables.kind import Block
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=200)
    >>> true = np.column_stack([3 * group, 2 * group, rng.integers(2, size=200)]) + rng.normal(size=(200, 3)) / 2
    >>> nodes = true + rng.normal(size=true.shape) / 2
    >>> blocks = [Block(1, "number"), Block(1, "number"), Block(1, "category")]
    >>> factors = shared_factors(nodes, np.full(nodes.shape, 0.25), np.ones(200), blocks)
    >>> factors.shape, bool(abs(factors[2, 0]) < 0.1 * abs(factors[0, 0]))
    ((3, 1), True)
    """
    # in an order of their own, so that shuffles do not depend on the order of sites
    order = np.lexsort(nodes.T)
    nodes, variance, weights = nodes[order], variance[order], weights[order] / weights.sum()
    seen = _spectrum(nodes, variance, weights, blocks)
    starts = np.cumsum([0, *(block.width for block in blocks)])
    rng, by_chance = np.random.default_rng(_SEED), []
    for _ in range(_SHUFFLES):
        shuffled, noise = np.empty_like(nodes), np.empty_like(variance)
        for start, end in pairwise(starts):
            turn = rng.permutation(len(nodes))
            shuffled[:, start:end], noise[:, start:end] = nodes[turn, start:end], variance[turn, start:end]
        by_chance.append(_spectrum(shuffled, noise, weights, blocks).values)
    above = seen.values > np.maximum(np.quantile(by_chance, _QUANTILE, axis=0), 1.0)
    n_factors = len(above) if above.all() else int(np.argmin(above))
    if n_factors == 0:
        return None
    column_weight = np.repeat([block.weight for block in blocks], [block.width for block in blocks])
    return seen.whitening @ _scores(seen, n_factors, column_weight)


def ward_groups(points: Floats, weights: Floats, n_groups: int, *, more: bool = False) -> Groups:
    """Return groups by Ward's method, consolidated by k-means; finer and coarser ones by Ward's method inside them.

    With `more`, groups that are clearly two are split.

    >>> ward_groups(np.array([[0.0], [0.1], [5.0], [5.2], [9.0]]), np.ones(5), 3).labels.tolist()
    [0, 0, 1, 1, 2]
    """
    labels = _ward_labels(points, weights, n_groups)
    if more:
        labels = _split_in_two(points, weights, labels)
    n, n_groups = len(points), int(labels.max()) + 1
    joins: list[tuple[int, int]] = []
    stands_for = np.empty(n_groups, dtype=np.int64)
    for group in range(n_groups):
        own = np.flatnonzero(labels == group)
        stands_for[group] = own[0]
        joins += [(int(own[i]), int(own[j])) for i, j in _ward(points[own], weights[own])]
    mass: Floats = np.bincount(labels, weights=weights, minlength=n_groups).astype(np.float64)
    between = _ward(_centres(points, weights, labels), mass)
    joins += [(int(stands_for[i]), int(stands_for[j])) for i, j in between]
    probability = np.full(n_groups, 0.5)
    if 2 <= n_groups < n:
        from sklearn.metrics import silhouette_samples

        apart = silhouette_samples(points, labels)
        # a silhouette of 0 is a group no nearer to itself than to another, one of 1 a group far from all
        probability = 0.5 + 0.5 * np.clip(np.bincount(labels, weights=apart) / np.bincount(labels), 0.0, 1.0)
    return Groups(labels, points, np.arange(n), joins, n - n_groups, probability)


def _ward_labels(points: Floats, weights: Floats, n_groups: int) -> Integers:
    """Return the group of each point."""
    root = np.arange(len(points))
    for into, gone in _ward(points, weights)[: len(points) - n_groups]:
        root[root == gone] = into
    labels: Integers = np.unique(root, return_inverse=True)[1]
    for _ in range(_ITERATIONS):
        near = ((points[:, None, :] - _centres(points, weights, labels)) ** 2).sum(axis=2).argmin(axis=1)
        if np.array_equal(near, labels) or len(np.unique(near)) < n_groups:
            break
        labels = near
    return labels


def _split_in_two(points: Floats, weights: Floats, labels: Integers) -> Integers:
    """Split groups, and what comes of them, for as long as the test of Duda and Hart says that one is two.

    Of a Gaussian in p dimensions, two halves have 1 - 2 / (pi p) of its sum of squares, give or take a deviation that
    falls with the number of points. Points count by their weights, so that their number is Kish's effective one.
    """
    labels, p = labels.copy(), points.shape[1]
    waiting = list(range(int(labels.max()) + 1))
    while waiting:
        group = waiting.pop()
        members = np.flatnonzero(labels == group)
        if len(members) < _LEAST_SPLIT:
            continue
        own, mass = points[members], weights[members]
        half = _ward_labels(own, mass, 2)
        whole = _squares(own, mass, np.zeros(len(own), dtype=np.int64))
        n = mass.sum() ** 2 / (mass**2).sum()
        deviation = np.sqrt(2.0 * (1.0 - 8.0 / (np.pi**2 * p)) / (n * p))
        if _squares(own, mass, half) < (1.0 - 2.0 / (np.pi * p) - _TWO * deviation) * whole:
            new = int(labels.max()) + 1
            labels[members[half == 1]] = new
            waiting += [group, new]
    return labels


def _squares(points: Floats, weights: Floats, labels: Integers) -> float:
    """Return the sum of squared distances to the centres of groups."""
    return float(weights @ ((points - _centres(points, weights, labels)[labels]) ** 2).sum(axis=1))


def _spectrum(nodes: Floats, variance: Floats, weights: Floats, blocks: Sequence[Block]) -> _Spectrum:
    """Return the correlations of columns without the noise, and their components, the largest first."""
    apart = nodes - weights @ nodes
    noise = weights @ variance
    covariance = (apart * weights[:, None]).T @ apart - np.diag(noise)
    whitening, _ = whitening_of(covariance, blocks, _LEAST_OF_NOISE * noise)
    correlation = whitening @ covariance @ whitening
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2.0)
    return _Spectrum(whitening, correlation, values[::-1], vectors[:, ::-1])


def _scores(seen: _Spectrum, n_factors: int, column_weight: Floats) -> Floats:
    """Return Thomson's regression scores of principal factors: columns count by how much of them is shared."""
    variance = np.diag(seen.correlation)
    loadings = seen.vectors[:, :n_factors] * np.sqrt(np.maximum(seen.values[:n_factors] - 1.0, 0.05))
    unique = np.maximum(variance - (loadings**2).sum(axis=1), _LEAST_UNIQUE)
    for _ in range(_ITERATIONS):
        values, vectors = np.linalg.eigh((seen.correlation + seen.correlation.T) / 2.0 - np.diag(unique))
        loadings = vectors[:, -n_factors:] * np.sqrt(np.maximum(values[-n_factors:], 1e-3))
        # Feature by feature, although levels of a category exclude each other: what levels have for themselves is then
        # overstated, and a category says less than it seems to. Whole matrices of columns did worse (AMI lower by .05).
        unique = np.maximum(variance - (loadings**2).sum(axis=1), _LEAST_UNIQUE)
    precise = loadings * (column_weight / unique)[:, None]
    scores: Floats = precise @ np.linalg.inv(np.eye(n_factors) + loadings.T @ precise)
    # the signs of a decomposition are arbitrary: the largest entry of each column is made positive
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(n_factors)]
    return scores * np.where(largest < 0, -1.0, 1.0)


def _ward(points: Floats, weights: Floats) -> list[tuple[int, int]]:
    """Join points, those first whose joining adds least to the variance inside; the second vanishes into the first."""
    n = len(points)
    centres, mass = points.copy(), weights.astype(np.float64)
    cost = np.full((n, n), np.inf)
    for i in range(n):
        cost[i, :i] = cost[:i, i] = _added(centres[i], mass[i], centres[:i], mass[:i])
    best = cost.argmin(axis=1)
    lowest = cost[np.arange(n), best]
    alive = np.ones(n, dtype=bool)
    joins: list[tuple[int, int]] = []
    for _ in range(n - 1):
        one = int(np.argmin(lowest))
        i, j = sorted((one, int(best[one])))
        joins.append((i, j))
        centres[i] = (mass[i] * centres[i] + mass[j] * centres[j]) / (mass[i] + mass[j])
        mass[i] += mass[j]
        alive[j] = False
        cost[j] = cost[:, j] = lowest[j] = np.inf
        others = np.flatnonzero(alive)
        others = others[others != i]
        cost[i, others] = cost[others, i] = _added(centres[i], mass[i], centres[others], mass[others])
        # whose best partner was one of the two looks again; the others compare with what has changed
        again = others[np.isin(best[others], (i, j))]
        for row in (i, *again):
            best[row] = cost[row].argmin()
            lowest[row] = cost[row, best[row]]
        nearer = others[cost[others, i] < lowest[others]]
        best[nearer], lowest[nearer] = i, cost[nearer, i]
    return joins


def _added(centre: Floats, mass: float, centres: Floats, masses: Floats) -> Floats:
    added: Floats = ((centres - centre) ** 2).sum(axis=1) * masses * mass / (masses + mass)
    return added


def _centres(points: Floats, weights: Floats, labels: Integers) -> Floats:
    mass: Floats = np.bincount(labels, weights=weights).astype(np.float64)
    sums = [np.bincount(labels, weights=weights * column) for column in points.T]
    centres: Floats = np.stack(sums, axis=1) / mass[:, None]
    return centres


def _clearness(points: Floats, labels: Integers) -> float:
    """Silhouette of clusters (Rousseeuw 1987); 0 where there is none."""
    if not 2 <= len(np.unique(labels)) < len(labels):
        return 0.0
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, labels))
