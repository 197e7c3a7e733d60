"""What all estimators share: checking parameters, describing the problem to the engine, keeping what it
learned.

An estimator is thin: it turns labels into heads, hands rows and heads to `engine.train`, and keeps an
`Expansion`.
"""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..data.progress import progress_of
from ..data.views import where_of
from ..engine import Head, Problem
from ..engine.session import SessionRows, check_engine
from ..kernels.base import Kernel
from ..kernels.normalize import KINDS, TailSum
from ..optim.norms import LpNorm, Norm
from . import reading, sources
from .checks import check_number, check_ray_params
from .dataset_answers import datasets_too
from .description.diagonals import spherical_gates
from .description.problem import problem_of
from .description.tails import check_prices, set_prices, set_tails
from .expansion import Expansion
from .files.saving import Saves
from .missing.gating import Gating, clustered, clustered_norm, gates_of_new, gating_of
from .missing.presence import check_choice, presence_of
from .probability.held_out import FoldsBeside
from .reader import ReadsRows
from .runs.callbacks import WithCallbacks, run_of, stop_was_asked

SOLVERS = ("chunking", "wrapper")
THETA_STEPS = ("auto", "analytic", "cutting_plane")
DTYPES = ("auto", "float32", "float64")


class BaseMKL(ReadsRows, WithCallbacks, Saves):
    """Base of the estimators; see `MKLClassifier` for the parameters.

    It stands before scikit-learn's mixin of the kind of estimator, whose `score` it prepares X and y for, and
    before `BaseEstimator`: `class MKLClassifier(BaseMKL, ClassifierMixin, BaseEstimator)`.

    A fitted estimator holds one `Expansion`, the attribute `expansion_`, from which predictions are made;
    files, diagnostics and reports read it and public attributes alone. Searches describe their heads by
    `_check_params`, `_read`, `_describe`, `_head_params` and `_fold_to_score`.
    """

    # Whether a search may state folds as heads over one set of blocks, by `_fold`; not so where more than
    # weights is learned from rows.
    _can_fold = False
    # Parameters that a search may change without new kernel blocks.
    _head_params: frozenset[str] = frozenset()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = isinstance(self.kernels, str) and self.kernels == "precomputed"
        return tags

    # -- checks ------------------------------------------------------------------------------------

    def _check_params(self) -> None:
        """Raise ValueError or TypeError that names the argument, what came and what is accepted."""
        check_number("C", self.C, 0.0, strict=True)
        check_number("tol", self.tol, 0.0, strict=True)
        if not (isinstance(self.p, Real) and not isinstance(self.p, bool) and self.p >= 1):
            raise ValueError(f"p must be a number in [1, inf], the block norm over kernels; got {self.p!r}")
        check_number("max_iter", self.max_iter, 1, whole=True)
        for name, known in (
            ("solver", SOLVERS),
            ("theta_step", THETA_STEPS),
            ("normalize", KINDS),
            ("dtype", DTYPES),
        ):
            value = getattr(self, name)
            if not any(value is option or value == option for option in known) and not (
                name == "normalize" and isinstance(value, TailSum)
            ):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
        check_engine(self.engine)
        if hasattr(self, "missing"):
            check_choice(self.missing)
        norm = self._norm_of()
        if self.theta_step == "cutting_plane" and not norm.has_cutting_planes:
            given = f"p={self.p!r}" if getattr(self, "norm", None) is None else f"norm={norm!r}"
            raise ValueError(
                f'theta_step="cutting_plane" needs p in [1, 2], got {given}; use theta_step="auto"'
            )
        check_prices(*self._prices, self.p, getattr(self, "norm", None), self.theta_step)
        if self._by_pattern and (getattr(self, "norm", None) is not None or self._prices[0]):
            other = (
                f"norm={self.norm!r}"
                if getattr(self, "norm", None) is not None
                else f"beta={self._prices[0]!r}"
            )
            raise ValueError(
                'missing="pattern" has a block norm p of its own for every pattern, and takes no other; got '
                f"{other}"
            )
        if not isinstance(getattr(self, "shared_weights", False), bool | np.bool_):
            raise ValueError(f"shared_weights must be True or False, got {self.shared_weights!r}")
        check_ray_params(self.ray_params)

    @property
    def _by_pattern(self) -> bool:
        """Whether every pattern of presence has weights of its own."""
        return getattr(self, "missing", None) == "pattern"

    @property
    def _prices(self) -> tuple[Any, Any]:
        """beta and kernel_costs, of estimators that have them."""
        return getattr(self, "beta", 0.0), getattr(self, "kernel_costs", None)

    def _norm_of(self, n_kernels: int | None = None) -> Norm:
        """The norm over the kernels: `norm`, or the block norm `p`.

        n_kernels : to check that it is one over so many.
        """
        norm = getattr(self, "norm", None)
        if norm is None:
            return LpNorm(float(self.p))
        if not isinstance(norm, Norm):
            raise TypeError(f"norm must be None (the block norm p) or a norm of raymkl.norms, got {norm!r}")
        if n_kernels is not None:
            norm.check(n_kernels)
        return norm

    # -- training ----------------------------------------------------------------------------------

    def _describe(
        self,
        rows: dict,
        kernels: list[Kernel],
        heads: list[Head],
        gating: tuple[np.ndarray | None, list[int] | None] | None = None,
        constants: bool = True,
    ) -> tuple[Problem, dict, list[int] | None]:
        """The problem for the engine, its rows in the dtype to work in, and the gate of every entry.

        kernels : of every entry or, without `gating`, of the model. gating : gates (n, J), or None if they
        are yet to be learned, and the gate of every entry; by default those of `missing` and of
        normalize="spherical". constants : whether heads are yet to be given theirs.
        """
        for key in dict.fromkeys(kernel.statistic().view for kernel in kernels if reading.is_matrix(kernel)):
            reading.check_kernel_stack(rows[key], where_of(key))
        if constants:
            self._set_constants(rows, kernels, heads)
        kernels, found = self._entries(rows, kernels, heads) if gating is None else (kernels, Gating(*gating))
        problem = problem_of(rows, kernels, heads, found, self.normalize, self.dtype, self.exact)
        return problem, rows, found.of_entry

    def _entries(self, rows: dict, kernels: list[Kernel], heads: list[Head]) -> tuple[list[Kernel], Gating]:
        """The kernel of every entry, and the gates: a round over the kernels, or with missing="pattern" one
        for each cluster.
        """
        presence = presence_of(rows) if getattr(self, "missing", "error") != "error" else None
        gating = gating_of(
            kernels, rows, presence, self.normalize == "spherical", getattr(self, "missing", None) == "scaled"
        )
        if not self._by_pattern:
            return kernels, gating
        self.patterns_ = presence.patterns
        rounds = 1 + len(self.patterns_)
        for head in heads:
            head.norm = clustered_norm(head.norm.p, rounds, len(kernels))
            head.normalisation = None if head.normalisation is None else np.tile(head.normalisation, rounds)
        return kernels * rounds, clustered(gating, presence.clusters(self.patterns_))

    def _set_constants(
        self, rows: dict, kernels: list[Kernel], heads: list[Head], known: dict | None = None
    ) -> None:
        """Give heads what is learned of their rows before training: factors of normalize="tail", and prices.

        known : tail sums that need not be found again. Those of an earlier fit are forgotten.
        """
        vars(self).pop("tail_sums_", None)
        presence = presence_of(rows)
        if presence is not None and not presence.complete:
            for mask in {head.bounds.tobytes(): head.bounds > 0 for head in heads}.values():
                presence.check(mask)
        known = {} if known is None else known
        where = self.engine, self.ray_params
        set_prices(heads, kernels, rows, *self._prices, self.p, *where, known)
        tails = set_tails(heads, kernels, rows, *where, known)
        if tails is not None:
            self.tail_sums_ = tails

    def _start(self, n: int, n_kernels: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Solution of the last fit, of one head, to continue from, if it fits."""
        if not self.warm_start or not hasattr(self, "dual_coef_"):
            return None
        if self.expansion_.n_train != n or np.shape(self.kernel_weights_) != (n_kernels,):
            return None
        a = np.zeros(n)
        a[self.support_] = self.dual_coef_[0]
        return a, self._feasible(self.kernel_weights_)

    def _feasible(self, theta: np.ndarray) -> np.ndarray:
        """Weights (M,) to begin with; those of kernels with prices are in no ball."""
        return np.maximum(theta, 0.0) if self._prices[0] else self._norm_of(len(theta)).project(theta)

    def _train(
        self, rows: dict, kernels: list[Kernel], heads: list[Head], folds: FoldsBeside | None = None
    ) -> None:
        """Hand the problem to the engine and keep what it learned.

        folds : whose heads are trained beside these, and that take their results.
        """
        every = heads if folds is None else [*heads, *folds.heads]
        problem, working, gate_of_entry = self._describe(rows, kernels, every)
        trained = run_of(self, working, problem, every, progress_of(self.verbose))
        self._keep_run(trained)
        results = [stages[-1] for stages in trained.results]
        if folds is not None:
            results, folds.results = results[: len(heads)], results[len(heads) :]
            folds.rows, folds.gates, folds.gate_of_entry = rows, problem.gates, gate_of_entry
            self.history_ = [row for row in self.history_ if row["head"] < len(heads)]
        self._keep(results)
        if self._by_pattern:
            self.kernel_weights_ = self.kernel_weights_.reshape(
                *self.kernel_weights_.shape[:-1], -1, len(kernels)
            )
        self._expand(effective_weights(results), rows, problem.gates, gate_of_entry)
        self._warn_if_short(results)

    def _keep_run(self, trained: Any) -> None:
        """What is known of the run as such."""
        self.history_ = trained.history
        self.shard_failures_ = trained.failures
        self.resumed_from_ = trained.resumed_from
        self.engine_used_ = trained.engine

    def _spherical_gates(
        self, rows: dict, kernels: list[Kernel]
    ) -> tuple[np.ndarray | None, list[int] | None]:
        """Gates of normalize="spherical": (n, J) and the gate of every kernel."""
        return spherical_gates(kernels, rows) if self.normalize == "spherical" else (None, None)

    @property
    def _one_certificate(self) -> bool:
        """Whether all heads share their weights."""
        return bool(getattr(self, "shared_weights", False))

    def _keep(self, results: list) -> None:
        """What the heads have learned, as public attributes."""
        single = len(results) == 1
        # Heads that share their weights have one certificate, too.
        shared = single or self._one_certificate
        weights = np.stack([result.theta for result in results])
        a = np.stack([result.a for result in results])
        certificates = [result.certificate for result in results]
        self.support_ = np.flatnonzero(np.any(a != 0, axis=0))
        self.dual_coef_ = a[:, self.support_]
        self.kernel_weights_ = weights[0] if shared else weights
        self.intercept_ = np.array([result.intercept for result in results])
        self.n_iter_ = max(result.rounds for result in results)
        self.converged_ = all(result.converged for result in results)
        for name, values in (
            ("duality_gap_", [certificate.gap for certificate in certificates]),
            ("primal_objective_", [certificate.primal for certificate in certificates]),
            ("dual_objective_", [certificate.dual for certificate in certificates]),
        ):
            setattr(self, name, float(values[0]) if shared else np.array(values))

    def _expand(
        self, weights: np.ndarray, rows: dict, gates: np.ndarray | None, gate_of_entry: list[int] | None
    ) -> None:
        """Keep what predictions are made of. weights : (H, E). rows, gates : of all training rows."""
        self.expansion_ = Expansion.of_training(
            self.kernels_, weights, self.dual_coef_, self.support_, rows, gates, gate_of_entry
        )

    def _warn_if_short(self, results: list) -> None:
        if not self.converged_ and not stop_was_asked(self):
            worst = max(result.certificate.gap for result in results)
            warnings.warn(
                f"stopped after {self.n_iter_} rounds with a relative duality gap of {worst:.3g}, above "
                f"tol={self.tol:g}; "
                "the model is feasible and its gap is certified, but raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _fold_to_score(
        self, y: np.ndarray, sample_weight: np.ndarray | None, train: np.ndarray
    ) -> tuple[list[Head], Any]:
        """Heads of one fold of a search, and what turns their decision values into an estimator to score."""
        return self._fold(y, sample_weight, train)

    # -- prediction --------------------------------------------------------------------------------

    def _decision(self, X: Any) -> np.ndarray:
        """(n, n_heads) decision values."""
        X, _ = self._source_of(X)
        X = X.X if isinstance(X, SessionRows) else X
        if isinstance(X, sources.SourceInput):
            return np.concatenate([self._decision(batch) for batch in sources.batches_to_predict(self, X)])
        rows, gates = self._rows_to_predict(X, copy=False)
        return self.expansion_.decision(rows, gates) + self.intercept_

    def _rows_to_predict(self, X: Any, copy: bool = True) -> tuple[dict, np.ndarray | None]:
        """What the expansion takes: rows by view key (of ready-made matrices the columns of `support_`), and
        gates (n, J) or None.

        copy : columns of `support_` as arrays; else as `SomeColumns` of what came.
        """
        _, read, _ = self._read(X, reset=False)
        rows = self.expansion_.with_support_columns(read, copy)
        spherical, scaled = self.normalize == "spherical", getattr(self, "missing", None) == "scaled"
        return rows, gates_of_new(
            self.expansion_, rows, presence_of(read), getattr(self, "patterns_", None), spherical, scaled
        )

    @datasets_too
    def contributions(self, X: Any) -> np.ndarray:
        """The part of the decision value that each kernel brings.

        They sum over kernels to `decision_function(X) - intercept_`. A kernel with a large contribution of
        the decision's sign speaks for the decision, one of the opposite sign against it. A localized model
        adds up the parts of its clusters.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in any container that `predict` takes.

        Returns
        -------
        contributions : ndarray of shape (n, M) or (n, n_classes, M)
            (n, M) when the model has one decision value per example (two classes, regression); else one row
            per class, in the order of the columns of `decision_function`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from raymkl import MKLClassifier, kernels
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MKLClassifier(kernels=[*kernels.rbf([0.1, 1.0]), kernels.Linear()], engine="local").fit(X,
        ...     y)
        >>> clf.contributions(X).shape
        (150, 3, 3)
        >>> sums = clf.contributions(X).sum(axis=2) + clf.intercept_
        >>> bool(abs(sums - clf.decision_function(X)).max() < 1e-9)
        True
        """
        check_is_fitted(self, "expansion_")
        values = self.expansion_.contributions(*self._rows_to_predict(X))
        return values[:, 0] if values.shape[1] == 1 else values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Quality of the predictions of X, with y (n,) as for `fit`, rows counted by sample_weight (n,) or
        alike.

        Of a classifier the part of the rows whose label is predicted, of a regressor the coefficient of
        determination.

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
        score : float
            The larger, the better.
        """
        X, y = self._source_of(X, y)
        return super().score(X, y, sample_weight)


def rows_and_gates(model: BaseMKL, X: Any) -> tuple[dict, np.ndarray | None]:
    """What the methods of a fitted model's `expansion_` take, of new examples X: rows by view key, and gates
    (n, J) or None.
    """
    return model._rows_to_predict(X)


def effective_weights(results: list) -> np.ndarray:
    """(H, E) theta times the factors of `normalize`, of the results of all heads."""
    return np.stack([result.theta for result in results]) * np.stack([result.scale for result in results])
