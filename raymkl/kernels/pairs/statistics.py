"""Pair statistics: the one number per pair of examples that a family of kernels depends on.

| statistic          | of x and z                               | kernels that are functions of it |
|---|---|---|
| SquaredDistance    | sum_d (x_d - z_d)^2                      | RBF |
| InnerProduct       | sum_d x_d z_d                            | Linear, Polynomial |
| L1Distance         | sum_d abs(x_d - z_d)                     | Laplacian |
| Chi2Distance       | sum_d (x_d - z_d)^2 / (x_d + z_d)        | Chi2 |
| Intersection       | sum_d min(x_d, z_d)                      | HistogramIntersection |
| MatchRuns, KmerCounts | see `string_statistics`               | WeightedDegree, Spectrum |
| Matrices           | the entries of ready-made matrices       | Precomputed |
| KernelValue        | k(x, z) itself                           | Custom, products and sums of several |

A statistic is a small immutable value: equal statistics are computed once. `prepare` turns the rows of its
view into what `pairs` wants (dtype, centring, squared norms), so that this is done once per row and not once
per pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.views import is_sparse
from ..loops import vectors
from ..loops.vectors import finish_squared_distances, squared_norms, squares_in_place
from .memory import untouched

# New columns are computed in portions of this size: nothing large is held twice, and what one step makes the
# next finds in the processor's cache.
PORTION_BYTES = 16 * 2**20
# Products of dense rows are made in squares of so many rows and columns, over and over in the same memory:
# new memory costs a pass of the operating system over it, and one over a result that has left the processor's
# cache costs as much again.
SQUARE = 512


@dataclass
class Prepared:
    """Rows of one view, ready for `pairs`: `array` (n, d) dense or CSR, `extra` (n,) squared norms or
    None.
    """

    array: Any
    extra: np.ndarray | None = None

    def __len__(self) -> int:
        return self.array.shape[0]

    def take(self, index: Any) -> Prepared:
        return Prepared(self.array[index], None if self.extra is None else self.extra[index])


@dataclass(frozen=True)
class Statistic:
    """A pair statistic over one view. `non_negative` ones may be tabulated by their bits.

    depth : numbers per pair; blocks of a statistic with several have the shape (rows, depth, columns), else
    (rows, columns).
    kin : equal for statistics that one statistic of larger depth can stand for (see `joined`), None for those
    that stand alone.
    block_of_its_own : whether blocks are not arrays but objects that the statistic and its basis alone look
    into.
    """

    view: Any = None
    non_negative = True
    cacheable = True
    needs_non_negative_input = False
    reads_strings = False
    depth = 1
    kin = None
    block_of_its_own = False

    @property
    def views(self) -> tuple:
        return (self.view,)

    def prepare(self, rows: Mapping, dtype: Any = np.float64, centers: Mapping | None = None) -> Prepared:
        """Rows (dict from view key to array) -> Prepared of the given dtype."""
        return Prepared(_read_only(_as(rows[self.view], dtype, dense=True)))

    def check_rows(self, rows: Mapping) -> None:
        """Raise ValueError for rows that this statistic cannot compare."""

    def cell_dtype(self, rows: Mapping, dtype: Any) -> Any:
        """dtype in which statistics of these rows are cached, when `dtype` is what they are computed in."""
        return dtype

    def pair_bytes(self, dtype: Any) -> int:
        """Bytes per pair of a block."""
        return np.dtype(dtype).itemsize * self.depth

    def empty_block(self, rows: int, columns: int, dtype: Any) -> Any:
        """Memory for the statistics of rows with columns."""
        return untouched((rows, columns) if self.depth == 1 else (rows, self.depth, columns), dtype)

    def pairs(self, a: Prepared, b: Prepared) -> np.ndarray:
        """(len(a), len(b)) array of statistics, in the dtype of the prepared rows."""
        raise TypeError(f"{type(self).__name__} has no pairs")

    def pairs_into(self, a: Prepared, b: Prepared, out: np.ndarray) -> None:
        """The same, written to out (len(a), len(b)): fresh memory for every block would cost as much as the
        statistics.
        """
        out[:] = self.pairs(a, b)

    def as_left(self, a: Prepared) -> Prepared:
        """Rows in the form that is quickest for `pairs_into`, as its first argument; the second one then
        comes from `as_right`.

        Statistics may be negative by round-off then.
        """
        return a

    def as_right(self, b: Prepared) -> Prepared:
        return b

    def fill(self, a: Prepared, b: Prepared, cache: np.ndarray, slots: np.ndarray) -> None:
        """cache[slots[i], j] = statistic of a_i and b_j, in portions of bounded size.

        cache : (capacity, len(b)).
        """
        step = max(1, PORTION_BYTES // max(1, 8 * len(b)))
        for start in range(0, len(a), step):
            part = slice(start, start + step)
            self.fill_portion(a.take(part), b, cache, slots[part])

    def fill_portion(self, a: Prepared, b: Prepared, cache: np.ndarray, slots: np.ndarray) -> None:
        cache[slots] = self.pairs(a, b)

    def diagonal(self, a: Prepared) -> np.ndarray:
        """(len(a),) statistics of each row with itself."""
        return np.zeros(len(a))

    def largest(self, a: Prepared) -> float:
        """A number from which `bound` derives the largest statistic over all rows."""
        return 0.0

    @staticmethod
    def bound(largest: float) -> float:
        return largest


def _read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view: compiled loops meet rows out of Arrow (never writable) and others as one type."""
    view = array.view()
    view.flags.writeable = False
    return view


