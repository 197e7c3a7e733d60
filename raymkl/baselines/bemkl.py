"""BEMKL: Bayesian multiple kernel learning by mean field.

Arrays of the updates: H heads (one for two classes, else one per class against the rest), M kernels, n
training rows.

    K (M, n, n) kernel matrices       y (H, n) of -1 and 1              f (H, n) E of the latent decision
    values
    a (H, n) E of the rows' weights   precision (H, n) of these         outputs (H, M, n) E[g], what every
    kernel says of every row
    weights (H, M + 1) E of the intercept and, after it, of the kernels' weights; covariance (H, M + 1, M + 1)
    of these

A sweep costs O(H (n^3 + M n^2)); the sum of squares of the matrices, M n^3, is computed once for all heads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri
from scipy.special import erfcx, log_expit, log_ndtr, logsumexp
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ..data.rows import take
from ..engine.session import SessionRows
from ..kernels.normalize import KINDS, TailSum, check_tails, scales, tail_of, zeta_of
from ..kernels.pairs.families import NO_GATE
from ..models import sources
from ..models.expansion import Expansion
from ..models.runs.callbacks import a_run, listener
from .base import SMALL, InMemory

MOST_ROWS = 10_000
# Numbers (rows x heads x kernels) that a block of predicted rows holds.
BLOCK_NUMBERS = 2**22

# (q, sums) -> (a, variance), all (n,): the mean and the variances of N((S + diag q)^-1 sums, (S + diag
# q)^-1), S the sum of squares.
Solver = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


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
        n, step = next(iter(rows.values())).shape[0], max(1, BLOCK_NUMBERS // self._outputs.weights.size)
        for part in (slice(start, start + step) for start in range(0, n, step)):
            yield self._outputs.contributions(take(rows, part), None if gates is None else gates[part])


# -- the posterior ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Posterior:
    """Means after a sweep, and the covariance of intercept and kernel weights; shapes at the head of this
    file.
    """

    a: np.ndarray
    precision: np.ndarray
    outputs: np.ndarray
    weights: np.ndarray
    covariance: np.ndarray
    f: np.ndarray


def learn(
    matrices: np.ndarray,
    y: np.ndarray,
    margin: float,
    width: float,
    sweeps: int,
    on_round: Callable[[list[dict]], bool] | None = None,
) -> tuple[Posterior, int]:
    """Mean field after so many sweeps, and their number. matrices : (M, n, n). y : (H, n) of -1 and 1.

    on_round : called after every sweep with a row about it; True ends them.
    """
    solver, started = row_solver(sum_of_squares(matrices)), time.perf_counter()
    posterior = start(len(matrices), y, margin)
    for number in range(1, sweeps + 1):
        posterior = sweep(posterior, matrices, solver, y, margin, width)
        if on_round is not None and on_round([{"round": number, "seconds": time.perf_counter() - started}]):
            break
    return posterior, number


def start(n_kernels: int, y: np.ndarray, margin: float) -> Posterior:
    """Every kernel says what the labels say, and has weight 1."""
    heads, n = y.shape
    f = (1.0 + margin) * y
    return Posterior(
        a=np.zeros((heads, n)),
        precision=np.ones((heads, n)),
        outputs=np.repeat(f[:, None], n_kernels, axis=1),
        weights=np.tile(np.r_[0.0, np.ones(n_kernels)], (heads, 1)),
        covariance=np.tile(np.eye(n_kernels + 1), (heads, 1, 1)),
        f=f,
    )


def sweep(
    old: Posterior, matrices: np.ndarray, solver: Solver, y: np.ndarray, margin: float, width: float
) -> Posterior:
    """Every factor once: the rows' weights, their precisions, what kernels say, precisions and values of (b,
    e), f.
    """
    (heads, n), flat = y.shape, matrices.reshape(-1, y.shape[1])
    a, variance = row_weights(solver, old.outputs.reshape(heads, -1) @ flat, old.precision, width)
    products = (a @ flat.T).reshape(heads, -1, n)
    outputs, spread = kernel_outputs(products, old.f, old.weights, old.covariance, width)
    omega = expected_precision(old.weights, np.diagonal(old.covariance, axis1=1, axis2=2))
    weights, covariance = kernel_weights(outputs, spread, old.f, omega)
    return Posterior(
        a, expected_precision(a, variance), outputs, weights, covariance, latent(y, outputs, weights, margin)
    )


def expected_precision(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E of the precisions of numbers with these means and variances, all of one shape, under Gamma(1, 1)."""
    return 1.5 / (1.0 + 0.5 * (mean**2 + variance))


