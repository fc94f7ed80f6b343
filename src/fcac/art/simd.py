"""The inner loops of CA+, CAE and CAE_FC, written as vector instructions.

They are hand-written LLVM code, because the kernel sum must follow NumPy's order of addition, which no optimiser may
change, and because optimisers do not find a loop over a tile of nodes that keeps its sums in registers: the same loops
in Numba, to the last bit, took 2 to 8 times as long (`correntropy`) and 3 to 15 times (`screen_tile`).

`correntropy`
    The exact mean of exp(-(x - w)^2 / (2 s^2)) over features, in float64. The exponential is accurate to 0.53 units in
    the last place, and eight running sums are added up as in NumPy, so that ties are broken exactly as in a plain NumPy
    program.
`screen_tile`
    An upper bound on that sum for 32 nodes at once, in float32: the bits of an integer, read as a float, give a chord
    of 2^y, which is never below 2^y and at most 6.15 % above it.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fcac._llvm import (
    F32,
    F64,
    F64X8,
    I32,
    I64,
    addresses,
    call,
    constant,
    define,
    fma,
    over_features,
    pointer,
    row_start,
    splat,
    summing,
)

#: Nodes per tile of the screening copy.
LANES = 32

# Number of features between two checks of whether any node of a tile can still reach the limit.
_STRIDE = 16

_TILE = ir.VectorType(F32, LANES)

_ROUND_MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer in the low bits
_LOG2E = 1.4426950408889634
_LN2_HI = 0.6931471803691238  # the 33 leading bits of log 2: its product with a small integer is exact
_LN2_LO = 1.9082149292705877e-10
_FAR = 708.0  # exp(-708) is still a normal number; beyond this the kernel counts as zero
_POLYNOMIAL = (  # 1/13! ... 1/2!, for (exp(r) - 1 - r) / r^2
    1.6059043836821613e-10,
    2.08767569878681e-09,
    2.505210838544172e-08,
    2.755731922398589e-07,
    2.7557319223985893e-06,
    2.48015873015873e-05,
    0.0001984126984126984,
    0.001388888888888889,
    0.008333333333333333,
    0.041666666666666664,
    0.16666666666666666,
    0.5,
)
_ONE_BITS = 1065353216.0  # bits of float32 1.0, as a number

#: Bound of the nodes of a tile that has been ruled out; lower than any other bound.
GIVEN_UP = np.float32(-1e30)


def _kernel(builder, x, w, unit, two_s2, inverse):
    """Generate code for exp(-(x - w)^2 / (2 s^2)) on scalars or vectors; `unit` is the factor by which s was scaled."""
    kind = x.type
    integers = ir.VectorType(I64, kind.count) if isinstance(kind, ir.VectorType) else I64
    difference = builder.fmul(builder.fsub(x, w), unit)
    square = builder.fmul(difference, difference)
    # multiply by the inverse and correct once: rounded like the quotient, at a third of the cost
    quotient = builder.fmul(square, inverse)
    remainder = fma(builder, builder.fneg(quotient), two_s2, square)
    t = fma(builder, remainder, inverse, quotient)
    near = builder.fcmp_ordered("<", t, constant(kind, _FAR))  # false for the NaN that an infinite square produces
    t = builder.select(near, t, constant(kind, _FAR))
    shifted = fma(builder, t, constant(kind, -_LOG2E), constant(kind, _ROUND_MAGIC))
    n = builder.fsub(shifted, constant(kind, _ROUND_MAGIC))
    high = fma(builder, n, constant(kind, -_LN2_HI), builder.fneg(t))
    low = builder.fmul(n, constant(kind, -_LN2_LO))
    r = builder.fadd(high, low)
    r_error = builder.fadd(builder.fsub(high, r), low)
    p = constant(kind, _POLYNOMIAL[0])
    for coefficient in _POLYNOMIAL[1:]:
        p = fma(builder, p, r, constant(kind, coefficient))
    one = constant(kind, 1.0)
    one_plus = builder.fadd(one, r)
    rest = builder.fsub(r, builder.fsub(one_plus, one))
    rest = builder.fadd(fma(builder, builder.fmul(r, r), p, r_error), rest)
    power = builder.add(builder.bitcast(shifted, integers), constant(integers, 1023))
    power = builder.bitcast(builder.shl(power, constant(integers, 52)), kind)
    value = builder.fmul(builder.fadd(one_plus, rest), power)
    return builder.select(near, value, constant(kind, 0.0))


@intrinsic
def kernel_of(typingctx, width):
    """Return what `correntropy` needs to know about a width: a unit, 2 s^2 in that unit, and its inverse.

    The unit is a power of two that brings the width close to one: scaling by it does not round, and no square
    underflows or overflows.
    """
    result = types.UniTuple(types.float64, 3)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        exponent = builder.and_(builder.lshr(builder.bitcast(args[0], I64), I64(52)), I64(2047))
        exponent = builder.sub(I64(2045), exponent)
        exponent = builder.select(builder.icmp_signed(">", exponent, I64(1)), exponent, I64(1))
        unit = builder.bitcast(builder.shl(exponent, I64(52)), F64)
        scaled = builder.fmul(args[0], unit)
        two_s2 = builder.fmul(builder.fmul(F64(2.0), scaled), scaled)
        return context.make_tuple(builder, result, [unit, two_s2, builder.fdiv(F64(1.0), two_s2)])

    return result(types.float64), codegen


@intrinsic
def correntropy(typingctx, points, i, nodes, k, kernel):
    """Mean over features of exp(-(x - w)^2 / (2 s^2)) between points[i] and nodes[k], in NumPy's order of addition."""
    signature = types.float64(points, i, nodes, k, kernel)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (x, w), d = addresses(context, builder, (points, *args[:2]), (nodes, *args[2:4]))
        function = summing(builder.module, "fcac_kernel_sum", 2, 3, _kernel)
        total = builder.call(function, [x, w, d, *cgutils.unpack_tuple(builder, args[4])])
        return builder.fdiv(total, builder.sitofp(d, F64))

    return signature, codegen


