"""What kernels need beyond Numba: LLVM code for vectors, and sums in NumPy's order of addition."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I32, I64, F32, F64 = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
F64X8 = ir.VectorType(F64, 8)


def constant(kind, value):
    """Return a scalar constant, or a vector with this value in every element."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def splat(builder, value, kind):
    """Return a vector with one value in every element; for a scalar kind, the value itself."""
    if not isinstance(kind, ir.VectorType):
        return value
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(I32, kind.count), None))


def call(builder, name, *args):
    """Call the LLVM intrinsic `name` on scalars or vectors."""
    kind = args[0].type
    width = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    size = "f64" if F64 in (kind, getattr(kind, "element", None)) else "f32"
    signature = ir.FunctionType(kind, [kind] * len(args))
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{width}{size}")
    return builder.call(function, args)


def fma(builder, a, b, c):
    """Return a * b + c with a single rounding."""
    return call(builder, "fma", a, b, c)


def pointer(builder, base, offset, kind):
    """Return the address of a scalar or vector, `offset` elements after `base`."""
    return builder.bitcast(builder.gep(base, [offset]), kind.as_pointer())


def row_start(context, builder, array_type, array, row):
    """Return the address of the first element of a row (or of element `row` of a one-dimensional array)."""
    view = context.make_array(array_type)(context, builder, array)
    for size in cgutils.unpack_tuple(builder, view.shape)[1:]:
        row = builder.mul(row, size)
    return builder.gep(view.data, [row])


def define(module, name, result, arguments):
    """Start a function in a module; return None instead of the code builder if the module already has it."""
    if name in module.globals:
        return module.globals[name], None
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "linkonce_odr"  # several modules may contain it; the linker keeps one
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def over_features(builder, d, body, widths=(8,)):
    """Run body(at, kind) for vectors of features, the widest that fit, then for the remaining single features."""
    done = I64(0)
    for width in widths:
        upto = builder.sub(d, builder.and_(builder.sub(d, done), I64(width - 1)))
        with cgutils.for_range_slice(builder, done, upto, I64(width)) as (at, _):
            body(at, ir.VectorType(F64, width))
        done = upto
    with cgutils.for_range(builder, d, start=done) as rest:
        body(rest.index, F64)


def addresses(context, builder, *arrays):
    """Return the start of each (type, array, row), and the length of the last axis of the first array."""
    starts = [row_start(context, builder, *array) for array in arrays]
    shape = context.make_array(arrays[0][0])(context, builder, arrays[0][1]).shape
    return starts, cgutils.unpack_tuple(builder, shape)[-1]


def summing(module, name, n_arrays, n_scalars, term):
    """Generate a function that adds up n terms in NumPy's order of addition.

    Up to 128 terms: eight running sums, added in pairs, then the remaining terms one by one; more terms: two halves.
    `term` generates the code for one term, a scalar or a vector, from the values that it loads from each array at one
    position and from the scalars.
    """
    arguments = [F64.as_pointer()] * n_arrays + [I64] + [F64] * n_scalars
    function, builder = define(module, name, F64, arguments)
    if builder is None:
        return function
    arrays, n, scalars = function.args[:n_arrays], function.args[n_arrays], function.args[n_arrays + 1 :]

    def term_at(at, kind):
        values = [builder.load(pointer(builder, array, at, kind), align=8) for array in arrays]
        return term(builder, *values, *(splat(builder, scalar, kind) for scalar in scalars))

    with builder.if_then(builder.icmp_signed(">", n, I64(128)), likely=False):
        half = builder.and_(builder.ashr(n, I64(1)), I64(-8))
        first = builder.call(function, [*arrays, half, *scalars])
        behind = [builder.gep(array, [half]) for array in arrays]
        builder.ret(builder.fadd(first, builder.call(function, [*behind, builder.sub(n, half), *scalars])))
    whole = builder.and_(n, I64(-8))
    total = cgutils.alloca_once_value(builder, F64(0.0))
    lanes = cgutils.alloca_once(builder, F64X8)
    with builder.if_then(builder.icmp_signed(">", whole, I64(0))):
        builder.store(term_at(I64(0), F64X8), lanes)
        with cgutils.for_range_slice(builder, I64(8), whole, I64(8)) as (at, _):
            builder.store(builder.fadd(builder.load(lanes), term_at(at, F64X8)), lanes)
        sums = builder.load(lanes)
        parts = [builder.extract_element(sums, I32(lane)) for lane in range(8)]
        while len(parts) > 1:
            parts = [builder.fadd(parts[at], parts[at + 1]) for at in range(0, len(parts), 2)]
        builder.store(parts[0], total)
        # what is left: the last eight once more, of which only those not yet counted are added, one by one
        with builder.if_then(builder.icmp_signed("<", whole, n)):
            back = builder.sub(n, I64(8))
            builder.store(term_at(back, F64X8), lanes)
            with cgutils.for_range(builder, n, start=whole) as rest:
                at = builder.gep(builder.bitcast(lanes, F64.as_pointer()), [builder.sub(rest.index, back)])
                builder.store(builder.fadd(builder.load(total), builder.load(at)), total)
        builder.ret(builder.load(total))
    with cgutils.for_range(builder, n) as few:
        builder.store(builder.fadd(builder.load(total), term_at(few.index, F64)), total)
    builder.ret(builder.load(total))
    return function


@intrinsic
def dot(typingctx, values, a, b, n):
    """Dot product of the n values starting at `a` with the n values starting at `b`."""
    signature = types.float64(values, a, b, n)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        starts = [row_start(context, builder, values, args[0], at) for at in args[1:3]]
        function = summing(builder.module, "fcac_dot", 2, 0, lambda builder, x, y: builder.fmul(x, y))
        return builder.call(function, [*starts, args[3]])

    return signature, codegen


@intrinsic
def squared_gap(typingctx, points, i, others, k, begin, end):
    """Squared distance between points[i] and others[k] over the features begin .. end - 1, in NumPy's order."""
    signature = types.float64(points, i, others, k, begin, end)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        starts, _ = addresses(context, builder, (points, *args[:2]), (others, *args[2:4]))
        starts = [builder.gep(start, [args[4]]) for start in starts]

        def term(builder, x, y):
            gap = builder.fsub(x, y)
            return builder.fmul(gap, gap)

        function = summing(builder.module, "fcac_squared_gap", 2, 0, term)
        return builder.call(function, [*starts, builder.sub(args[5], args[4])])

    return signature, codegen


@intrinsic
def pairwise_sum(typingctx, values, n):
    """Sum of values[:n] in NumPy's order."""
    signature = types.float64(values, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = row_start(context, builder, values, args[0], I64(0))
        function = summing(builder.module, "fcac_pairwise_sum", 1, 0, lambda builder, value: value)
        return builder.call(function, [start, args[1]])

    return signature, codegen


@intrinsic
def lowest_bit(typingctx, mask):
    """Position of the lowest bit that is set in a non-zero number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), codegen
