"""Spans: few functions that many functions of one number are sums of.

    profile_m(t) = sum_r coefficients[m, r] * function_r(t)     to a given error,   m = 1..M, r = 1..R

Kernels such as exp(-gamma_m t) are so much alike that R hardly grows with M: the singular values of the matrix of their values fall
off exponentially, and R is the number of those above the error.
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
    profiles: Sequence[Any], points: np.ndarray, error: float, every: int = 1, groups: tuple[int, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Few functions that span many: profile_m(points) (M, B) = coefficients (M, R) @ functions (R, B).

    To `error` of each profile's largest value; B is the number of points. every : one point of so many tells which combinations are
    needed, where profiles are smooth on the points. groups : (size, larger error): functions come in groups of this size, and a last
    one that is not full is left out where the larger error allows it.
    """
    coarse = values_of(profiles, points[::every])
    scale = np.maximum(coarse.max(axis=1), -coarse.min(axis=1))
    scale[scale == 0] = 1.0
    if len(coarse) == 1:
        return values_of(profiles, points) / scale[:, None], scale[:, None]
    coarse /= scale[:, None]
    for size in (SKETCH_SIZE, 4 * SKETCH_SIZE, len(coarse)):
        # Functions carry the singular values and coefficients stay of order one, so that float32 tables lose nothing.
        left = _directions(coarse, size) * np.sqrt(len(coarse))
        inner = left.T @ coarse / len(coarse)
        rank = _smallest_rank(coarse, left, inner, error)
        if rank is not None:
            rank = rank if groups is None else _whole_groups(coarse, left, inner, rank, *groups)
            functions = inner[:rank] if every == 1 else None
            if functions is None and len(coarse) > size:
                functions = _few_on_grid(profiles, points, left, inner, scale, rank, error, every)
            if functions is None:
                functions = _all_on_grid(profiles, points, left[:, :rank], scale)
            return functions, left[:, :rank] * scale[:, None]
        if size >= len(coarse):
            break
    return values_of(profiles, points) / scale[:, None], np.diag(scale)  # no decay: every kernel is its own function


def _directions(values: np.ndarray, size: int) -> np.ndarray:
    """Left singular vectors of `values` (M, B), the largest first; through a sketch of `size` rows when M is larger than that."""
    if len(values) <= size:
        return np.linalg.svd(values, full_matrices=False)[0]
    # Singular values fall off exponentially, so a sketch keeps all that matters. The mixing is a fixed cosine pattern
    # rather than random numbers: equal input gives equal bits.
    angle = np.outer(np.arange(size) + 0.5, np.arange(len(values)) + 0.5)
    sketch = np.cos(angle * np.pi / len(values)) @ values
    _, lengths, axes = np.linalg.svd(sketch, full_matrices=False)
    axes = axes[lengths >= ROUNDING * lengths[0]]
    return np.linalg.svd(values @ axes.T, full_matrices=False)[0]


def _smallest_rank(values: np.ndarray, left: np.ndarray, inner: np.ndarray, error: float) -> int | None:
    """The smallest R for which left[:, :R] @ inner[:R] is `values` to `error`; None when even all of them do not do."""
    scratch = np.empty((min(CHUNK, len(values)), values.shape[1]))  # fresh memory for every product would cost more than the product

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


def _whole_groups(values: np.ndarray, left: np.ndarray, inner: np.ndarray, rank: int, size: int, error: float) -> int:
    """A rank that fills its last group of functions, where leaving out the rest costs no more than `error`."""
    whole = (rank - 1) // size * size
    if whole == 0:
        return rank
    missed = max(
        np.abs(left[start : start + CHUNK, :whole] @ inner[:whole] - values[start : start + CHUNK]).max()
        for start in range(0, len(values), CHUNK)
    )
    return whole if missed <= error else rank


def _all_on_grid(profiles: Sequence[Any], grid: np.ndarray, left: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Functions (R, B) on the whole grid, as averages over all profiles."""
    functions = np.zeros((left.shape[1], len(grid)))
    for start in range(0, len(profiles), CHUNK):  # all kernels on the whole grid could be a gigabyte
        part = slice(start, start + CHUNK)
        functions += (left[part] / scale[part, None]).T @ values_of(profiles[part], grid)
    return functions / len(profiles)


def _few_on_grid(
    profiles: Sequence,
    grid: np.ndarray,
    left: np.ndarray,
    inner: np.ndarray,
    scale: np.ndarray,
    rank: int,
    error: float,
    every: int,
) -> np.ndarray | None:
    """Functions (rank, B) on the whole grid, from as many profiles as there are directions, chosen to be far from one another.

    None when they are not what they are on the coarse grid, `inner`.
    """
    # All directions above rounding take part, so that what is left out of a chosen profile cannot disturb those that are kept.
    full = max(rank, int(np.sum(np.abs(inner).max(axis=1) > ROUNDING)))
    rest, chosen = left[:, :full].copy(), np.empty(full, int)
    for direction in range(full):  # elimination with pivots; what LAPACK has for it is in SciPy, whose threads numpy's would wait for
        chosen[direction] = pivot = np.abs(rest[:, direction]).argmax()
        rest[:, direction + 1 :] -= np.outer(rest[:, direction] / rest[pivot, direction], rest[pivot, direction + 1 :])
    combine = np.linalg.inv(left[chosen, :full])[:rank] / scale[chosen]
    functions = combine @ values_of([profiles[m] for m in chosen], grid)
    return functions if np.abs(functions[:, ::every] - inner[:rank]).max() <= error / 10 else None


def values_of(profiles: Sequence[Any], grid: np.ndarray) -> np.ndarray:
    """Values (M, B) of functions on a grid (B,)."""
    values = np.empty((len(profiles), len(grid)))
    for row, profile in zip(values, profiles, strict=True):
        row[:] = profile(grid)
    return values
