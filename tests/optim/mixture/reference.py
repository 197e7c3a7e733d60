"""Slow, obvious formulas of the mixture and its machines, one cluster and one row at a time."""

import numpy as np
from scipy.special import digamma, gammaln
from scipy.stats import beta as beta_law
from scipy.stats import multivariate_t


def log_multigamma(a, d):
    return d * (d - 1) / 4 * np.log(np.pi) + sum(gammaln(a - j / 2) for j in range(d))


def expected_log_weights(sticks):
    """(K,) E log pi_k."""
    a, b = sticks
    K = len(a)
    logs = []
    for k in range(K):
        value = 0.0 if k == K - 1 else digamma(a[k]) - digamma(a[k] + b[k])
        logs.append(value + sum(digamma(b[j]) - digamma(a[j] + b[j]) for j in range(k)))
    return np.array(logs)


def expected_log_density(x, mean, tau, nu, S):
    d = len(x)
    log_precision = sum(digamma((nu - j) / 2) for j in range(d)) + d * np.log(2) - np.log(np.linalg.det(S))
    return 0.5 * (
        log_precision - d * np.log(2 * np.pi) - d / tau - nu * (x - mean) @ np.linalg.inv(S) @ (x - mean)
    )


def student(x, mean, tau, nu, S):
    d = len(x)
    return multivariate_t(mean, S * (tau + 1) / (tau * (nu - d + 1)), df=nu - d + 1).logpdf(x)


def weights(sticks):
    a, b = sticks
    own = a / (a + b)
    own[-1] = 1.0
    return np.array([own[k] * np.prod(1 - own[:k]) for k in range(len(own))])


def kl_of_sticks(sticks, concentration):
    """By quadrature."""
    total = 0.0
    for a, b in sticks[:, :-1].T:
        q, p = beta_law(a, b), beta_law(1, concentration)
        low, high = q.ppf([1e-13, 1 - 1e-13])
        grid = np.linspace(low, high, 400_001)
        values = q.pdf(grid) * (q.logpdf(grid) - p.logpdf(grid))
        total += np.trapezoid(values, grid) if hasattr(np, "trapezoid") else np.trapz(values, grid)
    return total


def kl_of_component(mean, tau, nu, S, m0, tau0, nu0, S0):
    """KL(NIW | NIW_0): of the inverse Wishart, and the expected one of the mean given it."""
    d = len(mean)
    inverse = np.linalg.inv(S)
    log_precision = sum(digamma((nu - j) / 2) for j in range(d)) + d * np.log(2) - np.log(np.linalg.det(S))

    def log_norm(nu, S):
        return nu / 2 * np.log(np.linalg.det(S)) - nu * d / 2 * np.log(2) - log_multigamma(nu / 2, d)

    wishart = (
        log_norm(nu, S)
        - log_norm(nu0, S0)
        + (nu - nu0) / 2 * log_precision
        - nu / 2 * (d - np.trace(S0 @ inverse))
    )
    of_mean = 0.5 * (
        d * tau0 / tau - d + d * np.log(tau / tau0) + tau0 * nu * (mean - m0) @ inverse @ (mean - m0)
    )
    return wishart + of_mean


def scores(model, x, k):
    """(M,) scores of a row by the machine of a cluster."""
    D = len(model.noise_[k])
    angles = [sum(model.scales_[k][j] * noise[j] * x[j] for j in range(len(x))) for noise in model.noise_[k]]
    phi = np.array([*np.cos(angles), *np.sin(angles)]) / np.sqrt(D)
    return model.coef_[k] @ phi


def loss(s, y):
    return max(0.0, 1.0 + max(s[m] for m in range(len(s)) if m != y) - s[y])


def row_logs(model, x, y=None, label_weight=0.0):
    """(K,) logs of responsibilities before they are normalised."""
    arrays = zip(model.means_, model.mean_precision_, model.degrees_of_freedom_, model.scatter_, strict=True)
    logs = expected_log_weights(model.weight_concentration_) + [
        expected_log_density(x, *parts) for parts in arrays
    ]
    if label_weight:
        logs = logs - label_weight * np.array([loss(scores(model, x, k), y) for k in range(len(logs))])
    return logs


def bound(model, X, y=None, row_weights=None):
    """The lower bound of the public arrays."""
    beta = getattr(model, "label_weight", 0.0)
    row_weights = np.ones(len(X)) if row_weights is None else row_weights
    total = 0.0
    for n, x in enumerate(X):
        total += row_weights[n] * np.logaddexp.reduce(row_logs(model, x, None if y is None else y[n], beta))
    prior = [model.prior_[name] for name in ("mean", "mean_precision", "degrees_of_freedom", "scatter")]
    total -= kl_of_sticks(model.weight_concentration_, model.concentration)
    for parts in zip(
        model.means_, model.mean_precision_, model.degrees_of_freedom_, model.scatter_, strict=True
    ):
        total -= kl_of_component(*parts, *prior)
    return total - (beta / (2 * model.C) * np.sum(np.square(model.coef_)) if beta else 0.0)


def probabilities(model, x):
    """(M,) of the predictive mixture."""
    arrays = zip(model.means_, model.mean_precision_, model.degrees_of_freedom_, model.scatter_, strict=True)
    logs = np.log(weights(model.weight_concentration_.copy())) + [student(x, *parts) for parts in arrays]
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    total = np.zeros(len(model.classes_))
    for k, share in enumerate(shares):
        s = scores(model, x, k)
        own = np.exp([-loss(s, m) for m in range(len(s))])
        total += share * own / own.sum()
    return total
