"""Spans: few functions that many functions of one number are sums of.

    profile_m(t) = sum_r coefficients[m, r] * function_r(t)     to a given error,   m = 1..M, r = 1..R

Kernels such as exp(-gamma_m t) are so much alike that R hardly grows with M: the singular values of the
matrix of their values fall off exponentially, and R is the number of those above the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Kernel banks larger than this are spanned through a sketch, which costs less than a full decomposition.
SKETCH_SIZE = 64
# Directions in which normalised profiles differ by less than this are rounding.
ROUNDING = 1e-14
# Kernels evaluated on a whole grid at once.
CHUNK = 256


def span(
    profiles: Sequence[Any], points: np.ndarray, error: float, groups: tuple[int, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Few functions that span many: profile_m(points) (M, B) = coefficients (M, R) @ functions (R, B).

    To `error` of each profile's largest value; B is the number of points. groups : (size, larger error):
    functions come in groups of this size, and a last one that is not full is left out where the larger error
    allows it.
    """
    values = values_of(profiles, points)
    scale = np.maximum(values.max(axis=1), -values.min(axis=1))
    scale[scale == 0] = 1.0
    values /= scale[:, None]
    if len(values) == 1:
        return values, scale[:, None]
    for size in (SKETCH_SIZE, 4 * SKETCH_SIZE, len(values)):
        # Functions carry the singular values and coefficients stay of order one, so that float32 tables lose
        # nothing.
        left = _directions(values, size) * np.sqrt(len(values))
        inner = left.T @ values / len(values)
        rank = _smallest_rank(values, left, inner, error)
        if rank is not None:
            rank = rank if groups is None else _whole_groups(values, left, inner, rank, *groups)
            return inner[:rank], left[:, :rank] * scale[:, None]
        if size >= len(values):
            break
    return values, np.diag(scale)  # no decay: every kernel is its own function


def _directions(values: np.ndarray, size: int) -> np.ndarray:
    """Left singular vectors of `values` (M, B), the largest first; through a sketch of `size` rows when M is
    larger than that.
    """
    if len(values) <= size:
        return np.linalg.svd(values, full_matrices=False)[0]
    # Singular values fall off exponentially, so a sketch keeps all that matters. The mixing is a fixed cosine
    # pattern rather than random numbers: equal input gives equal bits.
    angle = np.outer(np.arange(size) + 0.5, np.arange(len(values)) + 0.5)
    sketch = np.cos(angle * np.pi / len(values)) @ values
    _, lengths, axes = np.linalg.svd(sketch, full_matrices=False)
    axes = axes[lengths >= ROUNDING * lengths[0]]
    return np.linalg.svd(values @ axes.T, full_matrices=False)[0]


def _smallest_rank(values: np.ndarray, left: np.ndarray, inner: np.ndarray, error: float) -> int | None:
    """The smallest R for which left[:, :R] @ inner[:R] is `values` to `error`; None when even all of them do
    not do.
    """
    scratch = np.empty(
        (min(CHUNK, len(values)), values.shape[1])
    )  # fresh memory for every product would cost more than the product

    def fits(rank: int) -> bool:
        for start in range(0, len(values), CHUNK):
            part = values[start : start + CHUNK]
            rest = np.matmul(left[start : start + CHUNK, :rank], inner[:rank], out=scratch[: len(part)])
            rest -= part
            if max(rest.max(), -rest.min()) > error:
                return False
        return True

    low, high = 0, len(inner) + 1  # `low` does not fit; looked for from where the functions become small
    middle = int(np.sum(np.abs(inner).max(axis=1) > error))
    while high - low > 1:
        middle = min(max(middle, low + 1), high - 1)
        low, high, middle = (low, middle, middle - 1) if fits(middle) else (middle, high, middle + 1)
    return high if high <= len(inner) else None


def _whole_groups(
    values: np.ndarray, left: np.ndarray, inner: np.ndarray, rank: int, size: int, error: float
) -> int:
    """A rank that fills its last group of functions, where leaving out the rest costs no more than
    `error`.
    """
    whole = (rank - 1) // size * size
    if whole == 0:
        return rank
    missed = max(
        np.abs(left[start : start + CHUNK, :whole] @ inner[:whole] - values[start : start + CHUNK]).max()
        for start in range(0, len(values), CHUNK)
    )
    return whole if missed <= error else rank


def values_of(profiles: Sequence[Any], grid: np.ndarray) -> np.ndarray:
    """Values (M, B) of functions on a grid (B,)."""
    values = np.empty((len(profiles), len(grid)))
    for row, profile in zip(values, profiles, strict=True):
        row[:] = profile(grid)
    return values
