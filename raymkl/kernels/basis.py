"""Bases: how a family of kernels is spanned by few functions of its pair statistic.

    k_m(x, z) = sum_r coefficients[m, r] * basis_r(statistic(x, z)),     r = 1..R

Training keeps `sum_j a_j basis_r(x_j, x_i)` for every row i and every r. Weighted sums of kernels are then weighted sums
of R numbers, so a new weighting costs nothing, and the cost of a step grows with R, not with the number of kernels.

| basis        | statistic                | R |
|---|---|---|
| TableBasis   | non-negative, float32    | numerical rank of the kernels as functions (about 17 for any number of widths) |
| PowerBasis   | polynomial kernels       | number of powers that occur |
| FormulaBasis | any (exact, slower)      | number of kernels |
| StackBasis   | ready-made matrices      | number of different matrices |
| LinearBasis  | of strings               | number of degrees (weighted degree), 1 (spectrum) |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# 2^8 cells per octave: linear interpolation of exp(-gamma t) is off by at most 1.1e-6.
CELL_BITS = 8
# Functions are spanned to this accuracy, relative to each kernel's largest value. Where a coarse span will do, a last group of LANES
# functions that is not full is left out if that costs no more than the second number: groups are what rounds cost, and proofs correct
# what rounds are wrong about.
SPAN_ERROR = 3e-7
COARSE_SPAN_ERROR = 1e-4
# Kernel banks larger than this are spanned through a sketch, which costs less than a full decomposition.
SKETCH_SIZE = 64
# Directions in which normalised profiles differ by less than this are rounding.
ROUNDING = 1e-13
# Kernels evaluated on a whole grid at once.
CHUNK = 256


class Basis:
    """Functions `basis_r` and the `coefficients` (M, R) of the kernels over them."""

    coefficients: np.ndarray

    @property
    def rank(self) -> int:
        return self.coefficients.shape[1]

    def accumulate(self, stat: np.ndarray, slots: np.ndarray, weights: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
        """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop.

        stat : (n_slots, n_rows). slots, weights : (k,). out : (n_rows, R) float64.
        """
        raise TypeError(f"{type(self).__name__} accumulates nothing")

    def function(self, combination: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
        """The function sum_r combination[r] * basis_r: called with statistics and a float64 array (rows, columns) to fill."""
        raise TypeError(f"{type(self).__name__} has no function")

    def matrix(self, stat: np.ndarray, combination: np.ndarray) -> np.ndarray:
        """sum_r combination[r] * basis_r(stat), float64, one value per pair."""
        out = np.empty(stat.shape[:2])
        self.function(combination)(stat, out)
        return out


class TableBasis(Basis):
    """Functions tabulated over the bits of a non-negative float32 statistic (see `compiled`)."""

    def __init__(self, profiles: Sequence[Any], bound: float, coarse: bool = False):
        """profiles : functions of the statistic, one per kernel. bound : largest statistic that occurs. coarse : whether a coarse span
        will do.
        """
        first_edge, grid = log_grid(profiles, bound, CELL_BITS)
        functions, self.coefficients = span(profiles, grid, coarse)
        rank = len(functions)
        from .compiled import LANES

        self.table = aligned_zeros((len(grid), -(-rank // LANES) * LANES))
        self.table[:, :rank] = functions.T
        self.table.flags.writeable = False  # as it will be after a journey through Ray: one compiled version serves both
        self.shift = 23 - CELL_BITS
        self.first = int(np.float32(first_edge).view(np.int32))

    def accumulate(self, stat, slots, weights, out, start, stop):
        from .compiled import COLUMNS, accumulate_table

        odd = -len(slots) % COLUMNS
        if odd:
            slots, weights = np.append(slots, np.repeat(slots[:1], odd)), np.append(weights, np.zeros(odd))
        accumulate_table(stat, slots, weights, self.table, self.shift, self.first, out, start, stop)

    def function(self, combination):
        from .compiled import look_up_float32

        line = self.table[:, : self.rank] @ combination

        def fill(stat: np.ndarray, out: np.ndarray) -> None:
            look_up_float32(np.ascontiguousarray(stat), line, self.shift, self.first, out, 0, stat.shape[0])

        return fill


def aligned_zeros(shape: tuple[int, int]) -> np.ndarray:
    """float32 zeros that start at a cache line, so that a line of a table never straddles more of them than it must."""
    size = 4 * shape[0] * shape[1]
    buffer = np.zeros(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(np.float32).reshape(shape)


def log_grid(profiles: Sequence[Any], bound: float, cell_bits: int) -> tuple[float, np.ndarray]:
    """Cell edges for tables over [0, bound]: 2^cell_bits equal cells in every octave.

    Returns the lower edge of the first cell and all edges, the first of which stands for zero (below the first edge all
    profiles are constant to 1e-8, which is why the grid may start there).
    """
    top = int(np.ceil(np.log2(max(bound, 1e-30) * 1.01)))
    octaves = np.arange(-100, 1)
    steps = np.ldexp(1.0, top + octaves)
    values = _values(profiles, np.concatenate([[0.0], steps]))
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-300)
    far = np.any(np.abs(values[:, 1:] - values[:, :1]) > 1e-8 * largest, axis=0)  # where some profile is not constant any more
    lowest = max(min(int(np.argmax(far)) - 1, len(octaves) - 2), 0) if far.any() else len(octaves) - 2
    edges = [
        np.ldexp(1.0 + np.arange(1 << cell_bits) / (1 << cell_bits), top + octaves[index]) for index in range(lowest, len(octaves) - 1)
    ]
    grid = np.concatenate([*edges, [steps[-1]]])
    first_edge = float(grid[0])
    grid[0] = 0.0
    return first_edge, grid


def span(profiles: Sequence[Any], grid: np.ndarray, whole_groups: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Few functions that span many: profile_m(grid) (M, B) = coefficients (M, R) @ functions (R, B).

    To SPAN_ERROR of each profile's largest value; B is the number of grid points. whole_groups : leave out a last group of functions
    that is not full, where COARSE_SPAN_ERROR allows it.
    """
    # The profiles are smooth on the grid, so every eighth point tells which combinations are needed.
    coarse = _values(profiles, grid[::8])
    scale = np.maximum(coarse.max(axis=1), -coarse.min(axis=1))
    scale[scale == 0] = 1.0
    if len(coarse) == 1:
        return _values(profiles, grid) / scale[:, None], scale[:, None]
    coarse /= scale[:, None]
    for size, step in ((SKETCH_SIZE, 4), (SKETCH_SIZE, 1), (4 * SKETCH_SIZE, 1), (len(coarse), 1)):
        # Functions carry the singular values and coefficients stay of order one, so that float32 tables lose nothing.
        left = _directions(coarse[:, ::step], size) * np.sqrt(len(coarse))
        inner = left.T @ coarse / len(coarse)
        rank = _smallest_rank(coarse, left, inner)
        if rank is not None:
            rank = _whole_groups(coarse, left, inner, rank) if whole_groups else rank
            functions = _few_on_grid(profiles, grid, left, inner, scale, rank) if len(coarse) > size else None
            if functions is None:
                functions = _all_on_grid(profiles, grid, left[:, :rank], scale)
            return functions, left[:, :rank] * scale[:, None]
        if size >= len(coarse) and step == 1:
            break
    return _values(profiles, grid) / scale[:, None], np.diag(scale)  # no decay: every kernel is its own function


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


