"""The nearest of a few thousand points that change slowly, found exactly and fast.

Two ways, both of which only propose: the decision is taken on squared distances summed in float64, feature by feature
in one fixed order, and equal distances go to the lower position. So the answer depends on nothing but the points.

With few features, points that lie together share a tile of 32 and a box around it. The distance to every box bounds
the distance to the points inside from below; only tiles that can hold the nearest point are opened, in float32, and
only points that rounding cannot rule out are computed exactly. With many features boxes overlap, and one matrix
product in float32 proposes candidates instead.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._typing import Floats, Integers
from fcac.art.simd import lowest_bit
from fcac.nodes._tiles import LANES, box_distances, lanes_within, largest_of, least_of, point_distances
from fcac.search.box_tree import partition_in_place

# Above this many features boxes overlap so much that a matrix product is faster.
BOX_FEATURES = 24

# Rows per matrix product: 256 rows times 4,000 points are 4 MB in float32.
_PRODUCT_ROWS = 256

_ULP32 = 2.0**-24
# Beyond this a float32 square may overflow: such rows are compared with all points in float64.
_FAR32 = 1e18


@inner_kernel(error_model="numpy")
def squared_distance(a, i, b, k):
    """Return the squared distance between row i of a and row k of b, summed in the order of the features."""
    total = 0.0
    for j in range(a.shape[1]):
        gap = a[i, j] - b[k, j]
        total += gap * gap
    return total


@inner_kernel(error_model="numpy")
def _compare_all(rows, r, points, n):
    """Nearest of the first n points, all of them computed in float64."""
    best, least = np.int64(0), np.inf
    for k in range(n):
        gap = squared_distance(rows, r, points, k)
        if gap < least:
            best, least = np.int64(k), gap
    return best, least


@kernel(error_model="numpy")
def _fill_tiles(points, first, shift, scale, names, tiles, low, high, reach, held):
    """Put points[first:] into tiles behind those already held, in the order of `names`; widen the tiles' boxes."""
    d = points.shape[1]
    for i in range(names.shape[0]):
        at = first + i
        tile, lane = at // LANES, at % LANES
        name = names[i]
        group, member = tile // LANES, tile % LANES
        square = 0.0
        for j in range(d):
            value = np.float32((points[name, j] - shift[j]) * scale)
            tiles[tile, j, lane] = value
            low[group, j, member] = min(low[group, j, member], value)
            high[group, j, member] = max(high[group, j, member], value)
            square += np.float64(value) * np.float64(value)
        held[at] = name
        reach[tile] = max(reach[tile], np.sqrt(square))


@inner_kernel(error_model="numpy", inline="always")
def _limit_of(root, slack, growth):
    """Largest float32 square that rounding can have made of a distance up to `root`."""
    return np.float32((root + slack) * (root + slack) * growth)


@inner_kernel(error_model="numpy")
def _open(points, tiles, tile, held, x32, slack, rows, r, best, least, root, growth, scale, found):
    """Look into one tile; returns the nearest so far: its position, squared distance, and distance in float32 units."""
    limit = _limit_of(root, slack, growth)
    near = point_distances(tiles, tile, x32, limit, found)
    while near != 0:
        # the most promising first: its exact distance spares most of the others
        lane = lowest_bit(near)
        rest = near & (near - 1)
        while rest != 0:
            other = lowest_bit(rest)
            lane = other if found[other] < found[lane] else lane
            rest &= rest - 1
        near &= ~(1 << lane)
        if found[lane] > limit:
            break
        k = held[tile * LANES + lane]
        gap = squared_distance(rows, r, points, k)
        if gap < least or (gap == least and k < best):
            best, least = k, gap
            root = np.sqrt(least) * scale
            limit = _limit_of(root, slack, growth)
    return best, least, root


