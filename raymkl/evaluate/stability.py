"""How sure the weights are: what they would have been with other halves of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from ..models.base import BaseMKL
from ..search import checkpoints
from ..search.cases import Case, SharedRows, parts_of, solved, standing
from ..search.folds import FoldByFold
from ..search.settings import learns_by_heads
from .checks import bank_of, between, check_estimator, final_step, rows_and_targets, views_read, whole
from .displays import StabilityDisplay
from .results import Result, unique_names

RUN = "stability"


def stability(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    halves: int = 100,
    coverage: float = 0.9,
    threshold: float = 0.01,
    random_state: Any = None,
) -> Stability:
    """Learn weights from many halves of the rows, in disjoint pairs, stratified by class.

    Kernel values are computed once for all halves. A weight that changes from half to half is one that
    the data do not determine; a kernel that is selected in nearly all halves is needed (complementary pairs
    stability selection).

    Parameters
    ----------
    estimator : estimator
        One of ours, or a pipeline that ends in one (which is fitted half by half).
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
        Rows, as for `fit`.
    y : array-like of shape (n,)
        Targets, as for `fit`.
    halves : int
        How many half-samples, an even number.
    coverage : float in (0, 1)
        Part of the halves whose weights lie between `low` and `high`.
    threshold : float in (0, 1)
        A kernel is selected where its weight exceeds this part of the largest one.
    random_state : int, RandomState or None
        Which rows are in which half.

    Returns
    -------
    result : Stability
        Weights of every half, and how often each kernel is selected.

    References
    ----------
    Shah, Samworth: Variable selection with error control. Journal of the Royal Statistical Society B 75,
    2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.01, 0.1, 1.0]), engine="local")
    >>> evaluate.stability(clf, X[:100], y[:100], halves=4, random_state=0).weights.shape
    (4, 3)
    """
    check_estimator(estimator)
    halves = whole("halves", halves, 2)
    if halves % 2:
        raise ValueError(f"halves must be an even number, since they come in disjoint pairs, got {halves}")
    coverage, threshold = between("coverage", coverage, 0.0, 1.0), between("threshold", threshold, 0.0, 1.0)
    if not isinstance(final_step(estimator), BaseMKL):
        raise ValueError(
            f"estimator must be one of ours, or a pipeline that ends in one, got {type(estimator).__name__}: "
            "it has no weights"
        )
    X, y, _ = rows_and_targets(estimator, X, y)
    masks = half_samples(y, halves, is_classifier(estimator), check_random_state(random_state))
    found = (_by_heads if learns_by_heads(estimator) else _one_by_one)(estimator, X, y, masks)
    weights, gap, kernels = found
    facts = {
        "rows": len(y),
        "halves": halves,
        "coverage": coverage,
        "threshold": threshold,
        "random_state": repr(random_state),
        "worst relative duality gap": gap,
    }
    classes = _names_of_sets(final_step(estimator), y, weights.shape[1:])
    views = [", ".join(views_read(kernel, X)) for kernel in kernels]
    return Stability(
        masks,
        weights[1:],
        weights[0],
        unique_names(list(map(repr, kernels))),
        views,
        classes,
        coverage,
        threshold,
        facts,
    )


def half_samples(y: np.ndarray, halves: int, stratified: bool, random: np.random.RandomState) -> np.ndarray:
    """(H, n) bool: disjoint pairs of halves, each with half of every class (to one row)."""
    labels = np.unique(y, return_inverse=True)[1].ravel() if stratified else np.zeros(len(y), int)
    counts = np.bincount(labels)
    if stratified and counts.min() < 2:
        label = np.unique(y).tolist()[int(np.argmin(counts))]
        raise ValueError(
            f"class {label!r} has 1 row, but both halves of a pair need one of every class; leave the class "
            "out"
        )
    if len(y) < 4:
        raise ValueError(f"X has {len(y)} rows; halves of at least two rows are needed")
    masks = np.zeros((halves, len(y)), bool)
    for pair in range(0, halves, 2):
        # Class after class, each in random order, rows go to both halves in turns.
        order = random.permutation(len(y))
        order = order[np.argsort(labels[order], kind="stable")]
        masks[pair, order[::2]] = masks[pair + 1, order[1::2]] = True
    return masks


def _by_heads(estimator: Any, X: Any, y: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, float, list]:
    """Weights (1 + H, ...) of all rows and of every half, the worst gap, the kernels."""
    weights, gap = [], np.nan
    classes = len(np.unique(y)) if is_classifier(estimator) else 1
    with standing(estimator, X) as (standing_estimator, rows):
        shared = SharedRows(standing_estimator, rows)
        cases = (
            Case(y, np.flatnonzero(mask), None, (float(estimator.C),))
            for mask in [np.ones(len(y), bool), *masks]
        )
        run = RUN, shared, 1 + len(masks), classes if classes > 2 else 1
        for one in solved(shared, cases, *run[2:], RUN):
            (results,) = one.stages
            # Classes that share their weights, or are one problem, have one set of them.
            together = len(results) == 1 or all(
                np.array_equal(result.theta, results[0].theta) for result in results[1:]
            )
            thetas = np.stack([results[0].theta] if together else [result.theta for result in results])
            weights.append(_by_cluster(estimator, thetas, len(shared.kernels)))
            gap = np.fmax(gap, one.gap)
        checkpoints.remove(estimator, parts_of(*run))
        kernels = list(shared.kernels)
    return np.stack(weights), float(gap), kernels


def _by_cluster(estimator: Any, thetas: np.ndarray, n_kernels: int) -> np.ndarray:
    """Weights in the shape of `kernel_weights_`: (M,) of one head, (K, M) of several, by cluster for
    missing="pattern".
    """
    if getattr(estimator, "missing", None) == "pattern":
        thetas = thetas.reshape(len(thetas), -1, n_kernels)
    return thetas[0] if len(thetas) == 1 else thetas


def _names_of_sets(estimator: Any, y: np.ndarray, shape: tuple[int, ...]) -> list[str] | None:
    """Names of the sets of weights of a model, `kernel_weights_` being of this shape; None for a single
    set.
    """
    if len(shape) == 1:
        return None
    classes = [str(label) for label in np.unique(y)] if is_classifier(estimator) else []
    if len(shape) == 2 and len(classes) == shape[0] and getattr(estimator, "missing", None) != "pattern":
        return classes
    clusters = ["common", *(f"pattern {r}" for r in range(shape[-2] - 1))]
    if getattr(estimator, "missing", None) != "pattern":
        clusters = [f"cluster {j}" for j in range(shape[-2])]
    return (
        clusters if len(shape) == 2 else [f"{label}, {cluster}" for label in classes for cluster in clusters]
    )


def _one_by_one(estimator: Any, X: Any, y: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, float, list]:
    """The same with a fit per half."""
    every = np.arange(len(y))
    folds = FoldByFold(
        estimator, X, y, [(every, every), *((np.flatnonzero(mask), np.flatnonzero(~mask)) for mask in masks)]
    )
    models = [final_step(folds.fit(clone(estimator), fold)) for fold in range(1 + len(masks))]
    if not all(hasattr(model, "kernel_weights_") for model in models):
        raise ValueError(
            f"{type(models[0]).__name__} has no kernel_weights_, whose stability could be looked at"
        )
    shapes = {np.shape(model.kernel_weights_) for model in models}
    if len(shapes) > 1:
        raise ValueError(
            f"the weights of half-samples have different shapes, {sorted(shapes)}, and cannot be compared"
        )
    gap = max(float(np.max(getattr(model, "duality_gap_", np.nan))) for model in models)
    kernels = models[0].kernels_ if hasattr(models[0], "kernels_") else bank_of(estimator, X)
    return np.stack([model.kernel_weights_ for model in models]), gap, list(kernels)


class Stability(Result):
    """Weights over half-samples; what `stability` returns.

    Parameters
    ----------
    halves : ndarray of shape (H, n)
        bool, the rows of every half; 2k and 2k + 1 are disjoint.
    weights : ndarray of shape (H, M) or (H, K, M)
        (H, K, M) for K classes. Models with weights by cluster have another axis before the last.
    weight : ndarray of shape (M,) or (K, M)
        Of all rows.
    kernels, views : list of str
        Names of the kernels, and of what they read.
    classes : list of str, or None
        Names of the sets of weights where there are several.
    coverage, threshold : float
        As given.
    facts : dict
        What a CSV file says of the study.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), engine="local")
    >>> found = evaluate.stability(clf, X[50:], y[50:], halves=4, random_state=0)
    >>> found.weights.shape
    (4, 2)
    """

    def __init__(self, halves, weights, weight, kernels, views, classes, coverage, threshold, facts):
        self.halves, self.weights, self.weight = halves, weights, weight
        self.kernels, self.views, self.classes = kernels, views, classes
        self.coverage, self.threshold, self.facts = coverage, threshold, facts

    def _intervals(self) -> tuple[np.ndarray, np.ndarray]:
        tail = (1.0 - self.coverage) / 2.0
        return tuple(np.quantile(self.weights, [tail, 1.0 - tail], axis=0))

    def table(self) -> pd.DataFrame:
        """One row per kernel (and class): weight of all rows; mean, low and high over halves; how often it is
        selected.

        Returns
        -------
        table : DataFrame
            Those rows.
        """
        low, high = self._intervals()
        n_kernels = len(self.kernels)
        selected = (self.weights > self.threshold * self.weights.max(axis=-1, keepdims=True)).mean(axis=0)
        columns = {
            "weight": self.weight,
            "mean": self.weights.mean(axis=0),
            "low": low,
            "high": high,
            "selected": selected,
        }
        parts = []
        for k, label in enumerate(self.classes or [None]):
            part = pd.DataFrame({"kernel": self.kernels, "view": self.views})
            for name, values in columns.items():
                part[name] = values if label is None else values.reshape(-1, n_kernels)[k]
            if label is not None:
                part.insert(0, "class", label)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def plot(self, ax: Any = None) -> StabilityDisplay:
        """Draw weights and intervals; see `StabilityDisplay`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        display : object
            What was drawn, with `ax_` and `figure_`.
        """
        low, high = self._intervals()
        weight, low, high = (values.reshape(-1, len(self.kernels)) for values in (self.weight, low, high))
        return StabilityDisplay(self.kernels, weight, low, high, self.classes or [""]).plot(ax=ax)
