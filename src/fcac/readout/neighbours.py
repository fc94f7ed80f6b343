"""Nearest neighbours among nodes: exact and independent of history, or approximate for very many nodes.

Exact means the same lists, ties included, however the nodes arrived: squared distances are summed feature by feature
in one fixed order, and equal distances go to the lower position. With few features boxes around near points are
searched; with many, matrix products propose candidates, and the final order is taken from those sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fcac.readout.approximate import nearest_approximate
from fcac.readout.boxes import Boxes, insert, spatial_order

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Above this many features boxes overlap so much that matrix products are faster.
_BOX_FEATURES = 20
# Elements of one block of the distance matrix (float32: 64 MB).
_BLOCK_ELEMENTS = 1 << 24
# From this many nodes of more features than these on, neighbours="auto" is approximate.
_APPROXIMATE_FROM, _ALWAYS_EXACT_FEATURES = 100_000, 10


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _squared_distance(a: Any, b: Any) -> float:
    total = 0.0
    for j in range(a.shape[0]):
        gap = a[j] - b[j]
        total += gap * gap
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pick_from_screen(screen: Any, queries: Any, points: Any, own: Any, slack: Any, out_d: Any, out_i: Any) -> None:
    """Exact nearest of each row, where ``screen`` holds squared distances wrong by at most ``slack`` of the row."""
    k = out_d.shape[1]
    rough = np.empty((1, k), dtype=np.float32)
    rough_at = np.empty((1, k), dtype=np.int64)
    for r in range(screen.shape[0]):
        filled = 0
        row = screen[r]
        for p in range(row.shape[0]):
            if p != own[r] and (filled < k or row[p] < rough[0, k - 1]):
                filled = insert(rough, rough_at, 0, filled, row[p], p)
        limit = rough[0, filled - 1] + 2 * slack[r]
        filled = 0
        for p in range(row.shape[0]):
            if row[p] <= limit and p != own[r]:
                filled = insert(out_d, out_i, r, filled, _squared_distance(queries[r], points[p]), p)


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
        self.boxes: Boxes | None = None
        if self.points.shape[1] <= _BOX_FEATURES:
            self.boxes = Boxes(self.points)
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
        if self.boxes is not None:
            return self.boxes.nearest(queries, k, own, self.boxes.order if queries is self.points else None)
        out_i = np.zeros((len(queries), k), dtype=np.int64)
        out_d = np.full((len(queries), k), np.inf)
        if k and len(queries):
            self._by_screen(queries, own, out_i, out_d)
        return out_i, out_d

    def order(self) -> Integers:
        """Positions of the points in an order that keeps neighbours together; it depends on the points only."""
        return spatial_order(self.points) if self.boxes is None else self.boxes.order

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


def nearest(points: Floats, queries: Floats, k: int, own: Integers | None = None) -> tuple[Integers, Floats]:
    """Return positions and squared distances of the k nearest points of each query; see :class:`Searcher`."""
    return Searcher(points).nearest(queries, k, own)


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
        return n >= _APPROXIMATE_FROM and n_features > _ALWAYS_EXACT_FEATURES
    return neighbours == "approximate" and n > 2000


def _moved(n: int, old_i: Integers, position_of_old: Integers) -> Integers:
    """The earlier lists in the new positions; -1 in place of points that are gone, and for points that are new."""
    lists = np.full((n, old_i.shape[1]), -1, dtype=np.int64)
    stayed = np.flatnonzero(position_of_old >= 0)
    lists[position_of_old[stayed]] = position_of_old[old_i[stayed]]
    return lists


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert_pairs(new: Any, points: Any, distances: Any, out_d: Any, out_i: Any) -> None:
    for p in range(new.shape[0]):
        insert(out_d, out_i, points[p], out_d.shape[1], distances[p], new[p])


def updated(
    searcher: Searcher, k: int, old_i: Integers, old_d: Floats, position_of_old: Integers
) -> tuple[Integers, Floats]:
    """Return the exact lists of a searcher's points, given those of an earlier set that shares most of its points.

    Only points that lost a neighbour, and new ones, are searched anew; all others are compared with the new points.

    Parameters
    ----------
    searcher : Searcher
        Holds the points.
    k : int
        Length of the lists, as before.
    old_i, old_d : ndarrays of shape (n_old, k)
        The earlier lists.
    position_of_old : ndarray of shape (n_old,)
        Where each earlier point is now; -1 if it is gone. Points that stayed keep their order.
    """
    points = searcher.points
    out_i = _moved(len(points), old_i, position_of_old)
    stayed = position_of_old >= 0
    out_d = np.full(out_i.shape, np.inf)
    out_d[position_of_old[stayed]] = old_d[stayed]
    is_new = np.ones(len(points), dtype=bool)
    is_new[position_of_old[stayed]] = False
    new = np.flatnonzero(is_new)
    intact = (out_i >= 0).all(axis=1) & ~is_new
    search = np.flatnonzero(~intact)
    out_i[search], out_d[search] = searcher.nearest(points[search], k, own=search)
    if not k or not len(new):
        return out_i, out_d
    if searcher.boxes is not None:
        asker, asked, squared = searcher.boxes.reached_from(points[new], np.where(intact, out_d[:, -1], -1.0))
    else:
        rows = np.flatnonzero(intact)
        near, gaps = nearest(points[new], points[rows], min(k, len(new)))
        closer, place = np.nonzero(gaps <= out_d[rows, -1:])
        asker, asked, squared = near[closer, place], rows[closer], gaps[closer, place]
    _insert_pairs(new[asker], asked, squared, out_d, out_i)
    return out_i, out_d


def updated_approximate(points: Floats, k: int, old_i: Integers, position_of_old: Integers) -> tuple[Integers, Floats]:
    """Return approximate lists of points, given those of an earlier set; see :func:`updated`."""
    return nearest_approximate(points, k, _moved(len(points), old_i, position_of_old))
