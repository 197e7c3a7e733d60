"""How estimators read X: from any container to rows by view key, checked, and the kernels to learn over."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..data.rows import row_count
from ..data.store import is_store
from ..data.views import is_views, view_name, view_of
from ..engine.placed import PlacedRows
from ..engine.session import SessionRows
from ..kernels.base import Kernel
from ..kernels.defaults import SCALE_DEPENDENT, default_bank, scales_apart
from ..kernels.formulas import Linear
from ..kernels.given import Absence, Precomputed
from . import reading, sources
from .missing.presence import Presence, RowsOfViews, refuse

NO_SPHERICAL_MATRICES = (
    'normalize="spherical" needs k(x, x) of new examples, which ready-made matrices do '
    "not hold; normalise the matrices first"
)


class ReadsRows:
    """Base of estimators that take rows in any container. They have `kernels`, `normalize` and `dtype`, and
    `missing` where rows may lack views.
    """

    # Whether new examples bring columns of all training rows of a ready-made matrix, not only those of
    # support vectors.
    _needs_all_columns = False

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
        n = row_count(rows)
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
