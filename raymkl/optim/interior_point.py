"""An interior-point method for the problem of a working set, for when pairs of variables zigzag.

    min_x  1/2 (x - x0)' Q (x - x0) + gradient' (x - x0)     s.t.  lower <= x <= upper,  sum(x) = sum(x0)

Badly conditioned problems (raw features in a linear kernel next to a Gaussian one, large C, weights far
apart) take SMO millions of steps; here they take twenty Cholesky factorisations, whatever the conditioning.
Mehrotra's predictor and corrector.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

MAX_ITERATIONS = 60
# Rounds of putting variables at their bounds and solving for the others.
CROSSOVERS = 6


def interior_point(
    Q: np.ndarray,
    gradient: np.ndarray,
    x0: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float,
) -> np.ndarray | None:
    """Solution (q,), feasible, with variables at their bounds exactly there; None when Q is not positive
    semi-definite enough.

    Q : (q, q). gradient : (q,) at x0. tolerance : of the optimality conditions, in the units of the gradient.
    """
    width = upper - lower
    free = np.flatnonzero(width > 1e-14 * max(width.max(initial=0.0), 1e-300))
    if len(free) < 2:
        return None
    solution = _solve(Q[np.ix_(free, free)], gradient[free], x0[free], lower[free], upper[free], tolerance)
    if solution is None:
        return None
    x = np.array(x0, float)
    x[free] = solution
    return x


def _solve(Q, gradient, x0, lower, upper, tolerance):
    """The same for boxes that are open everywhere."""
    n, width, total = len(x0), upper - lower, x0.sum()
    x = np.clip(x0, lower + 0.1 * width, upper - 0.1 * width)
    ridge = 1e-14 * max(np.trace(Q) / n, 1e-300)
    slope = gradient + Q @ (x - x0)
    push = max(np.abs(slope - np.median(slope)).max(), tolerance)
    below, above, level = (
        np.full(n, push),
        np.full(n, push),
        -np.median(slope),
    )  # multipliers of the bounds and of the sum
    best, stalled = np.inf, 0
    for _ in range(MAX_ITERATIONS):
        low, high = x - lower, upper - x
        dual, excess = slope + level - below + above, x.sum() - total
        gap = (low @ below + high @ above) / (2 * n)
        # As far as round-off allows: the sharper the complementarity, the safer the guess which variables are
        # at their bounds.
        stalled = 0 if gap < 0.9 * best else stalled + 1
        if stalled > 5 or gap < 1e-9 * tolerance * width.mean() or low.min() <= 0 or high.min() <= 0:
            break
        best = min(best, gap)
        factor, ridge = _factor(Q, below / low + above / high, ridge)
        if factor is None:
            return None
        ones = scipy.linalg.cho_solve(factor, np.ones(n), check_finite=False)
        state = (low, high, below, above, dual, excess, factor, ones)
        dx, d_level, d_below, d_above = _direction(*state, 0.0, 0.0)
        length = min(_reach(low, dx), _reach(high, -dx), _reach(below, d_below), _reach(above, d_above))
        after = (
            (low + length * dx) @ (below + length * d_below)
            + (high - length * dx) @ (above + length * d_above)
        ) / (2 * n)
        target = gap * (max(after, 0.0) / gap) ** 3
        dx, d_level, d_below, d_above = _direction(*state, target - dx * d_below, target + dx * d_above)
        length = 0.995 * min(
            _reach(low, dx), _reach(high, -dx), _reach(below, d_below), _reach(above, d_above)
        )
        if not np.isfinite(dx).all():
            return None
        x, level, below, above = (
            x + length * dx,
            level + length * d_level,
            below + length * d_below,
            above + length * d_above,
        )
        slope = gradient + Q @ (x - x0)
    return _cross_over(Q, gradient, x0, x, lower, upper, below, above, ridge)


def _factor(Q, diagonal, ridge):
    """Cholesky factor of Q plus a diagonal, and the ridge it took: float32 kernels are positive semi-definite
    only up to round-off.
    """
    largest = 1e-5 * np.trace(Q) / len(Q)
    while True:
        H = Q.copy()
        H[np.diag_indices(len(Q))] += diagonal + ridge
        try:
            return scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False), ridge
        except scipy.linalg.LinAlgError:
            if ridge >= largest:
                return None, ridge
            ridge *= 100.0


def _direction(low, high, below, above, dual, excess, factor, ones, low_target, high_target):
    """Newton direction towards low * below = low_target and high * above = high_target."""
    right = -dual + (low_target / low - below) - (high_target / high - above)
    plain = scipy.linalg.cho_solve(factor, right, check_finite=False)
    d_level = (plain.sum() + excess) / ones.sum()
    dx = plain - d_level * ones
    return (
        dx,
        d_level,
        low_target / low - below - below / low * dx,
        high_target / high - above + above / high * dx,
    )


def _reach(values: np.ndarray, change: np.ndarray) -> float:
    """Longest step in [0, 1] that keeps the values positive."""
    shrinking = change < 0
    return float(min(1.0, np.min(-values[shrinking] / change[shrinking], initial=1.0)))


def _cross_over(Q, gradient, x0, x, lower, upper, below, above, ridge):
    """From a point inside the box to one with variables exactly at bounds, optimal over the others."""
    total, diagonal = x0.sum(), np.maximum(np.diag(Q), 1e-300)
    # A variable belongs to a bound when its multiplier is larger than what moving there does to its gradient.
    x = np.where(
        below > diagonal * (x - lower),
        lower,
        np.where(above > diagonal * (upper - x), upper, np.clip(x, lower, upper)),
    )
    for _ in range(CROSSOVERS):
        free = np.flatnonzero((x > lower) & (x < upper))
        if len(free) == 0:
            break
        factor, ridge = _factor(Q[np.ix_(free, free)], 0.0, ridge)
        if factor is None:
            break
        slope = (gradient + Q @ (x - x0))[free]
        plain, ones = scipy.linalg.cho_solve(
            factor, np.stack([-slope, np.ones(len(free))], axis=1), check_finite=False
        ).T
        step = plain + (total - x.sum() - plain.sum()) / ones.sum() * ones
        moved = np.clip(x[free] + step, lower[free], upper[free])
        inside = np.array_equal(moved, x[free] + step)
        x[free] = moved
        if inside:
            break
    return _keep_sum(x, lower, upper, total)


def _keep_sum(x, lower, upper, total):
    """Spread what is missing of the sum over the variables with room for it."""
    for _ in range(5):
        missing = total - x.sum()
        room = upper - x if missing > 0 else x - lower
        inner = np.where((x > lower) & (x < upper), room, 0.0)
        room = inner if inner.sum() >= abs(missing) else room
        if abs(missing) <= 1e-16 * np.abs(x).sum() or room.sum() <= 0:
            break
        x = np.clip(x + missing * room / room.sum(), lower, upper)
    return x
