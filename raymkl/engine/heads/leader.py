"""Heads that share one set of weights: for example all classes of one-vs-rest with a single theta.

    max_{a_1..a_H}  sum_h dual_value(a_h) - 1/2 dual_norm( sum_h s(a_h) ),     s_m(a) = a' K_m a

Every head keeps its own box, intercept and working set; given the weights, the heads do not know of each
other. The leader sums their quadratic terms, certifies them together, and takes the weight step once the SVMs
at these weights are solved well enough.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...optim.certificate import Certificate, certify
from ...optim.weights import CertifiedPoint, rule_of
from .ascent import STILL
from .head import HeadSolver
from .state import Course, Found, State

NO_VALUES = np.empty(0)  # dual variables are kept by the members


class Leader:
    """Leads `members`, which leave their weights and decisions to it; they are done together.

    To the coordinator it is what a head is that stands alone: `settle`, `exhausted`, `certificate`,
    `widened`, `last_stage`, `next_stage`.
    """

    def __init__(self, members: list[HeadSolver]):
        first = members[0]
        self.members, self.head = members, first.head
        self.theta, self.s = first.theta, first.s
        norm, step = first.head.norm, first.head.theta_step
        self.rule = rule_of(
            norm, first.rule.used, first.head.tol, self.theta, first.head.solver, step, shared=True
        )
        self.course = Course(first.head, first.course.patience)
        self.round_off = np.max([member.round_off for member in members], axis=0)
        self.certificate: Certificate | None = None
        self._hand_over_weights()

    @property
    def last_stage(self) -> bool:
        return self.members[0].last_stage

    @property
    def exhausted(self) -> bool:
        """Whether nothing but more precise statistics would help."""
        return self.course.state is State.EXHAUSTED

    def absorb_members(self) -> None:
        """After all members have absorbed a round: certify, decide, and take the weight step of the group."""
        self.course.rounds += 1
        self._certify()
        if self.course.remember(self.certificate, NO_VALUES, self.theta):
            for member in self.members:
                member.course.best = self._found(member)
        stale = any(member.correction.stale for member in self.members)
        if stale:  # a wrong gap may stand still above the tolerance, where nobody would ask for a proof
            self.course.forget_proofs()
        self.course.decide(self.certificate, satisfied=self.satisfied() or stale)
        moved = False
        if self.course.state is State.GOING_BACK:
            self.theta = self.course.best.theta.copy()
        elif self.course.state is State.WORKING:
            before, self.theta = self.theta, self.rule.after_round(self._certified_point())
            moved = bool(np.any(self.theta != before))
        for member in self.members:
            member.course.state = self.course.state
            member.seen.stale = member.seen.stale or moved
        if moved:
            self._hand_over_weights()

    def satisfied(self) -> bool:
        """Whether the gap is small enough to ask for a proof."""
        return self.certificate.gap <= self.head.tol

    def settle(self) -> None:
        """Decide for all members, once each has its proof."""
        self._certify()
        before = self.course.proved
        self.course.settle(self.certificate, NO_VALUES, self.theta)
        for member in self.members:
            if self.course.proved is not before:
                member.course.proved = self._found(member)
            member.course.best, member.course.state = member.course.proved, self.course.state
            # Where they go on, the next round shows the residuals as they are, before rows are chosen.
            member.seen.stale = not self.course.is_over

    def widened(self) -> None:
        """Go on with more precise statistics, of which the members have been told already."""
        self.round_off = np.max([member.round_off for member in self.members], axis=0)
        self.course.widen()
        self._hand_over_weights()

    def next_stage(self) -> None:
        """All members go on with their next bounds."""
        for member in self.members:
            member.next_stage()
        self.theta = self.rule.new_stage(self.theta, self.s)
        self._hand_over_weights()
        self.course.start_stage()

    def _hand_over_weights(self) -> None:
        for member in self.members:
            member.point.theta = self.theta.copy()

    def _certify(self) -> None:
        """One certificate for all members, from what each has found of itself."""
        members = self.members
        self.s = np.sum([member.s for member in members], axis=0)
        losses = sum(member.seen.losses.min() for member in members)
        self.certificate = certify(
            self.head.norm, self.theta, self.s, self._dual_value(), np.zeros(1), np.array([losses])
        )
        for member in members:
            member.seen.certificate = replace(self.certificate, intercept=member.intercept)

    def _dual_value(self) -> float:
        return float(np.sum([member.seen.dual_value for member in self.members]))

    def _certified_point(self) -> CertifiedPoint:
        members = self.members
        a = np.concatenate([member.a for member in members])
        still = max(member.violation for member in members) <= STILL * members[0].box.unit
        return CertifiedPoint(
            self.theta, self.s, self.round_off * float(a @ a), self.certificate, self._dual_value(), still
        )

    def _found(self, member: HeadSolver) -> Found:
        return Found(member.certificate, member.a.copy(), self.theta.copy())
