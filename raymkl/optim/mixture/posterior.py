"""Mean field of a Dirichlet process mixture of Gaussians, truncated at K clusters.

    V_k ~ Beta(1, concentration), V_K = 1;   pi_k = V_k prod_{j<k} (1 - V_j);   Sigma_k ~ IW(nu0, S0),   mu_k
    ~ N(m0, Sigma_k / tau0)

With q(V_k) = Beta(a_k, b_k), q(mu_k, Sigma_k) = NIW(m_k, tau_k, nu_k, S_k) and responsibilities of all rows
at their best, the bound is

    L = sum_n v_n log sum_k exp(E log pi_k + E log N(x_n | k) - what else speaks against k)
        - sum_{k<K} KL(Beta_k | Beta(1, concentration)) - sum_k KL(NIW_k | NIW_0)

Rows come as u = x - m0, so that columns far from zero lose no digits. n rows, K clusters, d columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, digamma, gammaln, multigammaln

LOG_2, LOG_PI = float(np.log(2.0)), float(np.log(np.pi))


@dataclass(frozen=True)
class Prior:
    """mean (d,), mean_precision, degrees_of_freedom, scatter (d, d) : m0, tau0, nu0, S0.

    concentration : of the sticks.
    """

    mean: np.ndarray
    mean_precision: float
    degrees_of_freedom: float
    scatter: np.ndarray
    concentration: float


@dataclass(frozen=True)
class Statistics:
    """Of rows u = x - m0 by responsibility: counts (K,), sums (K, d), squares (K, d, d) of r, r u and r u
    u'.
    """

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(self.counts + other.counts, self.sums + other.sums, self.squares + other.squares)

    def take(self, order: np.ndarray) -> Statistics:
        """Those of some clusters, in another order."""
        return Statistics(self.counts[order], self.sums[order], self.squares[order])


@dataclass(frozen=True)
class Posterior:
    """sticks (2, K) : a, b.

    shifts (K, d) : m_k - m0. mean_precision (K,), degrees_of_freedom (K,), scatter (K, d, d) : tau, nu, S.
    """

    sticks: np.ndarray
    shifts: np.ndarray
    mean_precision: np.ndarray
    degrees_of_freedom: np.ndarray
    scatter: np.ndarray

    @property
    def n_clusters(self) -> int:
        return len(self.shifts)


def posterior_of(statistics: Statistics, prior: Prior) -> Posterior:
    """The best posteriors for given responsibilities."""
    counts = statistics.counts
    tau = prior.mean_precision + counts
    shifts = statistics.sums / tau[:, None]
    scatter = (
        prior.scatter + statistics.squares - tau[:, None, None] * (shifts[:, :, None] * shifts[:, None, :])
    )
    scatter = (scatter + scatter.transpose(0, 2, 1)) / 2
    return Posterior(
        sticks_of(counts, prior.concentration), shifts, tau, prior.degrees_of_freedom + counts, scatter
    )


def sticks_of(counts: np.ndarray, concentration: float) -> np.ndarray:
    """(2, K) parameters a, b of the sticks of clusters with such counts (K,)."""
    rest = counts[::-1].cumsum()[::-1] - counts
    return np.stack([1.0 + counts, concentration + np.maximum(rest, 0.0)])


def stick_term(counts: np.ndarray, concentration: float) -> float:
    """What the sticks bring to the bound when their posteriors are at their best: it depends on the order of
    the clusters.
    """
    a, b = sticks_of(counts, concentration)[:, :-1]
    return float(np.sum(betaln(a, b) - betaln(1.0, concentration)))


def best_order(counts: np.ndarray, concentration: float) -> np.ndarray | None:
    """(K,) clusters by size, the largest first, if that raises what the sticks bring; else None."""
    order = np.argsort(-counts, kind="stable")
    if np.array_equal(order, np.arange(len(counts))):
        return None
    return order if stick_term(counts[order], concentration) > stick_term(counts, concentration) else None


def log_determinants(scatter: np.ndarray) -> np.ndarray:
    """(...,) logs of the determinants of positive definite matrices (..., d, d)."""
    roots = np.linalg.cholesky(scatter)
    return 2.0 * np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(axis=-1)


def digammas(nu: np.ndarray, d: int) -> np.ndarray:
    """sum_j digamma((nu - j) / 2) over j < d."""
    return digamma((np.asarray(nu)[..., None] - np.arange(d)) / 2).sum(axis=-1)


def log_gammas(nu: np.ndarray, d: int) -> np.ndarray:
    """log of the multivariate gamma function at nu / 2, for an array of nu."""
    return d * (d - 1) / 4 * LOG_PI + gammaln((np.asarray(nu)[..., None] - np.arange(d)) / 2).sum(axis=-1)


def evidence(statistics: Statistics, prior: Prior) -> np.ndarray:
    """(K,) log of the integral of prod_n N(x_n | mu, Sigma)^r_n over the prior, for every cluster."""
    d, counts = len(prior.mean), statistics.counts
    q = posterior_of(statistics, prior)
    nu0, nu = prior.degrees_of_freedom, q.degrees_of_freedom
    value = -counts * d / 2 * LOG_PI + d / 2 * np.log(prior.mean_precision / q.mean_precision)
    value += nu0 / 2 * float(log_determinants(prior.scatter)) - nu / 2 * log_determinants(q.scatter)
    return value + log_gammas(nu, d) - multigammaln(nu0 / 2, d)


def divergence(q: Posterior, prior: Prior) -> float:
    """KL of the posteriors of sticks and components from their priors."""
    (a, b), d = q.sticks[:, :-1], q.shifts.shape[1]
    alpha, tau0, nu0 = prior.concentration, prior.mean_precision, prior.degrees_of_freedom
    total = np.sum(
        betaln(1.0, alpha)
        - betaln(a, b)
        + (a - 1) * digamma(a)
        + (b - alpha) * digamma(b)
        - (a + b - 1 - alpha) * digamma(a + b)
    )
    tau, nu, logdet = q.mean_precision, q.degrees_of_freedom, log_determinants(q.scatter)
    inverse_shift = np.linalg.solve(q.scatter, q.shifts[:, :, None])[:, :, 0]
    traces = np.trace(
        np.linalg.solve(q.scatter, np.broadcast_to(prior.scatter, q.scatter.shape)), axis1=1, axis2=2
    )
    log_sigma = logdet - d * LOG_2 - digammas(nu, d)
    log_z0 = nu0 / 2 * (d * LOG_2 - float(log_determinants(prior.scatter))) + multigammaln(nu0 / 2, d)
    log_z = nu / 2 * (d * LOG_2 - logdet) + log_gammas(nu, d)
    parts = d / 2 * (np.log(tau / tau0) - 1 + tau0 / tau) + tau0 * nu / 2 * np.einsum(
        "kd,kd->k", q.shifts, inverse_shift
    )
    parts += log_z0 - log_z - (nu - nu0) / 2 * log_sigma + nu / 2 * (traces - d)
    return float(total + parts.sum())


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Densities:
    """Logs of weight and density of every cluster, ready for many rows.

        logs_k(u) = constants_k - exponents_k * log(1 + distances_k(u))        (Student t, what is known of a
        new row)
        logs_k(u) = constants_k - exponents_k * distances_k(u)                 (expected logs, what the bound
        is made of)

    with distances_k(u) = || u @ projection_k - offsets_k ||^2.  projection : (d, K d). offsets : (K d,).
    constants, exponents : (K,).
    """

    projection: np.ndarray
    offsets: np.ndarray
    constants: np.ndarray
    exponents: np.ndarray
    heavy: bool

    def logs(self, U: np.ndarray) -> np.ndarray:
        """(n, K) of rows U (n, d)."""
        K, d = len(self.constants), len(self.projection)
        parts = U @ self.projection
        parts -= self.offsets
        distances = np.einsum("nkj,nkj->nk", *(2 * [parts.reshape(len(U), K, d)]))
        if self.heavy:
            np.log1p(distances, out=distances)
        distances *= -self.exponents
        distances += self.constants
        return distances


def _densities(
    q: Posterior, factors: np.ndarray, constants: np.ndarray, exponents: np.ndarray, heavy: bool
) -> Densities:
    """factors : (K,) of the squared distance in the scatter."""
    K, d = q.shifts.shape
    roots = np.linalg.cholesky(q.scatter)
    whitening = (
        np.linalg.solve(roots, np.broadcast_to(np.eye(d), roots.shape)) * np.sqrt(factors)[:, None, None]
    )
    offsets = np.einsum("kij,kj->ki", whitening, q.shifts)
    projection = np.ascontiguousarray(whitening.transpose(2, 0, 1).reshape(d, K * d))
    return Densities(projection, offsets.reshape(-1), constants, exponents, heavy)


def expected_logs(q: Posterior) -> Densities:
    """E log pi_k + E log N(x | k) of every cluster."""
    (a, b), d, nu = q.sticks, q.shifts.shape[1], q.degrees_of_freedom
    own, rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    own[-1] = 0.0
    log_weights = own + np.concatenate([[0.0], np.cumsum(rest[:-1])])
    precision = digammas(nu, d) + d * LOG_2 - log_determinants(q.scatter)
    constants = log_weights + 0.5 * (precision - d * (LOG_2 + LOG_PI) - d / q.mean_precision)
    return _densities(q, nu, constants, np.full(q.n_clusters, 0.5), heavy=False)


def predictive(q: Posterior) -> Densities:
    """log E pi_k + log Student t of every cluster."""
    d, nu, tau = q.shifts.shape[1], q.degrees_of_freedom, q.mean_precision
    part = tau / (tau + 1)
    constants = (
        gammaln((nu + 1) / 2)
        - gammaln((nu + 1 - d) / 2)
        + d / 2 * (np.log(part) - LOG_PI)
        - log_determinants(q.scatter) / 2
    )
    with np.errstate(divide="ignore"):
        constants = constants + np.log(expected_weights(q.sticks))
    return _densities(q, part, constants, (nu + 1) / 2, heavy=True)


def expected_weights(sticks: np.ndarray) -> np.ndarray:
    """(K,) E pi_k of sticks (2, K); they sum to one."""
    own = sticks[0] / sticks.sum(axis=0)
    own[-1] = 1.0
    return own * np.concatenate([[1.0], np.cumprod(1.0 - own[:-1])])


def shares_of(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, K) shares and (n,) logs of their sums, of logs (n, K), which may be -inf but not all of them in a
    row.
    """
    highest = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - highest)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (np.log(total) + highest)[:, 0]


def statistics_of(U: np.ndarray, shares: np.ndarray) -> Statistics:
    """Statistics of rows U (n, d) with shares (n, K), weights of rows included."""
    K, d = shares.shape[1], U.shape[1]
    squares = np.empty((K, d, d))
    for k in range(K):
        there = np.flatnonzero(shares[:, k])
        part = U if len(there) == len(U) else U[there]
        squares[k] = (part * shares[there, k][:, None]).T @ part
    return Statistics(shares.sum(axis=0), shares.T @ U, squares)
