"""Multi-class multiple kernel learning by stochastic steps: UFO-MKL and SMSD-MKL, with a certificate."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ...data.lazy_rows import SourceView
from ...data.progress import progress_of
from ...data.rows import row_count
from ...engine import Head, RayParams
from ...engine.placed import PlacedRows
from ...engine.programs.dual_averaging import Task, choose_landmarks, exponent
from ...engine.programs.landmarks import WINDOW_ROWS, Featured, LandmarkAveraging, State
from ...engine.programs.lost_margins import Averaged, LostMargins
from ...kernels.base import Kernel
from ...kernels.normalize import KINDS, zeta_of
from ...optim.losses import Hinge
from ...optim.norms import LpNorm
from ..base import BaseMKL
from ..checks import check_labels, check_number, check_place, label_weights
from ..classifier import MKLClassifier
from ..dataset_answers import datasets_too
from ..description.tails import costs_of
from ..reading import is_matrix
from ..runs.callbacks import a_run, run_of, stop_was_asked
from .landmarks import expansion_over, rows_of_landmarks
from .prices import costs_of_stream, tails_and_costs
from .stream import Stream, all_classes, labels_among, weights_of

NO_ROWS = "needs rows to compare, which ready-made matrices do not have; use None"


class StochasticMKLClassifier(BaseMKL, ClassifierMixin, BaseEstimator):
    """Classification over a learned combination of kernels, all classes in one problem, by stochastic steps.

        min_w  1/2 ||w||_{2,p}^2 + sum_m rho_m ||w_m|| + sum_i C_i loss_i
        loss_i = max_k( [k != y_i] + f_k(x_i) - f_{y_i}(x_i) )
        f_k(x) = sum_m <w_km, phi_m(x)>,   ||w_m||^2 = sum_k ||w_km||^2
        rho_m = beta * cost_m * sum_i C_i

    Mirror descent by dual averaging: rows are visited in random order; one whose best wrong class comes
    within one of the right one is added to the right class and taken from the wrong one. At the end of every
    epoch the counts are a feasible point of the dual problem, so that primal value, dual value and gap are
    known. kernel_costs=None is UFO-MKL, "tail" is SMSD-MKL, normalize="tail" is Conv-MKL. The gap falls like
    C n k(x, x) / epochs; `MKLClassifier` gets to a small one in less time, this one to a useful model of very
    many rows.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`.
    C : float > 0
        Weight of the loss; C_i = C * sample_weight_i * class_weight of its class.
    p : float in (1, 2], or None
        Block norm over the kernels. None: q = p / (p - 1) is max(2, 2 log M).
    beta : float >= 0
        Price of kernels: those that are not worth theirs get no weight at all.
    kernel_costs : array-like of shape (M,), "tail" or None
        None: all 1. "tail": trace(K_m) less the two largest eigenvalues of K_m, per row.
    batch_size : int
        Rows that are visited with the same weights.
    max_iter : int
        Epochs (passes over the rows) at most.
    tol : float
        Relative gap (primal - dual) / primal to reach.
    n_landmarks : int or None
        Explicit features from the kernels' values with so many random rows, the same for all kernels, so that
        an epoch costs O(n) and rows are read in batches and not kept. The certificate is then that of the
        approximate kernels. None: the kernels themselves.
    normalize : {None, "multiplicative", "spherical", "trace", "tail"}
        Normalisation of the kernels, learned from the training rows. "tail" divides by the tail sums above.
    class_weight : dict, "balanced" or None
        As for `MKLClassifier`.
    engine, ray_params : object
        As for `MKLClassifier`.
    random_state : int, RandomState or None
        Of the order of rows and of the landmarks. The same seed gives the same model on any number of shards.
        Rows out of a path or Dataset are, with landmarks, shuffled within windows of 32,768: there they
        should not be sorted by class.
    verbose : int
        1 shows epochs on standard error, as `MKLClassifier` shows rounds.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Labels.
    kernel_weights_ : ndarray of shape (M,)
        Weights of the kernels.
    intercept_ : ndarray of shape (K,)
        Zeros.
    support_ : ndarray of shape (n_support,)
        Training rows that lost a margin; with landmarks, these.
    dual_coef_ : ndarray of shape (K, n_support)
        Coefficients of these rows, without landmarks.
    landmarks_ : ndarray of shape (L,)
        Numbers of training rows, with landmarks.
    landmark_coef_ : ndarray of shape (K, M, L)
        f_k(x) = sum_ml landmark_coef_[k, m, l] k_m(x, z_l), with landmarks.
    primal_objective_, dual_objective_, duality_gap_ : float
        Both sides of the relative gap, and the gap.
    converged_ : bool
        Whether the gap is at most `tol`.
    n_iter_ : int
        Epochs.
    history_ : list of dict
        One per epoch: epoch, seconds (since the start), primal, dual, gap.
    tail_sums_ : ndarray of shape (M,)
        What the kernels were divided by or cost, where tail sums were asked for.
    kernels_ : list of Kernel
        The kernels that were learned over.
    engine_used_ : str
        "local" or "ray".
    expansion_ : Expansion
        The sum over support vectors that predictions are made of.
    shard_failures_ : int
        Shards that were lost and replaced.
    resumed_from_ : int or None
        Epoch of the checkpoint that the fit began with.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import StochasticMKLClassifier, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = StochasticMKLClassifier(kernels=kernels.rbf([0.1, 1.0]), C=0.1, max_iter=200, tol=0.05,
    ...     engine="local", random_state=0)
    >>> clf.fit(X, y).converged_
    True

    References
    ----------
    Orabona, Luo: Ultra-fast optimization algorithm for sparse multi kernel learning. ICML 2011.

    Multi-class kernel learning: fast rate and algorithms (Conv-MKL, SMSD-MKL).
    """

    # All is computed in float64, so that the certificate is that of the formulas.
    dtype, exact = "float64", False
    _prices = (0.0, None)  # those of the exact solver's norm: here prices are part of the steps

    def __init__(
        self,
        kernels: Any = None,
        C: float = 1.0,
        p: float | None = None,
        beta: float = 0.0,
        kernel_costs: Any = None,
        batch_size: int = 16,
        max_iter: int = 50,
        tol: float = 1e-2,
        n_landmarks: int | None = None,
        normalize: Any = None,
        class_weight: Any = None,
        engine: Any = "auto",
        ray_params: RayParams | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.kernels = kernels
        self.C = C
        self.p = p
        self.beta = beta
        self.kernel_costs = kernel_costs
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_landmarks = n_landmarks
        self.normalize = normalize
        self.class_weight = class_weight
        self.engine = engine
        self.ray_params = ray_params
        self.random_state = random_state
        self.verbose = verbose

    # -- checks ------------------------------------------------------------------------------------

    def _check_params(self) -> None:
        check_number("C", self.C, 0.0, strict=True)
        check_number("tol", self.tol, 0.0, strict=True)
        check_number("beta", self.beta, 0.0)
        check_number("batch_size", self.batch_size, 1, whole=True)
        check_number("max_iter", self.max_iter, 1, whole=True)
        if self.p is not None and not (
            isinstance(self.p, Real) and not isinstance(self.p, bool) and 1 < self.p <= 2
        ):
            raise ValueError(
                f"p must be a number in (1, 2] or None, the block norm over kernels; got {self.p!r}"
            )
        known = self.normalize is None or (isinstance(self.normalize, str) and self.normalize in KINDS)
        if not known and zeta_of(self.normalize) is None:
            raise ValueError(
                f"normalize must be one of {', '.join(map(repr, KINDS))}; got {self.normalize!r}"
            )
        if self.n_landmarks is not None:
            check_number("n_landmarks", self.n_landmarks, 1, whole=True)
            if isinstance(self.kernels, str) and self.kernels == "precomputed":
                raise ValueError(f"n_landmarks={self.n_landmarks} {NO_ROWS}")
        check_place(self.engine, self.ray_params)
        costs_of(self.kernel_costs)

    def _check_rows(self, kernels: list[Kernel], n: int) -> None:
        """Checks that need the number of rows that count, or the kernels."""
        costs_of(self.kernel_costs, len(kernels))
        if self.n_landmarks is None:
            return
        if any(map(is_matrix, kernels)):
            raise ValueError(f"n_landmarks={self.n_landmarks} {NO_ROWS}")
        if self.n_landmarks > n:
            raise ValueError(
                f"n_landmarks={self.n_landmarks} is more than the {n} rows (of positive weight) that there "
                "are"
            )

    # -- training ----------------------------------------------------------------------------------

    @a_run
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StochasticMKLClassifier:
        """Learn all classes in one problem.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows, kernels, y, weights = self._inputs(X, y, sample_weight, None)
        self._check_rows(kernels, int(np.count_nonzero(weights)))
        self._forget()
        self.kernels_ = kernels
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        tails, normalisation, costs = tails_and_costs(
            rows,
            kernels,
            weights > 0,
            self.normalize,
            self.beta,
            self.kernel_costs,
            self.engine,
            self.ray_params,
        )
        if tails is not None:
            self.tail_sums_ = tails
        task = self._task(y, weights, len(kernels), costs, seed)
        if self.n_landmarks is None:
            self._fit_kernels(rows, kernels, task, normalisation)
        else:
            self.landmarks_ = choose_landmarks(np.flatnonzero(weights), int(self.n_landmarks), seed)
            self._fit_landmarks(rows, task, normalisation)
        last = self.history_[-1]
        self.n_iter_ = last["epoch"]
        self.primal_objective_, self.dual_objective_, self.duality_gap_ = (
            float(last[key]) for key in ("primal", "dual", "gap")
        )
        self.converged_ = bool(self.duality_gap_ <= self.tol)
        if not self.converged_ and not stop_was_asked(self):
            warnings.warn(
                f"stopped after {self.n_iter_} epochs with a relative duality gap of "
                f"{self.duality_gap_:.3g}, above tol={self.tol:g}; the "
                "model is feasible and its gap is certified, but raise max_iter or tol, or lower C",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _forget(self) -> None:
        """Drop what an earlier fit has left and this one need not write."""
        for name in ("dual_coef_", "landmarks_", "landmark_coef_", "tail_sums_", "_stream"):
            vars(self).pop(name, None)

    def _inputs(
        self, X: Any, y: Any, sample_weight: Any, classes: np.ndarray | None, reset: bool = True
    ) -> tuple[dict, list[Kernel], np.ndarray, np.ndarray]:
        """Rows, kernels, classes 0..K-1 (n,) and weights (n,), all checked.

        classes : (K,) labels of a stream that y is among, or None for those of y. reset : whether columns
        need not be those known.
        """
        self._check_params()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = self._source_of(X, y)
        _, rows, kernels = self._read(X, reset=reset)
        n = row_count(rows)
        if classes is None:
            y = check_labels(y, n)
            weights = label_weights(sample_weight, self.class_weight, y)
        else:
            y = labels_among(y, n, classes)
            weights = weights_of(sample_weight, self.class_weight, y)
        self.classes_ = np.unique(y) if classes is None else classes
        return rows, kernels, np.searchsorted(self.classes_, y), weights

    def _task(self, y: np.ndarray, weights: np.ndarray, n_kernels: int, costs: np.ndarray, seed: int) -> Task:
        return Task(
            y=y,
            weights=weights,
            n_classes=len(self.classes_),
            C=float(self.C),
            q=exponent(self.p, n_kernels),
            prices=float(self.beta) * costs,
            batch_size=int(self.batch_size),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            seed=seed,
        )

    def _set_constants(
        self, rows: dict, kernels: list[Kernel], heads: list[Head], known: dict | None = None
    ) -> None:
        """Nothing: prices and tail sums are found by `tails_and_costs`."""

    def _run(
        self, rows: dict, kernels: list[Kernel], program: Any, weights: np.ndarray, gating: Any = None
    ) -> tuple[Any, Any, Any]:
        """What the engine makes of a program, the problem, and the gate of every kernel."""
        # Tail sums are not learned by the engine; its own kinds are.
        problem, working, gate_of_entry = self._describe(rows, kernels, [self._head(weights)], gating)
        # Columns are met again in every epoch: it pays to keep them.
        trained = run_of(
            self, working, replace(problem, light=frozenset()), program, progress_of(self.verbose)
        )
        self._keep_run(trained)
        return trained.results, problem, gate_of_entry

    def _head(self, weights: np.ndarray) -> Head:
        """What normalisation goes by."""
        kind = self.normalize if isinstance(self.normalize, str) and zeta_of(self.normalize) is None else None
        return Head(np.zeros(len(weights)), weights, Hinge(), LpNorm(2.0), normalize=kind)

    def _fit_kernels(
        self, rows: dict, kernels: list[Kernel], task: Task, normalisation: np.ndarray | None
    ) -> None:
        program = LostMargins(task, self._head(task.weights), normalisation)
        found: Averaged
        found, problem, gate_of_entry = self._run(rows, kernels, program, task.weights)
        self.history_ = found.history
        self.support_ = np.flatnonzero(np.any(found.N != 0, axis=1))
        self.dual_coef_ = task.scale(found.t) * found.N[self.support_].T
        self._keep_weights(found.mu)
        effective = np.tile(found.mu * found.normalisation, (task.n_classes, 1))
        self._expand(effective, rows, problem.gates, gate_of_entry)

    def _fit_landmarks(self, rows: dict, task: Task, normalisation: np.ndarray | None) -> None:
        n, landmark_rows = len(task.y), rows_of_landmarks(rows, self.kernels_, self.landmarks_)
        found = self._average(rows, task, landmark_rows, normalisation, None, stream=False)
        self.history_ = found.history
        self._stream = Stream.after(found, task.seed, self.history_[-1]["epoch"]).kept
        self._keep_landmarks(found, landmark_rows, n)

    def _average(
        self,
        rows: dict,
        task: Task,
        where: dict,
        factors: np.ndarray | None,
        state: State | None,
        stream: bool,
    ) -> Featured:
        """Dual averaging over features of rows.

        where : features of the landmarks. The rest as in `LandmarkAveraging`.
        """
        if not isinstance(rows, PlacedRows) and any(isinstance(array, SourceView) for array in rows.values()):
            rows = {key: array.streaming() for key, array in rows.items()}
            task = replace(task, window=WINDOW_ROWS)
        kind = self._head(task.weights).normalize
        program = LandmarkAveraging(task, self.kernels_, where, kind, factors, state, stream)
        found, _, _ = self._run(rows, self.kernels_, program, task.weights, (None, None))
        return found

    def _keep_weights(self, mu: np.ndarray) -> None:
        self.kernel_weights_ = mu
        self.intercept_ = np.zeros(len(self.classes_))

    def _keep_landmarks(self, found: Featured, landmark_rows: dict, n: int) -> None:
        """The model over landmarks. n : rows that it was trained on."""
        self._keep_weights(found.mu)
        effective = found.mu * found.normalisation
        self.support_, self.landmark_coef_ = self.landmarks_, found.points * effective[:, None]
        spherical = isinstance(self.normalize, str) and self.normalize == "spherical"
        self.expansion_ = expansion_over(self.landmarks_, landmark_rows, self.kernels_, found, spherical, n)

    # -- rows that keep coming ---------------------------------------------------------------------

    @available_if(
        lambda self: self.n_landmarks is not None
    )  # else every row that was ever seen would have to be kept
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> StochasticMKLClassifier:
        """Visit more rows, once, of a model with landmarks.

        The first call takes the landmarks out of its rows and needs all labels that will ever come; after
        `fit` neither is needed. The problem is that of all rows so far, with the same C each.
        `dual_objective_` is a lower bound of its optimum; the loss of rows that were not kept is not known,
        so that `primal_objective_` and `duality_gap_` are NaN.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        classes : array-like of shape (K,), or None
            All labels; needed by the first call.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None weighs all alike.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_params()
        first = not hasattr(self, "_stream")
        if zeta_of(self.normalize) is not None or (isinstance(self.kernel_costs, str) and self.beta > 0):
            raise ValueError(
                "tail sums are those of all rows, which a stream does not show; use another normalize and "
                "kernel_costs"
            )
        known = all_classes(classes, None if first else self.classes_)
        rows, kernels, y, weights = self._inputs(X, y, sample_weight, known, reset=first)
        self._check_rows(kernels, int(np.count_nonzero(weights)) if first else self.expansion_.n_train)
        if first:
            self._forget()
            self.kernels_, self.n_iter_ = kernels, 0
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.landmarks_ = choose_landmarks(np.flatnonzero(weights), int(self.n_landmarks), seed)
            landmark_rows, state, normalisation, before = (
                rows_of_landmarks(rows, self.kernels_, self.landmarks_),
                None,
                None,
                0,
            )
        else:
            stream = Stream.of(self._stream)
            state, seed, normalisation = stream.state, stream.seed, stream.normalisation
            landmark_rows, before = self.expansion_.support_rows, self.expansion_.n_train
        costs = costs_of_stream(self.kernel_costs, len(self.kernels_))
        task = self._task(y, weights, len(self.kernels_), costs, seed)
        found = self._average(rows, task, landmark_rows, normalisation, state, stream=True)
        stream = Stream.after(found, seed)
        self._stream = stream.kept
        self._keep_landmarks(found, landmark_rows, before + len(y))
        self.n_iter_ += 1
        self.dual_objective_ = stream.dual(task)
        self.primal_objective_ = self.duality_gap_ = float("nan")
        self.converged_ = False
        return self

    # -- prediction --------------------------------------------------------------------------------

    @datasets_too
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,) or (n, n_classes)
            (n,) for two classes, f_1 - f_0: positive means `classes_[1]`.
        """
        check_is_fitted(self, "expansion_")
        values = self._decision(X)
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values

    predict = MKLClassifier.predict

    @datasets_too
    def contributions(self, X: Any) -> np.ndarray:
        """The part of the decision value that each kernel brings.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        parts : ndarray of shape (n, M) or (n, n_classes, M)
            (n, M) for two classes.
        """
        values = super().contributions(X)
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values
