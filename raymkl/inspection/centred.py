"""Centred kernel matrices of a sample of rows, for `diagnostics`.

Kernels come as a list with examples, as ready-made matrices, or as a fitted model.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np

# All centred matrices are held at once, (M, r (r + 1) / 2) float64; with very many kernels fewer rows are used to stay below this.
MATRIX_BYTES = 512 * 2**20
FEWEST_ROWS = 50
# A kernel whose centred matrix is smaller than this, relative to the matrix itself, is constant.
CONSTANT = 1e-10


def centred_vectors(kernels: Any, X: Any, max_rows: int, random_state: int | None, only: Any = None) -> tuple[np.ndarray, np.ndarray, int]:
    """Centred kernel matrices as vectors (M, r (r + 1) / 2) whose inner products are Frobenius ones; rows used (r,); rows there are."""
    if not (isinstance(max_rows, Integral) and max_rows >= 2):
        raise ValueError(f"max_rows must be a whole number >= 2, got {max_rows!r}")
    bank, rows, spherical = _resolve(kernels, X)
    if only is not None:
        only = np.atleast_1d(np.asarray(only, int))
        if len(only) == 0 or only.min() < 0 or only.max() >= len(bank):
            raise ValueError(f"only must be positions from 0 to {len(bank) - 1}, got {only.tolist()!r}")
        bank = [bank[m] for m in only]
    n = next(iter(rows.values())).shape[0]
    fits = max(int(np.sqrt(2.0 * MATRIX_BYTES / (8.0 * len(bank)))), FEWEST_ROWS)
    chosen = _choose(n, min(int(max_rows), fits), random_state)
    if len(chosen) < 2:
        raise ValueError(f"alignment needs at least 2 examples, X has {n}")
    vectors = np.empty((len(bank), len(chosen) * (len(chosen) + 1) // 2))
    for m, matrix in _matrices(bank, rows, chosen):
        if spherical:
            diagonal = np.diagonal(matrix)
            gate = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
            matrix = matrix * gate[:, None] * gate
        centred = double_centred(matrix)
        if np.abs(centred).max() <= CONSTANT * np.abs(matrix).max():
            centred[:] = 0.0
        vectors[m] = triangle(centred)
    return vectors, chosen, n


def unwrapped(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator inside a `TableModel`, and X as that estimator takes it; all else as it is."""
    from ..models.table_model import TableModel

    if not isinstance(model, TableModel):
        return model, X
    return model.model, None if X is None else model.preparation.transform(X)


def _resolve(kernels: Any, X: Any) -> tuple[list, dict, bool]:
    """Kernels, rows by view key, and whether the kernels are to be normalised spherically."""
    from ..kernels.base import Kernel
    from ..kernels.formulas import Precomputed
    from ..models import reading

    kernels, X = unwrapped(kernels, X)
    if hasattr(kernels, "get_params") and not isinstance(kernels, Kernel):
        return _resolve_model(kernels, X)
    if isinstance(kernels, np.ndarray) and kernels.dtype != object:
        if X is not None:
            raise ValueError("X must be left out when kernels is a stack of matrices (n, n, M)")
        kernels, X = "precomputed", kernels
    if isinstance(kernels, str):
        if kernels != "precomputed":
            raise ValueError(f'kernels must be a list of kernels, "precomputed", a stack (n, n, M) or a fitted model; got {kernels!r}')
        stack = reading.precomputed_stack(X, square=True)
        return [Precomputed(index=m) for m in range(stack.shape[2])], {None: stack}, False
    bank = [kernels] if isinstance(kernels, Kernel) else list(kernels) if np.iterable(kernels) else None
    if not bank or not all(isinstance(kernel, Kernel) for kernel in bank):
        raise TypeError(
            f'kernels must be a list of kernels, "precomputed", a stack (n, n, M) or a fitted model; got {type(kernels).__name__}'
        )
    if X is None:
        raise ValueError("X is needed to evaluate a list of kernels")
    vectors = [kernel for kernel in bank if not reading.is_matrix(kernel)]
    return bank, {**reading.rows_of(X, vectors), **reading.matrices_of(X, bank, square=True)}, False


