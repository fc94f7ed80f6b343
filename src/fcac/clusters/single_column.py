"""Clusters that one column of levels alone tells apart are one cluster.

A column of levels (a category, a yes or no, an ordinal, a month) makes a gap wherever its levels differ, so a cluster
falls apart into its women and its men as soon as sex says something about another cluster. The premise of
:mod:`fcac.clusters.column_metric` is that a group shows in more than one column. Here it is applied to what was
found: two clusters that differ in a single column of levels, and in nothing else, are joined.

Two clusters differ in a column if the squared distance of their means exceeds a share of the mean variance inside them
(Cohen's d, for several features at once) by more than chance gives.

References
----------
J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd edition, 1988.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcac._typing import Floats, Integers
from fcac.clusters.cluster_tree import Tree
from fcac.tables.kind import Block

# Squared distance of means over variance above which a column tells two clusters apart: half a deviation, which Cohen
# calls a medium effect.
_DIFFERS = 0.25
# Chance adds the variance of both means; so many times that is allowed for.
_BY_CHANCE = 4.0


def join_single_columns(tree: Tree, point_of: Integers, rows: Floats, mass: Floats, blocks: Sequence[Block]) -> Tree:
    """Return a tree in which clusters that one column of levels alone tells apart are joined.

    `point_of` says which point of the tree each row is.
    """
    labels = tree.labels()[point_of]
    pairs = [(into, gone) for into, gone, _ in _joins(labels, rows, mass, blocks)]
    if not pairs:
        return tree
    return tree.joined(pairs)


def cutting_columns(labels: Integers, rows: Floats, mass: Floats, blocks: Sequence[Block]) -> set[int]:
    """Return the columns of levels of which one alone tells two clusters apart, by their positions."""
    return {column for _, _, column in _joins(labels, rows, mass, blocks)}


def without(map: Floats, columns: set[int], blocks: Sequence[Block]) -> Floats:
    """Return a map from features to coordinates that takes no notice of some columns."""
    starts = np.cumsum([0, *(block.width for block in blocks)])
    deaf = map.copy()
    for column in columns:
        deaf[starts[column] : starts[column + 1]] = 0.0
    return deaf


def _joins(labels: Integers, rows: Floats, mass: Floats, blocks: Sequence[Block]) -> list[tuple[int, int, int]]:
    """Pairs of clusters to join, in order, and the column they differ in; the second of a pair is gone afterwards."""
    n_clusters = int(labels.max()) + 1
    if n_clusters < 2 or len(blocks) < 2:
        return []
    of_levels = np.array([block.kind == "category" for block in blocks])
    starts = np.cumsum([0, *(block.width for block in blocks)])[:-1]
    widths = np.array([block.width for block in blocks])
    size = np.bincount(labels, weights=mass, minlength=n_clusters)
    sums, squares = np.zeros((n_clusters, rows.shape[1])), np.zeros((n_clusters, rows.shape[1]))
    np.add.at(sums, labels, rows * mass[:, None])
    np.add.at(squares, labels, rows**2 * mass[:, None])
    alive: list[int] = list(range(n_clusters))
    pairs: list[tuple[int, int, int]] = []
    while len(alive) > 1:
        mean = sums[alive] / size[alive][:, None]
        variance = np.add.reduceat(np.maximum(squares[alive] / size[alive][:, None] - mean**2, 0.0), starts, axis=1)
        best: tuple[float, int, int, int] | None = None
        for i in range(len(alive) - 1):
            apart = np.add.reduceat((mean[i + 1 :] - mean[i]) ** 2, starts, axis=1)
            inside = (variance[i + 1 :] + variance[i]) / 2
            chance = _BY_CHANCE * (1 / size[alive[i]] + 1 / size[alive[i + 1 :]])[:, None] * np.sqrt(widths)
            effect = np.divide(apart, inside, out=np.where(apart > 0, np.inf, 0.0), where=inside > 0)
            differs = effect > _DIFFERS + chance
            single = (differs.sum(axis=1) == 1) & (differs & of_levels).any(axis=1)
            for j in np.flatnonzero(single):
                other = float(effect[j][~differs[j]].max(initial=0.0))
                if best is None or other < best[0]:
                    best = other, i, i + 1 + int(j), int(differs[j].argmax())
        if best is None:
            break
        into, gone = alive[best[1]], alive[best[2]]
        for total in (size, sums, squares):
            total[into] += total[gone]
        alive.remove(gone)
        pairs.append((into, gone, best[3]))
    return pairs
