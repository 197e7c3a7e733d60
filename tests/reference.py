"""Slow and obvious references: everything here is written straight from the formulas, without looking at the
package's code.

Stacks of kernel matrices have shape (rows, columns, M); `a` are signed dual variables (a_i = y_i alpha_i).
"""

import contextlib
import warnings

import cvxpy as cp
import numpy as np


def noisy_problem(n=70, seed=0, features=6):
    """A binary problem that no single kernel solves alone: X (n, features), y in {-1, +1}."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    score = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.4 * rng.normal(size=n)
    return X, np.where(score > np.median(score), 1, -1)


def gram(bank, X, Z=None):
    """(n, m, M) matrices, each asked of its kernel alone."""
    return np.stack([kernel(X) if Z is None else kernel(X, Z) for kernel in bank], axis=-1)


def dual_exponent(p):
    """p* with 1/p + 1/p* = 1."""
    if p == 1:
        return np.inf
    return 1.0 if np.isinf(p) else p / (p - 1)


def _root(matrix):
    """(r, n) R with R'R = matrix, small eigenvalues left out."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-11 * max(values.max(), 1e-300)
    return (np.sqrt(values[kept]) * vectors[:, kept]).T


def dual_optimum(K, y, bounds, p):
    """Value of  max_a  sum(y a) - 1/2 || (sqrt(a'K_m a))_m ||_{p*}^2,  0 <= y a <= bounds, sum(a) = 0,  by a
    conic solver.
    """
    a = cp.Variable(K.shape[0])
    parts = [_root(K[..., m]) for m in range(K.shape[2])]
    lengths = [cp.norm2(part @ a) if len(part) else cp.Constant(0.0) for part in parts]
    if p == 2:
        penalty = cp.sum_squares(np.vstack(parts) @ a)
    else:
        star = dual_exponent(p)
        vector = cp.hstack(lengths)
        penalty = cp.square(
            cp.max(vector) if np.isinf(star) else cp.sum(vector) if star == 1 else cp.pnorm(vector, star)
        )
    signed = cp.multiply(y, a)
    # The conic solver gives up on some statements of a problem and not on the same one in other units.
    for unit in (1.0, 4.0, 0.25, 16.0):
        problem = cp.Problem(
            cp.Maximize((cp.sum(signed) - penalty / 2) * unit),
            [signed >= 0, signed <= bounds, cp.sum(a) == 0],
        )
        with warnings.catch_warnings(), contextlib.suppress(cp.error.SolverError):
            warnings.simplefilter(
                "ignore"
            )  # CVXPY tells how it states the norm, and when the last digits are in doubt
            problem.solve(solver=cp.CLARABEL)
        if problem.status in ("optimal", "optimal_inaccurate"):
            return float(problem.value) / unit
    raise AssertionError(f"the reference was not solved: {problem.status}")


def dual_value(a, y, K, p):
    """Dual objective of a point, by definition."""
    lengths = np.sqrt(np.maximum([a @ K[..., m] @ a for m in range(K.shape[2])], 0.0))
    star = dual_exponent(p)
    size = lengths.max() if np.isinf(star) else np.sum(lengths**star) ** (1 / star)
    return float(y @ a - 0.5 * size**2)


def dual_point(model, n, head=0):
    """(n,) dual variables of a fitted model."""
    a = np.zeros(n)
    a[model.support_] = model.dual_coef_[head]
    return a


def decision_from(model, K_test, head=0):
    """f from public attributes and a stack (n_test, n_train, M)."""
    weights = np.atleast_2d(model.kernel_weights_)[head]
    return K_test[:, model.support_] @ weights @ model.dual_coef_[head] + model.intercept_[head]


def normalised(kind, K, K_test=None, diagonal_test=None):
    """Normalised training stack, and the test stack with the training rows' constants.

    diagonal_test : (n_test, M) k(x, x).
    """
    diagonal = np.stack([np.diag(K[..., m]) for m in range(K.shape[2])], axis=1)
    if kind == "spherical":
        train = K / np.sqrt(diagonal[:, None, :] * diagonal[None, :, :])
        return train, None if K_test is None else K_test / np.sqrt(
            diagonal_test[:, None, :] * diagonal[None, :, :]
        )
    scale = diagonal.sum(axis=0) if kind == "trace" else diagonal.mean(axis=0) - K.mean(axis=(0, 1))
    return K / scale, None if K_test is None else K_test / scale


def apart(f, g):
    """Largest difference of two sets of decision values, in standard deviations of the second."""
    f, g = np.asarray(f), np.asarray(g)
    assert f.shape == g.shape, (f.shape, g.shape)
    return float(np.abs(f - g).max() / g.std())
