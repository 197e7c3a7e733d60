"""SimpleMKL: reduced gradient descent in the weights."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from .base import Baseline
from .svm import Certificate, Point, WeightedSVM, cleaned

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
# The line search ends when its interval is this part of the longest step; it becomes finer when no step is
# found.
COARSE_SEARCH = 0.1
FINE_SEARCH = 1e-4
# Parts of a direction below this, relative to its largest, are none.
ROUND_OFF = 1e-12
# A way to the next zero is not tried by an SVM when the gradient promises less than this part of what `tol`
# allows.
TOO_SHORT = 1e-3


class SimpleMKL(Baseline):
    """Multiple kernel learning with p = 1 by reduced gradients: a baseline to compare with.

        min_{w,b}  1/2 ||w||_{2,1}^2 + C sum_i max(0, 1 - y_i f(x_i))   =   min_d  J(d)
        f(x) = sum_m <w_m, phi_m(x)> + b,     d >= 0,  sum_m d_m = 1
        J(d)  the optimum of an SVM over  sum_m d_m K_m

    the problem of `MKLClassifier(p=1)` for two classes. A step follows the reduced gradient of J, as far as
    the first weight that becomes zero; while J decreases at that far end, the weight is fixed there and the
    direction goes on without it; then a golden section search along the last direction. Every value of J is
    an SVM, solved by LIBSVM (scikit-learn's `SVC`) from scratch: it takes no starting point, where the
    authors' program had a solver that did. LIBSVM's tolerance is lowered when its part of the gap is more
    than a tenth of `tol`; it keeps float32 copies of kernel values, so gaps below about 1e-6 (1e-4 where C
    times kernel values is large) are out of reach: the fit then ends with a `ConvergenceWarning` and the gap
    that it has, which is a true one.

    All kernel matrices are kept in memory, in float64: 8 n^2 (M + 5) bytes.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`.
    C : float > 0
        Weight of the loss.
    tol : float > 0
        Relative duality gap (primal - dual) / |primal| to reach.
    max_iter : int
        Steps at most.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels.
    kernel_weights_ : ndarray of shape (M,)
        Weights of the kernels, with sum 1.
    support_ : ndarray of shape (n_support,)
        Training rows with a dual variable other than zero.
    dual_coef_ : ndarray of shape (1, n_support)
        Signed dual variables.
    intercept_ : ndarray of shape (1,)
        b.
    primal_objective_, dual_objective_, duality_gap_ : float
        Of the kernels in float64 at the final weights and dual variables.
    n_svm_ : int
        SVMs that were trained.
    n_iter_ : int
        Steps.
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
    >>> clf = baselines.SimpleMKL(kernels.rbf([0.001, 0.01, 0.1, 1.0])).fit(X, y)
    >>> bool(clf.duality_gap_ <= 1e-3)
    True

    References
    ----------
    Rakotomamonjy, Bach, Canu, Grandvalet: SimpleMKL. JMLR 9, 2008.
    """

    def _steps(self, svm: WeightedSVM) -> Generator[Point | None, tuple[Point, Certificate], None]:
        search, (point, certificate) = COARSE_SEARCH, (yield None)
        while True:
            found = _step(svm, point, certificate.terms, search)
            if found is None and svm.sharpen():
                found = svm.solve(
                    point.weights, point.matrix
                )  # the same weights, with a gradient that is more precise
            elif found is None and search > FINE_SEARCH:
                search /= 10.0
                continue
            point, certificate = yield found


def descent_direction(weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The reduced gradient with the largest weight as base: sums to zero, and moves no weight below zero that
    is there.
    """
    base = int(np.argmax(weights))
    reduced = gradient - gradient[base]
    direction = np.where((weights > 0) | (reduced < 0), -reduced, 0.0)
    direction[base] = 0.0
    direction[np.abs(direction) < ROUND_OFF * np.abs(direction).max()] = 0.0
    direction[base] = -direction.sum()
    return direction


def longest_step(weights: np.ndarray, direction: np.ndarray) -> tuple[float, int]:
    """How far the direction may be followed, and the weight that is zero then."""
    falling = direction < 0
    steps = np.full(len(weights), np.inf)
    steps[falling] = -weights[falling] / direction[falling]
    first = int(np.argmin(steps))
    return float(steps[first]), first


def _step(svm: WeightedSVM, point: Point, terms: np.ndarray, search: float) -> Point | None:
    """One step from a point with terms (M,) a' K_m a; None when J does not decrease."""
    size = max(float(np.linalg.norm(terms)), 1e-300)
    direction = descent_direction(point.weights, -terms / size)
    start, base, slope = point, int(np.argmax(point.weights)), svm.combined(direction)
    while np.any(direction < 0):
        reach, first = longest_step(start.weights, direction)
        far = start.weights + reach * direction
        far[first] = 0.0
        matrix = start.matrix + reach * slope
        if 0.5 * reach * abs(float(terms @ direction)) < TOO_SHORT * svm.tol * abs(point.value):
            end = replace(start, weights=far, matrix=matrix)  # no SVM could tell these two apart
        else:
            end = svm.solve(far, matrix)
            if not end.value < start.value:
                break
        start = end
        # The weight stays at zero; the base takes over its part of the direction.
        slope = slope + direction[first] * (svm.matrices[base] - svm.matrices[first])
        direction[base] += direction[first]
        direction[first] = 0.0
        if first == base:
            break
    else:
        end = start
    best = start if end is start else _golden(svm, start, end, direction, slope, reach, search)
    if best is point:
        return None
    if best is start:  # weights that were only dropped have no SVM of their own yet
        best = svm.solve(cleaned(best.weights))
    return best if best.value < point.value else None


def _golden(
    svm: WeightedSVM,
    start: Point,
    end: Point,
    direction: np.ndarray,
    slope: np.ndarray,
    reach: float,
    search: float,
) -> Point:
    """The best point between start and end that a golden section search visits."""

    def at(step: float) -> Point:
        weights = cleaned(start.weights + step * direction)
        return svm.solve(weights, start.matrix + step * slope)

    low, high, best = 0.0, reach, start if start.value <= end.value else end
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    one, two = at(left), at(right)
    while True:
        best = min((best, one, two), key=lambda point: point.value)
        if high - low <= search * reach:
            return best
        if one.value < two.value:
            high, right, two = right, left, one
            left = high - GOLDEN * (high - low)
            one = at(left)
        else:
            low, left, one = left, right, two
            right = low + GOLDEN * (high - low)
            two = at(right)
