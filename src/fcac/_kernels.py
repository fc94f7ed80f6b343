"""Compiled kernels of CA+, CAE and CAE_FC: arrays in, arrays changed in place, no classes.

The cost of these algorithms is the exponential function: K x d of them for every point. The search therefore has two
stages. A float32 pass bounds the correntropy of every node from above with the chord of 2^y read off the bits of an
integer; only nodes whose bound could matter are computed exactly in float64. The margin added to the bound covers
every rounding of the first stage (see `screen_margin`), so the result is that of the full search, bit for bit.

Sums over features follow NumPy's pairwise order, and the exponential is within 0.53 units in the last place, so that
exact ties fall the way they do in a plain NumPy program. No kernel uses relaxed arithmetic except for bounds and for
the triangular solve, where it cannot change a result between runs.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# ---------------------------------------------------------------- state handed to the kernels

#: Arrays of a network under construction. Capacity may exceed what is used; `ints[N_NODES]` rows are valid.
State = namedtuple(  # noqa: PYI024 - numba understands namedtuple, not typing.NamedTuple with annotations
    "State",
    [
        "nodes",  # (capacity, d) float64
        "screen",  # (d, capacity) float32: nodes shifted and scaled, for the bound
        "counts",  # (capacity,) int64, winning counts
        "widths",  # (capacity,) float64, bandwidths
        "newer",  # (capacity,) int64, recency links; -1 ends
        "older",  # (capacity,) int64
        "first_half",  # (capacity,) int64, first half-edge of a node; -1 none
        "half_to",  # (2E,) int64, node a half-edge points to
        "half_next",  # (2E,) int64, next half-edge of the same node
        "ages",  # (E,) int64; half-edges 2e and 2e+1 belong to edge e
        "factor",  # packed lower triangle of the Cholesky factor of exp(R)
        "shift",  # (d,) float64, origin of the screening copy
        "ints",  # (N_INTS,) int64
        "floats",  # (N_FLOATS,) float64
    ],
)

N_NODES, N_SEEN, N_ACTIVE, NEWEST, OLDEST, EDGES_USED, FREE_EDGE, N_EDGES, N_DELETED, DELETED_AGES, SINGULAR, N_LOST = (
    range(12)
)
N_INTS = 12
THRESHOLD, LAST_WIDTH, LOG_DET, SCALE, MEAN_WIDTH = range(5)
N_FLOATS = 5

# why a kernel came back before the end of its block
DONE, NEED_NODES, NEED_EDGES, NEED_FACTOR, NEED_SCALE = range(5)

_ROUND_MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer in the low bits
_LOG2E = 1.4426950408889634
_LN2_HI = 0.6931471803691238  # 33 leading bits of log 2: its product with a small integer is exact
_LN2_LO = 1.9082149292705877e-10
_ONE_BITS = np.float32(1065353216.0)  # bits of float32 1.0, as a number
_ULP32 = 2.0**-24
_SCALE_LOW, _SCALE_HIGH = 2.0**-20, 2.0**20

# Kernels called from Python, and those called by kernels only: the latter need no wrapper, which halves compile time.
_ENTRY = {"nogil": True, "cache": True, "error_model": "numpy"}
_INNER = {**_ENTRY, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


# ---------------------------------------------------------------- arithmetic


@intrinsic
def _fma(typingctx, a, b, c):
    """One rounding for a * b + c, whatever the optimiser would like."""

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@intrinsic
def _bits64(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _from_bits64(typingctx, value):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def _chord_exp2(typingctx, value):
    """Read float32 `value` as integer bits: the chord of 2^y for value = (127 + y) * 2^23, never below it."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptosi(args[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.float32), codegen


