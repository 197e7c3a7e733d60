"""What generalisation bounds say about a set of kernels and about the norm p: the global and the local
form.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..data.rows import row_count
from ..kernels.normalize import scales, tail_of, zeta_of
from ..kernels.pairs.statistics import Matrices
from ..optim.norms import power_norm
from .centred import Sample, sampled, unwrapped

# The bound is searched at this many values of 1/p, then refined; values within NEAR_BEST of the minimum are
# about as good.
BOUND_GRID = 2001
NEAR_BEST = 1.01


@dataclass(frozen=True)
class BoundFactor:
    """The part of a generalisation bound that depends on p, for one or several sets of block norms.

    Parameters
    ----------
    p : ndarray of shape (k,)
        Block norms.
    factor : ndarray of shape (k,) or (rows, k)
        The factor at each of them.
    best_p : float, or ndarray of shape (rows,)
        Where the factor is smallest (the smallest such p).
    best_factor : float, or ndarray of shape (rows,)
        The factor there.
    near_best : ndarray of shape (2,) or (rows, 2)
        The interval of p around it in which the factor is within 1 %.
    lengths : ndarray of shape (M,) or (rows, M)
        The block norms ||w_m||.
    decay : float or None
        Of the eigenvalues in the local form, None in the global one.

    Examples
    --------
    >>> from raymkl import diagnostics
    >>> found = diagnostics.bound_factor([1.0, 0.0, 0.0, 0.0])  # one kernel matters
    >>> bool(found.best_p < 1.5)
    True
    """

    p: np.ndarray
    factor: np.ndarray
    best_p: Any
    best_factor: Any
    near_best: np.ndarray
    lengths: np.ndarray
    decay: float | None = None


def bound_factor(model: Any, X: Any = None, p: Any = None, *, decay: Any = None) -> BoundFactor:
    """The norm-dependent factor of the generalisation bound of lp-norm MKL, as a function of p, and its
    minimiser.

        global   nu(p) = min_{t >= p}        sqrt(t*) ||w||_{2,p} M^(1/t*)
        local    nu(p) = min_{t in [p, 2]}  (t* ||w||_{2,p})^a M^(1 + a (1/t* - 1)),  p <= 2
        t* = t / (t - 1),   a = 2 / (1 + alpha)

    The minimum over t is attained at t* = 2 log M (local: log M) where the range of t allows it, else at its
    nearest end. A spread-out w (all kernels matter) asks for a large p, a concentrated one for p near 1. It
    stands in for the unknown best hypothesis, so take a model with a good p, not p = 1.

    The local form holds for kernels whose eigenvalues fall like j^-alpha, and is the sharper one for many
    examples: the excess risk falls like n^(-alpha/(1+alpha)) instead of n^(-1/2).

    Parameters
    ----------
    model : estimator, or array-like of shape (M,) or (rows, M)
        A fitted model, or the block norms ||w_m|| themselves.
    X : ndarray of shape (n, n, M), dict or None
        For a fitted model over ready-made matrices the training stack; see `block_norms`.
    p : array-like of shape (k,), or None
        Block norms to evaluate at, in [1, inf], for the local form in [1, 2]. None takes 101 values from 1 to
        10 (local: to 2), evenly spaced in 1/p.
    decay : float, array-like of shape (M,), or None
        alpha > 1 for the local form: a number, or one per kernel (`spectra(...).decay`), the smallest of
        which counts. None: the global form.

    Returns
    -------
    factor : BoundFactor
        One row per class, or per class and cluster, when the model has several.

    Examples
    --------
    >>> from raymkl import diagnostics
    >>> concentrated = diagnostics.bound_factor([1.0] + [0.0] * 99)
    >>> spread = diagnostics.bound_factor([1.0] * 100)
    >>> bool(concentrated.best_p < 1.2 < 2 < spread.best_p)
    True
    >>> lengths = [1 / m for m in range(1, 1001)]
    >>> print(round(diagnostics.bound_factor(lengths, decay=2.0).best_p, 1))
    1.4

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien: lp-norm multiple kernel learning. JMLR 12, 2011.

    Kloft, Blanchard: On the convergence rate of lp-norm multiple kernel learning. JMLR 13, 2012 (the local
    form).
    """
    alpha = None if decay is None else _least_decay(decay)
    model, X = unwrapped(model, X)
    lengths = np.asarray(block_norms(model, X) if hasattr(model, "get_params") else model, np.float64)
    if lengths.ndim == 0 or lengths.shape[-1] == 0 or not np.isfinite(lengths).all() or (lengths < 0).any():
        raise ValueError(
            "model must be a fitted model or finite block norms >= 0 of shape (M,) or (rows, M), got shape "
            f"{lengths.shape}"
        )
    largest = np.inf if alpha is None else 2.0
    wanted = (
        1.0 / np.linspace(1.0, 0.1 if alpha is None else 0.5, 101)
        if p is None
        else np.atleast_1d(np.asarray(p, np.float64))
    )
    if not ((wanted >= 1) & (wanted <= largest)).all():
        where = "[1, inf]" if alpha is None else "[1, 2] for the local form (decay=)"
        raise ValueError(f"p must be block norms in {where}, got {p!r}")
    rows = lengths.reshape(-1, lengths.shape[-1])
    factors = np.stack([_factors(row, wanted, alpha) for row in rows])
    found = [_best_norm(row, alpha) for row in rows]
    best, least, near = (np.array([part[k] for part in found]) for k in range(3))
    shape = lengths.shape[:-1]
    if not shape:
        return BoundFactor(wanted, factors[0], float(best[0]), float(least[0]), near[0], lengths, alpha)
    return BoundFactor(
        wanted,
        factors.reshape(*shape, -1),
        best.reshape(shape),
        least.reshape(shape),
        near.reshape(*shape, 2),
        lengths,
        alpha,
    )


def block_norms(model: Any, X: Any = None) -> np.ndarray:
    """Lengths ||w_m|| of the parts of a fitted model, in the shape of `kernel_weights_`.

        ||w_m||^2 = theta_m^2 a' K_m a        (K_m normalised as in the fit)

    Computed from all pairs of support vectors, kernel by kernel, in blocks. Models over ready-made matrices
    do not hold them.

    Parameters
    ----------
    model : fitted estimator
        Any with support vectors.
    X : ndarray of shape (n, n, M), dict or None
        The training stack, for models over ready-made matrices alone.

    Returns
    -------
    lengths : ndarray of shape (M,) or (rows, M)
        Not negative; in the shape of `kernel_weights_`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from raymkl import MKLClassifier, diagnostics, kernels
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.01, 1.0]), engine="local").fit(X / X.std(axis=0), y)
    >>> diagnostics.block_norms(clf).shape
    (2,)
    """
    from sklearn.utils.validation import check_is_fitted

    from ..data.rows import take
    from ..models.base import rows_and_gates
    from ..models.reading import is_matrix

    model, X = unwrapped(model, X)
    check_is_fitted(model, "expansion_")
    expansion = model.expansion_
    if not any(map(is_matrix, model.kernels_)):
        return expansion.block_norms(model.kernel_weights_)
    if X is None:
        raise ValueError(
            "X is needed: a model over ready-made matrices does not hold them; pass the training stack (n, "
            "n, M)"
        )
    rows, _ = rows_and_gates(model, X)
    n = row_count(rows)
    if n != expansion.n_train:
        raise ValueError(f"X has {n} rows; the block norms need the {expansion.n_train} training rows")
    return expansion.block_norms(model.kernel_weights_, take(rows, expansion.support))


def complexity(
    kernels: Any,
    X: Any = None,
    *,
    p: float = 4 / 3,
    radius: float = 1.0,
    max_rows: int = 1000,
    random_state: int | None = None,
) -> float:
    """Bound on the global Rademacher complexity of the functions that lp-norm MKL chooses from.

        R({f : ||w||_{2,p} <= radius})
            <=  radius * min_{t >= p}  sqrt( t*/n  || (tr K_m / n)_m ||_{t*/2} )
        t* = t / (t - 1)

    How much such functions can follow labels that are pure chance: with probability 1 - delta the expected
    loss (of a loss with slope at most 1 and values up to B) exceeds the loss on the n examples by no more
    than twice this plus B sqrt(log(1/delta) / (2n)). For equally large kernels it grows like sqrt(log M) at p
    = 1 and like M^(1 - 1/p) beyond.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed", ndarray of shape (n, n, M), or estimator
        The kernels, or a fitted model, whose normalisation is then applied.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
        Examples, see `alignment`; of a fitted model without X, its support vectors.
    p : float in [1, inf]
        Block norm.
    radius : float > 0
        Largest ||w||_{2,p}. Of a fitted model: the p-norm of `block_norms(model)`.
    max_rows : int
        As for `alignment`. Traces are those of all rows; only the variance of a model with
        normalize="multiplicative" is measured on so many.
    random_state : int or None
        As for `alignment`.

    Returns
    -------
    bound : float
        The right-hand side above.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import diagnostics, kernels
    >>> X, _ = load_iris(return_X_y=True)
    >>> bank = kernels.rbf([0.01 * 1.1**m for m in range(100)])
    >>> bool(diagnostics.complexity(bank, X, p=1.0) < diagnostics.complexity(bank, X, p=2.0))
    True

    References
    ----------
    Kloft, Blanchard: On the convergence rate of lp-norm multiple kernel learning. JMLR 13, 2012.
    """
    if not (isinstance(p, Real) and not isinstance(p, bool) and p >= 1):
        raise ValueError(f"p must be a number in [1, inf], the block norm over kernels; got {p!r}")
    if not (isinstance(radius, Real) and not isinstance(radius, bool) and 0 < radius < np.inf):
        raise ValueError(f"radius must be a finite number > 0, got {radius!r}")
    sample = sampled(kernels, X, max_rows, random_state)
    return float(radius) * float(np.sqrt(_least_size(mean_diagonals(sample), float(p)) / sample.n))


def mean_diagonals(sample: Sample) -> np.ndarray:
    """(M,) tr K_m / n of the kernels as they are normalised."""
    from ..models.description.diagonals import diagonals

    zeta = zeta_of(sample.normalize)
    if sample.normalize == "multiplicative" or zeta is not None:
        means = np.empty(len(sample.bank))
        for m, matrix in sample.matrices():
            trace, n = np.trace(matrix), len(matrix)
            if zeta is None:
                means[m] = (
                    trace / n * scales("multiplicative", np.array([trace]), np.array([matrix.sum()]), n)[0]
                )
                continue
            tail = tail_of(matrix, min(zeta, n - 1))
            means[m] = (
                trace / (tail * sample.n) if tail > 0 else 0.0
            )  # the tail of all rows is that of the sample, times n / r
        return means
    found = np.empty((len(sample.bank), sample.n))
    vectors = [m for m, kernel in enumerate(sample.bank) if not isinstance(kernel.statistic(), Matrices)]
    if vectors:
        found[vectors] = diagonals([sample.bank[m] for m in vectors], sample.rows)
    for m in sorted(set(range(len(sample.bank))) - set(vectors)):
        stack = sample.rows[sample.bank[m].statistic().view]
        every = np.arange(sample.n)
        found[m] = (stack[every, every] if isinstance(stack, np.ndarray) else stack.diagonal())[
            :, sample.bank[m].index
        ]
    if sample.normalize == "spherical":
        return (found > 0).mean(axis=1)
    return found.mean(axis=1) * scales(sample.normalize, found.sum(axis=1), None, sample.n)


def _least_size(sizes: np.ndarray, p: float) -> float:
    """min over s in [1, p*] of s ||sizes||_{s/2}. sizes : (M,)."""
    from scipy.optimize import minimize_scalar

    if sizes.max() <= 0:
        return 0.0
    # At s = 2 log M the value is at most 2e log M times the largest size, and s alone is a lower bound in
    # these units.
    beyond = max(2.0 * np.e * np.log(len(sizes)), 2.0)
    conjugate = np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1.0)
    s = np.geomspace(1.0, min(conjugate, beyond), BOUND_GRID)
    values = np.array([x * power_norm(sizes, x / 2.0) for x in s])
    k = int(values.argmin())
    low, high = s[max(k - 1, 0)], s[min(k + 1, len(s) - 1)]
    if high <= low:
        return float(values[k])
    found = minimize_scalar(lambda x: x * power_norm(sizes, x / 2.0), bounds=(low, high), method="bounded")
    return float(min(found.fun, values[k]))


def _least_decay(decay: Any) -> float:
    """The alpha that the local bound takes: the smallest of those given."""
    try:
        values = np.atleast_1d(np.asarray(decay, np.float64))
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.ndim != 1 or len(values) == 0 or not (values > 1).all():
        raise ValueError(
            "decay must be a number > 1, or one per kernel, with which eigenvalues fall like j^-decay; got "
            f"{decay!r}"
        )
    return float(values.min())


def _factors(lengths: np.ndarray, p: np.ndarray, alpha: float | None) -> np.ndarray:
    """nu(p) for every p. lengths : (M,)."""
    with np.errstate(divide="ignore"):
        conjugate = 1.0 / (1.0 - 1.0 / p)
    M, sizes = len(lengths), np.array([power_norm(lengths, norm) for norm in p])
    if alpha is None:
        # sqrt(s) M^(1/s) falls up to s = 2 log M and rises afterwards; s = t* runs over [1, p*].
        s = np.minimum(max(2.0 * np.log(M), 1.0), conjugate)
        return sizes * np.sqrt(s) * M ** (1.0 / s)
    # The same for s M^(1/s) and s = log M; s runs over [2, p*].
    s, power = np.minimum(max(np.log(M), 2.0), conjugate), 2.0 / (1.0 + alpha)
    return (s * sizes) ** power * M ** (1.0 + power * (1.0 / s - 1.0))


def _best_norm(lengths: np.ndarray, alpha: float | None) -> tuple[float, float, tuple[float, float]]:
    """Smallest minimiser of nu over [1, inf] (local: [1, 2]), its value, and the interval in which nu is
    within NEAR_BEST of it.
    """
    from scipy.optimize import minimize_scalar

    inverse = np.linspace(1.0, 0.0 if alpha is None else 0.5, BOUND_GRID)
    with np.errstate(divide="ignore"):
        p = 1.0 / inverse
    values = _factors(lengths, p, alpha)
    k = int(np.flatnonzero(values <= values.min() * (1 + 1e-12))[0])
    best, least = p[k], values[k]
    if 0 < k < len(p) - 1:
        found = minimize_scalar(
            lambda u: _factors(lengths, np.array([1.0 / u]), alpha)[0],
            bounds=(inverse[k + 1], inverse[k - 1]),
            method="bounded",
            options={"xatol": 1e-10},
        )
        if found.fun < least * (1 - 1e-12):
            best, least = 1.0 / found.x, found.fun
    good = values <= NEAR_BEST * least
    low, high = k, k
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(p) - 1 and good[high + 1]:
        high += 1
    return float(best), float(least), (float(min(p[low], best)), float(max(p[high], best)))
