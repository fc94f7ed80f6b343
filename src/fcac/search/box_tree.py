"""Points put into boxes that hold what is near together, and exact nearest neighbours among them.

A k-d tree (Bentley 1975) with bounding boxes, flattened to its leaves: points are halved again and again until few are
left, and each such handful gets the smallest box around it. A search looks into the nearest boxes first and never opens
one that lies farther away than what is found already. What differs: the bound of a box is summed feature by feature in
the same order as a distance, and rounding never turns an order around; so the bound is never above the computed
distance of a point inside, and the result is exact, equal distances included.

References
----------
J. L. Bentley, "Multidimensional binary search trees used for associative searching", Communications of the ACM 18
(1975).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._kernels import inner_kernel, kernel
from fcac._parallel import in_ranges
from fcac._typing import Floats, Integers

# Points in a box, at most.
_BOX = 48


@inner_kernel
def _widest_feature(rows: Any, low: int, high: int) -> int:
    """The feature that varies most."""
    step = max(1, (high - low) // 512)
    widest, at = -1.0, 0
    for j in range(rows.shape[1]):
        centre, square, count = rows[low, j], 0.0, 0
        total = 0.0
        for r in range(low, high, step):
            gap = rows[r, j] - centre
            total += gap
            square += gap * gap
            count += 1
        spread = square / count - (total / count) ** 2
        if spread > widest:
            widest, at = spread, j
    return at


@inner_kernel
def _swap(rows: Any, names: Any, value: Any, a: int, b: int) -> None:
    for j in range(rows.shape[1]):
        rows[a, j], rows[b, j] = rows[b, j], rows[a, j]
    names[a], names[b] = names[b], names[a]
    value[a], value[b] = value[b], value[a]


@kernel
def partition_in_place(rows: Any, names: Any, leaf: int) -> Any:
    """Put rows (and their names) in the order of a tree, in place; returns where leaves begin, and the end."""
    n = rows.shape[0]
    value = np.empty(n, dtype=np.float32)
    lows, highs = np.empty(128, dtype=np.int64), np.empty(128, dtype=np.int64)
    starts = np.empty(n + 1, dtype=np.int64)
    n_leaves = 0
    lows[0], highs[0] = 0, n
    depth = 1
    while depth:
        depth -= 1
        low, high = lows[depth], highs[depth]
        if high - low <= leaf:
            starts[n_leaves] = low
            n_leaves += 1
            continue
        value[low:high] = rows[low:high, _widest_feature(rows, low, high)]
        # quickselect: everything before the middle is not above it
        middle = (low + high) // 2
        left, right = low, high - 1
        while left < right:
            pivot = value[(left + right) // 2]
            i, j = left, right
            while i <= j:
                while value[i] < pivot:
                    i += 1
                while value[j] > pivot:
                    j -= 1
                if i <= j:
                    if i < j:
                        _swap(rows, names, value, i, j)
                    i += 1
                    j -= 1
            if middle <= j:
                right = j
            elif middle >= i:
                left = i
            else:
                break
        lows[depth], highs[depth] = middle, high
        lows[depth + 1], highs[depth + 1] = low, middle
        depth += 2
    starts[n_leaves] = n
    return starts[: n_leaves + 1].copy()


@inner_kernel
def insert(distances: Any, positions: Any, row: int, filled: Any, distance: Any, position: Any) -> Any:
    """Keep the best of a row in order of (distance, position); return how many places are filled."""
    size = distances.shape[1]
    if filled == size:
        last = size - 1
        if distance > distances[row, last] or (distance == distances[row, last] and position >= positions[row, last]):
            return filled
    at = filled if filled < size else size - 1
    while at > 0 and (
        distances[row, at - 1] > distance or (distances[row, at - 1] == distance and positions[row, at - 1] > position)
    ):
        distances[row, at] = distances[row, at - 1]
        positions[row, at] = positions[row, at - 1]
        at -= 1
    distances[row, at] = distance
    positions[row, at] = position
    return filled + 1 if filled < size else size


@kernel
def _fill(points: Any, names: Any, starts: Any, blocks: Any, held: Any, low: Any, high: Any) -> None:
    """Write each box's points feature by feature, their positions, and the box's corners."""
    for box in range(starts.shape[0] - 1):
        for at in range(starts[box + 1] - starts[box]):
            name = names[starts[box] + at]
            held[box, at] = name
            for j in range(points.shape[1]):
                value = points[name, j]
                blocks[box, j, at] = value
                low[box, j] = min(low[box, j], value)
                high[box, j] = max(high[box, j], value)


@inner_kernel
def _bound(query: Any, r: int, low: Any, high: Any, box: int) -> Any:
    """Squared distance from a query to a box, 0 inside."""
    total = 0.0
    for j in range(query.shape[1]):
        gap = max(low[box, j] - query[r, j], query[r, j] - high[box, j], 0.0)
        total += gap * gap
    return total


@inner_kernel
def _distances(query: Any, r: int, blocks: Any, box: int, out: Any) -> None:
    """Squared distances to all points of a box, each summed feature by feature."""
    out[:] = 0.0
    for j in range(blocks.shape[1]):
        value = query[r, j]
        for at in range(blocks.shape[2]):
            gap = value - blocks[box, j, at]
            out[at] += gap * gap


@kernel
def _search(
    queries: Any,
    own: Any,
    order: Any,
    first: int,
    beyond: int,
    blocks: Any,
    held: Any,
    low: Any,
    high: Any,
    group_low: Any,
    group_high: Any,
    per_group: int,
    out_d: Any,
    out_i: Any,
) -> None:
    """Put the nearest of each query into its row."""
    n_boxes, n_groups, k = blocks.shape[0], group_low.shape[0], out_d.shape[1]
    to_group, to_box = np.empty(n_groups), np.empty(per_group)
    found = np.empty(blocks.shape[2])
    for nth in range(first, beyond):
        r = order[nth]
        filled = 0
        for group in range(n_groups):
            to_group[group] = _bound(queries, r, group_low, group_high, group)
        while True:
            g = np.argmin(to_group)
            if to_group[g] == np.inf or (filled == k and to_group[g] > out_d[r, k - 1]):
                break
            to_group[g] = np.inf
            start = g * per_group
            n_here = min(per_group, n_boxes - start)
            nearest_box, least = start, np.inf
            for b in range(n_here):
                to_box[b] = _bound(queries, r, low, high, start + b)
                if to_box[b] < least:
                    nearest_box, least = start + b, to_box[b]
            # the nearest box first, so that most others need not be opened
            for nth_box in range(-1, n_here):
                box = nearest_box if nth_box < 0 else start + nth_box
                if (nth_box >= 0 and box == nearest_box) or (filled == k and to_box[box - start] > out_d[r, k - 1]):
                    continue
                _distances(queries, r, blocks, box, found)
                limit = out_d[r, k - 1]
                for at in range(found.shape[0]):
                    if found[at] <= limit and held[box, at] >= 0 and held[box, at] != own[r]:
                        filled = insert(out_d, out_i, r, filled, found[at], held[box, at])
                        limit = out_d[r, k - 1]


def spatial_order(points: Floats, leaf: int = 64) -> Integers:
    """Return an order of points in which neighbours in space are mostly neighbours in the order.

    It depends on the points and their order only. Graphs over points in this order are walked several times faster,
    because what a step needs is already at hand.

    >>> import numpy as np
    >>> spatial_order(np.array([[0.0], [9.0], [1.0], [8.0]]), leaf=2).tolist()
    [0, 2, 3, 1]
    """
    rows = _single(points)
    names = np.arange(len(points), dtype=np.int32)
    partition_in_place(rows, names, leaf)
    return names.astype(np.int64)


def _single(points: Floats) -> NDArray[np.float32]:
    """A copy in single precision around the centre, without overflow."""
    centred = points - points.mean(axis=0)
    widest = float(np.abs(centred).max(initial=0.0))
    return np.ascontiguousarray(centred / widest if widest > 0 else centred, dtype=np.float32)


class BoxTree:
    """A set of points in boxes; in `order`, box by box, neighbours in space are mostly neighbours.

    >>> line = np.arange(100.0)[:, None]
    >>> positions, squared = BoxTree(line).nearest(np.array([[41.5]]), 3)
    >>> positions.tolist(), squared.tolist()
    ([[41, 42, 40]], [[0.25, 0.25, 2.25]])
    """

    def __init__(self, points: Floats) -> None:
        n, d = points.shape
        names = np.arange(n, dtype=np.int32)
        # a whole tree: as many boxes as a power of two, so that groups of boxes are branches of it
        depth = max(0, math.ceil(math.log2(n / _BOX)))
        starts = partition_in_place(_single(points), names, math.ceil(n / 2**depth))
        n_boxes, size = len(starts) - 1, int(np.diff(starts).max())
        self.order: Integers = names.astype(np.int64)
        self._blocks = np.full((n_boxes, d, size), np.inf)
        self._held = np.full((n_boxes, size), -1, dtype=np.int32)
        self._low, self._high = np.full((n_boxes, d), np.inf), np.full((n_boxes, d), -np.inf)
        _fill(points, names, starts, self._blocks, self._held, self._low, self._high)
        self._per_group = 2 ** (depth // 2)
        firsts = np.arange(0, n_boxes, self._per_group)
        self._group_low = np.minimum.reduceat(self._low, firsts, axis=0)
        self._group_high = np.maximum.reduceat(self._high, firsts, axis=0)

    def nearest(
        self,
        queries: Floats,
        k: int,
        own: Integers | None = None,
        order: Integers | None = None,
    ) -> tuple[Integers, Floats]:
        """Return positions and squared distances of the k nearest points of each query, exactly.

        `own` is the position of each query among the points, which is then left out of its own list, -1 for none;
        `order`, in which to search, changes the time only.
        """
        m = len(queries)
        own = np.full(m, -1, dtype=np.int64) if own is None else own.astype(np.int64)
        if order is None:
            order = spatial_order(queries) if m > 1000 else np.arange(m)
        out_i, out_d = np.zeros((m, k), dtype=np.int64), np.full((m, k), np.inf)

        def search(first: int, beyond: int) -> None:
            boxes = self._blocks, self._held, self._low, self._high, self._group_low, self._group_high
            _search(queries, own, order, first, beyond, *boxes, self._per_group, out_d, out_i)

        if k and m:
            in_ranges(search, m)
        return out_i, out_d
