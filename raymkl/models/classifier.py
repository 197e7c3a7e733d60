"""Classification with lp-norm multiple kernel learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.rows import row_count
from ..engine import Head, RayParams
from ..optim.losses import CLASSIFICATION, REGRESSION, JointHinge
from ..optim.norms import Norm
from .base import BaseMKL
from .checks import check_labels, check_loss, label_weights
from .dataset_answers import datasets_too
from .probability.calibration import Calibration
from .probability.conformal import check_coverage, sets, strangeness
from .probability.held_out import FoldsBeside, decision_of_folds, folds_beside, keep_folds, known_weights
from .probability.splits import check_folds_params, partition_of
from .probability.to_score import CalibratedHeldOut, HeldOutClassifier, probabilities_of
from .runs.callbacks import a_run

MULTI_CLASS = ("ovr", "joint")


# What a probability of zero is taken for where its logarithm is asked for.
LEAST_PROBABILITY = 1e-300


def _is_calibrated(model: MKLClassifier) -> bool:
    """Whether probabilities are fitted to held-out decision values; localized models are not."""
    return getattr(model, "probability", None) is not None


def _has_probabilities(model: MKLClassifier) -> bool:
    return _is_calibrated(model) or (isinstance(model.loss, str) and model.loss == "logistic")


def _has_sets(model: MKLClassifier) -> bool:
    return bool(getattr(model, "conformal", False))


class MKLClassifier(BaseMKL, ClassifierMixin, BaseEstimator):
    """Classification over a learned combination of kernels.

        min_{w,b}  1/2 ||w||_{2,p}^2 + sum_i C_i loss(f(x_i), y_i)
        f(x) = sum_m <w_m, phi_m(x)> + b

    solved to a certified relative duality gap. By default the loss is that of support vector machines, max(0,
    1 - y f). The weights theta of the kernels satisfy theta >= 0 and, for p < 2, sum_m theta_m^q = 1 with q =
    p / (2 - p). More than two classes are learned one against the rest.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        See `raymkl.kernels`. "precomputed": X is (n, n, M), and (n_test, n_train, M) or (n_test, n_support,
        M) to predict. None: a few Gaussian widths around the median distance, and the linear kernel.
    C : float > 0
        Weight of the loss; C_i = C * sample_weight_i * class_weight of its class.
    p : float in [1, inf]
        Block norm: 1 selects few kernels, 2 is the plain sum, larger is more uniform. `raymkl.norms` converts
        from the norm of the weights.
    solver : {"chunking", "wrapper"}
        "chunking" moves dual variables and weights together; "wrapper" solves an SVM to full precision
        between weight steps and is slower (a reference).
    theta_step : {"auto", "analytic", "cutting_plane"}
        How the weights move. "auto" takes what is quickest: the analytic step, and at p = 1 (and p so near
        that few kernels keep a weight that matters) the method of multipliers, which ends with weights that
        are exactly zero. Cutting planes take p in [1, 2].
    normalize : {None, "multiplicative", "spherical", "trace", "tail"} or `kernels.TailSum`
        Normalisation of the kernels, learned from the training rows and remembered. "tail" divides by what
        the two largest eigenvalues leave of the trace (`kernels.TailSum(zeta)` for another number of them).
    tol : float > 0
        Relative duality gap (primal - dual) / |primal| to reach.
    class_weight : dict, "balanced" or None
        Factor of C for each class; "balanced" makes up for rare classes, as in scikit-learn.
    shared_weights : bool
        More than two classes: learn one set of weights for all of them (quadratic terms summed over the
        classes) instead of one each.
    engine : {"auto", "local", "ray"}
        "auto" uses a running Ray cluster for 5,000 rows or more, and starts Ray for 200,000 or more.
    ray_params : RayParams or None
        Where shards run; `num_shards` and `memory_per_shard` hold for the local engine too.
    max_iter : int
        Rounds at most.
    warm_start : bool
        Continue from the last solution when the number of rows and kernels is the same (a path over C, say).
    dtype : {"auto", "float32", "float64"}
        Of pair statistics while training; the certificate is that of the kernels' formulas either way. "auto"
        is float32, and goes on in float64 where float32 does not reach `tol`; problems for which float64
        costs little begin with it (n * n * M <= 1e6; for p > 2, where round-off matters most, 5e7, or up to
        64 columns). In float32 a fit that cannot reach `tol` ends with a warning and the gap it has reached.
    exact : bool
        Evaluate kernel formulas directly instead of tables (cost grows with the number of kernels).
    random_state : None
        For scikit-learn's conventions; the solver uses no random numbers.
    verbose : int
        0 shows nothing; 1 shows the run on standard error: one line that moves in a terminal or notebook,
        a line per 30 seconds in a log file.
    loss : {"hinge", "squared_hinge", "logistic", "squared"}
        max(0, 1 - yf), 1/2 max(0, 1 - yf)^2, log(1 + exp(-yf)) or 1/2 (y - f)^2, with y = +1 or -1. The
        logistic loss gives probabilities. With the last two (nearly) every row is a support vector.
    multi_class : {"ovr", "joint"}
        More than two classes: one against the rest, or one problem for all of them, whose loss is the margin
        between the right class and the best wrong one, max_k([k != y] + f_k - f_y). The joint problem has one
        set of weights, one certificate and no intercept.
    norm : Norm or None
        One of `raymkl.norms`, in place of the block norm p, which is then ignored: groups of kernels, kernels
        that go together, mixtures.
    beta : float >= 0
        Prices of the kernels: the objective has another sum_m rho_m ||w_m|| with rho_m = beta * sum_i C_i *
        r_m, so that a kernel that is not worth its price has weight zero, exactly. Needs 1 < p < inf. More
        than two classes pay in each of their problems (once, if they share their weights).
    kernel_costs : array-like of shape (M,), "tail" or None
        r_m >= 0 of the prices. None: all 1. "tail": the tail sum of the kernel as it was given (its trace
        less two eigenvalues) over the number of rows that count.
    missing : {"error", "zero", "neutral", "scaled", "pattern"}
        What is done about rows of a `Views` that lack a view which a kernel reads. "zero": the kernel is 0
        for them. "neutral" (the one to begin with): the same, and one more kernel, the last, by which it is
        learned what it means that a view is absent. "scaled": zero, and what is there counts sqrt(V / V_x)
        times, for V_x of V views. "pattern": weights for all rows as in zero, and others on top for each
        pattern of presence. "error": such rows are an error. See docs/missing.md.
    probability : {None, "sigmoid", "isotonic"}
        Calibrated probabilities (`predict_proba`): curves fitted to the decision values of rows held out, one
        per class, as `CalibratedClassifierCV(ensemble=False)` does. The folds are solved beside the model,
        over the same kernel values; the model stays what it is.
    cv : int, splitter or list of tuple
        Folds of `probability` and `conformal`, which must be a partition of the rows; an int is that of a
        `StratifiedKFold`.
    conformal : bool
        Keep the models of the folds for prediction sets (`predict_set`).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    kernel_weights_ : ndarray of shape (M,), (n_classes, M), (1 + R, M) or (n_classes, 1 + R, M)
        Weights theta of the kernels; without n_classes for two classes, shared weights and the joint problem.
        missing="neutral": M + 1 kernels. missing="pattern": one row for all examples and one for each of R
        patterns of presence.
    support_ : ndarray of shape (n_support,)
        Training rows with a dual variable other than zero (of any class).
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        b; zeros for the joint problem.
    duality_gap_ : float or ndarray of shape (n_classes,)
        Certified relative gap; a float for two classes, shared weights (of all classes together) and the
        joint problem.
    primal_objective_, dual_objective_ : float or ndarray of shape (n_classes,)
        Both sides of the gap.
    n_iter_ : int
        Rounds.
    converged_ : bool
        Whether the gap is at most `tol`.
    history_ : list of dict
        One per round and class; "precision" says whether primal, dual and gap are "proved" (of the formulas)
        or those of the rounds ("float32", "float64").
    kernels_ : list of Kernel
        The kernels that were learned over.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.
    view_names_ : list of str
        The V views that the kernels read.
    present_ : ndarray of shape (V,)
        The share of the training rows that have each of them.
    patterns_ : ndarray of shape (R, V)
        bool, patterns of presence among the training rows, with missing="pattern".
    tail_sums_ : ndarray of shape (M,)
        What the kernels were divided by, with normalize="tail" or a `kernels.TailSum`.
    held_out_decision_ : ndarray of shape (n,) or (n, n_classes)
        Decision values of the training rows, each by the fold that holds it out; with `probability` or
        `conformal`.
    folds_ : ndarray of shape (n,)
        The fold that holds each row out; with `probability` or `conformal`.
    fold_gaps_ : ndarray of shape (n_folds,) or (n_folds, n_classes)
        Relative duality gaps of the folds, one per class where `duality_gap_` has one per class.
    calibration_ : Calibration
        Curves from decision values to probabilities, with `probability`.
    fold_models_ : FoldModels
        Models of the folds, with `conformal`.
    expansion_ : Expansion
        The sum over support vectors that predictions are made of.
    engine_used_ : str
        "local" or "ray".
    shard_failures_ : int
        Shards that were lost and replaced.
    resumed_from_ : int or None
        Round of the checkpoint that the fit began with.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from raymkl import MKLClassifier, kernels
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(0)) / X.std(0)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.001, 0.01, 0.1, 1.0]), engine="local").fit(X, y)
    >>> bool(clf.duality_gap_ <= 1e-3)
    True

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien: lp-norm multiple kernel learning. JMLR 12, 2011.
    """

    def __init__(
        self,
        kernels: Any = None,
        C: float = 1.0,
        p: float = 4 / 3,
        solver: str = "chunking",
        theta_step: str = "auto",
        normalize: str | None = None,
        tol: float = 1e-3,
        class_weight: Any = None,
        shared_weights: bool = False,
        engine: str = "auto",
        ray_params: RayParams | None = None,
        max_iter: int = 10_000,
        warm_start: bool = False,
        dtype: str = "auto",
        exact: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        loss: str = "hinge",
        norm: Norm | None = None,
        multi_class: str = "ovr",
        beta: float = 0.0,
        kernel_costs: Any = None,
        missing: str = "error",
        probability: str | None = None,
        cv: Any = 5,
        conformal: bool = False,
    ):
        self.kernels = kernels
        self.C = C
        self.p = p
        self.solver = solver
        self.theta_step = theta_step
        self.normalize = normalize
        self.tol = tol
        self.class_weight = class_weight
        self.shared_weights = shared_weights
        self.engine = engine
        self.ray_params = ray_params
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.dtype = dtype
        self.exact = exact
        self.random_state = random_state
        self.verbose = verbose
        self.loss = loss
        self.norm = norm
        self.multi_class = multi_class
        self.beta = beta
        self.kernel_costs = kernel_costs
        self.missing = missing
        self.probability = probability
        self.cv = cv
        self.conformal = conformal

    def _check_params(self) -> None:
        super()._check_params()
        if hasattr(self, "probability"):
            check_folds_params(self.conformal, self.cv, self.probability)
        check_loss(self.loss, CLASSIFICATION, "a classifier", REGRESSION)
        if not (isinstance(self.multi_class, str) and self.multi_class in MULTI_CLASS):
            raise ValueError(
                f"multi_class must be one of {', '.join(map(repr, MULTI_CLASS))}; got {self.multi_class!r}"
            )
        if self.multi_class == "joint" and self.loss != "hinge":
            raise ValueError(
                f'multi_class="joint" has a hinge loss of its own; loss must be "hinge", got {self.loss!r}'
            )

    @a_run
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MKLClassifier:
        """Learn from labelled rows.

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
        self._check_params()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = self._source_of(X, y)
        X, rows, kernels = self._read(X, reset=True)
        n = row_count(rows)
        y = check_labels(y, n)
        weights = label_weights(sample_weight, self.class_weight, y)
        starts = self._starts(n, len(kernels))
        self.classes_, self.kernels_ = np.unique(y), kernels
        heads = self._heads(y, self.classes_, self.C * weights)
        if len(starts) == len(heads):
            for head, start in zip(heads, starts, strict=True):
                head.start = start
        folds = folds_beside(self, X, y, sample_weight, classifier=True)
        if folds is None:
            self._train(rows, kernels, heads)
            return self
        self._train(rows, kernels, heads, folds)
        keep_folds(self, folds)
        if self.probability is not None:
            self.calibration_ = Calibration.fit(
                self.probability, self.held_out_decision_, y, self.classes_, known_weights(sample_weight)
            )
        if self.conformal:
            own = np.arange(n), np.searchsorted(self.classes_, y)
            self.fold_models_ = folds.kept(kernels, lambda values: strangeness(values)[own])
        return self

    def _heads(self, y: np.ndarray, classes: np.ndarray, bounds: np.ndarray) -> list[Head]:
        """One head for two classes, else one per class. y, bounds : (n,)."""
        positives = classes[1:] if len(classes) == 2 else classes
        joint, numbers = self._is_joint(classes), np.searchsorted(classes, y).astype(float)
        return [
            Head(
                targets=numbers if joint else np.where(y == label, 1.0, -1.0),
                bounds=bounds,
                loss=JointHinge(k) if joint else CLASSIFICATION[self.loss](),
                norm=self._norm_of(),
                tol=self.tol,
                solver=self.solver,
                theta_step=self.theta_step,
                normalize=self.normalize,
                max_rounds=self.max_iter,
                group=0 if joint or (self.shared_weights and len(positives) > 1) else None,
            )
            for k, label in enumerate(positives)
        ]

    def _is_joint(self, classes: np.ndarray) -> bool:
        """Whether all classes are one problem; two of them are the binary one."""
        return self.multi_class == "joint" and len(classes) > 2

    @property
    def _one_certificate(self) -> bool:
        return super()._one_certificate or self._is_joint(self.classes_)

    _can_fold = True
    _head_params = frozenset(
        {
            "C",
            "p",
            "norm",
            "loss",
            "solver",
            "theta_step",
            "tol",
            "class_weight",
            "shared_weights",
            "multi_class",
            "max_iter",
        }
        | {"beta", "kernel_costs", "probability", "cv", "conformal"}
    )

    def _fold(
        self, y: np.ndarray, sample_weight: np.ndarray | None, train: np.ndarray
    ) -> tuple[list[Head], Any]:
        """Heads of one fold at C = 1 (other rows are masked), and what turns their decision values into an
        estimator to score.
        """
        classes = np.unique(check_labels(y[train], len(train)))
        bounds = np.zeros(len(y))
        bounds[train] = label_weights(
            None if sample_weight is None else sample_weight[train], self.class_weight, y[train]
        )
        return self._heads(y, classes, bounds), HeldOutClassifier(
            classes, probabilities=self.loss == "logistic"
        )

    def _fold_to_score(
        self, y: np.ndarray, sample_weight: np.ndarray | None, train: np.ndarray
    ) -> tuple[list[Head], Any]:
        """The same with the heads of folds within these rows, where probabilities are calibrated by them."""
        heads, held_out = self._fold(y, sample_weight, train)
        method = getattr(self, "probability", None)
        if method is None:
            return heads, held_out
        weights = None if sample_weight is None else sample_weight[train]
        within = partition_of(self.cv, y[train], classifier=True)
        folds = FoldsBeside.of(self, y, sample_weight, [(train[a], train[b]) for a, b in within], (1.0,))
        return [*heads, *folds.heads], CalibratedHeldOut(held_out.classes_, method, within, y[train], weights)

    def _starts(self, n: int, n_kernels: int) -> list:
        """Solutions of the last fit to continue from, one per head; empty when there is none that fits."""
        if not self.warm_start or not hasattr(self, "dual_coef_"):
            return []
        weights = np.atleast_2d(self.kernel_weights_)
        if self.expansion_.n_train != n or weights.shape[1:] != (n_kernels,) or self._by_pattern:
            return []
        starts, weights = (
            [],
            np.broadcast_to(weights, (len(self.dual_coef_), n_kernels)),
        )  # shared ones belong to every head
        for coefficients, theta in zip(self.dual_coef_, weights, strict=True):
            a = np.zeros(n)
            a[self.support_] = coefficients
            starts.append((a, self._feasible(theta)))
        return starts

    @datasets_too
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values f(x).

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,) or (n, n_classes), or Dataset
            (n,) for two classes, where positive means `classes_[1]`. A Dataset is answered by a Dataset.
        """
        check_is_fitted(self, "dual_coef_")
        values = self._decision(X)
        return values[:, 0] if values.shape[1] == 1 else values

    @datasets_too
    def predict(self, X: Any) -> np.ndarray:
        """Labels of rows.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        labels : ndarray of shape (n,), or Dataset
            Of the type of y. A Dataset is answered by a Dataset.
        """
        values = self.decision_function(X)
        index = (values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)
        return self.classes_[index]

    @available_if(_has_probabilities)
    @datasets_too
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes), in the order of `classes_`; with `probability`, or loss="logistic".

        With `probability` they are calibrated: curves that were fitted to decision values of rows held out,
        one per class, divided by their sum. The most likely class may then be another one than that of
        `predict`, in a rare row. Else, for two classes, their log odds are the decision values; for more,
        those of one class against the rest, divided by their sum.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        probabilities : ndarray of shape (n, n_classes)
            Rows sum to one.
        """
        if not _is_calibrated(self):
            return probabilities_of(self.decision_function(X))
        check_is_fitted(self, "calibration_")
        return self.calibration_.probabilities(self.decision_function(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms (n, n_classes) of the probabilities; those of zero are that of 1e-300.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        logs : ndarray of shape (n, n_classes)
            Not positive.
        """
        return np.log(np.maximum(self.predict_proba(X), LEAST_PROBABILITY))

    @available_if(_has_sets)
    @datasets_too
    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Classes that fit each row; with conformal=True.

        With strangeness s(x, k) = max_{l != k} f_l(x) - f_k(x) (f and -f for two classes), and training row i
        held out by fold(i), class k is in the set of x where

            (1 + #{i : s_fold(i)(x, k) <= s_fold(i)(x_i, y_i)}) / (n + 1) > 1 - coverage

        Over many new rows like the training rows, about this part of the sets hold the right class; that is
        no promise about one row.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in any container that `predict` takes.
        coverage : float in (0, 1)
            The part of the sets that is to hold the right class.

        Returns
        -------
        sets : ndarray of shape (n, n_classes)
            bool, in the order of `classes_`. A row without any class says that none fits.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from raymkl import MKLClassifier, kernels
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), conformal=True, engine="local").fit(X, y)
        >>> clf.predict_set(X, coverage=0.95).shape
        (150, 3)
        """
        coverage = check_coverage(coverage)
        return sets(decision_of_folds(self, X), self.fold_models_, coverage)
