"""Where the scores of a gating model come from: an affine function of vectors, or a function in a kernel's
feature space.

    linear    s_m(x) = <v_m, x> + v_m0            gradient in v_m: sum_i g[i, m] x_i
    kernel    s_m(x) = sum_i u[i, m] k(x_i, x) + v_m0       gradient as a function: sum_i g[i, m] k(x_i, .)

for g = dJ / ds (n, M). Products with rows and kernel values are computed by the shards that own them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.combined import CombinedKernel
from ..shard.shard import Shard
from .k_means import fetch_rows

# Kernel values of all pairs of rows are kept by the shards up to this many rows; beyond, they are computed
# again for each product.
KEPT_ROWS = 5_000
# Rows that a random function in a kernel's space starts from.
RANDOM_ROWS = 64


# -- what runs on a shard --------------------------------------------------------------------------


def column_moments(shard: Shard, view: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """Rows, sums and sums of squares of the columns of a view."""
    array = shard.own.features[view]
    if sp.issparse(array):
        sums, squares = array.sum(axis=0), array.multiply(array).sum(axis=0)
        return shard.own.n, np.asarray(sums, np.float64).ravel(), np.asarray(squares, np.float64).ravel()
    array = np.asarray(array, np.float64)
    return shard.own.n, array.sum(axis=0), np.einsum("ij,ij->j", array, array)


def vector_products(shard: Shard, view: Any, right: np.ndarray) -> np.ndarray:
    """(own rows, M) rows times right (d, M)."""
    return np.asarray(shard.own.features[view] @ right, np.float64)


def vector_sums(shard: Shard, view: Any, weights: np.ndarray) -> np.ndarray:
    """(d, M) sum over own rows of row times weights (n_total, M)."""
    return np.asarray(shard.own.features[view].T @ weights[shard.own.range], np.float64)


def begin_gate_kernel(shard: Shard, kernel: CombinedKernel, ids: np.ndarray, rows: dict) -> None:
    """Keep the kernel values of own rows with all rows."""
    columns = kernel.columns(rows, ids)
    views = {view: shard.own.features[view] for view in kernel.views}
    shard.scratch["gate kernel"] = columns.values(views)


def kept_products(shard: Shard, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(own rows, M) kept kernel values with rows ids times weights (k, M)."""
    return shard.scratch["gate kernel"][:, ids] @ weights


def fresh_products(
    shard: Shard, kernel: CombinedKernel, ids: np.ndarray, rows: dict, weights: np.ndarray
) -> np.ndarray:
    """(own rows, M) kernel values with rows ids times weights (k, M), computed block by block."""
    return kernel.columns(rows, ids).products(
        {view: shard.own.features[view] for view in kernel.views}, weights
    )


# -- what runs in the coordinator ------------------------------------------------------------------


@dataclass
class LinearScores:
    """Parameters (V (d, M), v0 (M,)) over the columns of a view, brought to spread one while they are
    learned.
    """

    view: Any
    shards: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict:
        return {**vars(self), "shards": None}

    def begin(self, shards: Any) -> None:
        self.shards = shards
        parts = shards.apply(column_moments, self.view)
        n = sum(part[0] for part in parts)
        mean = np.sum([part[1] for part in parts], axis=0) / n
        spread = np.sqrt(np.maximum(np.sum([part[2] for part in parts], axis=0) / n - mean**2, 0.0))
        self.scale = 1.0 / np.where(spread > 1e-12 * np.maximum(np.abs(mean), 1e-300), spread, np.inf)
        self.center = mean

    def close(self, shards: Any) -> None:
        self.shards = None

    def start(self, n_kernels: int, random: np.random.Generator) -> tuple[Any, np.ndarray]:
        V = random.normal(size=(len(self.scale), n_kernels)) / np.sqrt(max(np.count_nonzero(self.scale), 1))
        return self._affine(V, np.zeros(n_kernels))

    def _affine(self, V: np.ndarray, v0: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Parameters for raw rows, and scores (n, M), of coefficients V for centred rows of spread one."""
        raw = V * self.scale[:, None]
        shift = v0 - self.center @ raw
        return (raw, shift), np.concatenate(self.shards.apply(vector_products, self.view, raw)) + shift

    def direction(self, gradient: np.ndarray) -> tuple[Any, np.ndarray]:
        """The gradient in the parameters, and the change of the scores (n, M) along it."""
        sums = np.sum(self.shards.apply(vector_sums, self.view, gradient), axis=0)
        total = gradient.sum(axis=0)
        return self._affine((sums - np.outer(self.center, total)) * self.scale[:, None], total)

    @staticmethod
    def moved(parameters: Any, direction: Any, length: float) -> Any:
        return tuple(value - length * change for value, change in zip(parameters, direction, strict=True))


@dataclass
class KernelScores:
    """Parameters (U (n, M), v0 (M,)): coefficients of the kernel functions of the training rows, zero for
    most.
    """

    kernel: CombinedKernel
    n_rows: int
    shards: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict:
        return {**vars(self), "shards": None}

    def begin(self, shards: Any) -> None:
        self.shards = shards
        if self.n_rows <= KEPT_ROWS:
            ids = np.arange(self.n_rows)
            shards.keep(
                "gate kernel",
                begin_gate_kernel,
                self.kernel,
                ids,
                fetch_rows(shards, ids, self.kernel.vector_views),
            )

    def close(self, shards: Any) -> None:
        if self.n_rows <= KEPT_ROWS:
            shards.release("gate kernel")
        self.shards = None

    def _scores(self, U: np.ndarray) -> np.ndarray:
        """(n, M) kernel matrix times U (n, M)."""
        ids = np.flatnonzero(np.any(U != 0, axis=1))
        if len(ids) == 0:
            return np.zeros_like(U)
        if self.n_rows <= KEPT_ROWS:
            return np.concatenate(self.shards.apply(kept_products, ids, U[ids]))
        rows = fetch_rows(self.shards, ids, self.kernel.vector_views)
        return np.concatenate(self.shards.apply(fresh_products, self.kernel, ids, rows, U[ids]))

    def start(self, n_kernels: int, random: np.random.Generator) -> tuple[Any, np.ndarray]:
        U = np.zeros((self.n_rows, n_kernels))
        some = random.choice(self.n_rows, min(RANDOM_ROWS, self.n_rows), replace=False)
        U[some] = random.normal(size=(len(some), n_kernels))
        scores = self._scores(U)
        scale = 1.0 / max(float(scores.std(axis=0).mean()), 1e-300)
        v0 = -scale * scores.mean(axis=0)
        return (scale * U, v0), scale * scores + v0

    def direction(self, gradient: np.ndarray) -> tuple[Any, np.ndarray]:
        """The gradient in the parameters, and the change of the scores (n, M) along it."""
        total = gradient.sum(axis=0)
        return (gradient, total), self._scores(gradient) + total

    moved = staticmethod(LinearScores.moved)
