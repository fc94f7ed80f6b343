"""Finding the nearest nodes exactly, without computing most of them.

The cost of these algorithms is the exponential function: K x d of them for every point. The search therefore has two
stages. A float32 pass bounds the correntropy of every node from above; only nodes whose bound could matter are
computed exactly in float64. The margin added to the bound covers every rounding of the first stage (see
`_screen_margin`), so the result is that of the full search, bit for bit.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

import numpy as np

from fcac._compile import entry, inner
from fcac._vector import (
    GIVEN_UP,
    LANES,
    cim_of,
    correntropy,
    kernel_of,
    lowest_bit,
    pairwise_sum,
    screen_tile,
    tile_top,
    to_screen,
)

_ULP32 = 2.0**-24
_BITS_PER_SQUARE = 1.4426950408889634 / 2.0 * 8388608.0  # log2(e) / 2, in steps of a float32 mantissa

# Features in the first look at all nodes.
_FIRST_LOOK = 32

#: Widths, in units of the screening copy, at which float32 neither overflows nor loses the kernel.
SCREEN_LOW, SCREEN_HIGH = 2.0**-20, 2.0**20


@inner(inline="always")
def _screen_margin(d, reach, width):
    """How far, at most, rounding can put the bound on the sum below the true sum.

    With u = 2^-24: both operands of x - w carry an error of u times their size and |w| <= |x| + |x - w|, so the error
    of the difference is at most u (2 |x| + 2 |x - w|); the kernel's slope is at most 0.61 / width, and
    |t| * slope(t) <= 0.74. The product, the slope factor, and the fused subtraction near 2^30 (steps of 64, that is
    128 u of an octave) stay below 150 u per feature. Adding d terms costs at most d u of the sum, which is at most d.
    All of it doubled.
    """
    return _ULP32 * (d * (300.0 + d) + 2.5 * reach / width)


@inner
def winners(nodes, screen, n, shift, rank, scale, width, within, wanted, points, i, x32, bound):
    """Positions and CIM of the nearest node of points[i] and, if two are `wanted`, of the second nearest.

    Exact for nodes whose CIM is not above `within`; others may be left out, as if they were not there. Missing winners
    have position -1 and an infinite CIM. Ties go to the lowest position.
    """
    d, n_tiles = nodes.shape[1], (n + LANES - 1) // LANES
    scaled, kernel = width * scale, kernel_of(width)
    slope = np.float32(_BITS_PER_SQUARE / (scaled * scaled))
    margin = _screen_margin(d, to_screen(points, i, shift, rank, scale, x32), scaled)
    s1, s2, cim1, cim2, worst = -1, -1, np.inf, np.inf, within
    limit = np.float32(d * (1.0 - worst * worst) * (1.0 - 1e-6) - margin)
    best, first = -1, 0
    if d > 2 * _FIRST_LOOK:
        # look at the features that tell most, to begin where the winner probably is: that spares most of the rest
        first, top = _FIRST_LOOK, np.float32(GIVEN_UP)
        for tile in range(n_tiles):
            screen_tile(screen, tile, x32, 0, first, slope, limit, bound)
            value = tile_top(bound, tile)
            if value > top:
                best, top = tile, value
    for step in range(-1, n_tiles):
        tile = best if step < 0 else step
        if step == best or (first > 0 and bound[tile * LANES] == GIVEN_UP):
            continue
        reaching = screen_tile(screen, tile, x32, first, d, slope, limit, bound)
        while reaching != 0:
            # the most promising first: its exact value spares most of the others
            k = tile * LANES + lowest_bit(reaching)
            rest = reaching & (reaching - 1)
            while rest != 0:
                other = tile * LANES + lowest_bit(rest)
                k = other if bound[other] > bound[k] else k
                rest &= rest - 1
            reaching &= ~(1 << (k - tile * LANES))
            if bound[k] < limit:
                break
            if k >= n:
                continue
            cim = cim_of(correntropy(points, i, nodes, k, kernel))
            if cim < cim1 or (cim == cim1 and k < s1):
                s2, cim2 = s1, cim1
                s1, cim1 = k, cim
            elif cim < cim2 or (cim == cim2 and k < s2):
                s2, cim2 = k, cim
            worst = cim2 if wanted > 1 else cim1
            if worst < within:
                # from here on, only what is nearer than these can matter
                limit = np.float32(d * (1.0 - worst * worst) * (1.0 - 1e-6) - margin)
    return s1, s2, cim1, cim2


@entry
def nearest_nodes(
    nodes, widths, n, screen, shift, rank, scale, threshold, points, start, stop, x32, bound, position, distance
):
    """Position of, and CIM to, the nearest node of points[start:stop]; ties to the lowest position."""
    width = pairwise_sum(widths, n) / n
    one = 1 if n > 0 else 0  # as a literal it would have `winners` compiled once more
    for i in range(start, stop):
        # most points lie within the threshold of a node, which spares most of the rest; the others take a second look
        within = threshold
        while True:
            s1, _, cim, _ = winners(nodes, screen, n, shift, rank, scale, width, within, one, points, i, x32, bound)
            if cim <= within:
                break
            within = cim
        position[i] = s1
        distance[i] = cim


@entry
def all_distances(nodes, widths, n, points, start, stop, out):
    """CIM of points[start:stop] to every node."""
    kernel = kernel_of(pairwise_sum(widths, n) / n)
    for i in range(start, stop):
        for k in range(n):
            out[i, k] = cim_of(correntropy(points, i, nodes, k, kernel))
