"""Kernel matrices of a sample of rows, as they are and centred, for `diagnostics`.

Kernels come as a list with examples, as ready-made matrices, or as a fitted model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ..data.rows import row_count, take
from ..data.views import is_views
from ..kernels.matrices import kernel_matrices
from ..kernels.normalize import gate_of_diagonal
from ..kernels.pairs.families import NO_GATE
from ..models.missing.presence import Presence, RowsOfViews, presence_of

# All matrices of an alignment are held at once, (M, r (r + 1) / 2) float64; with very many kernels fewer rows
# are used to stay below this.
MATRIX_BYTES = 512 * 2**20
FEWEST_ROWS = 50
# A kernel whose centred matrix is smaller than this, relative to the matrix itself, is constant.
CONSTANT = 1e-10


@dataclass(frozen=True)
class Sample:
    """Kernels over some of the rows that there are.

    bank : M kernels. rows : all n rows by view key. chosen : (r,) rows used. n : rows there are. normalize :
    of the fitted model that the kernels are from, or None.
    """

    bank: list
    rows: dict
    chosen: np.ndarray
    n: int
    normalize: str | None = None

    def matrices(self) -> Iterator[tuple[int, np.ndarray]]:
        """(position, matrix (r, r)) of every kernel; spherical where the model has it so."""
        for m, matrix in kernel_matrices(self.bank, self.rows, self.chosen):
            if self.normalize == "spherical":
                gate = gate_of_diagonal(np.diagonal(matrix))
                matrix = matrix * gate[:, None] * gate
            yield m, matrix


def sampled(
    kernels: Any,
    X: Any,
    max_rows: int,
    random_state: int | None,
    only: Any = None,
    bytes_per_pair: float = 0.0,
) -> Sample:
    """Kernels (a list, a stack, a fitted model) with at most `max_rows` rows to look at, fewer where all
    matrices must be held at once.

    bytes_per_pair : of every kernel, that are kept for a pair of rows.
    """
    if not (isinstance(max_rows, Integral) and max_rows >= 2):
        raise ValueError(f"max_rows must be a whole number >= 2, got {max_rows!r}")
    bank, rows, normalize = resolve(kernels, X)
    if only is not None:
        only = np.atleast_1d(np.asarray(only, int))
        if len(only) == 0 or only.min() < 0 or only.max() >= len(bank):
            raise ValueError(f"only must be positions from 0 to {len(bank) - 1}, got {only.tolist()!r}")
        bank = [bank[m] for m in only]
    n = row_count(rows)
    most = int(max_rows)
    if bytes_per_pair:
        most = min(most, max(int(np.sqrt(MATRIX_BYTES / (bytes_per_pair * len(bank)))), FEWEST_ROWS))
    chosen = _choose(n, most, random_state)
    presence = presence_of(rows)
    if presence is not None:  # matrices of different kernels are compared over the same rows
        whole = np.flatnonzero(presence.there.all(axis=1))
        chosen = whole[_choose(len(whole), most, random_state)]
    if len(chosen) < 2:
        raise ValueError(
            f"at least 2 examples are needed{' that have all views' if presence else ''}, X has {n}"
        )
    return Sample(bank, rows, chosen, n, normalize)


def matrix_vectors(
    kernels: Any, X: Any, max_rows: int, random_state: int | None, only: Any = None, centred: bool = True
) -> tuple[np.ndarray, np.ndarray, int]:
    """Kernel matrices as vectors (M, r (r + 1) / 2) whose inner products are Frobenius ones; rows used (r,);
    rows there are.
    """
    if not isinstance(centred, bool | np.bool_):
        raise ValueError(f"centred must be True or False, got {centred!r}")
    sample = sampled(
        kernels, X, max_rows, random_state, only, bytes_per_pair=4.0
    )  # half of a symmetric matrix in float64
    r = len(sample.chosen)
    vectors = np.empty((len(sample.bank), r * (r + 1) // 2))
    for m, matrix in sample.matrices():
        if centred:
            around = double_centred(matrix)
            if np.abs(around).max() <= CONSTANT * np.abs(matrix).max():
                around[:] = 0.0
            matrix = around
        vectors[m] = triangle(matrix)
    return vectors, sample.chosen, sample.n


def unwrapped(model: Any, X: Any) -> tuple[Any, Any]:
    """The estimator inside a `TableModel`, and X as that estimator takes it; all else as it is."""
    from ..models.table_model import TableModel

    if not isinstance(model, TableModel):
        return model, X
    return model.model, None if X is None else model.preparation.transform(X)


def resolve(kernels: Any, X: Any) -> tuple[list, dict, str | None]:
    """Kernels, rows by view key, and how a fitted model normalises them."""
    from ..kernels.base import Kernel
    from ..kernels.given import Absence, Precomputed
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
            raise ValueError(
                'kernels must be a list of kernels, "precomputed", a stack (n, n, M) or a fitted model; got '
                f"{kernels!r}"
            )
        stack = reading.precomputed_stack(X, square=True)
        return [Precomputed(index=m) for m in range(stack.shape[2])], {None: stack}, None
    bank = [kernels] if isinstance(kernels, Kernel) else list(kernels) if np.iterable(kernels) else None
    if not bank or not all(isinstance(kernel, Kernel) for kernel in bank):
        raise TypeError(
            'kernels must be a list of kernels, "precomputed", a stack (n, n, M) or a fitted model; got '
            f"{type(kernels).__name__}"
        )
    if X is None:
        raise ValueError("X is needed to evaluate a list of kernels")
    vectors = [kernel for kernel in bank if not reading.is_matrix(kernel) and not isinstance(kernel, Absence)]
    absences = {
        key: kernel.indicators(X) for kernel in bank if isinstance(kernel, Absence) for key in kernel.views
    }
    rows = {**reading.rows_of(X, vectors), **reading.matrices_of(X, bank, square=True), **absences}
    return bank, RowsOfViews(rows, Presence.of(X, bank, len(X))) if is_views(X) else rows, None


def _resolve_model(model: Any, X: Any) -> tuple[list, dict, str | None]:
    from sklearn.utils.validation import check_is_fitted

    from ..models import reading

    check_is_fitted(model, "kernels_")
    normalize = getattr(model, "normalize", None)
    if X is None:
        if any(map(reading.is_matrix, model.kernels_)):
            raise ValueError(
                "X is needed: a model over ready-made matrices does not hold them; pass a stack (n, n, M)"
            )
        return model.kernels_, _whole_rows(model.expansion_), normalize
    if isinstance(model.kernels, str):
        return *resolve("precomputed", X)[:2], normalize
    return *resolve(model.kernels_, X)[:2], normalize


def _whole_rows(expansion: Any) -> dict:
    """Support vectors that lack no view, by view key."""
    from ..kernels.given import Absence

    entries = zip(expansion.kernels, expansion.gate_of_entry, strict=False)  # those of the first round
    gates = [gate for kernel, gate in entries if gate != NO_GATE and not isinstance(kernel, Absence)]
    if expansion.support_gates is None or not gates:
        return expansion.support_rows
    return take(
        expansion.support_rows, np.flatnonzero(np.all(expansion.support_gates[:, gates] != 0, axis=1))
    )


def _choose(n: int, most: int, random_state: int | None) -> np.ndarray:
    """Sorted ids of the rows to use."""
    if n <= most:
        return np.arange(n)
    if random_state is None:
        return np.unique(np.linspace(0, n - 1, most).astype(int))
    return np.sort(np.random.default_rng(random_state).choice(n, most, replace=False))


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
    """(M, M) cosines of the angles between vectors (M, d); a vector of length zero has 0 with all others and
    1 with itself.
    """
    products = vectors @ vectors.T
    lengths = np.sqrt(np.diagonal(products))
    inverse = 1.0 / np.where(lengths > 0, lengths, 1.0)
    matrix = products * inverse[:, None] * inverse
    matrix = np.clip((matrix + matrix.T) / 2, -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def label_kernel(y: Any, n: int, chosen: np.ndarray, centred: bool = True) -> np.ndarray:
    """(r, r) kernel of the labels of the chosen rows: [y_i = y_j] for classes, y_i y_j for numbers.

    Two classes are -1 and +1 where nothing is centred afterwards; centred, both kernels are the same up to a
    factor.
    """
    from sklearn.utils import column_or_1d
    from sklearn.utils.multiclass import type_of_target

    from ..models.checks import check_lengths

    y = column_or_1d(y)
    check_lengths(n, len(y))
    if type_of_target(y) == "continuous":
        numbers = np.asarray(y, np.float64)[chosen]
        return np.outer(numbers, numbers)
    part = y[chosen]
    same = (part[:, None] == part[None]).astype(np.float64)
    return 2.0 * same - 1.0 if not centred and len(np.unique(y)) == 2 else same
