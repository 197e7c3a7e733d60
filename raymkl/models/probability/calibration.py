"""Probabilities from decision values, fitted to decision values of rows that were held out.

    sigmoid     P(y = k | f) = 1 / (1 + exp(-(slope f + offset)))        (Platt's, with targets near 0 and 1)
    isotonic    P(y = k | f) = the least-squares fit among all functions that never fall

One curve per class, each fitted to "this class or another one"; probabilities of three and more classes are
divided by their sum. The same as scikit-learn's `CalibratedClassifierCV(ensemble=False)`.

References
----------
Platt: Probabilistic outputs for support vector machines, 1999. Lin, Lin, Weng: A note on Platt's
probabilistic outputs, 2007. Zadrozny, Elkan: Transforming classifier scores into accurate multiclass
probability estimates, 2002.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

METHODS = ("sigmoid", "isotonic")
# Newton steps, and the length of a step, relative to the curve's own numbers, that is the last.
NEWTON_STEPS = 100
SETTLED = 1e-12
# Times that a step is halved.
HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Calibration:
    """Curves that turn decision values into probabilities.

    method : "sigmoid" or "isotonic". curves : one for two classes, else one per class; of "sigmoid" (slope,
    offset), of "isotonic" decision values (k,) and probabilities (k,) at them, between which they are linear
    and beyond which they are constant.
    """

    method: str
    curves: list[tuple[Any, Any]]

    @classmethod
    def fit(
        cls,
        method: str,
        values: np.ndarray,
        y: np.ndarray,
        classes: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Calibration:
        """values : (n,) of two classes or (n, n_classes), of rows held out.

        y : (n,) labels. weights : (n,) or None.
        """
        columns = values[:, None] if values.ndim == 1 else values
        positives = classes[1:] if len(classes) == 2 else classes
        fitted = {"sigmoid": fit_sigmoid, "isotonic": fit_isotonic}[method]
        return cls(
            method, [fitted(f, y == label, weights) for f, label in zip(columns.T, positives, strict=True)]
        )

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """(n, n_classes) from decision values (n,) or (n, n_classes)."""
        columns = values[:, None] if values.ndim == 1 else values
        found = np.stack(
            [self._at(f, *curve) for f, curve in zip(columns.T, self.curves, strict=True)], axis=1
        )
        if found.shape[1] == 1:
            return np.concatenate([1.0 - found, found], axis=1)
        total = found.sum(axis=1, keepdims=True)
        # No class at all is as likely as any other.
        return np.divide(found, total, out=np.full_like(found, 1.0 / found.shape[1]), where=total > 0)

    def _at(self, f: np.ndarray, first: Any, second: Any) -> np.ndarray:
        return expit(first * f + second) if self.method == "sigmoid" else np.interp(f, first, second)

    def check(self, n_curves: int) -> None:
        """Raise ValueError for curves that cannot be those of a model with so many decision values per row,
        as a file may have them.
        """
        if self.method not in METHODS or not isinstance(self.curves, list) or len(self.curves) != n_curves:
            raise ValueError("the parts of the model do not fit together: its calibration")
        for curve in self.curves:
            first, second = (np.asarray(part) for part in curve)
            ends = {"sigmoid": 0, "isotonic": 1}[self.method]
            fine = (
                first.ndim == second.ndim == ends
                and first.shape == second.shape
                and first.dtype.kind == second.dtype.kind == "f"
            )
            if not fine or first.size == 0 or not (np.isfinite(first).all() and np.isfinite(second).all()):
                raise ValueError("the parts of the model do not fit together: its calibration")
            if ends and (np.any(np.diff(first) <= 0) or second.min() < 0 or second.max() > 1):
                raise ValueError("the parts of the model do not fit together: its calibration")


def fit_isotonic(
    f: np.ndarray, positive: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Decision values and probabilities (k,) at the corners of the curve. f : (n,). positive : (n,) bool."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(out_of_bounds="clip").fit(f, positive.astype(float), weights)
    return np.asarray(fitted.X_thresholds_, float), np.clip(np.asarray(fitted.y_thresholds_, float), 0.0, 1.0)


def fit_sigmoid(f: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    """Slope and offset of the curve, by Newton's method. f : (n,). positive : (n,) bool.

        min_{slope, offset}  sum_i w_i (log(1 + exp(z_i)) - t_i z_i),    z_i = slope f_i + offset

    with t_i = (n_+ + 1) / (n_+ + 2) for positive rows and 1 / (n_- + 2) for others, n_+ and n_- being their
    sums of weights.
    """
    w = np.ones(len(f)) if weights is None else np.asarray(weights, float)
    above, below = float(w[positive].sum()), float(w[~positive].sum())
    targets = np.where(positive, (above + 1.0) / (above + 2.0), 1.0 / (below + 2.0))
    # In units in which f is centred and of size one, both numbers count alike.
    center = float(np.average(f, weights=w))
    unit = float(np.sqrt(np.average((f - center) ** 2, weights=w)))
    design = np.stack([(f - center) / unit if unit > 0 else np.zeros(len(f)), np.ones(len(f))])
    at = np.array([0.0, np.log((above + 1.0) / (below + 1.0))])

    def value(at: np.ndarray) -> float:
        z = at @ design
        return float(w @ (np.logaddexp(0.0, z) - targets * z))

    best = value(at)
    for _ in range(NEWTON_STEPS):
        share = expit(at @ design)
        curvature = w * share * (1.0 - share)
        hessian = (design * curvature) @ design.T
        gradient = design @ (w * (share - targets))
        # Where all f are alike the slope makes no difference, and stays.
        step = np.linalg.solve(hessian + 1e-12 * max(float(np.trace(hessian)), 1e-300) * np.eye(2), gradient)
        for _ in range(HALVINGS):
            lower = value(at - step)
            if lower <= best:
                break
            step = step / 2.0
        else:
            break
        at, best = at - step, lower
        if np.abs(step).max() <= SETTLED * (1.0 + np.abs(at).max()):
            break
    slope = at[0] / unit if unit > 0 else 0.0
    return float(slope), float(at[1] - slope * center)
