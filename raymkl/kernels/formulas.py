"""The kernels with a formula, and those that a user brings: matrices and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import comb
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..data.store import KernelStore
from ..data.views import is_views, n_rows, select, view_key
from .base import Kernel
from .pairs.statistics import Chi2Distance, InnerProduct, Intersection, KernelValue, L1Distance, Matrices, Prepared, SquaredDistance


def _require_positive(kernel: Kernel, name: str) -> None:
    value = getattr(kernel, name)
    if not (isinstance(value, Real) and 0 < value < np.inf):  # type: ignore[operator]
        raise ValueError(f"{type(kernel).__name__}: {name} must be a positive finite number, got {value!r}")


class Linear(Kernel):
    """k(x, z) = x'z."""

    def __init__(self, view: Any = None):
        self.view = view

    def statistic(self):
        return InnerProduct(view_key(self.view))

    def powers(self):
        return np.array([0.0, 1.0])


class Polynomial(Kernel):
    """k(x, z) = (gamma * x'z + coef0) ** degree, with integer degree >= 1 and coef0 >= 0."""

    def __init__(self, degree: int = 3, gamma: float = 1.0, coef0: float = 0.0, view: Any = None):
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.view = view
        self._check()

    def _check(self):
        _require_positive(self, "gamma")
        if not (isinstance(self.degree, Real) and np.isfinite(self.degree) and int(self.degree) == self.degree and self.degree >= 1):
            raise ValueError(f"Polynomial: degree must be an integer >= 1, got {self.degree!r}")
        if not (isinstance(self.coef0, Real) and np.isfinite(self.coef0) and self.coef0 >= 0):
            raise ValueError(f"Polynomial: coef0 must be >= 0 (else the kernel is not positive definite), got {self.coef0!r}")

    def statistic(self):
        return InnerProduct(view_key(self.view))

    def profile(self, t):
        return (self.gamma * t + self.coef0) ** int(self.degree)

    def powers(self):
        degree = int(self.degree)
        return np.array([comb(degree, k) * self.gamma**k * self.coef0 ** (degree - k) for k in range(degree + 1)], dtype=float)


class _Exponential(Kernel):
    """k(x, z) = exp(-gamma * distance(x, z))."""

    def __init__(self, gamma: float = 1.0, view: Any = None):
        self.gamma = gamma
        self.view = view
        self._check()

    def _check(self):
        _require_positive(self, "gamma")

    def profile(self, t):
        return np.exp(-self.gamma * t)

    def powers(self):
        return None


class RBF(_Exponential):
    """k(x, z) = exp(-gamma * ||x - z||^2)."""

    def statistic(self):
        return SquaredDistance(view_key(self.view))


class Laplacian(_Exponential):
    """k(x, z) = exp(-gamma * sum_d |x_d - z_d|)."""

    def statistic(self):
        return L1Distance(view_key(self.view))


class Chi2(_Exponential):
    """k(x, z) = exp(-gamma * sum_d (x_d - z_d)^2 / (x_d + z_d)) for histograms (non-negative features)."""

    def statistic(self):
        return Chi2Distance(view_key(self.view))


class HistogramIntersection(Kernel):
    """k(x, z) = sum_d min(x_d, z_d) for histograms (non-negative features)."""

    def __init__(self, view: Any = None):
        self.view = view

    def statistic(self):
        return Intersection(view_key(self.view))

    def powers(self):
        return np.array([0.0, 1.0])


class Precomputed(Kernel):
    """A ready-made kernel matrix: the view holds (rows, columns) or a stack (rows, columns, M), `index` picks one of M.

    The view may also be the path of a kernel store (see `write_store`), which is then read from disk while training; to predict, the
    dict of views holds a block under that path. Columns stand for training rows: all of them or, when predicting, only those of
    `support_`.
    """

    def __init__(self, view: Any = None, index: int = 0):
        self.view = view
        self.index = index
        self._check()

    def _check(self):
        if not (isinstance(self.index, Integral) and self.index >= 0):
            raise ValueError(f"Precomputed: index must be a whole number >= 0, got {self.index!r}")

    def statistic(self):
        return Matrices(view_key(self.view))

    def __call__(self, X, Z=None):
        if Z is not None:
            raise TypeError("a precomputed kernel has no formula: pass the (rows, columns, M) block itself, without Z")
        stack = np.asarray(self._rows(X)[view_key(self.view)], dtype=np.float64)
        return stack[..., self.index] if stack.ndim == 3 else stack

    def diag(self, X):
        matrix = self(X)
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the diagonal needs a square matrix, got shape {matrix.shape}")
        return np.diagonal(matrix).copy()


