"""Kernels that are given: ready-made matrices, a function of the user's, and which views rows lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import numpy as np

from ..data.store import KernelStore
from ..data.views import is_views, n_rows, select, view_key
from .base import Kernel
from .pairs.statistics import InnerProduct, KernelValue, Matrices, Prepared


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
