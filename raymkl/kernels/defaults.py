"""A bank of kernels for people who have no opinion yet, and looks at the scales of columns: comparable, and
not too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..data.views import is_sparse, where_of
from .base import Kernel
from .formulas import RBF, Linear
from .pairs.statistics import Chi2Distance, InnerProduct, L1Distance, SquaredDistance, Statistic

# Widths as multiples of the median squared distance, and the rows that are enough to estimate it.
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
SAMPLE = 400
# Columns whose ranges differ by more than this are not on one scale.
ORDERS_OF_MAGNITUDE = 100.0
# This part of the columns may be narrower all the same: the corners of an image hardly ever light up.
NARROW_PART = 0.1
# Statistics in which a column counts as much as it is wide.
SCALE_DEPENDENT = (SquaredDistance, InnerProduct, L1Distance)
# Statistics that are sums of squares and products.
MADE_OF_SQUARES = (SquaredDistance, InnerProduct, Chi2Distance)
# Below this, powers of inner products up to the third are in the range even of float32.
LARGE_SQUARES = 1e12


def widths_around(array: Any, statistic: Statistic | None = None) -> list[float]:
    """Values of gamma for exp(-gamma * distance), 1 / (w * median distance) for w = 1/16 ... 16.

    array : (n, d) rows, dense or sparse. statistic : a distance over the view None; the squared one when
    None.
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
    """(widest column, narrow column, ratio of their ranges) when the columns of (n, d) differ by orders of
    magnitude, else None.

    Constant columns do not count, sparse matrices are not looked at (their columns are counts or indicators),
    and a tenth of the columns may be narrower.
    """
    if (
        is_sparse(array)
        or getattr(array, "ndim", 0) != 2
        or array.dtype.kind != "f"
        or array.shape[1] < 2
        or not len(array)
    ):
        return None
    ranges = array.max(axis=0).astype(np.float64) - array.min(axis=0)
    varying = np.flatnonzero(ranges > 0)
    if len(varying) < 2:
        return None
    order = varying[np.argsort(ranges[varying], kind="stable")]
    narrow, wide = order[int(NARROW_PART * (len(order) - 1))], order[-1]
    ratio = ranges[wide] / ranges[narrow]
    return (int(wide), int(narrow), float(ratio)) if ratio >= ORDERS_OF_MAGNITUDE else None


def check_squares(rows: Mapping, kernels: Sequence[Kernel], label: Callable[[Any, int], str]) -> None:
    """Raise ValueError for numbers whose squares, or kernel values, are beyond float64.

    label : what to call a column of a view.
    """
    found = _too_large(rows, kernels)
    if found is None:
        return
    kernel, key, limit = found
    values = rows[key].tocoo() if is_sparse(rows[key]) else rows[key]
    if is_sparse(values):
        at = int(np.argmax(np.abs(values.data) >= limit))
        row, column, value = int(values.row[at]), int(values.col[at]), values.data[at]
    else:
        row, column = (int(place) for place in np.argwhere(np.abs(values) >= limit)[0])
        value = values[row, column]
    raise ValueError(
        f"{where_of(key)} contains {value:.3g} in column {label(key, column)} (row {row}), too large for "
        f"{kernel!r}: squares and products of "
        "such numbers are beyond the range of float64; scale the columns first "
        "(sklearn.preprocessing.StandardScaler)"
    )


def beyond_float32(rows: Mapping, kernels: Sequence[Kernel], asked: bool) -> bool:
    """Whether numbers are so large that float32 cannot hold their squares.

    asked : float32 was asked for, which is an error then.
    """
    found = _too_large(rows, kernels, np.float32)
    if found is not None and asked:
        kernel, key, limit = found
        raise ValueError(
            f"dtype='float32', but {where_of(key)} contains numbers of {limit:.2g} or more, too large for "
            f"{kernel!r}: their squares and "
            "products are beyond the range of float32; take dtype='auto' or 'float64', or scale the columns "
            "first"
        )
    return found is not None


def _too_large(
    rows: Mapping, kernels: Iterable[Kernel], dtype: Any = np.float64
) -> tuple[Kernel, Any, float] | None:
    """(kernel, key of its view, limit) of the first view with numbers from `limit` on that take a kernel out
    of `dtype`, or None.

    rows : by view key. One pass over the rows of each view, and nothing written.
    """
    most, sums = float(np.finfo(dtype).max), {}
    for kernel in kernels:
        for part in _parts(kernel):
            statistic = part.statistic()
            if not isinstance(statistic, MADE_OF_SQUARES):
                continue
            key = statistic.view
            if key not in sums:
                largest, width = _largest(rows[key]), max(rows[key].shape[1], 1)
                # A bound of |x|^2; |x - z|^2 is at most four times as much.
                sums[key] = width * largest * largest
                if 4.0 * sums[key] > most:
                    return part, key, min(largest, float(np.sqrt(most / (4.0 * width))))
            if sums[key] > LARGE_SQUARES and isinstance(statistic, InnerProduct):
                with np.errstate(over="ignore"):
                    if (
                        not np.abs(part.profile(np.array([sums[key]]))).max() <= most
                    ):  # powers of inner products
                        return part, key, _largest(rows[key])
    return None


def _parts(kernel: Kernel) -> Iterator[Kernel]:
    """The kernels that a sum, product or multiple is made of, or the kernel itself."""
    inner = [
        part
        for part in (getattr(kernel, name, None) for name in ("left", "right", "kernel"))
        if isinstance(part, Kernel)
    ]
    for part in inner:
        yield from _parts(part)
    if not inner:
        yield kernel


def _largest(array: Any) -> float:
    """The largest |x| of an array, a CSR matrix or a view of a source, which knows it."""
    values = array.data if is_sparse(array) else array
    if not array.shape[0] or not array.shape[1] or (is_sparse(array) and not len(values)):
        return 0.0
    return max(float(np.max(values.max())), -float(np.min(values.min())))
