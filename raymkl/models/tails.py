"""Tail sums of kernels: the trace of a kernel matrix without its largest eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.lazy_rows import fetch
from ..kernels.base import Kernel
from . import reading


def tail_sums(
    rows: dict, kernels: list[Kernel], used: np.ndarray, zeta: int = 2, engine: Any = "auto", ray_params: Any = None
) -> np.ndarray:
    """(M,) trace(K_m) minus its zeta largest eigenvalues, over the rows with used (n,) True. rows : by view key."""
    ids, found = np.flatnonzero(used), []
    for kernel in kernels:
        statistic = kernel.statistic()
        if reading.is_matrix(kernel):
            K = np.asarray(rows[statistic.view][ids][:, ids, kernel.index], np.float64)
        else:
            prepared = statistic.prepare(fetch({key: rows[key] for key in kernel.views}, ids))
            K = np.asarray(kernel.profile(statistic.pairs(prepared, prepared)), np.float64)
            np.fill_diagonal(K, kernel.profile(statistic.diagonal(prepared)))
        found.append(np.linalg.eigvalsh((K + K.T) / 2)[: len(ids) - zeta].sum())
    return np.array(found)
