"""Vectors of numbers in compiled loops, as numba's intrinsics write them.

Some loops say what is a vector: a compiler that cannot prove that arrays do not overlap goes number by number.
"""

from __future__ import annotations

from numba.core import cgutils

ir = cgutils.ir
INT, PLACE = ir.IntType(32), ir.IntType(64)


def every(kind, number):
    """A constant vector of one number."""
    return ir.Constant(kind, [number] * kind.count)


def shuffled(builder, left, right, order):
    """The given places of two vectors, those of the right one counted on from the left one; right : None for one vector."""
    right = ir.Constant(left.type, ir.Undefined) if right is None else right
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(INT, len(order)), order))


def splat(builder, scalar, count):
    """A vector of so many times the same number."""
    first = builder.insert_element(ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined), scalar, INT(0))
    return shuffled(builder, first, None, [0] * count)


def data(context, builder, kind, array):
    """Where the numbers of an array begin. kind : its numba type."""
    return context.make_array(kind)(context, builder, array).data


def address(context, builder, kind, array, index, vector):
    """Where the vector begins whose first number is array[index], as if the array were flat."""
    return builder.bitcast(builder.gep(data(context, builder, kind, array), [index]), vector.as_pointer())


def is_empty(context, builder, kind, array, index, step, count, number):
    """Whether `count` numbers from array[index] on are zero, as bits, in each of several rows. number : rows, `step` numbers apart."""
    item = context.get_value_type(kind.dtype)
    whole = ir.VectorType(INT if item == ir.FloatType() else PLACE, count)
    found = None
    for _ in range(number):
        bits = builder.load(address(context, builder, kind, array, index, whole), align=4)
        found = bits if found is None else builder.or_(found, bits)
        index = builder.add(index, step)
    some = builder.icmp_signed("!=", found, every(whole, 0))
    return builder.icmp_signed("==", builder.bitcast(some, ir.IntType(count)), ir.IntType(count)(0))


def clear(context, builder, kind, array, index, step, count, number):
    """Make `count` numbers from array[index] on zero in each of several rows."""
    vector = ir.VectorType(context.get_value_type(kind.dtype), count)
    for _ in range(number):
        builder.store(every(vector, 0.0), address(context, builder, kind, array, index, vector), align=4)
        index = builder.add(index, step)


def add_products(context, builder, kinds, arrays, places, steps, count, lanes, number):
    """sums[u, lanes functions] += sum_c moments[u, c] * table[c, lanes functions] for several rows u.

    kinds, arrays, places, steps : of sums, moments and table: numba types, arrays, where the first row and the first of the functions are,
    and what leads to the next row (of the table: to the next c). count : of c. number : of rows.
    """
    sums, moments, table = arrays
    vector = ir.VectorType(context.get_value_type(kinds[0].dtype), lanes)
    values = data(context, builder, kinds[1], moments)
    at, moments_at, line = places
    targets, factors = [], []
    for _ in range(number):
        targets.append(address(context, builder, kinds[0], sums, at, vector))
        factors.append(moments_at)
        at, moments_at = builder.add(at, steps[0]), builder.add(moments_at, steps[1])
    totals = [builder.load(target, align=4) for target in targets]
    for term in range(count):
        functions = builder.load(address(context, builder, kinds[2], table, line, vector), align=4)
        line = builder.add(line, steps[2])
        for row in range(number):
            factor = builder.load(builder.gep(values, [builder.add(factors[row], PLACE(term))]))
            product = builder.fmul(splat(builder, factor, lanes), functions, flags=("contract",))
            totals[row] = builder.fadd(totals[row], product, flags=("contract",))
    for total, target in zip(totals, targets, strict=True):
        builder.store(total, target, align=4)
