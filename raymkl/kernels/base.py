"""What a kernel is: a positive semi-definite function of two examples, with a view, parameters and
arithmetic.

A kernel is `profile(statistic(x, z))`: a function of one pair statistic (see `pairs.statistics`). Sums,
products and positive multiples of kernels over the same statistic stay functions of it; over different
statistics they become a kernel that is computed as it is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from ..data.strings import select_strings
from ..data.views import select, view_of, where_of
from .pairs.statistics import KernelValue, Statistic
from .parameters import Parameters


class Kernel(Parameters):
    """Base class of all kernels.

    Subclasses set parameters in `__init__` under their own names and give `statistic` and `profile`. A kernel
    can be called, `kernel(X, Z)`, and `+`, `*` and scaling by a positive number make new kernels.

    Examples
    --------
    >>> from raymkl import kernels
    >>> both = kernels.Linear() + 0.5 * kernels.RBF(0.1)
    >>> isinstance(both, kernels.Kernel), both
    (True, (Linear() + 0.5 * RBF(gamma=0.1)))
    """

    view: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Methods without words of their own have those of the base class, for `help` and the reference."""
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            if inspect.isfunction(method) and not method.__doc__ and not name.startswith("_"):
                method.__doc__ = getattr(getattr(Kernel, name, None), "__doc__", None)

    # -- what subclasses say -----------------------------------------------------------------------

    def statistic(self) -> Statistic:
        """The pair statistic that this kernel is a function of.

        Returns
        -------
        statistic : Statistic
            What is computed once for a pair of rows and shared by kernels, such as squared distances.
        """
        return KernelValue(view=None, kernel=self)

    def profile(self, t: np.ndarray) -> np.ndarray:
        """Kernel values of statistics `t` (any shape).

        Parameters
        ----------
        t : ndarray
            Values of the pair statistic.

        Returns
        -------
        values : ndarray
            Values of the kernel.
        """
        return t

    def powers(self) -> np.ndarray | None:
        """Coefficients (c_0, c_1, ...) when the profile is the polynomial sum_k c_k t^k, else None.

        Returns
        -------
        coefficients : ndarray of shape (k,), or None
            c_0, c_1, ...
        """
        return np.array([0.0, 1.0]) if isinstance(self.statistic(), KernelValue) else None

    # -- evaluation --------------------------------------------------------------------------------

    @property
    def views(self) -> tuple:
        """Keys of the views this kernel reads."""
        return self.statistic().views

    def __call__(self, X: Any, Z: Any = None) -> np.ndarray:
        """Kernel matrix (n_x, n_z) in float64; of X with itself when Z is None."""
        statistic = self.statistic()
        rows = self._rows(X)
        centers = row_centers(rows)
        a = statistic.prepare(rows, centers=centers)
        b = a if Z is None else statistic.prepare(self._rows(Z), centers=centers)
        pairs = statistic.pairs(a, b)
        if Z is None:
            # The matrix of X with itself is symmetric and its diagonal is known better than the pair formula
            # gives it.
            pairs = (pairs + pairs.T) / 2
            np.fill_diagonal(pairs, statistic.diagonal(a))
        return np.asarray(self.profile(pairs), dtype=np.float64)

    def diag(self, X: Any) -> np.ndarray:
        """k(x, x) for every row, without the matrix.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict or Views
            Rows.

        Returns
        -------
        values : ndarray of shape (n,)
            Entries k(x, x) in float64.
        """
        statistic = self.statistic()
        return np.asarray(
            self.profile(statistic.diagonal(statistic.prepare(self._rows(X)))), dtype=np.float64
        )

    def _rows(self, X: Any) -> dict:
        strings = self.string_views()
        rows = {
            key: select_strings(X, view_of(key), self) if key in strings else select(X, view_of(key))
            for key in self.views
        }
        check_non_negative({key: rows[key] for key in self.histogram_views()}, self)
        self.check_rows(rows)
        return rows

    def string_views(self) -> tuple:
        """Keys of the views that hold strings.

        Returns
        -------
        keys : tuple
            The keys; empty for kernels over numbers.
        """
        return self.views if self.statistic().reads_strings else ()

    def check_rows(self, rows: Mapping) -> None:
        """Raise ValueError for rows (by view key) that this kernel cannot compare.

        Parameters
        ----------
        rows : mapping
            Arrays of rows by the key of their view.
        """
        statistic = self.statistic()
        if not isinstance(statistic, KernelValue):
            statistic.check_rows(rows)

    def histogram_views(self) -> tuple:
        """Keys of the views that must not have negative entries.

        Returns
        -------
        keys : tuple
            The keys; empty for kernels that take any number.
        """
        return self.views if self.statistic().needs_non_negative_input else ()

    # -- arithmetic --------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __radd__(self, other: Any) -> Kernel:
        return self if other == 0 else NotImplemented  # so that sum([...]) works

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, float(other)) if isinstance(other, Real) else NotImplemented

    __rmul__ = __mul__

    # -- as a statistic of its own (see KernelValue) -----------------------------------------------

    def prepare_value(self, rows: Mapping, dtype: Any) -> Any:
        """Rows made ready for `pair_values`, where the kernel is a pair statistic of its own.

        Parameters
        ----------
        rows : mapping
            Arrays of rows by the key of their view.
        dtype : dtype
            Of numbers.

        Returns
        -------
        prepared : object
            With `len` and `take`.
        """
        return self.statistic().prepare(rows, dtype)

    def pair_values(self, a: Any, b: Any) -> np.ndarray:
        """Kernel values of prepared rows.

        Parameters
        ----------
        a, b : object
            What `prepare_value` returned.

        Returns
        -------
        values : ndarray of shape (n_a, n_b)
            In float64.
        """
        return self.profile(self.statistic().pairs(a, b))

    def diagonal_values(self, a: Any) -> np.ndarray:
        """Entries k(x, x) of prepared rows.

        Parameters
        ----------
        a : object
            What `prepare_value` returned.

        Returns
        -------
        values : ndarray of shape (n_a,)
            In float64.
        """
        return np.asarray(self.profile(self.statistic().diagonal(a)), np.float64)


