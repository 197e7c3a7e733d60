"""The problem of a working set, and the step along its solution.

Around the current dual point the dual objective is replaced by a concave quadratic in the variables of the
working set. With fixed weights that is the SVM dual,

    max_d   residual' d - 1/2 d' K_theta d,     lower <= x + d <= upper,  sum(d) = 0,

and with weights that follow the dual point (`theta = gradient of the dual norm`) the Hessian has a second
part,

    K_theta + 2 g' (d theta / d s) g,           g_m = K_m a on the working set,

which tells the sub-problem how the weights will answer. A dual with a kink adds -kink * |x + d|_1 to both. A
line search along the solution then uses the exact dual objective, which costs O(M), so every step increases
it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .interior_point import interior_point
from .losses import Terms, slopes
from .norms import Norm
from .smo import smo, smo_kinked
from .smooth import newton

# Pair moves per variable before the interior-point method is asked.
PATIENT_STEPS = 20
# The same with a kink: how often both take turns.
KINKED_BURSTS = 4


def solve_terms(
    Q: np.ndarray,
    terms: Terms,
    residual: np.ndarray,
    x: np.ndarray,
    tolerance: float,
    max_steps: int = 100_000,
) -> np.ndarray:
    """New variables x + d (q,) of the problem of a working set with the terms of any loss.

    Q : (q, q), left as it was. residual : (q,) derivative of the dual objective at x, without the kink.
    """
    if terms.loss.is_smooth:
        return newton(Q, terms, residual, x, tolerance)
    if not terms.loss.is_curved:
        return solve(Q, residual, x, terms.lower, terms.upper, tolerance, max_steps, terms.kink)[0]
    diagonal, ridge = Q.diagonal().copy(), terms.curvature(x)
    np.fill_diagonal(Q, diagonal + ridge)
    solution = solve(Q, residual, x, *_ends(terms, residual, x, ridge), tolerance, max_steps, terms.kink)[0]
    np.fill_diagonal(Q, diagonal)
    return solution


def _ends(
    terms: Terms, residual: np.ndarray, x: np.ndarray, ridge: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends (q,) of the box, with finite ones where there were none, so far away that the solution lies
    between them.

    The solution d gains something: residual' d >= 1/2 sum_i ridge_i d_i^2, for residuals with any number
    added and as large as the kink may make them, so that sum_i ridge_i d_i^2 <= 4 sum_i residual_i^2 /
    ridge_i.
    """
    if np.isfinite(terms.lower).all() and np.isfinite(terms.upper).all():
        return terms.lower, terms.upper
    size = np.abs(residual - np.median(residual)) + 2.0 * terms.kink
    reach = 2.0 * np.sqrt(np.sum(size * size / ridge) / ridge)
    return np.maximum(terms.lower, np.minimum(x - reach, 0.0)), np.minimum(
        terms.upper, np.maximum(x + reach, 0.0)
    )


def solve(
    Q: np.ndarray,
    residual: np.ndarray,
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float,
    max_steps: int = 100_000,
    kink: float = 0.0,
) -> tuple[np.ndarray, float]:
    """New variables x + d (q,) of the problem above, and the violation left.

    Q : (q, q). residual : (q,) gradient of the dual objective at x, without the kink. x, lower, upper : (q,).
    """
    if kink:
        return _solve_kinked(Q, residual, x, lower, upper, kink, tolerance, max_steps)
    Q, gradient, solution = np.ascontiguousarray(Q), -np.asarray(residual, float), np.array(x, float)
    burst = min(PATIENT_STEPS * len(x) + 1_000, max_steps)
    steps, violation = smo(Q, gradient, solution, lower, upper, tolerance, burst)
    if violation <= tolerance or steps >= max_steps:
        return solution, float(violation)
    # Pairs zigzag where Q is badly conditioned; go on from the solution of a method that does not mind.
    better = interior_point(Q, -np.asarray(residual, float), np.asarray(x, float), lower, upper, tolerance)
    if better is not None and _decrease(Q, residual, better - x) > _decrease(Q, residual, solution - x):
        solution, gradient, max_steps = better, Q @ (better - x) - residual, min(max_steps, 2 * burst)
    _, violation = smo(Q, gradient, solution, lower, upper, tolerance, max_steps - burst)
    return solution, float(violation)


