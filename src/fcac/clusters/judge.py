"""The judge: which borders of a proposed hierarchy are real, in log-odds.

Every inner node of a hierarchy gets the log-odds that its two sides are different clusters, from boosted trees over the
evidence of :mod:`fcac.clusters.evidence` (Friedman 2001; monotone where more evidence can only speak for a border).
They were fitted on generated tables by ``benchmarks/fit_judge.py``, which also measures how often such odds are right
on families of tables that were left out. Everything reads the same odds: the default cut, the cut into a given number
of clusters, other numbers and their probabilities, and how sure each cluster is.

The default cut parts a node if the log-odds of its border are positive, together with those of the surest border below
it: a border between groups of clusters may be faint, but many doubtful borders do not make a sure one. A cut into a
given number of clusters is the one with the largest sum of log-odds, found exactly by dynamic programming. How ready
the judge is to see a border at all is a prior: how often a table without clusters may come out as several.

References
----------
J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29 (2001).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from fcac._kernels import kernel
from fcac._typing import Floats, Integers
from fcac.clusters.evidence import NEAREST, Nodes, evidence
from fcac.clusters.evidence_sums import lengths_of
from fcac.clusters.midpoints import midpoint_log_density, power_of
from fcac.clusters.proposals import MOST_ATOMS, Hierarchy, proposed
from fcac.clusters.snn_graph import SNNEdges, dimension_of
from fcac.search.exact import NeighborLists

# No single border counts for more: evidence that is overwhelming in one place must not pay for doubtful ones.
MOST_ODDS = 6.0
# Numbers of clusters up to this one are weighed against each other.
MOST_NUMBER = 60


class Judge(NamedTuple):
    """Boosted trees, and how their sums are read.

    A node of a tree looks at column `feature` (-1: a leaf) and goes left up to the threshold; a leaf adds its value.
    `rates` are shares of tables without clusters that are split, `asked` the log-odds to ask of every border for that.
    `slope` and `intercept` calibrate log-odds beyond what is asked; `warmth` and `doubt`: see
    :func:`number_probabilities`.
    """

    base: float
    feature: Integers
    left: Integers
    right: Integers
    threshold: Floats
    value: Floats
    rates: Floats
    asked: Floats
    slope: float
    intercept: float
    warmth: float
    doubt: float

    @classmethod
    @cache
    def fitted(cls) -> Judge:
        """The judge that comes with the package."""
        with resources.files("fcac.clusters").joinpath("judge.npz").open("rb") as file:
            parts = np.load(file, allow_pickle=False)
            arrays: dict[str, Any] = {name: np.ascontiguousarray(parts[name]) for name in cls._fields}
            # numbers are stored as arrays of one
            return cls(**{name: array.item() if parts[name].ndim == 0 else array for name, array in arrays.items()})

    def log_odds(self, rows: Floats) -> Floats:
        """Return the log-odds that a border is real, for rows of evidence."""
        odds: Floats = _sums(
            np.ascontiguousarray(rows), self.base, self.feature, self.threshold, self.left, self.right, self.value
        )
        return odds

    def asked_for(self, false_split_rate: float) -> float:
        """Return the log-odds to ask of a border so that so many tables without clusters are split.

        Between the rates that were measured it is interpolated in their log-odds.
        """
        rate = np.clip(false_split_rate, self.rates[0], self.rates[-1])
        places = np.log(self.rates / (1 - self.rates))
        return float(np.interp(np.log(rate / (1 - rate)), places, self.asked))


@kernel
def _sums(rows: Any, base: float, feature: Any, threshold: Any, left: Any, right: Any, value: Any) -> Any:
    out = np.full(rows.shape[0], base)
    for i in range(rows.shape[0]):
        for t in range(feature.shape[0]):
            at = 0
            while feature[t, at] >= 0:
                at = left[t, at] if rows[i, feature[t, at]] <= threshold[t, at] else right[t, at]
            out[i] += value[t, at]
    return out


def examined(
    points: Floats, mass: Floats, lists: NeighborLists, most: int = MOST_ATOMS
) -> tuple[list[Hierarchy], list[Floats]]:
    """Return the proposed hierarchies of nodes, of at most `most` atoms, and the evidence about their inner nodes."""
    near, squared = lists
    middle, farthest = squared[:, 1], squared[:, 2]
    dimension = dimension_of(middle, farthest, near.shape[1])
    edges = SNNEdges.of(near)
    graph = edges.weighted_graph(middle, farthest, mass, dimension)
    at_edges = midpoint_log_density(points, mass, near, edges.starts, edges.ends, dimension).astype(np.float64)
    held = mass + mass[near[:, : near.shape[1] // 2]].sum(axis=1)
    at_nodes: Floats = np.log(held) - 0.5 * power_of(dimension) * np.log(np.maximum(middle, 1e-300))
    lengths = lengths_of(points, near, NEAREST)
    nodes = Nodes(points, mass, near, lengths, graph, at_edges, at_nodes, dimension)
    hierarchies = proposed(points, near, lengths, graph, most)
    return hierarchies, evidence(nodes, hierarchies)


# ------------------------------------------------------------ cuts


@kernel
def default_cut(left: Any, right: Any, gain: Any) -> Any:
    """Which inner nodes to part: those whose border, together with the surest way on below it, has positive odds."""
    n = left.shape[0]
    p = (n + 1) // 2
    worth = np.zeros(n)
    for x in range(p, n):
        worth[x] = max(0.0, gain[x - p] + max(worth[left[x]], worth[right[x]]))
    parted = np.zeros(n, dtype=np.bool_)
    reached = np.zeros(n, dtype=np.bool_)
    reached[n - 1] = True
    for x in range(n - 1, p - 1, -1):
        if reached[x] and worth[x] > 0:
            parted[x] = True
            reached[left[x]] = reached[right[x]] = True
    return parted


@kernel
def best_cuts(left: Any, right: Any, gain: Any, most: int) -> Any:
    """The largest sum of gains of a cut into 1, 2, ... parts below every tree node, and how many parts go left."""
    n = left.shape[0]
    p = (n + 1) // 2
    best = np.full((n, most + 1), -np.inf)
    leftwards = np.zeros((n, most + 1), dtype=np.int64)
    leaves = np.ones(n, dtype=np.int64)
    best[:, 1] = 0.0
    for x in range(p, n):
        a, b = left[x], right[x]
        leaves[x] = leaves[a] + leaves[b]
        for i in range(1, min(most, leaves[a]) + 1):
            for j in range(1, min(most - i, leaves[b]) + 1):
                sum_of = best[a, i] + best[b, j] + gain[x - p]
                if sum_of > best[x, i + j]:
                    best[x, i + j], leftwards[x, i + j] = sum_of, i
    return best[n - 1], leftwards


@kernel
def parted_into(left: Any, right: Any, leftwards: Any, wanted: int) -> Any:
    """Which inner nodes the best cut into so many parts parts."""
    n = left.shape[0]
    p = (n + 1) // 2
    parts = np.zeros(n, dtype=np.int64)
    parts[n - 1] = wanted
    parted = np.zeros(n, dtype=np.bool_)
    for x in range(n - 1, p - 1, -1):
        if parts[x] > 1:
            parted[x] = True
            parts[left[x]] = leftwards[x, parts[x]]
            parts[right[x]] = parts[x] - parts[left[x]]
    return parted


@kernel
def part_of_atoms(left: Any, right: Any, parted: Any) -> Any:
    """Tree node at which the way down from the root ends, for every atom."""
    n = left.shape[0]
    p = (n + 1) // 2
    part = np.full(n, -1, dtype=np.int64)
    open_ = np.zeros(n, dtype=np.bool_)
    open_[n - 1] = True
    for x in range(n - 1, -1, -1):
        if open_[x]:
            if x >= p and parted[x]:
                open_[left[x]] = open_[right[x]] = True
            else:
                part[x] = x
        if part[x] >= 0 and x >= p:
            part[left[x]] = part[right[x]] = part[x]
    return part[:p]


class Parting(NamedTuple):
    """The default cut of one hierarchy: the inner nodes it parts, and the part of every atom.

    `by_number` is the sum of gains of the best cut into 1, 2, ... parts; the number of the default cut has the largest.
    """

    parted: Any
    of_atom: Integers
    by_number: Floats

    @classmethod
    def best(cls, left: Integers, right: Integers, odds: Floats) -> Parting:
        """Cut by log-odds beyond what is asked."""
        gain = np.minimum(odds, MOST_ODDS)
        parted = default_cut(left, right, gain)
        found = int(parted.sum())
        by_number = best_cuts(left, right, gain, min(len(gain) + 1, max(MOST_NUMBER, found + 1)))[0][1:]
        by_number[found] = by_number.max()
        return cls(parted[len(gain) + 1 :], part_of_atoms(left, right, parted), by_number)


def number_probabilities(by_number: Floats, warmth: float, doubt: float) -> Floats:
    """Return the probability of 1, 2, ... clusters, from the sum of log-odds of the best cut into each number.

    The sums are divided by `warmth`: evidence about the borders of one table is not independent. With probability
    `doubt` the evidence misleads altogether; then any number may be true, smaller ones rather.
    """
    weights = np.exp((by_number - by_number.max()) / warmth)
    blind = np.where(np.isfinite(by_number), 1.0 / np.arange(1, len(by_number) + 1), 0.0)
    probable: Floats = (1 - doubt) * weights / weights.sum() + doubt * blind / blind.sum()
    return probable


def chosen(cuts: list[Parting], shared: Any) -> int:
    """Return which hierarchy's cut is taken: the one that agrees most with the others, by the adjusted Rand index.

    But where the first, that of the graph, has one cluster, so does the answer, and a cut into more than twice as many
    parts is not taken: hierarchies of distances break off rows far out one by one. `shared` counts the nodes that atoms
    of two hierarchies share.
    """
    if not cuts[0].parted.any():
        return 0
    parts = [np.unique(cut.of_atom, return_inverse=True)[1] for cut in cuts]
    total = np.zeros(len(parts))
    for i in range(len(parts)):
        for j in range(i):
            pairs = np.zeros((int(parts[i].max()) + 1, int(parts[j].max()) + 1))
            np.add.at(pairs, (parts[i][:, None], parts[j][None]), shared[i, j])
            alike = adjusted_rand(pairs)
            total[i] += alike
            total[j] += alike
    sizes = np.array([part.max() + 1 for part in parts])
    return int(np.argmax(np.where(sizes <= 2 * sizes[0], np.round(total, 9), -np.inf)))


def adjusted_rand(pairs: Floats) -> float:
    """Adjusted Rand index of two partitions, from how much each two of their parts share.

    >>> adjusted_rand(np.array([[5.0, 0.0], [0.0, 5.0]])), adjusted_rand(np.array([[10.0]]))
    (1.0, 1.0)
    """

    def pairs_in(values: Floats) -> float:
        return float((values * (values - 1) / 2).sum())

    both, one, other = pairs_in(pairs), pairs_in(pairs.sum(axis=1)), pairs_in(pairs.sum(axis=0))
    by_chance = one * other / max(pairs_in(pairs.sum(keepdims=True)), 1.0)
    most = (one + other) / 2
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)
