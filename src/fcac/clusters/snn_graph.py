"""From nodes to a graph of shared nearest neighbours: how many neighbours, and what edges weigh.

Two nodes are joined if either is among the other's nearest, and the edge weighs by how many neighbours they share
(Jarvis and Patrick 1973; as a weighted graph Ertöz, Steinbach and Kumar 2003). What differs: nodes stand for different
numbers of records, so an edge also weighs the mass it stands for; and it weighs less between places of different
density, because sparse points around a dense cluster have their neighbours in it without belonging to it.

References
----------
R. A. Jarvis, E. A. Patrick, "Clustering using a similarity measure based on shared near neighbors", IEEE Transactions
on Computers 22 (1973).
L. Ertöz, M. Steinbach, V. Kumar, "Finding clusters of different sizes, shapes, and densities in noisy, high dimensional
data", SIAM International Conference on Data Mining (2003).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcac._kernels import inner_kernel, kernel
from fcac._typing import Floats

# How much a node's records count: not at all (0) loses the valleys that only counts show where nodes are evenly spaced;
# in full (1) makes hubs of the few averaged nodes among single records in many dimensions.
_MASS_POWER = 0.5
# Neighbours per node: at first a fifteenth of the nodes, then these and one more for every 150 nodes, up to 30.
_NEIGHBOURS, _NODES_A_NEIGHBOUR_MORE, _MOST = 12, 150, 30
_LARGEST_SHARE, _FEWEST = 1 / 15, 3
# Edges between places of different density weigh less, by the ratio of densities. In many dimensions a density cannot
# be told from so few neighbours: more than the third power of the ratio of distances is never taken.
_LARGEST_POWER = 3


def neighbours_for(n: int) -> int:
    """Return how many neighbours each of n nodes gets.

    Enough to make the graph of a smooth cluster hold together, but few enough that the handful of nodes of a small
    cluster among few nodes are not all tied to others.

    >>> [neighbours_for(n) for n in (2, 50, 200, 1000, 10**6)]
    [1, 3, 13, 19, 30]
    """
    wanted = max(_FEWEST, round(min(_NEIGHBOURS + n / _NODES_A_NEIGHBOUR_MORE, _MOST, _LARGEST_SHARE * n)))
    return max(0, min(n - 1, wanted))


def dimension_of(middle: Floats, farthest: Floats, k: int) -> float:
    """Return the dimension of the surface that nodes lie on, from squared distances to neighbours number k // 2 and k.

    In d dimensions twice the neighbours lie within a ball whose radius is larger by the d-th root of two.

    >>> square = np.random.default_rng(0).uniform(size=(1500, 2))
    >>> gaps = np.sort(((square[:, None] - square[None]) ** 2).sum(axis=2), axis=1)
    >>> round(dimension_of(gaps[:, 8], gaps[:, 16], 16), 1)
    1.8
    """
    apart = middle > 0
    growth = float(np.log(farthest[apart] / middle[apart]).mean()) / 2 if k > 1 and apart.any() else 0.0
    return math.log(k / (k // 2)) / growth if growth > 0 else math.inf


@inner_kernel
def _back_lists(lists: Any) -> Any:
    """Who has a node in its list: where each node's part begins, and the names, ascending."""
    n, k = lists.shape
    starts = np.zeros(n + 1, dtype=np.int64)
    for v in range(n):
        for m in range(k):
            starts[lists[v, m] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    names = np.empty(n * k, dtype=np.int32)
    place = starts[:-1].copy()
    for v in range(n):
        for m in range(k):
            names[place[lists[v, m]]] = v
            place[lists[v, m]] += 1
    return starts, names


@kernel
def _either_way(lists: Any) -> Any:
    """Pattern of the graph that joins two nodes if either is in the other's list; the lists are sorted."""
    n, k = lists.shape
    back, names = _back_lists(lists)
    starts = np.zeros(n + 1, dtype=np.int64)
    ends = np.empty(2 * n * k, dtype=np.int32)
    at = 0
    for v in range(n):
        i, j, beyond = 0, back[v], back[v + 1]
        while i < k or j < beyond:
            own = lists[v, i] if i < k else n
            other = names[j] if j < beyond else n
            if own <= other:
                i += 1
            if other <= own:
                j += 1
            ends[at] = min(own, other)
            at += 1
        starts[v + 1] = at
    return starts, ends[:at].copy()


@kernel
def _shared(lists: Any, starts: Any, ends: Any) -> Any:
    """How many points the lists at both ends of every edge share, each node being in its own."""
    n, k = lists.shape
    shared = np.empty(ends.shape[0], dtype=np.uint8)
    # where the next edge to a lower node stands: lower nodes come in order, so each edge is looked at once
    lower = starts[:-1].copy()
    listed = np.full(n, -1, dtype=np.int32)
    for v in range(n):
        listed[v] = v
        for m in range(k):
            listed[lists[v, m]] = v
        for e in range(lower[v], starts[v + 1]):
            u = ends[e]
            count = 1 if listed[u] == v else 0
            for m in range(k):
                if listed[lists[u, m]] == v:
                    count += 1
            shared[e] = count
            shared[lower[u]] = count
            lower[u] += 1
    return shared


@kernel
def _weights(starts: Any, ends: Any, shared: Any, k: int, mass: Any, reach: Any, power: int) -> Any:
    """Jaccard overlap of the lists at both ends of every edge, times the mass it stands for.

    And times the smaller reach over the larger one, to the given power.
    """
    n = mass.shape[0]
    half = np.empty(n)
    for v in range(n):
        total = 0.0
        for e in range(starts[v], starts[v + 1]):
            total += mass[ends[e]]
        half[v] = 0.5 / (mass[v] + total)
    overlap = np.empty(k + 2)
    for count in range(k + 2):
        overlap[count] = count / (2 * k + 2 - count)
    weights = np.empty(ends.shape[0])
    for v in range(n):
        for e in range(starts[v], starts[v + 1]):
            u = ends[e]
            stands_for = mass[v] * mass[u] * (half[v] + half[u])
            ratio = min(reach[v], reach[u]) / max(reach[v], reach[u])
            weights[e] = overlap[shared[e]] * stands_for * ratio**power
    return weights


class SNNEdges(NamedTuple):
    """Which nodes are tied, and how many neighbours each two of them share, each node being in its own list.

    The edges of a node begin at `starts`, in the order of the nodes at their other ends.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int32]
    shared: NDArray[np.uint8]
    n_neighbours: int

    @classmethod
    def of(cls, near: NDArray[Any]) -> SNNEdges:
        """Return the edges between nodes, given the neighbours of each: an array of shape (n, k)."""
        lists = np.sort(near.astype(np.int32, copy=False), axis=1)
        starts, ends = _either_way(lists)
        return cls(starts, ends, _shared(lists, starts, ends), lists.shape[1])

    def weighted_graph(self, middle: Floats, farthest: Floats, counts: Floats, dimension: float) -> sparse.csr_matrix:
        """Return the symmetric graph in which neighbours are tied by the neighbours they share.

        An edge joins two nodes if either is among the other's nearest. It weighs the overlap of their neighbour lists
        (Jaccard), times the mass it stands for: a node's mass is the square root of its records, and each unit of mass
        spreads one unit over the masses in its neighbourhood, so that a thin bridge of nodes with few records weighs
        little however many nodes it has. And it weighs less if nodes lie denser at one end than at the other, by the
        ratio of the densities: sparse points around a dense cluster have their neighbours in it, but do not belong to
        it. Distances and dimension are as for :func:`dimension_of`.
        """
        n, k = len(counts), self.n_neighbours
        reach, power = np.ones(n), 0
        if k > 1:
            power = int(min(max(dimension, 1), _LARGEST_POWER))
            reach = np.maximum(np.sqrt(middle) + np.sqrt(farthest), 1e-300)
        weights = _weights(self.starts, self.ends, self.shared, k, counts**_MASS_POWER, reach, power)
        return sparse.csr_matrix((weights, self.ends, self.starts), shape=(n, n))
