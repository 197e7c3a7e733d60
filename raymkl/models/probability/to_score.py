"""Held-out decision values in the clothes of fitted classifiers, for scikit-learn's scorers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, log_expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if

from .calibration import Calibration
from .held_out import joined
from .splits import Splits


def probabilities_of(values: np.ndarray) -> np.ndarray:
    """(n, n_classes) from decision values (n,) of two classes, or (n, n_classes) of one-vs-rest, that are
    log odds.
    """
    if values.ndim == 1:
        return np.stack([expit(-values), expit(values)], axis=1)
    # Where all are far below 0, their sum is nothing and their ratios are those of exp(values).
    logs = log_expit(values)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


class HeldOutClassifier(ClassifierMixin, BaseEstimator):
    """Decision values of one set of rows in the clothes of a fitted classifier, for scikit-learn's scorers.

    classes_ : labels. values : (n,) or (n, n_classes) decision values of the rows that `predict` and
    `decision_function` are asked for.
    probabilities : whether the values are log odds. calibration : what makes probabilities of them otherwise,
    or None.
    """

    def __init__(
        self,
        classes: Any = None,
        values: Any = None,
        probabilities: bool = False,
        calibration: Calibration | None = None,
    ):
        self.classes = classes
        self.values = values
        self.probabilities = probabilities
        self.calibration = calibration
        self.classes_ = classes

    def with_values(self, parts: list[np.ndarray]) -> HeldOutClassifier:
        """A copy that answers with the decision values of all heads."""
        return HeldOutClassifier(
            self.classes, parts[0] if len(parts) == 1 else np.stack(parts, axis=1), self.probabilities
        )

    def __sklearn_is_fitted__(self) -> bool:
        return self.values is not None

    def fit(self, X: Any, y: Any) -> HeldOutClassifier:
        """Nothing to learn."""
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The stored values; X must be the rows they belong to."""
        return self.values

    def predict(self, X: Any) -> np.ndarray:
        """Labels (n,)."""
        return self.classes[
            (self.values > 0).astype(int) if self.values.ndim == 1 else self.values.argmax(axis=1)
        ]

    @available_if(lambda self: self.probabilities or self.calibration is not None)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes)."""
        return (
            probabilities_of(self.values)
            if self.calibration is None
            else self.calibration.probabilities(self.values)
        )


class CalibratedHeldOut:
    """What turns decision values of a fold, and of the folds within it that its probabilities are calibrated
    by, into a classifier to score.

    classes, method : labels, and how to calibrate. splits : the folds within, by places in `y` (n_train,) and
    `weights` (n_train,) or None.
    """

    def __init__(
        self, classes: np.ndarray, method: str, splits: Splits, y: np.ndarray, weights: np.ndarray | None
    ):
        self.classes, self.method, self.splits, self.y, self.weights = classes, method, splits, y, weights

    def with_values(self, parts: list[np.ndarray]) -> HeldOutClassifier:
        """A classifier that answers with the decision values of the first heads, and with probabilities by
        those of the others.
        """
        n_own = len(parts) // (1 + len(self.splits))
        values = joined(self.splits, parts[n_own:])
        values = values[:, 0] if n_own == 1 else values
        calibration = Calibration.fit(self.method, values, self.y, self.classes, self.weights)
        return HeldOutClassifier(
            self.classes, parts[0] if n_own == 1 else np.stack(parts[:n_own], axis=1), calibration=calibration
        )
