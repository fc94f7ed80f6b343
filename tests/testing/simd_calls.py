"""The vector kernels of `fcac.art.simd` as functions that Python can call."""

from __future__ import annotations

from fcac import _llvm
from fcac._kernels import kernel
from fcac.art import simd


@kernel
def pairwise_sum(values, n):
    return _llvm.pairwise_sum(values, n)


@kernel
def dot(values, a, b, n):
    return _llvm.dot(values, a, b, n)


@kernel
def spreads(points, rows, n, out):
    simd.spread_of(points, rows, n, out)


@kernel
def kernel_of(width):
    return simd.kernel_of(width)


@kernel
def correntropies(points, nodes, width, out):
    for i in range(points.shape[0]):
        for k in range(nodes.shape[0]):
            out[i, k] = simd.correntropy(points, i, nodes, k, simd.kernel_of(width))


@kernel
def cims(values):
    for i in range(values.shape[0]):
        values[i] = simd.cim_of(values[i])


@kernel
def to_screen(points, i, shift, rank, scale, probe_points, b):
    return simd.to_screen(points, i, shift, rank, scale, probe_points, b)


@kernel
def screen_tile(screen, tile, probe_points, b, begin, end, slope, limit, bound):
    return simd.screen_tile(screen, tile, probe_points, b, begin, end, slope, limit, bound)


@kernel
def tile_top(bound, b, tile):
    return simd.tile_top(bound, b, tile)


@kernel
def move_node(nodes, screen, shift, rank, scale, k, points, i, divisor):
    simd.move_node(nodes, screen, shift, rank, scale, k, points, i, divisor)


@kernel
def lowest_bit(mask):
    return _llvm.lowest_bit(mask)