class Custom(Kernel):
    """k(x, z) = function(A, B)[i, j] for blocks of rows A (n_a, ...) and B (n_b, ...).

    Parameters
    ----------
    function : callable returning an (n_a, n_b) array; it must be positive semi-definite and must not depend on the block.
    diag_function : callable, optional, A -> (n_a,) of k(x, x); without it the diagonal is evaluated row by row.
    """

    def __init__(self, function: Callable, view: Any = None, diag_function: Callable | None = None):
        self.function = function
        self.view = view
        self.diag_function = diag_function
        self._check()

    def _check(self):
        for name, value in (("function", self.function), ("diag_function", self.diag_function)):
            if not callable(value) and not (name == "diag_function" and value is None):
                raise TypeError(f"Custom: {name} must be callable, got {type(value).__name__}")

    @property
    def views(self):
        return (view_key(self.view),)

    def statistic(self):
        return KernelValue(view=None, kernel=self)

    def prepare_value(self, rows, dtype):
        array = rows[view_key(self.view)]
        # Numbers come as float64: a function that the user wrote should not meet the engine's float32.
        return Prepared(np.asarray(array, np.float64) if getattr(array, "dtype", None) == np.float32 else array)

    def pair_values(self, a, b):
        values = np.asarray(self.function(a.array, b.array), dtype=np.float64)
        if values.shape != (len(a), len(b)):
            raise ValueError(f"{self!r} returned shape {values.shape} for blocks of {len(a)} and {len(b)} rows")
        if not np.isfinite(values).all():
            raise ValueError(f"{self!r} returned NaN or infinity")
        return values

    def diagonal_values(self, a):
        if self.diag_function is not None:
            values = np.asarray(self.diag_function(a.array), dtype=np.float64)
            if values.shape != (len(a),) or not np.isfinite(values).all():
                raise ValueError(f"diag_function of {self!r} returned shape {values.shape} or NaN for {len(a)} rows")
            return values
        return np.array([self.pair_values(a.take(slice(i, i + 1)), a.take(slice(i, i + 1)))[0, 0] for i in range(len(a))])

    def _rows(self, X):
        return {view_key(self.view): select(X, self.view)}

    def _identity(self):
        return ("Custom", self.function, view_key(self.view), self.diag_function)

    def __repr__(self):
        name = getattr(self.function, "__name__", repr(self.function))
        return f"Custom({name})" if self.view is None else f"Custom({name}, view={self.view!r})"


class Absence(Kernel):
    """k(x, z) = a(x)'a(z), the number of views that x and z both lack: a_v(x) = 1 where x lacks view v, else 0.

    The last kernel of a model with missing="neutral", which learns by it what it means that a view is absent. Rows of anything but a
    `Views` lack none.

    Parameters
    ----------
    of : (V,) names of the views.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import Views, kernels
    >>> V = Views({"image": np.ones((3, 2)), "text": ["a", None, "b"]}, present="infer")
    >>> kernels.Absence(of=("image", "text"))(V).tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(self, of: Iterable[str]):
        self.of = of
        self._check()

    def _check(self):
        if isinstance(self.of, str) or not list(self.of):
            raise ValueError(f"Absence: of must be a list of the names of views, got {self.of!r}")

    def statistic(self):
        return InnerProduct(("absence", *map(view_key, self.of)))

    def powers(self):
        return np.array([0.0, 1.0])

    def indicators(self, X: Any) -> np.ndarray:
        """(n, V) a(x) of a container."""
        if not is_views(X):
            return np.zeros((n_rows(X), len(list(self.of))))
        return np.stack([~X.has(name) for name in self.of], axis=1).astype(np.float64)

    def _rows(self, X):
        return {self.statistic().view: self.indicators(X)}


def stored(path: Any) -> list[Precomputed]:
    """All kernels of a kernel store (see `write_store`)."""
    return [Precomputed(view=str(path), index=m) for m in range(KernelStore(path).shape[2])]


def rbf(gammas: Iterable[float], view: Any = None) -> list[RBF]:
    """A bank of Gaussian kernels, one per gamma."""
    return [RBF(gamma=float(gamma), view=view) for gamma in gammas]
