"""Regression with lp-norm multiple kernel learning."""

from __future__ import annotations

from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.rows import row_count
from ..engine import Head, RayParams
from ..optim.losses import CLASSIFICATION, REGRESSION, Loss
from ..optim.norms import Norm
from .base import BaseMKL
from .checks import check_loss, check_number, check_targets, row_weights
from .dataset_answers import datasets_too
from .probability.conformal import check_coverage, intervals
from .probability.held_out import decision_of_folds, folds_beside, keep_folds
from .probability.splits import check_folds_params
from .runs.callbacks import a_run


class MKLRegressor(BaseMKL, RegressorMixin, BaseEstimator):
    """Regression over a learned combination of kernels.

        min_{w,b}  1/2 ||w||_{2,p}^2 + sum_i C_i loss(f(x_i), y_i)
        f(x) = sum_m <w_m, phi_m(x)> + b

    solved to a certified relative duality gap. The weights theta of the kernels satisfy theta >= 0 and, for p
    < 2, sum_m theta_m^q = 1 with q = p / (2 - p).

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`.
    C : float > 0
        Weight of the loss; C_i = C * sample_weight_i.
    epsilon : float >= 0
        Errors up to this size cost nothing, with the losses that have a tube; in the units of y.
    p, norm, solver, theta_step, normalize, tol, max_iter, warm_start, beta, kernel_costs, missing : object
        As for `MKLClassifier`.
    engine, ray_params, dtype, exact, random_state, verbose : object
        As for `MKLClassifier`.
    loss : {"epsilon_insensitive", "squared", "squared_epsilon_insensitive", "huber", "quantile"}
        With r = y - f: max(0, |r| - epsilon), r^2 / 2, max(0, |r| - epsilon)^2 / 2, r^2 / 2 that goes on
        linearly beyond delta, or max(quantile r, (quantile - 1) r).
    delta : float > 0
        Of the Huber loss: errors beyond it count linearly; in the units of y.
    quantile : float in (0, 1)
        Of the quantile loss: the part of the examples that f is to lie above.
    conformal : bool
        Keep the models of the folds for intervals (`predict_interval`). They are solved beside the model,
        over the same kernel values.
    cv : int, splitter or list of tuple
        Folds of `conformal`, which must be a partition of the rows; an int is that of a `KFold`.

    Attributes
    ----------
    kernel_weights_ : ndarray of shape (M,) or (1 + R, M)
        Weights theta of the kernels. missing="neutral": M + 1 kernels. missing="pattern": (1 + R, M), those
        of all rows first.
    support_ : ndarray of shape (n_support,)
        Training rows outside the tube or on its edge.
    dual_coef_ : ndarray of shape (1, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,)
        b.
    duality_gap_, primal_objective_, dual_objective_ : float
        Certified relative gap, and both sides of it.
    held_out_decision_ : ndarray of shape (n,)
        Predictions of the training rows, each by the fold that holds it out; with `conformal`.
    folds_ : ndarray of shape (n,)
        The fold that holds each row out; with `conformal`.
    fold_gaps_ : ndarray of shape (n_folds,)
        Relative duality gaps of the folds; with `conformal`.
    fold_models_ : FoldModels
        Models of the folds; with `conformal`.
    view_names_ : list of str
        The V views that the kernels read.
    present_ : ndarray of shape (V,)
        The share of the training rows that have each of them.
    patterns_ : ndarray of shape (R, V)
        bool, patterns of presence among the training rows, with missing="pattern".
    tail_sums_ : ndarray of shape (M,)
        What the kernels were divided by, with normalize="tail" or a `kernels.TailSum`.
    n_iter_ : int
        Rounds.
    shard_failures_ : int
        Shards that were lost and replaced.
    resumed_from_ : int or None
        Round of the checkpoint that the fit began with.
    converged_ : bool
        Whether the gap is at most `tol`.
    history_ : list of dict
        One per round, as for `MKLClassifier`.
    kernels_ : list of Kernel
        The kernels that were learned over.
    engine_used_ : str
        "local" or "ray".
    expansion_ : Expansion
        The sum over support vectors that predictions are made of.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLRegressor, kernels
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = MKLRegressor(kernels=kernels.rbf([0.1, 1.0, 10.0]), C=10.0, epsilon=0.05,
    ...     engine="local").fit(X, y)
    >>> bool(model.score(X, y) > 0.98)
    True
    """

    def __init__(
        self,
        kernels: Any = None,
        C: float = 1.0,
        epsilon: float = 0.1,
        p: float = 4 / 3,
        solver: str = "chunking",
        theta_step: str = "auto",
        normalize: str | None = None,
        tol: float = 1e-3,
        engine: str = "auto",
        ray_params: RayParams | None = None,
        max_iter: int = 10_000,
        warm_start: bool = False,
        dtype: str = "auto",
        exact: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        loss: str = "epsilon_insensitive",
        delta: float = 1.0,
        quantile: float = 0.5,
        norm: Norm | None = None,
        beta: float = 0.0,
        kernel_costs: Any = None,
        missing: str = "error",
        conformal: bool = False,
        cv: Any = 5,
    ):
        self.kernels = kernels
        self.C = C
        self.epsilon = epsilon
        self.p = p
        self.solver = solver
        self.theta_step = theta_step
        self.normalize = normalize
        self.tol = tol
        self.engine = engine
        self.ray_params = ray_params
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.dtype = dtype
        self.exact = exact
        self.random_state = random_state
        self.verbose = verbose
        self.loss = loss
        self.delta = delta
        self.quantile = quantile
        self.norm = norm
        self.beta = beta
        self.kernel_costs = kernel_costs
        self.missing = missing
        self.conformal = conformal
        self.cv = cv

    def _check_params(self) -> None:
        super()._check_params()
        if hasattr(self, "conformal"):
            check_folds_params(self.conformal, self.cv)
        check_loss(self.loss, REGRESSION, "a regressor", CLASSIFICATION)
        check_number("epsilon", self.epsilon, 0.0)
        check_number("delta", self.delta, 0.0, strict=True)
        if not (
            isinstance(self.quantile, Real) and not isinstance(self.quantile, bool) and 0 < self.quantile < 1
        ):
            raise ValueError(f"quantile must be a number in (0, 1), got {self.quantile!r}")

    def _loss(self) -> Loss:
        kind = REGRESSION[self.loss]
        options = {"epsilon": self.epsilon, "delta": self.delta, "quantile": self.quantile}
        return kind(**{field.name: float(options[field.name]) for field in fields(kind)})

    @a_run
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MKLRegressor:
        """Learn from rows with numbers.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.
        y : array-like of shape (n,), or str
            Numbers, or the name of a column of a path or Dataset.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_params()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = self._source_of(X, y)
        X, rows, kernels = self._read(X, reset=True)
        n = row_count(rows)
        y = check_targets(y, n)
        weights = row_weights(sample_weight, n)
        start = self._start(n, len(kernels))
        self.kernels_ = kernels
        shift = _center(y, weights)
        head = self._head(y - shift, self.C * weights)
        head.start = start
        folds = folds_beside(self, X, y, sample_weight, classifier=False)
        if folds is None:
            self._train(rows, kernels, [head])
        else:
            self._train(rows, kernels, [head], folds)
        self.intercept_ = self.intercept_ + shift
        if folds is not None:
            keep_folds(self, folds)
            self.fold_models_ = folds.kept(kernels, lambda values: np.abs(y - values[:, 0]))
        return self

    def _head(self, y: np.ndarray, bounds: np.ndarray) -> Head:
        return Head(
            targets=y,
            bounds=bounds,
            loss=self._loss(),
            norm=self._norm_of(),
            tol=self.tol,
            solver=self.solver,
            theta_step=self.theta_step,
            normalize=self.normalize,
            max_rounds=self.max_iter,
        )

    _can_fold = True
    _head_params = frozenset(
        {
            "C",
            "p",
            "norm",
            "loss",
            "epsilon",
            "delta",
            "quantile",
            "solver",
            "theta_step",
            "tol",
            "max_iter",
            "beta",
            "kernel_costs",
        }
        | {"conformal", "cv"}
    )

    def _fold(
        self, y: np.ndarray, sample_weight: np.ndarray | None, train: np.ndarray
    ) -> tuple[list[Head], Any]:
        """Head of one fold at C = 1 (other rows are masked), and what turns its decision values into an
        estimator to score.
        """
        y, bounds = check_targets(y, len(y)), np.zeros(len(y))
        bounds[train] = 1.0 if sample_weight is None else sample_weight[train]
        shift = _center(y, bounds)
        return [self._head(y - shift, bounds)], HeldOutRegressor(shift)

    @datasets_too
    def predict(self, X: Any) -> np.ndarray:
        """Numbers f(x) of rows.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,), or Dataset
            Predictions f(x). A Dataset is answered by a Dataset.
        """
        check_is_fitted(self, "dual_coef_")
        return self._decision(X)[:, 0]

    @available_if(lambda self: bool(getattr(self, "conformal", False)))
    @datasets_too
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Intervals for y of each row; with conformal=True.

        With training row i held out by fold(i) and r_i = y_i - f_fold(i)(x_i), from the
        floor((1 - coverage)(n + 1))-th smallest of f_fold(i)(x) - |r_i| to the ceil(coverage (n + 1))-th
        smallest of f_fold(i)(x) + |r_i| (CV+). Over many new rows like the training rows, about this part of
        the intervals hold y; that is no promise about one row.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in any container that `predict` takes.
        coverage : float in (0, 1)
            The part of the intervals that is to hold y.

        Returns
        -------
        intervals : ndarray of shape (n, 2)
            Lower and upper ends, infinite where there are too few training rows to say.

        Examples
        --------
        >>> import numpy as np
        >>> from raymkl import MKLRegressor, kernels
        >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 1))
        >>> model = MKLRegressor(kernels=kernels.rbf([0.1, 1.0]), C=10.0, conformal=True,
        ...     engine="local").fit(X, np.sin(X[:, 0]))
        >>> low, high = model.predict_interval(X, coverage=0.8).T
        >>> bool((low < high).all())
        True
        """
        coverage = check_coverage(coverage)
        return intervals(decision_of_folds(self, X), self.fold_models_, coverage)


def _center(y: np.ndarray, weights: np.ndarray) -> float:
    """What y (n,) is centred by: a shift of y shifts the intercept and nothing else, and residuals keep all
    their digits.
    """
    return float(np.average(y, weights=weights))


class HeldOutRegressor(RegressorMixin, BaseEstimator):
    """Predictions of one set of rows in the clothes of a fitted regressor, for scikit-learn's scorers.

    shift : what the targets were centred by. values : (n,) predictions of the rows that `predict` is asked
    for.
    """

    def __init__(self, shift: float = 0.0, values: Any = None):
        self.shift = shift
        self.values = values

    def with_values(self, parts: list[np.ndarray]) -> HeldOutRegressor:
        """A copy that answers with the decision values of the one head."""
        return HeldOutRegressor(self.shift, parts[0] + self.shift)

    def __sklearn_is_fitted__(self) -> bool:
        return self.values is not None

    def fit(self, X: Any, y: Any) -> HeldOutRegressor:
        """Nothing to learn."""
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The stored values; X must be the rows they belong to."""
        return self.values
