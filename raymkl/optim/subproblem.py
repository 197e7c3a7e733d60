"""The problem of a working set, and the step along its solution.

Around the current dual point the dual objective is replaced by a concave quadratic in the variables of the working set.
With fixed weights that is the SVM dual,

    max_d   residual' d - 1/2 d' K_theta d,     lower <= x + d <= upper,  sum(d) = 0,

and with weights that follow the dual point (`theta = gradient of the dual norm`) the Hessian has a second part,

    K_theta + 2 g' (d theta / d s) g,           g_m = K_m a on the working set,

which tells the sub-problem how the weights will answer. A line search along the solution then uses the exact dual
objective, which costs O(M), so every step increases it.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .norms import Norm
from .smo import smo

SOLVERS = ("smo", "osqp")
# Pair moves per variable before the free variables are solved for together, and how many such solves follow each other.
PATIENT_STEPS = 20
NEWTON_STEPS = 10


def solve(
    Q: np.ndarray,
    residual: np.ndarray,
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float,
    max_steps: int = 100_000,
    solver: str = "smo",
) -> tuple[np.ndarray, float]:
    """New variables x + d (q,) of the problem above, and the violation left.

    Q : (q, q). residual : (q,) gradient of the dual objective at x. x, lower, upper : (q,).
    """
    if solver == "osqp":
        return _solve_osqp(Q, residual, x, lower, upper, tolerance)
    if solver != "smo":
        raise ValueError(f"solver must be one of {SOLVERS}, got {solver!r}")
    Q, gradient, solution = np.ascontiguousarray(Q), -np.asarray(residual, float), np.array(x, float)
    burst = PATIENT_STEPS * len(x) + 1_000
    while True:
        steps, violation = smo(Q, gradient, solution, lower, upper, tolerance, min(burst, max_steps))
        max_steps -= max(steps, burst)
        if violation <= tolerance or max_steps <= 0:
            return solution, float(violation)
        newton_on_free(Q, gradient, solution, lower, upper)


def newton_on_free(Q: np.ndarray, gradient: np.ndarray, x: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
    """Move the variables inside their box to the minimum over them, or as far as the box allows; in place.

    Pairs of variables zigzag when Q is badly conditioned (large C, kernels of low rank with large weights). The minimum over
    all free variables at once, a linear system, is then worth its cost.
    """
    free = np.flatnonzero((x > lower) & (x < upper))
    for _ in range(NEWTON_STEPS):
        if len(free) < 2:
            return
        block = Q[np.ix_(free, free)]
        block[np.diag_indices(len(free))] += 1e-12 * max(np.trace(block) / len(free), 1e-300)
        try:
            factor = scipy.linalg.cho_factor(block, check_finite=False)
        except scipy.linalg.LinAlgError:
            return
        down, ones = scipy.linalg.cho_solve(factor, np.stack([-gradient[free], np.ones(len(free))], axis=1), check_finite=False).T
        step = down - (down.sum() / ones.sum()) * ones
        if not np.isfinite(step).all() or gradient[free] @ step >= 0:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step > 0, (upper[free] - x[free]) / step, np.where(step < 0, (lower[free] - x[free]) / step, np.inf))
        blocking = int(np.argmin(room))
        length = min(1.0, float(room[blocking]))
        x[free] = np.clip(x[free] + length * step, lower[free], upper[free])
        gradient += Q[:, free] @ (length * step)
        if length == 1.0:
            return
        x[free[blocking]] = upper[free[blocking]] if step[blocking] > 0 else lower[free[blocking]]
        free = np.delete(free, blocking)


def _solve_osqp(Q, residual, x, lower, upper, tolerance):
    import osqp

    n = len(x)
    constraints = sp.vstack([sp.csc_matrix(np.ones((1, n))), sp.identity(n)]).tocsc()
    problem = osqp.OSQP()
    problem.setup(
        sp.csc_matrix(np.triu((Q + Q.T) / 2)),
        -np.asarray(residual, float),
        constraints,
        np.concatenate([[0.0], lower - x]),
        np.concatenate([[0.0], upper - x]),
        eps_abs=min(tolerance, 1e-6) * 1e-2,
        eps_rel=0.0,
        max_iter=200_000,
        polishing=True,
        verbose=False,
    )
    solution = np.clip(x + problem.solve().x, lower, upper)
    # An interior-point solution stops short of its bounds by its tolerance; those variables are meant to be there.
    near = 1e-9 * np.maximum(upper - lower, 1e-300)
    solution = np.where(solution - lower <= near, lower, np.where(upper - solution <= near, upper, solution))
    gradient = Q @ (solution - x) - residual
    up, low = solution < upper, solution > lower
    violation = max(0.0, np.max(-gradient[up], initial=-np.inf) - np.min(-gradient[low], initial=np.inf))
    return solution, float(violation)


def weight_response(norm: Norm, s: np.ndarray, g: np.ndarray, spread: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray | None:
    """The second part of the Hessian on the working set as a factor L (q, R), the part being L @ g.T; None where there is none.

    s : (M,) quadratic terms; those at or below `noise` are not trusted to pull the Hessian down. g : (q, R) gradients per basis
    function. spread : (M, R) coefficients of the kernels over the basis functions, normalisation included.
    """
    parts = norm.curvature(s)
    if parts is None:
        return None
    d, c, t = parts
    d = np.where((d < 0) & (s <= noise), 0.0, d)
    pull = spread.T @ t
    middle = (spread * d[:, None]).T @ spread - c * np.outer(pull, pull)
    return 2.0 * (g @ middle)


def line_search(norm: Norm, gain: float, s0: np.ndarray, s1: np.ndarray, s2: np.ndarray, smoothing: np.ndarray | float = 0.0) -> float:
    """Step t in [0, 1] that maximises t * gain - 1/2 dual(s0 + t s1 + t^2 s2): the exact dual along a direction.

    gain : linear part. s0, s1, s2 : (M,). The objective is concave in t.
    """

    def slope(t: float) -> float:
        s = np.maximum(s0 + t * (s1 + t * s2), 0.0) + smoothing
        return gain - 0.5 * float(norm.weights(s) @ (s1 + 2.0 * t * s2))

    # A full step that ends nearly flat is as good as the exact one, and one whose promise is round-off of the dual objective
    # can only help the primal.
    start = slope(0.0)
    if abs(start) <= 1e-14 * norm.dual(s0) or slope(1.0) >= -1e-3 * max(start, 0.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if slope(middle) > 0:
            low = middle
        else:
            high = middle
        if high - low < 1e-4 * high:
            break
    return low if low > 0 else high
