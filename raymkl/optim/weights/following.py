"""Rules whose weights follow the dual variables: they are the gradient of a norm at every dual point."""

from __future__ import annotations

import numpy as np

from ..norms import Norm
from ..subproblem import line_search, weight_response
from .multipliers import Multipliers
from .rules import WeightRule

# Dual exponents up to which weights that follow may be held for a while: beyond, they answer to little
# changes.
LARGEST_HELD_EXPONENT = 4.0
# Quadratic terms of kernels that are zero, as a part of the largest one, for norms that take no zeros.
NOTHING = 1e-30


class Follow(WeightRule):
    """theta is the gradient of `followed` at every dual point."""

    ascends = True

    @property
    def followed(self) -> Norm:
        """The norm whose gradient the weights are."""
        return self.norm

    @property
    def repeats(self) -> bool:
        return not self.norm.fixed and self.used.sum() != 1

    @property
    def may_be_held(self) -> bool:
        exponents = self.norm.exponents
        return self.norm.fixed or (
            len(exponents) > 0 and all(1.0 <= k <= LARGEST_HELD_EXPONENT for k in exponents)
        )

    def before_step(self, theta, s, noise):
        self.set_floor(s, noise)
        return self.gradient(s, self.followed) if s.max(initial=0.0) > 0 else theta

    def response(self, s, gradients, coefficients):
        if not s.max(initial=0.0) > 0:
            return None
        smooth = s + self.floor
        if not self.followed.takes_zeros:
            # Those of kernels that are zero: so small that they have no part in the norm, so large that none
            # of its slopes overflows.
            smooth = np.where(self.used, smooth, NOTHING * smooth.max())
        return weight_response(self.followed, smooth, gradients, coefficients, 2.0 * self.floor)

    def step_length(self, gain, s, s1, s2):
        return line_search(self.followed, gain, s, s1, s2, self.floor)

    def after_step(self, theta, s, t, weight_gap):
        return self.gradient(s, self.followed)

    def after_round(self, point):
        # A start without weights, as that of another problem whose kernels were not worth their prices: no
        # step would ever renew them.
        return self.gradient(point.s, self.norm) if point.still and not point.theta.any() else point.theta

    def caught_up(self, theta, s, noise):
        self.set_floor(s, noise)
        # Half-way in logarithms: dual variables answer to weights that go all the way by as much in the other
        # direction.
        return self.norm.project(np.sqrt(theta * self.gradient(s, self.followed)))


class FollowMultipliers(Follow):
    """theta is the gradient of a calmer norm, whose reference and exponent change between the rounds."""

    ascends = False
    repeats = False
    may_be_held = False

    def __init__(self, norm: Norm, used: np.ndarray, tol: float, theta: np.ndarray):
        super().__init__(norm, used, tol)
        self.multipliers = Multipliers(norm, theta, used, tol)

    @property
    def followed(self) -> Norm:
        return self.multipliers.followed

    def after_step(self, theta, s, t, weight_gap):
        self.multipliers.after_step(t)
        return self.gradient(s, self.followed)

    def to_certify(self, point):
        return self.multipliers.after_round(point.certificate, point.theta, point.gram)

    def after_round(self, point):
        # Where no dual variable can move there are no steps, and the weights of a new reference would never
        # be seen.
        return self.gradient(point.s, self.followed) if point.still else point.theta

    def new_stage(self, theta, s):
        self.multipliers.new_bounds(theta)
        return self.gradient(s, self.followed)