@njit(inline="always")
def _exp_neg(t):
    """exp(-t) for t >= 0, without a branch, so that loops over it use vector instructions."""
    small = t if t < 708.0 else 708.0
    shifted = _fma(small, -_LOG2E, _ROUND_MAGIC)
    n = shifted - _ROUND_MAGIC
    high = _fma(n, -_LN2_HI, -small)
    low = n * -_LN2_LO
    r = high + low
    r_error = (high - r) + low
    p = 1.6059043836821613e-10
    p = _fma(p, r, 2.08767569878681e-09)
    p = _fma(p, r, 2.505210838544172e-08)
    p = _fma(p, r, 2.755731922398589e-07)
    p = _fma(p, r, 2.7557319223985893e-06)
    p = _fma(p, r, 2.48015873015873e-05)
    p = _fma(p, r, 0.0001984126984126984)
    p = _fma(p, r, 0.001388888888888889)
    p = _fma(p, r, 0.008333333333333333)
    p = _fma(p, r, 0.041666666666666664)
    p = _fma(p, r, 0.16666666666666666)
    p = _fma(p, r, 0.5)
    one_plus = 1.0 + r
    rest = r - (one_plus - 1.0)
    value = one_plus + (_fma(r * r, p, r_error) + rest)
    scaled = value * _from_bits64((_bits64(shifted) + 1023) << 52)
    return scaled if t < 708.0 else 0.0


@njit(**_INNER)
def _eight_lane_sum(values, start, n):
    if n < 8:
        total = 0.0
        for i in range(start, start + n):
            total += values[i]
        return total
    a0, a1, a2, a3 = values[start], values[start + 1], values[start + 2], values[start + 3]
    a4, a5, a6, a7 = values[start + 4], values[start + 5], values[start + 6], values[start + 7]
    i = 8
    while i + 8 <= n:
        at = start + i
        a0 += values[at]
        a1 += values[at + 1]
        a2 += values[at + 2]
        a3 += values[at + 3]
        a4 += values[at + 4]
        a5 += values[at + 5]
        a6 += values[at + 6]
        a7 += values[at + 7]
        i += 8
    total = ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))
    for j in range(start + i, start + n):
        total += values[j]
    return total


