"""How the weights of the kernels move while the dual variables are found: rules with one signature.

    max_a  dual_value(a) - 1/2 dual_norm(s(a)),    s_m = a' K_m a,    at the optimum theta = gradient of
           dual_norm at s

* Follow             theta is the gradient of the dual norm at every dual point; the sub-problem knows how
                     theta will answer and a line search on the exact dual makes every step an ascent step
                     (chunking, p > 1).
* FollowMultipliers  the same with a calmer norm in place of the dual norm that is renewed until both agree
                     (chunking, "auto", p at or very near 1; see `multipliers`).
* FixedPoint         theta is made anew from ||w_m|| after every sub-problem (chunking, "analytic", p at or
                     very near 1).
* Hold               theta stays until the SVM at this theta is solved well enough, then takes an analytic
                     step (`HoldAnalytic`) or one of cutting planes (`HoldCuts`). Wrapper: solved to full
                     precision; else until theta is the larger part of the gap.
* Led                theta is that of a group of heads, whose leader has a rule of its own.

A step asks a rule for `before_step`, `response`, `step_length`, `after_step` in this order; a round for
`to_certify`, then `after_round`; a problem with other bounds for `new_stage`. Every one of them takes and
returns weights as arrays (M,) and changes none in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .certificate import Certificate
from .cutting_planes import CuttingPlanes
from .multipliers import LARGEST_FOLLOWED_EXPONENT, Multipliers
from .norms import Norm
from .subproblem import line_search, weight_response

# Dual exponents up to which weights that follow may be held for a while: beyond, they answer to little
# changes.
LARGEST_HELD_EXPONENT = 4.0
# The wrapper solves each SVM to this part of the tolerance.
FULL_PRECISION = 0.1
# Steps of the fixed point are stretched up to this factor, and no weight falls below this part of the
# largest: zero could never return.
LONGEST_STRIDE = 32.0
SMALLEST = 1e-12
# Steps towards weights from which a full step may lead astray: their first length, the least and the largest.
DAMPED = (0.5, 1.0 / 64.0, 2.0)
# Quadratic terms of kernels that are zero, as a part of the largest one, for norms that take no zeros.
NOTHING = 1e-30
# How often a rule tries whether it can do without the idle kernels.
IDLE_TRIALS = 3
# Cutting planes that move no weight by more than this have come to their end.
STANDS_STILL = 1e-9
# A new stage begins with every weight at least this part of the largest one.
LIFTED = 1e-2


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


class FixedPoint(WeightRule):
    """theta takes a step of the fixed point after every sub-problem."""

    def __init__(self, norm: Norm, used: np.ndarray, tol: float):
        super().__init__(norm, used, tol)
        self.stride = stride_of(norm)

    def before_step(self, theta, s, noise):
        self.set_floor(s, noise)
        return theta

    def after_step(self, theta, s, t, weight_gap):
        return self.stepped(self.stride, theta, s, weight_gap)

    def new_stage(self, theta, s):
        self.stride = stride_of(self.norm)
        return lifted(self.norm, theta, self.used)


class HoldAnalytic(WeightRule):
    """theta stays until the SVM is solved well enough, then takes a step of the fixed point, or becomes the
    gradient where that is sure to increase the dual (p > 2).
    """

    def __init__(self, norm: Norm, used: np.ndarray, tol: float, full: bool):
        """full : solve to full precision between two steps of the weights (wrapper)."""
        super().__init__(norm, used, tol)
        self.full, self.stride, self.idle_left = full, stride_of(norm), IDLE_TRIALS

    def to_certify(self, point):
        # At the end, kernels that the norm has no use for lose what the fixed point has left of them, if the
        # gap allows for it.
        if point.certificate.gap > self.tol or self.idle_left <= 0:
            return None
        theta = self.norm.without_idle(point.theta, point.s, np.inf)
        if np.array_equal(theta, point.theta):
            return None
        self.idle_left -= 1
        return theta

    def after_round(self, point):
        certificate, precise = point.certificate, self._precise(point)
        enough = precise if self.full else max(precise, 0.5 * certificate.weight_gap)
        if (certificate.svm_gap > enough and not point.still) or self.norm.fixed:
            return point.theta
        return self._step(point)

    def _precise(self, point: CertifiedPoint) -> float:
        """The dual variables' part of the gap at full precision."""
        return FULL_PRECISION * self.tol * abs(point.certificate.primal)

    def _step(self, point: CertifiedPoint) -> np.ndarray:
        self.set_floor(point.s, point.noise)
        if self.norm.rises:
            return self.gradient(point.s, self.norm)
        theta = self.stepped(self.stride, point.theta, point.s, point.certificate.weight_gap)
        return self.norm.without_idle(theta, point.s, self._precise(point))

    def new_stage(self, theta, s):
        self.stride, self.idle_left = stride_of(self.norm), IDLE_TRIALS
        return theta if self.norm.rises or self.norm.fixed else lifted(self.norm, theta, self.used)