@kernel(error_model="numpy")
def _search_tiles(rows, start, stop, points, n, shift, scale, tiles, low, high, reach, held, n_tiles, near, squared):
    """Nearest of points[:n] to rows[start:stop].

    Rounding to float32 moves a point by at most u times its length (u = 2^-24), and so does taking the difference; a
    distance is therefore wrong by at most 2 u (|x| + |w|), and its square, summed over d features, by another factor
    of 1 + (d + 2) u. Both are doubled.
    """
    d = rows.shape[1]
    n_groups = (n_tiles + LANES - 1) // LANES
    x32, found = np.empty(d, np.float32), np.empty(LANES, np.float32)
    bound = np.empty((n_groups, LANES), np.float32)
    farthest = np.zeros(n_groups)
    for tile in range(n_tiles):
        farthest[tile // LANES] = max(farthest[tile // LANES], reach[tile])
    growth, unit, open_end = 1.0 + (d + 8.0) * 2.0 * _ULP32, 4.0 * _ULP32, np.float32(np.inf)
    for r in range(start, stop):
        square = 0.0
        for j in range(d):
            value = (rows[r, j] - shift[j]) * scale
            x32[j] = np.float32(value)
            square += value * value
        size = np.sqrt(square)
        if not size < _FAR32:
            near[r], squared[r] = _compare_all(rows, r, points, n)
            continue
        first_group, least32 = np.int64(0), open_end
        for group in range(n_groups):
            box_distances(low, high, group, x32, open_end, bound[group])
            least_here = least_of(bound, group)
            if least_here < least32:
                first_group, least32 = np.int64(group), least_here
        first = first_group * LANES + lowest_bit(lanes_within(bound, first_group, least32))
        best, least, root = _open(
            points,
            tiles,
            first,
            held,
            x32,
            (reach[first] + size) * unit,
            rows,
            r,
            np.int64(-1),
            np.inf,
            np.inf,
            growth,
            scale,
            found,
        )
        for group in range(n_groups):
            limit = _limit_of(root, (farthest[group] + size) * unit, growth)
            inside = lanes_within(bound, group, limit)
            if group == first_group:
                inside &= ~(1 << (first - group * LANES))
            while inside != 0:
                lane = lowest_bit(inside)
                inside &= inside - 1
                tile = group * LANES + lane
                slack = (reach[tile] + size) * unit
                if bound[group, lane] <= _limit_of(root, slack, growth):
                    best, least, root = _open(
                        points, tiles, tile, held, x32, slack, rows, r, best, least, root, growth, scale, found
                    )
        if best < 0:
            best, least = _compare_all(rows, r, points, n)
        near[r], squared[r] = best, least


@kernel(error_model="numpy")
def _pick(screen, sizes, reach, rows, first, points, n, near, squared):
    """Nearest point of each row, where `screen` (m, tiles, 32) falls as the squared distance grows, up to an error.

    The product of x and w in float32 is wrong by at most (d + 2) u |x| |w|, its inputs by u each; doubled twice, since
    the error of the least and that of the nearest may point apart.
    """
    d, n_tiles = rows.shape[1], screen.shape[1]
    top = np.empty(n_tiles, np.float32)
    for i in range(screen.shape[0]):
        r = first + i
        if not sizes[i] < _FAR32:
            near[r], squared[r] = _compare_all(rows, r, points, n)
            continue
        largest = np.float32(-np.inf)
        for tile in range(n_tiles):
            top[tile] = largest_of(screen[i], tile)
            largest = max(largest, top[tile])
        whole = sizes[i] + reach
        limit = np.float32(largest - 4.0 * (d + 8) * _ULP32 * whole * whole)
        best, least = np.int64(-1), np.inf
        for tile in range(n_tiles):
            if top[tile] < limit:
                continue
            for lane in range(LANES):
                k = tile * LANES + lane
                if screen[i, tile, lane] >= limit and k < n:
                    gap = squared_distance(rows, r, points, k)
                    if gap < least:
                        best, least = np.int64(k), gap
        if best < 0:
            best, least = _compare_all(rows, r, points, n)
        near[r], squared[r] = best, least


class NearestPoint:
    """A set of points to find the nearest of, to which a few can be added.

    Parameters
    ----------
    points : ndarray of shape (n, d), n above zero
    room : int, optional
        How many points it may ever hold.
    by_boxes : bool, optional
        Search boxes, or multiply matrices; by the number of features unless given. It changes the time only.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.nodes.nearest import NearestPoint
    >>> index = NearestPoint(np.arange(100.0)[:, None], room=101)
    >>> index.add(np.array([[41.6]]))
    >>> index.nearest(np.array([[7.2], [41.5], [0.5]]))[0].tolist()
    [7, 100, 0]
    """

    def __init__(self, points: Floats, room: int | None = None, by_boxes: bool | None = None) -> None:
        n, d = points.shape
        self.room = room = max(n, room or n)
        self.n = n
        self._points = np.empty((room, d))
        self._points[:n] = points
        # the middle, not the mean: a few points far away must not cost the others their digits
        self._shift = np.median(points, axis=0)
        spread = float(np.median(np.abs(points - self._shift).max(axis=1)))
        exponent = int(np.frexp(spread)[1]) if spread > 0 else 0
        self._scale = float(np.ldexp(1.0, min(max(-exponent, -1000), 1000)))
        self._by_boxes = d <= BOX_FEATURES if by_boxes is None else by_boxes
        if self._by_boxes:
            # a tile may stay partly empty at the end; points added later begin a tile of their own
            n_tiles = -(-n // LANES) + 1 + -(-(room - n) // LANES)
            n_groups = -(-n_tiles // LANES)
            self._tiles = np.full((n_tiles, d, LANES), np.inf, np.float32)
            self._low = np.full((n_groups, d, LANES), np.inf, np.float32)
            self._high = np.full((n_groups, d, LANES), -np.inf, np.float32)
            self._reach = np.zeros(n_tiles)
            self._held = np.full(n_tiles * LANES, -1, np.int64)
            with np.errstate(over="ignore"):
                copies = ((points - self._shift) * self._scale).astype(np.float32)
            names = np.arange(n, dtype=np.int32)
            partition_in_place(copies, names, LANES, 0)
            self._used = 0
            self._put(names.astype(np.int64))
            self._used = -(-n // LANES) * LANES
        else:
            # 2 x w - |w|^2 as one product: the last feature holds -|w|^2, or for empty places what is never largest
            self._rough = np.zeros((d + 1, -(-room // LANES) * LANES), np.float32)
            self._rough[d] = -np.inf
            self._reach_all = 0.0
            self._roughen(0)

    def _put(self, names: Integers) -> None:
        _fill_tiles(
            self._points,
            self._used,
            self._shift,
            self._scale,
            names,
            self._tiles,
            self._low,
            self._high,
            self._reach,
            self._held,
        )
        self._used += len(names)

    def _roughen(self, first: int) -> None:
        with np.errstate(over="ignore"):
            part = (self._points[first : self.n] - self._shift) * self._scale
            norms = np.einsum("ij,ij->i", part, part)
            self._rough[:-1, first : self.n] = 2.0 * part.T
            self._rough[-1, first : self.n] = -norms
        self._reach_all = max(self._reach_all, float(np.sqrt(norms.max(initial=0.0))))

    def add(self, points: Floats) -> None:
        """Add points behind those there are."""
        first, self.n = self.n, self.n + len(points)
        self._points[first : self.n] = points
        if self._by_boxes:
            self._put(np.arange(first, self.n))
        else:
            self._roughen(first)

    def nearest(
        self, rows: Floats, over: Callable[[Callable[[int, int], None], int], None] | None = None
    ) -> tuple[Integers, Floats]:
        """Return position and squared distance of the point nearest to each row.

        Parameters
        ----------
        rows : C-contiguous ndarray of shape (m, d)
        over : callable, optional
            Calls ``work(start, stop)`` for pieces of range(m), perhaps on several threads.
        """
        m = len(rows)
        near, squared = np.empty(m, np.int64), np.empty(m)
        work = self._tile_work(rows, near, squared) if self._by_boxes else self._product_work(rows, near, squared)
        if over is None:
            work(0, m)
        else:
            over(work, m)
        return near, squared

    def _tile_work(self, rows: Floats, near: Integers, squared: Floats) -> Callable[[int, int], None]:
        n_tiles = -(-self._used // LANES)

        def work(start: int, stop: int) -> None:
            _search_tiles(
                rows,
                start,
                stop,
                self._points,
                self.n,
                self._shift,
                self._scale,
                self._tiles,
                self._low,
                self._high,
                self._reach,
                self._held,
                n_tiles,
                near,
                squared,
            )

        return work

    def _product_work(self, rows: Floats, near: Integers, squared: Floats) -> Callable[[int, int], None]:
        n_tiles, d = -(-self.n // LANES), rows.shape[1]
        rough = self._rough[:, : n_tiles * LANES]

        def work(start: int, stop: int) -> None:
            for at in range(start, stop, _PRODUCT_ROWS):
                end = min(at + _PRODUCT_ROWS, stop)
                with np.errstate(over="ignore", invalid="ignore"):
                    part = (rows[at:end] - self._shift) * self._scale
                    sizes = np.sqrt(np.einsum("ij,ij->i", part, part))
                    rough_rows = np.ones((end - at, d + 1), np.float32)
                    rough_rows[:, :d] = part
                    screen = (rough_rows @ rough).reshape(end - at, n_tiles, LANES)
                _pick(screen, sizes, self._reach_all, rows, at, self._points, self.n, near, squared)

        return work
