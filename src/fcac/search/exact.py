"""Nearest neighbours among nodes: exact and independent of history, or approximate for very many nodes.

Exact means the same lists, ties included, however the nodes arrived: squared distances are summed feature by feature
in one fixed order, and equal distances go to the lower position. With few features boxes around near points are
searched; with many, matrix products propose candidates, and the final order is taken from those sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.search.box_tree import BoxTree
from fcac.search.screen import Screen

# Above this many features boxes overlap so much that matrix products are faster.
_BOX_FEATURES = 20
# From this many nodes of more features than these on, neighbours="auto" is approximate.
_APPROXIMATE_FROM, _ALWAYS_EXACT_FEATURES = 100_000, 10
# Boxes are made anew when more than this share of their points is gone or beside them.
_REBUILD_ABOVE = 0.15


class Searcher:
    """A set of points prepared for many exact searches.

    Parameters
    ----------
    points : ndarray of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.search.exact import Searcher
    >>> positions, squared = Searcher(np.array([[0.0], [1.0], [3.0]])).nearest(np.array([[2.0]]), 2)
    >>> positions.tolist(), squared.tolist()
    ([[1, 2]], [[1.0, 1.0]])
    """

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self.boxes: BoxTree | None = None
        self._rest: BoxTree | None = None
        if self.points.shape[1] <= _BOX_FEATURES:
            self.boxes = BoxTree(self.points)
            return
        self._screen = Screen(self.points)

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
            # the few first: what is near in them need not be looked for far away in the others
            found = None if self._rest is None else self._rest.nearest(queries, k, own)
            whole = queries is self.points and self._rest is None
            return self.boxes.nearest(queries, k, own, self.boxes.order if whole else None, found)
        out_i = np.zeros((len(queries), k), dtype=np.int64)
        out_d = np.full((len(queries), k), np.inf)
        if k and len(queries):
            self._screen.nearest(queries, own, out_i, out_d)
        return out_i, out_d

    def updated(self, points: Floats, moved: NDArray[Any]) -> Searcher:
        """Return a searcher for points most of which are in this one, at less cost than a new one.

        Parameters
        ----------
        points : ndarray of shape (m, d)
        moved : ndarray of shape (n,)
            Where each point of this searcher is among them; -1 if it is gone. Those who stay keep their order.
        """
        if self.boxes is None:
            return Searcher(points)
        boxes = self.boxes.renamed(moved)
        is_rest = np.ones(len(points), dtype=bool)
        is_rest[boxes.names()] = False
        rest = np.flatnonzero(is_rest)
        if len(rest) + len(self.boxes.order) - (len(points) - len(rest)) > _REBUILD_ABOVE * len(points):
            return Searcher(points)
        other = Searcher.__new__(Searcher)
        other.points, other.boxes = np.ascontiguousarray(points, dtype=np.float64), boxes
        other._rest = BoxTree(points[rest], rest) if len(rest) else None
        return other

    def reverse_neighbors(self, queries: Floats, reach: Floats) -> tuple[Integers, Integers, Floats]:
        """Return pairs (query, point, squared distance) where the point's reach extends to the query; with boxes only.

        See :meth:`fcac.search.box_tree.BoxTree.reverse_neighbors`.
        """
        parts = [part.reverse_neighbors(queries, reach) for part in (self.boxes, self._rest) if part is not None]
        asker, asked, squared = (np.concatenate(pairs) for pairs in zip(*parts, strict=True))
        return asker, asked, squared


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
