"""The compiled loop over float32 statistics whose functions are cubic polynomials in every cell of a table
(see `compiled` for its call).

A table has 2^k equal cells in every octave of t + origin (see `tables`). Dropping the low bits of that number
gives the cell, the bits dropped how far into the cell it is, as a number v from -1 to 1. The sums that
training wants are sums over columns, so that powers of v can be summed before functions are looked up:

    sum_k w_k basis_r(t_k) = sum_cells sum_c moments[cell, c] * table[c of cell, r],    moments[cell, c] =
    sum_{k in cell} w_k v(t_k)^c

A pair then costs four numbers added in one go, however many functions there are; the functions are multiplied
in once per row. All moments of a row stay in the first-level cache, as a table of the functions themselves
would not.

Vectors are written out (see `registers`).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from .cells import TOGETHER, cell_intrinsics
from .jit import compiled
from .lanes import COLUMNS, CUBIC_TERMS, LANES
from .registers import INT, PLACE, address, data, every, ir, shuffled, splat

# Moments are summed in float32 over this many columns, then the functions move on to float64.
FLUSH = 1024

_is_empty, _clear, _add_functions = cell_intrinsics(CUBIC_TERMS, LANES)
_FLOATS, _INTS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(INT, LANES)
_TERMS = ir.VectorType(ir.FloatType(), CUBIC_TERMS)


@intrinsic
def _bits_of(typing_context, number):
    """The bits of a float32 as an integer."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], INT)

    return types.int32(types.float32), generate


