"""Normalisation of kernels: constants learned from the training rows and remembered for new examples.

| kind           | k(x, z) becomes                           | so that on the training rows |
|---|---|---|
| multiplicative | k / (mean_i k(i,i) - mean_ij k(i,j))      | the variance in feature space is 1 |
| trace          | k / sum_i k(i,i)                          | the trace is 1 |
| spherical      | k / sqrt(k(x,x) k(z,z))                   | every example has length 1 |
| tail           | k / (trace - its largest eigenvalues)     | all eigenvalues but two (`TailSum`) sum to 1 |

All but one are a number per kernel, which folds into the kernel's weight. Spherical normalisation is a gate 1
/ sqrt(k(x,x)).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from .base import Kernel

KINDS = (None, "multiplicative", "spherical", "trace", "tail")
# A kernel whose variance, trace or tail is below this (relative to its largest diagonal entry) cannot be
# scaled up to one.
NEGLIGIBLE = 1e-10
# Matrices of up to this many rows have all their eigenvalues computed; of larger ones the leading ones are
# found by Lanczos' method.
SMALL_MATRIX = 400


@dataclass(frozen=True)
class TailSum:
    """Normalisation by tail sums: every kernel is divided by its trace less its zeta largest eigenvalues,
    over the training rows.

        tail_m = sum_{j > zeta} lambda_mj
        lambda_m1 >= lambda_m2 >= ...  the eigenvalues of K_m

    Parameters
    ----------
    zeta : int
        How many of the largest eigenvalues are left out, 0 <= zeta < n. `normalize="tail"` is zeta = 2; 0 is
        the trace.

    Examples
    --------
    >>> TailSum(zeta=5)
    TailSum(zeta=5)

    References
    ----------
    Li, Liu, Yin, Zhang, Ding, Wang: Multi-class learning: from theory to algorithm. NeurIPS 31, 2018
    (Conv-MKL).
    """

    zeta: int = 2

    def __post_init__(self):
        check_zeta(self.zeta)
        object.__setattr__(self, "zeta", int(self.zeta))


def check_zeta(zeta: Any, n: int | None = None) -> None:
    """Raise ValueError unless zeta is a number of eigenvalues that may be left out, of n where they are
    known.
    """
    whole = isinstance(zeta, Integral) and not isinstance(zeta, bool | np.bool_)
    if not whole or zeta < 0 or (n is not None and zeta >= n):
        most = "the number of rows" if n is None else f"the {n} rows that count"
        raise ValueError(
            f"zeta must be a whole number >= 0 and below {most}, the eigenvalues that a tail sum leaves out; "
            f"got {zeta!r}"
        )


def zeta_of(kind: Any) -> int | None:
    """How many eigenvalues a kind of normalisation leaves out of its tail sums; None if it has none."""
    return kind.zeta if isinstance(kind, TailSum) else 2 if isinstance(kind, str) and kind == "tail" else None


def tail_of(matrix: np.ndarray, zeta: int) -> float:
    """Trace of a symmetric matrix (n, n) less its zeta largest eigenvalues."""
    trace, n = float(np.trace(matrix)), len(matrix)
    if zeta == 0:
        return trace
    if n > SMALL_MATRIX and zeta < n // 10:
        from scipy.sparse.linalg import ArpackNoConvergence, eigsh

        try:
            start = np.random.default_rng(0).standard_normal(n)
            return trace - float(eigsh(matrix, zeta, which="LA", v0=start, return_eigenvectors=False).sum())
        except ArpackNoConvergence:
            pass
    return float(np.linalg.eigvalsh(matrix)[: n - zeta].sum())


def check_tails(tails: np.ndarray, traces: np.ndarray) -> None:
    """Raise ValueError for kernels (M,) whose tail sum is nothing beside their trace, by which they cannot be
    divided.
    """
    bad = np.flatnonzero(~(tails > NEGLIGIBLE * np.maximum(np.abs(traces), 1e-300)))
    if len(bad):
        raise ValueError(
            f"kernel {bad[0]} has no tail: its eigenvalues beyond the largest ones sum to "
            f"{tails[bad[0]]:.3g} (its trace is "
            f"{traces[bad[0]]:.3g}), by which it cannot be divided; leave it out, or choose a smaller zeta "
            "or another normalize"
        )


def scales(
    kind: Any,
    diagonal_sum: np.ndarray,
    matrix_sum: np.ndarray | None,
    n_rows: float,
    eigenvalues: np.ndarray | None = None,
) -> np.ndarray:
    """Factor (M,) that multiplies each kernel. Kernels without variance (constant ones), trace or tail get 0.

    diagonal_sum : (M,) sum_i k_m(i, i). matrix_sum : (M,) sum_ij k_m(i, j), for "multiplicative". n_rows :
    rows summed over, one number or (M,); a kernel that no row has gets 0.
    eigenvalues : (M, n) largest first, for tail sums.
    """
    if kind == "multiplicative":
        n_rows = np.maximum(n_rows, 1)
        level = diagonal_sum / n_rows
        size = level - matrix_sum / n_rows**2
    elif kind == "trace":
        level = size = diagonal_sum
    elif zeta_of(kind) is not None and eigenvalues is not None:
        level, size = diagonal_sum, eigenvalues[:, zeta_of(kind) :].sum(axis=1)
    else:
        return np.ones(len(diagonal_sum))
    usable = size > NEGLIGIBLE * np.maximum(np.abs(level), 1e-300)
    return np.where(usable, 1.0 / np.where(usable, size, 1.0), 0.0)


def spherical_gate(kernel: Kernel, X: Any) -> np.ndarray:
    """(n,) gate 1 / sqrt(k(x, x)); 0 where k(x, x) is not positive, so that such an example contributes
    nothing.
    """
    return gate_of_diagonal(kernel.diag(X))


def gate_of_diagonal(diagonal: np.ndarray) -> np.ndarray:
    positive = diagonal > 0
    return np.where(positive, 1.0 / np.sqrt(np.where(positive, diagonal, 1.0)), 0.0)
