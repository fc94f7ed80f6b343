"""Exact search for the nearest nodes that skips most distance computations.

The dominant cost of these algorithms is the exponential function: K x d evaluations for every point. The search
therefore has two stages. A float32 pass computes an upper bound on the correntropy with every node; only nodes whose
bound is high enough to matter are computed exactly, in float64. The margin added to the bound covers every rounding
error of the first stage (see `_screen_margin`), so the result equals that of the full search, bit for bit.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._llvm import lowest_bit, pairwise_sum
from fcac.art.simd import (
    GIVEN_UP,
    LANES,
    cim_of,
    correntropy,
    kernel_of,
    screen_tile,
    tile_top,
    to_screen,
)

_ULP32 = 2.0**-24
_BITS_PER_SQUARE = 1.4426950408889634 / 2.0 * 8388608.0  # log2(e) / 2, in steps of a float32 mantissa

# Number of features in the first pass over all nodes.
_FIRST_LOOK = 32

#: A point whose winners are searched for; nodes farther than `within` are irrelevant to it.
PROBE = np.dtype(
    [
        ("within", np.float64),
        ("margin", np.float64),
        ("limit", np.float32),
        ("top", np.float32),
        ("best", np.int64),
        ("s1", np.int64),
        ("s2", np.int64),
        ("cim1", np.float64),
        ("cim2", np.float64),
    ]
)

#: Range of widths, in units of the screening copy, in which float32 neither overflows nor loses the kernel.
SCREEN_LOW, SCREEN_HIGH = 2.0**-20, 2.0**20


@inner_kernel(inline="always", error_model="numpy")
def _screen_margin(d, reach, width):
    """Return the largest amount by which rounding can put the bound on the sum below the true sum.

    With u = 2^-24: both operands of x - w carry an error of u times their size and |w| <= |x| + |x - w|, so the error
    of the difference is at most u (2 |x| + 2 |x - w|); the kernel's slope is at most 0.61 / width, and
    |t| * slope(t) <= 0.74. The product, the slope factor, and the fused subtraction near 2^30 (steps of 64, that is
    128 u of an octave) stay below 150 u per feature. Adding d terms costs at most d u of the sum, which is at most d.
    The result is twice the total of these errors.
    """
    return _ULP32 * (d * (300.0 + d) + 2.5 * reach / width)


@inner_kernel(error_model="numpy")
def search(nodes, screen, n, shift, rank, scale, width, wanted, points, start, probes, begin, end, x32, bound):
    """Find the nearest node of points[start + b], and the second nearest if two are `wanted`, for b in begin..end.

    Query and result are in probes[b]; x32[b] and bound[b] are scratch space. The result is exact for nodes whose CIM is
    not above `within`; other nodes may be ignored as if they did not exist. Missing winners have position -1 and an
    infinite CIM. Ties go to the lowest position. Several points are searched together to share a tile of nodes while it
    is in the processor's cache.
    """
    d, n_tiles = nodes.shape[1], (n + LANES - 1) // LANES
    scaled, kernel = width * scale, kernel_of(width)
    slope = np.float32(_BITS_PER_SQUARE / (scaled * scaled))
    first = _FIRST_LOOK if d > 2 * _FIRST_LOOK else 0
    for b in range(begin, end):
        probe = probes[b]
        reach = to_screen(points, start + b, shift, rank, scale, x32, b)
        probe.margin = _screen_margin(d, reach, scaled)
        probe.limit = d * (1.0 - probe.within * probe.within) * (1.0 - 1e-6) - probe.margin
        probe.s1, probe.s2, probe.best = -1, -1, -1
        probe.cim1, probe.cim2, probe.top = np.inf, np.inf, GIVEN_UP
    if first > 0:
        # try the most discriminating features first, to start where the winner probably is: that avoids most of the
        # work
        for tile in range(n_tiles):
            for b in range(begin, end):
                probe = probes[b]
                screen_tile(screen, tile, x32, b, 0, first, slope, probe.limit, bound)
                value = tile_top(bound, b, tile)
                if value > probe.top:
                    probe.best, probe.top = tile, value
    for step in range(-1, n_tiles):
        for b in range(begin, end):
            probe = probes[b]
            tile = probe.best if step < 0 else step
            if step == probe.best or (first > 0 and bound[b, tile * LANES] == GIVEN_UP):
                continue
            limit = probe.limit
            reaching = screen_tile(screen, tile, x32, b, first, d, slope, limit, bound)
            while reaching != 0:
                # the most promising node first: its exact value rules out most of the others
                k = tile * LANES + lowest_bit(reaching)
                rest = reaching & (reaching - 1)
                while rest != 0:
                    other = tile * LANES + lowest_bit(rest)
                    k = other if bound[b, other] > bound[b, k] else k
                    rest &= rest - 1
                reaching &= ~(1 << (k - tile * LANES))
                if bound[b, k] < limit:
                    break
                if k >= n:
                    continue
                cim = cim_of(correntropy(points, start + b, nodes, k, kernel))
                if cim < probe.cim1 or (cim == probe.cim1 and k < probe.s1):
                    probe.s2, probe.cim2 = probe.s1, probe.cim1
                    probe.s1, probe.cim1 = k, cim
                elif cim < probe.cim2 or (cim == probe.cim2 and k < probe.s2):
                    probe.s2, probe.cim2 = k, cim
                worst = probe.cim2 if wanted > 1 else probe.cim1
                if worst < probe.within:
                    # from here on, only nearer nodes can matter
                    limit = np.float32(d * (1.0 - worst * worst) * (1.0 - 1e-6) - probe.margin)
            probe.limit = limit


@kernel(error_model="numpy")
def nearest_nodes(
    nodes, widths, n, screen, shift, rank, scale, threshold, points, start, stop, probes, x32, bound, position, distance
):
    """Find the position of, and the CIM to, the node nearest to each of points[start:stop]; ties: lowest position."""
    width = pairwise_sum(widths, n) / n
    one = np.int64(1)  # a literal would cause `search` to be compiled again
    for at in range(start, stop, probes.shape[0]):
        count = stop - at if stop - at < probes.shape[0] else probes.shape[0]
        for b in range(count):
            # most points lie within the threshold of a node, which rules out most other nodes
            probes[b].within = threshold
        search(nodes, screen, n, shift, rank, scale, width, one, points, at, probes, np.int64(0), count, x32, bound)
        for b in range(count):
            while probes[b].cim1 > probes[b].within:
                # points beyond the threshold of every node need a second search
                probes[b].within = probes[b].cim1
                search(nodes, screen, n, shift, rank, scale, width, one, points, at, probes, b, b + 1, x32, bound)
            position[at + b] = probes[b].s1
            distance[at + b] = probes[b].cim1


@kernel(error_model="numpy")
def all_distances(nodes, widths, n, points, start, stop, out):
    """Compute the CIM between each of points[start:stop] and every node."""
    kernel = kernel_of(pairwise_sum(widths, n) / n)
    for i in range(start, stop):
        for k in range(n):
            out[i, k] = cim_of(correntropy(points, i, nodes, k, kernel))
