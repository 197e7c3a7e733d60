"""The coordinator's side of one head: certificate, working set, sub-problem, weights.

    max_a  sum_i term_i(a_i) - 1/2 dual_norm(s(a)),    s_m = a' K_m a,    lower <= a <= upper,  sum(a) = total

A round brings the gradients of all rows up to date. Then, in this order,

    absorb             takes in what the shards say, certifies the current point, decides what comes next, and
                       lets the weights take a step of their own where their rule wants one
                       (`optim.weights`)
    take_proof, renew_weights, settle    if the head is `ready`: what accurate sums say of its point, and
                                         whether it is `done`
    next_working_set   the rows to move, and
    step               the sub-problem of these rows, with the weights that answer to it; or `return_to_best`
                       if it is `going_back`

Once the gap is small, the weights of a head that follows hardly move. They are held then, and shards keep f
alone, which costs half; accurate quadratic terms at the end show whether the weights have to move once more
(`renew_weights`).

A head with a `path` solves the same problem for one set of bounds after the other (stages), each from where
the last one ended. Heads of a group leave decisions and weights to their `Leader`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...optim.certificate import certify, certify_held, intercept_candidates
from ...optim.losses import feasible
from ...optim.weights import CertifiedPoint, Led, WeightRule, rule_of
from ..problem import Head
from .ascent import POLISH_ROWS, STILL, Ascent, DualBox, Point
from .asked import AskedHead
from .state import Correction, Course, Found, Holding, Seen, State, WorkingSet
from .summary import HeadSummary, Step

if TYPE_CHECKING:
    from ..rounds.blocks import WorkingBlock

# Weights are held once the gap is below so many times the tolerance, and below the second number. A gap at
# held weights of this part of the tolerance asks for a proof. If it fails, weights whose own part of the gap
# is more than this part of the tolerance move.
HELD_BELOW = 300.0
HELD_AT_MOST = 0.35
HELD_ENOUGH = 0.9
HELD_PART = 0.1


class HeadSolver(AskedHead):
    """A head, where it is, and the decisions of its rounds."""

    def __init__(
        self, head: Head, coefficients: np.ndarray, size: int, new: int, round_off: np.ndarray, patience: int
    ):
        """coefficients : (E, R) of the entries over all basis functions, normalisation included.

        size, new : rows of a working set, and how many of them may be new. round_off : (E,) error of a kernel
        value. patience : rounds without progress of the gap after which the head gives up.
        """
        self.head, self.box, self.point = head, DualBox(head), Point.start(head, len(coefficients))
        used = np.abs(coefficients).max(axis=1) > 0
        self.rule: WeightRule = Led(head.norm, used, head.tol)
        if head.group is None:
            self.rule = rule_of(head.norm, used, head.tol, self.theta, head.solver, head.theta_step)
        self.ascent = Ascent(head, self.box, self.point, self.rule, coefficients, round_off)
        self.rows = WorkingSet(len(head.targets), size, new)
        self.course = Course(head, patience)
        self.seen = Seen()
        self.correction = Correction(len(coefficients))
        self.holding = Holding.LATER if head.shrinks and self.rule.may_be_held else Holding.NEVER
        self.stretch = 1.0  # what the shards are to multiply the dual variables by, once
        self.review_due = False  # whether the rows at work are to be chosen anew before the next round

    # -- the start ---------------------------------------------------------------------------------

    def starting_step(self) -> Step:
        """The dual variables to begin with, brought into the head's box, as a change from zero."""
        head, terms, total = self.head, self.box.terms, self.box.total
        begin = (
            head.loss.start(head.targets, terms.bounds, total)
            if head.start is None
            else feasible(terms, head.start[0], total)
        )
        return Step() if begin is None else self.begin_at(begin)

    def begin_at(self, a: np.ndarray) -> Step:
        """Dual variables (n,) to begin with, as a change from zero."""
        self.point.a, ids = a, np.flatnonzero(a)
        return Step(ids, a[ids], a[ids])

    @property
    def begins_at_zero(self) -> bool:
        """Whether all rows of a side are alike in the coming round."""
        return self.rounds == 0 and not self.a.any()

    # -- after a round -----------------------------------------------------------------------------

    def absorb(self, summary: HeadSummary) -> None:
        """Certify the current point, decide what comes next, and let the weights take a step of their own."""
        self.course.rounds += 1
        self.stretch = 1.0
        if not self.held:
            self._take_quadratic_terms(self.correction.applied(self.coefficients @ summary.quadratic))
        self.seen = Seen.of(summary)
        self._certify(summary.losses, proved=False)
        if self.hold:
            self.holding = Holding.NOW
        if self.head.group is None:  # else its leader decides
            self._decide(self._certified_point())

    def _decide(self, point: CertifiedPoint) -> None:
        if not self.course.has_given_up:
            wanted = self.rule.to_certify(point)
            if wanted is not None:  # the next round says what the certificate of these weights is
                self.point.theta, self.seen.stale = wanted, True
                return
        self.course.remember(point.certificate, self.a, point.theta)
        self.course.decide(
            point.certificate, self._satisfied(point.certificate.gap), self.rule.ascends, self.held
        )
        if self.course.state is State.WORKING:
            theta = self.rule.after_round(point)
            self.seen.stale = theta is not point.theta and bool(np.any(theta != point.theta))
            self.point.theta = theta

    def _satisfied(self, gap: float) -> bool:
        """Whether a gap is small enough to ask for a proof; weights are held from the next round on where it
        is small enough for that.
        """
        tol = self.head.tol
        if self.held:
            return gap <= HELD_ENOUGH * tol or self.course.stuck
        if self.holding is Holding.LATER and gap > tol:
            if self.head.norm.fixed or gap <= min(HELD_BELOW * tol, HELD_AT_MOST):
                self.holding = Holding.NEXT
            return False
        may_polish = self.rule.ascends and self.box.n_active <= POLISH_ROWS
        return gap <= tol and not (may_polish and self.course.polishes(self.violation, self.ascent.polished))

    def _certified_point(self) -> CertifiedPoint:
        seen, point = self.seen, self.point
        still = seen.violation <= STILL * self.box.unit
        gram = partial(self.ascent.gram, seen.summary.gradients)
        return CertifiedPoint(
            point.theta, point.s, self.ascent.noise, seen.certificate, seen.dual_value, still, gram
        )

    def _take_quadratic_terms(self, s: np.ndarray) -> None:
        # The way back may lead over rows that have no sums any more; a proof comes next.
        self.point.s = self.ascent.quadratic_terms(s, lenient=self.going_back)

    def _certify(self, losses: np.ndarray, proved: bool) -> None:
        """The certificate of the present point from its losses (B,) at the candidates for b."""
        seen, point = self.seen, self.point
        losses = losses + self.box.total * point.intercepts
        seen.losses, seen.dual_value = losses, self.ascent.dual_value
        if self.held and not proved:
            certificate = certify_held(
                float(seen.summary.quadratic[0]), seen.dual_value, point.intercepts, losses
            )
        else:
            certificate = certify(
                self.head.norm, point.theta, point.s, seen.dual_value, point.intercepts, losses
            )
        if seen.middle is None:
            seen.middle = certificate.intercept
        elif seen.violation == 0.0:
            # Every b between both sides is optimal; which candidate wins by a rounding error must not decide
            # about predictions.
            certificate = replace(certificate, intercept=seen.middle)
        seen.certificate, point.intercept = certificate, certificate.intercept

    # -- proofs ------------------------------------------------------------------------------------

    def take_proof(self, losses: np.ndarray, s: np.ndarray) -> None:
        """The accurate losses (B,) and quadratic terms (E,) of the present point.

        What the rounds were wrong about is corrected.
        """
        self.correction.take(s)
        self._take_quadratic_terms(s)
        self._certify(losses, proved=True)

    def renew_weights(self) -> bool:
        """Whether weights that were held have moved, because a proof has shown that they do not belong to the
        quadratic terms any more.
        """
        if not self.held or self.head.norm.fixed or self.certificate.gap <= self.head.tol:
            return False
        if self.certificate.weight_gap <= HELD_PART * self.head.tol * abs(self.certificate.primal):
            return False
        self.point.theta = self.rule.caught_up(self.theta, self.s, self.ascent.noise)
        return True

    def settle(self) -> None:
        """Decide on a proven certificate: the head is done, or goes on from what the proof has shown."""
        if self.course.settle(self.certificate, self.a, self.theta, self.held):
            self.holding = Holding.NEVER
        if not self.done:
            self.review_due = self.head.shrinks
            self.seen.stale = True  # the next round shows the residuals as they are, before rows are chosen

    def return_to_best(self) -> Step:
        """The change that leads back to the best point so far."""
        best, a = self.course.best, self.point.a
        ids = np.flatnonzero(best.a != a)
        step = Step(ids, (best.a - a)[ids], best.a[ids])
        self.point.a, self.point.theta, self.rows.ids = (
            best.a.copy(),
            best.theta.copy(),
            np.empty(0, np.int64),
        )
        return step

    def result(self) -> tuple[Found, int]:
        """The point that a stage ends with, and the rounds that it took."""
        found = self.course.proved
        if (
            self.certificate.gap <= self.head.tol
        ):  # polished beyond the tolerance: the last point is the better one
            found = Found(self.certificate, self.a.copy(), self.theta)
        return found, min(
            self.rounds - self.course.first_round, self.head.max_rounds
        )  # going back to the best point is no step

    # -- other problems ----------------------------------------------------------------------------

    def next_stage(self) -> None:
        """Go on with the next bounds of the path, with all dual variables multiplied by one number."""
        self.enter_stage(self.ascent.best_stretch(self.stage + 1))
        self.point.theta = self.rule.new_stage(self.theta, self.s)

    def enter_stage(self, t: float) -> None:
        """Take the next bounds of the path, and t times the dual variables."""
        self.ascent.enter(self.stage + 1, t)
        self.stretch = t
        self.correction.stretched(t)
        self.course.start_stage()

    def widened(self, coefficients: np.ndarray, round_off: np.ndarray) -> None:
        """Go on with more precise statistics, whose basis functions are others.

        coefficients, round_off : see `__init__`.
        """
        self.ascent.coefficients, self.ascent.round_off, self.stretch = coefficients, round_off, 1.0
        self.correction = Correction(len(coefficients))
        self.course.widen()
        self.review_due = False
        self.seen.stale = True  # the next round shows the residuals as they are, before rows are chosen

    # -- the next step -----------------------------------------------------------------------------

    def next_working_set(self) -> np.ndarray:
        """Ids (q,) of the rows to move, or none after a weight step (rows are chosen once f knows the new
        weights).
        """
        if self.seen.stale:
            return np.empty(0, np.int64)
        chosen = self.rows.next(self.seen.summary, self.a, self.box, self.rounds, self.head.shrinks)
        if len(chosen) == 0:
            # Nothing can move, so b lies between the residuals of both sides.
            middle, intercept = self.seen.middle, self.intercept
            self.point.intercepts = intercept_candidates(middle, abs(middle - intercept), (intercept,))
        return chosen

    def steps(self, ids: np.ndarray, block: WorkingBlock) -> list[Step]:
        """The steps of all heads that move together: here of one."""
        return [self.step(ids, block)]

    def step(self, ids: np.ndarray, block: WorkingBlock) -> Step:
        """Solve the sub-problem of a working set; moves `a`, `theta` and the candidates for b, and returns
        the change.
        """
        if len(ids) == 0:
            return Step()
        self.rows.ids, self.point.before_step = ids, self.a.copy()
        seen, x = self.seen, self.a[ids]
        offsets, gradients = seen.summary.offsets_of(ids), seen.summary.gradients_of(ids)
        if self.held:
            residual = self.ascent.move_held(ids, block, offsets, gradients, seen.violation)
        else:
            residual = self.ascent.move(
                ids, block, offsets, gradients, seen.violation, seen.certificate.weight_gap
            )
        self.ascent.place_intercepts(ids, residual, seen.violation, seen.middle)
        self.point.before_step = None
        moved = self.a[ids]
        changed = moved != x
        return Step(ids[changed], (moved - x)[changed], moved[changed])
