"""Losses and their dual side.

    primal term   sum_i loss(f(x_i), target_i) * bound_i
    dual term     sum_i (linear_i * a_i - ...)   over the box   lower_i <= a_i <= upper_i

`bound_i = C * sample_weight_i * class_weight_i`. A row with bound 0 has an empty box and no loss: it is masked out, and
its f is a held-out prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Loss:
    """What the engine needs of a loss; `targets` are +1/-1 for classification and numbers for regression."""

    name = ""

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


LOSSES = {"hinge": Hinge}
