"""Neighbour lists of a set of points, built from nothing or updated after a change of a few points.

An update gives exactly the lists that a new search would: lists that lost a point are searched again, and a new point
enters the lists of those it is nearer to than their farthest neighbour (its reverse neighbours; Korn and Muthukrishnan,
"Influence sets based on reverse nearest neighbor queries", SIGMOD 2000). What differs from dynamic indexes is that the
lists are the product, not the index, so that an update costs what changed.

Beside the lists only three distances are kept for each point: to its nearest neighbour, to the one in the middle of
its list, and to the farthest. Others are measured again where they are needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._kernels import inner_kernel, kernel
from fcac._parallel import in_ranges
from fcac._typing import Floats, Integers
from fcac.search.box_tree import insert
from fcac.search.exact import Searcher, nearest
from fcac.search.nn_descent import nearest_approximate
from fcac.search.screen import squared_distance


class NeighborLists(NamedTuple):
    """Neighbours of every point.

    Attributes
    ----------
    near : ndarray of shape (n, k)
        Positions of the neighbours, nearest first; equal distances by position.
    squared : ndarray of shape (n, 3)
        Squared distances to the nearest, the middle one (number k // 2) and the farthest.
    changed : ndarray of shape (n,) or None
        Which lists hold other points than before, if they were updated.
    """

    near: NDArray[np.int32]
    squared: Floats
    changed: NDArray[np.bool_] | None = None


def build_lists(searcher: Searcher, k: int) -> NeighborLists:
    """Return the exact lists of a searcher's points."""
    return _short(*searcher.nearest(searcher.points, k, own=np.arange(len(searcher.points))))


def build_lists_approximate(points: Floats, k: int) -> NeighborLists:
    """Return approximate lists of points."""
    return _short(*nearest_approximate(points, k))


def _short(near: Integers, squared: Floats) -> NeighborLists:
    k = near.shape[1]
    if not k:
        return NeighborLists(near.astype(np.int32), np.zeros((len(near), 3)))
    return NeighborLists(near.astype(np.int32), np.ascontiguousarray(squared[:, [0, max(k // 2 - 1, 0), k - 1]]))


@kernel
def _moved(near: Any, squared: Any, moved: Any, n: int) -> Any:
    """The earlier lists in the new positions; -1 in place of points that are gone. And which of them are whole."""
    k = near.shape[1]
    out, out_squared = np.empty((n, k), dtype=np.int32), np.empty((n, 3))
    intact = np.zeros(n, dtype=np.bool_)
    is_new = np.ones(n, dtype=np.bool_)
    for v in range(near.shape[0]):
        at = moved[v]
        if at < 0:
            continue
        is_new[at] = False
        whole = True
        for m in range(k):
            name = moved[near[v, m]]
            out[at, m] = name
            whole = whole and name >= 0
        intact[at] = whole
        for c in range(3):
            out_squared[at, c] = squared[v, c]
    for v in range(n):
        if is_new[v]:
            out[v] = -1
            out_squared[v] = np.inf
    return out, out_squared, intact, is_new


@kernel
def _insert_pairs(new: Any, asked: Any, gaps: Any, points: Any, near: Any, squared: Any, changed: Any) -> None:
    """Put new points into the lists of those that they are near to."""
    k = near.shape[1]
    row_d, row_i = np.empty((1, k)), np.empty((1, k), dtype=np.int32)
    for p in range(new.shape[0]):
        v = asked[p]
        for m in range(k):
            row_i[0, m] = near[v, m]
            row_d[0, m] = squared_distance(points[v], points[near[v, m]])
        insert(row_d, row_i, 0, k, gaps[p], new[p])
        for m in range(k):
            changed[v] = changed[v] or near[v, m] != row_i[0, m]
            near[v, m] = row_i[0, m]
        squared[v, 0], squared[v, 1], squared[v, 2] = row_d[0, 0], row_d[0, max(k // 2 - 1, 0)], row_d[0, k - 1]


@inner_kernel
def _gap_below(points: Any, a: int, b: int, limit: Any) -> Any:
    """Squared distance of two points, or some part of it that is above the limit already."""
    total = 0.0
    for j in range(points.shape[1]):
        step = points[a, j] - points[b, j]
        total += step * step
        if j % 8 == 7 and total > limit:
            break
    return total


@kernel
def _refill(points: Any, near: Any, rows: Any, first: int, beyond: int, out_i: Any, out_d: Any) -> None:
    """The nearest of each row among its present neighbours and their neighbours; distances stay infinite for gaps."""
    n, k = near.shape
    seen = np.full(n, -1, dtype=np.int32)
    for r in range(first, beyond):
        v = rows[r]
        seen[v] = r
        filled = 0
        for m in range(k):
            u = near[v, m]
            if u >= 0:
                seen[u] = r
                filled = insert(out_d, out_i, r, filled, _gap_below(points, v, u, np.inf), u)
        for m in range(k):
            u = near[v, m]
            if u < 0:
                continue
            for q in range(k):
                w = near[u, q]
                if w >= 0 and seen[w] != r:
                    seen[w] = r
                    gap = _gap_below(points, v, w, out_d[r, k - 1])
                    if gap <= out_d[r, k - 1]:
                        filled = insert(out_d, out_i, r, filled, gap, w)


@kernel
def _reverse_neighbors_nearby(points: Any, near: Any, new: Any, reach: Any, starts: Any, ends: Any, moved: Any) -> Any:
    """Pairs of a new point and one whose own reach extends to it, among those tied to the new one's neighbours before.

    Who has the new point within reach has most likely one of its neighbours in the list.
    """
    n, k = near.shape
    old = np.full(n, -1, dtype=np.int32)
    for p in range(moved.shape[0]):
        if moved[p] >= 0:
            old[moved[p]] = p
    seen = np.full(n, -1, dtype=np.int32)
    asker, asked, gaps = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.int64), np.empty(1024)
    count = 0
    for r in range(new.shape[0]):
        v = new[r]
        for m in range(k):
            u = near[v, m]
            first, beyond = (starts[old[u]], starts[old[u] + 1]) if old[u] >= 0 else (0, 0)
            for e in range(first - 1, beyond):
                w = moved[ends[e]] if e >= first else u
                if w < 0 or seen[w] == r or w == v:
                    continue
                seen[w] = r
                gap = _gap_below(points, v, w, reach[w])
                if gap <= reach[w]:
                    if count == asker.shape[0]:
                        asker = np.concatenate((asker, asker))
                        asked = np.concatenate((asked, asked))
                        gaps = np.concatenate((gaps, gaps))
                    asker[count], asked[count], gaps[count] = r, w, gap
                    count += 1
    return asker[:count], asked[:count], gaps[:count]


def update_lists(
    searcher: Searcher,
    before: NeighborLists,
    moved: NDArray[Any],
    exact: bool = True,
    edges: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> NeighborLists:
    """Return the lists of a searcher's points, given those of an earlier set that shares most of its points.

    Only points that lost a neighbour, and new ones, are searched anew; all others are compared with the new points.
    Exact lists equal those made from nothing. Approximate ones of points that lost a neighbour are filled up from
    their neighbours' neighbours, and given the edges from before, only what is linked to a new point's neighbours
    is compared with it.

    Parameters
    ----------
    searcher : Searcher
        Holds the points.
    before : NeighborLists
    moved : ndarray of shape (n_old,)
        Where each earlier point is now; -1 if it is gone. Points that stayed keep their order.
    exact : bool, default=True
    edges : tuple of ndarrays, optional
        Edges between the earlier points: where those of each point begin, and their other ends.
    """
    points, k = searcher.points, before.near.shape[1]
    if not exact and searcher.boxes is None:
        known, *_ = _moved(before.near, before.squared, moved, len(points))
        return _short(*nearest_approximate(points, k, known))
    near, squared, intact, is_new = _moved(before.near, before.squared, moved, len(points))
    new = np.flatnonzero(is_new)
    changed = ~intact
    if not k:
        return NeighborLists(near, np.zeros((len(points), 3)), changed)
    search = new
    if exact:
        search = np.flatnonzero(changed)
    else:
        rows = np.flatnonzero(changed & ~is_new)
        found, gaps = np.zeros((len(rows), k), dtype=np.int64), np.full((len(rows), k), np.inf)
        in_ranges(lambda first, beyond: _refill(points, near, rows, first, beyond, found, gaps), len(rows))
        full = np.isfinite(gaps[:, -1])
        _put(near, squared, rows[full], found[full], gaps[full])
        search = np.sort(np.concatenate([new, rows[~full]]))
    _put(near, squared, search, *searcher.nearest(points[search], k, own=search))
    if not len(new):
        return NeighborLists(near, squared, changed)
    # exact lists searched anew hold the new points already
    listens = intact if exact else ~np.isin(np.arange(len(points)), search)
    reach = np.where(listens, squared[:, 2], -1.0)
    if not exact and edges is not None:
        asker, asked, gaps = _reverse_neighbors_nearby(points, near, new, reach, *edges, moved)
    elif searcher.boxes is not None:
        asker, asked, gaps = searcher.reverse_neighbors(points[new], reach)
    else:
        rows = np.flatnonzero(listens)
        nearest_new, distance = nearest(points[new], points[rows], min(k, len(new)))
        closer, place = np.nonzero(distance <= squared[rows, 2:])
        asker, asked, gaps = nearest_new[closer, place], rows[closer], distance[closer, place]
    _insert_pairs(new[asker], asked, gaps, points, near, squared, changed)
    return NeighborLists(near, squared, changed)


def _put(near: NDArray[np.int32], squared: Floats, rows: Integers, found: Integers, gaps: Floats) -> None:
    k = near.shape[1]
    near[rows] = found
    squared[rows] = gaps[:, [0, max(k // 2 - 1, 0), k - 1]]
