"""Scores over decision values, averaged over the classes.

    macro_auc                  mean over classes c of the area under the ROC curve of f_c against "is of class
                               c"
    macro_average_precision    the same with the average precision
    matthews                   Matthews correlation of labels: over all classes at once, or the mean over
                               classes

Multi-class AUC in scikit-learn asks for probabilities; ranking by the decision value of a class needs none.
The names in `SCORERS` work as `scoring` of `raymkl.search.MKLSearchCV` and `raymkl.search.tune`;
`scorer("macro_auc")` is a scorer for everything else in scikit-learn that takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, check_scoring, matthews_corrcoef, roc_auc_score

__all__ = ["macro_auc", "macro_average_precision", "matthews", "scorer"]


def macro_auc(y: Any, values: Any, *, classes: Any = None, sample_weight: Any = None) -> float:
    """Area under the ROC curve of every class against the rest, averaged over the classes.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels.
    values : array-like of shape (n,) or (n, n_classes)
        Decision values of two classes (positive means the second one), or one column per class.
    classes : array-like of shape (n_classes,), or None
        Labels in the order of the columns of `values`; None takes the sorted labels of y.
    sample_weight : array-like of shape (n,), or None
        Weights of the rows; None weighs all alike.

    Returns
    -------
    score : float
        Classes without an example in y are left out; with no class left it is a ValueError.

    Examples
    --------
    >>> from raymkl.metrics import macro_auc
    >>> macro_auc([0, 1, 2], [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, -1.0, 3.0]])
    1.0
    """
    return _macro(roc_auc_score, y, values, classes, sample_weight)


def macro_average_precision(y: Any, values: Any, *, classes: Any = None, sample_weight: Any = None) -> float:
    """Average precision of every class against the rest, averaged over the classes.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels.
    values : array-like of shape (n,) or (n, n_classes)
        Decision values of two classes (positive means the second one), or one column per class.
    classes : array-like of shape (n_classes,), or None
        Labels in the order of the columns of `values`; None takes the sorted labels of y.
    sample_weight : array-like of shape (n,), or None
        Weights of the rows; None weighs all alike.

    Returns
    -------
    score : float
        Classes without an example in y are left out; with no class left it is a ValueError.

    Examples
    --------
    >>> from raymkl.metrics import macro_average_precision
    >>> macro_average_precision(["a", "b", "b"], [-1.0, 0.5, 0.25])
    1.0
    """
    return _macro(average_precision_score, y, values, classes, sample_weight)


def matthews(y: Any, predicted: Any, *, average: str | None = None, sample_weight: Any = None) -> float:
    """Matthews correlation of true and predicted labels, in [-1, 1].

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Labels.
    average : "macro" or None
        None for the correlation of the whole confusion matrix (scikit-learn's `matthews_corrcoef`), "macro"
        for the mean over classes of the correlation of "is of class c". For two classes they are the same.
    sample_weight : array-like of shape (n,), or None
        Weights of the rows; None weighs all alike.

    Returns
    -------
    score : float
        1 for perfect predictions, 0 for guesses.

    Examples
    --------
    >>> from raymkl.metrics import matthews
    >>> matthews([0, 0, 1, 2], [0, 0, 1, 2], average="macro")
    1.0
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    if y.shape != predicted.shape or y.ndim != 1:
        raise ValueError(
            f"y and predicted must be two arrays of the same length, got shapes {y.shape} and "
            f"{predicted.shape}"
        )
    if average is None:
        return float(matthews_corrcoef(y, predicted, sample_weight=sample_weight))
    if average != "macro":
        raise ValueError(f'average must be None or "macro", got {average!r}')
    classes = np.unique(np.concatenate([y, predicted]))
    return float(
        np.mean(
            [
                matthews_corrcoef(y == label, predicted == label, sample_weight=sample_weight)
                for label in classes
            ]
        )
    )


def _macro(score: Callable, y: Any, values: Any, classes: Any, sample_weight: Any) -> float:
    """Mean over classes of score(is of the class, its decision values)."""
    y, values = np.asarray(y), np.asarray(values, float)
    classes = np.unique(y) if classes is None else np.asarray(classes)
    if values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1 and len(classes) == 2):
        values = np.stack([-values.ravel(), values.ravel()], axis=1)
    if y.ndim != 1 or values.ndim != 2 or len(values) != len(y):
        raise ValueError(
            f"values must have one row for each of the {len(y)} labels of y, got shape {values.shape}"
        )
    if values.shape[1] != len(classes):
        raise ValueError(
            f"values has {values.shape[1]} columns for {len(classes)} classes; give one column per class "
            "(see classes)"
        )
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"y has the label {unknown[0]!r}, which is not among the classes {classes.tolist()!r}"
        )
    scores = []
    for column, label in enumerate(classes):
        own = y == label
        if own.any() and not own.all():
            scores.append(score(own, values[:, column], sample_weight=sample_weight))
    if not scores:
        raise ValueError(
            f"y has examples of one class only ({y[0]!r}); a ranking of classes needs two"
            if len(y)
            else "y is empty"
        )
    return float(np.mean(scores))


class _FromDecisionValues:
    """Scorer (estimator, X, y) of a score that takes y, decision values and classes."""

    def __init__(self, score: Callable):
        self.score = score

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        return self.score(
            y, estimator.decision_function(X), classes=estimator.classes_, sample_weight=sample_weight
        )

    def __repr__(self) -> str:
        return f"scorer({self.score.__name__!r})"


class _FromLabels:
    """Scorer (estimator, X, y) of Matthews correlation."""

    def __init__(self, average: str | None):
        self.average = average

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        return matthews(y, estimator.predict(X), average=self.average, sample_weight=sample_weight)

    def __repr__(self) -> str:
        return "scorer('mcc')" if self.average is None else "scorer('macro_mcc')"


SCORERS = {
    "macro_auc": _FromDecisionValues(macro_auc),
    "macro_average_precision": _FromDecisionValues(macro_average_precision),
    "mcc": _FromLabels(None),
    "macro_mcc": _FromLabels("macro"),
}


def scorer(scoring: Any, estimator: Any = None) -> Any:
    """A scorer, callable as (estimator, X, y).

    Parameters
    ----------
    scoring : str or callable
        A name in `SCORERS`, one of scikit-learn's names, or a callable, which is taken as it is.
    estimator : estimator or None
        For scikit-learn's names alone: the estimator that will be scored.

    Returns
    -------
    scorer : callable
        For everything in scikit-learn that takes one.

    Examples
    --------
    >>> from raymkl import metrics
    >>> metrics.scorer("macro_auc")
    scorer('macro_auc')
    """
    if isinstance(scoring, str) and scoring in SCORERS:
        return SCORERS[scoring]
    return check_scoring(estimator, scoring)
