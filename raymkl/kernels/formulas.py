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
from .pairs.statistics import (
    Chi2Distance,
    InnerProduct,
    Intersection,
    KernelValue,
    L1Distance,
    Matrices,
    Prepared,
    SquaredDistance,
)


def _require_positive(kernel: Kernel, name: str) -> None:
    value = getattr(kernel, name)
    if not (isinstance(value, Real) and 0 < value < np.inf):  # type: ignore[operator]
        raise ValueError(f"{type(kernel).__name__}: {name} must be a positive finite number, got {value!r}")


class Linear(Kernel):
    """Linear kernel, the inner product: k(x, z) = x'z.

    Parameters
    ----------
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Linear()([[1.0, 2.0], [0.0, 3.0]])
    array([[5., 6.],
           [6., 9.]])
    """

    def __init__(self, view: Any = None):
        self.view = view

    def statistic(self):
        return InnerProduct(view_key(self.view))

    def powers(self):
        return np.array([0.0, 1.0])


class Polynomial(Kernel):
    """Polynomial kernel: k(x, z) = (gamma * x'z + coef0) ** degree.

    Parameters
    ----------
    degree : int
        Whole number >= 1.
    gamma : float
        Factor of the inner product, > 0.
    coef0 : float
        What is added to it, >= 0: larger values give lower powers more weight.
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Polynomial(degree=2, coef0=1.0)([[1.0], [2.0]])
    array([[ 4.,  9.],
           [ 9., 25.]])
    """

    def __init__(self, degree: int = 3, gamma: float = 1.0, coef0: float = 0.0, view: Any = None):
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.view = view
        self._check()

    def _check(self):
        _require_positive(self, "gamma")
        if not (
            isinstance(self.degree, Real)
            and np.isfinite(self.degree)
            and int(self.degree) == self.degree
            and self.degree >= 1
        ):
            raise ValueError(f"Polynomial: degree must be an integer >= 1, got {self.degree!r}")
        if not (isinstance(self.coef0, Real) and np.isfinite(self.coef0) and self.coef0 >= 0):
            raise ValueError(
                "Polynomial: coef0 must be >= 0 (else the kernel is not positive definite), got "
                f"{self.coef0!r}"
            )

    def statistic(self):
        return InnerProduct(view_key(self.view))

    def profile(self, t):
        return (self.gamma * t + self.coef0) ** int(self.degree)

    def powers(self):
        degree = int(self.degree)
        return np.array(
            [comb(degree, k) * self.gamma**k * self.coef0 ** (degree - k) for k in range(degree + 1)],
            dtype=float,
        )


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
    """Gaussian kernel: k(x, z) = exp(-gamma * ||x - z||^2).

    A bandwidth (standard deviation) sigma is gamma = 1 / (2 sigma^2).

    Parameters
    ----------
    gamma : float
        How quickly the kernel falls with the squared distance, > 0.
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X.

    See Also
    --------
    rbf : Several of them at once.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.RBF(0.5)([[0.0], [1.0]]).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """

    def statistic(self):
        return SquaredDistance(view_key(self.view))


class Laplacian(_Exponential):
    """Laplacian kernel: k(x, z) = exp(-gamma * sum_d |x_d - z_d|).

    Parameters
    ----------
    gamma : float
        How quickly the kernel falls with the l1 distance, > 0.
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Laplacian(0.5)([[0.0], [2.0]]).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """

    def statistic(self):
        return L1Distance(view_key(self.view))


class Chi2(_Exponential):
    """Chi-squared kernel of histograms: k(x, z) = exp(-gamma * sum_d (x_d - z_d)^2 / (x_d + z_d)).

    Parameters
    ----------
    gamma : float
        How quickly the kernel falls with the chi-squared distance, > 0.
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X. Entries must not be negative.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Chi2(1.0)([[0.5, 0.5], [1.0, 0.0]]).round(3)
    array([[1.   , 0.513],
           [0.513, 1.   ]])
    """

    def statistic(self):
        return Chi2Distance(view_key(self.view))


class HistogramIntersection(Kernel):
    """What two histograms share: k(x, z) = sum_d min(x_d, z_d).

    Parameters
    ----------
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X. Entries must not be negative.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.HistogramIntersection()([[0.5, 0.5], [1.0, 0.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    def __init__(self, view: Any = None):
        self.view = view

    def statistic(self):
        return Intersection(view_key(self.view))

    def powers(self):
        return np.array([0.0, 1.0])


class Precomputed(Kernel):
    """A ready-made kernel matrix.

    The view holds (rows, columns) or a stack (rows, columns, M), of which `index` picks one of M.

    The view may also be the path of a kernel store (see `write_store`), which is then read from disk while
    training; to predict, the dict of views holds a block under that path. Columns stand for training rows:
    all of them or, when predicting, only those of `support_`.

    Parameters
    ----------
    view : str or None
        Key of the matrix in a dict of views, or path of a kernel store; None where X is the matrix.
    index : int
        Which matrix of a stack, from 0 on.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import kernels
    >>> stack = np.stack([np.eye(2), np.ones((2, 2))], axis=2)
    >>> kernels.Precomputed(index=1)(stack)
    array([[1., 1.],
           [1., 1.]])
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
            raise TypeError(
                "a precomputed kernel has no formula: pass the (rows, columns, M) block itself, without Z"
            )
        stack = np.asarray(self._rows(X)[view_key(self.view)], dtype=np.float64)
        return stack[..., self.index] if stack.ndim == 3 else stack

    def diag(self, X):
        """Diagonal of the matrix.

        Parameters
        ----------
        X : ndarray of shape (n, n) or (n, n, M), or dict
            The ready-made matrix.

        Returns
        -------
        values : ndarray of shape (n,)
            Entries k(x, x).
        """
        matrix = self(X)
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the diagonal needs a square matrix, got shape {matrix.shape}")
        return np.diagonal(matrix).copy()


