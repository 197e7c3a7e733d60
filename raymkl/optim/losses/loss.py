"""What the engine asks of a loss, and its part of the dual on some rows.

    primal   sum_i c_i loss(f_i, y_i)          dual   sum_i term_i(a_i),   term_i(a) = -c_i conj(-a / c_i),
             lower_i <= a_i <= upper_i

`c_i = C * sample_weight_i * class_weight_i` are the bounds. A row with bound 0 has an empty box and no loss:
it is masked out, and its f is a held-out prediction.

The sub-problems take terms of two kinds:

    boxed    term_i(a) = linear_i a - kink |a| - ridge_i a^2 / 2   over a box, possibly without ends
    smooth   anything strictly concave and differentiable between the ends of the box, where a dual variable
             never lies
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Loss:
    """A loss. Targets are +1/-1 for classification and numbers for regression.

    kink : factor of |a_i| in the dual; 0 where the dual has no kink at zero. is_curved : whether the slope of
    a term depends on a.
    is_smooth : of which kind the terms are; then every row is a support vector, and rounds are passes over
    blocks of rows.
    is_joint : whether the loss of a row is that of several heads together, whose dual variables sum to zero
    in every row (see `joint`).
    """

    name = ""
    is_curved = False
    is_smooth = False
    is_joint = False

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
        """Linear term (n,) of the dual; the size of these numbers is that of f."""
        return np.asarray(targets, dtype=float)

    def slope(self, a: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Derivative (n,) of every term at a, without the kink: the f at which a row would want this very
        dual variable.
        """
        if not self.is_curved:
            return self.linear(targets)
        return self.linear(targets) - a * self.curvature(a, targets, bounds)

    def curvature(self, a: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Minus the second derivative (n,) of every term; zero where a row is masked."""
        return reciprocal(bounds) if self.is_curved else np.zeros(len(bounds))

    def at_slope(self, u: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Dual variables (n,) of smooth terms with a given slope u (n,)."""
        raise TypeError(f"{type(self).__name__} is not smooth")

    def least_curvature(self, bounds: np.ndarray) -> np.ndarray:
        """The smallest curvature (n,) that the smooth terms have anywhere."""
        return reciprocal(bounds)

    def conjugate(self, a: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """bound_i * conj(-a_i / bound_i), elementwise: minus the term; infinite outside the box."""
        lower, upper = self.box(targets, bounds)
        slack = 1e-9 * np.maximum(bounds, 1e-300)
        term = self.linear(targets) * a - self.kink * np.abs(a)
        if self.is_curved:
            term = term - 0.5 * a * a * reciprocal(bounds)
        return np.where((a >= lower - slack) & (a <= upper + slack), -term, np.inf)

    def start(self, targets: np.ndarray, bounds: np.ndarray, total: float) -> np.ndarray | None:
        """Feasible dual variables (n,) to begin with, where zero is not one of them or not a good one; else
        None.
        """
        return None


class Terms:
    """The terms of a loss on some rows.

    targets, bounds : (n,), see above. lower, upper : (n,) the box. linear : (n,).
    """

    def __init__(self, loss: Loss, targets: np.ndarray, bounds: np.ndarray):
        self.loss, self.targets, self.bounds = loss, targets, bounds
        self.lower, self.upper = loss.box(targets, bounds)
        self.linear = loss.linear(targets)

    def __len__(self) -> int:
        return len(self.targets)

    def of(self, rows: np.ndarray) -> Terms:
        """The terms of some of the rows."""
        part = object.__new__(Terms)
        part.loss = self.loss
        for name in ("targets", "bounds", "lower", "upper", "linear"):
            setattr(part, name, getattr(self, name)[rows])
        return part

    @property
    def kink(self) -> float:
        return self.loss.kink

    def slope(self, a: np.ndarray) -> np.ndarray:
        """Derivative (n,) of every term at a, without the kink."""
        return self.loss.slope(a, self.targets, self.bounds) if self.loss.is_curved else self.linear

    def curvature(self, a: np.ndarray) -> np.ndarray:
        """Minus the second derivative (n,) of every term."""
        return self.loss.curvature(a, self.targets, self.bounds)

    def at_slope(self, u: np.ndarray) -> np.ndarray:
        """Dual variables (n,) of smooth terms with a given slope u (n,)."""
        return self.loss.at_slope(u, self.targets, self.bounds)

    def residual(self, a: np.ndarray, f: np.ndarray, intercept: float) -> np.ndarray:
        """Derivative (n,) of the dual objective, without the kink; equal for all rows at the optimum, minus
        the intercept there.

        Of smooth terms it is the way that is left to go, from a to the dual variable that belongs to f +
        intercept, in the same units: a variable near the end of its box has a slope far away from where it
        should be, and hardly a way to go.
        """
        if not self.loss.is_smooth:
            return self.slope(a) - f
        return intercept + (self.at_slope(f + intercept) - a) * self.loss.least_curvature(self.bounds)

    def voices(self, a: np.ndarray) -> np.ndarray:
        """(n,) how much every row has to say about b: its bound, so that merging equal rows changes nothing,
        or what b moves there.
        """
        return 1.0 / np.maximum(self.curvature(a), 1e-300) if self.loss.is_smooth else self.bounds

    def value(self, a: np.ndarray) -> float:
        """Sum of all terms: the part of the dual objective that is not the norm."""
        return float(-np.sum(self.loss.conjugate(a, self.targets, self.bounds)))

    def losses(self, f: np.ndarray) -> np.ndarray:
        """Loss (n,) of every row, without its bound."""
        return self.loss.value(f, self.targets)


def slopes(residual: np.ndarray, a: np.ndarray, kink: float) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the dual objective when each variable grows, and when it shrinks; they differ at a kink.

    residual : slope_i - f_i, the derivative without the kink. All (n,).
    """
    if kink == 0:
        return residual, residual
    return residual - np.where(a >= 0, kink, -kink), residual - np.where(a > 0, kink, -kink)


def reciprocal(bounds: np.ndarray) -> np.ndarray:
    """1 / bounds (n,), and zero for masked rows."""
    return np.divide(1.0, bounds, out=np.zeros(len(bounds)), where=bounds > 0)


def unbounded(bounds: np.ndarray) -> np.ndarray:
    """(n,) infinity, and zero for masked rows."""
    return np.where(bounds > 0, np.inf, 0.0)