def _smallest_rank(values: np.ndarray, left: np.ndarray, inner: np.ndarray) -> int | None:
    """The smallest R for which left[:, :R] @ inner[:R] is `values` to SPAN_ERROR; None when even all of them do not do."""
    scratch = np.empty((min(CHUNK, len(values)), values.shape[1]))  # fresh memory for every product would cost more than the product

    def fits(rank: int) -> bool:
        for start in range(0, len(values), CHUNK):
            part = values[start : start + CHUNK]
            rest = np.matmul(left[start : start + CHUNK, :rank], inner[:rank], out=scratch[: len(part)])
            rest -= part
            if max(rest.max(), -rest.min()) > SPAN_ERROR:
                return False
        return True

    low, high = 0, len(inner) + 1  # `low` does not fit; looked for from where the functions become small
    middle = int(np.sum(np.abs(inner).max(axis=1) > SPAN_ERROR))
    while high - low > 1:
        middle = min(max(middle, low + 1), high - 1)
        low, high, middle = (low, middle, middle - 1) if fits(middle) else (middle, high, middle + 1)
    return high if high <= len(inner) else None


def _whole_groups(values: np.ndarray, left: np.ndarray, inner: np.ndarray, rank: int) -> int:
    """A rank that fills its last group of LANES functions, where leaving out the rest costs no more than COARSE_SPAN_ERROR."""
    from .compiled import LANES

    whole = (rank - 1) // LANES * LANES
    if whole == 0 or whole == rank:
        return rank
    missed = max(
        np.abs(left[start : start + CHUNK, :whole] @ inner[:whole] - values[start : start + CHUNK]).max()
        for start in range(0, len(values), CHUNK)
    )
    return whole if missed <= COARSE_SPAN_ERROR else rank