class Custom(Kernel):
    """A kernel of your own: k(x, z) = function(A, B)[i, j] for blocks of rows A and B.

    Parameters
    ----------
    function : callable
        Takes A (n_a, ...) and B (n_b, ...) and returns an (n_a, n_b) array. It must be positive semi-definite
        and must not depend on the block.
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X.
    diag_function : callable or None
        A -> (n_a,) of k(x, x); without it the diagonal is evaluated row by row.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Custom(lambda A, B: (A @ B.T) ** 2)([[1.0], [2.0]])
    array([[ 1.,  4.],
           [ 4., 16.]])
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
        return Prepared(
            np.asarray(array, np.float64) if getattr(array, "dtype", None) == np.float32 else array
        )

    def pair_values(self, a, b):
        values = np.asarray(self.function(a.array, b.array), dtype=np.float64)
        if values.shape != (len(a), len(b)):
            raise ValueError(
                f"{self!r} returned shape {values.shape} for blocks of {len(a)} and {len(b)} rows"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{self!r} returned NaN or infinity")
        return values

    def diagonal_values(self, a):
        if self.diag_function is not None:
            values = np.asarray(self.diag_function(a.array), dtype=np.float64)
            if values.shape != (len(a),) or not np.isfinite(values).all():
                raise ValueError(
                    f"diag_function of {self!r} returned shape {values.shape} or NaN for {len(a)} rows"
                )
            return values
        return np.array(
            [self.pair_values(a.take(slice(i, i + 1)), a.take(slice(i, i + 1)))[0, 0] for i in range(len(a))]
        )

    def _rows(self, X):
        return {view_key(self.view): select(X, self.view)}

    def _identity(self):
        return ("Custom", self.function, view_key(self.view), self.diag_function)

    def __repr__(self):
        name = getattr(self.function, "__name__", repr(self.function))
        return f"Custom({name})" if self.view is None else f"Custom({name}, view={self.view!r})"


class Absence(Kernel):
    """k(x, z) = a(x)'a(z), the number of views that x and z both lack: a_v(x) = 1 where x lacks view v, else
    0.

    The last kernel of a model with missing="neutral", which learns by it what it means that a view is absent.
    Rows of anything but a `Views` lack none.

    Parameters
    ----------
    of : tuple of str
        Names of the V views.

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
        """Which rows lack which views, a(x).

        Parameters
        ----------
        X : Views
            Rows; those of any other container lack nothing.

        Returns
        -------
        absent : ndarray of shape (n, V)
            1 where a view is absent, else 0.
        """
        if not is_views(X):
            return np.zeros((n_rows(X), len(list(self.of))))
        return np.stack([~X.has(name) for name in self.of], axis=1).astype(np.float64)

    def _rows(self, X):
        return {self.statistic().view: self.indicators(X)}


def stored(path: Any) -> list[Precomputed]:
    """All kernels of a kernel store (see `write_store`).

    Parameters
    ----------
    path : str or path
        Directory of the store.

    Returns
    -------
    kernels : list of Precomputed
        One per kernel of the store, to use alone or among others.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from raymkl import kernels
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = kernels.write_store(f"{folder}/two.store", np.ones((3, 3, 2)), progress=False)
    ...     print(len(kernels.stored(f"{folder}/two.store")))
    2
    """
    return [Precomputed(view=str(path), index=m) for m in range(KernelStore(path).shape[2])]


def rbf(gammas: Iterable[float], view: Any = None) -> list[RBF]:
    """A bank of Gaussian kernels, one per gamma.

    Parameters
    ----------
    gammas : iterable of float
        One per kernel, > 0.
    view : str, int, list, tuple or None
        What the kernel looks at: a key of a dict, a column, several columns, (key, columns); None for all of
        X.

    Returns
    -------
    kernels : list of RBF
        In the order of the gammas.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.rbf([0.1, 1.0, 10.0])
    [RBF(gamma=0.1), RBF(), RBF(gamma=10)]
    """
    return [RBF(gamma=float(gamma), view=view) for gamma in gammas]
