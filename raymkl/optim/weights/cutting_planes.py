"""Cutting planes for the weights of the kernels.

    min_{theta, eta} eta   s.t.   eta >= L_r - sum_m theta_m S_m^r   for every dual point r that was visited,
                                  theta >= 0,  ||theta||_q <= 1 (per group of entries, where there are
                                  several)

`S_m = 1/2 a' K_m a`, `L` the rest of the dual objective. Every dual point gives a valid cut, optimal or not.
q = 1 is a linear program. For q > 1 the ball is replaced by its second-order expansion at the last theta, the
problem solved, the result projected to the boundary, and this repeated. q = inf (p = 2) has the solution
theta = 1.
"""

from __future__ import annotations

import numpy as np

from ..norms import GroupedNorm, LpNorm

# Repetitions of the second-order expansion, and the change of theta below which they stop.
EXPANSIONS = 8
SETTLED = 1e-6
# A cut is dropped after it has been slack this many solves in a row.
PATIENCE = 20
# Entries of theta at the expansion point are kept away from zero, where the expansion has no curvature or an
# infinite one.
FLOOR = 1e-4


# Of the linear program, the smallest that its solver takes.
PRECISION = 1e-10


class CuttingPlanes:
    """The cuts of one head and the weights they imply."""

    def __init__(self, norm: LpNorm | GroupedNorm, n_kernels: int):
        self.norm = norm
        self.q = norm.q
        self.theta = norm.start(n_kernels)
        self.constants = np.empty(0)
        self.slopes = np.empty((0, n_kernels))
        self.slack_for = np.empty(0, int)
        self._programs: dict[int, tuple] = {}
        # (G, M) which entries share a ball.
        self.indicator = np.zeros((len(norm.members), n_kernels))
        for g, member in enumerate(norm.members):
            self.indicator[g, member] = 1.0

    def add(self, constant: float, slopes: np.ndarray) -> None:
        """Add the cut eta >= constant - slopes @ theta. slopes : (M,) = S of the dual point."""
        self.constants = np.append(self.constants, constant)
        self.slopes = np.vstack([self.slopes, np.maximum(slopes, 0.0)])
        self.slack_for = np.append(self.slack_for, 0)

    def step(self) -> np.ndarray:
        """Weights (M,) that minimise the largest cut."""
        if np.isinf(self.q):
            self.theta = np.ones(self.slopes.shape[1])
        elif self.q == 1:
            self.theta = self._linear_program()
        else:
            self.theta = self._expanded()
        self._drop_inactive()
        return self.theta

    def largest_cut(self, theta: np.ndarray) -> float:
        return float(np.max(self.constants - self.slopes @ theta))

    def _drop_inactive(self) -> None:
        values = self.constants - self.slopes @ self.theta
        top = values.max()
        # The weights are not exact, so a cut that holds them in place may look slack by a little.
        active = values >= top - 1e-3 * max(abs(top), 1e-12)
        self.slack_for = np.where(active, 0, self.slack_for + 1)
        keep = self.slack_for < PATIENCE
        self.constants, self.slopes, self.slack_for = (
            self.constants[keep],
            self.slopes[keep],
            self.slack_for[keep],
        )

    def _linear_program(self) -> np.ndarray:
        from scipy.optimize import linprog  # slow to import, and only p = 1 needs it

        n_kernels = self.slopes.shape[1]
        # Cuts of early dual points may be larger by orders of magnitude: each is stated in units in which its
        # largest entry is one.
        units = np.maximum(np.abs(self.slopes).max(axis=1), np.abs(self.constants))
        units = np.maximum(units, max(1e-6 * units.max(), 1e-300))
        unit = np.median(units)
        # Variables (theta, eta / unit); constant - slopes theta - eta <= 0.
        result = linprog(
            np.concatenate([np.zeros(n_kernels), [1.0]]),
            A_ub=np.hstack([-self.slopes / units[:, None], -(unit / units)[:, None]]),
            b_ub=-self.constants / units,
            A_eq=np.hstack([self.indicator, np.zeros((len(self.indicator), 1))]),
            b_eq=np.ones(len(self.indicator)),
            bounds=[(0, None)] * n_kernels + [(None, None)],
            method="highs",
            options={"primal_feasibility_tolerance": PRECISION, "dual_feasibility_tolerance": PRECISION},
        )
        return self.theta if result.x is None else self.norm.project(result.x[:-1])

    def _expanded(self) -> np.ndarray:
        """Repeat: expand sum theta^q to second order at the last theta, solve, project; keep the best point
        met.
        """
        best, best_value = self.theta, self.largest_cut(self.theta)
        point = self.theta
        for _ in range(EXPANSIONS):
            solution = self._solve_expansion(np.maximum(point, FLOOR * self.norm.largest(point)))
            if solution is None:
                break
            new = self.norm.project(solution)
            value = self.largest_cut(new)
            if value < best_value:
                best, best_value = new, value
            # Half steps after a failure: the expansion overshoots where theta is nearly zero.
            moved = np.abs(new - point).max()
            point = new if value <= best_value * (1 + 1e-12) + 1e-300 else self.norm.project((best + new) / 2)
            if moved < SETTLED:
                break
        return best

    def _solve_expansion(self, point: np.ndarray) -> np.ndarray | None:
        """Solve with sum_m point_m^q + q point^(q-1) (theta - point) + q(q-1)/2 point^(q-2) (theta - point)^2
        <= 1.
        """
        import cvxpy as cp

        n_cuts = len(self.constants)
        # Programs are stated once per (rounded-up) number of cuts and solved again with new numbers.
        size = 8
        while size < n_cuts:
            size *= 2
        if size not in self._programs:
            n_kernels = self.slopes.shape[1]
            theta, eta = cp.Variable(n_kernels, nonneg=True), cp.Variable()
            slopes, constants = cp.Parameter((size, n_kernels)), cp.Parameter(size)
            root, shift = cp.Parameter(n_kernels, nonneg=True), cp.Parameter(n_kernels)
            cuts = constants - slopes @ theta <= eta
            balls = [
                cp.sum_squares((cp.multiply(root, theta) - shift)[member]) <= 1
                for member in self.norm.members
            ]
            self._programs[size] = (
                cp.Problem(cp.Minimize(eta), [cuts, *balls]),
                theta,
                slopes,
                constants,
                root,
                shift,
            )
        problem, theta, slopes, constants, root, shift = self._programs[size]
        scale = max(np.abs(self.slopes).max(initial=0.0), np.abs(self.constants).max(initial=0.0), 1e-300)
        rows = np.concatenate(
            [np.arange(n_cuts), np.zeros(size - n_cuts, int)]
        )  # padding repeats the first cut
        slopes.value, constants.value = self.slopes[rows] / scale, self.constants[rows] / scale
        # Completing the square: sum_m h_m (theta_m - c_m)^2 <= 1 - sum_m point^q + sum_m h_m (point_m -
        # c_m)^2.
        q = self.q
        h = q * (q - 1) / 2 * point ** (q - 2)
        center = point * (1 - 1 / (q - 1))
        level = 1 - self.indicator @ (point**q - h * (point - center) ** 2)
        unit = np.maximum(level, 1e-12) @ self.indicator
        root.value, shift.value = np.sqrt(h / unit), np.sqrt(h / unit) * center
        try:
            problem.solve(solver=cp.CLARABEL, warm_start=True)
        except cp.error.SolverError:
            return None
        return None if theta.value is None else np.maximum(theta.value, 0.0)
