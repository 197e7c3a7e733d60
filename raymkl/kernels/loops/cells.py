"""What loops do with the moments of one cell of a table, in several rows at once (see `cubics` and
`wide`).
"""

from __future__ import annotations

from collections.abc import Callable

from numba import types
from numba.extending import intrinsic

from .registers import INT, PLACE, address, data, every, ir, splat

# Rows whose moments are multiplied with a line of the table in one go, so that it is loaded once for all of
# them.
TOGETHER = 4


def cell_intrinsics(terms: int, lanes: int) -> tuple[Callable, Callable, Callable]:
    """Parts of loops over cells that have so many `terms`, where functions come in vectors of `lanes`, for
    TOGETHER rows:

    is_empty(moments, at, step)    whether the moments of a cell are zero
    clear(moments, at, step)       make them zero
    add_functions(sums, at, step, moments, at, step, table, at, step)
                                   sums[u, lanes functions] += sum_c moments[u, c] * table[c, lanes functions]
                                   for rows u

    at : where the first row begins in an array, as if it were flat. step : from one row to the next, of the
    table from c to c + 1.
    """
    place = types.intp

    @intrinsic
    def is_empty(typing_context, moments, at, step):
        def generate(context, builder, signature, arguments):
            return _is_empty(context, builder, signature.args[0], *arguments, terms, TOGETHER)

        return types.boolean(moments, place, place), generate

    @intrinsic
    def clear(typing_context, moments, at, step):
        def generate(context, builder, signature, arguments):
            _clear(context, builder, signature.args[0], *arguments, terms, TOGETHER)
            return context.get_dummy_value()

        return types.void(moments, place, place), generate

    @intrinsic
    def add_functions(
        typing_context, sums, at, sums_step, moments, moments_at, moments_step, table, line, line_step
    ):
        def generate(context, builder, signature, arguments):
            kinds, arrays, places, steps = (
                signature.args[::3],
                arguments[::3],
                arguments[1::3],
                arguments[2::3],
            )
            _add_products(context, builder, kinds, arrays, places, steps, terms, lanes, TOGETHER)
            return context.get_dummy_value()

        return types.void(sums, place, place, moments, place, place, table, place, place), generate

    return is_empty, clear, add_functions


def _is_empty(context, builder, kind, array, index, step, count, number):
    """Whether `count` numbers from array[index] on are zero, as bits, in each of several rows.

    number : rows, `step` numbers apart.
    """
    item = context.get_value_type(kind.dtype)
    whole = ir.VectorType(INT if item == ir.FloatType() else PLACE, count)
    found = None
    for _ in range(number):
        bits = builder.load(address(context, builder, kind, array, index, whole), align=4)
        found = bits if found is None else builder.or_(found, bits)
        index = builder.add(index, step)
    some = builder.icmp_signed("!=", found, every(whole, 0))
    return builder.icmp_signed("==", builder.bitcast(some, ir.IntType(count)), ir.IntType(count)(0))


def _clear(context, builder, kind, array, index, step, count, number):
    """Make `count` numbers from array[index] on zero in each of several rows."""
    vector = ir.VectorType(context.get_value_type(kind.dtype), count)
    for _ in range(number):
        builder.store(every(vector, 0.0), address(context, builder, kind, array, index, vector), align=4)
        index = builder.add(index, step)


def _add_products(context, builder, kinds, arrays, places, steps, count, lanes, number):
    """sums[u, lanes functions] += sum_c moments[u, c] * table[c, lanes functions] for several rows u.

    kinds, arrays, places, steps : of sums, moments and table: numba types, arrays, where the first row and
    the first of the functions are, and what leads to the next row (of the table: to the next c). count : of
    c. number : of rows.
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
