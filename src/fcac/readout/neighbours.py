"""Nearest neighbours among nodes: exact and independent of history, or approximate for very many nodes.

Exact means the same lists, ties included, however the nodes arrived: squared distances are summed feature by feature
in one fixed order, and equal distances go to the lower position. Fast methods (matrix products, a k-d tree) only
propose candidates; the final order is always taken from those sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Above this many features a k-d tree visits most points anyway and matrix products are faster.
_TREE_FEATURES = 10
# Elements of one block of the distance matrix (float32: 64 MB).
_BLOCK_ELEMENTS = 1 << 24
# From this many nodes on, with too many features for a tree, neighbours="auto" is approximate.
_APPROXIMATE_FROM = 100_000
# Cells searched per node by the approximate method.
_CELLS_SEARCHED = 20


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _squared_distance(a: Any, b: Any) -> float:
    total = 0.0
    for j in range(a.shape[0]):
        gap = a[j] - b[j]
        total += gap * gap
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert(distances: Any, positions: Any, filled: Any, distance: Any, position: Any) -> Any:
    """Keep the best of a row in order of (distance, position); return how many places are filled."""
    size = distances.shape[0]
    if filled == size:
        last = size - 1
        if distance > distances[last] or (distance == distances[last] and position > positions[last]):
            return filled
    at = filled if filled < size else size - 1
    while at > 0 and (distances[at - 1] > distance or (distances[at - 1] == distance and positions[at - 1] > position)):
        distances[at] = distances[at - 1]
        positions[at] = positions[at - 1]
        at -= 1
    distances[at] = distance
    positions[at] = position
    return filled + 1 if filled < size else size


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pick_from_screen(screen: Any, queries: Any, points: Any, own: Any, slack: Any, out_d: Any, out_i: Any) -> None:
    """Exact nearest of each row, where ``screen`` holds squared distances wrong by at most ``slack`` of the row."""
    k = out_d.shape[1]
    rough = np.empty(k, dtype=np.float32)
    rough_at = np.empty(k, dtype=np.int64)
    for r in range(screen.shape[0]):
        filled = 0
        row = screen[r]
        for p in range(row.shape[0]):
            if p != own[r] and (filled < k or row[p] < rough[k - 1]):
                filled = _insert(rough, rough_at, filled, row[p], p)
        limit = rough[filled - 1] + 2 * slack[r]
        filled = 0
        for p in range(row.shape[0]):
            if row[p] <= limit and p != own[r]:
                filled = _insert(out_d[r], out_i[r], filled, _squared_distance(queries[r], points[p]), p)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pick_from_candidates(candidates: Any, queries: Any, points: Any, own: Any, out_d: Any, out_i: Any) -> Any:
    """Exact nearest of each row among its candidates; tells which rows filled all their places."""
    full = np.zeros(candidates.shape[0], dtype=np.bool_)
    for r in range(candidates.shape[0]):
        filled = 0
        for c in range(candidates.shape[1]):
            p = candidates[r, c]
            if p != own[r] and p < points.shape[0]:
                filled = _insert(out_d[r], out_i[r], filled, _squared_distance(queries[r], points[p]), p)
        full[r] = filled == out_d.shape[1]
    return full


class Searcher:
    """A set of points prepared for many exact searches.

    Parameters
    ----------
    points : ndarray of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.readout.neighbours import Searcher
    >>> positions, squared = Searcher(np.array([[0.0], [1.0], [3.0]])).nearest(np.array([[2.0]]), 2)
    >>> positions.tolist(), squared.tolist()
    ([[1, 2]], [[1.0, 1.0]])
    """

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self._tree = None
        if self.points.shape[1] <= _TREE_FEATURES and len(self.points) > 64:
            self._tree = cKDTree(self.points)
            return
        self._centre = self.points.mean(axis=0)
        self._rough = np.ascontiguousarray(self.points - self._centre, dtype=np.float32)
        self._norms = np.einsum("ij,ij->i", self._rough, self._rough)

    def nearest(self, queries: Floats, k: int, own: Integers | None = None) -> tuple[Integers, Floats]:
        """Return positions and squared distances of the k nearest points of each query.

        Parameters
        ----------
        queries : ndarray of shape (m, d)
        k : int
            At most n, or n - 1 with ``own``.
        own : ndarray of shape (m,), optional
            Position of each query among the points, which is then left out of its own list; -1 for none.

        Returns
        -------
        positions, squared distances : ndarrays of shape (m, k)
            Nearest first; equal distances by position.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float64)
        own = np.full(len(queries), -1, dtype=np.int64) if own is None else own.astype(np.int64)
        out_i = np.zeros((len(queries), k), dtype=np.int64)
        out_d = np.full((len(queries), k), np.inf)
        if k and len(queries):
            search = self._by_screen if self._tree is None else self._by_tree
            search(queries, own, out_i, out_d)
        return out_i, out_d

    def _by_screen(self, queries: Floats, own: Integers, out_i: Integers, out_d: Floats) -> None:
        reach = math.sqrt(float(self._norms.max(initial=0.0)))
        step = max(1, _BLOCK_ELEMENTS // max(1, len(self.points)))
        for start in range(0, len(queries), step):
            here = slice(start, start + step)
            rough = np.ascontiguousarray(queries[here] - self._centre, dtype=np.float32)
            norms = np.einsum("ij,ij->i", rough, rough)
            screen = rough @ self._rough.T
            screen *= -2
            screen += self._norms
            screen += norms[:, None]
            # rounding of the inputs and of sums of d terms in single precision
            slack = ((self.points.shape[1] + 8) * 6e-8 * (np.sqrt(norms) + reach) ** 2).astype(np.float32)
            _pick_from_screen(screen, queries[here], self.points, own[here], slack, out_d[here], out_i[here])

    def _by_tree(self, queries: Floats, own: Integers, out_i: Integers, out_d: Floats) -> None:
        n, k = len(self.points), out_i.shape[1]
        asked = min(n, k + 4)
        pending = np.arange(len(queries))
        while len(pending):
            unsure = []
            for rows in np.array_split(pending, max(1, len(pending) * asked // (1 << 22))):
                assert self._tree is not None
                distances, candidates = self._tree.query(queries[rows], k=asked)
                distances, candidates = distances.reshape(len(rows), -1), candidates.reshape(len(rows), -1)
                some_d, some_i = np.full((len(rows), k), np.inf), np.zeros((len(rows), k), dtype=np.int64)
                full = _pick_from_candidates(
                    candidates.astype(np.int64), queries[rows], self.points, own[rows], some_d, some_i
                )
                out_d[rows], out_i[rows] = some_d, some_i
                if asked < n:
                    # a tie at the end of the tree's list may hide an equally near point of a lower position
                    cut_short = distances[:, -1] ** 2 <= some_d[:, -1] * (1 + 1e-9)
                    unsure.append(rows[cut_short | ~full])
            pending = np.concatenate(unsure) if unsure else pending[:0]
            asked = min(n, 2 * asked)


def nearest(points: Floats, queries: Floats, k: int, own: Integers | None = None) -> tuple[Integers, Floats]:
    """Return positions and squared distances of the k nearest points of each query; see :class:`Searcher`."""
    return Searcher(points).nearest(queries, k, own)


def nearest_approximate(points: Floats, k: int, seed: int = 0) -> tuple[Integers, Floats]:
    """Return nearly the k nearest other points of each point, in a cost that grows like n to the power 1.5.

    Points are put into about sqrt(n) cells around sampled points; a point is compared with the points of the cells
    nearest to its own.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    k : int
    seed : int, default=0

    Returns
    -------
    positions, squared distances : ndarrays of shape (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.readout.neighbours import nearest, nearest_approximate
    >>> points = np.random.default_rng(0).normal(size=(3000, 16))
    >>> near, _ = nearest_approximate(points, 10)
    >>> exact, _ = nearest(points, points, 10, own=np.arange(3000))
    >>> bool(np.mean([len(set(a) & set(b)) for a, b in zip(near, exact)]) > 8)
    True
    """
    points = np.ascontiguousarray(points, dtype=np.float64)
    n = len(points)
    n_cells = max(1, int(math.sqrt(n) / 2))
    generator = np.random.default_rng(seed)
    seeds = points[np.sort(generator.choice(n, n_cells, replace=False))]
    for _ in range(2):
        # a short k-means on a sample makes the cells fit the data's density
        sample = points[np.sort(generator.choice(n, min(n, 40 * n_cells), replace=False))]
        cell, _ = nearest(seeds, sample, 1)
        for c in np.unique(cell):
            seeds[c] = sample[cell[:, 0] == c].mean(axis=0)
    home, _ = nearest(seeds, points, 1)
    order = np.argsort(home[:, 0], kind="stable")
    bounds = np.searchsorted(home[order, 0], np.arange(n_cells + 1))
    around, _ = nearest(seeds, seeds, min(_CELLS_SEARCHED, n_cells))
    out_i, out_d = np.zeros((n, k), dtype=np.int64), np.full((n, k), np.inf)
    for c in range(n_cells):
        members = order[bounds[c] : bounds[c + 1]]
        if not len(members):
            continue
        pool, searched = np.empty(0, dtype=np.int64), len(around[c])
        cells = around[c]
        while True:
            pool = np.sort(np.concatenate([order[bounds[o] : bounds[o + 1]] for o in cells[:searched]]))
            if len(pool) > k or searched == n_cells:
                break
            cells, searched = nearest(seeds, seeds[c : c + 1], n_cells)[0][0], n_cells
        own = np.searchsorted(pool, members)
        some_i, some_d = nearest(points[pool], points[members], k, own)
        out_i[members], out_d[members] = pool[some_i], some_d
    return out_i, out_d


def distinct(points: Floats) -> tuple[Integers, Integers]:
    """Return the first position of every distinct point, and for each point which of these it equals.

    The distinct points come in an order that depends on their values only, so that it does not matter who sent a point
    first.

    >>> first, which = distinct(np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]]))
    >>> sorted(first.tolist()), bool(which[0] == which[2] != which[1])
    ([0, 1], True)
    """
    # adding zero turns -0.0 into 0.0, which has other bits
    bits = np.ascontiguousarray(points + 0.0).view(np.uint64)
    key = np.zeros(len(points), dtype=np.uint64)
    for column in bits.T:
        key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first[which]], bits):
        # two different points with one key: compare all their bytes instead
        rows = bits.view(np.dtype((np.void, bits.shape[1] * bits.itemsize))).ravel()
        _, first, which = np.unique(rows, return_index=True, return_inverse=True)
    return first.astype(np.int64), which.astype(np.int64)


def is_approximate(neighbours: str, n: int, n_features: int) -> bool:
    """Whether the neighbours of n nodes are to be approximate; "auto" decides by what exact ones would cost."""
    if neighbours == "auto":
        return n >= _APPROXIMATE_FROM and n_features > _TREE_FEATURES
    return neighbours == "approximate" and n > 2000


def updated(
    points: Floats, k: int, old_i: Integers, old_d: Floats, position_of_old: Integers
) -> tuple[Integers, Floats]:
    """Return the exact lists of ``points``, given those of an earlier set that shares most of its points.

    Only points that lost a neighbour, and new ones, are searched anew; all others are compared with the new points.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    k : int
        Length of the lists, as before.
    old_i, old_d : ndarrays of shape (n_old, k)
        The earlier lists.
    position_of_old : ndarray of shape (n_old,)
        Where each earlier point is now; -1 if it is gone. Points that stayed keep their order.
    """
    n = len(points)
    stayed = np.flatnonzero(position_of_old >= 0)
    at = position_of_old[stayed]
    out_i, out_d = np.zeros((n, k), dtype=np.int64), np.full((n, k), np.inf)
    moved = position_of_old[old_i[stayed]]
    out_i[at], out_d[at] = moved, old_d[stayed]
    is_new = np.ones(n, dtype=bool)
    is_new[at] = False
    new = np.flatnonzero(is_new)
    broken = np.zeros(n, dtype=bool)
    broken[at] = (moved < 0).any(axis=1)
    search = np.flatnonzero(broken | is_new)
    out_i[search], out_d[search] = nearest(points, points[search], k, own=search)
    intact = np.flatnonzero(~broken & ~is_new)
    if len(new) and len(intact):
        few = min(k, len(new))
        near_i, near_d = nearest(points[new], points[intact], few)
        closer = (near_d[:, 0] <= out_d[intact, -1]).nonzero()[0]
        rows = intact[closer]
        both_i = np.concatenate([out_i[rows], new[near_i[closer]]], axis=1)
        both_d = np.concatenate([out_d[rows], near_d[closer]], axis=1)
        best = np.lexsort((both_i, both_d), axis=1)[:, :k]
        out_i[rows], out_d[rows] = np.take_along_axis(both_i, best, 1), np.take_along_axis(both_d, best, 1)
    return out_i, out_d
