"""Compiled loops over float64 statistics whose functions are polynomials in every cell of a table (see
`compiled` for how they are called).

A table has 2^k equal cells in every octave of t + origin. Dropping the low bits of that number gives the
cell, the bits dropped how far into the cell it is. In every cell each function is a polynomial of v, which
runs from -1 to 1 there:

    basis_r(t) = sum_c table[c of cell(t), r] * v(t)^c

The sums that training wants are sums over columns, so that the powers can be summed before the functions are
looked up:

    sum_k w_k basis_r(t_k) = sum_cells sum_c moments[cell, c] * table[c of cell, r],    moments[cell, c] =
    sum_{k in cell} w_k v(t_k)^c

A pair then costs one vector of powers, however many functions there are; the functions are multiplied in once
per row.

Vectors are written out (see `registers`).
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from .cells import TOGETHER, cell_intrinsics
from .jit import compiled
from .lanes import CUBIC_TERMS, TERMS, TILE
from .registers import address, data, ir, splat

_is_empty, _clear, _add_functions = cell_intrinsics(TERMS, TERMS)
_VECTOR = ir.VectorType(ir.DoubleType(), TERMS)


@intrinsic
def _bits_of(typing_context, number):
    """The bits of a float64 as an integer."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _add_powers(typing_context, moments, at, weight, once, square, fourth):
    """moments[at + c] += weight * v^c for c = 0..7, as one vector.

    once : weight * v. square, fourth : v^2, v^4.
    """
    signature = types.void(moments, types.intp, *[types.float64] * 4)

    def generate(context, builder, signature, arguments):
        array, index, weight, once, square, fourth = arguments

        def where_bit(bit, number, other):
            """`number` in the places c that have this bit, `other` elsewhere."""
            mask = ir.Constant(ir.VectorType(ir.IntType(1), TERMS), [(c >> bit) & 1 for c in range(TERMS)])
            return builder.select(mask, splat(builder, number, TERMS), other)

        ones = ir.Constant(_VECTOR, [1.0] * TERMS)
        low = builder.fmul(where_bit(0, once, splat(builder, weight, TERMS)), where_bit(1, square, ones))
        powers = builder.fmul(low, where_bit(2, fourth, ones), flags=("contract",))
        target = address(context, builder, signature.args[0], array, index, _VECTOR)
        builder.store(
            builder.fadd(builder.load(target, align=8), powers, flags=("contract",)), target, align=8
        )
        return context.get_dummy_value()

    return signature, generate


@njit(inline="always")
def _offset(t, origin, first, top):
    """Bits of t + origin, counted from those of the first cell; below the first cell and above the last
    functions are held constant.
    """
    offset = _bits_of(np.float64(t) + origin) - first
    offset = np.int64(0) if offset < 0 else offset
    return top if offset > top else offset


