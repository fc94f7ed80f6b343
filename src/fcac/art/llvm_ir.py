"""Helpers for generating LLVM code: constants and calls for scalars and vectors, row addresses, functions, loops."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

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
