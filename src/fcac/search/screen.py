"""Nearest neighbours where there are many features: rough distances propose candidates, exact ones decide.

A matrix product in single precision gives the squared distance of every query to every point, wrong by no more than a
known slack; only points that the slack cannot rule out are computed exactly.

Where there are many points the product is taken of a few coordinates only. Points are turned into their principal axes,
and what lies beyond the first of them is kept as one number, its length. By the triangle inequality the distance over
these coordinates and that number is never larger than the true one, so it rules out as safely, and more axes are looked
at for those that remain (the idea of filtering by lower bounds is that of GEMINI: Faloutsos, Ranganathan and
Manolopoulos 1994). How many axes are worth it is tried on a few queries; it changes how long a search takes, never what
it finds.

References
----------
C. Faloutsos, M. Ranganathan, Y. Manolopoulos, "Fast subsequence matching in time-series databases", ACM SIGMOD
International Conference on Management of Data (1994).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fcac._kernels import inner_kernel, kernel
from fcac._parallel import in_ranges, one_blas_thread
from fcac._typing import Floats, Integers
from fcac.search.box_tree import insert

# Elements of one block of the distance matrix (float32: 64 MB).
_BLOCK_ELEMENTS = 1 << 24
# Bounds are looked through in runs of this many: a run whose least is too large is passed over.
_RUN = 64
# Principal axes pay from so many points of so many features on, and cost too much to find above the last number.
_AXES_FROM, _FEWEST_FEATURES, _MOST_FEATURES = 8000, 96, 1200
# Fewer queries than these are sooner answered without axes than they are found.
_QUERIES_FROM = 1000
# Points from which the axes are found, and queries on which their number is tried.
_SAMPLE, _TRIED = 1500, 24
# As many neighbours are asked for there as lists of neighbours have.
_NEIGHBOURS = 30
# Axes of the product, as a share of the features; four times as many are looked at for what remains.
_SHARES, _FINER = (1 / 16, 1 / 8, 1 / 4), 4
# What things cost, in nanoseconds: one axis of one point in the product, one candidate looked at more closely.
_PRODUCT_COST, _CANDIDATE_COST = 0.04, 150.0


@inner_kernel(fastmath=True)
def _least(values: Any) -> Any:
    # the order of comparisons does not matter to a minimum, so the compiler may choose it
    least = values[0]
    for value in values:
        least = min(least, value)
    return least


@inner_kernel(fastmath=True)
def _gap_along(a: Any, b: Any) -> Any:
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        step = a[j] - b[j]
        total += step * step
    return total


@inner_kernel
def squared_distance(a: Any, b: Any, limit: float = np.inf) -> float:
    """Squared distance, summed feature by feature in one fixed order; above the limit, only part of the sum."""
    total = 0.0
    for j in range(a.shape[0]):
        gap = a[j] - b[j]
        total += gap * gap
        if j % 64 == 63 and total > limit:
            break
    return total


@kernel
def _pick(
    bounds: Any,
    lengths: Any,
    queries: Any,
    points: Any,
    fine_queries: Any,
    fine_points: Any,
    n_axes: int,
    own: Any,
    slack: float,
    query_lengths: Any,
    longest: float,
    out_d: Any,
    out_i: Any,
) -> None:
    """Exact nearest of each query among all points that bounds cannot rule out.

    A bound is a squared distance in single precision over the first axes, without the query's squared length; it lies
    above the true squared distance by no more than the slack times (|query| + |point|) squared. The finer coordinates
    end with the length of what lies beyond them; there are none if the bounds are of all features.
    """
    k = out_d.shape[1]
    n = bounds.shape[1]
    n_runs = (n + _RUN - 1) // _RUN
    least = np.empty(n_runs, dtype=np.float32)
    rough = np.empty((1, k), dtype=np.float32)
    rough_at = np.empty((1, k), dtype=np.int64)
    n_fine = fine_points.shape[1]
    for r in range(bounds.shape[0]):
        row = bounds[r]
        filled = 0
        for run in range(n_runs):
            first, beyond = run * _RUN, min(n, (run + 1) * _RUN)
            least[run] = _least(row[first:beyond])
            if filled == k and least[run] >= rough[0, k - 1]:
                continue
            for p in range(first, beyond):
                if p != own[r] and (filled < k or row[p] < rough[0, k - 1]):
                    filled = insert(rough, rough_at, 0, filled, row[p], p)
        # the nearest by bounds, computed exactly, limit how far the true nearest can lie
        found = 0
        for m in range(filled):
            p = rough_at[0, m]
            found = insert(out_d, out_i, r, found, squared_distance(queries[r], points[p]), p)
        squared = query_lengths[r] * query_lengths[r]
        most = slack * (query_lengths[r] + longest) ** 2
        for run in range(n_runs):
            if least[run] > out_d[r, k - 1] - squared + most:
                continue
            for p in range(run * _RUN, min(n, (run + 1) * _RUN)):
                spare = slack * (query_lengths[r] + lengths[p]) ** 2
                if row[p] > out_d[r, k - 1] - squared + spare or p == own[r]:
                    continue
                if n_fine:
                    # the bound without what it knows of the rest, and the finer coordinates instead
                    rest = fine_queries[r, n_axes] - fine_points[p, n_axes]
                    along = _gap_along(fine_queries[r, n_axes + 1 :], fine_points[p, n_axes + 1 :])
                    if row[p] - rest * rest + along > out_d[r, k - 1] - squared + 2 * spare:
                        continue
                is_in = False
                for m in range(filled):
                    is_in = is_in or rough_at[0, m] == p
                if not is_in:
                    found = insert(out_d, out_i, r, found, squared_distance(queries[r], points[p], out_d[r, k - 1]), p)


class Screen:
    """Points of many features (float64, C order), prepared for exact searches."""

    def __init__(self, points: Floats) -> None:
        self.points = points
        self._centre = points.mean(axis=0)
        self._axes: Floats | None = None
        self._n_axes = 0
        n, d = points.shape
        self._may_turn = n >= _AXES_FROM and _FEWEST_FEATURES <= d <= _MOST_FEATURES
        # rounding of the inputs and of sums of d terms in single precision
        self._slack = (d + 16) * 1.2e-7
        self._take_coordinates()

    def _take_coordinates(self) -> None:
        self._coordinates = self._turned(self.points)
        self._wide = self._of_product(self._coordinates)
        self._lengths = np.sqrt(np.einsum("ij,ij->i", self._wide, self._wide))
        self._longest = float(self._lengths.max(initial=0.0))

    def _of_product(self, turned: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the coordinates of which the product is taken."""
        return turned if self._axes is None else np.ascontiguousarray(turned[:, : self._n_axes + 1])

    def nearest(self, queries: Floats, own: Integers, out_i: Integers, out_d: Floats) -> None:
        """Write the points nearest to each query, in order, and the squared distances to them; `own` is left out."""
        if self._may_turn and len(queries) >= _QUERIES_FROM:
            self._may_turn = False
            with one_blas_thread():
                self._choose_axes()
        squares = self._lengths**2
        fine = np.empty((0, 0), dtype=np.float32) if self._axes is None else self._coordinates
        for here in self._blocks(len(queries)):
            block = queries[here]
            turned = self._turned(block)
            wide = self._of_product(turned)
            lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
            bounds = (-2 * wide) @ self._wide.T
            bounds += squares

            def pick(first: int, beyond: int, rows: Any = (here.start, block, turned, bounds, lengths)) -> None:
                start, block, turned, bounds, lengths = rows
                part, at = slice(first, beyond), slice(start + first, start + beyond)
                _pick(
                    bounds[part], self._lengths, block[part], self.points, turned[part], fine, self._n_axes, own[at],
                    self._slack, lengths[part], self._longest, out_d[at], out_i[at],
                )  # fmt: skip

            in_ranges(pick, len(block))

    def _blocks(self, n_queries: int) -> Iterator[slice]:
        step = max(1, _BLOCK_ELEMENTS // max(1, len(self.points)))
        for start in range(0, n_queries, step):
            yield slice(start, start + step)

    def _turned(self, rows: Floats) -> NDArray[np.float32]:
        """Return rows in single precision, from the centre: all features, or along axes with the lengths of the rest.

        Along axes: the first ones, the length of the rest, the finer ones, the length of their rest.
        """
        if self._axes is None:
            return np.ascontiguousarray(rows - self._centre, dtype=np.float32)
        n_axes, n_finer = self._n_axes, self._axes.shape[1]
        turned = np.empty((len(rows), n_finer + 2), dtype=np.float32)
        for here in self._blocks(len(rows)):
            from_centre = rows[here] - self._centre
            along = from_centre @ self._axes
            squared = np.einsum("ij,ij->i", from_centre, from_centre)
            first = np.einsum("ij,ij->i", along[:, :n_axes], along[:, :n_axes])
            finer = np.einsum("ij,ij->i", along, along)
            turned[here, :n_axes] = along[:, :n_axes]
            turned[here, n_axes] = np.sqrt(np.maximum(squared - first, 0.0))
            turned[here, n_axes + 1 : -1] = along[:, n_axes:]
            turned[here, -1] = np.sqrt(np.maximum(squared - finer, 0.0))
        return turned

    def _choose_axes(self) -> None:
        """Set the axes and their number if a few queries say that they are worth it."""
        n, d = self.points.shape
        points = self._coordinates
        sample = self.points[np.linspace(0, n - 1, _SAMPLE).astype(np.int64)] - self._centre
        _, axes = eigh(sample.T @ sample)
        axes = axes[:, ::-1]
        asked = sample[:: _SAMPLE // _TRIED][:_TRIED].astype(np.float32)
        lengths, asked_lengths = _squares(points), _squares(asked)
        squared = asked_lengths[:, None] + lengths - 2 * asked @ points.T
        best, n_axes = _PRODUCT_COST * d * n, 0
        for share in _SHARES:
            tried = math.ceil(share * d)
            turn = axes[:, :tried].astype(np.float32)
            along, asked_along = points @ turn, asked @ turn
            rest = np.sqrt(np.maximum(lengths - _squares(along), 0))
            asked_rest = np.sqrt(np.maximum(asked_lengths - _squares(asked_along), 0))
            # the bound that `_pick` will have
            bounds = asked_lengths[:, None] + lengths - 2 * (asked_along @ along.T + asked_rest[:, None] * rest)
            nearest = np.argpartition(bounds, _NEIGHBOURS, axis=1)[:, : _NEIGHBOURS + 1]
            limit = np.take_along_axis(squared, nearest, axis=1).max(axis=1)
            candidates = float((bounds <= limit[:, None]).sum(axis=1).mean())
            cost = _PRODUCT_COST * tried * n + _CANDIDATE_COST * candidates
            if cost < best:
                best, n_axes = cost, tried
        if n_axes:
            self._n_axes = n_axes
            self._axes = np.ascontiguousarray(axes[:, : min(d, _FINER * n_axes)])
            self._take_coordinates()


def _squares(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    squares: NDArray[np.float32] = np.einsum("ij,ij->i", rows, rows)
    return squares
