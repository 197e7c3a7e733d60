"""The sub-problem of a working set whose rows have a dual variable per class, compiled.

    max_D   sum_ik residual_ik D_ik - 1/2 sum_k d_k' Q d_k - 1/2 vec(D)' left right' vec(D)
            A + D <= upper,   sum_k (A + D)_ik = 0 for every row i

Q is the matrix of the weighted kernels, the last part says how the weights will answer (see `subproblem`).
One row moves at a time: given the others its solution is a projection, `a_k = min(upper_k, v_k - level)` with
`v = a + residual / curvature` and the level at which the row sums to zero. Where the weights answer, the
curvature is an upper bound, so that every move is one upwards.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .losses import joint_violations

# Curvatures below this are those of equal rows.
FLAT = 1e-12
# Rows whose violation is below this part of the tolerance rest until the others are done.
AT_REST = 0.5
# In a pass only rows with a violation of at least this part of the largest one of the last pass move: others
# mostly follow.
WORTH_MOVING = 0.3


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def move_rows(Q, left, right, residual, A, classes, upper, tolerance, max_moves):
    """Solve the problem above in place; returns the moves made and the violation left.

    Parameters
    ----------
    Q : (q, q) float64, symmetric. left, right : (q, K, R) float64; R = 0 where the weights stay.
    residual : (q, K) float64 at A, overwritten with that at the solution, without the weights' answer. A :
        (q, K) float64, feasible, overwritten with the solution.
    classes : (q,) int64 number of every row's class. upper : (q,) float64 upper end of its variable; those of
        other classes end at 0.
    tolerance : stop when no row's violation is larger. max_moves : rows moved at most.
    """
    q, K = A.shape
    R = left.shape[2]
    answer = np.zeros(R)  # right' vec(D)
    curvature = np.empty(q)
    for i in range(q):
        extra = 0.0
        for k in range(K):
            for r in range(R):
                extra += left[i, k, r] * right[i, k, r]
        curvature[i] = max(Q[i, i] + max(extra, 0.0), FLAT)
    by_class = residual.T.copy()  # (K, q): a move changes few classes, of all rows
    resting = np.zeros(q, np.bool_)
    now, change, free = np.empty(K), np.empty(K), np.empty(K, np.bool_)
    moves, everyone, least = 0, True, 0.0
    while True:
        worst = 0.0
        for i in range(q):
            if resting[i] and not everyone:
                continue
            own = classes[i]
            top, bottom = -np.inf, np.inf
            for k in range(K):
                value = by_class[k, i]
                for r in range(R):
                    value -= left[i, k, r] * answer[r]
                now[k] = value
                if A[i, k] < (upper[i] if k == own else 0.0):
                    top = max(top, value)
                bottom = min(bottom, value)
            violation = top - bottom
            worst = max(worst, violation)
            resting[i] = violation <= AT_REST * tolerance
            if violation <= max(AT_REST * tolerance, least):
                continue
            # The level at which the row sums to zero: classes that reach their end are fixed there, one after
            # the other.
            total, count = 0.0, K
            for k in range(K):
                now[k] = A[i, k] + now[k] / curvature[i]
                total += now[k]
                free[k] = True
            level = total / count
            fixed = True
            while fixed:
                fixed = False
                for k in range(K):
                    end = upper[i] if k == own else 0.0
                    if free[k] and now[k] - level > end:
                        free[k] = False
                        total += end - now[k]
                        count -= 1
                        fixed = True
                if fixed and count > 0:
                    level = total / count
            for k in range(K):
                target = now[k] - level if free[k] else (upper[i] if k == own else 0.0)
                change[k] = target - A[i, k]
                A[i, k] = target
                if change[k] != 0.0:
                    for r in range(R):
                        answer[r] += right[i, k, r] * change[k]
            row = Q[i]
            for k in range(K):
                step = change[k]
                if step != 0.0:
                    column = by_class[k]
                    for j in range(q):
                        column[j] -= row[j] * step
            moves += 1
            if moves >= max_moves:
                residual[:] = by_class.T
                return moves, worst
        if worst <= tolerance:
            if everyone:
                residual[:] = by_class.T
                return moves, worst
            everyone, least = True, 0.0  # those at rest may have been woken
        else:
            everyone, least = False, WORTH_MOVING * worst


def violation_within(residual: np.ndarray, A: np.ndarray, classes: np.ndarray, upper: np.ndarray) -> float:
    """The largest violation of the rows of a working set. residual, A : (q, K). classes, upper : (q,)."""
    F = -residual
    F[np.arange(len(F)), classes] += 1.0
    return float(joint_violations(F, A, classes, upper).max(initial=0.0))