def _resolve_model(model: Any, X: Any) -> tuple[list, dict, bool]:
    from sklearn.utils.validation import check_is_fitted

    from ..models import reading

    check_is_fitted(model, "kernels_")
    spherical = getattr(model, "normalize", None) == "spherical"
    if X is None:
        if any(map(reading.is_matrix, model.kernels_)):
            raise ValueError("X is needed: a model over ready-made matrices does not hold them; pass a stack (n, n, M)")
        return model.kernels_, model.expansion_.support_rows, spherical
    if isinstance(model.kernels, str):
        return _resolve("precomputed", X)
    return *_resolve(model.kernels_, X)[:2], spherical


def _choose(n: int, most: int, random_state: int | None) -> np.ndarray:
    """Sorted ids of the rows to use."""
    if n <= most:
        return np.arange(n)
    if random_state is None:
        return np.unique(np.linspace(0, n - 1, most).astype(int))
    return np.sort(np.random.default_rng(random_state).choice(n, most, replace=False))


def _matrices(bank: list, rows: dict, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (position, matrix (r, r)) of every kernel; the statistic of a family is computed once."""
    from ..kernels.base import row_centers
    from ..kernels.pairs.families import group
    from ..kernels.pairs.statistics import Matrices

    for family in group(bank):
        statistic = family.statistic
        if isinstance(statistic, Matrices):
            stack = rows[statistic.view]
            block = stack[np.ix_(chosen, chosen)] if isinstance(stack, np.ndarray) else stack.entries(chosen, chosen)
            for kernel, member in zip(family.kernels, family.members, strict=True):
                yield member, np.asarray(block[:, :, kernel.index], np.float64)
            continue
        own = {key: rows[key][chosen] for key in statistic.views}
        prepared = statistic.prepare(own, centers=row_centers(own))
        pairs = statistic.pairs(prepared, prepared)
        if pairs.ndim == 2:
            pairs = (pairs + pairs.T) / 2
            np.fill_diagonal(pairs, statistic.diagonal(prepared))
        for kernel, member in zip(family.kernels, family.members, strict=True):
            yield member, np.asarray(kernel.profile(pairs), np.float64)


def double_centred(matrix: np.ndarray) -> np.ndarray:
    """HKH with H = I - 11'/n, for a symmetric matrix."""
    means = matrix.mean(axis=0)
    return matrix - means - means[:, None] + means.mean()


def triangle(matrix: np.ndarray) -> np.ndarray:
    """Upper triangle as a vector, off-diagonal entries times sqrt(2)."""
    row, column = np.triu_indices(len(matrix))
    vector = matrix[row, column]
    vector[row != column] *= np.sqrt(2.0)
    return vector


def cosines(vectors: np.ndarray) -> np.ndarray:
    """(M, M) cosines of the angles between vectors (M, d); a vector of length zero has 0 with all others and 1 with itself."""
    products = vectors @ vectors.T
    lengths = np.sqrt(np.diagonal(products))
    inverse = 1.0 / np.where(lengths > 0, lengths, 1.0)
    matrix = products * inverse[:, None] * inverse
    matrix = np.clip((matrix + matrix.T) / 2, -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def label_kernel(y: Any, n: int, chosen: np.ndarray) -> np.ndarray:
    """(r, r) kernel of the labels of the chosen rows: [y_i = y_j] for classes, y_i y_j for numbers."""
    from sklearn.utils import column_or_1d
    from sklearn.utils.multiclass import type_of_target

    y = column_or_1d(y)
    if len(y) != n:
        raise ValueError(f"X and y have different lengths: X has {n} rows, y has {len(y)}")
    if type_of_target(y) == "continuous":
        numbers = np.asarray(y, np.float64)[chosen]
        return np.outer(numbers, numbers)
    part = y[chosen]
    return (part[:, None] == part[None]).astype(np.float64)
