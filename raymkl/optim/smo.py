"""Sequential minimal optimisation for a small dense dual problem, compiled.

    min_x  1/2 (x - x0)' Q (x - x0) + gradient' (x - x0)     s.t.  lower <= x <= upper,  sum(x) = sum(x0)

`x` holds the signed dual variables of a working set, `gradient` the gradient of the objective at `x0`. Two variables
move at a time: the one with the largest violation, and the partner that promises the largest decrease of the
objective (second-order selection).
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Curvature below this is treated as flat: the pair then moves to the end of its box.
FLAT = 1e-12


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
    violation : float, max over variables that may grow of -gradient, minus the min over those that may shrink.
    """
    q = x.shape[0]
    step = 0
    while True:
        best_up = -np.inf
        i = -1
        for k in range(q):
            if x[k] < upper[k] and -gradient[k] > best_up:
                best_up = -gradient[k]
                i = k
        if i < 0:
            return step, 0.0
        worst_low = np.inf
        best_gain = -1.0
        j = -1
        q_ii = Q[i, i]
        for k in range(q):
            if x[k] > lower[k]:
                value = -gradient[k]
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
                        j = k
        violation = best_up - worst_low
        if j < 0 or violation <= tolerance or step >= max_steps:
            return step, max(violation, 0.0)
        curvature = q_ii + Q[j, j] - 2.0 * Q[i, j]
        if curvature < FLAT:
            curvature = FLAT
        move = (gradient[j] - gradient[i]) / curvature
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
        for k in range(q):
            gradient[k] += move * (Q[i, k] - Q[j, k])
        step += 1