@intrinsic
def _write_powers(typing_context, stat, at, weight, origin, first, top, shift, step, places, powers, column):
    """Where the moments of LANES statistics are, and what is to be added to them: weight * v^c for c = 0..3,
    place by place.

    stat : any array, of which the numbers from `at` on are taken. step : from the moments of a row to those
    of the next. Below the first cell and above the last functions are held constant.
    """
    whole = types.int32
    signature = types.void(
        stat, types.intp, types.float32, types.float32, whole, whole, whole, whole, places, powers, types.intp
    )

    def generate(context, builder, signature, arguments):
        stat, at, weight, origin, first, top, shift, step, places, powers, column = arguments
        kinds = signature.args
        t = builder.load(address(context, builder, kinds[0], stat, at, _FLOATS), align=4)
        offset = builder.sub(
            builder.bitcast(builder.fadd(t, splat(builder, origin, LANES)), _INTS),
            splat(builder, first, LANES),
        )
        offset = builder.select(builder.icmp_signed("<", offset, every(_INTS, 0)), every(_INTS, 0), offset)
        last = splat(builder, top, LANES)
        offset = builder.select(builder.icmp_signed(">", offset, last), last, offset)
        shifts = splat(builder, shift, LANES)
        within = builder.and_(offset, builder.sub(builder.shl(every(_INTS, 1), shifts), every(_INTS, 1)))
        two_cells = builder.fdiv(
            ir.Constant(ir.FloatType(), 2.0), builder.sitofp(builder.shl(INT(1), shift), ir.FloatType())
        )
        v = builder.fadd(
            builder.fmul(builder.sitofp(within, _FLOATS), splat(builder, two_cells, LANES)),
            every(_FLOATS, -1.0),
        )
        lines = builder.mul(ir.Constant(_INTS, list(range(LANES))), splat(builder, step, LANES))
        place = builder.add(lines, builder.mul(builder.lshr(offset, shifts), every(_INTS, CUBIC_TERMS)))
        at_column = builder.mul(column, PLACE(LANES))
        builder.store(place, address(context, builder, kinds[8], places, at_column, _INTS), align=4)

        square, once = builder.fmul(v, v), splat(builder, weight, LANES)
        terms = [
            once,
            builder.fmul(once, v),
            builder.fmul(once, square),
            builder.fmul(builder.fmul(once, v), square),
        ]
        # From four vectors of one power each to vectors of all powers of four statistics, in groups of four
        # places.
        groups = range(0, LANES, 4)
        pairs = [
            shuffled(
                builder, left, right, [side + g + i for g in groups for i in some for side in (0, LANES)]
            )
            for left, right in ((terms[0], terms[1]), (terms[2], terms[3]))
            for some in ((0, 1), (2, 3))
        ]
        for turn in range(4):
            low = 2 * (turn % 2)
            order = [side + g + low + i for g in groups for side in (0, LANES) for i in (0, 1)]
            part = shuffled(builder, pairs[turn // 2], pairs[turn // 2 + 2], order)
            index = builder.add(builder.mul(at_column, PLACE(CUBIC_TERMS)), PLACE(turn * LANES))
            builder.store(part, address(context, builder, kinds[9], powers, index, _FLOATS), align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _add_powers(typing_context, places, powers, column, moments):
    """Add what `_write_powers` has written for a column."""
    signature = types.void(places, powers, types.intp, moments)

    def generate(context, builder, signature, arguments):
        places, powers, column, moments = arguments
        place_data, power_data, moment_data = (
            data(context, builder, signature.args[k], array)
            for k, array in ((0, places), (1, powers), (3, moments))
        )
        first = builder.mul(column, PLACE(LANES))
        for lane in range(LANES):
            group, turn = divmod(lane, 4)
            place = builder.sext(
                builder.load(builder.gep(place_data, [builder.add(first, PLACE(lane))])), PLACE
            )
            index = builder.add(
                builder.mul(first, PLACE(CUBIC_TERMS)), PLACE(turn * LANES + group * CUBIC_TERMS)
            )
            terms = builder.load(
                builder.bitcast(builder.gep(power_data, [index]), _TERMS.as_pointer()), align=4
            )
            target = builder.bitcast(builder.gep(moment_data, [place]), _TERMS.as_pointer())
            builder.store(builder.fadd(builder.load(target, align=4), terms), target, align=4)
        return context.get_dummy_value()

    return signature, generate


@compiled()
def accumulate_cubics(
    stat, slots, weights, table, shift, origin, places, powers, moments, sums, out, start, stop
):
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, with float32
    statistics.

    stat : (n_slots, n_rows) float32. slots, weights : (k,). table : (cells * CUBIC_TERMS, R padded to whole
    vectors) float32.
    shift : low bits of a float32 that lie within a cell. origin : a power of two. out : (n_rows, R) float64.
    To work in: places (COLUMNS, LANES), powers (COLUMNS, CUBIC_TERMS * LANES), sums (LANES, R padded), and
    moments (LANES, cells * CUBIC_TERMS), zero before and after.
    """
    n_columns, n_rows, padded, n_moments = slots.shape[0], stat.shape[1], table.shape[1], moments.shape[1]
    origin = np.float32(origin)
    first, bits, step = _bits_of(origin), np.int32(shift), np.int32(n_moments)
    top = np.int32((np.int64(n_moments // CUBIC_TERMS) << shift) - 1)
    for base in range(start, stop, LANES):
        width = stop - base if stop - base < LANES else LANES
        for flushed in range(0, n_columns, FLUSH):
            last = flushed + FLUSH if flushed + FLUSH < n_columns else n_columns
            for begun in range(flushed, last, COLUMNS):
                count = last - begun if last - begun < COLUMNS else COLUMNS
                for k in range(count):
                    slot, weight = slots[begun + k], np.float32(weights[begun + k])
                    if width == LANES:
                        _write_powers(
                            stat,
                            slot * n_rows + base,
                            weight,
                            origin,
                            first,
                            top,
                            bits,
                            step,
                            places,
                            powers,
                            k,
                        )
                    else:  # the last rows, with others that count for nothing
                        for u in range(width):
                            sums[0, u] = stat[slot, base + u]
                        _write_powers(sums, 0, weight, origin, first, top, bits, step, places, powers, k)
                for k in range(count):
                    _add_powers(places, powers, k, moments)
            for u in range(LANES):
                for r in range(padded):
                    sums[u, r] = np.float32(0.0)
            for cell in range(0, n_moments, CUBIC_TERMS):
                for u in range(0, LANES, TOGETHER):
                    if not _is_empty(moments, u * n_moments + cell, n_moments):
                        for r in range(0, padded, LANES):
                            _add_functions(
                                sums,
                                u * padded + r,
                                padded,
                                moments,
                                u * n_moments + cell,
                                n_moments,
                                table,
                                cell * padded + r,
                                padded,
                            )
                        _clear(moments, u * n_moments + cell, n_moments)
            for u in range(width):
                for r in range(out.shape[1]):
                    out[base + u, r] += sums[u, r]
