"""What all estimators share: checking parameters, describing the problem to the engine, keeping what it
learned.

An estimator is thin: it turns labels into heads, hands rows and heads to `engine.train`, and keeps an
`Expansion`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..data.store import is_store
from ..data.views import is_sparse, is_views, view_name, view_of
from ..engine import Head, Problem, RayParams
from ..engine.placed import PlacedRows
from ..engine.progress import Progress
from ..engine.session import SessionRows, check_engine
from ..kernels.base import Kernel
from ..kernels.defaults import SCALE_DEPENDENT, beyond_float32, default_bank, scales_apart
from ..kernels.formulas import Absence, Linear, Precomputed
from ..kernels.normalize import KINDS, TailSum
from ..kernels.pairs.families import cell_dtypes, group
from ..kernels.pairs.statistics import InnerProduct, SquaredDistance
from ..optim.norms import LpNorm, Norm
from . import reading, sources
from .dataset_answers import datasets_too
from .diagonals import largest_diagonal, spherical_gates
from .expansion import Expansion
from .missing.gating import Gating, clustered, clustered_norm, gates_of_new, gating_of, without_constant_gates
from .missing.presence import Presence, RowsOfViews, check_choice, presence_of, refuse
from .probability.held_out import FoldsBeside
from .runs.callbacks import WithCallbacks, run_of, stop_was_asked
from .tails import check_prices, set_prices, set_tails

SOLVERS = ("chunking", "wrapper")
THETA_STEPS = ("auto", "analytic", "cutting_plane")
DTYPES = ("auto", "float32", "float64")
# With dtype="auto", problems with at most this many kernel values use float64.
SMALL_PROBLEM = 1_000_000
# The same for p > 2, with statistics that are kept.
SMALL_PROBLEM_LARGE_P = 50_000_000
# In float64, so many kernel values are computed by their formulas in less time than it takes to make a table.
FEW_VALUES = 50_000
# With dtype="auto", statistics without an upper bound (inner products, values of kernels) are float64 when C
# times their largest value exceeds this: f is then a small difference of large numbers.
LARGE_VALUES = 1_000.0
# Statistics of dense rows with at most this many columns are not cached.
LIGHT_COLUMNS = 64
NO_SPHERICAL_MATRICES = (
    'normalize="spherical" needs k(x, x) of new examples, which ready-made matrices do '
    "not hold; normalise the matrices first"
)


class BaseMKL(WithCallbacks):
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
    # Whether new examples bring columns of all training rows of a ready-made matrix, not only those of
    # support vectors.
    _needs_all_columns = False
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
        _number("C", self.C, 0.0, strict=True)
        _number("tol", self.tol, 0.0, strict=True)
        if not (isinstance(self.p, Real) and not isinstance(self.p, bool) and self.p >= 1):
            raise ValueError(f"p must be a number in [1, inf], the block norm over kernels; got {self.p!r}")
        _number("max_iter", self.max_iter, 1, whole=True)
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
        if self.ray_params is not None and not isinstance(self.ray_params, RayParams):
            raise TypeError(
                f"ray_params must be a raymkl.RayParams or None, got {type(self.ray_params).__name__}"
            )

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

    def _check_kernels(self, X: Any) -> list[Kernel]:
        """The list of kernels to learn over."""
        kernels = self.kernels
        if isinstance(kernels, str):
            raise ValueError(f'kernels must be a list of kernels or "precomputed", got {kernels!r}')
        if kernels is None:
            some = (
                sources.sample(X) if isinstance(X, sources.SourceInput) else X[X.has()] if is_views(X) else X
            )
            return default_bank(reading.rows_of(some, [Linear()])[None])
        if isinstance(kernels, Kernel):
            kernels = [kernels]
        try:
            kernels = list(kernels)
        except TypeError:
            raise TypeError(
                f'kernels must be a list of kernels or "precomputed", got {type(self.kernels).__name__}'
            ) from None
        if not kernels:
            raise ValueError("kernels is an empty list; at least one kernel is needed")
        for position, kernel in enumerate(kernels):
            if not isinstance(kernel, Kernel):
                raise TypeError(
                    f"kernels[{position}] is a {type(kernel).__name__}, not a kernel (see raymkl.kernels)"
                )
        if self.normalize == "spherical" and any(map(reading.is_matrix, kernels)):
            raise ValueError(NO_SPHERICAL_MATRICES)
        return kernels

    def _source_of(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """X and y; a path or Dataset becomes a source of rows (a path of ready-made kernels is a kernel
        store), a label column labels.
        """
        if isinstance(X, SessionRows):
            X.check_open()
            inner, y = self._source_of(X.X, y)
            return X.holding(inner), y
        precomputed = isinstance(self.kernels, str) and self.kernels == "precomputed"
        return (X, sources.known_labels(y)) if precomputed else sources.source_of(X, y)

    def _read(self, X: Any, reset: bool) -> tuple[Any, dict, list[Kernel]]:
        """Container, rows by view key, and kernels; all checks of X that need no y.

        Rows that were put into a session know their home.
        """
        X, _ = self._source_of(X)
        if not isinstance(X, SessionRows):
            return self._read_rows(X, reset)
        container, rows, kernels = self._read_rows(X.X, reset)
        return container, PlacedRows(rows, X.home) if reset else rows, kernels

    def _read_rows(self, X: Any, reset: bool) -> tuple[Any, dict, list[Kernel]]:
        if isinstance(X, sources.SourceInput) and not reset:
            X = sources.whole_to_predict(self, X)
        if isinstance(self.kernels, str) and self.kernels == "precomputed":
            if self.normalize == "spherical":
                raise ValueError(NO_SPHERICAL_MATRICES)
            if is_views(X):
                raise TypeError(
                    'kernels="precomputed" takes one array (n, n, M), got a Views; '
                    "name the matrix in it: kernels=[kernels.Precomputed(view=...)]"
                )
            stack = reading.precomputed_stack(X, square=reset)
            if reset:
                self.n_features_in_ = stack.shape[1]
            kernels = [Precomputed(index=m) for m in range(stack.shape[2])] if reset else self.kernels_
            return stack, *self._with_presence(stack, {None: stack}, kernels, reset)
        X = reading.check_container(self, X, reset)
        reading.count_rows(X)
        kernels = self._check_kernels(X) if reset else self.kernels_
        if getattr(self, "missing", "error") == "error":
            refuse(X, kernels, None if hasattr(self, "missing") else type(self).__name__)
        vectors = [
            kernel for kernel in kernels if not reading.is_matrix(kernel) and not isinstance(kernel, Absence)
        ]
        if isinstance(X, sources.SourceInput):
            spherical = self.normalize == "spherical"
            rows = sources.survey(
                X, vectors, diagonals=spherical, largest=not spherical and self.dtype == "auto"
            )
        else:
            rows = reading.rows_of(X, vectors, None if reset else self.expansion_.support_rows)
            if isinstance(X, sources.Batch):
                sources.check_widths(rows, self.expansion_.support_rows)
        if reset:
            rows |= reading.matrices_of(X, kernels, square=True)
        elif self._needs_all_columns:  # its gates are those of clusters and say nothing about views
            rows |= reading.matrices_of(X, kernels, False, self._matrix_columns(X))
        else:
            rows |= reading.matrices_of(X, kernels, False, self._matrix_columns(X), self.expansion_.cleared)
        lengths = {key: array.shape[0] for key, array in rows.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the views of X have different numbers of rows: {lengths}")
        if reset:
            vars(self).pop("_training_columns", None)
            if columns := reading.matrix_columns_of(X):
                self._training_columns = columns
            self._warn_if_unscaled(rows, kernels)
        return X, *self._with_presence(X, rows, kernels, reset)

    def _with_presence(
        self, X: Any, rows: dict, kernels: list[Kernel], reset: bool
    ) -> tuple[dict, list[Kernel]]:
        """Rows that know which views they have, and the kernels with that of missing="neutral"; all as they
        came without `missing`.
        """
        if not hasattr(self, "missing"):
            return rows, kernels
        n = next(iter(rows.values())).shape[0]
        presence = Presence.of(X, kernels, n, None if reset else getattr(self, "view_names_", None))
        if reset:
            vars(self).pop("patterns_", None)
            self.view_names_, self.present_ = presence.names, presence.there.mean(axis=0)
            kernels = [*kernels, Absence(of=tuple(presence.names))] if self.missing == "neutral" else kernels
        absences = {
            key: kernel.indicators(X)
            for kernel in kernels
            if isinstance(kernel, Absence)
            for key in kernel.views
        }
        return RowsOfViews({**rows, **absences}, presence), kernels

    def _matrix_columns(self, X: Any) -> dict[str, reading.MatrixColumns]:
        """By name of the view, the columns of ready-made matrices that stand for the support vectors (or all
        training rows).

        Rows of the matrices that the model was fitted to are found by number; a model out of a file does not
        know them.
        """
        if not is_views(X):
            return {}
        expansion = self.expansion_
        chosen = np.arange(expansion.n_train) if self._needs_all_columns else expansion.support
        views = dict.fromkeys(X.names)
        known = {
            view_name(views, view_of(key)): reading.MatrixColumns(None, chosen, depth)
            for key, depth in expansion.stack_depths.items()
            if not is_store(key)
        }
        fitted = getattr(self, "_training_columns", {})
        return known | {
            name: columns._replace(numbers=columns.numbers[chosen]) for name, columns in fitted.items()
        }

    def _warn_if_unscaled(self, rows: dict, kernels: list[Kernel]) -> None:
        """Distances and inner products of columns on very different scales are those of the widest column
        alone.
        """
        statistics = [kernel.statistic() for kernel in kernels]
        for key in dict.fromkeys(
            statistic.view for statistic in statistics if isinstance(statistic, SCALE_DEPENDENT)
        ):
            apart = scales_apart(rows[key])
            if apart is None:
                continue
            wide, narrow, ratio = apart
            names = getattr(self, "feature_names_in_", ())
            if key is None and len(names) == rows[key].shape[1]:
                wide, narrow = repr(str(names[wide])), repr(str(names[narrow]))
            warnings.warn(
                f"the columns of {'X' if key is None else f'view {view_of(key)!r}'} differ by orders of "
                f"magnitude (column {wide} is "
                f"{ratio:,.0f} times as wide as column {narrow}), so distances and inner products hardly see "
                "the narrow ones; scale them "
                "first (sklearn.preprocessing.StandardScaler)",
                UserWarning,
                stacklevel=4,
            )

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
            reading.check_kernel_stack(rows[key], "X" if key is None else f"view {view_of(key)!r} of X")
        if constants:
            self._set_constants(rows, kernels, heads)
        kernels, found = self._entries(rows, kernels, heads) if gating is None else (kernels, Gating(*gating))
        gates, gate_of_entry = found.gates, found.of_entry
        for head in heads:
            head.norm.check(len(kernels))
        n = next(iter(rows.values())).shape[0]
        values = n * n * len(kernels)
        learned = self.normalize not in (None, "spherical")
        families = group(*without_constant_gates(kernels, gates, gate_of_entry, learned), join=True)
        for family in families:
            family.present = found.present_of(family.gate)
        light = _light(families, rows)
        # Where weights are not bounded (p > 2, say) quadratic terms may vanish: their round-off decides about
        # the gap, and light statistics cost little more in float64.
        cheap = values <= SMALL_PROBLEM_LARGE_P or all(family.statistic in light for family in families)
        bounded = all(head.norm.bounded for head in heads)
        small = values <= SMALL_PROBLEM or (not bounded and cheap)
        double = (
            self.dtype == "float64"
            or (self.dtype == "auto" and small)
            or beyond_float32(rows, kernels, self.dtype == "float32")
        )
        dtype = np.float64 if double else np.float32
        problem = Problem(
            views=list(rows),
            families=families,
            n_rows=n,
            n_entries=len(kernels),
            gates=gates,
            dtype=dtype,
            exact=self.exact or (double and values <= FEW_VALUES),
            coarse=bounded,
            may_widen=self.dtype == "auto" and not double,
            light=light,
            # The gates of "spherical" bring all values down to one.
            wide=frozenset()
            if double or self.dtype != "auto" or self.normalize == "spherical"
            else self._wide(rows, families, heads),
            depths={key: array.shape[2] for key, array in rows.items() if getattr(array, "ndim", 2) == 3},
        )
        problem.cells = cell_dtypes(families, rows, problem.dtype_of)
        return problem, rows, gate_of_entry

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
        trained = run_of(self, working, problem, every, Progress() if self.verbose else None)
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

    @staticmethod
    def _wide(rows: dict, families: list, heads: list[Head]) -> frozenset:
        """Statistics to compute in float64 although others are float32."""
        largest = max(head.bounds.max() * max(head.path) for head in heads)
        return frozenset(
            family.statistic
            for family in families
            if family.statistic.cacheable
            and not family.statistic.non_negative
            and largest * max(largest_diagonal(kernel, rows) for kernel in family.kernels) > LARGE_VALUES
        )

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
        X : n examples, in any container that `predict` takes.

        Returns
        -------
        contributions : (n, M) when the model has one decision value per example (two classes), else (n,
        n_heads, M), with heads
            in the order of the columns of `decision_function`.

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
        X : array-like of shape (n, d), any container that the kernels take, a path or a Dataset
            Rows.
        y : array-like of shape (n,), or str
            Labels of any type, or the name of a column of a path or Dataset.
        sample_weight : array-like of shape (n,), or None
            Weights of the rows; None for alike.

        Returns
        -------
        score : float
            The larger, the better.
        """
        X, y = self._source_of(X, y)
        return super().score(X, y, sample_weight)

    def save(self, path: Any) -> None:
        """Write the fitted model to an Arrow file (see `raymkl.load`).

        Parameters
        ----------
        path : str or path
            File to write.
        """
        from ..io import save

        save(self, path)


