"""Fewer nodes: a bounded number by the rule of the reservoir, or those of few rows joined to their nearest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fcac._parallel import in_ranges
from fcac._typing import Floats, Integers
from fcac.nodes import cell_kernels as kernels
from fcac.scaling import Columns, scaling_of
from fcac.search.seeds import SeedIndex, pivots_for


class Condensed(NamedTuple):
    """Fewer nodes that stand for the same rows, and which of them each node is counted in."""

    nodes: Floats
    counts: Floats
    node_of: Integers


def condense(nodes: Floats, counts: Floats, max_nodes: int, scale: str = "auto") -> Condensed:
    """Return at most `max_nodes` nodes, without gaps, for the rows behind all these.

    A node is a seed by the key of its values, the likelier the more rows it stands for (bottom-k sampling, as in
    :class:`fcac.nodes.Reservoir`, each row alike); every other one joins the nearest seed. The result depends on the
    nodes only, so that without those of a site it is what it would be if the site had never been there.

    >>> nodes = np.random.default_rng(0).normal(size=(5000, 2))
    >>> found = condense(nodes, np.ones(5000), 300)
    >>> found.nodes.shape, float(found.counts.sum())
    ((300, 2), 5000.0)
    >>> bool(np.allclose(found.counts @ found.nodes, nodes.sum(axis=0)))
    True
    """
    keys = np.empty(len(nodes), np.uint64)
    kernels.keys_of(np.ascontiguousarray(nodes + 0.0).view(np.uint64), np.uint64(0), keys)
    distinct, first, which = np.unique(keys, return_index=True, return_inverse=True)
    mass = np.bincount(which, weights=counts)
    # of equal mass the smallest keys stay; a node of twice the rows stays as if it had two keys
    stays = np.sort(np.argsort(distinct.astype(np.float64) / mass, kind="stable")[:max_nodes])
    k, d = len(stays), nodes.shape[1]
    place = np.full(len(distinct), -1)
    place[stays] = np.arange(k)
    node_of = place[which]
    scales = scaling_of(Columns.of(nodes, counts, scale=scale), scale).factors
    away = np.flatnonzero(node_of < 0)
    index = SeedIndex(nodes[first[stays]] * scales, pivots_for(k), k)
    node_of[away] = index.nearest(nodes[away] * scales, in_ranges)
    # the seed's own rows first, so that a cell begins with them
    order = np.concatenate([np.flatnonzero(place[which] >= 0), away])
    means, totals = np.zeros((k, d)), np.zeros(k)
    kernels.add_cells(order, node_of[order], nodes, np.zeros_like(nodes), counts, means, np.zeros((k, d)), totals)
    return Condensed(means, totals, node_of)


def noise_of(found: Condensed, counts: Floats, deviation: Floats, count_deviation: Floats) -> tuple[Floats, Floats]:
    """Return the deviations of condensed nodes and of their counts, from those of the nodes; noise is independent."""
    k = len(found.counts)
    squares = np.zeros((k, deviation.shape[1]))
    np.add.at(squares, found.node_of, (deviation * counts[:, None]) ** 2)
    of_counts = np.bincount(found.node_of, weights=count_deviation**2, minlength=k)
    return np.sqrt(squares) / found.counts[:, None], np.sqrt(of_counts)


def merge_small(
    nodes: Floats, counts: Floats, variances: Floats, scales: Floats, min_rows: float
) -> tuple[Floats, Floats, Floats]:
    """Join nodes of fewer than ``min_rows`` rows to their nearest, smallest first, until none is left.

    Scales are factors of the features in the distance. Of fewer rows than that in all, nothing is left.

    >>> line = np.array([[0.0], [1.0], [5.0], [9.0]])
    >>> nodes, counts, _ = merge_small(line, np.array([1.0, 2, 3, 3]), np.zeros((4, 1)), np.ones(1), 3)
    >>> nodes.round(3).ravel().tolist(), counts.tolist()
    ([0.667, 5.0, 9.0], [3.0, 3.0, 3.0])
    """
    means, squares, totals = nodes.copy(), variances * counts[:, None], counts.copy()
    kernels.join_small(means, squares, totals, scales, min_rows)
    left = totals >= min_rows
    left &= totals > 0
    return means[left], totals[left], squares[left] / totals[left, None]
