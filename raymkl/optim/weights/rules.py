"""The signature of all rules by which weights move; see the room for the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..certificate import Certificate
from ..norms import Norm
from .stride import Stride, fixed_point, way


class CertifiedPoint(NamedTuple):
    """A point as a round has shown it.

    theta, s : (M,) weights and quadratic terms. noise : (M,) round-off of s. dual_value : the part of the
    dual objective that is not the norm. still : whether no dual variable can move at these weights. gram :
    returns (M, M) inner products of the kernels' parts of f; a rule that is shared by several heads does
    without it.
    """

    theta: np.ndarray
    s: np.ndarray
    noise: np.ndarray
    certificate: Certificate
    dual_value: float
    still: bool
    gram: Callable[[], np.ndarray] | None = None


class WeightRule:
    """The signature of all rules; as it stands here the weights never move.

    ascends : whether every step increases the dual objective itself, so that rounds without progress mean
    something.
    repeats : whether a sub-problem of all rows is worth solving again, because the weights answer to its
    solution.
    may_be_held : whether the weights answer so calmly that they may stay for a while near the end.
    """

    ascends = False
    repeats = False
    may_be_held = False

    def __init__(self, norm: Norm, used: np.ndarray, tol: float):
        """norm : over the kernels.

        used : (M,) kernels that are not zero on all rows. tol : relative gap to reach.
        """
        self.norm, self.used, self.tol = norm, used, tol
        self.floor = np.zeros(len(used))  # under the quadratic terms from which weights are made

    def before_step(self, theta: np.ndarray, s: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Weights with which a sub-problem is stated. s, noise : (M,) quadratic terms and their round-off."""
        return theta

    def response(self, s: np.ndarray, gradients: np.ndarray, coefficients: np.ndarray) -> np.ndarray | None:
        """How the weights will answer, as a factor of the Hessian (see `weight_response`); None: they stay
        during the sub-problem.

        gradients : (q, R) of the working set. coefficients : (M, R) of the kernels over the basis functions.
        """
        return None

    def step_length(
        self, gain: float | Callable[[float], float], s: np.ndarray, s1: np.ndarray, s2: np.ndarray
    ) -> float:
        """Part t in [0, 1] of a step to take, along which the quadratic terms are s + t s1 + t^2 s2 (see
        `line_search`).
        """
        return 1.0

    def after_step(self, theta: np.ndarray, s: np.ndarray, t: float, weight_gap: float) -> np.ndarray:
        """Weights after a step of length t that led to s.

        weight_gap : the weights' part of the gap, in the last certificate.
        """
        return theta

    def to_certify(self, point: CertifiedPoint) -> np.ndarray | None:
        """Weights whose certificate is wanted before anything else is decided; None: go on with the present
        one.
        """
        return None

    def after_round(self, point: CertifiedPoint) -> np.ndarray:
        """Weights to go on with; other ones than before are a step of the weights alone."""
        return point.theta

    def new_stage(self, theta: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Weights to begin with once the bounds of the dual variables are others; s : (M,) at the point to
        begin with.
        """
        return theta

    def caught_up(self, theta: np.ndarray, s: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Weights that were held, and now move towards the ones that belong to s."""
        return theta

    def gradient(self, s: np.ndarray, norm: Norm) -> np.ndarray:
        """The gradient of a norm at s + floor, (M,)."""
        return np.where(self.used, norm.weights(s + self.floor), 0.0)

    def stepped(self, stride: Stride, theta: np.ndarray, s: np.ndarray, weight_gap: float) -> np.ndarray:
        """theta (M,) after a step of the fixed point; weights in a ball stay in it whatever the quadratic
        terms are.
        """
        s = s if self.norm.has_ball else s + self.floor
        if not theta.max(initial=0.0) > 0:  # no kernel was worth its price
            return self.gradient(s, self.norm)
        length = (
            stride.along(theta * s, way(self.norm, theta, s)[1])
            if self.norm.damped
            else stride.after(weight_gap)
        )
        return fixed_point(self.norm, theta, s, self.used, length)

    def set_floor(self, s: np.ndarray, noise: np.ndarray) -> None:
        """Terms below their round-off mean nothing. Where weights are not bounded (p > 2, say) a vanishing
        term asks for an infinite one; a floor that changes the dual penalty by less than half the tolerance,
        for all kernels together, keeps it finite.
        """
        least = self.norm.floor(s, self.used, self.tol)
        self.floor = np.where(
            self.used & np.logical_not(self.norm.trusts_small_terms), np.maximum(least, noise), 0.0
        )


class Led(WeightRule):
    """theta is that of a group of heads."""
