"""What the report reads from a fitted model, whatever its kind and wherever it was trained."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from ...engine.programs.dual_averaging import exponent
from ...models.reading import is_matrix
from ...models.stochastic import StochasticMKLClassifier
from ...plot import head_names, kernel_names, weight_rows


class Facts:
    """A fitted model seen through its public attributes, and the examples it is shown on.

    weights : (rows, M). row_names : one per row of weights (class, cluster or both; [""] when there is one).
    heads : names of the decision values. landmarks : whether the model is a sum over landmarks, which have no
    dual variables, in place of support vectors.
    p : block norm, None where there is none. streamed : whether its last rows came by partial_fit. X, y :
    examples and labels, or None.
    """

    def __init__(self, model: Any, X: Any = None, y: Any = None):
        self.model, self.X, self.y = model, X, y
        self.kind = type(model).__name__
        self.weights, self.row_names = weight_rows(model)
        self.names = kernel_names(model.kernels_)
        self.heads = head_names(model)
        self.n_kernels = self.weights.shape[1]
        self.n_support = len(model.support_)
        self.landmarks = hasattr(model, "landmark_coef_")
        self.vectors, self.vector = (
            ("landmarks", "landmark") if self.landmarks else ("support vectors", "support vector")
        )
        self.p = _norm(model, self.n_kernels)
        self.stochastic = isinstance(model, StochasticMKLClassifier)
        # Of rows that came by partial_fit and were not kept the loss is not known: there is a dual value and
        # no gap.
        self.streamed = self.stochastic and bool(np.isnan(model.duality_gap_))
        self.n_train = int(model.expansion_.n_train)
        self.classes = list(getattr(model, "classes_", []))
        self.history = list(getattr(model, "history_", []))
        self.regression = is_regressor(model)
        self.over_matrices = any(map(is_matrix, model.kernels_))
        self.localized = np.ndim(model.kernel_weights_) == 3 or (
            np.ndim(model.kernel_weights_) == 2 and self.row_names != self.heads
        )
        self._values: np.ndarray | None = None

    def order(self, most: int) -> np.ndarray:
        """Positions of the kernels with the largest weights, largest first."""
        return np.argsort(-self.weights.max(axis=0), kind="stable")[:most]

    def spaced(self, most: int) -> np.ndarray:
        """Positions of at most `most` kernels, evenly spaced in the list, of those whose weight is not
        negligible (two at least).
        """
        largest = self.weights.max(axis=0)
        used = np.flatnonzero(largest > 1e-3 * largest.max(initial=0.0))
        if self.n_kernels <= most or len(used) < 2:
            return np.sort(self.order(most))
        return used[np.unique(np.linspace(0, len(used) - 1, min(most, len(used))).astype(int))]

    @property
    def gaps(self) -> np.ndarray:
        return np.atleast_1d(np.asarray(getattr(self.model, "duality_gap_", np.nan), np.float64))

    @property
    def converged(self) -> bool:
        return bool(getattr(self.model, "converged_", False))

    @property
    def seconds(self) -> float | None:
        return float(max(row["seconds"] for row in self.history)) if self.history else None

    @property
    def shards(self) -> int | None:
        rows = self.history[-1].get("rows_per_shard") if self.history else None
        return ceil(self.n_train / rows) if rows else None

    @property
    def engine(self) -> str:
        return str(getattr(self.model, "engine_used_", getattr(self.model, "engine", "unknown")))

    @property
    def decision(self) -> np.ndarray:
        """(n, n_heads) decision values of X, computed once."""
        if self._values is None:
            model = self.model
            values = (
                model.decision_function(self.X)
                if hasattr(model, "decision_function")
                else model.predict(self.X)
            )
            self._values = np.asarray(values, np.float64).reshape(len(values), -1)
        return self._values

    def contributions(self, rows: dict, gates: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Parts (n, n_heads, M) of every kernel in the decision values of rows by view key, and these (n,
        n_heads).
        """
        parts, intercepts = (
            self.model.expansion_.contributions(rows, gates),
            np.asarray(self.model.intercept_, np.float64),
        )
        if (
            len(self.classes) == 2 and parts.shape[1] == 2
        ):  # a sum per class, whose difference is the decision value
            parts, intercepts = parts[:, 1:] - parts[:, :1], intercepts[1:] - intercepts[:1]
        return parts, parts.sum(axis=2) + intercepts

    def runs(self) -> list[list[dict]]:
        """Rows of the history, one list per head."""
        found: dict[int, list[dict]] = {}
        for row in self.history:
            found.setdefault(row.get("head", 0), []).append(row)
        return [found[head] for head in sorted(found)]

    def together(self, key: str, how: Any) -> tuple[np.ndarray, np.ndarray]:
        """(seconds, values) of all heads together, each head keeping its last value after it is done.

        how : sum, max, ...
        """
        runs = self.runs()
        times = np.unique([row["seconds"] for row in self.history])
        columns = []
        for rows in runs:
            own, values = (
                np.array([row["seconds"] for row in rows]),
                np.array([row[key] for row in rows], np.float64),
            )
            columns.append(values[np.clip(np.searchsorted(own, times, "right") - 1, 0, None)])
        return times, how(np.stack(columns), axis=0)


def _norm(model: Any, n_kernels: int) -> float | None:
    """The block norm that a model was trained with; None where its norm is another one."""
    if getattr(model, "norm", None) is not None or not hasattr(model, "p"):
        return None
    if model.p is not None:
        return float(model.p)
    q = exponent(
        None, n_kernels
    )  # what None stands for in the stochastic trainer, the only one that takes it
    return q / (q - 1.0)
