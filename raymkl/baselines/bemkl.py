"""BEMKL: Bayesian multiple kernel learning by mean field; `mean_field` has the sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.special import log_expit, logsumexp
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ..data.rows import row_count, take
from ..engine.session import SessionRows
from ..kernels.normalize import KINDS, TailSum, check_tails, scales, tail_of, zeta_of
from ..kernels.pairs.families import NO_GATE
from ..models import sources
from ..models.expansion import Expansion
from ..models.runs.callbacks import a_run, listener
from .base import SMALL, InMemory
from .mean_field import Posterior, learn, log_odds

MOST_ROWS = 10_000
# Numbers (rows x heads x kernels) that a block of predicted rows holds.
BLOCK_NUMBERS = 2**22


class BEMKL(InMemory):
    """Bayesian efficient multiple kernel learning: a baseline to compare with, with probabilities.

        lambda_i, gamma, omega_m ~ Gamma(1, 1)
        a_i ~ N(0, 1 / lambda_i),      g_m(x) ~ N(sum_i a_i k_m(x_i, x), width^2)
        b ~ N(0, 1 / gamma),           e_m ~ N(0, 1 / omega_m)
        f(x) ~ N(sum_m e_m g_m(x) + b, 1)
        y = 1 means f > margin,        y = -1 means f < -margin

    The posterior is approximated by a product over a, lambda, g, the pair (b, e), their precisions, and f; a
    sweep sets one factor after the other to its best given the others. Nothing is random, and always
    `max_iter` sweeps are made. Weights of kernels may be negative. Of more than two classes each is learned
    against the rest.

    One process, at most 10,000 rows. All kernel matrices are kept in memory, in float64: 8 n^2 (M + 5) bytes.
    A sweep costs O(n^3 + M n^2) per class, and less than n^3 where the matrices are of low rank.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed" or None
        As for `MKLClassifier`.
    normalize : {None, "multiplicative", "spherical", "trace", "tail"} or `kernels.TailSum`
        As for `MKLClassifier`. The priors are for kernels with values about 1: use "spherical" where they are
        not.
    margin : float >= 0
        Half the gap between the classes, in units of the deviation of f.
    width : float > 0
        Standard deviation of what a kernel says of a row.
    max_iter : int >= 1
        Sweeps.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    kernel_weights_ : ndarray of shape (M,) or (n_classes, M)
        E[e]; (M,) for two classes.
    intercept_ : ndarray of shape (H,)
        E[b], of H = 1 or n_classes heads.
    covariance_ : ndarray of shape (H, M + 1, M + 1)
        Of b and e.
    support_ : ndarray of shape (n,)
        All rows.
    dual_coef_ : ndarray of shape (H, n)
        E[a].
    n_iter_ : int
        Sweeps.
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
    >>> clf = baselines.BEMKL(kernels.rbf([0.001, 0.01, 0.1]), max_iter=20).fit(X[:200], y[:200])
    >>> bool(clf.score(X[200:], y[200:]) > 0.9)
    True
    >>> clf.predict_proba(X).shape
    (569, 2)

    References
    ----------
    Gonen: Bayesian efficient multiple kernel learning. ICML 2012.
    """

    _ours = ("MKLClassifier", "needs no matrices in memory")

    def __init__(
        self,
        kernels: Any = None,
        normalize: Any = None,
        margin: float = 1.0,
        width: float = 0.1,
        max_iter: int = 200,
    ):
        self.kernels = kernels
        self.normalize = normalize
        self.margin = margin
        self.width = width
        self.max_iter = max_iter

    @a_run
    def fit(self, X: Any, y: Any) -> Self:
        """Learn by mean-field sweeps.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict or Views
            Rows, 10,000 at most.
        y : array-like of shape (n,)
            Labels of two or more classes, of any type.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows, index = self._begin(X, y)
        gates, gate_of_kernel = self._spherical_gates(rows, self.kernels_)
        matrices = self._matrices(rows)
        factors = self._normalise(matrices, gates, gate_of_kernel)
        signs = np.where(index == np.arange(len(self.classes_))[:, None], 1.0, -1.0)
        learned = self._learn(matrices, signs[1:] if len(signs) == 2 else signs)
        self._keep_posterior(rows, learned, factors, gates, gate_of_kernel)
        return self

    def _learn(self, matrices: np.ndarray, signs: np.ndarray) -> Posterior:
        """See `learn`; an error where numbers are too large or too small for it."""
        try:
            with (
                np.errstate(all="ignore"),
                threadpool_limits(1, "blas") if signs.shape[1] <= SMALL else nullcontext(),
            ):
                learned, self.n_iter_ = learn(
                    matrices, signs, float(self.margin), float(self.width), int(self.max_iter), listener(self)
                )
            fine = all(np.isfinite(array).all() for array in (learned.a, learned.weights, learned.covariance))
        except (np.linalg.LinAlgError, OverflowError):
            fine = False
        if not fine:
            raise ValueError(
                f"the sums of BEMKL leave the range of float64 with width={self.width!r} and "
                f"margin={self.margin!r}; "
                'take others, or kernels with values about 1 (normalize="spherical")'
            )
        return learned

    def _check_params(self) -> None:
        for name, kind, accepted, fine in (
            ("margin", Real, "a finite number >= 0", lambda value: 0 <= value < np.inf),
            ("width", Real, "a finite number > 0", lambda value: 0 < value < np.inf),
            ("max_iter", Integral, "a whole number >= 1", lambda value: value >= 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool | np.bool_) or not isinstance(value, kind) or not fine(value):
                raise ValueError(f"{name} must be {accepted}, got {value!r}")
        kind = self.normalize
        if not (kind is None or isinstance(kind, TailSum) or (isinstance(kind, str) and kind in KINDS)):
            raise ValueError(
                f"normalize must be one of {', '.join(map(repr, KINDS))}, or a TailSum; got {kind!r}"
            )

    def _check_classes(self, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise ValueError(f"y has 1 class ({classes.tolist()[0]!r}); BEMKL needs two or more classes")

    def _check_memory(self, n: int, n_kernels: int) -> None:
        if n > MOST_ROWS:
            raise ValueError(
                f"BEMKL takes at most {MOST_ROWS:,} rows, and X has {n:,} rows; MKLClassifier takes more"
            )
        super()._check_memory(n, n_kernels)

    def _normalise(
        self, matrices: np.ndarray, gates: np.ndarray | None, gate_of_kernel: list[int] | None
    ) -> np.ndarray:
        """Normalise matrices (M, n, n) in place; (M,) the numbers that they were multiplied with, beside
        gates.
        """
        for matrix, gate in zip(matrices, gate_of_kernel or (), strict=False):
            if gates is not None and gate != NO_GATE:
                matrix *= gates[:, gate, None]
                matrix *= gates[:, gate]
        traces, zeta = np.trace(matrices, axis1=1, axis2=2), zeta_of(self.normalize)
        if zeta is None:
            factors = scales(self.normalize, traces, matrices.sum(axis=(1, 2)), matrices.shape[1])
        else:
            tails = np.array([tail_of(matrix, zeta) for matrix in matrices])
            check_tails(tails, traces)
            factors = 1.0 / tails
        if self.normalize is not None:
            matrices *= factors[:, None, None]
        return factors

    def _keep_posterior(
        self,
        rows: dict,
        learned: Posterior,
        factors: np.ndarray,
        gates: np.ndarray | None,
        gate_of_kernel: list[int] | None,
    ) -> None:
        """What was learned, as public attributes, and the sums over training rows that predictions are made
        of.
        """
        weights = learned.weights[:, 1:]
        self.kernel_weights_ = weights[0] if len(weights) == 1 else weights
        self.intercept_, self.covariance_ = learned.weights[:, 0], learned.covariance
        self.dual_coef_, self.support_ = learned.a, np.arange(learned.a.shape[1])
        self.expansion_ = Expansion.of_training(
            self.kernels_, weights * factors, learned.a, self.support_, rows, gates, gate_of_kernel
        )
        # E[g] of new rows: the same sums, not yet weighted.
        self._outputs = replace(self.expansion_, weights=np.tile(factors, (len(weights), 1)))

    def decision_function(self, X: Any) -> np.ndarray:
        """Expected decision values E[f].

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        values : ndarray of shape (n,) or (n, n_classes)
            (n,) for two classes: positive means `classes_[1]`.
        """
        check_is_fitted(self, "dual_coef_")
        values = self._decision(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest E[f].

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        labels : ndarray of shape (n,)
            Of the type of y.
        """
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, given that f is outside of the margin.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        probabilities : ndarray of shape (n, n_classes)
            Those of several classes are made to sum to 1.
        """
        check_is_fitted(self, "dual_coef_")
        weights = np.column_stack([self.intercept_, np.atleast_2d(self.kernel_weights_)])
        odds = np.concatenate(
            [log_odds(outputs, weights, self.covariance_, float(self.margin)) for outputs in self._blocks(X)]
        )
        logs = np.hstack([log_expit(-odds), log_expit(odds)]) if odds.shape[1] == 1 else log_expit(odds)
        return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))

    def _blocks(self, X: Any) -> Iterator[np.ndarray]:
        """E[g] of blocks of rows, (rows, H, M)."""
        X, _ = self._source_of(X)
        X = X.X if isinstance(X, SessionRows) else X
        if isinstance(X, sources.SourceInput):
            for batch in sources.batches_to_predict(self, X):
                yield from self._blocks(batch)
            return
        rows, gates = self._rows_to_predict(X)
        n, step = row_count(rows), max(1, BLOCK_NUMBERS // self._outputs.weights.size)
        for part in (slice(start, start + step) for start in range(0, n, step)):
            yield self._outputs.contributions(take(rows, part), None if gates is None else gates[part])
