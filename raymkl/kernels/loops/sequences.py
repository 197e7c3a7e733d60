"""Compiled loops over sequences: match runs by machine words, and products of k-mer counts by an inverted
index.

Sequences of one length are stored as bit planes `planes[p, w, j]` (uint64): bit i of word w of plane p is bit
p of the code of letter 64 w + i of sequence j; the last plane says which letters belong to the alphabet. The
sequence is the last axis, so that one instruction handles neighbouring sequences. Every loop releases the
interpreter lock.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

# Sequences handled together: their match words stay in the first-level cache.
TILE = 128
# Rows whose partial sums stay in the first-level cache while the columns stream by.
ROW_TILE = 512
# Columns added in one go, so that partial sums are loaded and stored once for all of them.
COLUMNS = 4
ONE, TOP, ALL = np.uint64(1), np.uint64(63), np.uint64(0xFFFFFFFFFFFFFFFF)


@intrinsic
def _ones(typing_context, word):
    """Number of bits that are set in a 64-bit word."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True)
def pack_planes(letters, length, table, planes):
    """Fill planes (bits + 1, words, n), which are zero, from letters (n * length,) and the code of every byte
    (256,).
    """
    bits = planes.shape[0] - 1
    for j in range(planes.shape[2]):
        for i in range(length):
            code = table[letters[j * length + i]]
            if code != 255:
                bit = ONE << np.uint64(i & 63)
                planes[bits, i >> 6, j] |= bit
                for p in range(bits):
                    if (code >> p) & 1:
                        planes[p, i >> 6, j] |= bit


@njit(cache=True, nogil=True)
def _shifted(planes, j, shift, out):
    """out[p, w] = words of sequence j moved by `shift` letters: letter i + shift comes to place i; nothing
    comes in from outside.
    """
    words = planes.shape[1]
    far = abs(shift) >> 6
    near = np.uint64(abs(shift) & 63)
    back = np.uint64(64) - near
    for p in range(planes.shape[0]):
        for w in range(words):
            value = np.uint64(0)
            if shift >= 0:
                if w + far < words:
                    value = planes[p, w + far, j] >> near
                if near != 0 and w + far + 1 < words:
                    value |= planes[p, w + far + 1, j] << back
            else:
                if w - far >= 0:
                    value = planes[p, w - far, j] << near
                if near != 0 and w - far - 1 >= 0:
                    value |= planes[p, w - far - 1, j] >> back
            out[p, w] = value


@njit(cache=True, nogil=True)
def _match(left, planes, base, width, match):
    """match[w, u] = places at which sequence base + u has the letter of the sequence whose words are `left`
    (bits + 1, words).
    """
    bits = planes.shape[0] - 1
    for w in range(planes.shape[1]):
        line = match[w]
        known, mine = planes[bits, w, base : base + width], left[bits, w]
        for u in range(width):
            line[u] = known[u] & mine
        for p in range(bits):
            theirs, mine = planes[p, w, base : base + width], left[p, w] ^ ALL
            for u in range(width):
                line[u] &= theirs[u] ^ mine


@njit(cache=True, nogil=True)
def _count_runs(match, width, degrees, factor, add, target, base, singles, doubles, count):
    """target[q, base + u] = factor * sum_{d <= D} (D - d + 1) M_d with D = degrees[q], or that much more when
    `add`.

    M_d is the number of places from which d letters match. `match` is used up; singles, doubles and count are
    room for `width` numbers.
    """
    words = match.shape[0]
    for u in range(width):
        singles[u] = 0
        doubles[u] = 0
    reached, depth = 0, 0
    alive = True
    while depth < len(degrees):
        reached += 1
        if alive:
            for u in range(width):
                count[u] = 0
            for w in range(words):
                line = match[w]
                for u in range(width):
                    count[u] += np.int32(_ones(line[u]))
            some = np.int32(0)
            for u in range(width):
                some |= count[u]
                singles[u] += count[u]
            alive = some != 0
        for u in range(width):
            doubles[u] += singles[u]
        if degrees[depth] == reached:
            line_out = target[depth, base : base + width]
            if add:
                for u in range(width):
                    line_out[u] += factor * doubles[u]
            else:
                for u in range(width):
                    line_out[u] = doubles[u]
            depth += 1
        if alive:
            for w in range(words - 1):
                line, after = match[w], match[w + 1]
                for u in range(width):
                    line[u] &= (line[u] >> ONE) | (after[u] << TOP)
            line = match[words - 1]
            for u in range(width):
                line[u] &= line[u] >> ONE


@njit(cache=True, nogil=True)
def match_runs(left, right, degrees, shift, target, slots):
    """target[slots[i], q, j] = sum_{d <= D} (D - d + 1) M_d(i, j) for D = degrees[q], summed over shifts with
    their weights.

    left, right : planes of sequences of one length. degrees : (Q,) increasing. target : (capacity, Q,
    n_right), floats if shift > 0.
    """
    planes, words, n = right.shape
    match = np.empty((words, TILE), np.uint64)
    singles, doubles, count = np.empty(TILE, np.int32), np.empty(TILE, np.int32), np.empty(TILE, np.int32)
    moved = np.empty((2 * shift + 1, planes, words), np.uint64)
    for i in range(left.shape[2]):
        for s in range(2 * shift + 1):
            _shifted(left, i, s - shift, moved[s])
        lines = target[slots[i]]
        for base in range(0, n, TILE):
            width = min(TILE, n - base)
            _match(moved[shift], right, base, width, match)
            _count_runs(match, width, degrees, 1.0, False, lines, base, singles, doubles, count)
            for s in range(2 * shift + 1):
                if s != shift:
                    _match(moved[s], right, base, width, match)
                    factor = 0.5 / (abs(s - shift) + 1)
                    _count_runs(match, width, degrees, factor, True, lines, base, singles, doubles, count)