def rows_and_gates(model: BaseMKL, X: Any) -> tuple[dict, np.ndarray | None]:
    """What the methods of a fitted model's `expansion_` take, of new examples X: rows by view key, and gates
    (n, J) or None.
    """
    return model._rows_to_predict(X)


def effective_weights(results: list) -> np.ndarray:
    """(H, E) theta times the factors of `normalize`, of the results of all heads."""
    return np.stack([result.theta for result in results]) * np.stack([result.scale for result in results])


def _number(name: str, value: Any, low: float, strict: bool = False, whole: bool = False) -> None:
    kind = Integral if whole else Real
    fine = (
        isinstance(value, kind)
        and not isinstance(value, bool)
        and np.isfinite(value)
        and (value > low if strict else value >= low)
    )
    if not fine:
        what = "a whole number" if whole else "a finite number"
        raise ValueError(f"{name} must be {what} {'>' if strict else '>='} {low:g}, got {value!r}")


def check_loss(loss: Any, known: Mapping, who: str, others: Mapping) -> None:
    """Raise ValueError for what is no loss of this kind of estimator. others : losses of the other kind."""
    if isinstance(loss, str) and loss in known:
        return
    hint = f"; {loss!r} is not a loss of {who}" if isinstance(loss, str) and loss in others else ""
    raise ValueError(f"loss must be one of {', '.join(map(repr, known))}; got {loss!r}{hint}")


def _light(families: list, rows: Mapping) -> frozenset:
    """Statistics of so few columns that computing them takes no longer than reading them from memory."""
    return frozenset(
        family.statistic
        for family in families
        if isinstance(family.statistic, SquaredDistance | InnerProduct)
        and not is_sparse(rows[family.statistic.view])
        and rows[family.statistic.view].shape[1] <= LIGHT_COLUMNS
    )
