"""Newton's method for a working set whose terms are smooth: every row is a support vector, and no variable
ever meets the end of its box.

    max_x  sum_i term_i(x_i) - f' (x - x0) - 1/2 (x - x0)' Q (x - x0)      s.t.  sum(x) = sum(x0)

The Newton direction d solves (Q + diag(curvature)) d = slope(x) - f - Q (x - x0) - level. Along a straight
line it would soon leave the box of the logistic loss, so the slopes take the straight line instead, from
slope(x) to slope(x) - curvature * d = f + Q (x + d - x0) + level, and the dual variables are those with these
slopes: both paths begin in the same direction. The level keeps the sum.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from .losses import Terms, keeping_sum

# Steps at most, and for working sets with more rows than this, of which a Cholesky factorisation takes longer
# than a round.
MOST_STEPS = 40
LARGE_STEPS = 8
LARGE_ROWS = 1024
# Of a step along the path, at most this often the half is tried, until it gains at least this part of what
# its beginning promises.
HALVES = 30
WORTH = 1e-3


def newton(Q: np.ndarray, terms: Terms, residual: np.ndarray, x: np.ndarray, tolerance: float) -> np.ndarray:
    """New variables (q,) of the problem above.

    Q : (q, q). residual : (q,) slope(x) - f at x. tolerance : of what `Terms.residual` differs by between
    rows.
    """
    f, point = terms.slope(x) - residual, np.array(x, float)
    moved, gradient = (
        np.zeros(len(x)),
        np.array(residual, float),
    )  # Q (point - x), and the gradient at the point
    for _ in range(MOST_STEPS if len(x) <= LARGE_ROWS else LARGE_STEPS):
        curvature = terms.curvature(point)
        level = float(np.average(gradient, weights=1.0 / curvature))
        if np.ptp(terms.residual(point, f + moved, level)) <= tolerance:
            break
        direction = _direction(Q, curvature, gradient)
        if direction is None:
            break
        step = _along_slopes(terms, point, curvature, direction, gradient)
        change = Q @ step
        length = _length(terms, point, step, f + moved, float(step @ change))
        if length == 0.0:
            break
        point, moved = point + length * step, moved + length * change
        gradient = terms.slope(point) - f - moved
    return point


def _direction(Q: np.ndarray, curvature: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
    """The Newton direction (q,), which sums to zero; None where Q is not positive semi-definite enough."""
    q, largest = len(gradient), max(float(np.trace(Q)) / len(gradient), 1e-300)
    for ridge in (0.0, 1e-12, 1e-9, 1e-6):
        H = np.array(Q, order="C")
        H.flat[:: q + 1] += curvature + ridge * largest
        # Q is symmetric: read by columns, its rows are what LAPACK factorises in place.
        factor, failed = lapack.dpotrf(H.T, lower=0, overwrite_a=1, clean=0)
        if not failed:
            both, _ = lapack.dpotrs(factor, np.stack([gradient, np.ones(q)], axis=1), lower=0)
            plain, ones = both.T
            return plain - plain.sum() / ones.sum() * ones
    return None


def _along_slopes(
    terms: Terms, point: np.ndarray, curvature: np.ndarray, direction: np.ndarray, gradient: np.ndarray
) -> np.ndarray:
    """A step (q,) of dual variables whose slopes fall by t * curvature * direction, with t in (0, 1] such
    that it leads upwards.
    """
    slope, change, total, part = terms.slope(point), curvature * direction, float(point.sum()), 1.0
    promise = WORTH * float(gradient @ direction)
    for _ in range(HALVES):
        step = keeping_sum(terms, slope - part * change, total) - point
        if float(gradient @ step) > part * promise:
            break
        part *= 0.5
    return step


def _length(terms: Terms, point: np.ndarray, step: np.ndarray, f: np.ndarray, curvature: float) -> float:
    """Part t in [0, 1] of a step that maximises the objective along it.

    f : (q,) at the point. curvature : step' Q step.
    """

    def slope(t: float) -> float:
        return float((terms.slope(point + t * step) - f) @ step) - t * curvature

    start = slope(0.0)
    if not start > 0:
        return 0.0
    if slope(1.0) >= -1e-3 * start:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-3 * high and high > 1e-12:
        middle = (low + high) / 2
        if slope(middle) > 0:
            low = middle
        else:
            high = middle
    return low