def row_centers(rows: Mapping) -> dict:
    """Means of the dense vector views: a shift of both sides that leaves distances alone and takes round-off
    away.
    """
    return {
        key: array.mean(axis=0)
        for key, array in rows.items()
        if isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "fiu" and len(array)
    }


def check_non_negative(rows: Mapping, kernel: Any) -> None:
    """Raise ValueError when a view of a histogram kernel has negative entries."""
    for key, array in rows.items():
        smallest = array.min() if array.shape[0] and array.shape[1] else 0
        if smallest < 0:
            where = where_of(key)
            raise ValueError(
                f"{kernel!r} needs non-negative features, but {where} has an entry {smallest:.6g}"
            )


class PreparedPair:
    """Prepared rows of the two parts of a composite kernel."""

    def __init__(self, left: Any, right: Any):
        self.left, self.right = left, right

    def __len__(self) -> int:
        return len(self.left)

    def take(self, index: Any) -> PreparedPair:
        return PreparedPair(self.left.take(index), self.right.take(index))


class _Composite(Kernel):
    """Two kernels combined entry by entry; a function of their statistic when they share one."""

    symbol = ""

    def __init__(self, left: Kernel, right: Kernel):
        self.left = left
        self.right = right
        self._check()

    def _check(self):
        for part in (self.left, self.right):
            if not isinstance(part, Kernel):
                raise TypeError(
                    f"a {type(self).__name__.lower()} of kernels takes kernels, got {type(part).__name__}"
                )
            if not part.statistic().cacheable:
                raise TypeError(
                    f"{part!r} cannot be part of a sum or product; combine the matrices themselves"
                )

    def _shared(self) -> Statistic | None:
        left, right = self.left.statistic(), self.right.statistic()
        return left if left == right else None

    def statistic(self):
        return self._shared() or KernelValue(view=None, kernel=self)

    def profile(self, t):
        return t if self._shared() is None else self.combine(self.left.profile(t), self.right.profile(t))

    @property
    def views(self):
        return tuple(dict.fromkeys(self.left.views + self.right.views))

    def prepare_value(self, rows, dtype):
        return PreparedPair(self.left.prepare_value(rows, dtype), self.right.prepare_value(rows, dtype))

    def pair_values(self, a, b):
        return self.combine(self.left.pair_values(a.left, b.left), self.right.pair_values(a.right, b.right))

    def diagonal_values(self, a):
        return self.combine(self.left.diagonal_values(a.left), self.right.diagonal_values(a.right))

    def histogram_views(self):
        return (*self.left.histogram_views(), *self.right.histogram_views())

    def string_views(self):
        return (*self.left.string_views(), *self.right.string_views())

    def check_rows(self, rows):
        self.left.check_rows(rows)
        self.right.check_rows(rows)

    def __repr__(self):
        return f"({self.left!r} {self.symbol} {self.right!r})"


