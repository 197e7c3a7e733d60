"""A permutation test: how often targets that mean nothing score as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from ..data.views import subset
from ..search import checkpoints
from ..search.cases import Case, SharedRows, parts_of, solved, standing
from ..search.folds import FoldByFold, are_masks, splits_of
from ..search.results import number
from .checks import check_estimator, final_step, one_scorer, rows_and_targets, scores_by_heads, whole
from .displays import PermutationDisplay
from .results import Result

RUN = "permutation"


def permutation(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n: int = 1000,
    cv: Any = 5,
    scoring: Any = None,
    groups: Any = None,
    random_state: Any = None,
) -> Permutation:
    """Test by permuted targets whether a model has learned anything.

    Permutations and folds are drawn as `sklearn.model_selection.permutation_test_score` draws them, so that
    equal seeds give equal null scores. Kernel values are computed once for all permutations and
    folds. These come in batches, so that memory does not grow with n.

    Parameters
    ----------
    estimator : estimator
        One of ours; others, and pipelines, are fitted permutation by permutation.
    X : array-like of shape (n_rows, d), DataFrame, list, dict, Views, path or Dataset
        Rows, as for `fit`.
    y : array-like of shape (n_rows,)
        Targets, as for `fit`.
    n : int
        Number of permutations.
    cv : int, splitter or iterable of tuple
        Folds: their number, a splitter of scikit-learn, or pairs (train, test) of row numbers.
    scoring : str, callable or None
        The score; None takes the estimator's own.
    groups : array-like of shape (n_rows,), or None
        Targets are permuted within groups, and the groups are given to the splitter.
    random_state : int, RandomState or None
        A study that is to go on from its checkpoints needs an int.

    Returns
    -------
    test : Permutation
        Score, null scores and p-value.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.01, 0.1]), engine="local")
    >>> test = evaluate.permutation(clf, scale(X)[:120], y[:120], n=19, cv=3, random_state=0)
    >>> test.p_value
    0.05
    """
    check_estimator(estimator)
    n = whole("n", n, 1)
    scorer = one_scorer(scoring, estimator)
    X, y, groups = rows_and_targets(estimator, X, y, groups)
    draws = _Draws(estimator, X, y, groups, cv, n, random_state)
    by_heads = scores_by_heads(estimator, {"score": scorer}) and are_masks(draws.splits)
    scores, gap = (_by_heads if by_heads else _one_by_one)(estimator, draws, scorer)
    facts = {
        "rows": len(y),
        "permutations": n,
        "cv": f"{cv!r}, {len(draws.splits)} splits",
        "random_state": repr(random_state),
        "worst relative duality gap": gap,
    }
    return Permutation(float(scores[0]), scores[1:], facts)


class _Draws:
    """Targets and folds: those of the study as it is, then of every permutation, in the order in which
    scikit-learn draws them.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: np.ndarray,
        groups: np.ndarray | None,
        cv: Any,
        n: int,
        random_state: Any,
    ):
        self.X, self.y, self.groups, self.n = X, y, groups, n
        self.cv = list(cv) if not hasattr(cv, "split") and hasattr(cv, "__iter__") else cv
        self.classifier, self.random = is_classifier(estimator), check_random_state(random_state)
        self.splits = splits_of(self.cv, X, y, groups, self.classifier)

    def __iter__(self) -> Iterator[tuple[np.ndarray, list]]:
        yield self.y, self.splits
        for _ in range(self.n):
            y = self.y[self._shuffled()]
            yield y, splits_of(self.cv, self.X, y, self.groups, self.classifier)

    def _shuffled(self) -> np.ndarray:
        if self.groups is None:
            return self.random.permutation(len(self.y))
        index = np.arange(len(self.y))
        for group in np.unique(self.groups):
            own = self.groups == group
            index[own] = self.random.permutation(index[own])
        return index


def _by_heads(estimator: Any, draws: _Draws, scorer: Any) -> tuple[np.ndarray, float]:
    """Scores (1 + n,), and the worst gap."""
    folds = len(draws.splits)
    scores, gap = np.empty((1 + draws.n, folds)), np.nan
    classes = len(np.unique(draws.y)) if draws.classifier else 1
    with standing(estimator, draws.X) as (standing_estimator, rows):
        shared = SharedRows(standing_estimator, rows)
        cases = (
            Case(y, train, test, (float(estimator.C),), mark=(k, fold))
            for k, (y, splits) in enumerate(draws)
            for fold, (train, test) in enumerate(splits)
        )
        run = RUN, shared, scores.size, classes if classes > 2 else 1
        for one in solved(shared, cases, *run[2:], RUN):
            test = one.case.watch
            scores[one.case.mark] = number(scorer(one.scored_as(), subset(draws.X, test), one.case.y[test]))
            gap = np.fmax(gap, one.gap)
        checkpoints.remove(estimator, parts_of(*run))
    return scores.mean(axis=1), float(gap)


def _one_by_one(estimator: Any, draws: _Draws, scorer: Any) -> tuple[np.ndarray, float]:
    """The same with a fit per permutation and fold."""
    scores, gap = np.empty((1 + draws.n, len(draws.splits))), np.nan
    for k, (y, splits) in enumerate(draws):
        folds = FoldByFold(estimator, draws.X, y, splits)
        for fold in range(len(splits)):
            model = folds.fit(clone(estimator), fold)
            gap = np.fmax(gap, np.max(getattr(final_step(model), "duality_gap_", np.nan)))
            scores[k, fold] = number(folds.score(scorer, model, fold))
    return scores.mean(axis=1), float(gap)


class Permutation(Result):
    """A score and those of permuted targets; what `permutation` returns.

    Parameters
    ----------
    score : float
        Mean over the folds.
    null : ndarray of shape (n,)
        The same of every permutation.
    facts : dict
        What a CSV file says of the study.

    Attributes
    ----------
    p_value : float
        (1 + #{null >= score}) / (1 + n).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), engine="local")
    >>> found = evaluate.permutation(clf, X[50:], y[50:], n=9, cv=2, random_state=0)
    >>> found.null.shape
    (9,)
    """

    def __init__(self, score: float, null: np.ndarray, facts: dict):
        self.score, self.null, self.facts = score, null, facts

    @property
    def p_value(self) -> float:
        """(1 + permutations that score at least as well) / (1 + permutations)."""
        return float((1 + np.count_nonzero(self.null >= self.score)) / (1 + len(self.null)))

    def table(self) -> pd.DataFrame:
        """One row: score, mean and std of the null scores, p_value, permutations.

        Returns
        -------
        table : DataFrame
            That row.
        """
        std = self.null.std(ddof=1) if len(self.null) > 1 else np.nan
        row = {
            "score": self.score,
            "null_mean": self.null.mean(),
            "null_std": std,
            "p_value": self.p_value,
            "permutations": len(self.null),
        }
        return pd.DataFrame([row])

    def plot(self, ax: Any = None) -> PermutationDisplay:
        """Draw the score among the null scores; see `PermutationDisplay`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        display : object
            What was drawn, with `ax_` and `figure_`.
        """
        return PermutationDisplay(self.score, self.null, self.p_value).plot(ax=ax)
