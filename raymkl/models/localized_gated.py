"""Localized multiple kernel learning with a gating model: a softmax decides, example by example, which kernels count."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..data.views import view_key
from ..engine import Head, RayParams
from ..engine.programs.gate_scores import KernelScores, LinearScores
from ..engine.programs.gates import GatedDescent, Gating, softmax
from ..engine.progress import Progress
from ..engine.run import train
from ..kernels.base import Kernel
from ..kernels.combined import CombinedKernel
from ..kernels.formulas import Linear
from ..kernels.normalize import gate_of_diagonal
from ..kernels.pairs.families import NO_GATE
from . import gate_inputs
from .base import _diagonal, _number
from .classifier import MKLClassifier

GATINGS = ("linear", "kernel")
# Rounds of one SVM at most.
SVM_ROUNDS = 10_000


class _Choice(str):
    """The value of the parameter `gating` ("linear", "kernel") as seen on an estimator, where it is also the method `gating(X)`."""

    def of(self, model: LocalizedMKLClassifier) -> _Choice:
        self.model = model
        return self

    def __call__(self, X: Any) -> np.ndarray:
        return self.model._gating(X)


class _GatingParameter:
    """`gating` is the name of a parameter and, as scikit-learn has it for `transform`, of what the fitted model does.

    Reading it gives a string that can be called with examples: `model.gating == "linear"`, and `model.gating(X)` returns their gates,
    (n, M) for two classes, else (n, n_classes, M); non-negative, and summing to one over the kernels.
    """

    def __get__(self, model: LocalizedMKLClassifier | None, owner: type) -> Any:
        if model is None:
            return self
        if "gating" not in vars(model):
            raise AttributeError("gating")
        value = vars(model)["gating"]
        return _Choice(value).of(model) if isinstance(value, str) else value

    def __set__(self, model: LocalizedMKLClassifier, value: Any) -> None:
        vars(model)["gating"] = value


class LocalizedMKLClassifier(MKLClassifier):
    """Support vector classification in which a softmax gate decides which kernels count for an example.

        f(x) = sum_m eta_m(x) <w_m, phi_m(x)> + b,     eta_m(x) = exp(s_m(x)) / sum_k exp(s_k(x))
        min over w, b, s of   1/2 sum_m ||w_m||^2 + sum_i C_i max(0, 1 - y_i f(x_i))

    The scores s_m are affine in the example's vector (gating="linear") or functions in a kernel's feature space (gating="kernel").
    Given the gates this is an SVM with the kernel sum_m eta_m(x) k_m(x, z) eta_m(z), solved to a certified gap; the gates descend on
    its optimal value along the gradient, with a line search. The problem in the gates is not convex: the objective never increases
    along a descent, and the best of several random starts is kept. The same kernel may be given several times and then has a region
    each. More than two classes are learned one against the rest, with gates of their own.

    Parameters
    ----------
    kernels : list of kernels, "precomputed", or None
        As for `MKLClassifier`; with "precomputed" the gates must live in a kernel's space.
    gating : {"linear", "kernel"}
        Where the scores live.
    gating_kernel : None, "uniform", int, or a kernel
        For gating="kernel": the mean of the kernels (None and "uniform"), one of them by its number, or any other kernel; as they are,
        without normalisation.
    gating_view : view of X, or None
        For gating="linear": the vectors that the scores are affine in; None takes all of X.
    C : float > 0
        Weight of the loss; C_i = C * sample_weight_i * class_weight of its class.
    max_iter : int
        Steps of a descent at most.
    tol : float > 0
        A descent ends when its steps lower the objective by less than this part; the SVMs are solved to this relative gap by then
        (less precisely in the beginning).
    n_init : int >= 1
        Random starts, of which the best is kept.
    normalize, class_weight, engine, ray_params, dtype, exact, verbose
        As for `MKLClassifier`. Kernels are normalised before they are gated; "trace" asks for a C that grows with n.
    random_state : int, RandomState or None
        For the starts.

    Attributes
    ----------
    gating_coef_ : (M, n_features), or (n_classes, M, n_features); gating_intercept_ : (M,) or (n_classes, M). For gating="linear".
    gating_support_ : (S,) training rows whose kernel functions make up the scores, gating_dual_coef_ : (M, S) or (n_classes, M, S), and
        gating_intercept_. For gating="kernel".
    gating(X) : method, the gates of examples: (n, M) for two classes, else (n, n_classes, M); they sum to one over the kernels.
    kernel_weights_ : (M,) or (n_classes, M), all one: the gates do the weighting.
    history_ : list of dicts of the descent that was kept, one per step, with its "objective".
    n_iter_ : int, steps. duality_gap_, primal_objective_, dual_objective_ : of the SVM at the learned gates.
    classes_, support_, dual_coef_, intercept_, converged_, kernels_ : as for `MKLClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import LocalizedMKLClassifier, kernels
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(np.abs(X[:, 0]) > X[:, 1] + 0.5, 1, -1)
    >>> clf = LocalizedMKLClassifier(kernels=[kernels.Linear(), kernels.Linear()], C=10.0, random_state=0, engine="local").fit(X, y)
    >>> bool(clf.score(X, y) > 0.9), clf.gating(X[:3]).shape
    (True, (3, 2))

    References
    ----------
    Gonen, Alpaydin: Localized multiple kernel learning. ICML 2008.
    """

    gating = _GatingParameter()
    # Not parameters here: the weights are one, and the gates do the weighting.
    p = 2.0
    solver = "chunking"
    theta_step = "auto"
    shared_weights = False
    warm_start = False

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

    @property
    def _fold(self) -> Any:
        # Gates are learned from the training rows, so a search fits every fold and setting by itself.
        raise AttributeError(f"the folds of {type(self).__name__} cannot share their blocks")

    def get_params(self, deep: bool = True) -> dict:
        """Parameters by name."""
        return {**super().get_params(deep), "gating": vars(self)["gating"]}

    def _check_params(self) -> None:
        super()._check_params()
        _number("n_init", self.n_init, 1, whole=True)
        kind = vars(self)["gating"]
        if not (isinstance(kind, str) and kind in GATINGS):
            raise ValueError(f"gating must be one of {', '.join(map(repr, GATINGS))}; got {kind!r}")
        kernel = self.gating_kernel
        gate_inputs.check_choice(kernel, optional=True)
        if kind == "linear" and kernel is not None:
            raise ValueError(f'gating_kernel={kernel!r} is for gating="kernel"; gating="linear" takes gating_view')
        if kind == "kernel" and self.gating_view is not None:
            raise ValueError(f'gating_view={self.gating_view!r} is for gating="linear"; a gating_kernel reads the view that it names')
        if kind == "linear" and isinstance(self.kernels, str) and self.kernels == "precomputed":
            raise ValueError('gating="linear" needs vectors, but with kernels="precomputed" there are none; use gating="kernel"')

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, X: Any, reset: bool) -> tuple[Any, dict, list[Kernel]]:
        container, rows, kernels = super()._read(X, reset)
        gate_inputs.check_number(self.gating_kernel, len(kernels))
        source, what = self.gating_kernel, f"gating_kernel={self.gating_kernel!r}"
        if vars(self)["gating"] == "linear":
            source, what = Linear(view=self.gating_view), f'gating="linear" with gating_view={self.gating_view!r}'
        if isinstance(source, Kernel):
            rows = gate_inputs.rows_for(source, what, container, rows, kernels, square=reset)
        return container, rows, kernels

    # -- training -----------------------------------------------------------------------------------------------------

    def _gate_kernel(self) -> CombinedKernel:
        if isinstance(self.gating_kernel, Kernel):
            return CombinedKernel([self.gating_kernel])
        if gate_inputs.is_number(self.gating_kernel):
            return CombinedKernel([self.kernels_[int(self.gating_kernel)]])
        return CombinedKernel(self.kernels_)

    def _spherical_gates(self, rows: dict, kernels: list[Kernel]) -> tuple[None, list[int]]:
        """No gates yet (they are learned), and a gate column of its own for every kernel."""
        base, of_kernel = super()._spherical_gates(rows, kernels)
        self._base_gates = None
        if base is not None:
            ones = np.ones(len(base))
            self._base_gates = np.stack([ones if b == NO_GATE else base[:, b] for b in of_kernel], axis=1)
        return None, list(range(len(kernels)))

    def _train(self, rows: dict, kernels: list[Kernel], heads: list[Head]) -> None:
        for head in heads:
            head.max_rounds = SVM_ROUNDS
        problem, working, _ = self._describe(rows, kernels, heads)
        base_gates = vars(self).pop("_base_gates")
        linear = vars(self)["gating"] == "linear"
        model = LinearScores(view_key(self.gating_view)) if linear else KernelScores(self._gate_kernel(), problem.n_rows)
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
        trained = train(working, problem, program, self.engine, self.ray_params, Progress() if self.verbose else None)
        found: list[Gating] = trained.results
        self._keep_run(trained)
        self.history_ = [{**row, "head": h} for h, gating in enumerate(found) for row in gating.history]
        self._keep_model(found, rows, base_gates)
        self._keep_gating(found, rows)
        self._warn_if_short(found)

    def _keep_model(self, found: list[Gating], rows: dict, base_gates: np.ndarray | None) -> None:
        """Every class has entries of its own: entry h * M + m is kernel m with the gate that class h learned for it."""
        n_heads, n_kernels = len(found), len(self.kernels_)
        self._keep([gating.result for gating in found], list(range(n_heads * n_kernels)))
        own = self._effective_weights
        self._effective_weights = np.zeros((n_heads, n_heads * n_kernels))
        for h in range(n_heads):
            self._effective_weights[h, h * n_kernels : (h + 1) * n_kernels] = own[h]
        gates = np.concatenate([gating.gates if base_gates is None else gating.gates * base_gates for gating in found], axis=1)
        self._spherical = base_gates is not None
        self._keep_support(rows, gates)
        self.n_iter_ = max(gating.steps for gating in found)
        self.converged_ = self.converged_ and all(gating.settled for gating in found)

    def _keep_gating(self, found: list[Gating], rows: dict) -> None:
        single = len(found) == 1
        coefficients = np.stack([gating.parameters[0].T for gating in found])
        intercepts = np.stack([gating.parameters[1] for gating in found])
        self.gating_intercept_ = intercepts[0] if single else intercepts
        if vars(self)["gating"] == "linear":
            self.gating_coef_ = coefficients[0] if single else coefficients
            return
        self.gating_support_ = np.flatnonzero(np.any(coefficients != 0, axis=(0, 1)))
        coefficients = coefficients[:, :, self.gating_support_]
        self.gating_dual_coef_ = coefficients[0] if single else coefficients
        self._gating_rows = {view: rows[view][self.gating_support_] for view in self._gate_kernel().vector_views}

    def _warn_if_short(self, found: list[Gating]) -> None:
        if not self.converged_:
            worst = max(gating.result.certificate.gap for gating in found)
            warnings.warn(
                f"the gates had not settled after {self.n_iter_} steps (max_iter={self.max_iter}); the SVM at the learned gates has a "
                f"relative duality gap of {worst:.3g} (tol={self.tol:g})",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- new examples -------------------------------------------------------------------------------------------------

    def _gating(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "dual_coef_")
        _, rows, _ = self._read(X, reset=False)
        gates = self._gates(rows)
        return gates[:, 0] if gates.shape[1] == 1 else gates

    def _gates(self, rows: dict) -> np.ndarray:
        """(n, n_heads, M) gates of rows by view key."""
        intercepts = np.atleast_2d(self.gating_intercept_)
        n_heads, n_kernels = intercepts.shape
        if vars(self)["gating"] == "linear":
            vectors = rows[view_key(self.gating_view)]
            coefficients = self.gating_coef_.reshape(n_heads * n_kernels, -1)
            scores = vectors @ coefficients.T if sp.issparse(vectors) else np.asarray(vectors, np.float64) @ coefficients.T
        else:
            kernel = self._gate_kernel()
            gate_inputs.check_columns(kernel.views, rows, self._n_train, "gates")
            columns = kernel.columns(self._gating_rows, self.gating_support_)
            coefficients = self.gating_dual_coef_.reshape(n_heads * n_kernels, -1)
            scores = columns.products({view: rows[view] for view in kernel.views}, coefficients.T)
        scores = np.asarray(scores).reshape(-1, n_heads, n_kernels) + intercepts
        return softmax(scores.reshape(-1, n_kernels)).reshape(scores.shape)

    def _rows_to_predict(self, X: Any, copy: bool = True) -> tuple[list[Kernel], dict, np.ndarray]:
        _, rows, kernels = self._read(X, reset=False)
        gates = self._gates(rows)
        for key in [key for key, array in rows.items() if getattr(array, "ndim", 2) == 3]:
            rows[key] = self._support_columns(rows[key], self._stack_depths[key], copy)
        n_heads = gates.shape[1]
        if self._spherical:
            gates = gates * np.stack([gate_of_diagonal(_diagonal(kernel, rows)) for kernel in kernels], axis=1)[:, None]
        return kernels * n_heads, rows, gates.reshape(len(gates), -1)
