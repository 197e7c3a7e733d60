"""Rules whose weights move between sub-problems: after each of them, or once the SVM at them is solved."""

from __future__ import annotations

import numpy as np

from ..norms import Norm
from .cutting_planes import CuttingPlanes
from .rules import CertifiedPoint, WeightRule
from .stride import lifted, stride_of

# The wrapper solves each SVM to this part of the tolerance.
FULL_PRECISION = 0.1
# How often a rule tries whether it can do without the idle kernels.
IDLE_TRIALS = 3
# Cutting planes that move no weight by more than this have come to their end.
STANDS_STILL = 1e-9


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
