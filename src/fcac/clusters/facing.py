"""Thin curves of few rows: parts that face each other along a long border without being tied across it.

Where a curve is a row or two wide, the K nearest neighbours of a node reach over to the next curve, and a graph of K
neighbours ties them together. Single linkage (Gower and Ross 1969) follows such curves, but it also cuts every smooth
cluster at chance gaps. So it only proposes parts here, over core distances as in HDBSCAN (Campello, Moulavi and Sander
2013), and a border between two of them is tested: nodes *face* each other if one has the other among its K nearest,
and are *tied* if it is among the nearest K / 2. In a smooth region of d dimensions a share (1/2)^(1/d) of the nodes
that face the other side are tied to it, since the layer of nodes at a border is as deep as neighbourhoods reach. A
border is real if far fewer are, and if it is long: a chance gap across a curve has at most K nodes facing on each
side, so a border that is not several times as long counts for less.

References
----------
J. C. Gower, G. J. S. Ross, "Minimum spanning trees and single linkage cluster analysis", Applied Statistics 18 (1969).
R. J. G. B. Campello, D. Moulavi, J. Sander, "Density-based clustering based on hierarchical density estimates",
PAKDD (2013).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from fcac._kernels import kernel
from fcac._typing import Floats, Integers
from fcac.clusters.coarsen import root_of

# Beyond so many nodes, or with more rows behind a node, a curve that can be seen is wider than a neighbourhood.
_MOST_NODES, _MOST_RECORDS = 2000, 2.0
# The core distance of a node is that to this neighbour: one outlier between two curves does not tie them.
_CORE = 3
# Parts that single linkage proposes have at least so many nodes.
_LEAST = 24
# Ties across a border are too few if there are less than exp(-this) of what a smooth region has, and a border is long
# if so many times K nodes face each other on either side. None of 51 single clusters in 1 to 100 dimensions was cut.
_FEWER_TIES, _LONG = 0.8, 3.0


@kernel
def _grow(rows: Any, columns: Any, n: int, least: int) -> Any:
    """Label nodes along edges of a spanning tree, shortest first: a part is born when it reaches the least size."""
    root = np.arange(n)
    size = np.ones(n, dtype=np.int64)
    follows = np.full(n, -1)  # members of a part as a linked list
    last = np.arange(n)
    label = np.full(n, -1)
    born = 0
    for e in range(rows.shape[0]):
        x, y = rows[e], columns[e]
        p, q = root_of(root, x), root_of(root, y)
        given = -1
        if label[x] < 0 and label[y] < 0:
            if size[p] + size[q] >= least:
                given = born
                born += 1
        elif label[x] < 0:
            given = label[y]
        elif label[y] < 0:
            given = label[x]
        if given >= 0:
            for start in (p, q):
                if label[start] < 0:
                    v = start
                    while v >= 0:
                        label[v] = given
                        v = follows[v]
        if size[p] < size[q]:
            p, q = q, p
        follows[last[p]] = q
        last[p] = last[q]
        root[q] = p
        size[p] += size[q]
    return label, born


@kernel
def _facing(indptr: Any, indices: Any, part: Any, n_parts: int) -> Any:
    """Number of nodes of each part that have a neighbour in each other part."""
    facing = np.zeros((n_parts, n_parts))
    seen = np.full(n_parts, -1)
    for v in range(part.shape[0]):
        for e in range(indptr[v], indptr[v + 1]):
            other = part[indices[e]]
            if other != part[v] and seen[other] != v:
                seen[other] = v
                facing[part[v], other] += 1
    return facing


def _neighbour_graph(near: NDArray[np.int32], k: int) -> sparse.csr_matrix:
    """Which nodes have each other among their k nearest, in either direction."""
    n = len(near)
    ends = near[:, :k].ravel()
    one_way = sparse.csr_matrix((np.ones(len(ends)), ends, np.arange(n + 1) * k), shape=(n, n))
    return sparse.csr_matrix(one_way + one_way.T)


def _linked_parts(points: Floats, near: NDArray[np.int32]) -> tuple[Integers, int]:
    """Parts by single linkage over core distances; what is smaller belongs to the part it is linked to first."""
    n, k = near.shape
    # one neighbour after the other: all differences at once are 400 MB for 2,000 nodes of 1,000 features
    distance = np.stack([np.sqrt(((points - points[near[:, j]]) ** 2).sum(axis=1)) for j in range(k)], axis=1)
    core = distance[:, min(_CORE, k) - 1]
    reach = np.maximum(np.maximum(distance, core[:, None]), core[near])
    starts, ends = np.repeat(np.arange(n), k), near.ravel()
    low, high = np.minimum(starts, ends), np.maximum(starts, ends)
    first = np.unique(low * np.int64(n) + high, return_index=True)[1]
    # distinct points are at a distance above zero, which a sparse matrix would take for no edge
    lengths = np.maximum(reach.ravel()[first], np.finfo(float).tiny)
    tree = minimum_spanning_tree(sparse.csr_matrix((lengths, (low[first], high[first])), shape=(n, n))).tocoo()
    order = np.lexsort((tree.col, tree.row, tree.data))
    label, born = _grow(tree.row[order].astype(np.int64), tree.col[order].astype(np.int64), n, _LEAST)
    lone = label < 0
    if lone.any():
        # components of the graph with fewer nodes than a part
        of = connected_components(tree, directed=False)[1][lone]
        label[lone] = born + np.unique(of, return_inverse=True)[1]
        born = int(label.max()) + 1
    return label, int(born)


def facing_parts(points: Floats, mass: Floats, near: NDArray[np.int32], dimension: float) -> Integers:
    """Return a part for every node: thin curves apart, all else together.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    mass : ndarray of shape (n,)
        Records at each point.
    near : ndarray of shape (n, k)
        Nearest points of each, nearest first.
    dimension : float
        Of the surface the points lie on.

    Returns
    -------
    ndarray of shape (n,)
        All zero if no two parts face each other.
    """
    n, k = near.shape
    whole = np.zeros(n, dtype=np.int64)
    if not 2 * _LEAST <= n <= _MOST_NODES or mass.mean() > _MOST_RECORDS:
        return whole
    part, n_parts = _linked_parts(points, near)
    half = max(k // 2, 1)
    wide, narrow = _neighbour_graph(near, k), _neighbour_graph(near, half)
    share = (half / k) ** (1 / max(dimension, 1.0))
    while n_parts > 1:
        facing = _facing(wide.indptr, wide.indices, part, n_parts)
        tied = _facing(narrow.indptr, narrow.indices, part, n_parts)
        facing, tied = np.minimum(facing, facing.T), np.minimum(tied, tied.T)
        fewer = np.log((share * facing + 1) / (tied + 1)) * np.minimum(np.sqrt(facing / (_LONG * k)), 1.0)
        fewer[facing == 0] = np.inf
        into, gone = divmod(int(np.argmin(fewer)), n_parts)
        if not fewer[into, gone] < _FEWER_TIES:
            return part if np.isfinite(fewer).any() else whole
        part[part == gone] = into
        part[part == n_parts - 1] = gone if gone != n_parts - 1 else into
        n_parts -= 1
    return whole
