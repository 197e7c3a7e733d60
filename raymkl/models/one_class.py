"""Novelty detection with lp-norm multiple kernel learning."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from ..data.rows import row_count
from ..engine import Head, RayParams
from ..optim.losses import OneClass
from ..optim.norms import Norm
from .base import BaseMKL
from .checks import row_weights
from .dataset_answers import datasets_too
from .runs.callbacks import a_run


class MKLOneClass(BaseMKL, OutlierMixin, BaseEstimator):
    """The region that most examples lie in, under a learned combination of kernels.

        min_{w,b}  1/2 ||w||_{2,p}^2 + sum_i c_i max(0, -f(x_i)) + nu sum_i c_i b

        f(x) = sum_m <w_m, phi_m(x)> + b,     c = sample_weight

    solved to a certified relative duality gap; the one-class support vector machine over many kernels, for
    outliers and novelties. f is positive inside the region and negative outside. At most the part `nu` of the
    training examples (by weight) lie outside, at least that part are support vectors.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`.
    nu : float in (0, 1]
        See above.
    p, norm, solver, theta_step, normalize, tol, max_iter, warm_start : object
        As for `MKLClassifier`.
    engine, ray_params, dtype, exact, random_state, verbose : object
        As for `MKLClassifier`.

    Attributes
    ----------
    kernel_weights_ : ndarray of shape (M,)
        Weights of the kernels.
    support_ : ndarray of shape (n_support,)
        Training rows outside the region or on its boundary.
    dual_coef_ : ndarray of shape (1, n_support)
        Dual variables; they sum to nu times the weight of all rows.
    intercept_ : ndarray of shape (1,)
        b.
    offset_ : float
        The same with the other sign: decision_function = score_samples - offset_.
    duality_gap_, primal_objective_, dual_objective_ : float
        Relative gap, and both sides of it.
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
    tail_sums_ : ndarray of shape (M,)
        What the kernels were divided by, with normalize="tail" or a `kernels.TailSum`.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.

    References
    ----------
    Schoelkopf, Platt, Shawe-Taylor, Smola, Williamson: Estimating the support of a high-dimensional
    distribution. Neural Computation 13, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLOneClass, kernels
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = MKLOneClass(kernels=kernels.rbf([0.1, 1.0]), nu=0.1, engine="local").fit(X)
    >>> model.predict([[0.0, 0.0], [5.0, 5.0]])
    array([ 1, -1])
    """

    # Not a parameter here: a factor of all c_i is one of f, too.
    C = 1.0

    def __init__(
        self,
        kernels: Any = None,
        nu: float = 0.5,
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
        norm: Norm | None = None,
    ):
        self.kernels = kernels
        self.nu = nu
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
        self.norm = norm

    def _check_params(self) -> None:
        super()._check_params()
        if not (isinstance(self.nu, Real) and not isinstance(self.nu, bool) and 0 < self.nu <= 1):
            raise ValueError(f"nu must be a number in (0, 1], got {self.nu!r}")

    @a_run
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MKLOneClass:
        """Learn the region that most rows lie in.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.
        y : None
            Not used.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_params()
        X, _ = self._source_of(X, y)
        X, rows, kernels = self._read(X, reset=True)
        n = row_count(rows)
        weights = row_weights(sample_weight, n)
        start = self._start(n, len(kernels))
        self.kernels_ = kernels
        head = self._head(weights)
        head.start = start
        self._train(rows, kernels, [head])
        self.offset_ = -float(self.intercept_[0])
        return self

    def _head(self, bounds: np.ndarray) -> Head:
        return Head(
            targets=np.ones(len(bounds)),
            bounds=bounds,
            loss=OneClass(),
            norm=self._norm_of(),
            tol=self.tol,
            solver=self.solver,
            theta_step=self.theta_step,
            normalize=self.normalize,
            max_rounds=self.max_iter,
            total=float(self.nu) * float(bounds.sum()),
        )

    _can_fold = True
    _head_params = frozenset({"nu", "p", "norm", "solver", "theta_step", "tol", "max_iter"})

    def _fold(
        self, y: np.ndarray | None, sample_weight: np.ndarray | None, train: np.ndarray
    ) -> tuple[list[Head], Any]:
        """Head of one fold (other rows are masked), and what turns its decision values into an estimator to
        score.
        """
        n = len(y)
        bounds = np.zeros(n)
        bounds[train] = row_weights(None if sample_weight is None else sample_weight[train], len(train))
        return [self._head(bounds)], HeldOutOneClass()

    @property
    def score(self) -> Any:
        """There is none without labels; `scoring=` of scikit-learn's tools takes y."""
        raise AttributeError("MKLOneClass has no score: there are no labels to compare with")

    @datasets_too
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values f(x): positive inside the region, negative outside.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,)
            A Dataset of a Dataset.
        """
        check_is_fitted(self, "dual_coef_")
        return self._decision(X)[:, 0]

    def score_samples(self, X: Any) -> np.ndarray:
        """Decision values without the intercept: the larger, the more usual.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,)
            decision_function + offset_.
        """
        return self.decision_function(X) + self.offset_

    @datasets_too
    def predict(self, X: Any) -> np.ndarray:
        """Which rows lie inside.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        inside : ndarray of shape (n,)
            +1 inside the region and -1 outside.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)


class HeldOutOneClass(OutlierMixin, BaseEstimator):
    """Decision values of one set of rows in the clothes of a fitted detector, for scikit-learn's scorers.

    values : (n,) decision values of the rows that `predict` and `decision_function` are asked for.
    """

    def __init__(self, values: Any = None):
        self.values = values

    def with_values(self, parts: list[np.ndarray]) -> HeldOutOneClass:
        """A copy that answers with the decision values of the one head."""
        return HeldOutOneClass(parts[0])

    def __sklearn_is_fitted__(self) -> bool:
        return self.values is not None

    def fit(self, X: Any, y: Any = None) -> HeldOutOneClass:
        """Nothing to learn."""
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The stored values; X must be the rows they belong to."""
        return self.values

    def predict(self, X: Any) -> np.ndarray:
        """+1 or -1, (n,)."""
        return np.where(self.values >= 0, 1, -1)
