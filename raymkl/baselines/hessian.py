"""HessianMKL: Newton steps in the weights."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .base import Baseline
from .svm import Certificate, Point, WeightedSVM, cleaned

# Dual variables nearer to their bounds than this part of C do not move with the weights.
AT_BOUND = 1e-6
# Added to the diagonals of the systems, relative to their mean diagonal: matrices of much the same kernels
# are nearly singular.
RIDGE = 1e-8
# Armijo's rule, and how often a step is halved.
DECREASE = 1e-4
HALVINGS = 12


class HessianMKL(Baseline):
    """Multiple kernel learning with p = 1 by Newton steps in the weights: a baseline to compare with.

        min_d  J(d),    d >= 0,  sum_m d_m = 1
        J(d)  the optimum of an SVM over  sum_m d_m K_m

    is solved by steps to the minimiser of the quadratic model of J on the simplex (a small quadratic program,
    for which OSQP is set up once and started from its last solution), halved until J decreases enough. With
    the free dual variables F (0 < |a_i| < C) that move with the weights and g_m = (K_m a)_F,

        dJ/dd_m = -1/2 a' K_m a,      d2J/dd_m dd_k = g_m' P g_k
        P  the upper left block of the inverse of  [K_FF 1; 1' 0]

    Problem, parameters, attributes, memory and the SVM (LIBSVM, without a starting point) are those of
    `SimpleMKL`.

    Parameters
    ----------
    kernels, C, tol, max_iter : object
        As for `SimpleMKL`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels.
    kernel_weights_ : ndarray of shape (M,)
        Weights d of the kernels; they sum to one.
    support_ : ndarray of shape (n_support,)
        Training rows with a dual variable other than zero.
    dual_coef_ : ndarray of shape (1, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,)
        b.
    primal_objective_, dual_objective_, duality_gap_ : float
        As for `SimpleMKL`.
    n_svm_, n_iter_ : int
        SVMs that were trained, and Newton steps.
    converged_ : bool
        Whether the gap is at most `tol`.
    kernels_ : list of Kernel
        The kernels that were learned over.
    expansion_ : Expansion
        The sum over support vectors that predictions are made of.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has any.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from raymkl import baselines, kernels
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(0)) / X.std(0)
    >>> clf = baselines.HessianMKL(kernels.rbf([0.001, 0.01, 0.1, 1.0])).fit(X, y)
    >>> bool(clf.duality_gap_ <= 1e-3)
    True

    References
    ----------
    Chapelle, Rakotomamonjy: Second order optimization of kernel parameters. NIPS workshop on kernel learning,
    2008.
    """

    def _steps(self, svm: WeightedSVM) -> Generator[Point | None, tuple[Point, Certificate], None]:
        program, (point, certificate) = SimplexProgram(len(svm.matrices)), (yield None)
        while True:
            gradient = -0.5 * certificate.terms
            target = cleaned(
                program.solve(hessian(svm, point, certificate.products), gradient, point.weights)
            )
            point, certificate = yield _halved(svm, point, gradient, target)


def hessian(svm: WeightedSVM, point: Point, products: np.ndarray) -> np.ndarray:
    """(M, M) second derivatives of J at a solved SVM. products : (M, n) K_m a."""
    size = np.abs(point.a)
    free = np.flatnonzero((size > AT_BOUND * svm.C) & (size < (1.0 - AT_BOUND) * svm.C))
    if len(free) < 2:
        return np.zeros((len(products), len(products)))
    right = np.column_stack([products[:, free].T, np.ones(len(free))])
    solved = _solved(point.matrix[np.ix_(free, free)], right)
    # The sum of the dual variables stays what it is.
    moved = solved[:, :-1] - np.outer(solved[:, -1], solved[:, :-1].sum(axis=0)) / solved[:, -1].sum()
    second = right[:, :-1].T @ moved
    return (second + second.T) / 2.0


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right for a symmetric matrix that may be singular, and by round-off in what was handed over a
    little indefinite.
    """
    ridge, size = RIDGE, np.trace(matrix) / len(matrix)
    while True:
        try:
            factor = cho_factor(
                matrix + ridge * size * np.eye(len(matrix)), lower=True, overwrite_a=True, check_finite=False
            )
        except LinAlgError:
            if ridge > 1.0:
                raise
            ridge *= 100.0
        else:
            return cho_solve(factor, right, check_finite=False)


class SimplexProgram:
    """min_z  1/2 (z - d)' H (z - d) + g' (z - d),   z >= 0,  sum_m z_m = 1,   by OSQP: set up at the first
    call, then only updated.
    """

    def __init__(self, M: int):
        self.M = M
        self._solver: Any = None
        self._column, self._row = np.tril_indices(M)  # of the upper triangle, column by column

    def solve(self, H: np.ndarray, g: np.ndarray, d: np.ndarray) -> np.ndarray:
        """(M,) weights; on the simplex up to OSQP's precision. H : (M, M). g, d : (M,)."""
        unit = max(float(np.abs(g).max()), 1e-300)
        H = (H + RIDGE * (np.trace(H) / self.M + unit) * np.eye(self.M)) / unit
        q = g / unit - H @ d
        values = H[self._row, self._column]
        if self._solver is None:
            import osqp

            columns = np.concatenate([[0], np.cumsum(np.arange(1, self.M + 1))])
            P = sp.csc_matrix((values, self._row, columns), shape=(self.M, self.M))
            A = sp.vstack([np.ones((1, self.M)), sp.eye(self.M)], format="csc")
            low, high = np.r_[1.0, np.zeros(self.M)], np.r_[1.0, np.full(self.M, np.inf)]
            self._solver = osqp.OSQP()
            self._solver.setup(
                P, q, A, low, high, verbose=False, eps_abs=1e-7, eps_rel=1e-7, max_iter=20_000, polishing=True
            )
        else:
            self._solver.update(Px=values, q=q)
        found = self._solver.solve(raise_error=False).x
        return found if found is not None and np.isfinite(found).all() else d - g


def _halved(svm: WeightedSVM, point: Point, gradient: np.ndarray, target: np.ndarray) -> Point | None:
    """The first of the points on the way to the target, at 1, 1/2, 1/4, ...

    of it, at which J has decreased enough.
    """
    direction = target - point.weights
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    change = svm.combined(direction)
    step = 1.0
    for _ in range(HALVINGS):
        weights = cleaned(point.weights + step * direction)
        found = svm.solve(weights, point.matrix + step * change)
        if found.value <= point.value + DECREASE * step * slope:
            return found
        step /= 2.0
    return None
