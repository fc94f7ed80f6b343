"""Nearest neighbours where there are many features: rough distances propose candidates, exact ones decide.

A matrix product in single precision gives the squared distance of every query to every point, wrong by no more than a
known slack; only points that the slack cannot rule out are computed exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._parallel import in_ranges
from fcac._typing import Floats, Integers
from fcac.search.box_tree import insert

# Elements of one block of the distance matrix (float32: 64 MB).
_BLOCK_ELEMENTS = 1 << 24
# Bounds are looked through in runs of this many: a run whose least is too large is passed over.
_RUN = 64


@inner_kernel(fastmath=True)
def _least(values: Any) -> Any:
    # the order of comparisons does not matter to a minimum, so the compiler may choose it
    least = values[0]
    for value in values:
        least = min(least, value)
    return least


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
    own: Any,
    slack: float,
    query_lengths: Any,
    longest: float,
    out_d: Any,
    out_i: Any,
) -> None:
    """Exact nearest of each query among all points that bounds cannot rule out.

    A bound is a squared distance in single precision, without the query's squared length; it lies above the true one
    by no more than the slack times (|query| + |point|) squared.
    """
    k = out_d.shape[1]
    n = bounds.shape[1]
    n_runs = (n + _RUN - 1) // _RUN
    least = np.empty(n_runs, dtype=np.float32)
    rough = np.empty((1, k), dtype=np.float32)
    rough_at = np.empty((1, k), dtype=np.int64)
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
                is_in = False
                for m in range(filled):
                    is_in = is_in or rough_at[0, m] == p
                if not is_in:
                    found = insert(out_d, out_i, r, found, squared_distance(queries[r], points[p], out_d[r, k - 1]), p)


class Screen:
    """Points of many features (float64, C order), prepared for exact searches."""

    def __init__(self, points: Floats) -> None:
        self._points = points
        self._centre = points.mean(axis=0)
        self._rough = np.ascontiguousarray(points - self._centre, dtype=np.float32)
        self._lengths = np.sqrt(np.einsum("ij,ij->i", self._rough, self._rough))
        self._longest = float(self._lengths.max(initial=0.0))
        # rounding of the inputs and of sums of d terms in single precision
        self._slack = (points.shape[1] + 16) * 1.2e-7

    def nearest(self, queries: Floats, own: Integers, out_i: Integers, out_d: Floats) -> None:
        """Write the points nearest to each query, in order, and the squared distances to them; `own` is left out."""
        step = max(1, _BLOCK_ELEMENTS // max(1, len(self._points)))
        for start in range(0, len(queries), step):
            here = slice(start, start + step)
            self._search(queries[here], own[here], out_i[here], out_d[here])

    def _search(self, queries: Floats, own: Integers, out_i: Integers, out_d: Floats) -> None:
        rough = np.ascontiguousarray(queries - self._centre, dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rough, rough))
        bounds = (-2 * rough) @ self._rough.T
        bounds += self._lengths**2

        def pick(first: int, beyond: int) -> None:
            part = slice(first, beyond)
            _pick(
                bounds[part], self._lengths, queries[part], self._points, own[part],
                self._slack, lengths[part], self._longest, out_d[part], out_i[part],
            )  # fmt: skip

        in_ranges(pick, len(queries))
