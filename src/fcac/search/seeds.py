"""The seed a row belongs to: the nearest among those around its nearest pivots.

A few seeds are pivots, and every seed is listed with its nearest pivot. A row looks into the lists of its nearest
pivots and takes the nearest seed there. That is the nearest of all seeds for nearly all rows, at a cost that grows with
the square root of their number, whatever the number of features and however the rows lie. Both choices are made on
squared distances summed in float64, feature by feature in one fixed order, with ties to the lower position; so the
answer depends on the seeds and their order only, not on the machine, on threads, or on how often the index was built.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._llvm import lowest_bit
from fcac._typing import Floats, Integers
from fcac.search.tiles import EXACT_LANES, LANES, exact_distances, point_distances

# Lists that a row looks into: few features, and many. With four lists the seed found lies farther than the nearest by
# .5 % on average among clusters of ten features and by 3 % in a single Gaussian; with eight by half of that, at nearly
# twice the time. In 256 features (text) eight are as good as all, and four cost .01 to .02 of AMI.
_VISITS, _VISITS_MANY, _MANY_FEATURES = 4, 8, 20

_ULP32 = 2.0**-24
# Beyond this a float32 square may overflow: such rows are compared with all seeds.
_FAR32 = 1e18


def pivots_for(most: int) -> int:
    """Return how many of ``most`` seeds are pivots: twice the square root balances pivots against lists."""
    return min(math.ceil(2 * math.sqrt(most)), max(1, int(0.9 * most)))


@inner_kernel(error_model="numpy")
def _squared_distance(a, i, b, k):
    """Return the squared distance between row i of a and row k of b, summed in the order of the features."""
    total = 0.0
    for j in range(a.shape[1]):
        gap = a[i, j] - b[k, j]
        total += gap * gap
    return total


@inner_kernel(error_model="numpy")
def _nearest_pivots(rows, r, pivots, n_pivots, squared, order, values):
    """Put the nearest pivots in order; returns how many there are."""
    wanted, filled = order.shape[0], 0
    for tile in range(pivots.shape[0]):
        exact_distances(pivots, tile, rows, r, squared)
        for lane in range(min(EXACT_LANES, n_pivots - tile * EXACT_LANES)):
            value = squared[tile, lane]
            if filled == wanted and not value < values[wanted - 1]:
                continue
            at = filled if filled < wanted else wanted - 1
            while at > 0 and values[at - 1] > value:
                values[at], order[at] = values[at - 1], order[at - 1]
                at -= 1
            values[at], order[at] = value, tile * EXACT_LANES + lane
            filled = filled + 1 if filled < wanted else wanted
    return filled


@kernel(error_model="numpy")
def _list_seeds(seeds, first, stop, pivots, n_pivots, shift, scale, tiles, held, following, last, reach, used):
    """Put seeds[first:stop] into the lists of their nearest pivots; returns how many tiles are used."""
    squared, order, values = np.empty((pivots.shape[0], EXACT_LANES)), np.empty(1, np.int64), np.empty(1)
    for k in range(first, stop):
        _nearest_pivots(seeds, k, pivots, n_pivots, squared, order, values)
        p = order[0]
        tile = last[p]
        lane = 0
        while lane < LANES and held[tile, lane] >= 0:
            lane += 1
        if lane == LANES:
            following[tile], last[p] = used, used
            tile, lane = used, 0
            used += 1
        held[tile, lane] = k
        square = 0.0
        for j in range(seeds.shape[1]):
            value = (seeds[k, j] - shift[j]) * scale
            tiles[tile, j, lane] = np.float32(value)
            square += value * value
        reach[tile] = max(reach[tile], np.sqrt(square))
    return used


@kernel(error_model="numpy")
def _find_seeds(rows, start, stop, seeds, pivots, n_pivots, shift, scale, tiles, held, following, reach, visits, out):
    """Seed of rows[start:stop].

    Rounding to float32 moves a point by at most u times its length (u = 2^-24), and so does taking the difference; a
    distance is therefore wrong by at most 2 u (|x| + |w|), and its square, summed over d features, by another factor
    of 1 + (d + 2) u. Both are doubled, and seeds that this cannot rule out are computed in float64.
    """
    d = rows.shape[1]
    x32, found = np.empty(d, np.float32), np.empty(LANES, np.float32)
    squared, order, values = np.empty((pivots.shape[0], EXACT_LANES)), np.empty(visits, np.int64), np.empty(visits)
    growth, unit = 1.0 + (d + 8.0) * 2.0 * _ULP32, 4.0 * _ULP32
    for r in range(start, stop):
        square = 0.0
        for j in range(d):
            value = (rows[r, j] - shift[j]) * scale
            x32[j] = np.float32(value)
            square += value * value
        size = np.sqrt(square)
        visited = _nearest_pivots(rows, r, pivots, n_pivots, squared, order, values)
        best, least = order[0], values[0]
        root = np.sqrt(least) * scale
        for v in range(visited):
            tile = order[v]
            while tile >= 0:
                slack = (reach[tile] + size) * unit
                near = np.int64((1 << LANES) - 1)
                limit = np.float32(np.inf)
                if size < _FAR32 and reach[tile] < _FAR32:
                    limit = np.float32((root + slack) * (root + slack) * growth)
                    near = point_distances(tiles, tile, x32, limit, found)
                while near != 0:
                    k = held[tile, lowest_bit(near)]
                    near &= near - 1
                    if k < 0:
                        continue
                    gap = _squared_distance(rows, r, seeds, k)
                    if gap < least or (gap == least and k < best):
                        best, least = k, gap
                        root = np.sqrt(least) * scale
                tile = following[tile]
        out[r] = best


class SeedIndex:
    """Seeds to find the nearest of, to which more can be added, up to `room`; the first `n_pivots` are the pivots.

    >>> index = SeedIndex(np.arange(100.0)[:, None], 20, 101)
    >>> index.add(np.array([[41.6]]))
    >>> index.nearest(np.array([[7.2], [41.5], [0.5]])).tolist()
    [7, 100, 0]
    """

    def __init__(self, seeds: Floats, n_pivots: int, room: int) -> None:
        n, d = seeds.shape
        self.room = max(room, n)
        self._n = 0
        self._seeds = np.empty((self.room, d))
        self._n_pivots = n_pivots
        self._visits = min(_VISITS if d <= _MANY_FEATURES else _VISITS_MANY, n_pivots)
        self._pivots = np.full((-(-n_pivots // EXACT_LANES), d, EXACT_LANES), np.inf)
        for p in range(n_pivots):
            self._pivots[p // EXACT_LANES, :, p % EXACT_LANES] = seeds[p]
        # the middle, not the mean: a few seeds far away must not cost the others their digits
        self._shift = np.median(seeds[:n_pivots], axis=0)
        spread = float(np.median(np.abs(seeds[:n_pivots] - self._shift).max(axis=1)))
        exponent = int(np.frexp(spread)[1]) if spread > 0 else 0
        self._scale = float(np.ldexp(1.0, min(max(-exponent, -1000), 1000)))
        # one tile per pivot to begin with, and one more for every 32 seeds at most
        n_tiles = n_pivots + self.room // LANES
        self._tiles = np.full((n_tiles, d, LANES), np.inf, np.float32)
        self._held = np.full((n_tiles, LANES), -1, np.int64)
        self._following = np.full(n_tiles, -1, np.int64)
        self._last = np.arange(n_pivots)
        self._reach = np.zeros(n_tiles)
        self._used = n_pivots
        self.add(seeds)

    def add(self, seeds: Floats) -> None:
        """Add seeds behind those there are."""
        first, self._n = self._n, self._n + len(seeds)
        self._seeds[first : self._n] = seeds
        self._used = _list_seeds(
            self._seeds, first, self._n, self._pivots, self._n_pivots, self._shift, self._scale, self._tiles,
            self._held, self._following, self._last, self._reach, self._used,
        )  # fmt: skip

    def nearest(self, rows: Floats, over: Callable[[Callable[[int, int], None], int], None] | None = None) -> Integers:
        """Return the position of the seed of each row.

        `over` calls ``work(start, stop)`` for pieces of range(m), perhaps on several threads.
        """
        out = np.empty(len(rows), np.int64)

        def work(start: int, stop: int) -> None:
            _find_seeds(
                rows, start, stop, self._seeds, self._pivots, self._n_pivots, self._shift, self._scale, self._tiles,
                self._held, self._following, self._reach, self._visits, out,
            )  # fmt: skip

        if over is None:
            work(0, len(rows))
        else:
            over(work, len(rows))
        return out
