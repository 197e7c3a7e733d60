"""The kernels with a formula."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb
from numbers import Real
from typing import Any

import numpy as np

from ..data.views import view_key
from .base import Kernel

# Pickles of earlier versions look for these here.
from .given import Absence as Absence
from .given import Custom as Custom
from .given import Precomputed as Precomputed
from .pairs.statistics import Chi2Distance, InnerProduct, Intersection, L1Distance, SquaredDistance


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