@njit("float64(float64[::1], int64, int64)", **_INNER)
def _pairwise_sum(values, start, n):
    """Sum in NumPy's order: short runs one by one, longer ones in eight lanes, long ones in halves."""
    if n <= 128:
        return _eight_lane_sum(values, start, n)
    half = (n // 2) - (n // 2) % 8
    return _pairwise_sum(values, start, half) + _pairwise_sum(values, start + half, n - half)


@njit(**_INNER)
def _correntropy(x, w, two_s2, terms):
    """Mean over features of exp(-(x - w)^2 / (2 s^2)); `terms` is scratch space of length d."""
    d = x.shape[0]
    if d < 8:
        total = 0.0
        for j in range(d):
            diff = x[j] - w[j]
            total += _exp_neg(diff * diff / two_s2)
        return total / d
    for j in range(d):
        diff = x[j] - w[j]
        terms[j] = _exp_neg(diff * diff / two_s2)
    return _pairwise_sum(terms, 0, d) / d


@njit(inline="always")
def _cim(correntropy):
    # rounding can lift a sum of ones a hair over d
    return np.sqrt(1.0 - correntropy) if correntropy < 1.0 else 0.0


# ---------------------------------------------------------------- the bound


@njit(fastmath={"contract", "nsz"}, **_INNER)
def _bounds(screen, n_nodes, x32, slope, bound):
    """Fill bound[k] with an upper bound (but for rounding) on the sum over features of the kernel."""
    d = x32.shape[0]
    zero = np.float32(0.0)
    for begin in range(0, n_nodes, 1024):
        end = min(begin + 1024, n_nodes)
        tile = bound[begin:end]
        for k in range(end - begin):
            tile[k] = zero
        j = 0
        while j + 4 <= d:
            w0, w1 = screen[j, begin:end], screen[j + 1, begin:end]
            w2, w3 = screen[j + 2, begin:end], screen[j + 3, begin:end]
            x0, x1, x2, x3 = x32[j], x32[j + 1], x32[j + 2], x32[j + 3]
            for k in range(end - begin):
                d0, d1, d2, d3 = x0 - w0[k], x1 - w1[k], x2 - w2[k], x3 - w3[k]
                v0 = _ONE_BITS - slope * (d0 * d0)
                v1 = _ONE_BITS - slope * (d1 * d1)
                v2 = _ONE_BITS - slope * (d2 * d2)
                v3 = _ONE_BITS - slope * (d3 * d3)
                e0 = _chord_exp2(v0 if v0 > zero else zero)
                e1 = _chord_exp2(v1 if v1 > zero else zero)
                e2 = _chord_exp2(v2 if v2 > zero else zero)
                e3 = _chord_exp2(v3 if v3 > zero else zero)
                tile[k] += (e0 + e1) + (e2 + e3)
            j += 4
        while j < d:
            w0 = screen[j, begin:end]
            x0 = x32[j]
            for k in range(end - begin):
                d0 = x0 - w0[k]
                v0 = _ONE_BITS - slope * (d0 * d0)
                tile[k] += _chord_exp2(v0 if v0 > zero else zero)
            j += 1


@njit(**_INNER)
def _to_screen(x, shift, scale, x32):
    """Shift and scale a point into the screening copy's units; return the sum of its absolute values there."""
    reach = 0.0
    for j in range(x.shape[0]):
        z = (x[j] - shift[j]) * scale
        x32[j] = z
        reach += abs(z)
    return reach


@njit(inline="always")
def _slope(width):
    """Factor that turns a squared float32 difference into exponent bits."""
    return np.float32(_LOG2E / (2.0 * width * width) * 8388608.0)


@njit(inline="always")
def _screen_margin(d, reach, width):
    """How far, at most, rounding can put the bound on the sum below the true sum.

    With u = 2^-24: both operands of x - w carry an error of u times their size and |w| <= |x| + |x - w|, so the error
    of the difference is at most u (2 |x| + 2 |x - w|); the kernel's slope is at most 0.61 / width, and
    |t| * slope(t) <= 0.74. The product, the slope factor, and the fused subtraction near 2^30 (steps of 64, that is
    128 u of an octave) stay below 150 u per feature. Adding d terms costs at most d u of the sum, which is at most d.
    All of it doubled.
    """
    return _ULP32 * (d * (300.0 + d) + 2.5 * reach / width)


# ---------------------------------------------------------------- bandwidth


@njit(**_INNER)
def _select(values, n, k):
    """k-th smallest of values[:n]; reorders values."""
    low, high = 0, n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@njit(**_ENTRY)
def median(values, n):
    """Median of values[:n]; reorders values."""
    upper = _select(values, n, n // 2)
    if n % 2:
        return upper
    lower = values[0]
    for i in range(1, n // 2):
        lower = max(lower, values[i])
    return (lower + upper) / 2.0


@njit(**_ENTRY)
def bandwidth(points, rows, n, mean, spread):
    """Silverman's rule over points[rows[:n]], median over features. `mean`, `spread`: scratch of length d."""
    d = points.shape[1]
    if n < 2:
        for j in range(d):
            spread[j] = 1e-6
    else:
        first = points[rows[0]]
        for j in range(d):
            mean[j] = 0.0
            spread[j] = 0.0
        for i in range(n):
            w = points[rows[i]]
            for j in range(d):
                mean[j] += w[j]
                # any difference marks the feature as not constant, without a rounding error to be fooled by
                spread[j] = spread[j] if w[j] == first[j] else 1.0
        for j in range(d):
            mean[j] /= n
            mean[j] = mean[j] if spread[j] != 0.0 else first[j]
            spread[j] = 0.0
        for i in range(n):
            w = points[rows[i]]
            for j in range(d):
                diff = w[j] - mean[j]
                spread[j] += diff * diff
        for j in range(d):
            std = np.sqrt(spread[j] / (n - 1))
            spread[j] = std if std != 0.0 else 1e-6
    power = 1.0 / (4 + d)
    before, after = (4.0 / (2 + d)) ** power, float(n) ** -power
    for j in range(d):
        spread[j] = before * spread[j] * after
    return median(spread, d)


# ---------------------------------------------------------------- small pieces of the network


@njit(**_INNER)
def _unlink(newer, older, ints, k):
    up, down = newer[k], older[k]
    if up >= 0:
        older[up] = down
    else:
        ints[NEWEST] = down
    if down >= 0:
        newer[down] = up
    else:
        ints[OLDEST] = up


@njit(**_INNER)
def _push_front(newer, older, ints, k):
    head = ints[NEWEST]
    newer[k] = -1
    older[k] = head
    if head >= 0:
        newer[head] = k
    else:
        ints[OLDEST] = k
    ints[NEWEST] = k


@njit(**_ENTRY)
def write_screen(state, k):
    """Bring the screening copy of node k up to date."""
    scale = state.floats[SCALE]
    w = state.nodes[k]
    for j in range(w.shape[0]):
        state.screen[j, k] = (w[j] - state.shift[j]) * scale


@njit(**_ENTRY)
def mean_of(values, n):
    """Mean of values[:n], summed in NumPy's order."""
    return _pairwise_sum(values, 0, n) / n


@njit(**_ENTRY)
def set_mean_width(state):
    n = state.ints[N_NODES]
    state.floats[MEAN_WIDTH] = mean_of(state.widths, n) if n > 0 else state.floats[LAST_WIDTH]


@njit(**_INNER)
def _append_node(state, x):
    k = state.ints[N_NODES]
    w = state.nodes[k]
    for j in range(x.shape[0]):
        w[j] = x[j]
    state.counts[k] = 1
    state.widths[k] = state.floats[LAST_WIDTH]
    state.first_half[k] = -1
    state.ints[N_NODES] = k + 1
    state.ints[N_LOST] = 0
    _push_front(state.newer, state.older, state.ints, k)
    write_screen(state, k)
    return k


@njit(**_INNER)
def _recent_width(state, work):
    """Bandwidth of the n_active most recent nodes."""
    ints = state.ints
    n, k = 0, ints[NEWEST]
    while k >= 0 and n < ints[N_ACTIVE]:
        work.rows[n] = k
        n += 1
        k = state.older[k]
    return bandwidth(state.nodes, work.rows, n, work.mean, work.spread)


@njit(**_INNER)
def _move_node(state, k, x, divisor):
    w = state.nodes[k]
    scale = state.floats[SCALE]
    for j in range(w.shape[0]):
        value = w[j] + (x[j] - w[j]) / divisor
        w[j] = value
        state.screen[j, k] = (value - state.shift[j]) * scale


# ---------------------------------------------------------------- edges


@njit(**_INNER)
def _find_edge(state, a, b):
    half = state.first_half[a]
    while half >= 0:
        if state.half_to[half] == b:
            return half // 2
        half = state.half_next[half]
    return -1


@njit(**_ENTRY)
def add_edge(state, a, b, age):
    """Link a and b; the pool must have room."""
    ints = state.ints
    edge = ints[FREE_EDGE]
    if edge >= 0:
        ints[FREE_EDGE] = state.half_next[2 * edge]
    else:
        edge = ints[EDGES_USED]
        ints[EDGES_USED] = edge + 1
    ints[N_EDGES] += 1
    state.ages[edge] = age
    for half, here, there in ((2 * edge, a, b), (2 * edge + 1, b, a)):
        state.half_to[half] = there
        state.half_next[half] = state.first_half[here]
        state.first_half[here] = half


@njit(**_INNER)
def _detach(state, node, half):
    at = state.first_half[node]
    if at == half:
        state.first_half[node] = state.half_next[half]
        return
    while state.half_next[at] != half:
        at = state.half_next[at]
    state.half_next[at] = state.half_next[half]


@njit(**_INNER)
def _sort(values, n):
    """Shell sort: a node has a handful of edges, and the library's sort takes seconds to compile."""
    gap = n // 2
    while gap > 0:
        for i in range(gap, n):
            value, j = values[i], i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 2


@njit(**_INNER)
def _delete_old_edges(state, s1, age_iqr_factor, work):
    """Delete those edges of s1 whose age is an outlier by the rule on medians of the ages below and above."""
    ints = state.ints
    degree = 0
    half = state.first_half[s1]
    while half >= 0:
        work.edge_ages[degree] = state.ages[half // 2]
        degree += 1
        half = state.half_next[half]
    if degree < 2:
        return  # one age has none below and none above its median
    ages = work.edge_ages
    _sort(ages, degree)
    middle = _sorted_median(ages, 0, degree)
    n_below, first_above = 0, degree
    for i in range(degree):
        if ages[i] < middle:
            n_below = i + 1
        elif ages[i] > middle:
            first_above = i
            break
    if n_below == 0 or first_above == degree:
        return
    q1 = _sorted_median(ages, 0, n_below)
    q3 = _sorted_median(ages, first_above, degree)
    n_deleted = ints[N_DELETED]
    ratio = n_deleted / (n_deleted + degree)
    mean_deleted = ints[DELETED_AGES] / n_deleted if n_deleted > 0 else 0.0
    limit = mean_deleted * ratio + (q3 + age_iqr_factor * (q3 - q1)) * (1.0 - ratio)
    half = state.first_half[s1]
    while half >= 0:
        following = state.half_next[half]
        edge = half // 2
        if state.ages[edge] > limit:
            ints[N_DELETED] += 1
            ints[DELETED_AGES] += state.ages[edge]
            _detach(state, s1, half)
            _detach(state, state.half_to[half], half ^ 1)
            state.half_next[2 * edge] = ints[FREE_EDGE]
            ints[FREE_EDGE] = edge
            ints[N_EDGES] -= 1
            state.ages[edge] = 0
        half = following


@njit(**_INNER)
def _sorted_median(values, start, stop):
    middle = (start + stop) // 2
    if (stop - start) % 2:
        return float(values[middle])
    return (values[middle - 1] + values[middle]) / 2.0


@njit(**_INNER)
def _delete_isolated_nodes(state, work):
    """Drop every node without an edge and close the gaps; positions keep their order."""
    ints = state.ints
    n = ints[N_NODES]
    kept = 0
    for k in range(n):
        if state.first_half[k] < 0:
            _unlink(state.newer, state.older, ints, k)
            work.rows[k] = -1
        else:
            work.rows[k] = kept
            kept += 1
    if kept == n:
        return
    if kept == 0:
        ints[N_LOST] = n  # the rows stay in place until the next node, so that reading still has an answer
    for k in range(n):
        to = work.rows[k]
        if to < 0:
            continue
        if to != k:
            for j in range(state.nodes.shape[1]):
                state.nodes[to, j] = state.nodes[k, j]
                state.screen[j, to] = state.screen[j, k]
            state.counts[to] = state.counts[k]
            state.widths[to] = state.widths[k]
            state.first_half[to] = state.first_half[k]
        up, down = state.newer[k], state.older[k]
        state.newer[to] = work.rows[up] if up >= 0 else -1
        state.older[to] = work.rows[down] if down >= 0 else -1
    for at in (NEWEST, OLDEST):
        if ints[at] >= 0:
            ints[at] = work.rows[ints[at]]
    for edge in range(ints[EDGES_USED]):
        if state.ages[edge] > 0:
            state.half_to[2 * edge] = work.rows[state.half_to[2 * edge]]
            state.half_to[2 * edge + 1] = work.rows[state.half_to[2 * edge + 1]]
    ints[N_NODES] = kept
    set_mean_width(state)


# ---------------------------------------------------------------- initial phase


@njit(fastmath={"contract", "reassoc", "nsz"}, **_INNER)
def _dot(factor, start, row, n):
    total = 0.0
    for j in range(n):
        total += factor[start + j] * row[j]
    return total


@njit(**_ENTRY)
def extend_factor(state, k, one_minus_cim, work):
    """Add node k's row to the Cholesky factor of exp(R); the log-determinant is the sum of the logs of its pivots."""
    ints, floats = state.ints, state.floats
    if ints[SINGULAR]:
        return
    base = k * (k + 1) // 2
    width = floats[MEAN_WIDTH]
    two_s2 = 2.0 * width * width
    row = state.factor[base : base + k + 1]
    x = state.nodes[k]
    square = 0.0
    for i in range(k):
        similarity = _correntropy(x, state.nodes[i], two_s2, work.terms)
        if one_minus_cim:
            similarity = 1.0 - _cim(similarity)
        at = i * (i + 1) // 2
        value = (np.exp(similarity) - _dot(state.factor, at, row, i)) / state.factor[at + i]
        row[i] = value
        square += value * value
    pivot = np.e - square
    if pivot <= 1e-13:
        ints[SINGULAR] = 1  # an exact duplicate: the determinant is zero from here on
        return
    row[k] = np.sqrt(pivot)
    floats[LOG_DET] += np.log(pivot)


@njit(**_INNER)
def _set_threshold(state, work):
    """Give all nodes the bandwidth of the active ones and set V to the mean CIM to the nearest other node."""
    ints, floats = state.ints, state.floats
    n = ints[N_NODES]
    floats[LAST_WIDTH] = _recent_width(state, work)
    for k in range(n):
        state.widths[k] = floats[LAST_WIDTH]
    set_mean_width(state)
    width = floats[MEAN_WIDTH]
    two_s2 = 2.0 * width * width
    scaled = width * floats[SCALE]
    screened = _SCALE_LOW < scaled < _SCALE_HIGH
    d = state.nodes.shape[1]
    for i in range(n):
        x = state.nodes[i]
        margin = 0.0
        if screened:
            reach = _to_screen(x, state.shift, floats[SCALE], work.x32)
            margin = _screen_margin(d, reach, scaled)
            _bounds(state.screen, n, work.x32, _slope(scaled), work.bound)
        best, nearest = 0.0, 1.0
        for k in range(n):
            if k == i or (screened and work.bound[k] + margin < best * d):
                continue
            correntropy = _correntropy(x, state.nodes[k], two_s2, work.terms)
            cim = _cim(correntropy)
            # a distance of exactly zero is a duplicate, not a neighbour
            if cim != 0.0 and cim < nearest:
                nearest, best = cim, correntropy
        work.nearest[i] = nearest
    floats[THRESHOLD] = _pairwise_sum(work.nearest, 0, n) / n


# ---------------------------------------------------------------- learning


#: Scratch space of one call.
Work = namedtuple(  # noqa: PYI024
    "Work", ["terms", "mean", "spread", "x32", "bound", "rows", "nearest", "edge_ages"]
)


@njit(**_INNER)
def _two_winners(state, x, work):
    """Positions and CIM of the two nearest nodes, exact for those that can pass the vigilance test.

    A node whose CIM certainly exceeds the threshold is not computed: nothing the algorithm does depends on it.
    Missing winners have position -1 and an infinite CIM.
    """
    ints, floats = state.ints, state.floats
    n, d = ints[N_NODES], x.shape[0]
    width, threshold = floats[MEAN_WIDTH], floats[THRESHOLD]
    two_s2 = 2.0 * width * width
    scaled = width * floats[SCALE]
    reach = _to_screen(x, state.shift, floats[SCALE], work.x32)
    margin = _screen_margin(d, reach, scaled)
    _bounds(state.screen, n, work.x32, _slope(scaled), work.bound)
    # node k can matter only if its sum of kernels reaches this
    limit = np.float32(d * (1.0 - threshold * threshold) * (1.0 - 1e-6) - margin)
    s1, s2 = -1, -1
    cim1, cim2 = np.inf, np.inf
    bound = work.bound
    for begin in range(0, n, 32):
        end = min(begin + 32, n)
        top = bound[begin]
        for k in range(begin + 1, end):
            top = bound[k] if bound[k] > top else top
        if top < limit:
            continue
        for k in range(begin, end):
            if bound[k] < limit:
                continue
            correntropy = _correntropy(x, state.nodes[k], two_s2, work.terms)
            cim = _cim(correntropy)
            if cim < cim1:
                s2, cim2 = s1, cim1
                s1, cim1 = k, cim
            elif cim < cim2:
                s2, cim2 = k, cim
            else:
                continue
            if cim2 <= threshold:
                better = np.float32(d * (1.0 - cim2 * cim2) * (1.0 - 1e-6) - margin)
                limit = better if better > limit else limit
    return s1, s2, cim1, cim2


@njit(**_ENTRY)
def learn(state, work, block, start, topological, one_minus_cim, min_nodes, log_diversity, age_iqr_factor):
    """Learn block[start:]; return (index of the next point, why it stopped).

    Stops before a point for which an array is too small or the screening copy has lost its scale; nothing of that
    point has been learned then, and the caller makes room and goes on.
    """
    ints, floats = state.ints, state.floats
    for i in range(start, block.shape[0]):
        k_count = ints[N_NODES]
        if k_count == state.nodes.shape[0]:
            return i, NEED_NODES
        if topological and ints[FREE_EDGE] < 0 and ints[EDGES_USED] == state.ages.shape[0]:
            return i, NEED_EDGES
        x = block[i]
        if ints[N_ACTIVE] == 0 or k_count < ints[N_ACTIVE]:
            if ints[N_ACTIVE] == 0 and (k_count + 1) * (k_count + 2) // 2 > state.factor.shape[0]:
                return i, NEED_FACTOR
            k = _append_node(state, x)
            set_mean_width(state)
            if ints[N_ACTIVE] == 0:
                extend_factor(state, k, one_minus_cim, work)
                fires = ints[SINGULAR] == 1 or floats[LOG_DET] < log_diversity
                if k >= 1 and k + 1 >= min_nodes and fires:
                    ints[N_ACTIVE] = k + 1
            if ints[N_NODES] == ints[N_ACTIVE]:
                _set_threshold(state, work)
        else:
            scaled = floats[MEAN_WIDTH] * floats[SCALE]
            if not _SCALE_LOW < scaled < _SCALE_HIGH:
                return i, NEED_SCALE
            s1, s2, cim1, cim2 = _two_winners(state, x, work)
            if floats[THRESHOLD] < cim1:
                k = _append_node(state, x)
                floats[LAST_WIDTH] = _recent_width(state, work)
                state.widths[k] = floats[LAST_WIDTH]
                set_mean_width(state)
            else:
                second = s2 >= 0 and cim2 <= floats[THRESHOLD]
                state.counts[s1] += 1
                _move_node(state, s1, x, float(state.counts[s1]))
                if ints[NEWEST] != s1:
                    _unlink(state.newer, state.older, ints, s1)
                    _push_front(state.newer, state.older, ints, s1)
                if topological:
                    _update_edges(state, s1, s2, second, x)
                    _delete_old_edges(state, s1, age_iqr_factor, work)
                elif second:
                    _move_node(state, s2, x, 100.0 * state.counts[s2])
        ints[N_SEEN] += 1
        if topological and ints[N_ACTIVE] > 0 and ints[N_NODES] > 1 and ints[N_SEEN] % (2 * ints[N_ACTIVE]) == 0:
            _delete_isolated_nodes(state, work)
    return block.shape[0], DONE


@njit(**_INNER)
def _update_edges(state, s1, s2, second, x):
    half = state.first_half[s1]
    while half >= 0:
        state.ages[half // 2] += 1
        half = state.half_next[half]
    if not second:
        return
    edge = _find_edge(state, s1, s2)
    if edge >= 0:
        state.ages[edge] = 1
    else:
        add_edge(state, s1, s2, 1)
    half = state.first_half[s1]
    while half >= 0:
        k = state.half_to[half]
        _move_node(state, k, x, 10.0 * state.counts[k])
        half = state.half_next[half]


# ---------------------------------------------------------------- reading


@njit(**_ENTRY)
def nearest_nodes(nodes, screen, shift, scale, width, screened, block, position, distance):
    """Position of, and CIM to, the nearest node of every row; ties to the lowest position."""
    n, d = nodes.shape  # the screening copy may have room for more
    two_s2 = 2.0 * width * width
    scaled = width * scale
    slope = _slope(scaled)
    x32 = np.empty(d, np.float32)
    bound = np.empty(n, np.float32)
    terms = np.empty(d)
    for i in range(block.shape[0]):
        x = block[i]
        reach = _to_screen(x, shift, scale, x32)
        margin = _screen_margin(d, reach, scaled)
        if screened:
            _bounds(screen, n, x32, slope, bound)
        else:
            for k in range(n):
                bound[k] = d  # units too far off for float32: every node is computed
        # the most promising node first: its exact value prunes nearly all others
        lead = 0
        for k in range(1, n):
            if bound[k] > bound[lead]:
                lead = k
        cim_lead = _cim(_correntropy(x, nodes[lead], two_s2, terms))
        best, best_cim = lead, cim_lead
        limit = np.float32(d * (1.0 - cim_lead * cim_lead) * (1.0 - 1e-6) - margin)
        for k in range(n):
            if bound[k] < limit or k == lead:
                continue
            cim = _cim(_correntropy(x, nodes[k], two_s2, terms))
            if cim < best_cim or (cim == best_cim and k < best):
                best, best_cim = k, cim
        position[i] = best
        distance[i] = best_cim


@njit(**_ENTRY)
def all_distances(nodes, width, block, out):
    """CIM of every row to every node."""
    two_s2 = 2.0 * width * width
    terms = np.empty(nodes.shape[1])
    for i in range(block.shape[0]):
        for k in range(nodes.shape[0]):
            out[i, k] = _cim(_correntropy(block[i], nodes[k], two_s2, terms))