@intrinsic
def cim_of(typingctx, similarity):
    """Correntropy-induced metric sqrt(1 - C), with C capped at one, which rounding can slightly exceed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rest = builder.fsub(F64(1.0), args[0])
        rest = builder.select(builder.fcmp_ordered(">", rest, F64(0.0)), rest, F64(0.0))
        return call(builder, "sqrt", rest)

    return types.float64(types.float64), codegen


def _spreading(module):
    """Generate a function that writes the standard deviation of each of d features over the listed rows."""
    numbers, integers = F64.as_pointer(), I64.as_pointer()
    function, builder = define(module, "fcac_spread", ir.VoidType(), [numbers, I64, integers, I64, numbers])
    if builder is None:
        return function
    points, d, rows, n, out = function.args

    count = builder.sitofp(n, F64)
    # a single row has no spread: 0 / 1
    freedom = builder.sitofp(builder.sub(n, builder.zext(builder.icmp_signed(">", n, I64(1)), I64)), F64)

    def column(at, kind):
        def value(row):
            offset = builder.mul(builder.load(builder.gep(rows, [row])), d)
            return builder.load(pointer(builder, points, builder.add(offset, at), kind), align=8)

        first = value(I64(0))
        total = cgutils.alloca_once_value(builder, constant(kind, 0.0))
        varies = cgutils.alloca_once_value(builder, builder.fcmp_ordered("!=", first, first))  # no difference found yet
        with cgutils.for_range(builder, n) as row:
            number = value(row.index)
            builder.store(builder.fadd(builder.load(total), number), total)
            # comparing values, not deviations from a rounded mean, finds out reliably whether a feature is constant
            builder.store(builder.or_(builder.load(varies), builder.fcmp_ordered("!=", number, first)), varies)
        mean = builder.fdiv(builder.load(total), splat(builder, count, kind))
        mean = builder.select(builder.load(varies), mean, first)
        builder.store(constant(kind, 0.0), total)
        with cgutils.for_range(builder, n) as row:
            difference = builder.fsub(value(row.index), mean)
            builder.store(builder.fadd(builder.load(total), builder.fmul(difference, difference)), total)
        variance = builder.fdiv(builder.load(total), splat(builder, freedom, kind))
        builder.store(call(builder, "sqrt", variance), pointer(builder, out, at, kind), align=8)

    over_features(builder, d, column, (32, 8))
    builder.ret_void()
    return function


@intrinsic
def spread_of(typingctx, points, rows, n, out):
    """Write the standard deviation (divisor n - 1) of each feature of points[rows[:n]]; exactly 0 if all are equal."""
    signature = types.void(points, rows, types.int64, out)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = I64(0)
        arrays = (points, args[0], zero), (rows, args[1], zero), (out, args[3], zero)
        (first, listed, result), d = addresses(context, builder, *arrays)
        builder.call(_spreading(builder.module), [first, d, listed, args[2], result])
        return context.get_dummy_value()

    return signature, codegen


def _screening(module):
    """Generate the function behind `screen_tile`, which works on addresses."""
    numbers = F32.as_pointer()
    arguments = [numbers, numbers, I64, I64, I64, F32, F32, numbers]
    function, builder = define(module, "fcac_screen", I64, arguments)
    if builder is None:
        return function
    w, x, begin, end, d, slope, limit, bound = function.args
    zero, one = constant(_TILE, 0.0), constant(_TILE, _ONE_BITS)
    out = pointer(builder, bound, I64(0), _TILE)
    slopes = builder.fneg(splat(builder, slope, _TILE))
    total = cgutils.alloca_once_value(builder, zero)
    with builder.if_then(builder.icmp_signed(">", begin, I64(0))):
        builder.store(builder.load(out, align=4), total)

    def reaching(done):
        # each remaining feature can add at most one
        floor = builder.fsub(limit, builder.sitofp(builder.sub(d, done), F32))
        mask = builder.fcmp_ordered(">=", builder.load(total), splat(builder, floor, _TILE))
        return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), I64)

    with cgutils.for_range_slice(builder, begin, end, I64(_STRIDE)) as (start, _):
        stop = builder.add(start, I64(_STRIDE))
        stop = builder.select(builder.icmp_signed("<", stop, end), stop, end)
        with cgutils.for_range(builder, stop, start=start) as feature:
            node = builder.load(pointer(builder, w, builder.mul(feature.index, I64(LANES)), _TILE), align=4)
            difference = builder.fsub(splat(builder, builder.load(builder.gep(x, [feature.index])), _TILE), node)
            # may be fused or not: the margin of the bound covers both
            bits = call(builder, "fmuladd", builder.fmul(difference, difference), slopes, one)
            bits = builder.select(builder.fcmp_ordered(">", bits, zero), bits, zero)
            chord = builder.bitcast(builder.fptosi(bits, ir.VectorType(I32, LANES)), _TILE)
            builder.store(builder.fadd(builder.load(total), chord), total)
        with builder.if_then(builder.icmp_signed("==", reaching(stop), I64(0)), likely=False):
            # no node of this tile can matter; its bounds are incomplete and must not be used later
            builder.store(constant(_TILE, float(GIVEN_UP)), out, align=4)
            builder.ret(I64(0))
    builder.store(builder.load(total), out, align=4)
    builder.ret(reaching(end))
    return function


@intrinsic
def screen_tile(typingctx, screen, tile, probe_points, b, begin, end, slope, limit, bound):
    """Add the features begin..end to the bounds on the kernel sums of a tile's 32 nodes, starting at 0 if begin is 0.

    Returns a bit mask of the nodes that can still reach `limit`. `screen` is the (tiles, features, 32) float32 copy of
    the nodes, probe_points[b] is the point in the same units and order, `slope` converts a squared difference into bits
    of an exponent, and bound[b] (capacity,) receives the bounds. A tile is ruled out at once if none of its nodes could
    reach the limit even by equalling the point in all remaining features.
    """
    signature = types.int64(screen, tile, probe_points, b, begin, end, types.float32, types.float32, bound)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = (probe_points, args[2], args[3]), (screen, args[0], args[1]), (bound, args[8], args[3])
        (x, w, out), d = addresses(context, builder, *arrays)
        out = builder.gep(out, [builder.mul(args[1], I64(LANES))])
        return builder.call(_screening(builder.module), [w, x, args[4], args[5], d, args[6], args[7], out])

    return signature, codegen


@intrinsic
def tile_top(typingctx, bound, b, tile):
    """Largest of the bounds bound[b] in a tile."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = row_start(context, builder, bound, args[0], args[1])
        values = builder.load(pointer(builder, start, builder.mul(args[2], I64(LANES)), _TILE), align=4)
        name = f"llvm.vector.reduce.fmax.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(F32, [_TILE]), name)
        return builder.call(function, [values])

    return types.float32(bound, types.int64, types.int64), codegen


