"""Sequential minimal optimisation for a small dense dual problem, compiled.

    min_x  1/2 (x - x0)' Q (x - x0) + gradient' (x - x0)     s.t.  lower <= x <= upper,  sum(x) = sum(x0)

`x` holds the signed dual variables of a working set, `gradient` the gradient of the objective at `x0`. Two
variables move at a time: the one with the largest violation, and the partner that promises the largest
decrease of the objective (second-order selection).

A dual with a kink at zero, as the epsilon-insensitive loss has it, adds `kink * sum |x|` with lower <= 0 <=
upper (`smo_kinked`). Every variable has a slope to the right and one to the left then, which differ by 2 *
kink at zero. A pair moves within the pieces on which both are linear and stops at zero exactly; going on to
the other side is another move. The variables need not be doubled for this.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .pair_search import BLOCK, FLAT, largest_slope, write_gains


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def smo(Q, gradient, x, lower, upper, tolerance, max_steps):
    """Solve the problem above in place.

    Parameters
    ----------
    Q : (q, q) float64, symmetric, positive semi-definite up to round-off.
    gradient : (q,) float64, overwritten with the gradient at the solution.
    x : (q,) float64, start (feasible), overwritten with the solution.
    lower, upper : (q,) float64.
    tolerance : float, stop when the largest violation is below it.
    max_steps : int, pairs moved at most.

    Returns
    -------
    steps : int, pairs moved.
    violation : float, max over variables that may grow of -gradient, minus the min over those that may
        shrink.
    """
    q = x.shape[0]
    whole = q - q % BLOCK
    # Added to -gradient, these leave out variables that may not grow, or not shrink.
    grow, shrink = np.empty(q), np.empty(q)
    diagonal, gains, lowest = np.empty(q), np.empty(q, np.float32), np.empty(1)
    for k in range(q):
        diagonal[k] = Q[k, k]
        grow[k] = 0.0 if x[k] < upper[k] else -np.inf
        shrink[k] = 0.0 if x[k] > lower[k] else np.inf
    step = 0
    while True:
        best_up, near = -np.inf, 0
        for k in range(0, whole, BLOCK):
            largest = largest_slope(grow, gradient, k)
            if largest > best_up:
                best_up, near = largest, k
        for k in range(whole, q):
            if grow[k] - gradient[k] > best_up:
                best_up, near = grow[k] - gradient[k], k
        if best_up == -np.inf:
            return step, 0.0
        i = near
        while grow[i] - gradient[i] != best_up:
            i += 1
        row = Q[i]
        best_gain, near, lowest[0] = np.float32(0.0), 0, np.inf
        for k in range(0, whole, BLOCK):
            gain = write_gains(shrink, gradient, diagonal, row, k, best_up, diagonal[i], gains, lowest)
            if gain > best_gain:
                best_gain, near = gain, k
        for k in range(whole, q):
            value = shrink[k] - gradient[k]
            lowest[0] = min(lowest[0], value)
            distance = np.float32(max(best_up - value, 0.0))
            gains[k] = distance * distance / np.float32(max(diagonal[i] + diagonal[k] - 2.0 * row[k], FLAT))
            if gains[k] > best_gain:
                best_gain, near = gains[k], k
        violation = best_up - lowest[0]
        if best_gain <= 0.0 or violation <= tolerance or step >= max_steps:
            return step, max(violation, 0.0)
        j = near
        while gains[j] != best_gain:
            j += 1
        move = (gradient[j] - gradient[i]) / max(diagonal[i] + diagonal[j] - 2.0 * row[j], FLAT)
        room_i = upper[i] - x[i]
        room_j = x[j] - lower[j]
        # Landing exactly on a bound keeps the sets "may grow" and "may shrink" exact.
        if move >= room_i and room_i <= room_j:
            move = room_i
            x[i] = upper[i]
            x[j] = lower[j] if room_j == room_i else x[j] - move
        elif move >= room_j:
            move = room_j
            x[j] = lower[j]
            x[i] += move
        else:
            x[i] += move
            x[j] -= move
        for k in (i, j):
            grow[k] = 0.0 if x[k] < upper[k] else -np.inf
            shrink[k] = 0.0 if x[k] > lower[k] else np.inf
        other = Q[j]
        for k in range(q):
            gradient[k] += move * (row[k] - other[k])
        step += 1


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def smo_kinked(Q, gradient, x, lower, upper, kink, tolerance, max_steps):
    """Solve the problem with a kink in place; arguments and results as of `smo`, `gradient` is that of the
    smooth part.
    """
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
