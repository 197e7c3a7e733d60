"""Compiled loops over blocks of pair statistics.

A block `stat` is stored by column: `stat[slot, i]` is the statistic of row i and the example in that slot, so that a new
example is one contiguous line. Every loop releases the interpreter lock; threads share the work by ranges of rows.

Tables are indexed by the bits of the statistic. Dropping the low bits of a positive floating-point number gives cells
whose width grows with the number (2^k cells per octave), which is the grid that functions such as exp(-gamma * t) want,
and costs one shift. Inside a cell the table is interpolated linearly.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Rows of a table are padded to whole groups of this many float32 (one vector register, or two on narrow machines).
LANES = 8
# Rows handled together: a few cache lines of statistics, whose partial sums stay in the first-level cache.
TILE = 64
# Partial sums run in float32 over this many columns, then move to float64.
FLUSH = 256


@intrinsic
def _add_two_lines(typing_context, sums, sums_at, table, table_at, step, left, right):
    """sums[at:at+LANES] += left * table[t:t+LANES] + right * table[t+step:t+step+LANES], as vector instructions.

    Written out because the compiler cannot prove that the arrays do not overlap and would go lane by lane.
    """
    signature = types.void(sums, types.intp, table, types.intp, types.intp, types.float32, types.float32)

    def generate(context, builder, signature, arguments):
        sums_value, sums_index, table_value, table_index, line, left_value, right_value = arguments
        vector = ir.VectorType(ir.FloatType(), LANES)

        def pointer(kind, value, index):
            data = context.make_array(kind)(context, builder, value).data
            return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

        def splat(scalar):
            single = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
            order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), order)

        target = pointer(signature.args[0], sums_value, sums_index)
        low = builder.load(pointer(signature.args[2], table_value, table_index), align=4)
        high = builder.load(pointer(signature.args[2], table_value, builder.add(table_index, line)), align=4)
        total = builder.load(target, align=4)
        for weight, line_values in ((left_value, low), (right_value, high)):
            product = builder.fmul(splat(weight), line_values, flags=("contract",))
            total = builder.fadd(total, product, flags=("contract",))
        builder.store(total, target, align=4)
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, nogil=True)
def accumulate_table(stat, slots, weights, table, shift, first, out, start, stop):
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, with float32 statistics.

    stat : (n_slots, n_rows) float32, non-negative. slots, weights : (k,). table : (cells + 1, R padded) float32.
    shift, first : bits dropped, and the bit pattern of the first cell. out : (n_rows, R) float64.
    """
    n_columns = slots.shape[0]
    padded = table.shape[1]
    rank = out.shape[1]
    one_cell = np.float32(1.0) / np.float32(1 << shift)
    mask = np.int32((1 << shift) - 1)
    top = np.int32(((table.shape[0] - 2) << shift) + mask)
    first = np.int32(first)
    shift = np.int32(shift)
    sums = np.zeros((TILE, padded), np.float32)
    bits = stat.view(np.int32)
    for base in range(start, stop, TILE):
        width = min(TILE, stop - base)
        for k_start in range(0, n_columns, FLUSH):
            sums[:, :] = np.float32(0.0)
            for k in range(k_start, min(k_start + FLUSH, n_columns)):
                line = bits[slots[k], base : base + width]
                weight = np.float32(weights[k])
                for u in range(width):
                    # Below the first cell and above the last one the table is held constant.
                    offset = min(max(np.int32(line[u] - first), np.int32(0)), top)
                    right = weight * (np.float32(offset & mask) * one_cell)
                    left = weight - right
                    at = np.intp(offset >> shift) * padded
                    for g in range(0, padded, LANES):
                        _add_two_lines(sums, u * padded + g, table, at + g, padded, left, right)
            for u in range(width):
                for r in range(rank):
                    out[base + u, r] += sums[u, r]


@njit(cache=True, nogil=True)
def look_up_float32(stat, table, shift, first, out, start, stop):
    """out[i, j] = interpolated table value of stat[i, j] for start <= i < stop. stat : float32, table : (cells + 1,)."""
    mask = np.int32((1 << shift) - 1)
    one_cell = 1.0 / (1 << shift)
    top = np.int32(((table.shape[0] - 2) << shift) + mask)
    first = np.int32(first)
    shift = np.int32(shift)
    bits = stat.view(np.int32)
    for i in range(start, stop):
        for j in range(stat.shape[1]):
            offset = min(max(np.int32(bits[i, j] - first), np.int32(0)), top)
            cell = offset >> shift
            fraction = np.float64(offset & mask) * one_cell
            out[i, j] = table[cell] + fraction * (table[cell + 1] - table[cell])


@njit(cache=True, nogil=True)
def look_up_float64(stat, table, shift, first, out, start, stop):
    """The same for float64 statistics (`shift` and `first` refer to their 64-bit patterns)."""
    mask = np.int64((np.int64(1) << shift) - 1)
    one_cell = 1.0 / np.float64(np.int64(1) << shift)
    top = np.int64((np.int64(table.shape[0] - 2) << shift) + mask)
    bits = stat.view(np.int64)
    for i in range(start, stop):
        for j in range(stat.shape[1]):
            offset = min(max(bits[i, j] - first, np.int64(0)), top)
            cell = offset >> shift
            fraction = np.float64(offset & mask) * one_cell
            out[i, j] = table[cell] + fraction * (table[cell + 1] - table[cell])


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def accumulate_stack(stack, columns, weights, out, start, stop):
    """out[i, m] += sum_k weights[k] * stack[i, columns[k], m] for start <= i < stop: ready-made kernel matrices."""
    for i in range(start, stop):
        for k in range(columns.shape[0]):
            j = columns[k]
            weight = weights[k]
            for m in range(stack.shape[2]):
                out[i, m] += weight * stack[i, j, m]


@njit(cache=True, nogil=True, fastmath=True)
def l1_distances(A, B, out):
    """out[i, j] = sum_d |A[i, d] - B[j, d]|."""
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = A.dtype.type(0)
            for d in range(A.shape[1]):
                total += abs(A[i, d] - B[j, d])
            out[i, j] = total


@njit(cache=True, nogil=True, fastmath=True)
def chi2_distances(A, B, out):
    """out[i, j] = sum_d (A[i, d] - B[j, d])^2 / (A[i, d] + B[j, d]), terms with a zero denominator left out."""
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = A.dtype.type(0)
            for d in range(A.shape[1]):
                both = A[i, d] + B[j, d]
                if both > 0:
                    difference = A[i, d] - B[j, d]
                    total += difference * difference / both
            out[i, j] = total


@njit(cache=True, nogil=True, fastmath=True)
def intersections(A, B, out):
    """out[i, j] = sum_d min(A[i, d], B[j, d])."""
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = A.dtype.type(0)
            for d in range(A.shape[1]):
                total += min(A[i, d], B[j, d])
            out[i, j] = total
