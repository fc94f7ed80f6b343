"""The distinct places of many nodes in Morton order, which keeps neighbours together and which new nodes do not upset.

Every place has a code: the halves of space it lies in, again and again (Morton 1966). Sorted by their codes, places
that are near in space are mostly near in the order (and in memory), and the order of two of them depends on no third.
So after a change most places only move up or down a little, and what was found out about them stays valid. What
differs from the usual Z-order: a feature of larger spread is halved first and more often, and the grid is rounded so
much that a few new nodes hardly ever change it.

References
----------
G. M. Morton, "A computer oriented geodetic data base and a new technique in file sequencing", IBM (1966).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._kernels import inner_kernel, kernel
from fcac._typing import Floats, Integers
from fcac.search.exact import distinct

# From this many places on they are put in this order; fewer are in the order of `distinct`.
ORDER_FROM = 20_000
# Halvings in a code, and halvings of one feature at most.
_HALVINGS, _DEPTH = 60, 30

Grid = tuple[Integers, Integers, Floats, Floats]


def grid_of(centre: Floats, variances: Floats, scales: Floats) -> Grid:
    """Return where to halve: the feature and the depth of each step, and the low end and width of every feature.

    Everything is rounded so much that a few new nodes hardly ever change it.

    Parameters
    ----------
    centre, variances, scales : ndarrays of shape (d,)
        Mean and variance of every feature, and its factor in the distance.
    """
    wide = np.flatnonzero((variances > 0) & np.isfinite(variances))
    powers = np.rint(0.5 * np.log2(variances[wide]))
    in_distance = powers + np.rint(np.log2(scales[wide]))
    late = np.rint(in_distance.max(initial=-np.inf) - in_distance).astype(np.int64)
    steps = [
        (feature, level - begin)
        for level in range(_DEPTH)
        for feature, begin in enumerate(late.tolist())
        if level >= begin
    ][:_HALVINGS]
    spread = np.exp2(powers)
    low = (np.rint(centre[wide] / spread) - 4) * spread
    feature, depth = (np.array([step[i] for step in steps], dtype=np.int64) for i in (0, 1))
    return wide[feature], depth, low[feature], 8 * spread[feature]


@kernel
def _codes(rows: Any, bits: Any, feature: Any, depth: Any, low: Any, width: Any) -> Any:
    """Code of each row, and a number made of all its bits."""
    codes, keys = np.empty(rows.shape[0], dtype=np.uint64), np.empty(rows.shape[0], dtype=np.uint64)
    last = 2**_DEPTH - 1
    for r in range(rows.shape[0]):
        code = np.uint64(0)
        for s in range(feature.shape[0]):
            share = (rows[r, feature[s]] - low[s]) / width[s]
            cell = np.int64(min(max(share, 0.0), 1.0) * last)
            code = (code << np.uint64(1)) | np.uint64((cell >> (_DEPTH - 1 - depth[s])) & 1)
        key = np.uint64(0)
        for j in range(bits.shape[1]):
            key = (key ^ bits[r, j]) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(32)
        codes[r], keys[r] = code, key
    return codes, keys


@inner_kernel
def _find(codes: Any, keys: Any, code: Any, key: Any) -> Any:
    """First place that is not before this code and key."""
    low, high = 0, codes.shape[0]
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < code or (codes[middle] == code and keys[middle] < key):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _find_all(codes: Any, keys: Any, wanted_codes: Any, wanted_keys: Any) -> Any:
    """Where each wanted code and key stands, or -1 - where it would stand."""
    out = np.empty(wanted_codes.shape[0], dtype=np.int64)
    for w in range(out.shape[0]):
        at = _find(codes, keys, wanted_codes[w], wanted_keys[w])
        is_here = at < codes.shape[0] and codes[at] == wanted_codes[w] and keys[at] == wanted_keys[w]
        out[w] = at if is_here else -1 - at
    return out


@kernel
def _renumbered(used: Any, before: Any) -> Any:
    """New positions of the old places in use, and of new places, each of which comes before some old one."""
    moved = np.full(used.shape[0], -1, dtype=np.int32)
    fresh = np.empty(before.shape[0], dtype=np.int64)
    count, at = 0, 0
    for p in range(used.shape[0] + 1):
        while at < before.shape[0] and before[at] == p:
            fresh[at] = count
            at += 1
            count += 1
        if p < used.shape[0] and used[p]:
            moved[p] = count
            count += 1
    return moved, fresh, count


@kernel
def _first_of(point_of: Any, n_points: int) -> Any:
    first = np.empty(n_points, dtype=np.int64)
    for i in range(point_of.shape[0] - 1, -1, -1):
        first[point_of[i]] = i
    return first


class MortonOrder:
    """The distinct places among nodes.

    Parameters
    ----------
    nodes : ndarray of shape (n, d)
    grid : tuple
        Of :func:`grid_of`.

    Attributes
    ----------
    first : ndarray of shape (m,)
        First node at every place.
    point_of : ndarray of shape (n,)
        Place of every node.
    grid : tuple or None
        None if there are few places, in the order of :func:`~fcac.search.exact.distinct`.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.search.morton_order import MortonOrder, grid_of
    >>> nodes = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]])
    >>> places = MortonOrder(nodes, grid_of(nodes.mean(axis=0), nodes.var(axis=0), np.ones(2)))
    >>> len(places.first), bool(places.point_of[0] == places.point_of[2])
    (2, True)
    """

    def __init__(self, nodes: Floats, grid: Grid) -> None:
        self.grid: Grid | None = None
        self._codes = self._keys = np.zeros(0, dtype=np.uint64)
        if len(nodes) >= ORDER_FROM and self._put_in_order(nodes, grid):
            self.grid = grid
        else:
            self.first, self.point_of = distinct(nodes)

    def _put_in_order(self, nodes: Floats, grid: Grid) -> bool:
        bits = _bits(nodes)
        codes, keys = _codes(nodes, bits, *grid)
        order = np.lexsort((keys, codes))
        codes, keys = codes[order], keys[order]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (codes[1:] != codes[:-1]) | (keys[1:] != keys[:-1])
        if is_first.sum() < ORDER_FROM:
            return False
        twins = np.flatnonzero(~is_first)
        if not np.array_equal(bits[order[twins]], bits[order[twins - 1]]):
            # two different places with one key, which practically never happens
            return False
        self._codes, self._keys = codes[is_first], keys[is_first]
        self.point_of = np.empty(len(order), dtype=np.int64)
        self.point_of[order] = np.cumsum(is_first) - 1
        self.first = _first_of(self.point_of, len(self._codes))
        return True

    def updated(
        self, nodes: Floats, old_nodes: Floats, old: Integers, grid: Grid
    ) -> tuple[MortonOrder, Integers] | None:
        """Return the places of changed nodes and where each of the present places is among them, -1 if nowhere.

        The result equals that made from nothing. It is None where that would have to be done.

        Parameters
        ----------
        nodes, old_nodes : ndarrays of shapes (n, d) and (n_old, d)
        old : ndarray of shape (n,)
            Which of the old nodes each one is; -1 for a new one.
        grid : tuple
            Of the nodes.
        """
        if self.grid is None or not all(np.array_equal(a, b) for a, b in zip(self.grid, grid, strict=True)):
            return None
        stays = old >= 0
        new = np.flatnonzero(~stays)
        bits = _bits(nodes[new])
        codes, keys = _codes(nodes[new], bits, *grid)
        found = _find_all(self._codes, self._keys, codes, keys)
        known, unknown = found >= 0, np.flatnonzero(found < 0)
        if not np.array_equal(_bits(old_nodes[self.first[found[known]]]), bits[known]):
            return None
        sort = unknown[np.lexsort((keys[unknown], codes[unknown]))]
        is_first = np.ones(len(sort), dtype=bool)
        is_first[1:] = (codes[sort[1:]] != codes[sort[:-1]]) | (keys[sort[1:]] != keys[sort[:-1]])
        twins = np.flatnonzero(~is_first)
        if not np.array_equal(bits[sort[twins]], bits[sort[twins - 1]]):
            return None
        used = np.zeros(len(self.first), dtype=bool)
        used[self.point_of[old[stays]]] = True
        used[found[known]] = True
        moved, fresh, n_points = _renumbered(used, -1 - found[sort[is_first]])
        if n_points < ORDER_FROM:
            return None
        now = MortonOrder.__new__(MortonOrder)
        now.grid = grid
        now._codes, now._keys = np.empty(n_points, dtype=np.uint64), np.empty(n_points, dtype=np.uint64)
        for held, earlier, added in ((now._codes, self._codes, codes), (now._keys, self._keys, keys)):
            held[moved[used]] = earlier[used]
            held[fresh] = added[sort[is_first]]
        now.point_of = np.empty(len(nodes), dtype=np.int64)
        now.point_of[stays] = moved[self.point_of[old[stays]]]
        now.point_of[new[known]] = moved[found[known]]
        now.point_of[new[sort]] = fresh[np.cumsum(is_first) - 1]
        now.first = _first_of(now.point_of, n_points)
        return now, moved


def _bits(nodes: Floats) -> NDArray[np.uint64]:
    # adding zero turns -0.0 into 0.0, which has other bits
    return np.ascontiguousarray(nodes + 0.0).view(np.uint64)
