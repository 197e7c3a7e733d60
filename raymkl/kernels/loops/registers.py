"""Vectors of numbers in compiled loops, as numba's intrinsics write them.

Some loops say what is a vector: a compiler that cannot prove that arrays do not overlap goes number by
number.
"""

from __future__ import annotations

from numba.core import cgutils

ir = cgutils.ir
INT, PLACE = ir.IntType(32), ir.IntType(64)


def every(kind, number):
    """A constant vector of one number."""
    return ir.Constant(kind, [number] * kind.count)


def shuffled(builder, left, right, order):
    """The given places of two vectors, those of the right one counted on from the left one; right : None for
    one vector.
    """
    right = ir.Constant(left.type, ir.Undefined) if right is None else right
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(INT, len(order)), order))


def splat(builder, scalar, count):
    """A vector of so many times the same number."""
    first = builder.insert_element(
        ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined), scalar, INT(0)
    )
    return shuffled(builder, first, None, [0] * count)


def data(context, builder, kind, array):
    """Where the numbers of an array begin. kind : its numba type."""
    return context.make_array(kind)(context, builder, array).data


def address(context, builder, kind, array, index, vector):
    """Where the vector begins whose first number is array[index], as if the array were flat."""
    return builder.bitcast(builder.gep(data(context, builder, kind, array), [index]), vector.as_pointer())