@compiled()
def accumulate_moments(
    stat, slots, weights, table, shift, origin, places, powers, moments, sums, out, start, stop
):
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop.

    stat : (n_slots, n_rows), non-negative. slots, weights : (k,). table : (cells * TERMS, R padded to whole
    vectors).
    shift : low bits of a float64 that lie within a cell. origin : a power of two. out : (n_rows, R).
    To work in: places (TILE,), powers (3, TILE), sums (TILE, R padded), and moments (TILE, cells * TERMS),
    zero before and after.
    """
    padded, n_moments = table.shape[1], moments.shape[1]
    first, mask = _bits_of(origin), (np.int64(1) << shift) - 1
    top = (np.int64(n_moments // TERMS) << shift) - 1
    two_cells = 2.0 / np.float64(np.int64(1) << shift)
    for base in range(start, stop, TILE):
        width = stop - base if stop - base < TILE else TILE
        for k in range(slots.shape[0]):
            line = stat[slots[k], base : base + width]
            weight = weights[k]
            for u in range(width):
                offset = _offset(line[u], origin, first, top)
                v = np.float64(offset & mask) * two_cells - 1.0
                square = v * v
                places[u] = u * n_moments + (offset >> shift) * TERMS
                powers[0, u] = weight * v
                powers[1, u] = square
                powers[2, u] = square * square
            for u in range(width):
                _add_powers(moments, places[u], weight, powers[0, u], powers[1, u], powers[2, u])
        sums[:, :] = 0.0
        for cell in range(0, n_moments, TERMS):
            for u in range(0, width, TOGETHER):
                if not _is_empty(moments, u * n_moments + cell, n_moments):
                    for r in range(0, padded, TERMS):
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


@compiled()
def pair_moments(stat, rows, left, right, shift, origin, moments):
    """moments[cell, c] += left[i] * right[j] * v(stat[rows[i], j])^c for all pairs of some rows of a block.

    stat : (all rows, columns). rows, left : (k,). right : (columns,). moments : (2 * cells, TERMS), one sum
    over all pairs in two parts that take turns: pairs that follow each other are often in one cell, and would
    wait for each other.
    """
    first, mask = _bits_of(origin), (np.int64(1) << shift) - 1
    half = moments.shape[0] // 2
    top = (np.int64(half) << shift) - 1
    two_cells = 2.0 / np.float64(np.int64(1) << shift)
    for i in range(rows.shape[0]):
        line = stat[rows[i]]
        for j in range(line.shape[0]):
            offset = _offset(line[j], origin, first, top)
            v = np.float64(offset & mask) * two_cells - 1.0
            weight, square = left[i] * right[j], v * v
            _add_powers(
                moments,
                ((offset >> shift) + (j & 1) * half) * TERMS,
                weight,
                weight * v,
                square,
                square * square,
            )


@intrinsic
def _look_up_some(typing_context, stat, at, table, shift, origin, top, mask, one_cell, out):
    """out[at + k] = polynomial of degree 3 at stat[at + k], for TERMS places k in one go.

    (Vector gathers take longer.)
    """
    signature = types.void(
        stat, types.intp, table, types.int64, types.float64, types.int64, types.int64, types.float64, out
    )

    def generate(context, builder, signature, arguments):
        stat, at, table, shift, origin, top, mask, one_cell, out = arguments
        bits = ir.VectorType(ir.IntType(64), TERMS)
        number = context.get_value_type(signature.args[0].dtype)

        def splatted(scalar):
            return splat(builder, scalar, TERMS)

        def whole(value):
            return ir.Constant(bits, [value] * TERMS)

        source = address(context, builder, signature.args[0], stat, at, ir.VectorType(number, TERMS))
        t = builder.load(source, align=4 if number == ir.FloatType() else 8)
        if number == ir.FloatType():
            t = builder.fpext(t, _VECTOR)
        offset = builder.bitcast(builder.fadd(t, splatted(origin)), bits)
        offset = builder.sub(offset, splatted(builder.bitcast(origin, ir.IntType(64))))
        offset = builder.select(builder.icmp_signed("<", offset, whole(0)), whole(0), offset)
        offset = builder.select(builder.icmp_signed(">", offset, splatted(top)), splatted(top), offset)
        u = builder.fmul(builder.sitofp(builder.and_(offset, splatted(mask)), _VECTOR), splatted(one_cell))
        line = builder.mul(builder.ashr(offset, splatted(shift)), whole(8 * CUBIC_TERMS))
        begin = builder.ptrtoint(data(context, builder, signature.args[2], table), ir.IntType(64))
        addresses = builder.add(line, splatted(begin))

        # The coefficients of a cell lie together: one load per place, then rows become columns.
        row = ir.VectorType(ir.DoubleType(), CUBIC_TERMS)
        rows = [
            builder.load(
                builder.inttoptr(builder.extract_element(addresses, ir.IntType(32)(k)), row.as_pointer()),
                align=8,
            )
            for k in range(TERMS)
        ]
        while len(rows) > 1:
            width = ir.VectorType(ir.IntType(32), 2 * rows[0].type.count)
            order = ir.Constant(width, list(range(width.count)))
            rows = [
                builder.shuffle_vector(left, right, order)
                for left, right in zip(rows[::2], rows[1::2], strict=True)
            ]
        value = None
        for term in reversed(range(CUBIC_TERMS)):
            column = ir.Constant(
                ir.VectorType(ir.IntType(32), TERMS), [CUBIC_TERMS * k + term for k in range(TERMS)]
            )
            coefficient = builder.shuffle_vector(rows[0], ir.Constant(rows[0].type, ir.Undefined), column)
            product = None if value is None else builder.fmul(u, value, flags=("contract",))
            value = (
                coefficient if product is None else builder.fadd(coefficient, product, flags=("contract",))
            )
        builder.store(value, address(context, builder, signature.args[8], out, at, _VECTOR), align=8)
        return context.get_dummy_value()

    return signature, generate


@compiled()
def look_up(stat, table, shift, origin, out, start, stop):
    """out[i, j] = the function at stat[i, j] for start <= i < stop.

    table : (cells, 4), coefficients of 1, u, u^2, u^3; 0 <= u < 1.
    """
    first, mask = _bits_of(origin), (np.int64(1) << shift) - 1
    top = (np.int64(table.shape[0]) << shift) - 1
    one_cell = 1.0 / np.float64(np.int64(1) << shift)
    width = stat.shape[1]
    whole = width - width % TERMS
    for i in range(start, stop):
        for j in range(0, whole, TERMS):
            _look_up_some(stat, i * width + j, table, shift, origin, top, mask, one_cell, out)
        for j in range(whole, width):
            offset = _offset(stat[i, j], origin, first, top)
            cell = offset >> shift
            u = np.float64(offset & mask) * one_cell
            out[i, j] = table[cell, 0] + u * (table[cell, 1] + u * (table[cell, 2] + u * table[cell, 3]))
