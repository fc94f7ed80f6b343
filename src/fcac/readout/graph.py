"""From nodes to a weighted graph: the scale of each feature, how many neighbours, and what an edge weighs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from fcac.readout.neighbours import Floats, Integers

# Features are put on one scale if the distance would otherwise listen to fewer than this share of them.
_HEARD_SHARE = 1 / 3
# How much a node's records count: not at all (0) loses the valleys that only counts show where nodes are evenly spaced;
# in full (1) makes hubs of the few averaged nodes among single records in many dimensions.
_MASS_POWER = 0.5
# Neighbours per node: so many for each doubling of the number of nodes, but at most a fifteenth of the nodes.
_PER_DOUBLING, _LARGEST_SHARE, _FEWEST = 1.5, 1 / 15, 3


def feature_scales(nodes: Floats, counts: Floats) -> Floats:
    """Return a factor for every feature.

    All ones, unless a few features of large spread would drown out the rest: the effective number of features in a
    squared distance is (sum of variances) squared over the sum of squared variances. If that is less than a third of
    the features that vary at all, every feature is divided by its spread, rounded to a power of two, so that a few new
    nodes hardly ever change the metric.

    Parameters
    ----------
    nodes : ndarray of shape (n, d)
    counts : ndarray of shape (n,)
        Records behind each node.

    Returns
    -------
    factors : ndarray of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.readout.graph import feature_scales
    >>> same = np.random.default_rng(0).normal(size=(50, 6))
    >>> feature_scales(same, np.ones(50)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    >>> feature_scales(same * [1000, 1, 1, 1, 1, 1], np.ones(50)).tolist()
    [0.0009765625, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    ones = np.ones(nodes.shape[1])
    centre = np.average(nodes, axis=0, weights=counts)
    variances = np.average((nodes - centre) ** 2, axis=0, weights=counts)
    varies = variances > 0
    largest = variances.max(initial=0.0)
    if not varies.any() or not np.isfinite(largest):
        return ones
    shares = variances[varies] / largest
    heard = shares.sum() ** 2 / (shares**2).sum() / varies.sum()
    if heard >= _HEARD_SHARE:
        return ones
    ones[varies] = np.exp2(-np.rint(0.5 * np.log2(variances[varies])))
    return ones


def neighbours_for(n: int) -> int:
    """Return how many neighbours each of n nodes gets.

    Enough to make the graph of a smooth cluster hold together, which grows like the logarithm of n, but few enough
    that the handful of nodes of a small cluster among few nodes are not all tied to others.

    >>> [neighbours_for(n) for n in (2, 50, 1000, 10**6)]
    [1, 3, 15, 30]
    """
    wanted = max(_FEWEST, round(min(_PER_DOUBLING * math.log2(max(n, 1)), _LARGEST_SHARE * n)))
    return max(0, min(n - 1, wanted))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _overlaps(lists: Any, starts: Any, ends: Any) -> Any:
    """Jaccard overlap of the sorted neighbour lists (each node in its own) at both ends of every edge."""
    out = np.empty(ends.shape[0])
    size = lists.shape[1]
    for e in range(ends.shape[0]):
        a, b = lists[starts[e]], lists[ends[e]]
        i = j = shared = 0
        while i < size and j < size:
            if a[i] == b[j]:
                shared += 1
                i += 1
                j += 1
            elif a[i] < b[j]:
                i += 1
            else:
                j += 1
        out[e] = shared / (2 * size - shared)
    return out


def shared_neighbour_graph(positions: Integers, counts: Floats) -> sparse.csr_matrix:
    """Return the symmetric graph in which neighbours are tied by the neighbours they share.

    An edge joins two nodes if either is among the other's nearest. It weighs the overlap of their neighbour lists
    (Jaccard), times the mass it stands for: a node's mass is the square root of its records, and each unit of mass
    spreads one unit over the masses in its neighbourhood, so that a thin bridge of nodes with few records weighs
    little however many nodes it has.

    Parameters
    ----------
    positions : ndarray of shape (n, k)
        Neighbours of each node.
    counts : ndarray of shape (n,)

    Returns
    -------
    scipy.sparse.csr_matrix of shape (n, n)
    """
    n, k = positions.shape
    own = np.arange(n)
    directed = sparse.csr_matrix((np.ones(n * k), (np.repeat(own, k), positions.ravel())), shape=(n, n))
    pattern = (directed + directed.T).tocsr()
    pattern.sort_indices()
    starts = np.repeat(own, np.diff(pattern.indptr))
    ends = pattern.indices
    lists = np.sort(np.column_stack([positions, own]), axis=1)
    overlap = _overlaps(lists, starts, ends.astype(np.int64))
    mass = counts**_MASS_POWER
    around = pattern.astype(bool) @ mass + mass
    stands_for = mass[starts] * mass[ends] * (0.5 / around[starts] + 0.5 / around[ends])
    return sparse.csr_matrix((overlap * stands_for, ends, pattern.indptr), shape=(n, n))
