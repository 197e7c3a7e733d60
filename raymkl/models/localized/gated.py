"""Localized multiple kernel learning with a gating model: a softmax decides, example by example, which
kernels count.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import block_diag
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...data.progress import progress_of
from ...data.views import view_key
from ...engine import Head, RayParams
from ...engine.programs.gate_scores import KernelScores, LinearScores
from ...engine.programs.gates import GatedDescent, Gating, softmax
from ...kernels.base import Kernel
from ...kernels.combined import CombinedKernel
from ...kernels.formulas import Linear
from ...kernels.pairs.families import NO_GATE
from ..base import effective_weights
from ..checks import check_number
from ..classifier import MKLClassifier
from ..description.diagonals import row_gates
from ..runs.callbacks import run_of, stop_was_asked
from . import gate_inputs

GATINGS = ("linear", "kernel")
# Rounds of one SVM at most.
SVM_ROUNDS = 10_000


class LocalizedMKLClassifier(MKLClassifier):
    """Support vector classification in which a softmax gate decides which kernels count for an example.

        f(x) = sum_m eta_m(x) <w_m, phi_m(x)> + b
        eta_m(x) = exp(s_m(x)) / sum_k exp(s_k(x))
        min over w, b, s of   1/2 sum_m ||w_m||^2 + sum_i C_i loss(f(x_i), y_i)

    The scores s_m are affine in the example's vector (gating="linear") or functions in a kernel's feature
    space (gating="kernel"). Given the gates this is an SVM with the kernel sum_m eta_m(x) k_m(x, z) eta_m(z),
    solved to a certified gap; the gates descend on its optimal value along the gradient, with a line search.
    The problem in the gates is not convex: the objective never increases along a descent, and the best of
    several random starts is kept. The same kernel may be given several times and then has a region each. More
    than two classes are learned one against the rest, with gates of their own.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`; with "precomputed" the gates must live in a kernel's space.
    gating : {"linear", "kernel"}
        Where the scores live.
    gating_kernel : "uniform", int, Kernel or None
        For gating="kernel": the mean of the kernels (None and "uniform"), one of them by its number, or any
        other kernel; as they are, without normalisation.
    gating_view : str, int, list, tuple or None
        For gating="linear": the view of X with the vectors that the scores are affine in. None takes all of
        X.
    C : float > 0
        Weight of the loss; C_i = C * sample_weight_i * class_weight of its class.
    max_iter : int
        Steps of a descent at most.
    tol : float > 0
        A descent ends when its steps lower the objective by less than this part; the SVMs are solved to this
        relative gap by then (less precisely in the beginning).
    n_init : int >= 1
        Random starts, of which the best is kept.
    normalize, class_weight, engine, ray_params, dtype, exact, verbose : object
        As for `MKLClassifier`. Kernels are normalised before they are gated; "trace" asks for a C that grows
        with n.
    random_state : int, RandomState or None
        For the starts.
    loss : {"hinge", "squared_hinge", "logistic", "squared"}
        As for `MKLClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    gating_coef_ : ndarray of shape (M, n_features) or (n_classes, M, n_features)
        Slopes of the gates' scores, with gating="linear".
    gating_intercept_ : ndarray of shape (M,) or (n_classes, M)
        Offsets of the scores.
    gating_support_ : ndarray of shape (S,)
        Training rows whose kernel functions make up the scores, with gating="kernel".
    gating_dual_coef_ : ndarray of shape (M, S) or (n_classes, M, S)
        Their coefficients, with gating="kernel".
    kernel_weights_ : ndarray of shape (M,) or (n_classes, M)
        All one: the gates do the weighting.
    n_iter_ : int
        Steps of the descent.
    converged_ : bool
        Whether the descent came to rest.
    history_ : list of dict
        The descent that was kept, one per step, with its "objective".
    support_ : ndarray of shape (n_support,)
        Training rows with a dual variable other than zero.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        b.
    duality_gap_, primal_objective_, dual_objective_ : float or ndarray of shape (n_classes,)
        Of the SVM at the learned gates; floats for two classes.
    kernels_ : list of Kernel
        The kernels that were learned over.
    engine_used_ : str
        "local" or "ray".
    expansion_ : Expansion
        The sum over support vectors that predictions are made of.
    shard_failures_ : int
        Shards that were lost and replaced.
    resumed_from_ : int or None
        Step of the checkpoint that the fit began with.
    tail_sums_ : ndarray of shape (M,)
        What the kernels were divided by, with normalize="tail" or a `kernels.TailSum`.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import LocalizedMKLClassifier, kernels
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(np.abs(X[:, 0]) > X[:, 1] + 0.5, 1, -1)
    >>> clf = LocalizedMKLClassifier(kernels=[kernels.Linear(), kernels.Linear()], C=10.0, random_state=0,
    ...     engine="local").fit(X, y)
    >>> bool(clf.score(X, y) > 0.9), clf.gates(X[:3]).shape
    (True, (3, 2))

    References
    ----------
    Gonen, Alpaydin: Localized multiple kernel learning. ICML 2008.
    """

    # Not parameters here: the weights are one, and the gates do the weighting.
    p = 2.0
    solver = "chunking"
    theta_step = "auto"
    shared_weights = False
    multi_class = "ovr"
    warm_start = False
    _needs_all_columns = True  # gates of new examples are made of them
    _can_fold = (
        False  # gates are learned from the training rows, so a search fits every fold and setting by itself
    )

    def __init__(
        self,
        kernels: Any = None,
        gating: str = "linear",
        gating_kernel: Any = None,
        gating_view: Any = None,
        C: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 3,
        normalize: str | None = None,
        class_weight: Any = None,
        engine: str = "auto",
        ray_params: RayParams | None = None,
        dtype: str = "auto",
        exact: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        loss: str = "hinge",
    ):
        self.kernels = kernels
        self.gating = gating
        self.gating_kernel = gating_kernel
        self.gating_view = gating_view
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.normalize = normalize
        self.class_weight = class_weight
        self.engine = engine
        self.ray_params = ray_params
        self.dtype = dtype
        self.exact = exact
        self.random_state = random_state
        self.verbose = verbose
        self.loss = loss

    def _check_params(self) -> None:
        super()._check_params()
        check_number("n_init", self.n_init, 1, whole=True)
        kind = self.gating
        if not (isinstance(kind, str) and kind in GATINGS):
            raise ValueError(f"gating must be one of {', '.join(map(repr, GATINGS))}; got {kind!r}")
        kernel = self.gating_kernel
        gate_inputs.check_choice(kernel, optional=True)
        if kind == "linear" and kernel is not None:
            raise ValueError(
                f'gating_kernel={kernel!r} is for gating="kernel"; gating="linear" takes gating_view'
            )
        if kind == "kernel" and self.gating_view is not None:
            raise ValueError(
                f'gating_view={self.gating_view!r} is for gating="linear"; a gating_kernel reads the view '
                "that it names"
            )
        if kind == "linear" and isinstance(self.kernels, str) and self.kernels == "precomputed":
            raise ValueError(
                'gating="linear" needs vectors, but with kernels="precomputed" there are none; use '
                'gating="kernel"'
            )

    # -- reading -----------------------------------------------------------------------------------

    def _read_rows(self, X: Any, reset: bool) -> tuple[Any, dict, list[Kernel]]:
        container, rows, kernels = super()._read_rows(X, reset)
        gate_inputs.check_number(self.gating_kernel, len(kernels))
        source, what = self.gating_kernel, f"gating_kernel={self.gating_kernel!r}"
        if self.gating == "linear":
            source, what = (
                Linear(view=self.gating_view),
                f'gating="linear" with gating_view={self.gating_view!r}',
            )
        if isinstance(source, Kernel):
            rows = gate_inputs.rows_for(
                source, what, container, rows, kernels, None if reset else self._matrix_columns(container)
            )
        return container, rows, kernels

    # -- training ----------------------------------------------------------------------------------

    def _gate_kernel(self) -> CombinedKernel:
        if isinstance(self.gating_kernel, Kernel):
            return CombinedKernel([self.gating_kernel])
        if gate_inputs.is_number(self.gating_kernel):
            return CombinedKernel([self.kernels_[int(self.gating_kernel)]])
        return CombinedKernel(self.kernels_)

    def _base_gates(self, rows: dict, kernels: list[Kernel]) -> np.ndarray | None:
        """(n, M) gates of normalize="spherical", which learned ones are multiplied with; None when all are
        one.
        """
        base, of_kernel = self._spherical_gates(rows, kernels)
        if base is None:
            return None
        ones = np.ones(len(base))
        return np.stack([ones if b == NO_GATE else base[:, b] for b in of_kernel], axis=1)

    def _train(self, rows: dict, kernels: list[Kernel], heads: list[Head]) -> None:
        for head in heads:
            head.max_rounds = SVM_ROUNDS
        base_gates = self._base_gates(rows, kernels)
        # The gates are learned; every kernel has a column of its own.
        problem, working, _ = self._describe(rows, kernels, heads, (None, list(range(len(kernels)))))
        linear = self.gating == "linear"
        model = (
            LinearScores(view_key(self.gating_view))
            if linear
            else KernelScores(self._gate_kernel(), problem.n_rows)
        )
        program = GatedDescent(
            heads=heads,
            model=model,
            n_kernels=len(kernels),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            n_init=int(self.n_init),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            base_gates=base_gates,
        )
        trained = run_of(self, working, problem, program, progress_of(self.verbose))
        found: list[Gating] = trained.results
        self._keep_run(trained)
        self.history_ = [{**row, "head": h} for h, gating in enumerate(found) for row in gating.history]
        self._keep_model(found, rows, base_gates)
        self._keep_gating(found, rows)
        self._warn_if_short(found)

    def _keep_model(self, found: list[Gating], rows: dict, base_gates: np.ndarray | None) -> None:
        """Every class has entries of its own: entry h * M + m is kernel m with the gate that class h learned
        for it.
        """
        results = [gating.result for gating in found]
        self._keep(results)
        weights = block_diag(*effective_weights(results))
        gates = np.concatenate(
            [gating.gates if base_gates is None else gating.gates * base_gates for gating in found], axis=1
        )
        self._spherical = base_gates is not None
        self._expand(weights, rows, gates, list(range(weights.shape[1])))
        self.n_iter_ = max(gating.steps for gating in found)
        self.converged_ = self.converged_ and all(gating.settled for gating in found)

    def _keep_gating(self, found: list[Gating], rows: dict) -> None:
        single = len(found) == 1
        coefficients = np.stack([gating.parameters[0].T for gating in found])
        intercepts = np.stack([gating.parameters[1] for gating in found])
        self.gating_intercept_ = intercepts[0] if single else intercepts
        if self.gating == "linear":
            self.gating_coef_ = coefficients[0] if single else coefficients
            return
        self.gating_support_ = np.flatnonzero(np.any(coefficients != 0, axis=(0, 1)))
        coefficients = coefficients[:, :, self.gating_support_]
        self.gating_dual_coef_ = coefficients[0] if single else coefficients
        self._gating_rows = {
            view: rows[view][self.gating_support_] for view in self._gate_kernel().vector_views
        }

    def _warn_if_short(self, found: list[Gating]) -> None:
        if not self.converged_ and not stop_was_asked(self):
            worst = max(gating.result.certificate.gap for gating in found)
            warnings.warn(
                f"the gates had not settled after {self.n_iter_} steps (max_iter={self.max_iter}); the SVM "
                "at the learned gates has a "
                f"relative duality gap of {worst:.3g} (tol={self.tol:g})",
                ConvergenceWarning,
                stacklevel=5,
            )

    # -- new examples ------------------------------------------------------------------------------

    def gates(self, X: Any) -> np.ndarray:
        """Which kernels count for which rows.

        Ready-made matrices whose space the gates live in must have the columns of all training rows.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        gates : ndarray of shape (n, M) or (n, n_classes, M)
            (n, M) for two classes; not negative, one in sum over the kernels.
        """
        check_is_fitted(self, "dual_coef_")
        _, rows, _ = self._read(X, reset=False)
        gates = self._gates_of(rows)
        return gates[:, 0] if gates.shape[1] == 1 else gates

    def _gates_of(self, rows: dict) -> np.ndarray:
        """(n, n_heads, M) gates of rows by view key."""
        intercepts = np.atleast_2d(self.gating_intercept_)
        n_heads, n_kernels = intercepts.shape
        if self.gating == "linear":
            vectors = rows[view_key(self.gating_view)]
            coefficients = self.gating_coef_.reshape(n_heads * n_kernels, -1)
            scores = (
                vectors @ coefficients.T
                if sp.issparse(vectors)
                else np.asarray(vectors, np.float64) @ coefficients.T
            )
        else:
            kernel = self._gate_kernel()
            gate_inputs.check_columns(kernel.views, rows, self.expansion_.n_train, "gates")
            columns = kernel.columns(self._gating_rows, self.gating_support_)
            coefficients = self.gating_dual_coef_.reshape(n_heads * n_kernels, -1)
            scores = columns.products({view: rows[view] for view in kernel.views}, coefficients.T)
        scores = np.asarray(scores).reshape(-1, n_heads, n_kernels) + intercepts
        return softmax(scores.reshape(-1, n_kernels)).reshape(scores.shape)

    def _rows_to_predict(self, X: Any, copy: bool = True) -> tuple[dict, np.ndarray]:
        _, rows, kernels = self._read(X, reset=False)
        gates = self._gates_of(rows)
        rows = self.expansion_.with_support_columns(rows, copy)
        if self._spherical:
            gates = gates * row_gates(kernels, rows)[:, None]
        return rows, gates.reshape(len(gates), -1)
