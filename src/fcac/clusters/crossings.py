"""What lies on the way across every inner node of a hierarchy: valleys, and two Gaussians or one.

The rows of an inner node are placed on a line, once by Fisher's discriminant and once by their distance to the border
over the graph. Part of :mod:`fcac.clusters.evidence`; nodes are in the order of the leaves of the hierarchy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fcac._kernels import inner_kernel, kernel

# Rows at a time, few enough for the fastest cache.
_BLOCK = 256
# Adding it to a number leaves the nearest whole one in the lowest bits.
_TO_WHOLE = 1.5 * 2.0**52
_LOG2_E = 1 / math.log(2)
# The logarithm of two, as a number of few bits and what is missing.
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10


@inner_kernel(error_model="numpy")
def _median(values: Any, n: int) -> Any:
    """Median of the first values, which are put in another order.

    Without branches on values: the processor would mispredict half of them.
    """
    middle, low, high = n // 2, 0, n
    while True:
        pivot = values[(low + high) // 2]
        less = low
        for i in range(low, high):
            value = values[i]
            values[i] = values[less]
            values[less] = value
            less += value < pivot
        if middle < less:
            high = less
            continue
        equal = less
        for i in range(less, high):
            value = values[i]
            values[i] = values[equal]
            values[equal] = value
            equal += value <= pivot
        if middle < equal:
            break
        low = equal
    if n % 2 or less < middle:
        return pivot
    lower = -np.inf
    for i in range(middle):
        lower = max(lower, values[i])
    return (lower + pivot) / 2


@inner_kernel(error_model="numpy")
def _valley(place: Any, weight: Any, n: int, low: float, high: float) -> Any:
    """How much fewer records lie between two places than around them: in errors, and as a log ratio.

    Nine windows, each a fifth of the way wide; the emptiest of the inner ones against the fullest on either side.
    """
    # a place is in one window or in two; what is in none goes to either end
    count = np.zeros(11)
    step = (high - low) / 8
    width = (high - low) / 5
    ratio = width / step
    mean = 0.0
    for v in range(n):
        mean += weight[v]
        first = min(max((place[v] - 0.5 * width - low) / step, -5.0), 15.0)
        one = min(max(math.ceil(first), -1), 9) + 1
        other = min(max(math.floor(first + ratio), -1), 9) + 1
        count[one] += weight[v]
        count[other] += weight[v] if other != one else 0.0
    mean /= n
    bottom = 3
    for w in range(4, 8):
        if count[w] < count[bottom]:
            bottom = w
    before, after = 0.0, 0.0
    for w in range(1, bottom):
        before = max(before, count[w])
    for w in range(bottom + 1, 10):
        after = max(after, count[w])
    mode = min(before, after)
    z = (mode - count[bottom]) / math.sqrt(max(mode + count[bottom], mean) * (1 + 0.1 * mean))
    return z, math.log((mode + 0.5 * mean) / (count[bottom] + 0.5 * mean))


@inner_kernel(error_model="numpy")
def _exponentials(values: Any, n: int, power: Any, bits: Any) -> None:
    """Exponentials of numbers up to zero, in place, in arithmetic that vectors can do; `bits` are those of `power`."""
    for i in range(n):
        x = max(values[i], -700.0)
        shifted = x * _LOG2_E + _TO_WHOLE
        whole = shifted - _TO_WHOLE
        power[i] = shifted
        r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
        e = 1 / 6227020800.0
        e = e * r + 1 / 479001600.0
        e = e * r + 1 / 39916800.0
        e = e * r + 1 / 3628800.0
        e = e * r + 1 / 362880.0
        e = e * r + 1 / 40320.0
        e = e * r + 1 / 5040.0
        e = e * r + 1 / 720.0
        e = e * r + 1 / 120.0
        e = e * r + 1 / 24.0
        e = e * r + 1 / 6.0
        e = e * r + 0.5
        e = e * r + 1.0
        values[i] = e * r + 1.0
    for i in range(n):
        bits[i] = (bits[i] + 1023) << 52
    for i in range(n):
        values[i] *= power[i]


@inner_kernel(error_model="numpy")
def _mixture(
    place: Any, weight: Any, n: int, pa: float, ma: float, mb: float, va: float, vb: float, vt: float, room: Any
) -> Any:
    """Two Gaussians on a line, by some steps of expectation and maximisation from the two sides: the gain in log
    likelihood a record over one Gaussian, how many deviations they are apart, and the smaller share."""
    power, bits, first, share = room[0], room[0].view(np.int64), room[1], room[2]
    least = max(0.01 * vt, 1e-300)
    va, vb = max(va, least), max(vb, least)
    pb = 1.0 - pa
    for _ in range(12):
        sa, ta, ua, tb, ub, total = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        la = math.log(max(pa, 1e-9)) - 0.5 * math.log(va)
        lb = math.log(max(pb, 1e-9)) - 0.5 * math.log(vb)
        for begin in range(0, n, _BLOCK):
            m = min(_BLOCK, n - begin)
            x, w = place[begin : begin + m], weight[begin : begin + m]
            for v in range(m):
                to_a, to_b = x[v] - ma, x[v] - mb
                first[v] = (la - 0.5 * (to_a * to_a) / va) - (lb - 0.5 * (to_b * to_b) / vb)
                share[v] = -abs(first[v])
            _exponentials(share, m, power, bits)
            for v in range(m):
                r = 1.0 / (1.0 + share[v])
                share[v] = (1.0 - r if first[v] < 0 else r) * w[v]
            for v in range(m):
                r, rest = share[v], w[v] - share[v]
                total += w[v]
                sa += r
                ta += r * x[v]
                ua += r * x[v] * x[v]
                tb += rest * x[v]
                ub += rest * x[v] * x[v]
        sb = total - sa
        if sa < 1e-9 * total or sb < 1e-9 * total:
            break
        pa, pb = sa / total, sb / total
        ma, mb = ta / sa, tb / sb
        va, vb = max(ua / sa - ma * ma, least), max(ub / sb - mb * mb, least)
    la = math.log(max(pa, 1e-9)) - 0.5 * math.log(va)
    lb = math.log(max(pb, 1e-9)) - 0.5 * math.log(vb)
    total, like = 0.0, 0.0
    for v in range(n):
        to_a, to_b = place[v] - ma, place[v] - mb
        ga, gb = la - 0.5 * (to_a * to_a) / va, lb - 0.5 * (to_b * to_b) / vb
        total += weight[v]
        like += weight[v] * (max(ga, gb) + math.log1p(math.exp(-abs(ga - gb))))
    gain = like / total + 0.5 * math.log(vt) + 0.5
    return gain, abs(ma - mb) / math.sqrt(0.5 * (va + vb)), min(pa, pb)


@kernel(error_model="numpy")
def lines(columns: Any, mass: Any, begin: Any, end: Any, left: Any, right: Any, line: Any) -> Any:
    """Along the line across every inner node: errors and depth of the valley, distance of the sides, gain of two
    Gaussians over one, the kurtosis of both sides, and what :func:`_mixture` finds. One row for every feature."""
    n = left.shape[0]
    place, scratch, room = np.empty(columns.shape[1]), np.empty(columns.shape[1]), np.empty((3, _BLOCK))
    out = np.zeros((n, 8))
    for x in range((n + 1) // 2, n):
        low, middle, high = begin[x], end[left[x]], end[x]
        na, size = middle - low, high - low
        weight = mass[low:high]
        place[:size] = 0.0
        for j in range(columns.shape[0]):
            along = line[x, j]
            values = columns[j, low:high]
            for v in range(size):
                place[v] += values[v] * along
        pa, pb, sum_a, sum_b = 0.0, 0.0, 0.0, 0.0
        for v in range(na):
            pa += weight[v]
            sum_a += weight[v] * place[v]
        for v in range(na, size):
            pb += weight[v]
            sum_b += weight[v] * place[v]
        ma, mb = sum_a / pa, sum_b / pb
        total = pa + pb
        centre = (sum_a + sum_b) / total
        va, vb, vt, fourth = 0.0, 0.0, 0.0, 0.0
        for v in range(na):
            va += weight[v] * (place[v] - ma) ** 2
            vt += weight[v] * (place[v] - centre) ** 2
        for v in range(na, size):
            vb += weight[v] * (place[v] - mb) ** 2
            vt += weight[v] * (place[v] - centre) ** 2
        va, vb, vt = va / pa, vb / pb, vt / total
        if not vt > 0:
            continue
        for v in range(size):
            fourth += weight[v] * ((place[v] - centre) ** 2 / vt) ** 2
        scratch[:size] = place[:size]
        at_b, at_a = _median(scratch[na:size], size - na), _median(scratch, na)
        at_a, at_b = min(at_a, at_b), max(at_a, at_b)
        if at_b > at_a:
            out[x, 0], out[x, 1] = _valley(place, weight, size, at_a, at_b)
        inner = 0.5 * (math.sqrt(va) + math.sqrt(vb))
        out[x, 2] = (at_b - at_a) / max(inner, 1e-6 * math.sqrt(vt))
        pa, pb = pa / total, pb / total
        least = 1e-6 * vt
        out[x, 3] = (
            0.5 * math.log(vt)
            - 0.5 * pa * math.log(max(va, least))
            - 0.5 * pb * math.log(max(vb, least))
            + pa * math.log(pa)
            + pb * math.log(pb)
        )
        out[x, 4] = fourth / total
        out[x, 5], out[x, 6], out[x, 7] = _mixture(place, weight, size, pa, ma, mb, va, vb, vt, room)
    return out


@inner_kernel
def _both_ways(near: Any, lengths: Any) -> Any:
    """Who is tied to whom, each tie once from either end: where each node's part begins, the other ends, lengths."""
    n, m = lengths.shape
    starts = np.zeros(n + 1, dtype=np.int64)
    once = np.empty((n, m), dtype=np.bool_)
    for v in range(n):
        for q in range(m):
            u = near[v, q]
            mutual = False
            for r in range(m):
                mutual |= near[u, r] == v
            # of two that name each other, the first one counts
            once[v, q] = not mutual or v < u
            if once[v, q]:
                starts[v + 1] += 1
                starts[u + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    fill = starts[:-1].copy()
    ends, length = np.empty(starts[n], dtype=np.int32), np.empty(starts[n])
    for v in range(n):
        for q in range(m):
            if once[v, q]:
                u = near[v, q]
                ends[fill[v]], length[fill[v]] = u, lengths[v, q]
                fill[v] += 1
                ends[fill[u]], length[fill[u]] = v, lengths[v, q]
                fill[u] += 1
    return starts, ends, length


@inner_kernel
def _by_meeting(starts: Any, ends: Any, atom: Any, meet: Any, n_tree: int) -> Any:
    """Ties by the tree node that parts their ends: where each one's begin, and which, from both ends."""
    first = np.zeros(n_tree + 1, dtype=np.int64)
    for v in range(starts.shape[0] - 1):
        for e in range(starts[v], starts[v + 1]):
            first[meet[atom[v], atom[ends[e]]] + 1] += 1
    for x in range(n_tree):
        first[x + 1] += first[x]
    fill = first[:-1].copy()
    which, of = np.empty(ends.shape[0], dtype=np.int64), np.empty(ends.shape[0], dtype=np.int32)
    for v in range(starts.shape[0] - 1):
        for e in range(starts[v], starts[v + 1]):
            x = meet[atom[v], atom[ends[e]]]
            which[fill[x]], of[fill[x]] = e, v
            fill[x] += 1
    return first, which, of


@inner_kernel
def _pushed(keys: Any, names: Any, held: int, key: float, name: int) -> Any:
    """Put a name into a heap; returns how many it holds."""
    i = held
    while i > 0:
        up = (i - 1) >> 1
        if keys[up] <= key:
            break
        keys[i], names[i] = keys[up], names[up]
        i = up
    keys[i], names[i] = key, name
    return held + 1


@inner_kernel
def _distances(
    starts: Any, ends: Any, length: Any, low: int, high: int, distance: Any, keys: Any, names: Any, held: int
) -> float:
    """Distances within a range of nodes to those in the heap, which have theirs (Dijkstra); returns the largest."""
    farthest = 0.0
    while held:
        key, v = keys[0], names[0]
        held -= 1
        last_key, last_name = keys[held], names[held]
        i = 0
        while True:
            child = 2 * i + 1
            if child >= held:
                break
            child += child + 1 < held and keys[child + 1] < keys[child]
            if keys[child] >= last_key:
                break
            keys[i], names[i] = keys[child], names[child]
            i = child
        keys[i], names[i] = last_key, last_name
        if key > distance[v]:
            continue
        farthest = key
        for e in range(starts[v], starts[v + 1]):
            u = ends[e]
            if low <= u < high and key + length[e] < distance[u]:
                distance[u] = key + length[e]
                held = _pushed(keys, names, held, distance[u], u)
    return farthest


@inner_kernel
def _deviation(values: Any, n: int) -> float:
    """Standard deviation of the first values."""
    mean, squares = 0.0, 0.0
    for v in range(n):
        mean += values[v]
    mean /= n
    for v in range(n):
        squares += (values[v] - mean) * (values[v] - mean)
    return math.sqrt(squares / n)


@kernel
def ways(near: Any, lengths: Any, mass: Any, atom: Any, meet: Any, begin: Any, end: Any, left: Any, right: Any) -> Any:
    """Along the way across every inner node, each node at its distance to the border over the graph: errors and depth
    of the valley there, and how far apart the sides are in units of their spread."""
    n, total = left.shape[0], near.shape[0]
    starts, ends, length = _both_ways(near, lengths)
    first, which, of = _by_meeting(starts, ends, atom, meet, n)
    out = np.zeros((n, 3))
    distance, place, scratch = np.full(total, np.inf), np.empty(total), np.empty(total)
    keys, names = np.empty(len(ends) + total), np.empty(len(ends) + total, dtype=np.int32)
    for x in range((n + 1) // 2, n):
        if first[x] == first[x + 1]:
            out[x, 1] = -1.0
            continue
        low, middle, high = begin[x], end[left[x]], end[x]
        distance[low:high] = np.inf
        for m in range(first[x], first[x + 1]):
            distance[of[m]] = min(distance[of[m]], 0.5 * length[which[m]])
        farthest = 0.0
        for side in range(2):
            start, beyond = (low, middle) if side == 0 else (middle, high)
            held = 0
            for v in range(start, beyond):
                if distance[v] < np.inf:
                    held = _pushed(keys, names, held, distance[v], v)
            reached = _distances(starts, ends, length, start, beyond, distance, keys, names, held)
            farthest = max(farthest, reached)
        na, size = middle - low, high - low
        for v in range(low, high):
            d = min(distance[v], farthest)
            place[v - low] = -d if v < middle else d
        scratch[:size] = place[:size]
        to_a, to_b = _median(scratch, na), _median(scratch[na:size], size - na)
        if to_b > to_a:
            out[x, 0], out[x, 1] = _valley(place, mass[low:high], size, to_a, to_b)
            spread = _deviation(place, na) + _deviation(place[na:size], size - na)
            out[x, 2] = (to_b - to_a) / max(spread, 1e-300)
    return out
