"""Tail sums of kernel matrices: what their largest eigenvalues leave of the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.rows import row_count
from ..kernels.normalize import check_zeta
from ..models.description.tails import tail_sums as tails_of
from .centred import resolve


def tail_sums(kernels: Any, X: Any = None, *, zeta: int = 2) -> np.ndarray:
    """Tail sum of every kernel: the trace of its matrix less its largest eigenvalues.

        tail_m = trace(K_m) - sum_{j <= zeta} lambda_mj = sum_{j > zeta} lambda_mj

    The quantity that local Rademacher complexities of multi-class learning depend on: `normalize="tail"`
    divides by it (Conv-MKL) and `kernel_costs="tail"` makes it the price of a kernel (SMSD-MKL). All rows
    count: up to 2,500 the eigenvalues are exact, beyond they are found by block iteration over parts of the
    matrices, within three per cent.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed", ndarray of shape (n, n, M), or estimator
        The kernels; those of a fitted model are taken as they are.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
        Examples; the stack (n, n, M) with "precomputed" kernels. May be left out for a stack, and for a
        fitted model with features, where the support vectors are used.
    zeta : int
        How many of the largest eigenvalues are left out, 0 <= zeta < n.

    Returns
    -------
    tails : ndarray of shape (M,)
        One per kernel.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import diagnostics, kernels
    >>> X, _ = load_iris(return_X_y=True)
    >>> diagnostics.tail_sums(kernels.rbf([0.01, 1.0]), X).round(2).tolist()
    [1.28, 84.77]
    """
    check_zeta(zeta)
    bank, rows, _ = resolve(kernels, X)
    n = row_count(rows)
    return tails_of(rows, bank, np.ones(n, bool), int(zeta), "local", needed=False)
