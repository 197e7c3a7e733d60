"""Compiled loops over pairs of rows and blocks of their statistics.

A block `stat` is stored by column: `stat[slot, i]` is the statistic of row i and the example in that slot, so
that a new example is one contiguous line. Every loop releases the interpreter lock; threads share the work by
ranges of rows.
"""

from __future__ import annotations

import numpy as np

from .jit import compiled

# Rows of one side that stay in the cache while the other side streams by, for statistics without a matrix
# product.
FEATURE_TILE = 16
# Rows and columns of a tile of ready-made matrices that is compared with its mirror image.
PAIR_TILE = 16
# Sums that stay in the cache while lines are added to them.
LINE_TILE = 1024


@compiled()
def finish_squared_distances(products, a_norms, b_norms, target, slots, first):
    """target[slots[i], first + j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j])."""
    zero, two = products.dtype.type(0), products.dtype.type(2)  # a plain 2 would turn float32 into float64
    for i in range(products.shape[0]):
        line = target[slots[i], first : first + products.shape[1]]
        norm = a_norms[i]
        for j in range(products.shape[1]):
            line[j] = max(norm + b_norms[j] - two * products[i, j], zero)


@compiled()
def squares_in_place(products, a_norms, b_norms):
    """products[i, j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j]).

    (The loop above cannot be vectors when both are one array.)
    """
    zero, two = products.dtype.type(0), products.dtype.type(2)
    for i in range(products.shape[0]):
        norm = a_norms[i]
        for j in range(products.shape[1]):
            products[i, j] = max(norm + b_norms[j] - two * products[i, j], zero)


@compiled(fastmath=True)
def squared_norms(array, out):
    """out[i] = sum_d array[i, d]^2, summed in float64."""
    for i in range(array.shape[0]):
        total = 0.0
        for d in range(array.shape[1]):
            value = np.float64(array[i, d])
            total += value * value
        out[i] = total


@compiled()
def mirror(block, rows, columns):
    """block[i, j] = block[j, i] for the given rows i and columns j (disjoint sets), in tiles that stay in the
    cache.
    """
    for row in range(0, len(rows), 32):
        for column in range(0, len(columns), 32):
            for k in range(row, min(row + 32, len(rows))):
                i = rows[k]
                for m in range(column, min(column + 32, len(columns))):
                    block[i, columns[m]] = block[columns[m], i]


@compiled()
def copy_pairs(source, source_rows, source_columns, target, target_rows, target_columns):
    """target[target_rows[i], target_columns[j]] = source[source_rows[i], source_columns[j]] for all i, j."""
    for i in range(len(target_rows)):
        line, from_line = target[target_rows[i]], source[source_rows[i]]
        for j in range(len(target_columns)):
            line[target_columns[j]] = from_line[source_columns[j]]


@compiled()
def accumulate_powers(stat, slots, weights, exponents, inverse_scale, out, start, stop):
    """out[i, r] += sum_k weights[k] * (stat[slots[k], i] * inverse_scale) ** exponents[r] for start <= i <
    stop.

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


@compiled(fastmath={"contract"})
def accumulate_lines(stat, slots, weights, scale, out, start, stop):
    """out[i] += sum_k scale * weights[k] * stat[slots[k], i] for start <= i < stop. out : (n,) contiguous."""
    for k in range(slots.shape[0]):
        line = stat[slots[k]]
        weight = weights[k] * scale
        for i in range(start, stop):
            out[i] += weight * np.float64(line[i])


@compiled(fastmath={"contract"})
def add_gated(values, left, right, out, begun):
    """out[i, j] = left[i] values[i, j] right[j], or added to what is there once it was begun.

    left : (rows,). right : (columns,).
    """
    for i in range(values.shape[0]):
        gate = left[i]
        if not begun:
            for j in range(values.shape[1]):
                out[i, j] = gate * right[j] * values[i, j]
        elif gate != 0.0:
            for j in range(values.shape[1]):
                out[i, j] += gate * right[j] * values[i, j]


@compiled()
def accumulate_stack(stack, rows, columns, matrices, weights, out, start, stop):
    """out[i, r] += sum_k weights[k] * stack[rows[i], columns[k], matrices[r]] for start <= i < stop:
    ready-made kernel matrices.

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


@compiled(fastmath=True)
def combine_stack(stack, rows, columns, matrices, weights, out, start, stop):
    """out[i, j] = sum_r weights[r] * stack[rows[i], columns[j], matrices[r]] for start <= i < stop; matrices
    as above.
    """
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


@compiled()
def add_lines(lines, weights, out):
    """out[i] += sum_k weights[k] * lines[k, i]."""
    for start in range(0, lines.shape[1], LINE_TILE):
        stop = min(start + LINE_TILE, lines.shape[1])
        for k in range(lines.shape[0]):
            weight = weights[k]
            for i in range(start, stop):
                out[i] += weight * lines[k, i]


@compiled()
def survey_stack(stack, roots, largest, asymmetry, excess, start, stop):
    """Largest values over start <= i < stop and j <= i, for every m, of what square matrices are judged by.

    largest : |K_ij|. asymmetry : |K_ij - K_ji|. excess : |K_ij| - roots[i] roots[j].
    """
    for first in range(start, stop, PAIR_TILE):
        last = min(first + PAIR_TILE, stop)
        for left in range(0, last, PAIR_TILE):  # a tile and its mirror image stay in the cache
            for i in range(first, last):
                for j in range(left, min(left + PAIR_TILE, i + 1)):
                    for m in range(stack.shape[2]):
                        here = abs(stack[i, j, m])
                        there = abs(stack[j, i, m])
                        apart = abs(stack[i, j, m] - stack[j, i, m])
                        size = here if here > there else there
                        over = size - roots[i, m] * roots[j, m]
                        largest[m] = size if size > largest[m] else largest[m]
                        asymmetry[m] = apart if apart > asymmetry[m] else asymmetry[m]
                        excess[m] = over if over > excess[m] else excess[m]


@compiled(fastmath=True)
def l1_distances(A, B, out):
    """out[i, j] = sum_d |A[i, d] - B[j, d]|."""
    for start in range(0, A.shape[0], FEATURE_TILE):
        for j in range(B.shape[0]):
            for i in range(start, min(start + FEATURE_TILE, A.shape[0])):
                total = A.dtype.type(0)
                for d in range(A.shape[1]):
                    total += abs(A[i, d] - B[j, d])
                out[i, j] = total


@compiled(fastmath=True)
def chi2_distances(A, B, out):
    """out[i, j] = sum_d (A[i, d] - B[j, d])^2 / (A[i, d] + B[j, d]), terms with a zero denominator left
    out.
    """
    for start in range(0, A.shape[0], FEATURE_TILE):
        for j in range(B.shape[0]):
            for i in range(start, min(start + FEATURE_TILE, A.shape[0])):
                total = A.dtype.type(0)
                for d in range(A.shape[1]):
                    both = A[i, d] + B[j, d]
                    if both > 0:
                        difference = A[i, d] - B[j, d]
                        total += difference * difference / both
                out[i, j] = total


@compiled(fastmath=True)
def intersections(A, B, out):
    """out[i, j] = sum_d min(A[i, d], B[j, d])."""
    for start in range(0, A.shape[0], FEATURE_TILE):
        for j in range(B.shape[0]):
            for i in range(start, min(start + FEATURE_TILE, A.shape[0])):
                total = A.dtype.type(0)
                for d in range(A.shape[1]):
                    total += min(A[i, d], B[j, d])
                out[i, j] = total