@njit(cache=True, nogil=True)
def own_runs(planes, degrees, shift, out):
    """out[q, j] = the same of every sequence with itself. out : (Q, n) float64."""
    n_planes, words, n = planes.shape
    match = np.empty((words, TILE), np.uint64)
    singles, doubles, count = np.empty(TILE, np.int32), np.empty(TILE, np.int32), np.empty(TILE, np.int32)
    moved = np.empty((n_planes, words), np.uint64)
    single = np.empty((words, 1), np.uint64)
    for base in range(0, n, TILE):  # without a shift a letter matches itself if it is in the alphabet
        width = min(TILE, n - base)
        for w in range(words):
            line, known = match[w], planes[n_planes - 1, w, base : base + width]
            for u in range(width):
                line[u] = known[u]
        _count_runs(match, width, degrees, 1.0, False, out, base, singles, doubles, count)
    for j in range(n):
        for s in range(1, shift + 1):
            _shifted(planes, j, s, moved)
            _match(moved, planes, j, 1, single)
            for w in range(words):
                match[w, 0] = single[w, 0]
            _count_runs(match, 1, degrees, 1.0 / (s + 1), True, out, j, singles, doubles, count)


@njit(cache=True, nogil=True, fastmath={"contract"})
def accumulate_planes(stat, slots, weights, planes, out, start, stop):
    """out[i, r] += sum_k weights[k] * stat[slots[k], planes[r], i] for start <= i < stop, summed in float64.

    stat : (n_slots, depth, n_rows). slots, weights : (k,), k a multiple of COLUMNS (pad with weight 0).
    planes : (R,).
    """
    sums = np.empty(ROW_TILE)
    for base in range(start, stop, ROW_TILE):
        width = min(ROW_TILE, stop - base)
        for r in range(len(planes)):
            plane = planes[r]
            sums[:] = 0.0
            for k in range(0, len(slots), COLUMNS):
                line0, line1 = (
                    stat[slots[k], plane, base : base + width],
                    stat[slots[k + 1], plane, base : base + width],
                )
                line2, line3 = (
                    stat[slots[k + 2], plane, base : base + width],
                    stat[slots[k + 3], plane, base : base + width],
                )
                weight0, weight1, weight2, weight3 = (
                    weights[k],
                    weights[k + 1],
                    weights[k + 2],
                    weights[k + 3],
                )
                for u in range(width):
                    sums[u] += (weight0 * line0[u] + weight1 * line1[u]) + (
                        weight2 * line2[u] + weight3 * line3[u]
                    )
            for u in range(width):
                out[base + u, r] += sums[u]


@njit(cache=True, nogil=True, fastmath={"contract"})
def combine_planes(stat, planes, weights, out):
    """out[i, j] = sum_r weights[r] * stat[i, planes[r], j]."""
    for i in range(stat.shape[0]):
        line = out[i]
        line[:] = 0.0
        for r in range(len(planes)):
            values, weight = stat[i, planes[r]], weights[r]
            if weight != 0.0:
                for j in range(len(line)):
                    line[j] += weight * values[j]


@njit(cache=True, nogil=True)
def count_kmers(letters, starts, table, k, size, indptr, codes, counts):
    """Distinct k-mers of every row, sorted, with how often they occur: indptr (n + 1,), codes and counts with
    room for all places.

    The code of a k-mer is its letters read as digits to the base `size`. Places with a letter outside the
    alphabet are left out.
    """
    highest = np.int64(1)
    for _ in range(k - 1):
        highest *= size
    at = 0
    indptr[0] = 0
    for row in range(len(starts) - 1):
        first = at
        code, good = np.int64(0), 0
        for place in range(starts[row], starts[row + 1]):
            letter = table[letters[place]]
            if letter == 255:
                code, good = np.int64(0), 0
                continue
            code = (code % highest) * size + np.int64(letter)
            good += 1
            if good >= k:
                codes[at] = code
                at += 1
        codes[first:at].sort()
        kept = first
        for place in range(first, at):
            if place > first and codes[place] == codes[kept - 1]:
                counts[kept - 1] += 1
            else:
                codes[kept] = codes[place]
                counts[kept] = 1
                kept += 1
        at = kept
        indptr[row + 1] = at


@njit(cache=True, nogil=True)
def invert(indptr, terms, counts, begins, rows, amounts):
    """Inverted index: rows that hold term t, and how often, at begins[t] ..

    begins[t + 1]. begins : (terms + 1,) zeros.
    """
    for e in range(len(terms)):
        begins[terms[e] + 1] += 1
    for t in range(len(begins) - 1):
        begins[t + 1] += begins[t]
    free = begins[:-1].copy()
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            place = free[terms[e]]
            rows[place] = row
            amounts[place] = counts[e]
            free[terms[e]] = place + 1


@njit(cache=True, nogil=True)
def kmer_products(indptr, terms, counts, begins, rows, amounts, target, slots):
    """target[slots[i], j] = sum_t count_i(t) count_j(t): rows i by their terms (-1: unknown to the index),
    rows j by the index.
    """
    for i in range(len(indptr) - 1):
        line = target[slots[i]]
        line[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            if terms[e] >= 0:
                count = counts[e]
                for place in range(begins[terms[e]], begins[terms[e] + 1]):
                    line[rows[place]] += count * amounts[place]


@njit(cache=True, nogil=True)
def spread_counts(indptr, codes, counts, out):
    """out[i, code] = count, for small numbers of possible k-mers. out : zeros (n, size ** k)."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[i, codes[e]] = counts[e]
