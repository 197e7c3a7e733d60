"""What all estimators share: checking parameters, describing the problem to the engine, keeping what it learned.

An estimator is thin: it turns labels into heads, hands rows and heads to `engine.train`, and keeps arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from ..data.lazy_rows import fetch
from ..data.views import is_sparse, view_of
from ..engine import Head, Problem, RayParams
from ..engine.progress import Progress
from ..engine.run import ENGINES, train
from ..kernels.base import Kernel, Scaled
from ..kernels.defaults import SCALE_DEPENDENT, beyond_float32, default_bank, scales_apart
from ..kernels.formulas import Linear, Precomputed
from ..kernels.normalize import KINDS, gate_of_diagonal
from ..kernels.pairs.families import NO_GATE, cell_dtypes, group
from ..kernels.pairs.statistics import InnerProduct, SquaredDistance
from . import reading, sources
from .expansion import SomeColumns, decision_values
from .explain import ExplainMixin

SOLVERS = ("chunking", "wrapper")
THETA_STEPS = ("auto", "analytic", "cutting_plane")
DTYPES = ("auto", "float32", "float64")
# With dtype="auto", problems with at most this many kernel values use float64.
SMALL_PROBLEM = 1_000_000
# The same for p > 2, with statistics that are kept.
SMALL_PROBLEM_LARGE_P = 50_000_000
# In float64, so many kernel values are computed by their formulas in less time than it takes to make a table.
FEW_VALUES = 50_000
# With dtype="auto", statistics without an upper bound (inner products, values of kernels) are float64 when C times their largest value
# exceeds this: f is then a small difference of large numbers.
LARGE_VALUES = 1_000.0
# Statistics of dense rows with at most this many columns are not cached.
LIGHT_COLUMNS = 64
NO_SPHERICAL_MATRICES = (
    'normalize="spherical" needs k(x, x) of new examples, which ready-made matrices do not hold; normalise the matrices first'
)


class BaseMKL(ExplainMixin, BaseEstimator):
    """Base of the estimators; see `MKLClassifier` for the parameters."""

    # -- checks -------------------------------------------------------------------------------------------------------

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
            ("engine", ENGINES),
            ("dtype", DTYPES),
        ):
            value = getattr(self, name)
            if not any(value is option or value == option for option in known):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
        if self.theta_step == "cutting_plane" and self.p > 2:
            raise ValueError(f'theta_step="cutting_plane" needs p in [1, 2], got p={self.p!r}; use theta_step="auto"')
        if not isinstance(getattr(self, "shared_weights", False), bool | np.bool_):
            raise ValueError(f"shared_weights must be True or False, got {self.shared_weights!r}")
        if self.ray_params is not None and not isinstance(self.ray_params, RayParams):
            raise TypeError(f"ray_params must be a raymkl.RayParams or None, got {type(self.ray_params).__name__}")

    def _check_kernels(self, X: Any) -> list[Kernel]:
        """The list of kernels to learn over."""
        kernels = self.kernels
        if isinstance(kernels, str):
            raise ValueError(f'kernels must be a list of kernels or "precomputed", got {kernels!r}')
        if kernels is None:
            some = sources.sample(X) if isinstance(X, sources.SourceInput) else X
            return default_bank(reading.rows_of(some, [Linear()])[None])
        if isinstance(kernels, Kernel):
            kernels = [kernels]
        try:
            kernels = list(kernels)
        except TypeError:
            raise TypeError(f'kernels must be a list of kernels or "precomputed", got {type(self.kernels).__name__}') from None
        if not kernels:
            raise ValueError("kernels is an empty list; at least one kernel is needed")
        for position, kernel in enumerate(kernels):
            if not isinstance(kernel, Kernel):
                raise TypeError(f"kernels[{position}] is a {type(kernel).__name__}, not a kernel (see raymkl.kernels)")
        if self.normalize == "spherical" and any(map(reading.is_matrix, kernels)):
            raise ValueError(NO_SPHERICAL_MATRICES)
        return kernels

    def _open(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """X and y; a path or Dataset becomes a source of rows (a path of ready-made kernels is a kernel store), a label column labels."""
        precomputed = isinstance(self.kernels, str) and self.kernels == "precomputed"
        return (X, sources.known_labels(y)) if precomputed else sources.opened(X, y)

    def _read(self, X: Any, reset: bool) -> tuple[Any, dict, list[Kernel]]:
        """Container, rows by view key, and kernels; all checks of X that need no y."""
        X, _ = self._open(X)
        if isinstance(X, sources.SourceInput) and not reset:
            X = sources.whole_to_predict(self, X)
        if isinstance(self.kernels, str) and self.kernels == "precomputed":
            if self.normalize == "spherical":
                raise ValueError(NO_SPHERICAL_MATRICES)
            stack = reading.precomputed_stack(X, square=reset)
            if reset:
                self.n_features_in_ = stack.shape[1]
            return stack, {None: stack}, [Precomputed(index=m) for m in range(stack.shape[2])] if reset else self.kernels_
        X = reading.check_container(self, X, reset)
        reading.count_rows(X)
        kernels = self._check_kernels(X) if reset else self.kernels_
        vectors = [kernel for kernel in kernels if not reading.is_matrix(kernel)]
        if isinstance(X, sources.SourceInput):
            spherical = self.normalize == "spherical"
            rows = sources.survey(X, vectors, diagonals=spherical, largest=not spherical and self.dtype == "auto")
        else:
            rows = reading.rows_of(X, vectors)
            if isinstance(X, sources.Batch):
                sources.check_widths(rows, self._support_rows)
        rows = {**rows, **reading.matrices_of(X, kernels, square=reset)}
        lengths = {key: array.shape[0] for key, array in rows.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the views of X have different numbers of rows: {lengths}")
        if reset:
            self._warn_if_unscaled(rows, kernels)
        return X, rows, kernels

    def _warn_if_unscaled(self, rows: dict, kernels: list[Kernel]) -> None:
        """Distances and inner products of columns on very different scales are those of the widest column alone."""
        statistics = [kernel.statistic() for kernel in kernels]
        for key in dict.fromkeys(statistic.view for statistic in statistics if isinstance(statistic, SCALE_DEPENDENT)):
            apart = scales_apart(rows[key])
            if apart is None:
                continue
            wide, narrow, ratio = apart
            names = getattr(self, "feature_names_in_", ())
            if key is None and len(names) == rows[key].shape[1]:
                wide, narrow = repr(str(names[wide])), repr(str(names[narrow]))
            warnings.warn(
                f"the columns of {'X' if key is None else f'view {view_of(key)!r}'} differ by orders of magnitude (column {wide} is "
                f"{ratio:,.0f} times as wide as column {narrow}), so distances and inner products hardly see the narrow ones; scale them "
                "first (sklearn.preprocessing.StandardScaler)",
                UserWarning,
                stacklevel=4,
            )

    # -- training -----------------------------------------------------------------------------------------------------

    def _describe(self, rows: dict, kernels: list[Kernel], heads: list[Head]) -> tuple[Problem, dict, list[int] | None]:
        """The problem for the engine, its rows in the dtype to work in, and the gate of every entry."""
        for key in dict.fromkeys(kernel.statistic().view for kernel in kernels if reading.is_matrix(kernel)):
            reading.check_kernel_stack(rows[key], "X" if key is None else f"view {view_of(key)!r} of X")
        n = next(iter(rows.values())).shape[0]
        gates, gate_of_entry = self._spherical_gates(rows, kernels)
        values = n * n * len(kernels)
        families = group(*_without_constant_gates(kernels, gates, gate_of_entry), join=True)
        light = _light(families, rows)
        # For p > 2 quadratic terms may vanish: their round-off decides about the gap, and light statistics cost little more in float64.
        cheap = values <= SMALL_PROBLEM_LARGE_P or all(family.statistic in light for family in families)
        small = values <= SMALL_PROBLEM or (self.p > 2 and cheap)
        double = self.dtype == "float64" or (self.dtype == "auto" and small) or beyond_float32(rows, kernels, self.dtype == "float32")
        dtype = np.float64 if double else np.float32
        problem = Problem(
            views=list(rows),
            families=families,
            n_rows=n,
            n_entries=len(kernels),
            gates=gates,
            dtype=dtype,
            exact=self.exact or (double and values <= FEW_VALUES),
            coarse=self.p <= 2,
            may_widen=self.dtype == "auto" and not double,
            light=light,
            # The gates of "spherical" bring all values down to one.
            wide=frozenset() if double or self.dtype != "auto" or self.normalize == "spherical" else self._wide(rows, families, heads),
            depths={key: array.shape[2] for key, array in rows.items() if getattr(array, "ndim", 2) == 3},
        )
        problem.cells = cell_dtypes(families, rows, problem.dtype_of)
        return problem, dict(rows), gate_of_entry

    def _train(self, rows: dict, kernels: list[Kernel], heads: list[Head]) -> None:
        """Hand the problem to the engine and keep what it learned."""
        problem, working, gate_of_entry = self._describe(rows, kernels, heads)
        trained = train(working, problem, heads, self.engine, self.ray_params, Progress() if self.verbose else None)
        self._keep_run(trained)
        results = [stages[-1] for stages in trained.results]
        self._keep(results, gate_of_entry)
        self._keep_support(rows, problem.gates)
        self._warn_if_short(results)

    def _keep_run(self, trained: Any) -> None:
        """What is known of the run as such."""
        self.history_ = trained.history
        self.shard_failures_ = trained.failures
        self.resumed_from_ = trained.resumed_from
        self._engine_used = trained.engine

    @staticmethod
    def _wide(rows: dict, families: list, heads: list[Head]) -> frozenset:
        """Statistics to compute in float64 although others are float32."""
        largest = max(head.bounds.max() * max(head.path) for head in heads)
        return frozenset(
            family.statistic
            for family in families
            if family.statistic.cacheable
            and not family.statistic.non_negative
            and largest * max(_largest_diagonal(kernel, rows) for kernel in family.kernels) > LARGE_VALUES
        )

    def _spherical_gates(self, rows: dict, kernels: list[Kernel]) -> tuple[np.ndarray | None, list[int] | None]:
        """Gates 1 / sqrt(k(x, x)) for normalize="spherical": (n, J) and the gate of every kernel."""
        if self.normalize != "spherical":
            return None, None
        columns, gate_of_entry = [], []
        for diagonal in _diagonals(kernels, rows):
            gate = gate_of_diagonal(diagonal)
            if np.all(gate == 1.0):
                gate_of_entry.append(NO_GATE)
            else:
                gate_of_entry.append(len(columns))
                columns.append(gate)
        return (np.stack(columns, axis=1) if columns else None), gate_of_entry

    def _keep(self, results: list, gate_of_entry: list[int] | None) -> None:
        single = len(results) == 1
        # Heads that share their weights have one certificate, too.
        shared = single or getattr(self, "shared_weights", False)
        weights = np.stack([result.theta for result in results])
        a = np.stack([result.a for result in results])
        certificates = [result.certificate for result in results]
        self.support_ = np.flatnonzero(np.any(a != 0, axis=0))
        self.dual_coef_ = a[:, self.support_]
        self.kernel_weights_ = weights[0] if shared else weights
        self._effective_weights = weights * np.stack([result.scale for result in results])
        self._gate_of_entry = gate_of_entry
        self.intercept_ = np.array([result.intercept for result in results])
        self.n_iter_ = max(result.rounds for result in results)
        self.converged_ = all(result.converged for result in results)
        for name, values in (
            ("duality_gap_", [certificate.gap for certificate in certificates]),
            ("primal_objective_", [certificate.primal for certificate in certificates]),
            ("dual_objective_", [certificate.dual for certificate in certificates]),
        ):
            setattr(self, name, float(values[0]) if shared else np.array(values))

    def _warn_if_short(self, results: list) -> None:
        if not self.converged_:
            worst = max(result.certificate.gap for result in results)
            warnings.warn(
                f"stopped after {self.n_iter_} rounds with a relative duality gap of {worst:.3g}, above tol={self.tol:g}; "
                "the model is feasible and its gap is certified, but raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- prediction ---------------------------------------------------------------------------------------------------

    def _decision(self, X: Any) -> np.ndarray:
        """(n, n_heads) decision values."""
        X, _ = self._open(X)
        if isinstance(X, sources.SourceInput):
            return np.concatenate([self._decision(batch) for batch in sources.batches_to_predict(self, X)])
        kernels, rows, gates = self._rows_to_predict(X, copy=False)
        values = decision_values(
            kernels,
            self._effective_weights,
            self.dual_coef_,
            self._support_rows,
            rows,
            self._gate_of_entry,
            self._support_gates,
            gates,
        )
        return values + self.intercept_

    def _rows_to_predict(self, X: Any, copy: bool = True) -> tuple[list[Kernel], dict, np.ndarray | None]:
        """Kernel of every entry, rows by view key (of ready-made matrices the columns of `support_`), and gates (n, J) or None.

        copy : columns of `support_` as arrays; else as `SomeColumns` of what came.
        """
        _, rows, kernels = self._read(X, reset=False)
        for key in {kernel.statistic().view for kernel in kernels if reading.is_matrix(kernel)}:
            rows[key] = self._support_columns(rows[key], self._stack_depths[key], copy)
        gates = None
        if self._gate_of_entry is not None and max(self._gate_of_entry, default=NO_GATE) != NO_GATE:
            used = [kernel for kernel, gate in zip(kernels, self._gate_of_entry, strict=True) if gate != NO_GATE]
            gates = np.stack([gate_of_diagonal(diagonal) for diagonal in _diagonals(used, rows)], axis=1)
        return kernels, rows, gates

    def _support_columns(self, stack: np.ndarray, wanted: int, copy: bool) -> np.ndarray | SomeColumns:
        """Columns of `support_` of a stack that holds all training rows or only those."""
        width, depth = stack.shape[1:]
        if width == self._n_train and depth == wanted:
            return stack[:, self.support_] if copy else SomeColumns(stack, self.support_)
        if width == len(self.support_) and depth == wanted:
            return stack
        raise ValueError(
            f"X has shape {stack.shape}; precomputed kernels to predict with have shape (n_test, {self._n_train}, {wanted}), "
            f"or (n_test, {len(self.support_)}, {wanted}) for the rows of support_ alone"
        )

    def _keep_support(self, rows: dict, gates: np.ndarray | None = None) -> None:
        """Keep the features of the support vectors, and nothing of the other rows."""
        self._n_train = next(iter(rows.values())).shape[0]
        self._stack_depths = {key: array.shape[2] for key, array in rows.items() if getattr(array, "ndim", 2) == 3}
        vectors = {key: array for key, array in rows.items() if getattr(array, "ndim", 2) != 3}
        self._support_rows = {
            **dict.fromkeys(rows, np.empty((len(self.support_), 0))),  # of ready-made matrices nothing is kept
            **fetch(vectors, self.support_),
        }
        self._support_gates = None if gates is None else gates[self.support_]


def _number(name: str, value: Any, low: float, strict: bool = False, whole: bool = False) -> None:
    kind = Integral if whole else Real
    fine = isinstance(value, kind) and not isinstance(value, bool) and np.isfinite(value) and (value > low if strict else value >= low)
    if not fine:
        what = "a whole number" if whole else "a finite number"
        raise ValueError(f"{name} must be {what} {'>' if strict else '>='} {low:g}, got {value!r}")


def _light(families: list, rows: Mapping) -> frozenset:
    """Statistics of so few columns that computing them takes no longer than reading them from memory."""
    return frozenset(
        family.statistic
        for family in families
        if isinstance(family.statistic, SquaredDistance | InnerProduct)
        and not is_sparse(rows[family.statistic.view])
        and rows[family.statistic.view].shape[1] <= LIGHT_COLUMNS
    )


def _without_constant_gates(
    kernels: list[Kernel], gates: np.ndarray | None, gate_of_entry: list[int] | None
) -> tuple[list[Kernel], list[int] | None]:
    """Kernels and gates to train with: a gate that is the same number for all rows becomes a factor, which costs nothing."""
    if gates is None:
        return kernels, gate_of_entry
    constant = (gates[0] > 0) & (gates == gates[0]).all(axis=0)
    kernels, gate_of_entry = list(kernels), list(gate_of_entry)
    for entry, gate in enumerate(gate_of_entry):
        if gate != NO_GATE and constant[gate]:
            kernels[entry], gate_of_entry[entry] = Scaled(kernels[entry], float(gates[0, gate]) ** 2), NO_GATE
    return kernels, gate_of_entry


def _diagonals(kernels: list[Kernel], rows: Mapping) -> list[np.ndarray]:
    """k(x, x) of every kernel from rows by view key; what kernels share is computed once."""
    known = [sources.known_diagonal(kernel, rows) for kernel in kernels]
    if kernels and all(diagonal is not None for diagonal in known):
        return known
    found: dict[int, np.ndarray] = {}
    for family in group(kernels, join=True):
        t = family.statistic.diagonal(family.statistic.prepare(rows))
        found.update({member: np.asarray(family.values(i, t), np.float64) for i, member in enumerate(family.members)})
    return [found[member] for member in range(len(kernels))]


def _largest_diagonal(kernel: Kernel, rows: Mapping) -> float:
    known = sources.known_largest(kernel, rows)
    return float(np.abs(_diagonal(kernel, rows)).max()) if known is None else known


def _diagonal(kernel: Kernel, rows: Mapping) -> np.ndarray:
    """k(x, x) from rows by view key."""
    statistic = kernel.statistic()
    return np.asarray(kernel.profile(statistic.diagonal(statistic.prepare(rows))), np.float64)