def _solve_kinked(Q, residual, x, lower, upper, kink, tolerance, max_steps):
    """The same with a kink at zero: pairs, and where they zigzag the interior-point method with every
    variable on its side of zero.
    """
    Q, residual, solution = np.ascontiguousarray(Q), np.asarray(residual, float), np.array(x, float)
    burst = PATIENT_STEPS * len(x) + 1_000
    violation = np.inf
    for _ in range(KINKED_BURSTS):
        gradient = Q @ (solution - x) - residual
        steps, violation = smo_kinked(
            Q, gradient, solution, lower, upper, kink, tolerance, min(burst, max_steps)
        )
        max_steps -= steps
        if violation <= tolerance or max_steps <= 0:
            return solution, float(violation)
        up, down = slopes(-gradient, solution, kink)
        rising = (solution > 0) | ((solution == 0) & (up > -down))
        low, high = (
            np.where(rising, np.maximum(lower, 0.0), lower),
            np.where(rising, upper, np.minimum(upper, 0.0)),
        )
        here = gradient + np.where(rising, kink, -kink)
        better = interior_point(Q, here, solution, low, high, tolerance)
        if better is not None and _decrease(Q, -here, better - solution) > 0:
            solution = better
    gradient = Q @ (solution - x) - residual
    _, violation = smo_kinked(Q, gradient, solution, lower, upper, kink, tolerance, max_steps)
    return solution, float(violation)


def _decrease(Q: np.ndarray, residual: np.ndarray, step: np.ndarray) -> float:
    """What a step gains in the objective."""
    return float(residual @ step - 0.5 * step @ (Q @ step))


def weight_response(
    norm: Norm, s: np.ndarray, g: np.ndarray, coefficients: np.ndarray, noise: np.ndarray | float = 0.0
) -> np.ndarray | None:
    """The second part of the Hessian on the working set as a factor L (q, R), the part being L @ g.T; None
    where there is none.

    s : (M,) quadratic terms; those at or below `noise` are not trusted to pull the Hessian down. g : (q, R)
    gradients per basis function. coefficients : (M, R) of the kernels over the basis functions, normalisation
    included.
    """
    parts = norm.curvature(s)
    if parts is None:
        return None
    if isinstance(parts, np.ndarray):
        trusted = (np.diag(parts) >= 0) | (s > noise)
        return 2.0 * (g @ (coefficients.T @ (parts * np.outer(trusted, trusted)) @ coefficients))
    d, c, t = parts
    d = np.where((d < 0) & (s <= noise), 0.0, d)
    pull = np.atleast_2d(t) @ coefficients
    middle = (coefficients * d[:, None]).T @ coefficients - (pull.T * c) @ pull
    return 2.0 * (g @ middle)


def line_search(
    norm: Norm,
    gain: float | Callable[[float], float],
    s0: np.ndarray,
    s1: np.ndarray,
    s2: np.ndarray,
    smoothing: np.ndarray | float = 0.0,
) -> float:
    """Step t in [0, 1] that maximises t * gain - 1/2 dual(s0 + t s1 + t^2 s2): the exact dual along a
    direction.

    gain : linear part, or a function of t that is its slope (where the dual has kinks). s0, s1, s2 : (M,).
    The objective is concave in t.
    """

    def slope(t: float) -> float:
        s = np.maximum(s0 + t * (s1 + t * s2), 0.0) + smoothing
        linear = gain(t) if callable(gain) else gain
        return linear - 0.5 * float(norm.weights(s) @ (s1 + 2.0 * t * s2))

    # A full step that ends nearly flat is as good as the exact one, and one whose promise is round-off of the
    # dual objective can only help the primal.
    start, end = slope(0.0), slope(1.0)
    if abs(start) <= 1e-14 * norm.dual(s0) or end >= -1e-3 * max(start, 0.0):
        return 1.0
    low, high, at_low, at_high, last = 0.0, 1.0, start, end, 0
    for _ in range(50):
        # Regula falsi; an end that stays twice loses half its weight (Illinois), and no step comes too near
        # to an end.
        part = at_low / (at_low - at_high) if at_low > at_high else 0.5
        t = low + (high - low) * min(max(part, 0.02), 0.98)
        here = slope(t)
        if abs(here) <= 1e-4 * start:
            return t
        if here > 0:
            low, at_low, at_high, last = t, here, at_high * (0.5 if last > 0 else 1.0), 1
        else:
            high, at_high, at_low, last = t, here, at_low * (0.5 if last < 0 else 1.0), -1
        if high - low < 1e-4 * high:
            break
    return low if low > 0 else high
