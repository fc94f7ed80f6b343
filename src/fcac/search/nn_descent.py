"""NN-descent: nearly nearest neighbours of very many points, in a cost that grows hardly faster than their number.

Random projection trees (Dasgupta and Freund 2008) start it: points are halved again and again across some direction
until few are left, and points that end up together are compared. A few such trees, each with other directions, give
every point a rough list. Then neighbours of neighbours are compared, round by round, until the lists hardly change: who
is near to my neighbour is likely near to me (Dong, Moses and Li 2011). What differs: nothing is drawn at random, so
that the same points give the same lists; all work is done on points put in the order of the first tree, so that what is
near in space is near in memory; and known lists can be given to start from.

References
----------
W. Dong, C. Moses, K. Li, "Efficient k-nearest neighbor graph construction for generic similarity measures", WWW (2011).
S. Dasgupta, Y. Freund, "Random projection trees and low dimensional manifolds", STOC (2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._parallel import in_ranges
from fcac._typing import Floats, Integers
from fcac.search.box_tree import insert, partition_in_place, single, spatial_order

# Trees beside the first, points left together in a leaf (at most), rounds of comparing neighbours of neighbours, and
# the share of changed places below which no further round is worth its time.
_TREES, _LEAF, _ROUNDS, _SETTLED = 6, 128, 3, 0.005


@inner_kernel(fastmath=True)
def _gap(rows: Any, a: int, b: int) -> Any:
    """Squared distance of two rows in single precision: to choose by, not to report."""
    total = np.float32(0)
    for j in range(rows.shape[1]):
        step = rows[a, j] - rows[b, j]
        total += step * step
    return total


@inner_kernel
def _push_neighbor(near: Any, gaps: Any, fresh: Any, to: int, gap: Any, name: Any) -> None:
    """Put a point into a list ordered by gap if it is nearer than the last and not in it."""
    last = near.shape[1] - 1
    if not gap < gaps[to, last]:
        return
    for m in range(last + 1):
        if near[to, m] == name:
            return
    at = last
    while at > 0 and gaps[to, at - 1] > gap:
        at -= 1
    for m in range(last, at, -1):
        near[to, m], gaps[to, m], fresh[to, m] = near[to, m - 1], gaps[to, m - 1], fresh[to, m - 1]
    near[to, at], gaps[to, at], fresh[to, at] = name, gap, True


@kernel
def _compare_leaves(
    rows: Any, names: Any, starts: Any, wanted: Any, first: int, beyond: int, near: Any, gaps: Any, fresh: Any
) -> None:
    """Offer the wanted points all others in their leaf."""
    last = near.shape[1] - 1
    for leaf in range(first, beyond):
        low, high = starts[leaf], starts[leaf + 1]
        for a in range(low, high):
            name = names[a]
            for b in range(a + 1, high):
                other = names[b]
                if not wanted[name] and not wanted[other]:
                    continue
                gap = _gap(rows, a, b)
                if wanted[name] and gap < gaps[name, last]:
                    _push_neighbor(near, gaps, fresh, name, gap, other)
                if wanted[other] and gap < gaps[other, last]:
                    _push_neighbor(near, gaps, fresh, other, gap, name)


@kernel
def _local_join(
    rows: Any, low: int, high: int, near: Any, fresh: Any, wanted: Any, out_near: Any, out_gaps: Any, out_fresh: Any
) -> None:
    """Offer the points low to high (those wanted) their neighbours' neighbours; reads one set of lists, writes another.

    A pair met before is not met again: one of the two steps must be new.
    """
    n, k = near.shape
    seen = np.full(n, -1, dtype=np.int32)
    for v in range(low, high):
        if not wanted[v]:
            continue
        seen[v] = v
        for m in range(k):
            if near[v, m] >= 0:
                seen[near[v, m]] = v
        for m in range(k):
            u = near[v, m]
            if u < 0:
                break
            for q in range(k):
                w = near[u, q]
                if w < 0:
                    break
                if seen[w] != v and (fresh[v, m] or fresh[u, q]):
                    seen[w] = v
                    gap = _gap(rows, v, w)
                    if gap < out_gaps[v, k - 1]:
                        _push_neighbor(out_near, out_gaps, out_fresh, v, gap, w)


@kernel
def _push_reverse(near: Any, gaps: Any, fresh: Any) -> Any:
    """Offer every point to its new neighbours; returns how many places are new."""
    n, k = near.shape
    for v in range(n):
        for m in range(k):
            u = near[v, m]
            if u >= 0 and fresh[v, m]:
                _push_neighbor(near, gaps, fresh, u, gaps[v, m], v)
    return fresh.sum()


@kernel
def _near_change(near: Any, fresh: Any) -> Any:
    """Which points have something new in their list or in the list of a neighbour."""
    n, k = near.shape
    changed = np.zeros(n, dtype=np.bool_)
    for v in range(n):
        for m in range(k):
            changed[v] = changed[v] or fresh[v, m]
    around = changed.copy()
    for v in range(n):
        for m in range(k):
            if near[v, m] >= 0 and changed[near[v, m]]:
                around[v] = True
                break
    return around


@kernel
def _take_known(known: Any, order: Any, rank: Any, rows: Any, near: Any, gaps: Any, fresh: Any) -> None:
    """Begin with known lists; one that has gaps is new as a whole, so that it is looked at again."""
    k = known.shape[1]
    for v in range(order.shape[0]):
        filled = 0
        for m in range(k):
            name = known[order[v], m]
            if name < 0:
                continue
            gap = _gap(rows, v, rank[name])
            at = filled
            # known lists are in order but for rounding
            while at > 0 and gaps[v, at - 1] > gap:
                near[v, at], gaps[v, at] = near[v, at - 1], gaps[v, at - 1]
                at -= 1
            near[v, at], gaps[v, at] = rank[name], gap
            filled += 1
        if filled == k:
            fresh[v] = False


@kernel
def _measured(ordered: Any, order: Any, near: Any, first: int, beyond: int, out_d: Any, out_i: Any) -> None:
    """Exact distances of the neighbours found, and their order by these."""
    for v in range(first, beyond):
        for m in range(near.shape[1]):
            total = 0.0
            for j in range(ordered.shape[1]):
                step = ordered[v, j] - ordered[near[v, m], j]
                total += step * step
            insert(out_d, out_i, order[v], m, total, order[near[v, m]])


def nearest_approximate(
    points: Floats, k: int, known: Integers | None = None, seed: int = 0
) -> tuple[Integers, Floats]:
    """Return nearly the k nearest other points of each point.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    k : int
    known : ndarray of shape (n, k), optional
        Neighbours known already, -1 in place of others. Only points whose list has such gaps, and those around them,
        are looked at: with few gaps this costs little.
    seed : int, default=0

    Returns
    -------
    positions, squared distances : ndarrays of shape (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.search.nn_descent import nearest_approximate
    >>> from fcac.search.exact import nearest
    >>> points = np.random.default_rng(0).normal(size=(3000, 16))
    >>> near, _ = nearest_approximate(points, 10)
    >>> exact, _ = nearest(points, points, 10, own=np.arange(3000))
    >>> bool(np.mean([len(set(a) & set(b)) for a, b in zip(near, exact)]) > 9)
    True
    """
    points = np.ascontiguousarray(points, dtype=np.float64)
    n = len(points)
    order = spatial_order(points)
    rows = single(points)[order]
    near = np.full((n, k), -1, dtype=np.int32)
    gaps = np.full((n, k), np.inf, dtype=np.float32)
    fresh = np.ones((n, k), dtype=np.bool_)
    if known is not None:
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        _take_known(known, order, rank, rows, near, gaps, fresh)
    _by_trees(rows, near, gaps, fresh, seed)
    _by_neighbours(rows, near, gaps, fresh)
    out_i, out_d = np.zeros((n, k), dtype=np.int64), np.full((n, k), np.inf)
    ordered = points[order]
    in_ranges(lambda first, beyond: _measured(ordered, order, near, first, beyond, out_d, out_i), n)
    return out_i, out_d


def _by_trees(rows: Any, near: Any, gaps: Any, fresh: Any, seed: int) -> None:
    """Compare points that have gaps in their lists with the others in their leaves of several trees."""
    wanted = near[:, -1] < 0
    # no leaf so small that a list could not be filled from it
    leaf = max(_LEAF, 2 * near.shape[1] + 2)
    for tree in range(_TREES + 1):
        scratch, names = rows.copy(), np.arange(len(rows), dtype=np.int32)
        starts = partition_in_place(scratch, names, leaf, seed * 1000 + tree if tree else 0)

        def compare(first: int, beyond: int, leaves: Any = (scratch, names, starts)) -> None:
            _compare_leaves(*leaves, wanted, first, beyond, near, gaps, fresh)

        in_ranges(compare, len(starts) - 1)


def _by_neighbours(rows: Any, near: Any, gaps: Any, fresh: Any) -> None:
    """Compare neighbours of neighbours, round by round, until few places change."""
    at_first = 0
    for number in range(_ROUNDS):
        n_fresh = _push_reverse(near, gaps, fresh)
        at_first = at_first or n_fresh
        if number and n_fresh < _SETTLED * at_first:
            break
        wanted, old_near, old_fresh = _near_change(near, fresh), near.copy(), fresh.copy()
        fresh[:] = False

        def explore(first: int, beyond: int, old: Any = (old_near, old_fresh, wanted)) -> None:
            _local_join(rows, first, beyond, *old, near, gaps, fresh)

        in_ranges(explore, len(near))