def _all_on_grid(profiles: Sequence[Any], grid: np.ndarray, left: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Functions (R, B) on the whole grid, as averages over all profiles."""
    functions = np.zeros((left.shape[1], len(grid)))
    for start in range(0, len(profiles), CHUNK):  # all kernels on the whole grid could be a gigabyte
        part = slice(start, start + CHUNK)
        functions += (left[part] / scale[part, None]).T @ _values(profiles[part], grid)
    return functions / len(profiles)


def _few_on_grid(
    profiles: Sequence, grid: np.ndarray, left: np.ndarray, inner: np.ndarray, scale: np.ndarray, rank: int
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
    functions = combine @ _values([profiles[m] for m in chosen], grid)
    return functions if np.abs(functions[:, ::8] - inner[:rank]).max() <= SPAN_ERROR / 10 else None


def _values(profiles: Sequence[Any], grid: np.ndarray) -> np.ndarray:
    values = np.empty((len(profiles), len(grid)))
    for row, profile in zip(values, profiles, strict=True):
        row[:] = profile(grid)
    return values


class PowerBasis(Basis):
    """Powers of the statistic, scaled by its bound so that they stay within [-1, 1]."""

    def __init__(self, powers: Sequence[np.ndarray], bound: float):
        """powers : polynomial coefficients (c_0, c_1, ...) of every kernel."""
        scale = float(bound) if bound > 0 else 1.0
        width = max(map(len, powers))
        padded = np.stack([np.concatenate([c, np.zeros(width - len(c))]) for c in powers])
        used = np.flatnonzero(np.abs(padded).max(axis=0) > 0)
        self.exponents = used if len(used) else np.array([0])
        self.exponents.flags.writeable = False
        self.inverse_scale = 1.0 / scale
        self.coefficients = padded[:, self.exponents] * scale ** self.exponents.astype(float)

    def accumulate(self, stat, slots, weights, out, start, stop):
        from .compiled import accumulate_powers

        accumulate_powers(stat, slots, weights, self.exponents, self.inverse_scale, out, start, stop)

    def function(self, combination):
        dense = np.zeros(self.exponents[-1] + 1)
        dense[self.exponents] = combination

        def fill(stat: np.ndarray, out: np.ndarray) -> None:
            t = stat.astype(np.float64) * self.inverse_scale
            out[:] = dense[-1]
            for coefficient in dense[-2::-1]:
                out *= t
                out += coefficient

        return fill


class FormulaBasis(Basis):
    """Every kernel is its own function, evaluated by its formula: exact, at a cost that grows with the number of kernels."""

    def __init__(self, profiles: Sequence[Any]):
        self.profiles = list(profiles)
        self.coefficients = np.eye(len(self.profiles))

    def accumulate(self, stat, slots, weights, out, start, stop):
        block = np.asarray(stat[slots, start:stop], np.float64)
        for r, profile in enumerate(self.profiles):
            out[start:stop, r] += weights @ profile(block)

    def function(self, combination):
        used = [(weight, profile) for weight, profile in zip(combination, self.profiles, strict=True) if weight != 0]

        def fill(stat: np.ndarray, out: np.ndarray) -> None:
            stat = np.asarray(stat, np.float64)
            out[:] = 0.0
            for weight, profile in used:
                out += weight * profile(stat)

        return fill


class StackBasis(Basis):
    """Ready-made matrices: the statistic is the vector of their entries, stored (rows, columns, M). Shards combine them themselves."""

    def __init__(self, index: Sequence[int]):
        """index : which matrix of the stack each kernel is. Its distinct ones are the functions."""
        self.matrices, place = np.unique(np.asarray(index, np.int64), return_inverse=True)
        self.coefficients = np.eye(len(self.matrices))[place]

    def accumulate(self, stat, slots, weights, out, start, stop):
        if not isinstance(stat, np.ndarray):
            stat.add_columns(slots, self.matrices, weights, out, start, stop)
            return
        from .compiled import accumulate_stack

        accumulate_stack(stat, np.arange(len(stat)), slots, self.matrices, weights, out, start, stop)


class LinearBasis(Basis):
    """Kernels that are multiples of numbers of the statistic itself: blocks (rows, columns), or (rows, depth, columns).

    Sums run in float64, and statistics of strings are whole numbers, so that nothing is lost.
    """

    def __init__(self, planes: Sequence[int], factors: Sequence[float]):
        """planes : which of the numbers of a pair each kernel is a multiple of. factors : by how much."""
        self.planes, place = np.unique(np.asarray(planes, np.int64), return_inverse=True)
        self.planes.flags.writeable = False  # as it will be after a journey through Ray: one compiled version serves both
        self.coefficients = np.zeros((len(planes), len(self.planes)))
        self.coefficients[np.arange(len(planes)), place] = factors

    def accumulate(self, stat, slots, weights, out, start, stop):
        from .sequences_compiled import COLUMNS, accumulate_planes

        odd = -len(slots) % COLUMNS
        if odd:
            slots, weights = np.append(slots, np.repeat(slots[:1], odd)), np.append(weights, np.zeros(odd))
        accumulate_planes(_three_dimensional(stat), slots, weights, self.planes, out, start, stop)

    def function(self, combination):
        from .sequences_compiled import combine_planes

        weights = np.ascontiguousarray(combination, np.float64)
        return lambda stat, out: combine_planes(_three_dimensional(stat), self.planes, weights, out)

    def matrix(self, stat, combination):
        out = np.empty((stat.shape[0], stat.shape[-1]))
        self.function(combination)(stat, out)
        return out


def _three_dimensional(stat: np.ndarray) -> np.ndarray:
    return stat[:, None, :] if stat.ndim == 2 else stat
