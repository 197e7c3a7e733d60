"""A bank of kernels for people who have no opinion yet, and a look at whether columns are on comparable scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.views import is_sparse
from .base import Kernel
from .formulas import RBF, Linear
from .pairs.statistics import InnerProduct, L1Distance, SquaredDistance, Statistic

# Widths as multiples of the median squared distance, and the rows that are enough to estimate it.
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
SAMPLE = 400
# Columns whose ranges differ by more than this are not on one scale.
ORDERS_OF_MAGNITUDE = 100.0
# This part of the columns may be narrower all the same: the corners of an image hardly ever light up.
NARROW_PART = 0.1
# Statistics in which a column counts as much as it is wide.
SCALE_DEPENDENT = (SquaredDistance, InnerProduct, L1Distance)


def widths_around(array: Any, statistic: Statistic | None = None) -> list[float]:
    """Values of gamma for exp(-gamma * distance), 1 / (w * median distance) for w = 1/16 ... 16.

    array : (n, d) rows, dense or sparse. statistic : a distance over the view None; the squared one when None.
    """
    statistic = SquaredDistance() if statistic is None else statistic
    rows = np.unique(np.linspace(0, array.shape[0] - 1, min(array.shape[0], SAMPLE)).astype(int))
    prepared = statistic.prepare({None: array[rows]})
    distances = statistic.pairs(prepared, prepared)
    positive = distances[distances > 1e-12 * max(distances.max(initial=0.0), 1e-300)]
    median = float(np.median(positive)) if len(positive) else 1.0
    return [1.0 / (width * median) for width in WIDTHS]


def default_bank(array: Any) -> list[Kernel]:
    """Gaussian kernels around the median distance of the rows (n, d), and the linear kernel."""
    return [*(RBF(gamma=gamma) for gamma in widths_around(array)), Linear()]


def scales_apart(array: Any) -> tuple[int, int, float] | None:
    """(widest column, narrow column, ratio of their ranges) when the columns of (n, d) differ by orders of magnitude, else None.

    Constant columns do not count, sparse matrices are not looked at (their columns are counts or indicators), and a tenth
    of the columns may be narrower.
    """
    if is_sparse(array) or getattr(array, "ndim", 0) != 2 or array.dtype.kind != "f" or array.shape[1] < 2 or not len(array):
        return None
    ranges = array.max(axis=0).astype(np.float64) - array.min(axis=0)
    varying = np.flatnonzero(ranges > 0)
    if len(varying) < 2:
        return None
    order = varying[np.argsort(ranges[varying], kind="stable")]
    narrow, wide = order[int(NARROW_PART * (len(order) - 1))], order[-1]
    ratio = ranges[wide] / ranges[narrow]
    return (int(wide), int(narrow), float(ratio)) if ratio >= ORDERS_OF_MAGNITUDE else None
