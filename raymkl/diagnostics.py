"""Looking at a set of kernels before or after a fit: alignment, redundancy, and what a bound says about the norm p.

Everything here works on matrices of at most `max_rows` examples, so it costs seconds whatever the size of the data. Functions take a
list of kernels with examples `X`, ready-made matrices `(n, n, M)`, or a fitted model (whose support vectors stand in when X is not given).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from .inspection.centred import centred_vectors, cosines, double_centred, label_kernel, triangle, unwrapped
from .inspection.positional import PositionalImportance, positional_importance  # noqa: F401  (part of this module's interface)
from .optim.norms import power_norm

# Added to the diagonal of the alignment matrix before it is inverted: copies of a kernel make it singular.
JITTER = 1e-10
# The bound is searched at this many values of 1/p, then refined; values within NEAR_BEST of the minimum are about as good.
BOUND_GRID = 2001
NEAR_BEST = 1.01


def alignment(
    kernels: Any, X: Any = None, y: Any = None, *, only: Any = None, max_rows: int = 1000, random_state: int | None = None
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Centred alignment of every pair of kernels, and of every kernel with the labels.

        A(K, L) = <HKH, HLH> / (||HKH|| ||HLH||),    H = I - 11'/n,   Frobenius inner product

    1 means the same kernel up to scale and shift in feature space, 0 nothing in common. Labels enter as the kernel
    [y_i = y_j] (for two classes its alignment is that of yy'), numbers as yy'. A constant kernel has alignment 0 with all others.

    Parameters
    ----------
    kernels : list of M kernels, "precomputed", a stack (n, n, M), or a fitted model.
    X : examples in any container; (n, n, M) or the path of a kernel store with "precomputed" kernels. May be left out for a stack, and
        for a fitted model with features, where the support vectors are used.
    y : (n,) labels or numbers, or None.
    only : positions of the kernels to look at, or None for all.
    max_rows : int
        From larger data this many rows are used: evenly spaced ones, or random ones when `random_state` is given. With more than
        about 130 kernels fewer rows are used, so that all matrices fit half a gigabyte. Kernels so narrow that their matrices are
        nearly diagonal look more alike the fewer rows are used.
    random_state : int or None

    Returns
    -------
    matrix : (M, M) alignments. With `y` a pair: the matrix, and (M,) alignments with the labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import diagnostics, kernels
    >>> X, y = load_iris(return_X_y=True)
    >>> matrix, with_labels = diagnostics.alignment(kernels.rbf([0.1, 1.0, 100.0]), X, y)
    >>> matrix.shape, bool(with_labels[1] > with_labels[2])
    ((3, 3), True)

    References
    ----------
    Cortes, Mohri, Rostamizadeh: Algorithms for learning kernels based on centered alignment. JMLR 13, 2012.
    """
    vectors, chosen, n = centred_vectors(kernels, X, max_rows, random_state, only)
    if y is None:
        return cosines(vectors)
    if X is None and not isinstance(kernels, np.ndarray):
        raise ValueError("y needs X: the labels of a fitted model's support vectors are not kept")
    target = triangle(double_centred(label_kernel(y, n, chosen)))[None]
    lengths, size = np.linalg.norm(vectors, axis=1), np.linalg.norm(target)
    usable = (lengths > 0) & (size > 0)
    with_labels = np.where(usable, (vectors @ target[0]) / np.where(usable, lengths * size, 1.0), 0.0)
    return cosines(vectors), with_labels


@dataclass(frozen=True)
class Redundancy:
    """How much a set of M kernels repeats itself.

    effective_number : exp of the entropy of the eigenvalues of the alignment matrix: 1 for M copies of one kernel, M for kernels
    that have nothing in common. eigenvalues : (M,) largest first. alignment : (M, M). pairs : (i, j, alignment) of nearly equal
    kernels, most alike first. explained : (M,) share of each centred kernel matrix that a linear combination of the other
    kernels reproduces (1 - squared distance to their span); near 1 the kernel can be left out.
    """

    effective_number: float
    eigenvalues: np.ndarray
    alignment: np.ndarray
    pairs: list[tuple[int, int, float]]
    explained: np.ndarray