def row_weights(
    solver: Solver, sums: np.ndarray, precision: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variances of the rows' weights, (H, n) each. sums : (H, n) sum_m K_m E[g_m]. O(H n^3).

    Of  N(cov sums / width^2, cov),  cov = (S / width^2 + diag precision)^-1; multiplied by width^2, so that
        small widths do no harm.
    """
    solved = [solver(width**2 * own, total) for own, total in zip(precision, sums, strict=True)]
    return np.stack([mean for mean, _ in solved]), width**2 * np.stack([variance for _, variance in solved])


def kernel_outputs(
    products: np.ndarray, f: np.ndarray, weights: np.ndarray, covariance: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """E[g] (H, M, n), and its covariance (H, M, M), the same for all rows. products : (H, M, n) K_m a.

    Of  N(cov (K a / width^2 + e f - E[e b]), cov),  cov = (I / width^2 + E[e e'])^-1; here too all is
        multiplied by width^2.
    """
    b, e = weights[:, :1], weights[:, 1:]
    second = e[:, :, None] * e[:, None, :] + covariance[:, 1:, 1:]
    inverse = np.linalg.inv(np.eye(e.shape[1]) + width**2 * second)
    pull = e[:, :, None] * f[:, None, :] - (e * b + covariance[:, 1:, 0])[:, :, None]
    return inverse @ (products + width**2 * pull), width**2 * inverse


def kernel_weights(
    outputs: np.ndarray, spread: np.ndarray, f: np.ndarray, omega: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (H, M + 1) and covariance (H, M + 1, M + 1) of intercept and kernel weights.

    spread : (H, M, M). omega : (H, M + 1).
    """
    heads, _, n = outputs.shape
    rows = np.concatenate([np.ones((heads, 1, n)), outputs], axis=1)
    precision = rows @ rows.transpose(0, 2, 1) + omega[:, :, None] * np.eye(omega.shape[1])
    precision[:, 1:, 1:] += n * spread
    covariance = np.linalg.inv(precision)
    covariance = (covariance + covariance.transpose(0, 2, 1)) / 2
    return (covariance @ (rows @ f[:, :, None]))[:, :, 0], covariance


def latent(y: np.ndarray, outputs: np.ndarray, weights: np.ndarray, margin: float) -> np.ndarray:
    """E[f] (H, n): the mean of normals with variance 1, cut to y f > margin."""
    mean = y * (weights[:, :1] + np.einsum("hm,hmn->hn", weights[:, 1:], outputs))
    return y * (mean + hazard(margin - mean))


def hazard(t: np.ndarray) -> np.ndarray:
    """Density over upper tail of the standard normal, for t of any size: about t where it is large, 0 where
    it is very negative.
    """
    return np.sqrt(2.0 / np.pi) / erfcx(t / np.sqrt(2.0))


def log_odds(outputs: np.ndarray, weights: np.ndarray, covariance: np.ndarray, margin: float) -> np.ndarray:
    """(rows, H) log P(f > margin) - log P(f < -margin) of new rows with outputs (rows, H, M)."""
    heads = outputs.transpose(1, 0, 2)
    known = np.concatenate([np.ones((*heads.shape[:2], 1)), heads], axis=2)
    mean = (known @ weights[:, :, None])[:, :, 0].T
    deviation = np.sqrt(1.0 + np.maximum(((known @ covariance) * known).sum(axis=2), 0.0)).T
    return log_ndtr((mean - margin) / deviation) - log_ndtr((-mean - margin) / deviation)


# -- the rows' weights -----------------------------------------------------------------------------


def sum_of_squares(matrices: np.ndarray) -> np.ndarray:
    """(n, n) sum_m K_m K_m'."""
    total = np.zeros(matrices.shape[1:])
    for matrix in matrices:
        total += matrix @ matrix.T
    return total


def row_solver(square: np.ndarray) -> Solver:
    """The way to solve with a sum of squares (n, n) and many diagonals: the cheapest that round-off allows.

    A sum of squares that is singular to working precision has no Cholesky factor when the diagonal is small
    beside it; of its own factor (n, r) the eigenvalues that are round-off are left out, which makes the
    sweeps as cheap as the rank r is low.
    """
    values, vectors = np.linalg.eigh(square)
    n, noise = len(values), np.finfo(float).eps * max(values[-1], 0.0)
    kept = values > noise
    if values[0] > n * noise:
        return partial(solve_full, square)
    factor = vectors[:, kept], np.sqrt(values[kept])
    return (
        partial(solve_factored, *factor)
        if 2 * kept.sum() <= n
        else partial(solve_either, n * noise - values[0], square, *factor)
    )


def solve_either(
    enough: float, square: np.ndarray, vectors: np.ndarray, roots: np.ndarray, q: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Solver`, of full matrices where the diagonal is above `enough` to make them regular."""
    return solve_full(square, q, sums) if q.min() > enough else solve_factored(vectors, roots, q, sums)


def solve_full(square: np.ndarray, q: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Solver` by a Cholesky factor of S + diag q: 2/3 n^3 operations. square : S, (n, n)."""
    total = square.copy(order="F")
    total[np.diag_indices_from(total)] += q
    inverse, _ = dtrtri(
        cholesky(total, lower=True, overwrite_a=True, check_finite=False), lower=1, overwrite_c=1
    )
    return inverse.T @ (inverse @ sums), np.einsum("ij,ij->j", inverse, inverse)


def solve_factored(
    vectors: np.ndarray, roots: np.ndarray, q: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Solver` for S = F F', F = vectors * roots (n, r): n r^2 operations twice. vectors : (n, r)
    orthonormal. roots : (r,) > 0.

        (F F' + diag q)^-1 F c = diag(q)^-1 F (I + F' diag(q)^-1 F)^-1 c,       sums = F c  as the sums are in
        the range of S

    The inner matrix is well conditioned but for the sizes of its rows, which does a Cholesky factor no harm.
    """
    scaled = vectors * roots / np.sqrt(q)[:, None]
    inner = scaled.T @ scaled
    inner[np.diag_indices_from(inner)] += 1.0
    factor = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
    half = solve_triangular(factor, scaled.T, lower=True, overwrite_b=True, check_finite=False)
    inside = solve_triangular(factor, (vectors.T @ sums) / roots, lower=True, check_finite=False)
    return (half.T @ inside) / np.sqrt(q), np.maximum(1.0 - np.einsum("ij,ij->j", half, half), 0.0) / q
