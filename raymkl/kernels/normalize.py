"""Normalisation of kernels: constants learned from the training rows and remembered for new examples.

| kind           | k(x, z) becomes                           | so that on the training rows |
|---|---|---|
| multiplicative | k / (mean_i k(i,i) - mean_ij k(i,j))      | the variance in feature space is 1 |
| trace          | k / sum_i k(i,i)                          | the trace is 1 |
| spherical      | k / sqrt(k(x,x) k(z,z))                   | every example has length 1 |

The first two are one number per kernel, which folds into the kernel's weight. The third is a gate 1 / sqrt(k(x,x)).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Kernel

KINDS = (None, "multiplicative", "spherical", "trace")
# A kernel whose variance or trace is below this (relative to its largest diagonal entry) cannot be scaled up to one.
NEGLIGIBLE = 1e-10


def scales(kind: str | None, diagonal_sum: np.ndarray, matrix_sum: np.ndarray | None, n_rows: float) -> np.ndarray:
    """Factor (M,) that multiplies each kernel. Kernels without variance (constant ones) or without trace get 0.

    diagonal_sum : (M,) sum_i k_m(i, i). matrix_sum : (M,) sum_ij k_m(i, j), for "multiplicative". n_rows : rows summed over.
    """
    if kind == "multiplicative":
        level = diagonal_sum / n_rows
        size = level - matrix_sum / n_rows**2
    elif kind == "trace":
        level = size = diagonal_sum
    else:
        return np.ones(len(diagonal_sum))
    usable = size > NEGLIGIBLE * np.maximum(np.abs(level), 1e-300)
    return np.where(usable, 1.0 / np.where(usable, size, 1.0), 0.0)


def spherical_gate(kernel: Kernel, X: Any) -> np.ndarray:
    """(n,) gate 1 / sqrt(k(x, x)); 0 where k(x, x) is not positive, so that such an example contributes nothing."""
    return gate_of_diagonal(kernel.diag(X))


def gate_of_diagonal(diagonal: np.ndarray) -> np.ndarray:
    positive = diagonal > 0
    return np.where(positive, 1.0 / np.sqrt(np.where(positive, diagonal, 1.0)), 0.0)
