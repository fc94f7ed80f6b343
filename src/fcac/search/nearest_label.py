"""The label of the nearest point, where it is certain before that point is found."""

from __future__ import annotations

import numpy as np

from fcac._typing import Floats, Integers
from fcac.search.exact import Searcher

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
