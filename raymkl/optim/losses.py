"""Losses and their dual side.

    primal term   sum_i loss(f(x_i), target_i) * bound_i
    dual term     sum_i (linear_i * a_i - kink * |a_i|)   over the box   lower_i <= a_i <= upper_i

`bound_i = C * sample_weight_i * class_weight_i`. A row with bound 0 has an empty box and no loss: it is masked out, and
its f is a held-out prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Loss:
    """What the engine needs of a loss; `targets` are +1/-1 for classification and numbers for regression.

    kink : factor of |a_i| in the dual; 0 for losses whose dual is linear over the whole box.
    """

    name = ""

    @property
    def kink(self) -> float:
        return 0.0

    def value(self, f: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Loss of each row, elementwise; shapes broadcast."""
        raise TypeError(f"{type(self).__name__} has no value")

    def box(self, targets: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end (n,) of the signed dual variables."""
        raise TypeError(f"{type(self).__name__} has no box")

    def linear(self, targets: np.ndarray) -> np.ndarray:
        """Linear term (n,) of the dual."""
        raise TypeError(f"{type(self).__name__} has no linear term")

    def conjugate(self, a: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """bound_i * conj(-a_i / bound_i), elementwise; infinite outside the box."""
        raise TypeError(f"{type(self).__name__} has no conjugate")

    def dual_value(self, a: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> float:
        """-sum_i bound_i conj(-a_i / bound_i): the part of the dual objective that is not the norm."""
        return float(-np.sum(self.conjugate(a, targets, bounds)))


@dataclass(frozen=True)
class Hinge(Loss):
    """loss(f, y) = max(0, 1 - y f), with signed dual variables a_i = y_i alpha_i, 0 <= alpha_i <= bound_i."""

    name = "hinge"

    def value(self, f, targets):
        return np.maximum(0.0, 1.0 - targets * f)

    def box(self, targets, bounds):
        return np.minimum(0.0, targets * bounds), np.maximum(0.0, targets * bounds)

    def linear(self, targets):
        return np.asarray(targets, dtype=float)

    def conjugate(self, a, targets, bounds):
        alpha = targets * a
        slack = 1e-9 * np.maximum(bounds, 1e-300)
        return np.where((alpha >= -slack) & (alpha <= bounds + slack), -alpha, np.inf)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """loss(f, y) = max(0, |y - f| - epsilon), with dual variables -bound_i <= a_i <= bound_i and the dual term y_i a_i - epsilon |a_i|.

    a_i > 0 where f is too small (y_i - f > epsilon at the bound), a_i < 0 where it is too large, a_i = 0 inside the tube.
    """

    epsilon: float = 0.1
    name = "epsilon_insensitive"

    @property
    def kink(self):
        return self.epsilon

    def value(self, f, targets):
        return np.maximum(0.0, np.abs(targets - f) - self.epsilon)

    def box(self, targets, bounds):
        return -np.asarray(bounds, float), np.asarray(bounds, float)

    def linear(self, targets):
        return np.asarray(targets, dtype=float)

    def conjugate(self, a, targets, bounds):
        inside = np.abs(a) <= bounds + 1e-9 * np.maximum(bounds, 1e-300)
        return np.where(inside, self.epsilon * np.abs(a) - targets * a, np.inf)


LOSSES = {"hinge": Hinge, "epsilon_insensitive": EpsilonInsensitive}


def slopes(residual: np.ndarray, a: np.ndarray, kink: float) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the dual objective when each variable grows, and when it shrinks; they differ at a kink.

    residual : linear_i - f_i, the derivative without the kink. All (n,).
    """
    if kink == 0:
        return residual, residual
    return residual - np.where(a >= 0, kink, -kink), residual - np.where(a > 0, kink, -kink)
