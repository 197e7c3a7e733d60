"""Bases: how a family of kernels is spanned by few functions of its pair statistic.

    k_m(x, z) = sum_r coefficients[m, r] * basis_r(statistic(x, z)),     r = 1..R

Training keeps `sum_j a_j basis_r(x_j, x_i)` for every row i and every r. Weighted sums of kernels are then
weighted sums of R numbers, so a new weighting costs nothing, and the cost of a step grows with R, not with
the number of kernels.

| basis        | statistic                | R |
|---|---|---|
| TableBasis (`tables`), WideTableBasis | non-negative | numerical rank (17 or 28 for any widths) |
| PowerBasis   | polynomial kernels       | number of powers that occur |
| FormulaBasis | any (exact, slower)      | number of kernels |
| StackBasis   | ready-made matrices      | number of different matrices |
| LinearBasis  | of strings               | number of degrees (weighted degree), 1 (spectrum) |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..loops.sequences import COLUMNS, accumulate_planes, combine_planes
from ..loops.vectors import accumulate_lines, accumulate_powers, accumulate_stack
from .stacks import add_stored


class Basis:
    """Functions `basis_r` and the `coefficients` (M, R) of the kernels over them."""

    coefficients: np.ndarray

    @property
    def rank(self) -> int:
        return self.coefficients.shape[1]

    def accumulate(
        self, stat: np.ndarray, slots: np.ndarray, weights: np.ndarray, out: np.ndarray, start: int, stop: int
    ) -> None:
        """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop.

        stat : (n_slots, n_rows). slots, weights : (k,). out : (n_rows, R) float64.
        """
        raise TypeError(f"{type(self).__name__} accumulates nothing")

    def function(self, combination: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
        """The function sum_r combination[r] * basis_r: called with statistics and a float64 array (rows,
        columns) to fill.
        """
        raise TypeError(f"{type(self).__name__} has no function")

    def combined(self, combination: np.ndarray) -> Basis:
        """A basis of that one function."""
        return OneFunction(self.function(combination))

    def matrix(self, stat: np.ndarray, combination: np.ndarray) -> np.ndarray:
        """sum_r combination[r] * basis_r(stat), float64, one value per pair."""
        out = np.empty(stat.shape[:2])
        self.function(combination)(stat, out)
        return out


class OneFunction(Basis):
    """A function that fills arrays, see `Basis.function`."""

    def __init__(self, fill: Callable[[np.ndarray, np.ndarray], None]):
        self.fill, self.coefficients = fill, np.ones((1, 1))

    def accumulate(self, stat, slots, weights, out, start, stop):
        values = np.empty((len(slots), stop - start))
        self.fill(np.ascontiguousarray(stat[slots, start:stop]), values)
        out[start:stop, 0] += weights @ values


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
        if self.is_linear and out.flags.c_contiguous:
            accumulate_lines(stat, slots, weights, self.inverse_scale, out.reshape(-1), start, stop)
            return
        accumulate_powers(stat, slots, weights, self.exponents, self.inverse_scale, out, start, stop)

    @property
    def is_linear(self) -> bool:
        """Whether all kernels are multiples of the statistic."""
        return self.exponents.tolist() == [1]

    def function(self, combination):
        if self.is_linear:
            factor = float(combination[0]) * self.inverse_scale
            return lambda stat, out: np.multiply(stat, factor, out=out, dtype=np.float64)
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
    """Every kernel is its own function, evaluated by its formula: exact, at a cost that grows with the number
    of kernels.
    """

    def __init__(self, profiles: Sequence[Any]):
        self.profiles = list(profiles)
        self.coefficients = np.eye(len(self.profiles))

    def accumulate(self, stat, slots, weights, out, start, stop):
        block = np.asarray(stat[slots, start:stop], np.float64)
        for r, profile in enumerate(self.profiles):
            out[start:stop, r] += weights @ profile(block)

    def function(self, combination):
        used = [
            (weight, profile)
            for weight, profile in zip(combination, self.profiles, strict=True)
            if weight != 0
        ]

        def fill(stat: np.ndarray, out: np.ndarray) -> None:
            stat = np.asarray(stat, np.float64)
            out[:] = 0.0
            for weight, profile in used:
                out += weight * profile(stat)

        return fill


class StackBasis(Basis):
    """Ready-made matrices: the statistic is the vector of their entries, stored (rows, columns, M).

    Shards combine them themselves.
    """

    def __init__(self, index: Sequence[int]):
        """index : which matrix of the stack each kernel is. Its distinct ones are the functions."""
        self.matrices, place = np.unique(np.asarray(index, np.int64), return_inverse=True)
        self.coefficients = np.eye(len(self.matrices))[place]

    def accumulate(self, stat, slots, weights, out, start, stop):
        if not isinstance(stat, np.ndarray):
            add_stored(stat, slots, self.matrices, weights, out, start, stop)
            return
        accumulate_stack(stat, np.arange(len(stat)), slots, self.matrices, weights, out, start, stop)


class LinearBasis(Basis):
    """Kernels that are multiples of numbers of the statistic itself: blocks (rows, columns), or (rows, depth,
    columns).

    Sums run in float64, and statistics of strings are whole numbers, so that nothing is lost.
    """

    def __init__(self, planes: Sequence[int], factors: Sequence[float]):
        """planes : which of the numbers of a pair each kernel is a multiple of. factors : by how much."""
        self.planes, place = np.unique(np.asarray(planes, np.int64), return_inverse=True)
        self.planes.flags.writeable = (
            False  # as it will be after a journey through Ray: one compiled version serves both
        )
        self.coefficients = np.zeros((len(planes), len(self.planes)))
        self.coefficients[np.arange(len(planes)), place] = factors

    def accumulate(self, stat, slots, weights, out, start, stop):
        odd = -len(slots) % COLUMNS
        if odd:
            slots, weights = np.append(slots, np.repeat(slots[:1], odd)), np.append(weights, np.zeros(odd))
        accumulate_planes(_three_dimensional(stat), slots, weights, self.planes, out, start, stop)

    def function(self, combination):
        weights = np.ascontiguousarray(combination, np.float64)
        return lambda stat, out: combine_planes(_three_dimensional(stat), self.planes, weights, out)

    def matrix(self, stat, combination):
        out = np.empty((stat.shape[0], stat.shape[-1]))
        self.function(combination)(stat, out)
        return out


def _three_dimensional(stat: np.ndarray) -> np.ndarray:
    return stat[:, None, :] if stat.ndim == 2 else stat
