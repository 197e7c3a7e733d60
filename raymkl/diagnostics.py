"""Looking at a set of kernels before or after a fit: alignment, redundancy, spectra, and what bounds say
about the norm p.

All but `tail_sums` works on matrices of at most `max_rows` examples, so it costs seconds whatever the size of
the data. Functions take a list of kernels with examples `X`, ready-made matrices `(n, n, M)`, or a fitted
model (whose support vectors stand in when X is not given).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from .inspection.bounds import BoundFactor, block_norms, bound_factor, complexity
from .inspection.centred import cosines, double_centred, label_kernel, matrix_vectors, triangle
from .inspection.positional import PositionalImportance, positional_importance
from .inspection.spectra import Spectra, spectra
from .inspection.tails import tail_sums

__all__ = [
    "BoundFactor",
    "PositionalImportance",
    "Redundancy",
    "Spectra",
    "alignment",
    "block_norms",
    "bound_factor",
    "complexity",
    "positional_importance",
    "redundancy",
    "spectra",
    "tail_sums",
]

# Added to the diagonal of the alignment matrix before it is inverted: copies of a kernel make it singular.
JITTER = 1e-10


def alignment(
    kernels: Any,
    X: Any = None,
    y: Any = None,
    *,
    centred: bool = True,
    only: Any = None,
    max_rows: int = 1000,
    random_state: int | None = None,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Alignment of every pair of kernels, and of every kernel with the labels.

        A(K, L) = <HKH, HLH> / (||HKH|| ||HLH||)        (Frobenius inner product)
        H = I - 11'/n  (or I)

    1 means the same kernel up to scale and shift in feature space, 0 nothing in common. Labels enter as the
    kernel [y_i = y_j] (for two classes its alignment is that of yy'), numbers as yy'. A constant kernel has
    alignment 0 with all others. Without centring (H = I), kernels with non-negative values look alike because
    of their means alone.

    Parameters
    ----------
    kernels : list of Kernel, "precomputed", ndarray of shape (n, n, M), or estimator
        The M kernels, their ready-made matrices, or a fitted model.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
        Examples; with "precomputed" kernels the stack (n, n, M), or the path of a kernel store. May be left
        out for a stack, and for a fitted model with features, where the support vectors are used.
    y : array-like of shape (n,), or None
        Labels or numbers.
    centred : bool
        Whether matrices are centred first. If not, two classes enter as -1 and +1.
    only : iterable of int, or None
        Positions of the kernels to look at; None for all.
    max_rows : int
        From larger data this many rows are used: evenly spaced ones, or random ones when `random_state` is
        given. With more than about 130 kernels fewer rows are used, so that all matrices fit half a gigabyte.
        Kernels so narrow that their matrices are nearly diagonal look more alike the fewer rows are used.
    random_state : int or None
        Seed of the rows that are drawn; None takes evenly spaced ones.

    Returns
    -------
    matrix : ndarray of shape (M, M)
        Alignments of the kernels with each other.
    with_labels : ndarray of shape (M,)
        Alignments with the labels; only where `y` is given.

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

    Cristianini, Shawe-Taylor, Elisseeff, Kandola: On kernel-target alignment. NIPS 14, 2001 (without
    centring).
    """
    vectors, chosen, n = matrix_vectors(kernels, X, max_rows, random_state, only, centred)
    if y is None:
        return cosines(vectors)
    if X is None and not isinstance(kernels, np.ndarray):
        raise ValueError("y needs X: the labels of a fitted model's support vectors are not kept")
    labels = label_kernel(y, n, chosen, centred)
    target = triangle(double_centred(labels) if centred else labels)[None]
    lengths, size = np.linalg.norm(vectors, axis=1), np.linalg.norm(target)
    usable = (lengths > 0) & (size > 0)
    with_labels = np.where(usable, (vectors @ target[0]) / np.where(usable, lengths * size, 1.0), 0.0)
    return cosines(vectors), with_labels


@dataclass(frozen=True)
class Redundancy:
    """How much a set of M kernels repeats itself.

    Parameters
    ----------
    effective_number : float
        Exp of the entropy of the eigenvalues of the alignment matrix: 1 for M copies of one kernel, M for
        kernels that have nothing in common.
    eigenvalues : ndarray of shape (M,)
        Of that matrix, largest first.
    alignment : ndarray of shape (M, M)
        The matrix.
    pairs : list of tuple
        (i, j, alignment) of nearly equal kernels, most alike first.
    explained : ndarray of shape (M,)
        Share of each centred kernel matrix that a linear combination of the other kernels reproduces (1 -
        squared distance to their span); near 1 the kernel can be left out.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import diagnostics, kernels
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> found = diagnostics.redundancy([kernels.Linear(), 2.0 * kernels.Linear()], X)
    >>> round(found.effective_number, 2)
    1.0
    """

    effective_number: float
    eigenvalues: np.ndarray
    alignment: np.ndarray
    pairs: list[tuple[int, int, float]]
    explained: np.ndarray


def redundancy(
    kernels: Any,
    X: Any = None,
    *,
    only: Any = None,
    threshold: float = 0.99,
    max_rows: int = 1000,
    random_state: int | None = None,
) -> Redundancy:
    """How much a set of kernels repeats itself: effective number, nearly equal pairs, leave-one-out explained
    share.

    Parameters
    ----------
    kernels, X, only, max_rows, random_state : object
        As for `alignment` (larger data are sub-sampled to `max_rows` rows).
    threshold : float in (0, 1]
        Pairs with at least this alignment are listed.

    Returns
    -------
    found : Redundancy
        Effective number, pairs and shares.

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
    vectors, _, _ = matrix_vectors(kernels, X, max_rows, random_state, only)
    varies = np.linalg.norm(vectors, axis=1) > 0
    return redundancy_of_alignment(cosines(vectors), varies, threshold)


def redundancy_of_alignment(
    matrix: np.ndarray, varies: np.ndarray | None = None, threshold: float = 0.99
) -> Redundancy:
    """`redundancy` from an alignment matrix (M, M).

    varies : (M,) False for constant kernels, which count as fully explained.
    """
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