def _as(array: Any, dtype: Any, dense: bool = False) -> Any:
    if is_sparse(array):
        return (
            np.ascontiguousarray(array.toarray(), dtype) if dense else array.tocsr().astype(dtype, copy=False)
        )
    return np.ascontiguousarray(array, dtype)


def _squared_norms(array: Any) -> np.ndarray:
    if is_sparse(array):
        return np.asarray(array.multiply(array).sum(axis=1)).ravel().astype(np.float64)
    norms = np.empty(len(array))
    squared_norms(_read_only(array), norms)
    return norms


def _products(a: Any, b: Any) -> np.ndarray:
    if is_sparse(a) or is_sparse(b):
        product = a @ b.T
        return np.ascontiguousarray(product.toarray() if is_sparse(product) else np.asarray(product))
    return a @ b.T


class _Products(Statistic):
    """A statistic that is made of inner products."""

    def fill(self, a, b, cache, slots):
        if is_sparse(a.array) or is_sparse(b.array):
            super().fill(a, b, cache, slots)
            return
        memory = np.empty(min(SQUARE, len(a)) * min(SQUARE, len(b)), b.array.dtype)
        for row in range(0, len(a), SQUARE):
            some = slice(row, row + SQUARE)
            left = a.take(some)
            for column in range(0, len(b), SQUARE):
                right = b.take(slice(column, column + SQUARE))
                products = memory[: len(left) * len(right)].reshape(len(left), len(right))
                np.matmul(left.array, right.array.T, out=products)
                self.write(products, left, right, cache, slots[some], column)

    def fill_portion(self, a, b, cache, slots):
        self.write(_products(a.array, b.array), a, b, cache, slots, 0)

    def pairs_into(self, a, b, out):
        if is_sparse(a.array) or is_sparse(b.array):
            super().pairs_into(a, b, out)
            return
        np.matmul(a.array, b.array.T, out=out)
        self.finish(out, a, b)

    def finish(self, products: np.ndarray, a: Prepared, b: Prepared) -> None:
        """Turn inner products (len(a), len(b)) into the statistic, in place."""

    def write(
        self, products: np.ndarray, a: Prepared, b: Prepared, cache: np.ndarray, slots: np.ndarray, first: int
    ) -> None:
        """cache[slots[i], first + j] = statistic of a_i and b_j, whose inner product is products[i, j]."""
        cache[slots, first : first + len(b)] = products


