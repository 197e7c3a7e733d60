"""Convex localized multiple kernel learning: the weights of the kernels depend on the cluster an example lies
in.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...data.progress import progress_of
from ...engine import Head, RayParams
from ...engine.programs.clusters import ClusteredTraining, gates_of
from ...engine.programs.k_means import likelihoods, new_distances
from ...kernels.base import Kernel
from ...kernels.combined import CombinedKernel
from ...kernels.pairs.families import NO_GATE
from ..base import effective_weights
from ..checks import check_number
from ..classifier import MKLClassifier
from ..description.diagonals import row_gates
from ..missing.gating import clustered_norm, layout_of
from ..regressor import MKLRegressor
from ..runs.callbacks import run_of
from . import gate_inputs

CLUSTER_PARAMETERS = """n_clusters : int >= 1
        Clusters of kernel k-means.
    evenness : float in (1 / n_clusters, 1], or "hard"
        How evenly an example belongs to the clusters, on average: `mean_i mean_j c_j(x_i) / max_j c_j(x_i)`.
        1 makes all clusters alike (plain MKL, spread over them). "hard" gives every example to its nearest
        cluster alone; so does 1 / n_clusters, which the evenness tends to. Without meaning for one cluster.
    tau : float >= 0, or None
        Sharpness of the likelihoods; None finds it from `evenness`, a number is used as it is (`evenness` is
        then ignored).
    gating_kernel : "uniform", int or Kernel
        Whose feature space is clustered: the mean of the (normalised) kernels, one of them by its number, or
        any other kernel.
    n_init : int >= 1
        Starts of k-means, of which the best is kept.
    random_state : int, RandomState or None
        For the starts of k-means (and its sample of rows)."""


class ClusteredMixin:
    """What localized models over clusters share: checking, training, likelihoods of new examples."""

    _needs_all_columns = True  # distances of new examples to the clusters are made of them
    _can_fold = (
        False  # clusters are made of the training rows, so a search fits every fold and setting by itself
    )

    def _check_params(self) -> None:
        super()._check_params()
        check_number("n_clusters", self.n_clusters, 1, whole=True)
        check_number("n_init", self.n_init, 1, whole=True)
        named = isinstance(self.evenness, str) and self.evenness == "hard"
        number = isinstance(self.evenness, Real) and not isinstance(self.evenness, bool)
        least = 1.0 / self.n_clusters
        if not named and not (
            number and 0 < self.evenness <= 1 and (self.n_clusters == 1 or self.evenness >= least)
        ):
            raise ValueError(
                f'evenness must be "hard" or a number in (1 / n_clusters, 1] = ({least:.4g}, 1] for '
                f"n_clusters={self.n_clusters}; "
                f"got {self.evenness!r}"
            )
        if self.tau is not None and not (
            isinstance(self.tau, Real) and not isinstance(self.tau, bool) and self.tau >= 0
        ):
            raise ValueError(
                "tau must be a number >= 0 (inf for hard clusters) or None to find it from evenness, got "
                f"{self.tau!r}"
            )
        gate_inputs.check_choice(self.gating_kernel, optional=False)

    def _read_rows(self, X: Any, reset: bool) -> tuple[Any, dict, list[Kernel]]:
        container, rows, kernels = super()._read_rows(X, reset)
        gate_inputs.check_number(self.gating_kernel, len(kernels))
        if isinstance(self.gating_kernel, Kernel):
            rows = gate_inputs.rows_for(
                self.gating_kernel,
                f"gating_kernel={self.gating_kernel!r}",
                container,
                rows,
                kernels,
                None if reset else self._matrix_columns(container),
            )
        return container, rows, kernels

    # -- training ----------------------------------------------------------------------------------

    def _is_spherical(self, gate_of_entry: list[int]) -> list[bool]:
        """(M,) whether a kernel has a base gate 1 / sqrt(k(x, x)); the kernels of the first cluster tell."""
        return [self._gate_layout[column][1] != NO_GATE for column in gate_of_entry[: len(self.kernels_)]]

    def _clustering_kernel(self, spherical: list[bool]) -> CombinedKernel:
        if isinstance(self.gating_kernel, Kernel):
            return CombinedKernel([self.gating_kernel])
        weights = (
            np.eye(len(self.kernels_))[int(self.gating_kernel)]
            if gate_inputs.is_number(self.gating_kernel)
            else None
        )
        return CombinedKernel(self.kernels_, weights, spherical)

    def _train(self, rows: dict, kernels: list[Kernel], heads: list[Head]) -> None:
        n_kernels = len(kernels)
        active = int(np.sum(np.any([head.bounds > 0 for head in heads], axis=0)))
        if self.n_clusters > active:
            raise ValueError(f"n_clusters={self.n_clusters} is more than the {active} examples there are")
        for head in heads:
            head.norm = clustered_norm(self.p, self.n_clusters, n_kernels)
        base_gates, gate_of_kernel = self._spherical_gates(rows, kernels)
        self._gate_layout, gate_of_entry = layout_of(gate_of_kernel or [NO_GATE] * n_kernels, self.n_clusters)
        # The gates follow from the clusters, which training finds.
        problem, working, _ = self._describe(rows, kernels * self.n_clusters, heads, (None, gate_of_entry))
        if hasattr(self, "tail_sums_"):
            self.tail_sums_ = self.tail_sums_[:n_kernels]  # entries of all clusters have the same kernels
        kernel = self._clustering_kernel(self._is_spherical(gate_of_entry))
        one = self.n_clusters == 1
        hard = isinstance(self.evenness, str) or (not one and self.evenness <= 1.0 / self.n_clusters)
        tau = np.inf if self.tau is None and hard else self.tau
        program = ClusteredTraining(
            heads=heads,
            kernel=kernel,
            scaled=self.normalize not in (None, "spherical") and not isinstance(self.gating_kernel, Kernel),
            n_clusters=int(self.n_clusters),
            n_init=int(self.n_init),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            tau=None if tau is None else float(tau),
            evenness=1.0 if hard or one else float(self.evenness),
            layout=self._gate_layout,
            base_gates=base_gates,
        )
        trained = run_of(self, working, problem, program, progress_of(self.verbose))
        found = trained.results
        self._keep_run(trained)
        self.tau_ = float(found.tau)
        self.landmarks_, self._landmark_rows = found.clusters.landmarks, found.clusters.rows
        self._cluster_members, self._cluster_offsets = found.clusters.members, found.clusters.offsets
        self._gating_weights = found.weights
        self._gating_spherical = kernel.spherical
        self._keep(found.results)
        self.kernel_weights_ = self.kernel_weights_.reshape(
            *self.kernel_weights_.shape[:-1], self.n_clusters, n_kernels
        )
        self._expand(effective_weights(found.results), rows, found.gates, gate_of_entry)
        self._warn_if_short(found.results)

    # -- new examples ------------------------------------------------------------------------------

    def membership(self, X: Any) -> np.ndarray:
        """How much examples belong to each cluster (the likelihoods c_j(x)).

        Ready-made matrices need the columns of all training rows: the clusters are made of them.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        shares : ndarray of shape (n, n_clusters)
            How much each row belongs to each cluster, c_j(x); rows sum to one.
        """
        check_is_fitted(self, "dual_coef_")
        _, rows, _ = self._read(X, reset=False)
        return self._membership(rows)

    def _membership(self, rows: dict) -> np.ndarray:
        kernels = [self.gating_kernel] if isinstance(self.gating_kernel, Kernel) else self.kernels_
        kernel = CombinedKernel(kernels, self._gating_weights, self._gating_spherical)
        gate_inputs.check_columns(kernel.views, rows, self.expansion_.n_train, "likelihoods of the clusters")
        used = {view: rows[view] for view in kernel.views}
        columns = kernel.columns(self._landmark_rows, self.landmarks_)
        return likelihoods(
            new_distances(columns, used, self._cluster_members, self._cluster_offsets), self.tau_
        )

    def _rows_to_predict(self, X: Any, copy: bool = True) -> tuple[dict, np.ndarray]:
        _, rows, kernels = self._read(X, reset=False)
        likelihood = self._membership(rows)
        rows = self.expansion_.with_support_columns(rows, copy)
        spherical = [
            kernel
            for kernel, gated in zip(kernels, self._is_spherical(self.expansion_.gate_of_entry), strict=True)
            if gated
        ]
        return rows, gates_of(likelihood, self._gate_layout, row_gates(spherical, rows))


class ConvexLocalizedMKLClassifier(ClusteredMixin, MKLClassifier):
    __doc__ = f"""Classification with weights of the kernels that depend on the cluster an example lies in.

        min_{{w,b}}  1/2 sum_j ||w_j||_{{2,p}}^2 + sum_i C_i loss(f(x_i), y_i)
        f(x) = sum_j c_j(x) sum_m <w_jm, phi_m(x)> + b
        c_j(x) proportional to exp(-tau dist^2(x, S_j))

    The clusters S_j come from kernel k-means (the best of several starts); dist is the distance to a
    cluster's mean in the feature space of the gating kernel. Given the clusters the problem is convex and is
    solved to a certified relative duality gap. Every cluster has weights of its own, beta_j >= 0 with
    sum_m beta_jm^q = 1 for p < 2, q = p / (2 - p). More than two classes are learned one against the rest,
    over the same clusters.

    Up to 5,000 rows k-means is exact; beyond, it runs on a random sample of 2,048 rows, and the clusters'
    means are those of the sample. The model keeps the rows that the means are made of.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`. With "precomputed", X to predict must have the columns of all training rows.
    {CLUSTER_PARAMETERS}
    C, p, solver, theta_step, normalize, tol, class_weight, engine : object
        As for `MKLClassifier`; p is the block norm within each cluster. Kernels are normalised before they
        are gated.
    ray_params, max_iter, dtype, exact, verbose, loss : object
        As for `MKLClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    kernel_weights_ : ndarray of shape (n_clusters, M) or (n_classes, n_clusters, M)
        Weights of the kernels in every cluster; without the first axis for two classes.
    tau_ : float
        The sharpness used; inf for hard clusters.
    landmarks_ : ndarray of shape (L,)
        Training rows that the clusters' means are made of.
    support_ : ndarray of shape (n_support,)
        Training rows with a dual variable other than zero.
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        b.
    duality_gap_, primal_objective_, dual_objective_ : float or ndarray of shape (n_classes,)
        Certified relative gap, and both sides of it; floats for two classes.
    n_iter_ : int
        Rounds.
    shard_failures_ : int
        Shards that were lost and replaced.
    resumed_from_ : int or None
        Round of the checkpoint that the fit began with.
    converged_ : bool
        Whether the gap is at most `tol`.
    history_ : list of dict
        One per round and class, as for `MKLClassifier`.
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

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from raymkl import ConvexLocalizedMKLClassifier, kernels
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(0)) / X.std(0)
    >>> clf = ConvexLocalizedMKLClassifier(kernels=kernels.rbf([0.01, 0.1]), n_clusters=3, random_state=0,
    ...     engine="local").fit(X, y)
    >>> clf.kernel_weights_.shape, clf.membership(X[:5]).shape
    ((3, 2), (5, 3))

    References
    ----------
    Lei, Binder, Dogan, Kloft: Localized multiple kernel learning, a convex approach. ACML 2016.
    """

    def __init__(
        self,
        kernels: Any = None,
        n_clusters: int = 3,
        evenness: Any = 0.5,
        tau: float | None = None,
        gating_kernel: Any = "uniform",
        C: float = 1.0,
        p: float = 4 / 3,
        n_init: int = 10,
        solver: str = "chunking",
        theta_step: str = "auto",
        normalize: str | None = None,
        tol: float = 1e-3,
        class_weight: Any = None,
        engine: str = "auto",
        ray_params: RayParams | None = None,
        max_iter: int = 10_000,
        dtype: str = "auto",
        exact: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        loss: str = "hinge",
    ):
        self.kernels = kernels
        self.n_clusters = n_clusters
        self.evenness = evenness
        self.tau = tau
        self.gating_kernel = gating_kernel
        self.C = C
        self.p = p
        self.n_init = n_init
        self.solver = solver
        self.theta_step = theta_step
        self.normalize = normalize
        self.tol = tol
        self.class_weight = class_weight
        self.engine = engine
        self.ray_params = ray_params
        self.max_iter = max_iter
        self.dtype = dtype
        self.exact = exact
        self.random_state = random_state
        self.verbose = verbose
        self.loss = loss

    # Not parameters here: classes have weights of their own, and every fit finds its clusters anew.
    shared_weights = False
    multi_class = "ovr"
    warm_start = False


class ConvexLocalizedMKLRegressor(ClusteredMixin, MKLRegressor):
    __doc__ = f"""Regression with weights of the kernels that depend on the cluster an example lies in.

        min_{{w,b}}  1/2 sum_j ||w_j||_{{2,p}}^2 + sum_i C_i loss(f(x_i), y_i)
        f(x) = sum_j c_j(x) sum_m <w_jm, phi_m(x)> + b
        c_j(x) proportional to exp(-tau dist^2(x, S_j))

    Clusters, likelihoods and weights are those of `ConvexLocalizedMKLClassifier`, the loss is that of
    `MKLRegressor`.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLRegressor`. With "precomputed", X to predict must have the columns of all training rows.
    {CLUSTER_PARAMETERS}
    C, epsilon, p, solver, theta_step, normalize, tol, engine : object
        As for `MKLRegressor`; p is the block norm within each cluster. Kernels are normalised before they
        are gated.
    ray_params, max_iter, dtype, exact, verbose, loss, delta, quantile : object
        As for `MKLRegressor`.

    Attributes
    ----------
    kernel_weights_ : ndarray of shape (n_clusters, M)
        Weights of the kernels in every cluster.
    tau_ : float
        The sharpness used; inf for hard clusters.
    landmarks_ : ndarray of shape (L,)
        Training rows that the clusters' means are made of.
    support_ : ndarray of shape (n_support,)
        Training rows with a dual variable other than zero.
    dual_coef_ : ndarray of shape (1, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,)
        b.
    duality_gap_, primal_objective_, dual_objective_ : float
        Certified relative gap, and both sides of it.
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

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import ConvexLocalizedMKLRegressor, kernels
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 1))
    >>> y = np.where(X[:, 0] > 0, np.sin(6 * X[:, 0]), X[:, 0])
    >>> bank = [*kernels.rbf([1.0, 10.0]), kernels.Linear()]
    >>> model = ConvexLocalizedMKLRegressor(kernels=bank, n_clusters=2, evenness=0.6, C=10.0, random_state=0,
    ...     engine="local").fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    warm_start = False  # not a parameter: every fit finds its clusters anew

    def __init__(
        self,
        kernels: Any = None,
        n_clusters: int = 3,
        evenness: Any = 0.5,
        tau: float | None = None,
        gating_kernel: Any = "uniform",
        C: float = 1.0,
        epsilon: float = 0.1,
        p: float = 4 / 3,
        n_init: int = 10,
        solver: str = "chunking",
        theta_step: str = "auto",
        normalize: str | None = None,
        tol: float = 1e-3,
        engine: str = "auto",
        ray_params: RayParams | None = None,
        max_iter: int = 10_000,
        dtype: str = "auto",
        exact: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        loss: str = "epsilon_insensitive",
        delta: float = 1.0,
        quantile: float = 0.5,
    ):
        self.kernels = kernels
        self.n_clusters = n_clusters
        self.evenness = evenness
        self.tau = tau
        self.gating_kernel = gating_kernel
        self.C = C
        self.epsilon = epsilon
        self.p = p
        self.n_init = n_init
        self.solver = solver
        self.theta_step = theta_step
        self.normalize = normalize
        self.tol = tol
        self.engine = engine
        self.ray_params = ray_params
        self.max_iter = max_iter
        self.dtype = dtype
        self.exact = exact
        self.random_state = random_state
        self.verbose = verbose
        self.loss = loss
        self.delta = delta
        self.quantile = quantile
