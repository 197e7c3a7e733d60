"""Steps of the fixed point, from theta towards the weights that are optimal for the lengths ||w_m||."""

from __future__ import annotations

import numpy as np

from ..norms import Norm

# Steps of the fixed point are stretched up to this factor, and no weight falls below this part of the
# largest: zero could never return.
LONGEST_STRIDE = 32.0
SMALLEST = 1e-12
# Steps towards weights from which a full step may lead astray: their first length, the least and the largest.
DAMPED = (0.5, 1.0 / 64.0, 2.0)
# A new stage begins with every weight at least this part of the largest one.
LIFTED = 1e-2


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