class Sum(_Composite):
    """Sum of two kernels: k(x, z) = left(x, z) + right(x, z).

    Parameters
    ----------
    left, right : Kernel
        The two; `left + right` writes the same.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Sum(kernels.Linear(), kernels.RBF(0.1))
    (Linear() + RBF(gamma=0.1))
    """

    symbol = "+"
    combine = staticmethod(np.add)

    def powers(self):
        left, right = (self.left.powers(), self.right.powers()) if self._shared() else (None, None)
        if left is None or right is None:
            return super().powers()
        total = np.zeros(max(len(left), len(right)))
        total[: len(left)] += left
        total[: len(right)] += right
        return total


class Product(_Composite):
    """Product of two kernels: k(x, z) = left(x, z) * right(x, z).

    Parameters
    ----------
    left, right : Kernel
        The two; `left * right` writes the same. They may look at different views.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Product(kernels.Linear(), kernels.RBF(0.1))
    (Linear() * RBF(gamma=0.1))
    """

    symbol = "*"
    combine = staticmethod(np.multiply)

    def powers(self):
        left, right = (self.left.powers(), self.right.powers()) if self._shared() else (None, None)
        return super().powers() if left is None or right is None else np.convolve(left, right)


class Scaled(Kernel):
    """A kernel times a number: k(x, z) = scale * kernel(x, z).

    Parameters
    ----------
    kernel : Kernel
        Any but a ready-made matrix.
    scale : float
        Number > 0; `scale * kernel` writes the same.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Scaled(kernels.Linear(), 2.0)
    2 * Linear()
    """

    def __init__(self, kernel: Kernel, scale: float):
        self.kernel = kernel
        self.scale = scale
        self._check()

    def _check(self):
        if not isinstance(self.kernel, Kernel):
            raise TypeError(f"only a kernel can be scaled, got {type(self.kernel).__name__}")
        if not self.kernel.statistic().cacheable:
            raise TypeError(f"{self.kernel!r} cannot be scaled; scale the matrix itself")
        if not (isinstance(self.scale, Real) and np.isfinite(self.scale) and self.scale > 0):
            raise ValueError(
                f"a kernel may only be scaled by a positive finite number (scale), got {self.scale!r}"
            )

    def histogram_views(self):
        return self.kernel.histogram_views()

    def string_views(self):
        return self.kernel.string_views()

    def check_rows(self, rows):
        self.kernel.check_rows(rows)

    def statistic(self):
        return self.kernel.statistic()

    def profile(self, t):
        return self.scale * self.kernel.profile(t)

    def powers(self):
        inner = self.kernel.powers()
        return None if inner is None else self.scale * inner

    @property
    def views(self):
        return self.kernel.views

    def prepare_value(self, rows, dtype):
        return self.kernel.prepare_value(rows, dtype)

    def pair_values(self, a, b):
        return self.scale * self.kernel.pair_values(a, b)

    def diagonal_values(self, a):
        return self.scale * self.kernel.diagonal_values(a)

    def __repr__(self):
        return f"{self.scale:.6g} * {self.kernel!r}"
