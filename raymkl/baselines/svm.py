"""The support vector machine over a weighted sum of kernel matrices, its value as a function of the weights,
and the certificate.

    J(d) = max_a  sum_i y_i a_i - 1/2 sum_m d_m a' K_m a,     0 <= y_i a_i <= C,  sum_i a_i = 0,       d >= 0,
    sum_m d_m = 1

The least J over the weights d is the optimum of  1/2 ||w||_{2,1}^2 + C sum_i max(0, 1 - y_i f(x_i)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# LIBSVM's own tolerance (of the optimality conditions): where it starts and where it ends. It works with
# float32 copies of the matrix.
COARSEST = 1e-3
FINEST = 1e-8
# Part of the relative gap that may come from the SVM; beyond, it is solved more precisely.
SVM_SHARE = 0.1
# Sums of matrices are made in blocks of so many bytes, which stay in the processor's cache.
BLOCK_BYTES = 2**18
# Weights below this are zero.
NEGLIGIBLE = 1e-8


@dataclass(frozen=True)
class Point:
    """A solved SVM: weights d (M,), their matrix (n, n), signed dual variables a (n,), and the value J that
    they reach.
    """

    weights: np.ndarray
    matrix: np.ndarray
    a: np.ndarray
    value: float


@dataclass(frozen=True)
class Certificate:
    """Primal and dual objective of p = 1 at a point, their relative gap, the intercept, and the part of the
    gap that is the SVM's.

    products : (M, n) K_m a. terms : (M,) a' K_m a.
    """

    primal: float
    dual: float
    gap: float
    intercept: float
    svm_gap: float
    products: np.ndarray
    terms: np.ndarray


class WeightedSVM:
    """J(d) for a stack of matrices. Every call of `solve` is one SVM from scratch: LIBSVM takes no starting
    point.

    matrices : (M, n, n) float64. y : (n,) of -1 and +1. tol : the relative gap that is wanted in the end.
    Attributes: n_solved, SVMs so far; precision, the tolerance that LIBSVM is given.
    """

    def __init__(self, matrices: np.ndarray, y: np.ndarray, C: float, tol: float):
        self.matrices, self.y, self.C, self.tol = matrices, y, float(C), tol
        self.n_solved = 0
        self.precision = max(min(COARSEST, tol), FINEST)

    def combined(self, weights: np.ndarray) -> np.ndarray:
        """(n, n) sum_m weights_m K_m."""
        total = np.zeros(self.matrices.shape[1:])
        used, step = np.flatnonzero(weights), max(1, BLOCK_BYTES // total[0].nbytes)
        part = np.empty_like(total[:step])
        for start in range(0, len(total), step):
            block = total[start : start + step]
            for m in used:
                block += np.multiply(
                    self.matrices[m, start : start + step], weights[m], out=part[: len(block)]
                )
        return total

    def solve(self, weights: np.ndarray, matrix: np.ndarray | None = None) -> Point:
        """The SVM at weights (M,). matrix : `combined(weights)`, when it is known."""
        from sklearn.svm import SVC

        matrix = self.combined(weights) if matrix is None else matrix
        # All rows that LIBSVM visits stay in its cache.
        cache = matrix.size * 4 / 2**20 + 10
        svm = SVC(kernel="precomputed", C=self.C, tol=self.precision, cache_size=cache).fit(matrix, self.y)
        self.n_solved += 1
        a = np.zeros(len(self.y))
        a[svm.support_] = svm.dual_coef_[0]
        return Point(weights, matrix, a, float(self.y @ a - 0.5 * a @ (matrix @ a)))

    def certify(self, point: Point) -> Certificate:
        """Both objectives of p = 1 at a point, from the matrices in float64."""
        M, n, _ = self.matrices.shape
        products = (self.matrices.reshape(M * n, n) @ point.a).reshape(M, n)
        terms = np.maximum(products @ point.a, 0.0)
        intercept, loss = best_intercept(point.weights @ products, self.y)
        linear = float(self.y @ point.a)
        primal = 0.5 * float(point.weights @ np.sqrt(terms)) ** 2 + self.C * loss
        dual = linear - 0.5 * float(terms.max())
        svm_gap = self.C * loss + float(point.weights @ terms) - linear
        return Certificate(
            primal, dual, (primal - dual) / max(abs(primal), 1e-300), intercept, svm_gap, products, terms
        )

    def refined(self, certificate: Certificate) -> bool:
        """Whether the SVM must be solved again, and more precisely, for the gap that is wanted; its tolerance
        is then smaller.
        """
        return certificate.svm_gap > SVM_SHARE * self.tol * abs(certificate.primal) and self.sharpen()

    def sharpen(self) -> bool:
        """Lower LIBSVM's tolerance; False when it is as low as it may be."""
        if self.precision <= FINEST:
            return False
        self.precision = max(self.precision / 10.0, FINEST)
        return True


def best_intercept(f: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The b that makes sum_i max(0, 1 - y_i (f_i + b)) least, and that sum. f : (n,) without intercept.

    The sum is convex and linear between the points y_i - f_i; its slope is the number of -1 rows above the
    margin minus that of +1 rows below it, so b is the value of rank (number of +1 rows) among all of them.
    """
    points = np.sort(y - f)
    positive = int((y > 0).sum())
    # To the left of all points every +1 row has a loss and no -1 row: the slope is -positive, and every point
    # adds one.
    b = float(points[positive - 1]) if positive else float(points[0])
    other = float(points[min(positive, len(points) - 1)])
    b = 0.5 * (b + other)  # any b between the two is as good
    return b, float(np.maximum(0.0, 1.0 - y * (f + b)).sum())


def cleaned(weights: np.ndarray) -> np.ndarray:
    """Weights on the simplex, tiny and negative ones set to zero."""
    weights = np.where(weights > NEGLIGIBLE, weights, 0.0)
    return weights / weights.sum()
