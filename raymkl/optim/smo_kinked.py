"""Sequential minimal optimisation for a dual with a kink at zero, as the epsilon-insensitive loss has it, compiled.

    min_x  1/2 (x - x0)' Q (x - x0) + gradient' (x - x0) + kink * sum |x|     s.t.  lower <= x <= upper,  sum(x) = sum(x0)

with lower <= 0 <= upper. Every variable has a slope to the right and one to the left, which differ by 2 * kink at zero. A pair moves
within the pieces on which both are linear and stops at zero exactly; going on to the other side is another move. The variables need
not be doubled for this.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .smo import FLAT


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def smo_kinked(Q, gradient, x, lower, upper, kink, tolerance, max_steps):
    """Solve the problem above in place; arguments and results as of `smo`, `gradient` is that of the smooth part."""
    q = x.shape[0]
    step = 0
    while True:
        best_up = -np.inf
        i = -1
        for k in range(q):
            if x[k] < upper[k]:
                value = -gradient[k] - (kink if x[k] >= 0.0 else -kink)
                if value > best_up:
                    best_up = value
                    i = k
        if i < 0:
            return step, 0.0
        worst_low = np.inf
        best_gain = -1.0
        best_difference = 0.0
        j = -1
        q_ii = Q[i, i]
        for k in range(q):
            if x[k] > lower[k] and k != i:
                value = -gradient[k] - (kink if x[k] > 0.0 else -kink)
                if value < worst_low:
                    worst_low = value
                difference = best_up - value
                if difference > 0.0:
                    curvature = q_ii + Q[k, k] - 2.0 * Q[i, k]
                    if curvature < FLAT:
                        curvature = FLAT
                    gain = difference * difference / curvature
                    if gain > best_gain:
                        best_gain = gain
                        best_difference = difference
                        j = k
        violation = best_up - worst_low
        if j < 0 or violation <= tolerance or step >= max_steps:
            return step, max(violation, 0.0)
        curvature = q_ii + Q[j, j] - 2.0 * Q[i, j]
        if curvature < FLAT:
            curvature = FLAT
        move = best_difference / curvature
        end_i = 0.0 if x[i] < 0.0 else upper[i]
        end_j = 0.0 if x[j] > 0.0 else lower[j]
        room_i = end_i - x[i]
        room_j = x[j] - end_j
        # Landing exactly on zero or on a bound keeps the slopes of both sides exact.
        if move >= room_i and room_i <= room_j:
            move = room_i
            x[i] = end_i
            x[j] = end_j if room_j == room_i else x[j] - move
        elif move >= room_j:
            move = room_j
            x[j] = end_j
            x[i] += move
        else:
            x[i] += move
            x[j] -= move
        for k in range(q):
            gradient[k] += move * (Q[i, k] - Q[j, k])
        step += 1
