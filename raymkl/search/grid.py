"""Grid search with cross-validation in which folds and settings share their kernel blocks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.progress import progress_of
from ..engine.problem import put_beside
from ..engine.run import train
from ..metrics import scorer as scorer_of
from ..models.sources import loaded
from . import checkpoints
from .folds import FoldByFold, Folds, are_masks, splits_of
from .results import check_failures, number, results_of
from .settings import blocks_of, learns_by_heads, of_heads, paths_of, template_of


def _best_has(name: str):
    return available_if(lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name))


class MKLSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Cross-validated search over a grid of settings, with scikit-learn's names and results.

    Kernel values are computed once. Every fold and setting is a problem of its own over them (a head): a fold
    leaves out some rows, whose scores the optimiser knows anyway, and each C starts from the solution of the
    last one. Normalisation is learned from the training rows of each fold. Parameters that change the kernels
    themselves get kernel values of their own. Estimators (or pipelines) that cannot share kernel values are
    fitted fold by fold.

    Parameters
    ----------
    estimator : estimator
        Such as `MKLClassifier`, or a pipeline that ends in one.
    param_grid : dict or list of dict
        Values to try for each parameter: `{"C": [0.1, 1, 10], "p": [1, 4/3, 2]}`.
    cv : int, splitter or iterable of tuple
        Folds: their number, a splitter of scikit-learn, or pairs (train, test) of row numbers.
    scoring : str, callable, list, dict or None
        Anything that needs `decision_function` or `predict`; besides scikit-learn's names those in
        `raymkl.metrics.SCORERS`. Several scores in a list or dict. None takes the estimator's own score.
    refit : bool, str or callable
        Fit the best setting on all rows (`best_estimator_`). With several scores the name of the one that
        decides. A callable gets `cv_results_` and returns the position of the best one.
    error_score : float or "raise"
        Score of a fold that could not be fitted or scored.
    return_train_score : bool
        Whether `cv_results_` has the scores of the training rows, too.
    verbose : int
        1 shows how the runs get on, as for `MKLClassifier`.

    Attributes
    ----------
    cv_results_ : dict of ndarray
        As in scikit-learn's GridSearchCV: parameters, scores of the folds, means, ranks, times.
    best_params_ : dict
        The parameters with the best mean score.
    best_score_ : float
        Their mean score.
    best_index_ : int
        Their place in `cv_results_`.
    best_estimator_ : estimator
        Fitted to all rows with them, with `refit`.
    scorer_ : callable or dict
        What scores.
    n_splits_ : int
        Folds.
    multimetric_ : bool
        Whether there are several scores.
    refit_time_ : float
        Seconds of the last fit.
    classes_ : ndarray of shape (n_classes,)
        Labels of `best_estimator_`, for classifiers.
    n_features_in_ : int
        Columns of X, as `best_estimator_` has them.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, kernels, search
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(kernels=kernels.rbf([0.01, 0.1, 1.0]), engine="local")
    >>> found = search.MKLSearchCV(model, {"C": [0.1, 1.0, 10.0], "p": [1.0, 4 / 3]}, cv=3).fit(X, y)
    >>> found.best_score_ > 0.9
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        cv: Any = 5,
        scoring: Any = None,
        refit: Any = True,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        verbose: int = 0,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.error_score = error_score
        self.return_train_score = return_train_score
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = getattr(self.estimator, "__sklearn_tags__", None)
        if inner is not None:
            sub = inner()
            tags.estimator_type, tags.classifier_tags, tags.regressor_tags = (
                sub.estimator_type,
                sub.classifier_tags,
                sub.regressor_tags,
            )
            tags.input_tags.pairwise, tags.input_tags.sparse = sub.input_tags.pairwise, sub.input_tags.sparse
        return tags

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None) -> MKLSearchCV:
        """Score all settings and, with `refit`, fit the best one.

        A path or Dataset is read into memory, 2 GiB at most (`refit` alone streams it).

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        groups : array-like of shape (n,), or None
            Given to the splitter.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        settings = self._settings()
        scorers, main = self._scorers()
        if self.error_score != "raise" and not isinstance(self.error_score, Real):
            raise ValueError(f'error_score must be a number or "raise", got {self.error_score!r}')
        given = X, y
        X, y = loaded(X, y, self.estimator)
        splits = splits_of(self.cv, X, y, groups, is_classifier(self.estimator))
        self.n_splits_ = len(splits)
        out: list[list[dict]] = [[{} for _ in splits] for _ in settings]
        runs = blocks_of(self.estimator, settings)
        for run, positions in enumerate(runs):
            together = learns_by_heads(self.estimator, settings[positions[0]]) and are_masks(splits)
            score = partial(self._by_heads, f"search-{run}") if together else self._one_by_one
            score(X, y, sample_weight, settings, positions, splits, scorers, out)
        check_failures(out, self.error_score)
        self.cv_results_ = results_of(settings, out, self._parts, scorers)
        self._choose(settings, main)
        if self.refit:
            started = time.time()
            self.best_estimator_ = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            with checkpoints.redirected(self.best_estimator_, "refit"):
                self.best_estimator_.fit(
                    *given, **({} if sample_weight is None else {"sample_weight": sample_weight})
                )
            self.refit_time_ = time.time() - started
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        checkpoints.remove(self.estimator, [*(f"search-{run}" for run in range(len(runs))), "refit"])
        self.scorer_ = scorers if self.multimetric_ else scorers["score"]
        return self

    @property
    def _parts(self) -> tuple[str, ...]:
        """Of the rows of a fold: those that are scored."""
        return ("test", "train") if self.return_train_score else ("test",)

    def _settings(self) -> list[dict]:
        settings = list(ParameterGrid(self.param_grid))
        known = self.estimator.get_params()
        unknown = sorted(
            {name for setting in settings for name in setting if name.split("__")[0] not in known}
        )
        if unknown:
            raise ValueError(
                f"param_grid names {unknown[0]!r}, which {type(self.estimator).__name__} does not have; it "
                f"has {', '.join(sorted(known))}"
            )
        if not settings:
            raise ValueError("param_grid is empty; at least one setting is needed")
        return settings

    def _scorers(self) -> tuple[dict, str]:
        """Scorers by name, and the name of the one that decides."""
        scoring = self.scoring
        self.multimetric_ = not (scoring is None or isinstance(scoring, str) or callable(scoring))
        if not self.multimetric_:
            return {"score": scorer_of(scoring, self.estimator)}, "score"
        named = dict(scoring) if isinstance(scoring, Mapping) else {name: name for name in scoring}
        if not named:
            raise ValueError("scoring is empty; name at least one score")
        scorers = {name: scorer_of(one, self.estimator) for name, one in named.items()}
        if callable(self.refit):
            return scorers, next(iter(scorers))
        if self.refit is True or (self.refit and self.refit not in scorers):
            raise ValueError(
                f"with several scores refit must be one of {', '.join(scorers)}, a callable or False, got "
                f"{self.refit!r}"
            )
        return scorers, self.refit or next(iter(scorers))

    def _by_heads(self, name, X, y, sample_weight, settings, positions, splits, scorers, out) -> None:
        """Settings that share one set of blocks, trained together.

        name : of this run among the checkpoints.
        """
        started = time.time()
        everywhere = range(len(splits))
        try:
            template = template_of(self.estimator, settings[positions[0]])
            folds = Folds(template, X, y, splits, sample_weight)
        except (TypeError, ValueError) as error:
            self._failed(positions, everywhere, error, scorers, out)
            return
        fine = []
        for position in positions:
            try:
                clone(template).set_params(**of_heads(template, settings[position]))._check_params()
                fine.append(position)
            except (TypeError, ValueError) as error:
                self._failed([position], everywhere, error, scorers, out)
        heads, parties = self._heads_of(folds, settings, fine, scorers, out)
        if not heads:
            return
        problem, rows = folds.problem(heads)
        params, report = checkpoints.part_of(template.ray_params, name), progress_of(self.verbose)
        trained = train(rows, problem, heads, template.engine, params, report, True)
        _warn_if_short(trained.results)
        seconds = (time.time() - started) / (len(positions) * len(splits))
        for path, fold, part, held_out in parties:
            for stage, position in enumerate(path):
                values = [stages[stage].f for stages in trained.results[part]]
                record = out[position][fold] = {"fit_time": seconds}
                self._score_fold(folds, scorers, held_out, values, fold, record)

    def _heads_of(
        self, folds: Folds, settings: list[dict], positions: list[int], scorers: dict, out: list
    ) -> tuple[list, list]:
        """Heads of all settings and folds that can be learned; and for each path over C and fold its
        positions, the fold, its place among the heads, and what turns decision values into something to
        score.
        """
        template: Any = folds.estimator
        heads: list = []
        parties: list = []
        for path in paths_of(settings, positions, template.C, getattr(template, "beta", 0.0)):
            changing = of_heads(template, settings[path[0]])
            changing.pop("C", None)
            bounds = tuple(float(settings[position].get("C", template.C)) for position in path)
            for fold in range(self.n_splits_):
                try:
                    more, held_out = folds.fold(changing, fold, bounds, self.return_train_score)
                except ValueError as error:
                    self._failed(path, [fold], error, scorers, out)
                    continue
                parties.append((path, fold, put_beside(heads, more), held_out))
        return heads, parties

    def _score_fold(
        self, folds: Folds, scorers: dict, held_out: Any, values: list, fold: int, record: dict
    ) -> None:
        started = time.time()
        for part in self._parts:
            own = folds.values_of(values, fold, part) if self.return_train_score else values
            for name, scorer in scorers.items():
                record[f"{part}_{name}"] = self._safely(
                    lambda s=scorer, v=own, p=part: folds.score(s, held_out, v, fold, p)
                )
        record["score_time"] = time.time() - started

    def _one_by_one(self, X, y, sample_weight, settings, positions, splits, scorers, out) -> None:
        """Estimators whose folds are no heads: fitted and scored fold by fold."""
        folds = FoldByFold(self.estimator, X, y, splits, sample_weight)
        for fold in range(len(splits)):
            for position in positions:
                started = time.time()
                try:
                    model = folds.fit(
                        clone(self.estimator).set_params(**clone(settings[position], safe=False)), fold
                    )
                except Exception as error:  # the user's estimator may raise anything; error_score decides
                    self._failed([position], [fold], error, scorers, out)
                    continue
                record = out[position][fold] = {"fit_time": time.time() - started}
                started = time.time()
                for part in self._parts:
                    for name, scorer in scorers.items():
                        record[f"{part}_{name}"] = self._safely(
                            lambda s=scorer, m=model, f=fold, p=part: folds.score(s, m, f, p)
                        )
                record["score_time"] = time.time() - started

    def _safely(self, score: Any) -> float:
        try:
            value = score()
        except Exception as error:  # a scorer may raise anything; error_score decides
            if self.error_score == "raise":
                raise
            warnings.warn(
                f"scoring failed, the score is set to {self.error_score}: {error}", UserWarning, stacklevel=4
            )
            return float(self.error_score)
        return number(value)

    def _failed(
        self, positions: list[int], in_folds: Iterable[int], error: Exception, scorers: dict, out: list
    ) -> None:
        """Settings that cannot be fitted in some folds get the error_score there."""
        if self.error_score == "raise":
            raise error
        for fold in in_folds:
            for position in positions:
                scores = {
                    f"{part}_{name}": float(self.error_score) for part in self._parts for name in scorers
                }
                out[position][fold] = {"fit_time": 0.0, "score_time": 0.0, "failed": str(error), **scores}

    # -- results -----------------------------------------------------------------------------------

    def _choose(self, settings: list[dict], main: str) -> None:
        if self.multimetric_ and not self.refit:
            return
        if callable(self.refit):
            best = self.refit(self.cv_results_)
            if not isinstance(best, Integral) or not 0 <= int(best) < len(settings):
                raise ValueError(f"refit must return a position in 0..{len(settings) - 1}, got {best!r}")
            self.best_index_ = int(best)
        else:
            self.best_index_ = int(self.cv_results_[f"rank_test_{main}"].argmin())
        self.best_params_ = settings[self.best_index_]
        if not (callable(self.refit) and self.multimetric_):
            self.best_score_ = float(self.cv_results_[f"mean_test_{main}"][self.best_index_])

    # -- the best estimator ------------------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        """Labels (n_classes,) of `best_estimator_`, for classifiers."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """Columns of X, as `best_estimator_` has them."""
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                f"{type(self).__name__} has no n_features_in_ before it is fitted with refit"
            )
        return self.best_estimator_.n_features_in_

    @_best_has("predict")
    def predict(self, X: Any) -> np.ndarray:
        """Predictions of the best estimator.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        predictions : ndarray of shape (n,)
            Labels or numbers.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @_best_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values of the best estimator.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,) or (n, n_classes)
            Decision values; one column per class for more than two classes.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    @_best_has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the best estimator.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        probabilities : ndarray of shape (n, n_classes)
            In the order of `classes_`; rows sum to one.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @_best_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities of the best estimator.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        logs : ndarray of shape (n, n_classes)
            In the order of `classes_`.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_log_proba(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Score of the best estimator, by the scorer that chose it.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.

        Returns
        -------
        score : float
            The larger, the better.
        """
        check_is_fitted(self, "best_estimator_")
        if self.multimetric_ and callable(self.refit):
            raise ValueError(
                f"with a callable refit none of the scores {list(self.scorer_)} is the main one; use "
                "scorer_[name]"
            )
        scorer: Any = self.scorer_[self.refit] if self.multimetric_ else self.scorer_
        return float(scorer(self.best_estimator_, X, y))


def _warn_if_short(results: list) -> None:
    """Say how many problems have not reached the tolerance. results : stages of every head."""
    short = [stage.certificate.gap for stages in results for stage in stages if not stage.converged]
    if short:
        warnings.warn(
            f"{len(short)} of {sum(map(len, results))} problems stopped above tol, the worst at a relative "
            f"gap of {max(short):.3g}; raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=4,
        )