def _scatter(builder, values, at, kind, rank, out, stride):
    """Store the values of features at, at + 1, ... as float32, each at its position in the order of the screen."""
    for lane in range(8 if isinstance(kind, ir.VectorType) else 1):
        value = builder.extract_element(values, I32(lane)) if isinstance(kind, ir.VectorType) else values
        place = builder.load(builder.gep(rank, [builder.add(at, I64(lane))]))
        to = builder.gep(out, [builder.mul(place, I64(stride))])
        builder.store(builder.fptrunc(value, F32), to)


def _pointing(module):
    """Generate the function behind `to_screen`, which works on addresses."""
    numbers = F64.as_pointer()
    arguments = [numbers, numbers, I64.as_pointer(), I64, F64, F32.as_pointer()]
    function, builder = define(module, "fcac_to_screen", F64, arguments)
    if builder is None:
        return function
    x, shift, rank, d, scale, out = function.args
    reach = cgutils.alloca_once_value(builder, F64(0.0))
    lanes = cgutils.alloca_once_value(builder, constant(F64X8, 0.0))

    def feature(at, kind):
        value, origin = (builder.load(pointer(builder, array, at, kind), align=8) for array in (x, shift))
        value = builder.fmul(builder.fsub(value, origin), splat(builder, scale, kind))
        _scatter(builder, value, at, kind, rank, out, 1)
        total = lanes if isinstance(kind, ir.VectorType) else reach
        builder.store(builder.fadd(builder.load(total), call(builder, "fabs", value)), total)

    over_features(builder, d, feature)
    total = builder.load(reach)
    for lane in range(8):
        total = builder.fadd(total, builder.extract_element(builder.load(lanes), I32(lane)))
    builder.ret(total)
    return function


