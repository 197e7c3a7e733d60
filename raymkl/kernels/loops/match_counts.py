"""Compiled loops over the blocks of `pairs.match_counts`: M_1 .. M_m of every pair, and what is counted again
from the letters.

Sequences are bit planes as in `sequences`. Every loop releases the interpreter lock.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .sequences import ALL, COLUMNS, ONE, ROW_TILE, TILE, TOP, _match, _ones, _shifted

# Partial sums run over this many columns, then move to float64.
FLUSH = 256


@njit(cache=True, nogil=True)
def match_counts(left, right, cells, slots):
    """cells[slots[i], d - 1, j] = M_d(i, j) for d <= m, or the largest number a cell holds.

    cells : (capacity, m, n_right) unsigned.
    """
    planes, words, n = right.shape
    kept = cells.shape[1]
    full = np.int32(255 if cells.itemsize == 1 else 65535)
    match, count = np.empty((words, TILE), np.uint64), np.empty(TILE, np.int32)
    mine = np.empty((planes, words), np.uint64)
    for i in range(left.shape[2]):
        _shifted(left, i, 0, mine)
        lines = cells[slots[i]]
        for base in range(0, n, TILE):
            width = min(TILE, n - base)
            _match(mine, right, base, width, match)
            alive = True
            for d in range(kept):
                out = lines[d, base : base + width]
                if not alive:
                    for u in range(width):
                        out[u] = 0
                    continue
                for u in range(width):
                    count[u] = 0
                for w in range(words):
                    line = match[w]
                    for u in range(width):
                        count[u] += np.int32(_ones(line[u]))
                some = np.int32(0)
                for u in range(width):
                    some |= count[u]
                    out[u] = min(count[u], full)
                alive = some != 0
                for w in range(words - 1):
                    line, after = match[w], match[w + 1]
                    for u in range(width):
                        line[u] &= (line[u] >> ONE) | (after[u] << TOP)
                line = match[words - 1]
                for u in range(width):
                    line[u] &= line[u] >> ONE


@njit(cache=True, nogil=True)
def reuse_pairs(source, there, all_there, target, here, all_here, new):
    """Cells of pairs that were in an earlier block, and mirror images of those of new rows.

    target[here[i], :, all_here[j]] = source[there[i], :, all_there[j]], target[here[i], :, new[m]] =
    target[new[m], :, here[i]].
    """
    for i in range(len(here)):
        for d in range(target.shape[1]):
            line, from_line = target[here[i], d], source[there[i], d]
            for j in range(len(all_here)):
                line[all_here[j]] = from_line[all_there[j]]
    for row in range(0, len(here), 64):
        for column in range(0, len(new), 64):
            for d in range(target.shape[1]):
                for i in range(row, min(row + 64, len(here))):
                    line, place = target[here[i], d], here[i]
                    for m in range(column, min(column + 64, len(new))):
                        line[new[m]] = target[new[m], d, place]


@njit(cache=True, nogil=True)
def _rest(left, slot, right, j, cells, whole, match, rest):
    """rest[d - 1] = M_d of a pair less what its cells (m,) hold, for first < d <= reached; returns first and
    reached, above which M_d = 0.

    whole : cells may be full, so that M_1 is looked at, too; else first = m. match : room for the words of a
    sequence.
    """
    bits, words, kept = right.shape[0] - 1, right.shape[1], len(cells)
    for w in range(words):
        same = left[bits, w, slot] & right[bits, w, j]
        for p in range(bits):
            same &= left[p, w, slot] ^ right[p, w, j] ^ ALL
        match[w] = same
    for d in range(len(rest)):
        if whole or d >= kept:
            count = 0
            for w in range(words):
                count += np.int64(_ones(match[w]))
            if count == 0:
                return 0 if whole else kept, d
            rest[d] = count - (np.int64(cells[d]) if d < kept else 0)
        for w in range(words - 1):
            match[w] &= (match[w] >> ONE) | (match[w + 1] << TOP)
        match[words - 1] &= match[words - 1] >> ONE
    return 0 if whole else kept, len(rest)


@njit(cache=True, nogil=True)
def _unfinished(first, last, width, full, longer):
    """Whether some pair of a line has counts that its cells do not hold: the first one is full, or the last
    one tells of longer runs.
    """
    some = np.int32(0)
    if longer:
        for u in range(width):
            some |= np.int32(last[u]) >> 1
    if full > 0:
        for u in range(width):
            some |= np.int32(first[u] == full)
    return some != 0


@njit(cache=True, nogil=True)
def _full(cells, words):
    """The number that a cell holds when there may be more; 0 when no sequence is that long."""
    most = 255 if cells.itemsize == 1 else 65535
    return most if 64 * words >= most else 0


@njit(cache=True, nogil=True, fastmath={"contract"})
def accumulate_counts(cells, left, right, slots, weights, counted, line, out, start, stop):
    """out[i, r] += sum_k weights[k] * sum_d counted[d - 1, r] * M_d(slots[k], i) for start <= i < stop.

    cells : (capacity, m, n_rows), see `pairs.match_counts`. left, right : planes of the slots and of the
    rows. slots, weights : (k,), k a multiple of COLUMNS (pad with weight 0). counted : (longest, R). line :
    (ROW_TILE,) room for sums, which run in its dtype over FLUSH columns and then move to float64.
    """
    number = line.dtype.type
    kept, longest = cells.shape[1], counted.shape[0]
    dense, longer, full = min(kept, longest), longest > kept, _full(cells, right.shape[1])
    sums, rest = np.empty((longest, ROW_TILE)), np.empty(longest, np.int64)
    match = np.empty(right.shape[1], np.uint64)
    for base in range(start, stop, ROW_TILE):
        width = min(ROW_TILE, stop - base)
        sums[:, :] = 0.0
        for d in range(dense):
            total = sums[d]
            for begin in range(0, len(slots), FLUSH):
                line[:] = number(0)
                for k in range(begin, min(begin + FLUSH, len(slots)), COLUMNS):
                    line0, line1 = (
                        cells[slots[k], d, base : base + width],
                        cells[slots[k + 1], d, base : base + width],
                    )
                    line2, line3 = (
                        cells[slots[k + 2], d, base : base + width],
                        cells[slots[k + 3], d, base : base + width],
                    )
                    weight0, weight1 = number(weights[k]), number(weights[k + 1])
                    weight2, weight3 = number(weights[k + 2]), number(weights[k + 3])
                    for u in range(width):
                        half = weight0 * number(line0[u]) + weight1 * number(line1[u])
                        line[u] += half + (weight2 * number(line2[u]) + weight3 * number(line3[u]))
                for u in range(width):
                    total[u] += line[u]
        if longer or full > 0:
            for k in range(len(slots)):
                slot, weight = slots[k], weights[k]
                if weight == 0.0:
                    continue
                for part in range(0, width, TILE):
                    size = min(TILE, width - part)
                    at = base + part
                    first, last = cells[slot, 0, at : at + size], cells[slot, kept - 1, at : at + size]
                    if _unfinished(first, last, size, full, longer):
                        for u in range(size):
                            whole = full > 0 and first[u] == full
                            if whole or (longer and last[u] >= 2):
                                low, high = _rest(
                                    left, slot, right, at + u, cells[slot, :, at + u], whole, match, rest
                                )
                                for d in range(low, high):
                                    sums[d, part + u] += weight * rest[d]
        for u in range(width):
            for d in range(longest):
                value = sums[d, u]
                if value != 0.0:
                    for r in range(out.shape[1]):
                        out[base + u, r] += counted[d, r] * value


@njit(cache=True, nogil=True, fastmath={"contract"})
def combine_counts(cells, left, right, weights, line, out):
    """out[i, j] = sum_d weights[d - 1] * M_d(i, j).

    weights : (longest,). line : (n_right,) room for sums, which run in its dtype.
    """
    number = line.dtype.type
    kept, longest = cells.shape[1], len(weights)
    dense, longer, full = min(kept, longest), longest > kept, _full(cells, right.shape[1])
    rest, match = np.empty(longest, np.int64), np.empty(right.shape[1], np.uint64)
    for i in range(cells.shape[0]):
        target = out[i]
        line[:] = number(0)
        for d in range(0, dense - 1, 2):
            values, others = cells[i, d], cells[i, d + 1]
            weight, weight2 = number(weights[d]), number(weights[d + 1])
            for j in range(len(line)):
                line[j] += weight * number(values[j]) + weight2 * number(others[j])
        if dense % 2:
            values, weight = cells[i, dense - 1], number(weights[dense - 1])
            for j in range(len(line)):
                line[j] += weight * number(values[j])
        for j in range(len(line)):
            target[j] = line[j]
        if longer or full > 0:
            for base in range(0, len(line), TILE):
                size = min(TILE, len(line) - base)
                first, last = cells[i, 0, base : base + size], cells[i, kept - 1, base : base + size]
                if _unfinished(first, last, size, full, longer):
                    for u in range(size):
                        whole = full > 0 and first[u] == full
                        if whole or (longer and last[u] >= 2):
                            low, high = _rest(
                                left, i, right, base + u, cells[i, :, base + u], whole, match, rest
                            )
                            for d in range(low, high):
                                target[base + u] += weights[d] * rest[d]
