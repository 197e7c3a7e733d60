"""What the baselines share: reading, kernel matrices in memory, and the fitted attributes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ..data.rows import row_count
from ..data.views import where_of
from ..engine.resources import free_memory
from ..kernels.matrices import kernel_matrices
from ..models import reading, sources
from ..models.base import BaseMKL
from ..models.checks import label_column
from ..models.expansion import Expansion
from ..models.runs.callbacks import a_run, listener, stop_was_asked
from .svm import Certificate, Point, WeightedSVM

# Matrices of n rows beside those of the kernels: the sum of them, the direction, a copy of either, and
# LIBSVM's cache.
BESIDES = 5
# Up to so many rows one thread is quicker in the linear algebra of a step: several libraries have threads
# that wait for each other.
SMALL = 2000


class InMemory(BaseMKL, ClassifierMixin, BaseEstimator):
    """A classifier over kernel matrices that are all kept in memory: what it reads, what it refuses."""

    # What reading rows asks of an estimator.
    normalize: Any = None
    dtype = "float64"
    # What to take instead, as errors say it: the estimator, and what can be said of it.
    _ours = ("MKLClassifier(p=1)", "solves the same problem without them")

    def _begin(self, X: Any, y: Any) -> tuple[dict, np.ndarray]:
        """All checks; sets `classes_` and `kernels_`.

        Rows by view key, and the class of every row as a number (n,).
        """
        self._check_params()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = self._source_of(X, y)
        if isinstance(X, sources.SourceInput):
            raise TypeError(
                f"{type(self).__name__} takes examples in memory, not a path or a Dataset; MKLClassifier "
                "takes both"
            )
        _, rows, kernels = self._read(X, reset=True)
        n = row_count(rows)
        y = self._check_labels(y, n)
        self._check_memory(n, len(kernels))
        self.kernels_ = kernels
        self.classes_, index = np.unique(y, return_inverse=True)
        return rows, index

    def _check_labels(self, y: Any, n: int) -> np.ndarray:
        y = label_column(y, n)
        check_classification_targets(y)
        self._check_classes(np.unique(y))
        return y

    def _check_classes(self, classes: np.ndarray) -> None:
        """Raise ValueError for a number of classes that cannot be learned."""

    def _check_memory(self, n: int, n_kernels: int) -> None:
        needed, free = 8 * n * n * (n_kernels + BESIDES), free_memory()
        if needed > free:
            raise ValueError(
                f"{type(self).__name__} keeps all kernel matrices: {n_kernels} kernels and X with {n} rows "
                f"take {needed / 2**30:.3g} GiB, "
                f"and {free / 2**30:.3g} GiB are free; {' '.join(self._ours)}"
            )

    def _matrices(self, rows: dict) -> np.ndarray:
        """(M, n, n) float64 matrices of all kernels; ready-made ones are checked first."""
        for key in dict.fromkeys(
            kernel.statistic().view for kernel in self.kernels_ if reading.is_matrix(kernel)
        ):
            reading.check_kernel_stack(rows[key], where_of(key))
        n = row_count(rows)
        stack = np.empty((len(self.kernels_), n, n))
        for m, matrix in kernel_matrices(self.kernels_, rows, np.arange(n)):
            stack[m] = matrix
        return stack

    def save(self, path: Any) -> None:
        """Baselines are not saved: they are for comparison.

        Parameters
        ----------
        path : str or path
            Not used.
        """
        raise TypeError(
            f"a {type(self).__name__} is for comparison and has no file format; use pickle, or save an "
            f"{self._ours[0]}"
        )


class Baseline(InMemory):
    """A solver of two-class MKL with p = 1 that moves the weights and trains an SVM at every step; see
    `SimpleMKL`.
    """

    def __init__(self, kernels: Any = None, C: float = 1.0, tol: float = 1e-3, max_iter: int = 1000):
        self.kernels = kernels
        self.C = C
        self.tol = tol
        self.max_iter = max_iter

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    @a_run
    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows of two classes.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict or Views
            Rows.
        y : array-like of shape (n,)
            Labels of two classes, of any type.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows, index = self._begin(X, y)
        svm = WeightedSVM(self._matrices(rows), 2.0 * index - 1.0, self.C, self.tol)
        with threadpool_limits(1, "blas") if len(index) <= SMALL else nullcontext():
            learned = self._learn(svm)
        self._keep_point(rows, svm, *learned)
        return self

    def _check_params(self) -> None:
        for name, kind, accepted in (
            ("C", Real, "a finite number > 0"),
            ("tol", Real, "a finite number > 0"),
            ("max_iter", Integral, "a whole number > 0"),
        ):
            value = getattr(self, name)
            if not (isinstance(value, kind) and not isinstance(value, bool) and 0 < float(value) < np.inf):
                raise ValueError(f"{name} must be {accepted}, got {value!r}")

    def _check_classes(self, classes: np.ndarray) -> None:
        if len(classes) != 2:
            some = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
            raise ValueError(
                f"Only binary classification is supported. y has {some} "
                f"({', '.join(map(repr, classes[:4].tolist()))}"
                f"{', ...' if len(classes) > 4 else ''}); {type(self).__name__} needs two, MKLClassifier "
                "takes more"
            )

    def _learn(self, svm: WeightedSVM) -> tuple[Point, Certificate, int]:
        """Step after step to the gap that is wanted; the last point, its certificate, and the number of
        steps.
        """
        start = np.full(len(svm.matrices), 1.0 / len(svm.matrices))
        point = svm.solve(start)
        certificate = svm.certify(point)
        steps, told, started = self._steps(svm), listener(self), time.perf_counter()
        next(steps)
        for step in range(self.max_iter):
            stop = told is not None and told(
                [self._row(certificate, svm, step, time.perf_counter() - started)]
            )
            if certificate.gap <= self.tol or stop:
                return point, certificate, step
            if svm.refined(certificate):
                point = svm.solve(point.weights, point.matrix)
            else:
                moved = steps.send((point, certificate))
                if moved is None:
                    return point, certificate, step
                point = moved
            certificate = svm.certify(point)
        return point, certificate, self.max_iter

    @staticmethod
    def _row(certificate: Certificate, svm: WeightedSVM, step: int, seconds: float) -> dict:
        """What callbacks hear of a step: the point before it."""
        found = {"primal": certificate.primal, "dual": certificate.dual, "gap": certificate.gap}
        return {"round": step, "seconds": seconds, **found, "svms": svm.n_solved}

    def _steps(self, svm: WeightedSVM) -> Generator[Point | None, tuple[Point, Certificate], None]:
        """A generator that is sent (point, certificate) and yields a better point, None if it finds none."""
        raise TypeError(f"{type(self).__name__} has no steps")
        yield

    def _keep_point(
        self, rows: dict, svm: WeightedSVM, point: Point, certificate: Certificate, steps: int
    ) -> None:
        """What was learned, as public attributes."""
        self.kernel_weights_ = point.weights
        self.support_ = np.flatnonzero(point.a)
        self.dual_coef_ = point.a[None, self.support_]
        self.intercept_ = np.array([certificate.intercept])
        self.primal_objective_, self.dual_objective_ = certificate.primal, certificate.dual
        self.duality_gap_ = certificate.gap
        self.n_svm_, self.n_iter_ = svm.n_solved, max(steps, 1)
        self.converged_ = certificate.gap <= self.tol
        self.expansion_ = Expansion.of_training(
            self.kernels_, point.weights[None], self.dual_coef_, self.support_, rows
        )
        if not self.converged_ and not stop_was_asked(self):
            warnings.warn(
                f"stopped after {self.n_svm_} SVMs with a relative duality gap of {certificate.gap:.3g}, "
                f"above tol={self.tol:g}; "
                "the model is feasible and its gap is true, but raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,
            )

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values f(x).

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,)
            Positive means `classes_[1]`.
        """
        check_is_fitted(self, "dual_coef_")
        return self._decision(X)[:, 0]

    def predict(self, X: Any) -> np.ndarray:
        """Labels of rows.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        labels : ndarray of shape (n,)
            Of the type of y.
        """
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]
