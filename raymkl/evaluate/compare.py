"""A fair comparison of models: the same splits for all, settings chosen within the training rows, a test that
knows of their overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from ..search.folds import splits_of
from .checks import rows_and_targets, scorers_of
from .contenders import contenders_of
from .displays import ComparisonDisplay
from .nested import Plan, inner_splits, records_of
from .results import Result, latex, mark_of
from .significance import corrected_t_test, holm


def compare(
    models: dict[str, Any],
    X: Any,
    y: Any,
    *,
    outer: Any = 5,
    inner: Any = 5,
    param_grid: Any = None,
    scoring: Any = None,
    groups: Any = None,
    baseline: str | None = None,
) -> Comparison:
    """Compare models by nested cross-validation.

    Every model is scored on the held-out rows of every outer split. With a grid, inner folds of the training
    rows choose its setting in every split, for each metric by this metric: the scores are those of
    `cross_val_score(GridSearchCV(...))`. Folds, settings and models made from one estimator share
    their kernel values, which are computed once.

    Parameters
    ----------
    models : dict
        From names to estimators of ours, to any of scikit-learn's and pipelines (which are fitted fold by
        fold, with the part of the grid that they know), or to words that make a model from the first
        estimator of ours: "average" (p = 2), "best_single" (inner folds choose the kernel, with or without a
        grid) and "view:<name>" (its kernels that read this view alone).
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
        Rows, as for `fit`.
    y : array-like of shape (n,)
        Targets, as for `fit`.
    outer : int, splitter or iterable of tuple
        Splits that models are scored on; pairs are (train, test) of row numbers.
    inner : int or splitter
        Folds of the training rows, which choose the setting.
    param_grid : dict, list of dict, or None
        Values to try for each parameter.
    scoring : str, callable, list, dict or None
        One score or several; None takes the estimators' own.
    groups : array-like of shape (n,), or None
        Given to the outer and to the inner splitter.
    baseline : str or None
        Name of the model that the others are tested against, unless `table` is asked for another one.

    Returns
    -------
    study : Comparison
        Scores of every model on every split.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_wine(return_X_y=True)
    >>> bank = [kernels.RBF(0.1, view=slice(0, 6)), kernels.RBF(0.1, view=slice(6, 13))]
    >>> mkl = MKLClassifier(kernels=bank, engine="local")
    >>> study = evaluate.compare({"mkl": mkl, "single": "best_single"}, scale(X), y, outer=3, inner=3,
    ...     baseline="single")
    >>> study.table()["mean"].gt(0.9).tolist()
    [True, True]
    """
    first = (
        next((model for model in models.values() if not isinstance(model, str)), None)
        if isinstance(models, dict)
        else None
    )
    scorers = scorers_of(scoring, first) if first is not None else {}
    if isinstance(models, dict) and models and baseline is not None and baseline not in models:
        raise ValueError(
            f"baseline must be the name of one of the models, {', '.join(map(repr, models))}, or None; got "
            f"{baseline!r}"
        )
    if first is not None:
        X, y, groups = rows_and_targets(first, X, y, groups)
    contenders = contenders_of(models, X, param_grid, scorers)
    classifier = is_classifier(first)
    outer_splits = splits_of(outer, X, y, groups, classifier)
    chooses = any(len(contender.candidates) > 1 for contender in contenders)
    inner_of = (
        inner_splits(inner, X, y, groups, outer_splits, classifier) if chooses else [[] for _ in outer_splits]
    )
    plan = Plan(X, y, outer_splits, inner_of, scorers)
    records = records_of(plan, contenders)
    facts = {
        "rows": len(y),
        "outer": f"{outer!r}, {len(outer_splits)} splits",
        "inner": f"{inner!r}" if chooses else "none, nothing is chosen",
        "grid": repr(param_grid),
        "worst relative duality gap": plan.gap,
    }
    return Comparison(pd.DataFrame.from_records(records), list(models), list(scorers), baseline, facts)


class Comparison(Result):
    """Scores of several models on the same splits; what `compare` returns.

    Parameters
    ----------
    scores : DataFrame
        With the columns model, metric, split, score, params (the setting that was chosen), n_train and
        n_test.
    models, metrics : list of str
        Their names.
    baseline : str or None
        The model that others are tested against.
    facts : dict
        What a CSV file says of the study.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, evaluate, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), engine="local")
    >>> study = evaluate.compare({"mkl": clf, "average": "average"}, X[50:], y[50:], outer=2)
    >>> sorted(study.models)
    ['average', 'mkl']
    """

    def __init__(
        self, scores: pd.DataFrame, models: list[str], metrics: list[str], baseline: str | None, facts: dict
    ):
        self.scores, self.models, self.metrics, self.baseline, self.facts = (
            scores,
            models,
            metrics,
            baseline,
            facts,
        )

    def _metric(self, metric: str | None) -> str:
        if metric is not None and metric not in self.metrics:
            raise ValueError(f"metric must be one of {', '.join(map(repr, self.metrics))}; got {metric!r}")
        return self.metrics[0] if metric is None else metric

    def by_model(self, metric: str | None = None) -> dict[str, np.ndarray]:
        """Scores of every model in the order of the splits.

        Parameters
        ----------
        metric : str or None
            None for the first.

        Returns
        -------
        scores : dict of ndarray of shape (J,)
            By the name of the model.
        """
        own = self.scores[self.scores["metric"] == self._metric(metric)].sort_values("split", kind="stable")
        return {model: own.loc[own["model"] == model, "score"].to_numpy() for model in self.models}

    def table(self, baseline: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """One row per model: mean and std (ddof 1) of its scores, and how it differs from the baseline.

        Parameters
        ----------
        baseline : str or None
            Name of a model; None for the one that the study was given. Without any, the last three columns
            are NaN.
        metric : str or None
            None for the first one.

        Returns
        -------
        table : DataFrame
            One row per model, with the columns mean, std, difference (of the means), p_value (Nadeau and
            Bengio's corrected resampled t-test) and p_holm (the same after Holm's correction for the number
            of models).
        """
        baseline = self.baseline if baseline is None else baseline
        if baseline is not None and baseline not in self.models:
            raise ValueError(f"baseline must be one of {', '.join(map(repr, self.models))}, got {baseline!r}")
        scores = self.by_model(metric)
        sizes = self.scores.drop_duplicates("split")
        ratio = float((sizes["n_test"] / sizes["n_train"]).mean())
        rows = []
        for model, own in scores.items():
            row = {
                "mean": own.mean(),
                "std": own.std(ddof=1) if len(own) > 1 else np.nan,
                "difference": np.nan,
                "p_value": np.nan,
            }
            if baseline is not None and model != baseline:
                row["difference"] = (own - scores[baseline]).mean()
                row["p_value"] = corrected_t_test(own - scores[baseline], ratio)
            elif model == baseline:
                row["difference"] = 0.0
            rows.append(row)
        table = pd.DataFrame(rows, index=pd.Index(self.models, name="model"))
        table["p_holm"] = holm(table["p_value"].to_numpy())
        return table

    def _csv_table(self) -> pd.DataFrame:
        parts = [self.table(metric=metric).reset_index() for metric in self.metrics]
        for part, metric in zip(parts, self.metrics, strict=True):
            part.insert(1, "metric", metric)
        return pd.concat(parts, ignore_index=True)

    def to_latex(self, baseline: str | None = None, metric: str | None = None) -> str:
        """The table as a LaTeX `tabular`: the best mean in bold, stars where it differs from the baseline
        (after Holm's correction).

        Parameters
        ----------
        baseline : str or None
            As for `table`.
        metric : str or None
            None for the first.

        Returns
        -------
        text : str
            LaTeX.
        """
        table = self.table(baseline, metric)
        marks = [mark_of(p) for p in table["p_holm"]]
        best = int(np.argmax(np.where(np.isnan(table["mean"]), -np.inf, table["mean"])))
        return latex(table.reset_index(), marks, best, "mean")

    def plot(self, ax: Any = None, *, metric: str | None = None) -> ComparisonDisplay:
        """Draw the scores of all models; see `ComparisonDisplay`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        metric : str or None
            None for the first.

        Returns
        -------
        display : object
            What was drawn, with `ax_` and `figure_`.
        """
        name = self._metric(metric)
        return ComparisonDisplay(self.by_model(metric), name).plot(ax=ax)
