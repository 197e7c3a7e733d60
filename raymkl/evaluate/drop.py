"""What a view or a kernel is worth: the score without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from ..models.base import BaseMKL
from ..search.folds import splits_of
from .checks import (
    bank_of,
    check_estimator,
    final_step,
    one_scorer,
    prefix_of,
    rows_and_targets,
    scores_by_heads,
    views_read,
)
from .contenders import Candidate, Contender
from .displays import DropDisplay
from .nested import Plan, records_of
from .results import Result, latex, mark_of, unique_names
from .significance import corrected_t_test

# The name of the bank as it is.
WHOLE = ""


def drop_views(
    estimator: Any, X: Any, y: Any, *, cv: Any = 5, scoring: Any = None, groups: Any = None
) -> Drop:
    """Scores without one view after the other: without every kernel that reads it.

    Kernel values are computed once, and the models without some kernels leave them out; they are those of a
    smaller set of kernels. Rows that then have no view left stay, and are decided by the intercept.

    Parameters
    ----------
    estimator : estimator
        One of ours, or a pipeline that ends in one (which is fitted fold by fold, with fewer kernels).
    X : Views, DataFrame or dict
        Rows with the named views that the kernels read.
    y : array-like of shape (n,)
        Targets, as for `fit`.
    cv : int, splitter or iterable of tuple
        Folds: their number, a splitter of scikit-learn, or pairs (train, test) of row numbers.
    scoring : str, callable or None
        The score; None takes the estimator's own.
    groups : array-like of shape (n,), or None
        Given to the splitter.

    Returns
    -------
    result : Drop
        Scores with all views, and without each.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_wine(return_X_y=True)
    >>> X = {"first": scale(X)[:, :6], "second": scale(X)[:, 6:]}
    >>> clf = MKLClassifier(kernels=[kernels.RBF(0.1, view="first"), kernels.RBF(0.1, view="second")],
    ...     engine="local")
    >>> evaluate.drop_views(clf, X, y, cv=3).table()["without"].tolist()
    ['', 'first', 'second']
    """

    def parts(bank: list, X: Any) -> dict[str, list[int]]:
        read = [views_read(kernel, X) for kernel in bank]
        names = list(dict.fromkeys(name for views in read for name in views))
        if len(names) < 2:
            raise ValueError(
                f"the kernels read one view alone, {', '.join(map(repr, names))}; without it there is no "
                "model to score"
            )
        found = {name: [m for m, views in enumerate(read) if name in views] for name in names}
        for name, members in found.items():
            if len(members) == len(bank):
                raise ValueError(f"all kernels read view {name!r}; without it there is no model to score")
        return found

    return _dropped(estimator, X, y, cv, scoring, groups, parts)


def drop_kernels(
    estimator: Any, X: Any, y: Any, *, cv: Any = 5, scoring: Any = None, groups: Any = None
) -> Drop:
    """Scores without one kernel after the other.

    Parameters
    ----------
    estimator, X, y, cv, scoring, groups : object
        As for `drop_views`.

    Returns
    -------
    result : Drop
        Scores, with a table and a picture of them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.01, 0.1]), engine="local")
    >>> evaluate.drop_kernels(clf, X, y, cv=3).table()["without"].tolist()
    ['', 'RBF(gamma=0.01)', 'RBF(gamma=0.1)']
    """

    def parts(bank: list, X: Any) -> dict[str, list[int]]:
        if len(bank) < 2:
            raise ValueError(
                f"the estimator has one kernel, {bank[0]!r}; without it there is no model to score"
            )
        return {name: [m] for m, name in enumerate(unique_names(list(map(repr, bank))))}

    return _dropped(estimator, X, y, cv, scoring, groups, parts)


def _dropped(estimator: Any, X: Any, y: Any, cv: Any, scoring: Any, groups: Any, parts: Any) -> Drop:
    check_estimator(estimator)
    scorer = one_scorer(scoring, estimator)
    X, y, groups = rows_and_targets(estimator, X, y, groups)
    bank, prefix = bank_of(estimator, X), prefix_of(estimator)
    last = final_step(estimator)
    assert isinstance(last, BaseMKL)
    last._check_params()
    left_out = parts(bank, X)
    splits = splits_of(cv, X, y, groups, is_classifier(estimator))
    by_heads = scores_by_heads(estimator, {"score": scorer})
    contenders = [Contender(WHOLE, estimator, [Candidate()], by_heads)]
    for name, members in left_out.items():
        stays = ~np.isin(np.arange(len(bank)), members)
        smaller = {f"{prefix}kernels": [kernel for kernel, keep in zip(bank, stays, strict=True) if keep]}
        contenders.append(
            Contender(name, estimator, [Candidate({}, stays) if by_heads else Candidate(smaller)], by_heads)
        )
    plan = Plan(X, y, splits, [[] for _ in splits], {"score": scorer})
    scores = pd.DataFrame.from_records(records_of(plan, contenders)).rename(columns={"model": "without"})
    facts = {"rows": len(y), "cv": f"{cv!r}, {len(splits)} splits", "worst relative duality gap": plan.gap}
    return Drop(scores[["without", "split", "score", "n_train", "n_test"]], facts)


class Drop(Result):
    """Scores without one view or kernel after the other; what `drop_views` returns.

    Parameters
    ----------
    scores : DataFrame
        With the columns without (empty for the bank as it is), split, score, n_train and n_test.
    facts : dict
        What a CSV file says of the study.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), engine="local")
    >>> found = evaluate.drop_kernels(clf, X[50:], y[50:], cv=2)
    >>> len(found.scores)
    6
    """

    def __init__(self, scores: pd.DataFrame, facts: dict):
        self.scores, self.facts = scores, facts

    def _by_name(self) -> tuple[list[str], np.ndarray, float]:
        """What is left out, (k, J) scores in the order of the splits, and the mean of n_test / n_train."""
        names = list(dict.fromkeys(self.scores["without"]))
        ordered = self.scores.sort_values("split", kind="stable")
        scores = np.stack([ordered.loc[ordered["without"] == name, "score"].to_numpy() for name in names])
        sizes = self.scores.drop_duplicates("split")
        return names, scores, float((sizes["n_test"] / sizes["n_train"]).mean())

    def table(self) -> pd.DataFrame:
        """One row for the bank as it is (without is empty), then one per view or kernel.

        mean, std (ddof 1) of the scores without it; difference, what the score loses; p_value, by the
        corrected resampled t-test.

        Returns
        -------
        table : DataFrame
            The columns are without, mean, std, difference and p_value.
        """
        names, scores, ratio = self._by_name()
        rows = []
        for name, own in zip(names, scores, strict=True):
            lost = scores[0] - own
            rows.append(
                {
                    "without": name,
                    "mean": own.mean(),
                    "std": own.std(ddof=1) if len(own) > 1 else np.nan,
                    "difference": lost.mean(),
                    "p_value": np.nan if name == WHOLE else corrected_t_test(lost, ratio),
                }
            )
        return pd.DataFrame(rows)

    def to_latex(self) -> str:
        """The table as a LaTeX `tabular`: the best mean in bold, stars where the score differs from that of
        the whole bank.

        Returns
        -------
        text : str
            The `tabular`.
        """
        table = self.table()
        return latex(table, [mark_of(p) for p in table["p_value"]], int(table["mean"].argmax()), "mean")

    def plot(self, ax: Any = None) -> DropDisplay:
        """Draw what the score loses; see `DropDisplay`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        display : object
            What was drawn, with `ax_` and `figure_`.
        """
        names, scores, _ = self._by_name()
        return DropDisplay(names[1:], scores[0] - scores[1:], self.table()["p_value"].to_numpy()[1:]).plot(
            ax=ax
        )