def redundancy(
    kernels: Any, X: Any = None, *, only: Any = None, threshold: float = 0.99, max_rows: int = 1000, random_state: int | None = None
) -> Redundancy:
    """How much a set of kernels repeats itself: effective number, nearly equal pairs, leave-one-out explained share.

    Parameters
    ----------
    kernels, X, only, max_rows, random_state : as for `alignment` (larger data are sub-sampled to `max_rows` rows).
    threshold : float in (0, 1]
        Pairs with at least this alignment are listed.

    Returns
    -------
    Redundancy

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import diagnostics, kernels
    >>> X, _ = load_iris(return_X_y=True)
    >>> found = diagnostics.redundancy([*kernels.rbf([0.1, 0.11, 10.0]), kernels.Linear()], X)
    >>> [(i, j) for i, j, _ in found.pairs]
    [(0, 1)]
    """
    if not (isinstance(threshold, Real) and 0 < threshold <= 1):
        raise ValueError(f"threshold must be a number in (0, 1], got {threshold!r}")
    vectors, _, _ = centred_vectors(kernels, X, max_rows, random_state, only)
    varies = np.linalg.norm(vectors, axis=1) > 0
    return redundancy_of_alignment(cosines(vectors), varies, threshold)


def redundancy_of_alignment(matrix: np.ndarray, varies: np.ndarray | None = None, threshold: float = 0.99) -> Redundancy:
    """`redundancy` from an alignment matrix (M, M). varies : (M,) False for constant kernels, which count as fully explained."""
    varies = np.ones(len(matrix), bool) if varies is None else varies
    inner = matrix[np.ix_(varies, varies)]
    eigenvalues = np.zeros(len(matrix))
    explained = np.ones(len(matrix))
    number = 0.0
    if varies.any():
        found = np.maximum(np.linalg.eigvalsh(inner)[::-1], 0.0)
        eigenvalues[: len(found)] = found
        shares = found[found > 0] / found.sum()
        number = float(np.exp(-np.sum(shares * np.log(shares))))
        # 1 / (A^-1)_mm is the squared distance of kernel m to the span of the others, all of length one.
        distance = 1.0 / np.diagonal(np.linalg.inv(inner + JITTER * np.eye(len(inner)))) - JITTER
        explained[varies] = np.clip(1.0 - distance, 0.0, 1.0)
    i, j = np.triu_indices(len(matrix), 1)
    alike = np.flatnonzero(matrix[i, j] >= threshold)
    alike = alike[np.argsort(-matrix[i, j][alike], kind="stable")]
    pairs = [(int(i[k]), int(j[k]), float(matrix[i[k], j[k]])) for k in alike]
    return Redundancy(number, eigenvalues, matrix, pairs, explained)


@dataclass(frozen=True)
class BoundFactor:
    """The part of a generalisation bound that depends on p, for one or several sets of block norms.

    p : (k,) block norms. factor : (k,) or (rows, k). best_p : float or (rows,), where the factor is smallest (the smallest such p).
    best_factor : the same shape. near_best : (2,) or (rows, 2), the interval of p around it in which the factor is within 1 %.
    lengths : (M,) or (rows, M), the block norms ||w_m||.
    """

    p: np.ndarray
    factor: np.ndarray
    best_p: Any
    best_factor: Any
    near_best: np.ndarray
    lengths: np.ndarray


