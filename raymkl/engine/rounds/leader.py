"""Heads that share one set of weights: for example all classes of one-vs-rest with a single theta.

    max_{a_1..a_H}  sum_h dual_value(a_h) - 1/2 dual_norm( sum_h s(a_h) ),     s_m(a) = a' K_m a

Every head keeps its own box, intercept and working set; given the weights, the heads do not know of each other. The leader sums
their quadratic terms, certifies them together, and takes the weight step once the SVMs at these weights are solved well enough.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...optim.certificate import certify
from .head import HeadSolver


class Leader(HeadSolver):
    """Leads `members`, whose rule becomes "led"; they are done together."""

    def __init__(self, members: list[HeadSolver]):
        first = members[0]
        super().__init__(
            first.head, first.spread, first.size, first.new, np.max([member.round_off for member in members], axis=0), first.patience
        )
        self.members, self.rule = members, "hold"
        for member in members:
            member.rule, member.theta = "led", self.theta.copy()

    def absorb_members(self) -> None:
        """After all members have absorbed a round: certify, decide, and take the weight step of the group."""
        self.rounds += 1
        self._certify_members()
        self._remember()
        self._decide()
        self.weights_moved = False
        if self.going_back:
            self.theta = self.best[2].copy()
        elif not self.ready:
            self._held_weight_step(self.dual_value)
        for member in self.members:
            member.ready, member.going_back = self.ready, self.going_back
            if self.weights_moved:
                member.theta, member.weights_moved = self.theta.copy(), True

    @property
    def dual_value(self) -> float:
        return float(np.sum([member.dual_value for member in self.members]))

    def _certify_members(self) -> None:
        """One certificate for all members, from what each has found of itself."""
        members = self.members
        self.s = np.sum([member.s for member in members], axis=0)
        losses = sum(member.losses.min() for member in members)
        self.certificate = certify(self.head.norm, self.theta, self.s, self.dual_value, np.zeros(1), np.array([losses]))
        self.violation = max(member.violation for member in members)
        self.a = np.concatenate([member.a for member in members])
        for member in members:
            member.certificate = replace(self.certificate, intercept=member.intercept)

    def settle(self) -> None:
        """Decide for all members, once each has its proof."""
        self._certify_members()
        before = self.proved
        super().settle()
        for member in self.members:
            if self.proved is not before:
                member.proved = (member.certificate, member.a.copy(), self.theta.copy())
            member.best = member.proved
            member.done, member.ready, member.weights_moved = self.done, self.ready, self.weights_moved

    def _remember(self) -> None:
        before = self.best
        super()._remember()
        if self.best is not before:
            for member in self.members:
                member.best = (replace(self.certificate, intercept=member.intercept), member.a.copy(), self.theta.copy())

    def widened(self, spread: np.ndarray, round_off: np.ndarray) -> None:
        """The members have been told already, each with its own round-off."""
        super().widened(spread, round_off)
        for member in self.members:
            member.theta = self.theta.copy()

    def next_stage(self) -> None:
        """All members go on with their next bounds."""
        for member in self.members:
            member.next_stage()
        self.stage += 1
        self._set_bounds()
        self._renew_weights()
        for member in self.members:
            member.theta = self.theta.copy()
        self._start_stage()
