"""Sums over pairs that are as good as the kernels' formulas, for certificates.

    sum_j right_j sum_m weights[m] k_m(t_ij)   for every row i          (decision values)
    sum_ij left_i right_j k_m(t_ij)            for every kernel m       (quadratic terms)

with float64 statistics t. Evaluating M formulas for every pair would cost M exponentials. Where the statistic
is not negative, the line of its values is cut into cells (see `tables`), 2^4 per octave, in each of which a
polynomial of degree 7 agrees with a kernel to about 1e-15 of its largest value. For the first sum these
become polynomials of degree 3 in 2^9 cells per octave of one function, whatever M is. For the second one, the
moments

    moments[cell, c] = sum over pairs in the cell of  left_i right_j v_ij^c,     c = 0..7,   v in [-1, 1]
    across the cell

tell all kernels at once. Polynomial kernels need no cells, and what is not smooth is evaluated by its
formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..loops.compiled import look_up
from ..loops.wide import pair_moments
from .families import MAX_POWER, Family
from .table_cache import kept
from .tables import EXTREMES, SEVENTH, cells_for, end_of

# Cells in every octave, as powers of two: for moments, and for one function.
CELL_BITS = 4
FINE_CELL_BITS = 9
# What polynomials may miss of a kernel's largest value in the first cell, and anywhere; a family with a
# kernel that is missed by more is evaluated by its formulas.
FIRST_CELL = 1e-14
SMOOTH = 2e-13
# Kernels looked at when a grid is chosen.
CHOSEN = 256
# Blocks of which less than this part of the columns weighs something are copied without the others.
MANY = 0.7

TO_CUBICS = SEVENTH.to_cubics(FINE_CELL_BITS - CELL_BITS) @ SEVENTH.to_powers


def accurate_sums(family: Family, bound: float) -> AccurateSums:
    """The sums of a family whose statistics are at most `bound`."""
    powers = [kernel.powers() for kernel in family.kernels]
    if all(c is not None and len(c) <= MAX_POWER + 1 for c in powers):
        return PowerSums(powers)
    if family.statistic.non_negative:
        cells = kept(
            "accurate",
            family.kernels,
            bound,
            lambda: CellSums([kernel.profile for kernel in family.kernels], end_of(bound)),
        )
        if cells.smooth:
            return cells
    return FormulaSums([kernel.profile for kernel in family.kernels])


class AccurateSums:
    """Sums over blocks of float64 statistics `stat` (rows, columns), for the M kernels of a family."""

    def function(
        self, weights: np.ndarray
    ) -> Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]:
        """add(stat, right, out, room): out[i] += sum_j right[j] sum_m weights[m] k_m(stat[i, j]). weights :
        (M,).

        room : memory for as many numbers as stat has; fresh memory for every block would cost as much as the
        block.
        """
        raise TypeError(f"{type(self).__name__} has no function")

    def moments(self) -> np.ndarray:
        """An empty sum over pairs."""
        raise TypeError(f"{type(self).__name__} has no moments")

    def add(self, moments: np.ndarray, stat: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
        """Add the pairs of a block to a sum, but for those that weigh nothing.

        left : (rows,). right : (columns,).
        """
        raise TypeError(f"{type(self).__name__} adds nothing")

    def total(self, moments: np.ndarray) -> np.ndarray:
        """(M,) the sum for every kernel."""
        raise TypeError(f"{type(self).__name__} has no total")


def weighing(
    stat: np.ndarray, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The part of a block that weighs something."""
    rows, columns = np.flatnonzero(left), np.flatnonzero(right)
    if len(rows) == len(left) and len(columns) == len(right):
        return stat, left, right
    return np.ascontiguousarray(stat[np.ix_(rows, columns)]), left[rows], right[columns]


