"""Sums over pairs that are as good as the kernels' formulas, for certificates.

    sum_j right_j sum_m weights[m] k_m(t_ij)   for every row i          (decision values)
    sum_ij left_i right_j k_m(t_ij)            for every kernel m       (quadratic terms)

with float64 statistics t. Evaluating M formulas for every pair would cost M exponentials. Where the statistic is not negative, the
line of its values is cut into cells (one from zero to `edge`, then `CELLS` equal ones in every octave), in each of which a polynomial
of degree 7 agrees with a kernel to about 1e-15 of its largest value. The first sum is then one polynomial per pair, whatever M is. For
the second one, the moments

    moments[cell, k] = sum over pairs in the cell of  left_i right_j v_ij^k,     k = 0..7,   v in [-1, 1] across the cell

tell all kernels at once. Polynomial kernels need no cells, and what is not smooth is evaluated by its formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .families import MAX_POWER, Family

# Coefficients of a cell's polynomial: one register of AVX-512.
DEGREES = 8
# Cells in every octave, as a power of two.
CELL_BITS = 4
# What a polynomial may miss of a kernel's largest value; a family with a kernel that is missed by more is evaluated by its formulas.
SMOOTH = 2e-13
# How near the first cell must come, and how far below the bound it may end, in octaves.
FIRST_CELL = 1e-14
MOST_OCTAVES = 80
# Kernels looked at when a grid is chosen, and evaluated on all its points at once.
CHOSEN = 256

_NODES = np.cos((np.arange(DEGREES) + 0.5) * np.pi / DEGREES)
_COEFFICIENTS = np.linalg.inv(np.vander(_NODES, increasing=True))


def accurate_sums(family: Family, bound: float) -> AccurateSums:
    """The sums of a family whose statistics are at most `bound`."""
    powers = [kernel.powers() for kernel in family.kernels]
    if all(c is not None and len(c) <= MAX_POWER + 1 for c in powers):
        return PowerSums(powers)
    if family.statistic.non_negative:
        cells = CellSums([kernel.profile for kernel in family.kernels], bound)
        if cells.smooth:
            return cells
    return FormulaSums([kernel.profile for kernel in family.kernels])


class AccurateSums:
    """Sums over blocks of float64 statistics `stat` (rows, columns), for the M kernels of a family."""

    def function(self, weights: np.ndarray) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
        """add(stat, right, out): out[i] += sum_j right[j] sum_m weights[m] k_m(stat[i, j]). weights : (M,)."""
        raise TypeError(f"{type(self).__name__} has no function")

    def moments(self) -> np.ndarray:
        """An empty sum over pairs."""
        raise TypeError(f"{type(self).__name__} has no moments")

    def add(self, moments: np.ndarray, stat: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
        """Add the pairs of a block to a sum. left : (rows,). right : (columns,)."""
        raise TypeError(f"{type(self).__name__} adds nothing")

    def total(self, moments: np.ndarray) -> np.ndarray:
        """(M,) the sum for every kernel."""
        raise TypeError(f"{type(self).__name__} has no total")


class CellSums(AccurateSums):
    """Smooth functions of a statistic that is not negative."""

    def __init__(self, profiles: Sequence[Any], bound: float):
        self.profiles = list(profiles)
        top = int(np.ceil(np.log2(max(bound, 1e-250) * 1.0001)))
        chosen = [self.profiles[m] for m in np.unique(np.linspace(0, len(self.profiles) - 1, min(len(self.profiles), CHOSEN)).astype(int))]
        first = _first_octave(chosen, top)
        self.edge = float(np.ldexp(1.0, first))
        self.shift = 52 - CELL_BITS
        self.first = int(np.float64(self.edge).view(np.int64))
        starts = np.ldexp(1.0 + np.arange(1 << CELL_BITS) / (1 << CELL_BITS), np.arange(first, top)[:, None]).ravel()
        widths = np.repeat(np.ldexp(1.0, np.arange(first, top) - CELL_BITS), 1 << CELL_BITS)
        self.starts, self.widths = np.append(0.0, starts), np.append(self.edge, widths)
        self.points = self._points(_NODES)
        self.smooth = self._is_smooth(chosen)

    def _points(self, places: np.ndarray) -> np.ndarray:
        """(cells, k) statistics at places (k,) in [-1, 1] of every cell."""
        return self.starts[:, None] + self.widths[:, None] * (places + 1) / 2

    def _is_smooth(self, profiles: list) -> bool:
        """Whether polynomials are what the functions are, at places between the nodes."""
        between = np.array([-0.999, -0.4, 0.05, 0.6])
        points, values = self._points(between), np.vander(between, DEGREES, increasing=True) @ _COEFFICIENTS
        for profile in profiles:
            at_nodes = np.asarray(profile(self.points), float)
            missed = np.abs(at_nodes @ values.T - profile(points)).max()
            if not missed <= SMOOTH * np.abs(at_nodes).max():
                return False
        return True

    def function(self, weights):
        from .compiled import sum_polynomials

        values = np.zeros(self.points.shape)
        for weight, profile in zip(weights, self.profiles, strict=True):
            if weight != 0:
                values += weight * profile(self.points)
        table = np.ascontiguousarray(values @ _COEFFICIENTS.T)
        return lambda stat, right, out: sum_polynomials(stat, table, self.first, self.shift, self.edge, right, out)

    def moments(self):
        return np.zeros(self.points.shape)

    def add(self, moments, stat, left, right):
        from .compiled import add_moments

        add_moments(stat, left, right, self.first, self.shift, self.edge, moments)

    def total(self, moments):
        met = np.flatnonzero(np.any(moments != 0, axis=1))
        at_nodes, points = (moments[met] @ _COEFFICIENTS).ravel(), self.points[met].ravel()
        return np.array([at_nodes @ profile(points) for profile in self.profiles])


def _first_octave(profiles: list, top: int) -> int:
    """The largest octave e <= top for which one polynomial serves all functions between 0 and 2^e."""
    octaves = np.arange(top, top - MOST_OCTAVES, -1)
    between = np.array([-0.97, -0.5, 0.1, 0.55, 0.95])
    values = np.vander(between, DEGREES, increasing=True) @ _COEFFICIENTS
    widths = np.ldexp(1.0, octaves)[:, None]
    fits = np.ones(len(octaves), bool)
    for profile in profiles:
        at_nodes = np.asarray(profile(widths * (_NODES + 1) / 2), float)
        missed = np.abs(at_nodes @ values.T - profile(widths * (between + 1) / 2)).max(axis=1)
        fits &= missed <= FIRST_CELL * np.abs(at_nodes).max()
    return int(octaves[np.argmax(fits)]) if fits.any() else int(octaves[-1])


class PowerSums(AccurateSums):
    """Polynomials of any statistic. powers : coefficients (c_0, c_1, ...) of every kernel."""

    def __init__(self, powers: Sequence[np.ndarray]):
        width = max(map(len, powers))
        self.powers = np.stack([np.concatenate([c, np.zeros(width - len(c))]) for c in powers])

    def function(self, weights):
        coefficients = weights @ self.powers

        def add(stat: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
            power, out_of_ones = right, float(right.sum())
            out += coefficients[0] * out_of_ones
            values = None
            for coefficient in coefficients[:0:-1]:  # Horner's rule, t * (c_1 + t * (c_2 + ...))
                values = np.full_like(stat, coefficient) if values is None else values + coefficient
                values *= stat
            if values is not None:
                out += values @ power

        return add

    def moments(self):
        return np.zeros(self.powers.shape[1])

    def add(self, moments, stat, left, right):
        moments[0] += left.sum() * right.sum()
        power = stat
        for k in range(1, len(moments)):
            moments[k] += left @ (power @ right)
            power = power * stat if k + 1 < len(moments) else power

    def total(self, moments):
        return self.powers @ moments


class FormulaSums(AccurateSums):
    """Any functions, each evaluated for every pair."""

    def __init__(self, profiles: Sequence[Any]):
        self.profiles = list(profiles)

    def function(self, weights):
        used = [(weight, profile) for weight, profile in zip(weights, self.profiles, strict=True) if weight != 0]

        def add(stat: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
            for weight, profile in used:
                out += weight * (profile(stat) @ right)

        return add

    def moments(self):
        return np.zeros(len(self.profiles))

    def add(self, moments, stat, left, right):
        for m, profile in enumerate(self.profiles):
            moments[m] += left @ (profile(stat) @ right)

    def total(self, moments):
        return moments