@intrinsic
def to_screen(typingctx, points, i, shift, rank, scale, probe_points, b):
    """Write points[i] to probe_points[b] in the units of the screening copy; return the sum of its absolute values."""
    signature = types.float64(points, i, shift, rank, scale, probe_points, b)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = I64(0)
        arrays = (points, *args[:2]), (shift, args[2], zero), (rank, args[3], zero), (probe_points, args[5], args[6])
        (x, origin, places, out), d = addresses(context, builder, *arrays)
        return builder.call(_pointing(builder.module), [x, origin, places, d, args[4], out])

    return signature, codegen


def _moving(module):
    """Generate the function behind `move_node`, which works on addresses."""
    numbers = F64.as_pointer()
    arguments = [numbers, numbers, numbers, I64.as_pointer(), F32.as_pointer(), I64, F64, F64]
    function, builder = define(module, "fcac_move", ir.VoidType(), arguments)
    if builder is None:
        return function
    x, w, shift, rank, screen, d, scale, divisor = function.args
    whole_way = builder.fcmp_ordered("==", divisor, F64(1.0))

    def feature(at, kind):
        value, node, origin = (builder.load(pointer(builder, array, at, kind), align=8) for array in (x, w, shift))
        step = builder.fdiv(builder.fsub(value, node), splat(builder, divisor, kind))
        value = builder.select(whole_way, value, builder.fadd(node, step))
        builder.store(value, pointer(builder, w, at, kind), align=8)
        value = builder.fmul(builder.fsub(value, origin), splat(builder, scale, kind))
        _scatter(builder, value, at, kind, rank, screen, LANES)

    over_features(builder, d, feature)
    builder.ret_void()
    return function


@intrinsic
def move_node(typingctx, nodes, screen, shift, rank, scale, k, points, i, divisor):
    """Move node k by 1 / divisor of the way to points[i], in both copies; a divisor of one moves it all the way."""
    signature = types.void(nodes, screen, shift, rank, scale, k, points, i, divisor)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        k, zero = args[5], I64(0)
        tile, lane = builder.ashr(k, I64(LANES.bit_length() - 1)), builder.and_(k, I64(LANES - 1))
        arrays = (points, *args[6:8]), (nodes, args[0], k), (shift, args[2], zero), (rank, args[3], zero)
        (x, w, origin, places, column), d = addresses(context, builder, *arrays, (screen, args[1], tile))
        column = builder.gep(column, [lane])
        builder.call(_moving(builder.module), [x, w, origin, places, column, d, args[4], args[8]])
        return context.get_dummy_value()

    return signature, codegen
