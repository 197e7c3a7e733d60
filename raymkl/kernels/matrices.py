"""Matrices of a list of kernels over the same rows, in float64: what is looked at, and what solvers that keep
all of it begin with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from .base import Kernel, row_centers
from .pairs.families import group
from .pairs.statistics import Matrices


def kernel_matrices(
    bank: Sequence[Kernel], rows: Mapping, chosen: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (position, matrix (r, r)) of every kernel, symmetric; the statistic of a family is computed
    once.

    rows : by view key, all n of them; for ready-made matrices a stack (n, n, M) or the rows of a kernel
    store. chosen : (r,) row numbers.
    """
    for family in group(bank):
        statistic = family.statistic
        if isinstance(statistic, Matrices):
            stack = rows[statistic.view]
            block = (
                stack[np.ix_(chosen, chosen)]
                if isinstance(stack, np.ndarray)
                else stack.entries(chosen, chosen)
            )
            for kernel, member in zip(family.kernels, family.members, strict=True):
                yield member, np.asarray(block[:, :, kernel.index], np.float64)
            continue
        own = {key: rows[key][chosen] for key in statistic.views}
        prepared = statistic.prepare(own, centers=row_centers(own))
        pairs = statistic.pairs(prepared, prepared)
        if pairs.ndim == 2:
            pairs = (pairs + pairs.T) / 2
            np.fill_diagonal(pairs, statistic.diagonal(prepared))
        for kernel, member in zip(family.kernels, family.members, strict=True):
            yield member, np.asarray(kernel.profile(pairs), np.float64)
