"""The loops that are compiled, as plain functions in numba's dialect (see `compiled` for how they are called).

A block `stat` is stored by column: `stat[slot, i]` is the statistic of row i and the example in that slot, so that a new
example is one contiguous line. Every loop releases the interpreter lock; threads share the work by ranges of rows.

A loop allocates nothing, raises nothing and calls nothing outside this file: that is what lets its machine code be kept in a file
and run without numba (see `machine_code`). Memory that it needs comes in as an argument.

Tables are indexed by the bits of t + origin, t the statistic. Dropping the low bits of a positive floating-point number gives cells
whose width grows with the number (2^k cells per octave), which is the grid that functions such as exp(-gamma * t) want,
and costs one shift. Inside a cell the table is interpolated linearly (see `tables`).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .compiled import COLUMNS, LANES, TILE

# Partial sums run in float32 over this many columns, then move to float64.
FLUSH = 32
# Rows of one side that stay in the cache while the other side streams by, for statistics without a matrix product.
FEATURE_TILE = 16
# Rows and columns of a tile of ready-made matrices that is compared with its mirror image.
PAIR_TILE = 16
# Sums that stay in the cache while lines are added to them.
LINE_TILE = 1024


@intrinsic
def _add_lines(typing_context, sums, sums_at, table, step, places, lefts, rights):
    """sums[at:at+LANES] += sum_c lefts[c] * table[p_c:p_c+LANES] + rights[c] * table[p_c+step:p_c+step+LANES], as vectors.

    places, lefts, rights : tuples of COLUMNS numbers. Written out because the compiler cannot prove that the arrays do not overlap
    and would go lane by lane.
    """
    signature = types.void(sums, types.intp, table, types.intp, places, lefts, rights)

    def generate(context, builder, signature, arguments):
        sums_value, sums_index, table_value, line, place_values, left_values, right_values = arguments
        vector = ir.VectorType(ir.FloatType(), LANES)
        undefined = ir.Constant(vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

        def pointer(kind, value, index):
            data = context.make_array(kind)(context, builder, value).data
            return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

        def splat(scalar):
            return builder.shuffle_vector(builder.insert_element(undefined, scalar, ir.IntType(32)(0)), undefined, zeros)

        target = pointer(signature.args[0], sums_value, sums_index)
        # One running sum per column, added up at the end: a single one would wait for itself at every step.
        totals = [builder.load(target, align=4)] + [None] * (COLUMNS - 1)
        for column in range(COLUMNS):
            place = builder.extract_value(place_values, column)
            for weights, index in ((left_values, place), (right_values, builder.add(place, line))):
                values = builder.load(pointer(signature.args[2], table_value, index), align=4)
                product = builder.fmul(splat(builder.extract_value(weights, column)), values, flags=("contract",))
                totals[column] = product if totals[column] is None else builder.fadd(totals[column], product, flags=("contract",))
        while len(totals) > 1:
            totals = [builder.fadd(a, b) for a, b in zip(totals[::2], totals[1::2], strict=True)]
        builder.store(totals[0], target, align=4)
        return context.get_dummy_value()

    return signature, generate


@njit(inline="always")
def _smaller(a, b):
    """min(a, b), which numba would compile as a call that may fail. The first where it is not a number, as Python has it."""
    return b if b < a else a


@njit(inline="always")
def _larger(a, b):
    """max(a, b)."""
    return b if b > a else a


@intrinsic
def _bits_of(typing_context, number):
    """The bits of a float32 as an integer."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@njit(inline="always")
def _locate(t, origin, first, top, mask, shift, one_cell):
    """Cell of a statistic and how far into the cell it is; below the first cell and above the last the table is held constant."""
    offset = _smaller(_larger(np.int32(_bits_of(t + origin) - first), np.int32(0)), top)
    return np.intp(offset >> shift), np.float32(offset & mask) * one_cell


