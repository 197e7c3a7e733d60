"""Every loss straight from its definition: value, dual term and constraints, in numbers and for a conic
solver.
"""

import numpy as np
from scipy.special import xlogy

EPSILON, DELTA, QUANTILE, NU = 0.15, 0.3, 0.7, 0.3
MARGIN = ("hinge", "squared_hinge", "logistic", "squared")
NUMBERS = ("epsilon_insensitive", "squared", "squared_epsilon_insensitive", "huber", "quantile")
EVERY = [
    *(("classifier", name) for name in MARGIN),
    *(("regressor", name) for name in NUMBERS),
    ("one class", "one_class"),
]


def loss_sum(name, f, y, c):
    """sum_i c_i loss(f_i, y_i)."""
    r, m = y - f, 1 - y * f
    values = {
        "hinge": lambda: np.maximum(m, 0),
        "squared_hinge": lambda: np.maximum(m, 0) ** 2 / 2,
        "logistic": lambda: np.logaddexp(0, -y * f),
        "squared": lambda: r**2 / 2,
        "epsilon_insensitive": lambda: np.maximum(np.abs(r) - EPSILON, 0),
        "squared_epsilon_insensitive": lambda: np.maximum(np.abs(r) - EPSILON, 0) ** 2 / 2,
        "huber": lambda: np.where(np.abs(r) < DELTA, r**2 / 2, DELTA * np.abs(r) - DELTA**2 / 2),
        "quantile": lambda: np.maximum(QUANTILE * r, (QUANTILE - 1) * r),
        "one_class": lambda: np.maximum(0, -f),
    }[name]()
    return float(c @ values)


def dual_terms(name, a, y, c):
    """sum_i term_i(a_i), and by how much the constraints are broken at most; rows with c = 0 must have a =
    0.
    """
    assert not a[c == 0].any()
    a, y, c = a[c > 0], y[c > 0], c[c > 0]
    alpha, ridge = y * a, 0.5 * np.sum(a**2 / c)
    share = np.clip(alpha / c, 0, 1)
    margin = max(-alpha.min(), (alpha - c).max())
    return {
        "hinge": lambda: (alpha.sum(), margin),
        "squared_hinge": lambda: (alpha.sum() - ridge, -alpha.min()),
        "logistic": lambda: (-np.sum(c * (xlogy(share, share) + xlogy(1 - share, 1 - share))), margin),
        "squared": lambda: (y @ a - ridge, 0.0),
        "epsilon_insensitive": lambda: (y @ a - EPSILON * np.abs(a).sum(), (np.abs(a) - c).max()),
        "squared_epsilon_insensitive": lambda: (y @ a - EPSILON * np.abs(a).sum() - ridge, 0.0),
        "huber": lambda: (y @ a - ridge, (np.abs(a) - DELTA * c).max()),
        "quantile": lambda: (y @ a, max((a - QUANTILE * c).max(), ((QUANTILE - 1) * c - a).max())),
        "one_class": lambda: (0.0, max(-a.min(), (a - c).max())),
    }[name]()


def power(x, p):
    return x.max() if np.isinf(p) else np.sum(x**p) ** (1 / p)


def true_values(name, model, K, y, c, p):
    """Primal and dual value of a fitted model's point and the largest breach of its constraints, from kernel
    matrices (n, n, M).
    """
    a = np.zeros(len(c))
    a[model.support_] = np.ravel(model.dual_coef_)
    theta, b = np.ravel(model.kernel_weights_), float(model.intercept_[0])
    total = NU * c.sum() if name == "one_class" else 0.0
    v = np.sqrt(np.maximum(np.einsum("i,ijm,j->m", a, K, a), 0))
    star = np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)
    terms, breach = dual_terms(name, a, y, c)
    primal = power(theta * v, p) ** 2 / 2 + loss_sum(name, (K @ theta) @ a + b, y, c) + total * b
    return primal, terms - power(v, star) ** 2 / 2, max(breach, abs(a.sum() - total))