class HoldCuts(HoldAnalytic):
    """theta stays until the SVM is solved well enough, then minimises the largest of all cuts seen so far."""

    def __init__(self, norm: Norm, used: np.ndarray, tol: float, full: bool, ends_analytic: bool):
        """ends_analytic : go on with the fixed point where cuts have come to their end."""
        super().__init__(norm, used, tol, full)
        self.ends_analytic = ends_analytic
        self.planes: CuttingPlanes | None = CuttingPlanes(norm, len(used))

    def _step(self, point):
        if self.planes is None:
            return super()._step(point)
        self.planes.add(point.dual_value, 0.5 * point.s)
        theta = self.planes.step()
        solved = point.certificate.svm_gap <= FULL_PRECISION * self._precise(point) or point.still
        if self.ends_analytic and solved and np.abs(theta - point.theta).max() <= STANDS_STILL:
            # Cuts tell weights apart by the objective, to its round-off; the rest is left to the fixed point.
            self.planes = None
            return super()._step(point)
        return theta

    def new_stage(self, theta, s):
        self.stride, self.planes = (
            stride_of(self.norm),
            CuttingPlanes(self.norm, len(self.used)),
        )  # cuts belong to the old bounds
        return theta


class Stride:
    """Length of the steps of the fixed point: they grow while the weights' part of the gap shrinks.

    first, least, most : lengths to begin with, and to stay between.
    """

    def __init__(self, first: float = 1.0, least: float = 1.0, most: float = LONGEST_STRIDE) -> None:
        self.length, self.least, self.most = first, least, most
        self.last_gap, self.last_change = np.inf, None

    def after(self, weight_gap: float) -> float:
        """The length of the next step. weight_gap : the weights' part of the gap now."""
        self.length = (
            min(1.3 * self.length, self.most)
            if weight_gap <= self.last_gap
            else max(0.5 * self.length, self.least)
        )
        self.last_gap = weight_gap
        return self.length

    def along(self, parts: np.ndarray, change: np.ndarray) -> float:
        """The same where no part of the gap need shrink: steps grow while they lead the same way, and shrink
        once they lead back.

        change : (M,) where the step leads. parts : (M,) what the entries count.
        """
        if self.last_change is not None:
            same = float(parts @ (change * self.last_change)) > 0
            self.length = min(1.3 * self.length, self.most) if same else max(0.5 * self.length, self.least)
        self.last_change = change
        return self.length


def stride_of(norm: Norm) -> Stride:
    """Lengths of steps with which the weights of a norm arrive."""
    return Stride(*DAMPED) if norm.damped else Stride()


def way(norm: Norm, theta: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of theta, and what they lack of those of the weights to go towards: both (M,)."""
    target = norm.towards(theta, s)
    with np.errstate(divide="ignore"):
        now, then = (
            np.log(np.maximum(theta, SMALLEST * theta.max())),
            np.log(np.maximum(target, SMALLEST * target.max())),
        )
    return now, then - now


def fixed_point(norm: Norm, theta: np.ndarray, s: np.ndarray, used: np.ndarray, stride: float) -> np.ndarray:
    """theta (M,) moved towards the weights that are optimal for the lengths ||w_m|| = theta_m sqrt(s_m), or
    for s (`Norm.towards`).

    The step is taken in logarithms and stretched: log theta + stride * (log target - log theta), projected to
    the boundary of the ball, if there is one.
    """
    now, change = way(norm, theta, s)
    logs = now + stride * change
    if not norm.has_ball:
        return np.where(used, np.exp(np.maximum(logs, logs.max() + np.log(SMALLEST))), 0.0)
    return np.where(used, norm.project(np.exp(np.maximum(logs - norm.largest(logs), np.log(SMALLEST)))), 0.0)


def lifted(norm: Norm, theta: np.ndarray, used: np.ndarray) -> np.ndarray:
    """theta (M,) for a new stage. Steps of the fixed point are factors: a weight that has come down to
    nothing would take so many of them to return that they grow too long and overshoot.
    """
    return np.where(used, norm.project(np.maximum(theta, LIFTED * theta.max())), 0.0)


def rule_of(
    norm: Norm,
    used: np.ndarray,
    tol: float,
    theta: np.ndarray,
    solver: str,
    theta_step: str,
    shared: bool = False,
) -> WeightRule:
    """The rule for weights that begin at theta (M,).

    solver, theta_step : as the estimators take them. shared : by several heads.
    """
    if solver == "wrapper" or theta_step == "cutting_plane" or shared:
        full, ends_analytic = solver == "wrapper", theta_step == "auto"
        # At p = 1 cuts are quicker than the fixed point.
        if theta_step == "cutting_plane" or (
            ends_analytic and norm.has_cutting_planes and norm.selects == "kernels"
        ):
            return HoldCuts(norm, used, tol, full, ends_analytic)
        return HoldAnalytic(norm, used, tol, full)
    if max(norm.exponents, default=1.0) <= LARGEST_FOLLOWED_EXPONENT:
        return Follow(norm, used, tol)
    return FollowMultipliers(norm, used, tol, theta) if theta_step == "auto" else FixedPoint(norm, used, tol)