def accumulate_table(stat, slots, weights, table, shift, origin, sums, out, start, stop):
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, with float32 statistics.

    stat : (n_slots, n_rows) float32, non-negative. slots, weights : (k,), k a multiple of COLUMNS (pad with weight 0).
    table : (cells + 1, R padded) float32. shift : low bits that lie within a cell. origin : a power of two.
    sums : (TILE, R padded) float32 to work in. out : (n_rows, R) float64.
    """
    n_columns = slots.shape[0]
    padded = table.shape[1]
    rank = out.shape[1]
    one_cell = np.float32(1.0) / np.float32(1 << shift)
    mask = np.int32((1 << shift) - 1)
    top = np.int32(((table.shape[0] - 2) << shift) + mask)
    origin, shift = np.float32(origin), np.int32(shift)
    first = _bits_of(origin)
    for base in range(start, stop, TILE):
        width = _smaller(TILE, stop - base)
        for k_start in range(0, n_columns, FLUSH):
            sums[:, :] = np.float32(0.0)
            for k in range(k_start, _smaller(k_start + FLUSH, n_columns), COLUMNS):
                line0 = stat[slots[k], base : base + width]
                line1 = stat[slots[k + 1], base : base + width]
                line2 = stat[slots[k + 2], base : base + width]
                line3 = stat[slots[k + 3], base : base + width]
                weight0, weight1 = np.float32(weights[k]), np.float32(weights[k + 1])
                weight2, weight3 = np.float32(weights[k + 2]), np.float32(weights[k + 3])
                for u in range(width):
                    cell0, fraction0 = _locate(line0[u], origin, first, top, mask, shift, one_cell)
                    cell1, fraction1 = _locate(line1[u], origin, first, top, mask, shift, one_cell)
                    cell2, fraction2 = _locate(line2[u], origin, first, top, mask, shift, one_cell)
                    cell3, fraction3 = _locate(line3[u], origin, first, top, mask, shift, one_cell)
                    right0, right1, right2, right3 = weight0 * fraction0, weight1 * fraction1, weight2 * fraction2, weight3 * fraction3
                    for g in range(0, padded, LANES):
                        _add_lines(
                            sums,
                            u * padded + g,
                            table,
                            padded,
                            (cell0 * padded + g, cell1 * padded + g, cell2 * padded + g, cell3 * padded + g),
                            (weight0 - right0, weight1 - right1, weight2 - right2, weight3 - right3),
                            (right0, right1, right2, right3),
                        )
            for u in range(width):
                for r in range(rank):
                    out[base + u, r] += sums[u, r]


def finish_squared_distances(products, a_norms, b_norms, target, slots, first):
    """target[slots[i], first + j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j])."""
    zero, two = products.dtype.type(0), products.dtype.type(2)  # a plain 2 would turn float32 into float64
    for i in range(products.shape[0]):
        line = target[slots[i], first : first + products.shape[1]]
        norm = a_norms[i]
        for j in range(products.shape[1]):
            line[j] = _larger(norm + b_norms[j] - two * products[i, j], zero)


def squares_in_place(products, a_norms, b_norms):
    """products[i, j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j]). (The loop above cannot be vectors when both are one array.)"""
    zero, two = products.dtype.type(0), products.dtype.type(2)
    for i in range(products.shape[0]):
        norm = a_norms[i]
        for j in range(products.shape[1]):
            products[i, j] = _larger(norm + b_norms[j] - two * products[i, j], zero)


def squared_norms(array, out):
    """out[i] = sum_d array[i, d]^2, summed in float64."""
    for i in range(array.shape[0]):
        total = 0.0
        for d in range(array.shape[1]):
            value = np.float64(array[i, d])
            total += value * value
        out[i] = total


def mirror(block, rows, columns):
    """block[i, j] = block[j, i] for the given rows i and columns j (disjoint sets), in tiles that stay in the cache."""
    for row in range(0, len(rows), 32):
        for column in range(0, len(columns), 32):
            for k in range(row, _smaller(row + 32, len(rows))):
                i = rows[k]
                for m in range(column, _smaller(column + 32, len(columns))):
                    block[i, columns[m]] = block[columns[m], i]


def copy_pairs(source, source_rows, source_columns, target, target_rows, target_columns):
    """target[target_rows[i], target_columns[j]] = source[source_rows[i], source_columns[j]] for all i, j."""
    for i in range(len(target_rows)):
        line, from_line = target[target_rows[i]], source[source_rows[i]]
        for j in range(len(target_columns)):
            line[target_columns[j]] = from_line[source_columns[j]]


def accumulate_powers(stat, slots, weights, exponents, inverse_scale, out, start, stop):
    """out[i, r] += sum_k weights[k] * (stat[slots[k], i] * inverse_scale) ** exponents[r] for start <= i < stop.

    exponents : (R,) increasing integers >= 0.
    """
    rank = exponents.shape[0]
    for k in range(slots.shape[0]):
        line = stat[slots[k]]
        weight = weights[k]
        for i in range(start, stop):
            t = np.float64(line[i]) * inverse_scale
            value = weight
            reached = 0
            for r in range(rank):
                while reached < exponents[r]:
                    value *= t
                    reached += 1
                out[i, r] += value


def accumulate_stack(stack, rows, columns, matrices, weights, out, start, stop):
    """out[i, r] += sum_k weights[k] * stack[rows[i], columns[k], matrices[r]] for start <= i < stop: ready-made kernel matrices.

    As many matrices as there are must be all of them in their order: they are read as one vector.
    """
    for i in range(start, stop):
        row = rows[i]
        for k in range(columns.shape[0]):
            j = columns[k]
            weight = weights[k]
            if matrices.shape[0] == stack.shape[2]:
                for m in range(stack.shape[2]):
                    out[i, m] += weight * stack[row, j, m]
            else:
                for r in range(matrices.shape[0]):
                    out[i, r] += weight * stack[row, j, matrices[r]]


def combine_stack(stack, rows, columns, matrices, weights, out, start, stop):
    """out[i, j] = sum_r weights[r] * stack[rows[i], columns[j], matrices[r]] for start <= i < stop; matrices as above."""
    for i in range(start, stop):
        row = rows[i]
        for j in range(columns.shape[0]):
            column = columns[j]
            total = 0.0
            if matrices.shape[0] == stack.shape[2]:
                for m in range(stack.shape[2]):
                    total += weights[m] * stack[row, column, m]
            else:
                for r in range(matrices.shape[0]):
                    total += weights[r] * stack[row, column, matrices[r]]
            out[i, j] = total


def add_lines(lines, weights, out):
    """out[i] += sum_k weights[k] * lines[k, i]."""
    for start in range(0, lines.shape[1], LINE_TILE):
        stop = _smaller(start + LINE_TILE, lines.shape[1])
        for k in range(lines.shape[0]):
            weight = weights[k]
            for i in range(start, stop):
                out[i] += weight * lines[k, i]


def survey_stack(stack, roots, largest, asymmetry, excess, start, stop):
    """Largest values over start <= i < stop and j <= i, for every m, of what square matrices are judged by.

    largest : |K_ij|. asymmetry : |K_ij - K_ji|. excess : |K_ij| - roots[i] roots[j].
    """
    for first in range(start, stop, PAIR_TILE):
        last = _smaller(first + PAIR_TILE, stop)
        for left in range(0, last, PAIR_TILE):  # a tile and its mirror image stay in the cache
            for i in range(first, last):
                for j in range(left, _smaller(left + PAIR_TILE, i + 1)):
                    for m in range(stack.shape[2]):
                        here = abs(stack[i, j, m])
                        there = abs(stack[j, i, m])
                        apart = abs(stack[i, j, m] - stack[j, i, m])
                        size = here if here > there else there
                        over = size - roots[i, m] * roots[j, m]
                        largest[m] = size if size > largest[m] else largest[m]
                        asymmetry[m] = apart if apart > asymmetry[m] else asymmetry[m]
                        excess[m] = over if over > excess[m] else excess[m]


def l1_distances(A, B, out):
    """out[i, j] = sum_d |A[i, d] - B[j, d]|."""
    for start in range(0, A.shape[0], FEATURE_TILE):
        for j in range(B.shape[0]):
            for i in range(start, _smaller(start + FEATURE_TILE, A.shape[0])):
                total = A.dtype.type(0)
                for d in range(A.shape[1]):
                    total += abs(A[i, d] - B[j, d])
                out[i, j] = total


def chi2_distances(A, B, out):
    """out[i, j] = sum_d (A[i, d] - B[j, d])^2 / (A[i, d] + B[j, d]), terms with a zero denominator left out."""
    for start in range(0, A.shape[0], FEATURE_TILE):
        for j in range(B.shape[0]):
            for i in range(start, _smaller(start + FEATURE_TILE, A.shape[0])):
                total = A.dtype.type(0)
                for d in range(A.shape[1]):
                    both = A[i, d] + B[j, d]
                    if both > 0:
                        difference = A[i, d] - B[j, d]
                        total += difference * difference / both
                out[i, j] = total


def intersections(A, B, out):
    """out[i, j] = sum_d min(A[i, d], B[j, d])."""
    for start in range(0, A.shape[0], FEATURE_TILE):
        for j in range(B.shape[0]):
            for i in range(start, _smaller(start + FEATURE_TILE, A.shape[0])):
                total = A.dtype.type(0)
                for d in range(A.shape[1]):
                    total += _smaller(A[i, d], B[j, d])
                out[i, j] = total
