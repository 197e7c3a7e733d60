"""Grid search with cross-validation in which folds and settings share their kernel blocks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
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
from .settings import blocks_of, learns_by_heads, of_heads, paths_of, template_of


def _best_has(name: str):
    return available_if(lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name))


class MKLSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Cross-validated search over a grid of settings, with scikit-learn's names and results.

    Every fold and setting is a head over one set of kernel blocks: folds are row masks, held-out scores come
    from the f that the engine maintains anyway, values of C are solved one after the other from where the
    last one ended. Normalisation constants come from the training rows of each fold. Parameters that change
    the kernels themselves get blocks of their own. Estimators (or pipelines) whose folds cannot be heads are
    fitted fold by fold.

    Parameters
    ----------
    estimator : estimator such as `MKLClassifier`
    param_grid : dict of lists, or list of such dicts
        E.g. `{"C": [0.1, 1, 10], "p": [1, 4/3, 2]}`.
    cv : int, splitter or iterable of (train, test)
    scoring : str, callable, list or dict of them, or None for the estimator's own score
        Anything that needs `decision_function` or `predict`; besides scikit-learn's names those in
        `raymkl.metrics.SCORERS`.
    refit : bool, name of a score, or callable
        Fit the best setting on all rows (`best_estimator_`). A callable gets `cv_results_` and returns the
        position of the best one.
    error_score : number or "raise"
        Score of a fold that could not be fitted or scored.
    return_train_score : bool
    verbose : int
        1 shows how the runs get on, as for `MKLClassifier`.

    Attributes
    ----------
    cv_results_, best_params_, best_score_, best_index_, best_estimator_, scorer_, n_splits_, multimetric_,
    refit_time_ : as in
        scikit-learn's GridSearchCV.

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
        X : array-like of shape (n, d), any container that the kernels take, a path or a Dataset
            Rows.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        groups : array-like of shape (n,), or None
            Given to the splitter.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None for alike.

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
        self.cv_results_ = self._results(settings, out, scorers)
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
        heads: list = []
        parties: list = []
        for path in paths_of(settings, fine, template.C, getattr(template, "beta", 0.0)):
            changing = of_heads(template, settings[path[0]])
            changing.pop("C", None)
            bounds = tuple(float(settings[position].get("C", template.C)) for position in path)
            for fold in everywhere:
                try:
                    more, held_out = folds.fold(changing, fold, bounds, self.return_train_score)
                except ValueError as error:
                    self._failed(path, [fold], error, scorers, out)
                    continue
                parties.append((path, fold, put_beside(heads, more), held_out))
        if not heads:
            return
        problem, rows = folds.problem(heads)
        params, report = checkpoints.part_of(template.ray_params, name), progress_of(self.verbose)
        trained = train(rows, problem, heads, template.engine, params, report, True)
        short = [
            stage.certificate.gap for stages in trained.results for stage in stages if not stage.converged
        ]
        if short:
            warnings.warn(
                f"{len(short)} of {sum(map(len, trained.results))} problems stopped above tol, the worst at "
                "a relative gap of "
                f"{max(short):.3g}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        seconds = (time.time() - started) / (len(positions) * len(splits))
        for path, fold, part, held_out in parties:
            for stage, position in enumerate(path):
                values = [stages[stage].f for stages in trained.results[part]]
                record = out[position][fold] = {"fit_time": seconds}
                self._score_fold(folds, scorers, held_out, values, fold, record)

    def _score_fold(
        self, folds: Folds, scorers: dict, held_out: Any, values: list, fold: int, record: dict
    ) -> None:
        started = time.time()
        for part in ("test", "train") if self.return_train_score else ("test",):
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
                for part in ("test", "train") if self.return_train_score else ("test",):
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
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"scoring must return a number, got {value!r}; several scores come as a dict of scorers"
            ) from None

    def _failed(
        self, positions: list[int], in_folds: Iterable[int], error: Exception, scorers: dict, out: list
    ) -> None:
        """Settings that cannot be fitted in some folds get the error_score there."""
        if self.error_score == "raise":
            raise error
        parts = ("test", "train") if self.return_train_score else ("test",)
        for fold in in_folds:
            for position in positions:
                scores = {f"{part}_{name}": float(self.error_score) for part in parts for name in scorers}
                out[position][fold] = {"fit_time": 0.0, "score_time": 0.0, "failed": str(error), **scores}

    # -- results -----------------------------------------------------------------------------------

    def _results(self, settings: list[dict], out: list[list[dict]], scorers: dict) -> dict:
        errors = [record["failed"] for folds in out for record in folds if "failed" in record]
        if len(errors) == len(settings) * self.n_splits_:
            raise ValueError(f"all {len(errors)} fits failed; the first one said: {errors[0]}")
        if errors:
            warnings.warn(
                f"{len(errors)} of {len(settings) * self.n_splits_} fits failed, their score is set to "
                f"{self.error_score}; "
                f"what they said: {'; '.join(dict.fromkeys(errors))}",
                FitFailedWarning,
                stacklevel=3,
            )
        results: dict[str, Any] = {}
        for name in ("fit_time", "score_time"):
            times = np.array([[record[name] for record in folds] for folds in out])
            results[f"mean_{name}"], results[f"std_{name}"] = times.mean(axis=1), times.std(axis=1)
        for name in sorted({name for setting in settings for name in setting}):
            column = np.ma.MaskedArray(np.empty(len(settings), object), mask=True)
            for position, setting in enumerate(settings):
                if name in setting:
                    column[position] = setting[name]
            results[f"param_{name}"] = column
        results["params"] = settings
        for part in ("test", "train") if self.return_train_score else ("test",):
            for name in scorers:
                key = f"{part}_{name}"
                scores = np.array([[record[key] for record in folds] for folds in out])
                for fold in range(self.n_splits_):
                    results[f"split{fold}_{key}"] = scores[:, fold]
                results[f"mean_{key}"], results[f"std_{key}"] = scores.mean(axis=1), scores.std(axis=1)
                if part == "test":
                    means = results[f"mean_{key}"]
                    worst = np.nanmin(means) - 1 if np.isfinite(means).any() else 0.0
                    results[f"rank_{key}"] = rankdata(
                        -np.where(np.isnan(means), worst, means), method="min"
                    ).astype(np.int32)
        return results

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
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                f"{type(self).__name__} has no n_features_in_ before it is fitted with refit"
            )
        return self.best_estimator_.n_features_in_

    @_best_has("predict")
    def predict(self, X: Any) -> np.ndarray:
        """Predictions of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @_best_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    @_best_has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @_best_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_log_proba(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Score of the best estimator, by the scorer that chose it.

        Parameters
        ----------
        X : array-like of shape (n, d), any container that the kernels take, a path or a Dataset
            Rows.
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
