"""Rows with gaps: compared over the features they have, and filled from the points they resemble."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._typing import Floats, Integers

# Points that a gap is filled from, and points that are searched unless told otherwise.
_NEIGHBOURS, _MOST = 12, 512
# Two points that share few features may agree in them by chance. So many features of the usual difference are added to
# those they share.
_UNSEEN = 2.0
_ROWS_AT_ONCE = 1024


class GapFiller:
    """Fills the gaps of rows with the means of the points nearest to them; points may have gaps themselves.

    Rows and points are compared over the features that both have: the mean squared difference, every feature divided by
    its spread. That is how correntropy, a mean over features, treats gaps, and how k-nearest-neighbour imputation does
    (Troyanskaya et al., Bioinformatics 17, 2001). Of more than `most` points, some are taken in equal steps.

    >>> points = np.array([[0.0, 1.0], [0.1, 1.0], [9.0, 5.0], [9.1, 5.0]])
    >>> GapFiller(points, n_neighbours=2).fill(np.array([[9.0, np.nan], [np.nan, 1.0]])).round(2).tolist()
    [[9.0, 5.0], [0.05, 1.0]]
    """

    def __init__(self, points: Floats, most: int = _MOST, n_neighbours: int = _NEIGHBOURS) -> None:
        if len(points) > most:
            points = points[np.linspace(0, len(points) - 1, most).astype(np.int64)]
        self._points = points
        self._n_neighbours = n_neighbours
        has = ~np.isnan(points)
        self._has = has.astype(np.float64)
        known = np.maximum(self._has.sum(axis=0), 1.0)
        self._means: Floats = np.where(has, points, 0.0).sum(axis=0) / known
        apart = np.where(has, points - self._means, 0.0)
        spread = np.sqrt((apart**2).sum(axis=0) / known)
        self._factors = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        self._scaled = apart * self._factors
        self._squares = self._scaled**2
        # points without gaps: one product then gives the distances over the features that a row has
        self._whole = np.hstack([self._squares, -2.0 * self._scaled]).T.astype(np.float32) if has.all() else None

    def fill(self, rows: Floats, own: Integers | None = None) -> Floats:
        """Return rows without gaps; a row at position `own` among the points is not filled from itself."""
        holes = np.isnan(rows)
        todo = np.flatnonzero(holes.any(axis=1))
        result = rows.copy()
        for start in range(0, len(todo), _ROWS_AT_ONCE):
            here = todo[start : start + _ROWS_AT_ONCE]
            near = self._nearest(rows[here], None if own is None else own[here])
            if self._whole is not None:
                filled = self._points[near].mean(axis=1)
            else:
                weights = self._has[near]
                sums = np.where(weights > 0, self._points[near], 0.0).sum(axis=1)
                n_known = weights.sum(axis=1)
                filled = np.where(n_known > 0, sums / np.maximum(n_known, 1.0), self._means)
            result[here] = np.where(holes[here], filled, rows[here])
        return result

    def _nearest(self, rows: Floats, own: Integers | None) -> Integers:
        present = ~np.isnan(rows)
        has = present.astype(np.float64)
        scaled = np.where(present, rows - self._means, 0.0) * self._factors
        apart: Any
        if self._whole is not None:
            # a row shares the same features with all points: the order of distances is that of these sums
            apart = np.hstack([has, scaled]).astype(np.float32) @ self._whole
        else:
            squared = (scaled**2) @ self._has.T + has @ self._squares.T - 2.0 * (scaled @ self._scaled.T)
            both = has @ self._has.T
            # the usual squared difference of two features of unit spread is 2
            apart = (np.maximum(squared, 0.0) + 2.0 * _UNSEEN) / (both + _UNSEEN)
        if own is not None:
            apart[np.arange(len(rows)), own] = np.inf
        k = min(self._n_neighbours, len(self._points))
        if k == apart.shape[1]:
            return np.tile(np.arange(k), (len(rows), 1))
        return np.argpartition(apart, k, axis=1)[:, :k]


def without_gaps(rows: Floats, points: Floats) -> Floats:
    """Return rows as they are if they have no gaps; otherwise filled from points that have none."""
    if not np.isnan(rows).any():
        return rows
    return GapFiller(points).fill(rows)