class CellSums(AccurateSums):
    """Smooth functions of a statistic that is not negative."""

    def __init__(self, profiles: Sequence[Any], bound: float):
        self.profiles = list(profiles)
        chosen = [
            self.profiles[m]
            for m in np.unique(
                np.linspace(0, len(self.profiles) - 1, min(len(self.profiles), CHOSEN)).astype(int)
            )
        ]
        self.cells = cells_for(chosen, bound, CELL_BITS, SEVENTH.nodes, SEVENTH.to_even, FIRST_CELL)
        self.points = self.cells.points(CELL_BITS, SEVENTH.nodes).reshape(-1, SEVENTH.count)
        self.smooth = self._is_smooth(chosen)
        self.values: np.ndarray | None = None

    def _is_smooth(self, profiles: list) -> bool:
        """Whether polynomials are what the functions are, where those through Chebyshev points are worst."""
        between = self.cells.points(CELL_BITS, EXTREMES).reshape(-1, len(EXTREMES))
        for profile in profiles:
            at_nodes = np.asarray(profile(self.points), float)
            missed = np.abs(at_nodes @ SEVENTH.to_extremes.T - profile(between)).max()
            if not missed <= SMOOTH * np.abs(at_nodes).max():
                return False
        return True

    def function(self, weights):
        values = sum(
            (part @ self._at_points(some) for some, part in self._parts(weights)), np.zeros(self.points.size)
        )
        values = values.reshape(self.points.shape)
        table = np.ascontiguousarray((values @ TO_CUBICS.T).reshape(-1, 4))

        def add(stat: np.ndarray, right: np.ndarray, out: np.ndarray, room: np.ndarray) -> None:
            found = room[: stat.size].reshape(stat.shape)
            look_up(stat, table, 52 - FINE_CELL_BITS, self.cells.origin, found, 0, len(stat))
            out += found @ right

        return add

    def moments(self):
        return np.zeros((2 * len(self.points), SEVENTH.count))  # two parts, see `loops.wide.pair_moments`

    def add(self, moments, stat, left, right):
        if np.count_nonzero(right) < MANY * len(right):
            stat, left, right = weighing(stat, left, right)
        rows = np.flatnonzero(left)  # copies of rows would take as long as their sums
        pair_moments(stat, rows, left[rows], right, 52 - CELL_BITS, self.cells.origin, moments)

    def total(self, moments):
        moments = moments[: len(self.points)] + moments[len(self.points) :]
        at_nodes = (moments @ SEVENTH.to_powers).ravel()
        return np.concatenate(
            [self._at_points(some) @ at_nodes for some, _ in self._parts(np.zeros(len(self.profiles)))]
        )

    @staticmethod
    def _parts(weights: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Weights of so many kernels at a time as are evaluated together, and where they begin."""
        return [(start, weights[start : start + CHOSEN]) for start in range(0, len(weights), CHOSEN)]

    def _at_points(self, start: int) -> np.ndarray:
        """(some kernels, points) values of kernels from `start` on.

        Those of a bank of usual size are kept: every proof asks for them.
        """
        if self.values is not None:
            return self.values
        values = np.array([profile(self.points).ravel() for profile in self.profiles[start : start + CHOSEN]])
        if len(self.profiles) <= CHOSEN:
            self.values = values
        return values


class PowerSums(AccurateSums):
    """Polynomials of any statistic. powers : coefficients (c_0, c_1, ...) of every kernel."""

    def __init__(self, powers: Sequence[np.ndarray]):
        width = max(map(len, powers))
        self.powers = np.stack([np.concatenate([c, np.zeros(width - len(c))]) for c in powers])

    def function(self, weights):
        coefficients = weights @ self.powers
        if len(coefficients) == 2 and coefficients[0] == 0.0:  # linear kernels
            return lambda stat, right, out, room: np.add(out, stat @ (coefficients[1] * right), out=out)

        def add(stat: np.ndarray, right: np.ndarray, out: np.ndarray, room: np.ndarray) -> None:
            values = room[: stat.size].reshape(stat.shape)
            values[:] = coefficients[-1]
            for coefficient in coefficients[-2::-1]:  # Horner's rule
                values *= stat
                values += coefficient
            out += values @ right

        return add

    def moments(self):
        return np.zeros(self.powers.shape[1])

    def add(self, moments, stat, left, right):
        stat, left, right = weighing(stat, left, right)
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
        used = [
            (weight, profile) for weight, profile in zip(weights, self.profiles, strict=True) if weight != 0
        ]

        def add(stat: np.ndarray, right: np.ndarray, out: np.ndarray, room: np.ndarray) -> None:
            for weight, profile in used:
                out += weight * (profile(stat) @ right)

        return add

    def moments(self):
        return np.zeros(len(self.profiles))

    def add(self, moments, stat, left, right):
        stat, left, right = weighing(stat, left, right)
        for m, profile in enumerate(self.profiles):
            moments[m] += left @ (profile(stat) @ right)

    def total(self, moments):
        return moments
