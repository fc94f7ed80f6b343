"""The judge: which borders of the proposed hierarchies are real, and which partition is the best one.

It consists of two sums of boosted regression trees (Friedman 2001), fitted on generated tables by
``benchmarks/fit_judge.py``, which also measures how good they are on families of tables that were left out:

- *borders*: every inner node of a hierarchy gets the log-odds that its two sides are different clusters, from the
  evidence of :mod:`fcac.clusters.evidence`;
- *cuts*: the cuts of every hierarchy that are worth most by these odds get a score, how well they are expected to agree
  with the true partition, from the figures of :mod:`fcac.clusters.cuts` (stacked generalisation: Wolpert 1992).

Everything reads the same odds and scores: the clusters that are found, the best cut into a given number of them, other
numbers and their probabilities, and how sure each cluster is. How ready the judge is to see clusters at all is a prior:
how often a table without clusters may come out as several.

References
----------
J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29 (2001).
D. H. Wolpert, "Stacked generalization", Neural Networks 5 (1992).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from fcac._kernels import kernel
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters.cuts import MOST_NUMBER, Cuts, cells_of, described, offered
from fcac.clusters.evidence import NEAREST, Nodes, evidence
from fcac.clusters.evidence_sums import lengths_of
from fcac.clusters.midpoints import midpoint_log_density, power_of
from fcac.clusters.proposals import MOST_ATOMS, Hierarchy, proposed
from fcac.clusters.snn_graph import SNNEdges, dimension_of
from fcac.search.exact import NeighborLists


class Boosted(NamedTuple):
    """A sum of regression trees.

    A node of a tree looks at column `feature` (-1: a leaf) and goes left up to the threshold; a leaf adds its value.
    """

    base: float
    feature: Integers
    left: Integers
    right: Integers
    threshold: Floats
    value: Floats

    def of(self, rows: Floats) -> Floats:
        """Return the sum for every row."""
        return np.asarray(_sums(np.ascontiguousarray(rows), *self))


class Judge(NamedTuple):
    """What was fitted: the two sums of trees, and how they are read.

    `rates` are shares of tables without clusters that are split, `ahead` how far one cluster's score is set ahead for
    that. `parted` and `open` calibrate borders that were parted and those that were not: what to multiply their
    log-odds and those of the number of clusters by, and what to add. `warmth` and `doubt`: see
    :func:`number_probabilities`.
    """

    borders: Boosted
    cuts: Boosted
    rates: Floats
    ahead: Floats
    parted: Floats
    open: Floats
    warmth: float
    doubt: float

    @classmethod
    @cache
    def fitted(cls) -> Judge:
        """The judge that comes with the package."""
        with resources.files("fcac.clusters").joinpath("judge.npz").open("rb") as file:
            parts = np.load(file, allow_pickle=False)
            # numbers are stored as arrays of none
            read = {name: parts[name].item() if parts[name].ndim == 0 else parts[name] for name in parts.files}
            sums: Any = {of: Boosted(**{key: read[f"{of}.{key}"] for key in Boosted._fields}) for of in cls._fields[:2]}
            return cls(**sums, **{name: read[name] for name in cls._fields[2:]})

    def ahead_for(self, false_split_rate: float) -> float:
        """Return how far to set one cluster's score ahead so that so many tables without clusters are split.

        Between the rates that were measured it is interpolated in their log-odds.
        """
        rate = np.clip(false_split_rate, self.rates[0], self.rates[-1])
        places = np.log(self.rates / (1 - self.rates))
        return float(np.interp(np.log(rate / (1 - rate)), places, self.ahead))

    def real(self, odds: Floats, parted: Booleans, sure: float) -> Floats:
        """Return how probable borders are real; `sure` is how probable the number of clusters is that they go with."""
        slope, of_number, further = np.where(parted[:, None], self.parted, self.open).T
        certain = np.log(sure / (1 - sure))
        return np.asarray(1 / (1 + np.exp(-(slope * odds + of_number * certain + further))))


@kernel
def _sums(rows: Any, base: float, feature: Any, left: Any, right: Any, threshold: Any, value: Any) -> Any:
    out = np.full(rows.shape[0], base)
    for i in range(rows.shape[0]):
        for t in range(feature.shape[0]):
            at = 0
            while feature[t, at] >= 0:
                at = left[t, at] if rows[i, feature[t, at]] <= threshold[t, at] else right[t, at]
            out[i] += value[t, at]
    return out


@dataclass(frozen=True)
class Judged:
    """Proposed hierarchies, the log-odds of their borders, and the scores of their best cuts."""

    hierarchies: list[Hierarchy]
    evidence: list[Floats]
    odds: list[Floats]
    cells: tuple[Integers, Integers]
    cuts: Cuts
    scores: Floats

    @property
    def best(self) -> int:
        """The cut with the highest score."""
        return int(np.argmax(self.scores))

    def by_number(self) -> Floats:
        """Return the highest score of a cut into 1, 2, ... clusters; minus infinity where none was scored."""
        highest = np.full(max(MOST_NUMBER, int(self.cuts.number.max())), -np.inf)
        np.maximum.at(highest, self.cuts.number - 1, self.scores)
        return highest

    def into(self, n_clusters: int) -> tuple[int, Booleans]:
        """Return the hierarchy, and its inner nodes to part, whose cut into so many clusters has the highest score."""
        shapes = [(tree.left, tree.right) for tree in self.hierarchies]
        cuts = offered(shapes, self.odds, self.cells[0], n_clusters)
        if not len(cuts.tree):
            most = max(tree.n_atoms for tree in self.hierarchies)
            raise ValueError(f"n_clusters is {n_clusters}, but these nodes can be told apart into {most} parts only")
        rows = described(cuts, shapes, self.odds, self.evidence, self.cells[1], self.cuts)
        at = int(np.argmax(Judge.fitted().cuts.of(rows)))
        return int(cuts.tree[at]), cuts.parted[at]


def judged(
    points: Floats,
    mass: Floats,
    lists: NeighborLists,
    false_split_rate: float,
    most: int = MOST_ATOMS,
    wanted: int | None = None,
) -> Judged:
    """Return the proposed hierarchies of nodes, of at most `most` atoms, with odds and scores."""
    fitted = Judge.fitted()
    hierarchies, found = examined(points, mass, lists, most, wanted)
    odds = [fitted.borders.of(rows) for rows in found]
    cells = cells_of(hierarchies)
    shapes = [(tree.left, tree.right) for tree in hierarchies]
    cuts = offered(shapes, odds, cells[0])
    scores = fitted.cuts.of(described(cuts, shapes, odds, found, cells[1]))
    scores[cuts.number == 1] += fitted.ahead_for(false_split_rate)
    return Judged(hierarchies, found, odds, cells, cuts, scores)


def examined(
    points: Floats, mass: Floats, lists: NeighborLists, most: int = MOST_ATOMS, wanted: int | None = None
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
    hierarchies, axes, moments = proposed(points, mass, near, lengths, graph, most, wanted)
    return hierarchies, evidence(nodes, hierarchies, axes, moments)


def number_probabilities(by_number: Floats, warmth: float, doubt: float) -> Floats:
    """Return the probability of 1, 2, ... clusters, from the highest score of a cut into each number.

    Scores are read as log-odds in units of `warmth`. With probability `doubt` they mislead altogether; then any number
    may be true, smaller ones rather.
    """
    weights = np.exp((by_number - by_number.max()) / warmth)
    blind = np.where(np.isfinite(by_number), 1.0 / np.arange(1, len(by_number) + 1), 0.0)
    probable: Floats = (1 - doubt) * weights / weights.sum() + doubt * blind / blind.sum()
    return probable