@dataclass(frozen=True)
class SquaredDistance(_Products):
    """sum_d (x_d - z_d)^2, as |x|^2 + |z|^2 - 2 x'z with BLAS.

    Rows are shifted by a common centre first when one is given: distances do not change, round-off shrinks.
    """

    def prepare(self, rows, dtype=np.float64, centers=None):
        array = rows[self.view]
        center = None if centers is None else centers.get(self.view)
        if center is not None and not is_sparse(array):
            array = np.asarray(array, np.float64) - center
        array = _as(array, dtype)
        return Prepared(array, _squared_norms(array))

    def pairs(self, a, b):
        squares = _products(a.array, b.array)
        self.finish(squares, a, b)
        return squares

    def as_left(self, a):
        """(-2 x, |x|^2, 1), whose inner products with (z, 1, |z|^2) are squared distances as they come."""
        return self._wider(a, -2 * a.array, 0)

    def as_right(self, b):
        return self._wider(b, b.array, 1)

    @staticmethod
    def _wider(side: Prepared, array: Any, place: int) -> Prepared:
        if is_sparse(array):
            return side
        wider = np.ones((len(side), array.shape[1] + 2), array.dtype)
        wider[:, :-2], wider[:, array.shape[1] + place] = array, side.extra
        return Prepared(wider)

    def finish(self, products, a, b):
        if a.extra is None:
            return
        squares_in_place(products, a.extra.astype(products.dtype), b.extra.astype(products.dtype))

    def write(self, products, a, b, cache, slots, first):
        finish_squared_distances(
            products, a.extra.astype(products.dtype), b.extra.astype(products.dtype), cache, slots, first
        )

    def largest(self, a):
        return float(np.sqrt(a.extra.max())) if len(a) else 0.0

    @staticmethod
    def bound(largest):
        return (2.0 * largest) ** 2


@dataclass(frozen=True)
class InnerProduct(_Products):
    """sum_d x_d z_d."""

    non_negative = False

    def prepare(self, rows, dtype=np.float64, centers=None):
        array = _as(rows[self.view], dtype)
        return Prepared(array, _squared_norms(array))

    def pairs(self, a, b):
        return _products(a.array, b.array)

    def diagonal(self, a):
        return a.extra

    def largest(self, a):
        return float(a.extra.max()) if len(a) else 0.0


class _Compiled(Statistic):
    """A statistic without a matrix product behind it, computed by a compiled loop over features."""

    loop = ""

    def pairs(self, a, b):
        if a.array.shape[1] != b.array.shape[1]:
            raise ValueError(
                f"rows have {a.array.shape[1]} features on one side and {b.array.shape[1]} on the other"
            )
        out = np.empty((len(a), len(b)), a.array.dtype)
        getattr(vectors, self.loop)(a.array, b.array, out)
        return out

    def largest(self, a):
        return float(np.abs(a.array).sum(axis=1, dtype=np.float64).max()) if len(a) else 0.0

    @staticmethod
    def bound(largest):
        return 2.0 * largest


@dataclass(frozen=True)
class L1Distance(_Compiled):
    """sum_d |x_d - z_d|."""

    loop = "l1_distances"


@dataclass(frozen=True)
class Chi2Distance(_Compiled):
    """sum_d (x_d - z_d)^2 / (x_d + z_d) for non-negative features."""

    loop = "chi2_distances"
    needs_non_negative_input = True


@dataclass(frozen=True)
class Intersection(_Compiled):
    """sum_d min(x_d, z_d) for non-negative features."""

    loop = "intersections"
    needs_non_negative_input = True

    def diagonal(self, a):
        return a.array.sum(axis=1, dtype=np.float64)


@dataclass(frozen=True)
class Matrices(Statistic):
    """Ready-made kernel matrices: the view holds a stack (rows, columns, M); columns are named by training
    row.
    """

    cacheable = False
    non_negative = False

    def prepare(self, rows, dtype=np.float64, centers=None):
        if not isinstance(rows[self.view], np.ndarray):
            return Prepared(rows[self.view])  # rows of a kernel store, which stay on disk
        stack = rows[self.view]
        return Prepared(
            _read_only(stack if stack.dtype in (np.float32, np.float64) else stack.astype(np.float64))
        )


@dataclass(frozen=True)
class KernelValue(Statistic):
    """The value of a kernel that is not a function of one of the statistics above."""

    kernel: Any = None
    non_negative = False

    @property
    def views(self):
        return self.kernel.views

    def prepare(self, rows, dtype=np.float64, centers=None):
        return self.kernel.prepare_value(rows, dtype)

    def pairs(self, a, b):
        return np.ascontiguousarray(self.kernel.pair_values(a, b))

    def diagonal(self, a):
        return self.kernel.diagonal_values(a)

    def largest(self, a):
        return float(np.abs(self.diagonal(a)).max()) if len(a) else 0.0
