"""Nearest neighbours among nodes: exact, and independent of who sent which first.

Exact means the same lists, ties included, however the nodes arrived: squared distances are summed feature by feature
in one fixed order, and equal distances go to the lower position. With few features boxes around near points are
searched; with many, matrix products propose candidates, and the final order is taken from those sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.search.box_tree import BoxTree
from fcac.search.screen import Screen

# Above this many features boxes overlap so much that matrix products are faster.
_BOX_FEATURES = 20


class Searcher:
    """A set of points prepared for many exact searches.

    >>> positions, squared = Searcher(np.array([[0.0], [1.0], [3.0]])).nearest(np.array([[2.0]]), 2)
    >>> positions.tolist(), squared.tolist()
    ([[1, 2]], [[1.0, 1.0]])
    """

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        few = self.points.shape[1] <= _BOX_FEATURES
        self._points: BoxTree | Screen = BoxTree(self.points) if few else Screen(self.points)

    def nearest(self, queries: Floats, k: int, own: Integers | None = None) -> tuple[Integers, Floats]:
        """Return positions and squared distances (m, k) of the k nearest points of each query, nearest first.

        Equal distances go by position. `own` is the position of each query among the points, which is then left out of
        its own list; -1 for none.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float64)
        own = np.full(len(queries), -1, dtype=np.int64) if own is None else own.astype(np.int64)
        if isinstance(self._points, BoxTree):
            order = self._points.order if queries is self.points else None
            return self._points.nearest(queries, k, own, order)
        out_i = np.zeros((len(queries), k), dtype=np.int64)
        out_d = np.full((len(queries), k), np.inf)
        if k and len(queries):
            self._points.nearest(queries, own, out_i, out_d)
        return out_i, out_d


class NeighborLists(NamedTuple):
    """Neighbours of every point, nearest first, equal distances by position.

    `squared` has only the squared distances to the nearest, the middle one (number k // 2) and the farthest.
    """

    near: NDArray[np.int32]
    squared: Floats


def build_lists(searcher: Searcher, k: int) -> NeighborLists:
    """Return the lists of a searcher's points."""
    near, squared = searcher.nearest(searcher.points, k, own=np.arange(len(searcher.points)))
    if not k:
        return NeighborLists(near.astype(np.int32), np.zeros((len(near), 3)))
    return NeighborLists(near.astype(np.int32), np.ascontiguousarray(squared[:, [0, max(k // 2 - 1, 0), k - 1]]))


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


# With more labels than this the shortcut costs as much as it saves; so it does for few rows.
_MOST_LABELS, _FEWEST_ROWS = 64, 2048
# Rows worked on together, and the share of the first of them that must be certain for the shortcut to be gone on with.
_ROWS_AT_ONCE, _WORTH = 8192, 0.5
# Far above the rounding of sums of as many products as there are features.
_SLACK = 1e-11


class LabelSearch:
    """Points with labels, prepared for finding the label of the nearest one.

    Every label has an anchor, the point of it nearest to the mean of them. If a row lies nearer to an anchor than half
    of the way from the anchor to the nearest point of another label, no point of another label can be the nearest
    (triangle inequality). Rows of which that cannot be said are searched. The labels are those of the search, always.

    >>> from fcac.search.exact import Searcher
    >>> search = LabelSearch(Searcher(np.array([[0.0], [1.0], [9.0]])), np.array([4, 4, 7]))
    >>> search.of(np.array([[0.4], [8.0]])).tolist()
    [4, 7]
    """

    def __init__(self, searcher: Searcher, labels: Integers) -> None:
        self._searcher, self._labels = searcher, labels
        self._anchor_labels, which, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        self._is_worth = 1 < len(sizes) <= _MOST_LABELS
        if not self._is_worth:
            return
        points = searcher.points
        self._centre = points.mean(axis=0)
        placed = points - self._centre
        means = np.zeros((len(sizes), points.shape[1]))
        np.add.at(means, which, placed)
        squares = np.einsum("ij,ij->i", placed, placed)
        apart = squares[:, None] - 2.0 * placed @ (means / sizes[:, None]).T
        own = which[:, None] == np.arange(len(sizes))
        self._anchors = placed[np.where(own, apart, np.inf).argmin(axis=0)]
        lengths = np.einsum("ij,ij->i", self._anchors, self._anchors)
        to_others = np.where(own, np.inf, squares[:, None] - 2.0 * placed @ self._anchors.T).min(axis=0) + lengths
        # a quarter of the squared way to the nearest point of another label
        self._quarters = np.maximum(to_others, 0.0) / 4.0 - lengths
        self._slack = _SLACK * (float(squares.max(initial=0.0)) + 1e-300)

    def of(self, rows: Floats) -> Integers:
        """Return the label of the point nearest to each row."""
        if not self._is_worth or len(rows) < _FEWEST_ROWS:
            return self._searched(rows)
        found = np.empty(len(rows), dtype=self._labels.dtype)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            here = slice(start, start + _ROWS_AT_ONCE)
            certain = self._certain(rows[here], found[here])
            if start == 0 and certain.mean() < _WORTH:
                return self._searched(rows)
            doubtful = start + np.flatnonzero(~certain)
            if len(doubtful):
                found[doubtful] = self._searched(rows[doubtful])
        return found

    def _certain(self, rows: Floats, out: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Write the label of the anchor that has most to spare, and tell whether that is enough."""
        placed = rows - self._centre
        spare = placed @ (2.0 * self._anchors.T)
        spare += self._quarters
        best = spare.argmax(axis=1)
        out[:] = self._anchor_labels[best]
        squares = np.einsum("ij,ij->i", placed, placed)
        certain: np.ndarray[tuple[int], np.dtype[np.bool_]] = spare[np.arange(len(rows)), best] - squares > (
            self._slack + _SLACK * squares
        )
        return certain

    def _searched(self, rows: Floats) -> Integers:
        return self._labels[self._searcher.nearest(rows, 1)[0][:, 0]]
