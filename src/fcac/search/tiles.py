"""Squared distances to many points at once: the inner loops of the nearest-seed search.

Written as LLVM vectors for the same reason as `fcac.art.simd`: the sums must stay in registers.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fcac._llvm import F32, F64, I64, addresses, call, constant, define, pointer, splat

#: Points per tile.
LANES = 32

# Features between two checks whether any lane is still within the limit.
_STRIDE = 16

_TILE = ir.VectorType(F32, LANES)


def _point_function(module):
    """Make the function behind `point_distances`, on addresses."""
    numbers = F32.as_pointer()
    function, builder = define(module, "fcac_point_distances", I64, [numbers] * 3 + [I64, F32])
    if builder is None:
        return function
    points, x, out, d, limit = function.args
    total = cgutils.alloca_once_value(builder, constant(_TILE, 0.0))
    limits = splat(builder, limit, _TILE)

    def within():
        mask = builder.fcmp_ordered("<=", builder.load(total), limits)
        return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), I64)

    with cgutils.for_range_slice(builder, I64(0), d, I64(_STRIDE)) as (start, _):
        stop = builder.add(start, I64(_STRIDE))
        stop = builder.select(builder.icmp_signed("<", stop, d), stop, d)
        with cgutils.for_range(builder, stop, start=start) as feature:
            at = builder.mul(feature.index, I64(LANES))
            values = builder.load(pointer(builder, points, at, _TILE), align=4)
            gap = builder.fsub(splat(builder, builder.load(builder.gep(x, [feature.index])), _TILE), values)
            builder.store(call(builder, "fmuladd", gap, gap, builder.load(total)), total)
        with builder.if_then(builder.icmp_signed("==", within(), I64(0))):
            builder.ret(I64(0))
    builder.store(builder.load(total), pointer(builder, out, I64(0), _TILE), align=4)
    builder.ret(within())
    return function


@intrinsic
def point_distances(typingctx, points, tile, x, limit, out):
    """Squared distances from x (d,) to the points of a tile, to out (32,); returns as bits which are within the limit.

    `points` is a float32 array (tiles, d, 32). Nothing is written if no point is within the limit.
    """
    signature = types.int64(points, types.int64, x, types.float32, out)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = I64(0)
        arrays = (x, args[2], zero), (points, args[0], args[1]), (out, args[4], zero)
        (place, tile_start, found), d = addresses(context, builder, *arrays)
        return builder.call(_point_function(builder.module), [tile_start, place, found, d, args[3]])

    return signature, codegen


#: Points per tile of float64.
EXACT_LANES = 16

_EXACT_TILE = ir.VectorType(F64, EXACT_LANES)


def _exact_function(module):
    """Make the function behind `exact_distances`, on addresses."""
    numbers = F64.as_pointer()
    function, builder = define(module, "fcac_exact_distances", ir.VoidType(), [numbers, numbers, numbers, I64])
    if builder is None:
        return function
    points, x, out, d = function.args
    total = cgutils.alloca_once_value(builder, constant(_EXACT_TILE, 0.0))
    with cgutils.for_range(builder, d) as feature:
        at = builder.mul(feature.index, I64(EXACT_LANES))
        values = builder.load(pointer(builder, points, at, _EXACT_TILE), align=8)
        gap = builder.fsub(splat(builder, builder.load(builder.gep(x, [feature.index])), _EXACT_TILE), values)
        # product and sum are rounded one after the other, never fused: the same bits on every machine
        builder.store(builder.fadd(builder.load(total), builder.fmul(gap, gap)), total)
    builder.store(builder.load(total), pointer(builder, out, I64(0), _EXACT_TILE), align=8)
    builder.ret_void()
    return function


@intrinsic
def exact_distances(typingctx, points, tile, rows, r, out):
    """Squared distances from rows[r] to the points of a tile of `points` (tiles, d, 16), float64, to out[tile].

    Each is summed feature by feature, as a plain loop would.
    """
    signature = types.void(points, types.int64, rows, types.int64, out)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = (rows, args[2], args[3]), (points, args[0], args[1]), (out, args[4], args[1])
        (x, tile_start, found), d = addresses(context, builder, *arrays)
        builder.call(_exact_function(builder.module), [tile_start, x, found, d])
        return context.get_dummy_value()

    return signature, codegen