def bound_factor(model: Any, X: Any = None, p: Any = None) -> BoundFactor:
    """The norm-dependent factor of the generalisation bound of lp-norm MKL, as a function of p, and its minimiser.

        nu(p) = min_{t >= p}  sqrt(t*) ||w||_{2,p} M^(1/t*),      t* = t / (t - 1)

    The minimum over t is attained at t* = 2 log M where t >= p allows it, else at t = p. A spread-out w (all kernels matter) asks for a
    large p, a concentrated one for p near 1. It stands in for the unknown best hypothesis, so take a model with a good p, not p = 1.

    Parameters
    ----------
    model : a fitted model, or the block norms ||w_m|| themselves: (M,) or (rows, M).
    X : for a fitted model over ready-made matrices, the training stack (n, n, M); see `block_norms`.
    p : block norms in [1, inf] to evaluate at; by default 101 values from 1 to 10, evenly spaced in 1/p.

    Returns
    -------
    BoundFactor
        One row per class, or per class and cluster, when the model has several.

    Examples
    --------
    >>> from raymkl import diagnostics
    >>> concentrated = diagnostics.bound_factor([1.0] + [0.0] * 99)
    >>> spread = diagnostics.bound_factor([1.0] * 100)
    >>> bool(concentrated.best_p < 1.2 < 2 < spread.best_p)
    True

    References
    ----------
    Kloft, Brefeld, Sonnenburg, Zien: lp-norm multiple kernel learning. JMLR 12, 2011.
    """
    model, X = unwrapped(model, X)
    lengths = np.asarray(block_norms(model, X) if hasattr(model, "get_params") else model, np.float64)
    if lengths.ndim == 0 or lengths.shape[-1] == 0 or not np.isfinite(lengths).all() or (lengths < 0).any():
        raise ValueError(f"model must be a fitted model or finite block norms >= 0 of shape (M,) or (rows, M), got shape {lengths.shape}")
    wanted = 1.0 / np.linspace(1.0, 0.1, 101) if p is None else np.atleast_1d(np.asarray(p, np.float64))
    if not (wanted >= 1).all():
        raise ValueError(f"p must be block norms in [1, inf], got {p!r}")
    rows = lengths.reshape(-1, lengths.shape[-1])
    factors = np.stack([_factors(row, wanted) for row in rows])
    found = [_best_norm(row) for row in rows]
    best, least, near = (np.array([part[k] for part in found]) for k in range(3))
    shape = lengths.shape[:-1]
    if not shape:
        return BoundFactor(wanted, factors[0], float(best[0]), float(least[0]), near[0], lengths)
    return BoundFactor(wanted, factors.reshape(*shape, -1), best.reshape(shape), least.reshape(shape), near.reshape(*shape, 2), lengths)


def block_norms(model: Any, X: Any = None) -> np.ndarray:
    """Lengths ||w_m|| of the parts of a fitted model, in the shape of `kernel_weights_`.

        ||w_m||^2 = theta_m^2 a' K_m a        (K_m normalised as in the fit)

    Computed from all pairs of support vectors, kernel by kernel, in blocks. Models over ready-made matrices do not hold them: pass the
    training stack (n, n, M) as X (or, for a dict of views, that dict).

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

    from .data.rows import take
    from .models.base import rows_and_gates
    from .models.reading import is_matrix

    model, X = unwrapped(model, X)
    check_is_fitted(model, "dual_coef_")
    expansion = model.expansion_
    if not any(map(is_matrix, model.kernels_)):
        return expansion.block_norms(model.kernel_weights_)
    if X is None:
        raise ValueError("X is needed: a model over ready-made matrices does not hold them; pass the training stack (n, n, M)")
    rows, _ = rows_and_gates(model, X)
    n = next(iter(rows.values())).shape[0]
    if n != expansion.n_train:
        raise ValueError(f"X has {n} rows; the block norms need the {expansion.n_train} training rows")
    return expansion.block_norms(model.kernel_weights_, take(rows, expansion.support))


def _factors(lengths: np.ndarray, p: np.ndarray) -> np.ndarray:
    """nu(p) for every p. lengths : (M,)."""
    with np.errstate(divide="ignore"):
        conjugate = 1.0 / (1.0 - 1.0 / p)
    # sqrt(s) M^(1/s) falls up to s = 2 log M and rises afterwards; s = t* runs over [1, p*].
    s = np.minimum(max(2.0 * np.log(len(lengths)), 1.0), conjugate)
    return np.array([power_norm(lengths, norm) for norm in p]) * np.sqrt(s) * len(lengths) ** (1.0 / s)


def _best_norm(lengths: np.ndarray) -> tuple[float, float, tuple[float, float]]:
    """Smallest minimiser of nu over [1, inf], its value, and the interval in which nu is within NEAR_BEST of it."""
    from scipy.optimize import minimize_scalar

    inverse = np.linspace(1.0, 0.0, BOUND_GRID)
    with np.errstate(divide="ignore"):
        p = 1.0 / inverse
    values = _factors(lengths, p)
    k = int(np.flatnonzero(values <= values.min() * (1 + 1e-12))[0])
    best, least = p[k], values[k]
    if 0 < k < len(p) - 1:
        found = minimize_scalar(
            lambda u: _factors(lengths, np.array([1.0 / u]))[0],
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
