"""Compiled loops of `inspection.positional`: sums of coefficients over the support vectors that share a piece
with an example.

Sequences are arrays of letter codes (n, length) uint8 with UNKNOWN for letters outside the alphabet. Every
loop releases the interpreter lock.

Looking at all pairs of examples and support vectors would cost their product. Instead the support vectors are
sorted by what follows from each place on: those that agree with an example in the next d letters then stand
next to each other, their coefficients add up by a difference of two running sums, and the range for d + 1
letters lies within that for d.
"""

from __future__ import annotations

import numpy as np
from numba import njit

UNKNOWN = 255


@njit(cache=True, nogil=True)
def _sort_by_letter(codes, place, order, room, starts):
    """Order of the rest of sequences from `place` on, from the order of the rest from the next place on.

    Stable, by counting.
    """
    starts[:] = 0
    n = len(order)
    for j in range(n):
        starts[codes[j, place] + 1] += 1
    for letter in range(256):
        starts[letter + 1] += starts[letter]
    for k in range(n):
        j = order[k]
        letter = codes[j, place]
        room[starts[letter]] = j
        starts[letter] += 1
    order[:] = room


@njit(cache=True, nogil=True)
def _first_not_below(codes, place, order, low, high, letter):
    """First k in [low, high) whose sequence has at `place` a letter >= `letter`; high when there is none."""
    while low < high:
        middle = (low + high) // 2
        if codes[order[middle], place] < letter:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def shared_pieces(support, coefficients, codes, row_weights, reach, factors, shift, target, heads, rows, out):
    """out[rows[i], target[r], heads[r], d - 1, q] += row_weights[i, r] * factors[r, d - 1] * w_s *
    (coefficients of channel r, summed over the support vectors that have at place q + s the d letters that
    example i has at place q), for all |s| <= shift.

    w_0 = 1 and w_s = 1 / (2 (|s| + 1)). support : (S, length) codes. coefficients : (S, R). codes : (n,
    length). row_weights : (n, R).
    reach : (R,) longest piece of a channel. factors : (R, longest). target, heads : (R,). rows : (n,). out :
    (., ., ., longest, length).
    """
    S, length = support.shape
    R = len(reach)
    longest = 0
    for r in range(R):
        longest = max(longest, reach[r])
    order, room, starts = np.arange(S), np.empty(S, np.int64), np.empty(257, np.int64)
    running = np.zeros((S + 1, R))
    for place in range(length - 1, -1, -1):
        _sort_by_letter(support, place, order, room, starts)
        for k in range(S):
            for r in range(R):
                running[k + 1, r] = running[k, r] + coefficients[order[k], r]
        for s in range(-shift, shift + 1):
            at = place - s
            if at < 0 or at >= length:
                continue
            weight = 1.0 if s == 0 else 0.5 / (abs(s) + 1)
            most = min(longest, length - max(at, place))
            for i in range(len(codes)):
                low, high = 0, S
                for d in range(most):
                    letter = codes[i, at + d]
                    if letter == UNKNOWN:
                        break
                    low = _first_not_below(support, place + d, order, low, high, letter)
                    high = _first_not_below(support, place + d, order, low, high, letter + 1)
                    if low == high:
                        break
                    for r in range(R):
                        if d < reach[r]:
                            amount = (
                                weight
                                * factors[r, d]
                                * row_weights[i, r]
                                * (running[high, r] - running[low, r])
                            )
                            out[rows[i], target[r], heads[r], d, at] += amount


@njit(cache=True, nogil=True)
def piece_codes(letters, starts, table, k, size, codes):
    """codes[place] = number of the k letters from there on (digits to the base `size`); -1 where one is
    unknown or the row ends.

    letters : all rows one after the other, row i from starts[i] to starts[i + 1]. table : (256,) code of
    every byte.
    """
    highest = np.int64(1)
    for _ in range(k - 1):
        highest *= size
    for row in range(len(starts) - 1):
        code, good = np.int64(0), 0
        for place in range(starts[row], starts[row + 1]):
            codes[place] = -1
            letter = table[letters[place]]
            if letter == UNKNOWN:
                code, good = np.int64(0), 0
                continue
            code = (code % highest) * size + np.int64(letter)
            good += 1
            if good >= k:
                codes[place - k + 1] = code
