"""The dual problem of a head, the point where it is, and the sub-problems that move it.

    max_a  sum_i term_i(a_i) - 1/2 dual_norm(s(a)),    s_m = a' K_m a,    lower <= a <= upper,  sum(a) = total

A step takes the variables of a working set to the solution of a concave quadratic problem
(`optim.subproblem`), and the weights with them as their rule wants it (`optim.weights`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...optim.certificate import certify, intercept_candidates, intercept_from_residuals
from ...optim.losses import Terms, slopes
from ...optim.subproblem import solve_terms
from ...optim.weights import WeightRule
from ..problem import Head

if TYPE_CHECKING:
    from ..rounds.blocks import WorkingBlock

# Sub-problems are solved to this part of the current violation.
INNER = 0.05
# And to this part, if that solves the whole problem.
WHOLE = 1e-3
# Sub-problems of all rows, that are repeated, to this part of the squared violation.
NEWTON = 0.3
# Times that a working set of all rows is solved before the shards hear of it.
MOST_REPEATS = 12
# And its rows at most: beyond, a round costs little beside a sub-problem.
REPEATED_ROWS = 2048
# Numbers that a stage may multiply all dual variables by, of which the best one is taken.
STRETCHES = 9
# Heads with at most this many rows are solved on to this violation, which costs milliseconds.
POLISH_ROWS = 256
POLISHED = 1e-9
# Or to this many times the error of a combined kernel value, below which nothing can be said of f.
POLISHED_ERROR = 1.0
# Violations below this part of the residuals' size are round-off: no dual variable can move.
STILL = 1e-13


@dataclass
class Point:
    """Where a head is.

    a : (n,) dual variables. theta : (E,) weights. s : (E,) quadratic terms. intercept : the best of the
    candidates `intercepts` (B,), as the last certificate has it. before_step : (n,) the dual variables before
    a step under way.
    """

    a: np.ndarray
    theta: np.ndarray
    s: np.ndarray
    intercept: float
    intercepts: np.ndarray
    before_step: np.ndarray | None = None

    @classmethod
    def start(cls, head: Head, n_entries: int) -> Point:
        """No dual variables yet, and the weights that the head begins with."""
        if head.start is not None:
            theta = np.array(head.start[1], float)
        else:
            theta = head.norm.start(n_entries) if head.entries is None else head.norm.start_over(head.entries)
        return cls(
            np.zeros(len(head.targets)), theta, np.zeros(n_entries), 0.0, intercept_candidates(0.0, 1.0)
        )

    @property
    def told(self) -> np.ndarray:
        """(n,) dual variables that the shards know, or will know by the steps that were handed over: not
        those of a step under way.
        """
        return self.a if self.before_step is None else self.before_step


class DualBox:
    """What the dual variables may be, and the loss's terms of them, in one stage of a head's path.

    bounds_factor : what this stage multiplies the head's bounds by. terms : of all rows. total : what the
    dual variables sum to. n_active : rows that are not masked. unit : size of the residuals, at least 1.
    """

    def __init__(self, head: Head):
        self.n_active = int(np.sum(head.bounds > 0))
        self.enter(head, head.stage)
        self.unit = max(1.0, float(np.abs(self.terms.linear).max()))

    def enter(self, head: Head, stage: int) -> None:
        """Take the bounds of a stage."""
        self.stage, self.bounds_factor = stage, head.path[stage]
        self.terms = Terms(head.loss, head.targets, head.bounds * self.bounds_factor)
        self.total = head.total * self.bounds_factor

    @property
    def lower(self) -> np.ndarray:
        """(n,) lower end of the box."""
        return self.terms.lower

    @property
    def upper(self) -> np.ndarray:
        """(n,) upper end of the box."""
        return self.terms.upper


class Ascent:
    """What moves the point of a head.

    head, box, point, rule : those of the head. coefficients : (E, R) of the entries over all basis functions,
    normalisation included. round_off : (E,) error of a kernel value.
    """

    def __init__(
        self,
        head: Head,
        box: DualBox,
        point: Point,
        rule: WeightRule,
        coefficients: np.ndarray,
        round_off: np.ndarray,
    ):
        self.head, self.box, self.point, self.rule = head, box, point, rule
        self.coefficients, self.round_off = coefficients, round_off

    @property
    def combination(self) -> np.ndarray:
        """(R,) weights of the basis functions in f."""
        return self.coefficients.T @ self.point.theta

    @property
    def dual_value(self) -> float:
        """The part of the dual objective that is not the norm."""
        return self.box.terms.value(self.point.a)

    @property
    def noise(self) -> np.ndarray:
        """(E,) round-off of the quadratic terms."""
        return self.round_off * float(self.point.a @ self.point.a)

    @property
    def polished(self) -> float:
        """A violation below which nothing is left to do."""
        return max(POLISHED * self.box.unit, POLISHED_ERROR * float(self.point.theta @ self.round_off))

    def quadratic_terms(self, s: np.ndarray, lenient: bool) -> np.ndarray:
        """s (E,) = a'K_e a without what round-off made negative; clearly negative ones mean that a kernel is
        not positive semi-definite.

        lenient : do not raise for these.
        """
        allowed = 1e-3 * np.abs(s).max(initial=0.0) + 1e3 * self.round_off * float(
            self.point.a @ self.point.a
        )
        bad = np.flatnonzero(s < -allowed)
        if len(bad) and not lenient:
            raise ValueError(
                f"kernel {bad[0]} is not positive semi-definite: the optimiser met a quadratic form of "
                f"{s[bad[0]]:.6g}; "
                "every kernel must be positive semi-definite on the training rows"
            )
        return np.maximum(s, 0.0)

    def gram(self, gradients: np.ndarray) -> np.ndarray:
        """(E, E) inner products of the kernels' parts of f on some rows, without their means (b makes up for
        them). gradients : (k, R).

        The quadratic terms count as much as all rows together: they must stay the same, too.
        """
        g, s = gradients - gradients.mean(axis=0), self.point.s
        gram = self.coefficients @ (g.T @ g) @ self.coefficients.T
        return gram + np.outer(s, s) * (np.trace(gram) / max(float(s @ s), 1e-300))

    def best_stretch(self, stage: int) -> float:
        """The number to multiply all dual variables by when the bounds become those of a stage.

        This keeps them feasible and costs the shards no kernel value: of the numbers that fit the new box it
        is the one with the best dual objective, `t * value - t^2 / 2 * dual_norm` for terms that are not
        curved, else the best of a few.
        """
        head, point, value, size = self.head, self.point, self.dual_value, self.head.norm.dual(self.point.s)
        ratio = head.path[stage] / self.box.bounds_factor
        t = min(max(value / size, min(ratio, 1.0)), ratio) if size > 0 else min(ratio, 1.0)
        if head.total:
            return ratio
        if head.loss.is_curved:
            terms = Terms(head.loss, head.targets, head.bounds * head.path[stage])
            some = ratio ** (np.arange(STRETCHES) / (STRETCHES - 1))
            t = float(max(some, key=lambda t: terms.value(t * point.a) - 0.5 * t * t * size))
        return t

    def enter(self, stage: int, t: float) -> None:
        """Go to the bounds of a stage, with t times the dual variables."""
        box, point = self.box, self.point
        box.enter(self.head, stage)
        point.a = np.clip(
            point.a * t, box.lower, box.upper
        )  # the very operation of the shards: equal to the last bit
        point.s = point.s * t**2

    # -- steps -------------------------------------------------------------------------------------
    # ids : (q,) the working set. offsets : (q,) what proofs have shown f to differ by from what the gradients
    # (q, R) say.

    def move_held(
        self,
        ids: np.ndarray,
        block: WorkingBlock,
        offsets: np.ndarray,
        gradients: np.ndarray | None,
        violation: float,
    ) -> np.ndarray:
        """Move the dual variables alone; returns the residuals (q,) after it.

        gradients : None where offsets are f.
        """
        combination, x, terms = self.combination, self.point.a[ids], self.box.terms.of(ids)
        f = offsets if gradients is None else offsets + gradients @ combination
        Q = block.hessian(combination, None, None)
        solution = self._solve(Q, terms, terms.slope(x) - f, x, max(INNER * violation, 1e-14))
        self.point.a[ids] = solution
        return terms.slope(solution) - f - Q @ (solution - x)

    def move(
        self,
        ids: np.ndarray,
        block: WorkingBlock,
        offsets: np.ndarray,
        gradients: np.ndarray,
        violation: float,
        weight_gap: float,
    ) -> np.ndarray:
        """Move the dual variables, and the weights with them; returns the residuals (q,) after it.

        Where the working set is all rows and weights follow, this is repeated until the problem is solved, if
        no shard need be asked.
        weight_gap : the weights' part of the gap in the last certificate.
        """
        whole, repeats = len(ids) == self.box.n_active, self.rule.repeats
        terms = self.box.terms.of(ids)
        # All rows at once: the answer, if no weights follow it. After them a precise one would have to be
        # found anew.
        precision = WHOLE if whole and not repeats else INNER
        again = whole and repeats and not block.asks_shards and len(ids) <= REPEATED_ROWS
        for repeat in range(MOST_REPEATS if again else 1):
            before, tolerance = violation, precision * (min(violation, 1.0) if whole else violation)
            # the model of the weights' answer errs by the square of the step, and pairs are quicker than one
            # more repeat
            if again:
                tolerance = min(tolerance, NEWTON * violation * violation)
            elif (
                whole and self.box.n_active <= POLISH_ROWS and not repeats
            ):  # at once what rounds would polish it to
                tolerance = min(tolerance, 0.5 * self.polished)
            gradients = gradients + self._move_once(
                ids, block, terms, offsets, gradients, tolerance, weight_gap
            )
            residual = terms.slope(self.point.a[ids]) - offsets - gradients @ self.combination
            violation, gap = self._within(ids, terms, residual)
            near = gap <= 0.5 * self.head.tol and self.box.n_active > POLISH_ROWS
            if near or violation <= self.polished or (repeat >= 2 and violation > 0.5 * before):
                break
        return residual

    def _move_once(
        self,
        ids: np.ndarray,
        block: WorkingBlock,
        terms: Terms,
        offsets: np.ndarray,
        gradients: np.ndarray,
        tolerance: float,
        weight_gap: float,
    ) -> np.ndarray:
        """The change (q, R) of the working set's gradients by one sub-problem."""
        rule, point, x = self.rule, self.point, self.point.a[ids]
        point.theta = rule.before_step(point.theta, point.s, self.noise)
        combination, response = self.combination, rule.response(point.s, gradients, self.coefficients)
        residual = terms.slope(x) - offsets - gradients @ combination
        Q = block.hessian(combination, response, gradients)
        solution = self._solve(
            Q, terms, residual, x, max(tolerance, 1e-14) if np.isfinite(tolerance) else INNER
        )
        delta = solution - x
        change = block.change(delta)
        exact = _gain(terms, x, delta, offsets)
        s1, s2 = 2.0 * (self.coefficients @ (delta @ gradients)), self.coefficients @ (delta @ change)
        t = rule.step_length(exact, point.s, s1, s2)
        point.a[ids] = (
            solution if t == 1.0 else np.clip(x + t * delta, self.box.lower[ids], self.box.upper[ids])
        )
        point.s = np.maximum(point.s + t * s1 + t * t * s2, 0.0)
        point.theta = rule.after_step(point.theta, point.s, t, weight_gap)
        return t * change

    @staticmethod
    def _solve(
        Q: np.ndarray, terms: Terms, residual: np.ndarray, x: np.ndarray, tolerance: float
    ) -> np.ndarray:
        """The variables (q,) that solve the sub-problem. Q : (q, q). residual : (q,)."""
        return solve_terms(Q, terms, residual, x, tolerance, max_steps=200 * len(x) + 20_000)

    def _within(self, ids: np.ndarray, terms: Terms, residual: np.ndarray) -> tuple[float, float]:
        """Violation and relative gap of the problem that consists of the rows of a working set alone.

        residual : (q,).
        """
        head, point, a = self.head, self.point, self.point.a[ids]
        (grow, shrink), may_grow, may_shrink = _sides(terms, a, residual)
        violation = grow[may_grow].max(initial=-np.inf) - shrink[may_shrink].min(initial=np.inf)
        center = intercept_from_residuals((grow, shrink), may_grow, may_shrink, terms.voices(a))
        b = point.intercept if center is None else center
        losses = float(terms.bounds @ terms.losses(terms.slope(a) - residual + b)) + self.box.total * b
        return max(violation, 0.0), certify(
            head.norm, point.theta, point.s, self.dual_value, np.array([b]), np.array([losses])
        ).gap

    def place_intercepts(
        self, ids: np.ndarray, residual: np.ndarray, violation: float, middle: float
    ) -> None:
        """Candidates for b around the value that the working set's optimality conditions ask for; `middle` is
        one of them.
        """
        terms, a = self.box.terms.of(ids), self.point.a[ids]
        center = intercept_from_residuals(*_sides(terms, a, residual), terms.voices(a))
        center = self.point.intercept if center is None else center
        width = min(max(violation, abs(center - self.point.intercept)), 10.0)
        self.point.intercepts = intercept_candidates(center, width, (self.point.intercept, middle))


def _sides(
    terms: Terms, a: np.ndarray, residual: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """Slopes of growing and of shrinking, who may grow, who may shrink: each (q,)."""
    return slopes(residual, a, terms.kink), a < terms.upper, a > terms.lower


def _gain(
    terms: Terms, x: np.ndarray, delta: np.ndarray, offsets: np.ndarray
) -> float | Callable[[float], float]:
    """Slope, along a step delta (q,) from x (q,), of the dual objective without the norm, offsets (q,) being
    a linear part of f: a number where it is the same all the way, else a function of t.
    """
    kink = terms.kink
    if not terms.loss.is_curved:
        gain = float((terms.linear - offsets) @ delta)
        return (lambda t: gain - kink * float(np.sign(x + t * delta) @ delta)) if kink else gain

    def slope(t: float) -> float:
        there = x + t * delta
        return float((terms.slope(there) - offsets - kink * np.sign(there)) @ delta)

    return slope
