"""Tables: kernels that are functions of a non-negative statistic t, looked up instead of evaluated.

Tables have cells in octaves of t + origin, 2^bits equal ones in each:

    cell:      0 .. 2^bits - 1            2^bits .. 2 * 2^bits - 1    ...
    t:         [0, origin)                [origin, 3 origin)          ...      [2^k origin - origin, 2^(k+1)
               origin - origin)

which is the grid that functions such as exp(-gamma t) want: fine where they vary, wide where they have died
away, equal cells near zero. The origin is a power of two below which no profile has varied by much, so that
there are few octaves, and the cell of a statistic is a shift of the bits of t + origin (see `loops.cubics`
and `loops.wide`).

| basis          | statistic | within a cell            | error per kernel value, of its largest |
|---|---|---|---|
| TableBasis     | float32   | degree 3, 2^3 per octave | 2e-6  |
| WideTableBasis | float64   | degree 7, 2^2 per octave (one function alone: 3, 2^7) | 1e-10 |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loops.compiled import accumulate_cubics, accumulate_moments, look_up
from ..loops.lanes import LANES, TERMS
from .basis import Basis
from .spans import span, values_of

# 2^3 cells per octave with polynomials of degree 3: exp(-gamma t) is off by at most 4e-7.
CELL_BITS = 3
# Functions are spanned to this accuracy, relative to each kernel's largest value. Where a coarse span will
# do, a last group of LANES functions that is not full is left out if that costs no more than the second
# number: the coordinator's matrices have as many columns, and proofs correct what rounds are wrong about.
SPAN_ERROR = 3e-7
COARSE_SPAN_ERROR = 1e-4
# 2^2 cells per octave with polynomials of degree 7: exp(-gamma t) is off by at most 1e-10.
WIDE_CELL_BITS = 2
WIDE_SPAN_ERROR = 1e-11
# 2^7 cells per octave with polynomials of degree 3, for one function: off by at most 1e-11.
FINE_CELL_BITS = 7
# Profiles may vary by this part of their largest value below the origin.
FLAT = 0.3
# The most octaves below the bound in which something may happen.
MOST_OCTAVES = 100
# Origins are at least 2 to this power, so that they are normal numbers in float32, too.
LEAST_EXPONENT = -120
# Errors of profiles between the points of a table, of their largest value, beyond which they are no functions
# for a table.
NARROW_ERROR = 5e-6
WIDE_ERROR = 1e-9


@dataclass(frozen=True)
class Cells:
    """Cells over t + origin.

    origin : a power of two. quarters : number of quarters of octaves that there are.
    """

    origin: float
    quarters: int

    @property
    def end(self) -> float:
        """The end of the last cell."""
        return float(np.ldexp(self.origin, self.quarters // 4) * (1 + self.quarters % 4 / 4) - self.origin)

    def points(self, bits: int, within: np.ndarray) -> np.ndarray:
        """Statistics (cells * len(within),) at the given places 0 <= u <= 1 within every one of 2^bits >= 4
        cells per octave.
        """
        cells = 1 << bits
        octave = (1.0 + np.add.outer(np.arange(cells), within) / cells).ravel()
        octaves = np.ldexp(self.origin, np.arange(-(-self.quarters // 4)))
        return (octaves[:, None] * octave - self.origin).ravel()[: (self.quarters * cells // 4) * len(within)]


def end_of(bound: float) -> float:
    """Up to where tables go for statistics up to a bound, in quarters of octaves: all that they know of
    it.
    """
    mantissa, exponent = np.frexp(max(float(bound), 1e-30) * 1.01)
    return float(np.ldexp(np.ceil(8 * mantissa), exponent - 3))


def cells_for(
    profiles: Sequence[Any], bound: float, bits: int, within: np.ndarray, between: np.ndarray, error: float
) -> Cells:
    """The fewest cells for tables up to `bound`, 2^bits per octave, of which the first gives back all
    profiles to `error`.

    within : (p,) places in a cell at which profiles are known. between : (c, p) what those values are
    multiplied with to have the values at c places evenly from 0 to 1. error : of a profile's largest value.
    """
    end = end_of(bound)
    top = int(np.frexp(end)[1])
    exponents = np.arange(max(top - MOST_OCTAVES, LEAST_EXPONENT), top + 1)
    places = np.concatenate([within, np.linspace(0, 1, len(between))]) / (1 << bits)
    points = np.outer(np.ldexp(1.0, exponents), np.append(places, 1.0))
    values = values_of(profiles, np.append(points.ravel(), 0.0))
    largest = np.maximum(np.abs(values).max(axis=1), 1e-300)[:, None]
    at_zero, values = values[:, -1:], values[:, :-1].reshape(-1, *points.shape)
    missed = np.abs(values[:, :, : len(within)] @ between.T - values[:, :, len(within) : -1]).max(axis=2)
    varied = np.abs(values[:, :, -1] - at_zero)
    fits = np.all((missed <= error * largest) & (varied <= FLAT * largest), axis=0)
    first = len(fits) - 1 if fits.all() else max(int(np.argmin(fits)) - 1, 0)
    origin = float(np.ldexp(1.0, exponents[first]))
    octave = int(np.frexp((end + origin) / origin)[1]) - 1
    return Cells(origin, 4 * octave + int(np.ceil(4 * (np.ldexp((end + origin) / origin, -octave) - 1))))


class TableBasis(Basis):
    """Functions of a non-negative float32 statistic, polynomials of degree 3 within a cell (see
    `loops.cubics`).
    """

    def __init__(self, profiles: Sequence[Any], bound: float, coarse: bool = False):
        """profiles : functions of the statistic, one per kernel. bound : largest statistic that occurs.
        coarse : see COARSE_SPAN_ERROR.

        Raises NotSmooth when polynomials do not give back the profiles.
        """
        self.cells = cells_for(profiles, bound, CELL_BITS, CUBIC.nodes, CUBIC.to_even, 1e-6)
        points = self.cells.points(CELL_BITS, CUBIC.nodes)
        functions, self.coefficients = span(
            profiles, points, SPAN_ERROR, groups=(LANES, COARSE_SPAN_ERROR) if coarse else None
        )
        missed = NARROW_ERROR + (COARSE_SPAN_ERROR if coarse else 0.0)
        _check(profiles, self.coefficients, functions, self.cells, CELL_BITS, CUBIC, missed)
        self.table = _lines(functions, CUBIC, LANES, np.float32)
        _read_only(self)

    def accumulate(self, stat, slots, weights, out, start, stop):
        accumulate_cubics(
            stat, slots, weights, self.table, 23 - CELL_BITS, self.cells.origin, out, start, stop
        )

    def combined(self, combination):
        one = copy(self)
        one.coefficients, one.table = np.ones((1, 1)), aligned_zeros((len(self.table), LANES), np.float32)
        one.table[:, 0] = self.table[:, : self.rank] @ combination
        _read_only(one)
        return one

    def function(self, combination):
        lines = (self.table[:, : self.rank] @ combination).reshape(-1, CUBIC.count)
        return _by_table(lines @ FROM_CUBICS.T, CELL_BITS, self.cells.origin)


class WideTableBasis(Basis):
    """Functions of a non-negative statistic, polynomials of degree 7 within a cell (see
    `loops.wide.accumulate_moments`).
    """

    def __init__(self, profiles: Sequence[Any], bound: float):
        """profiles : functions of the statistic, one per kernel. bound : largest statistic that occurs.

        Raises NotSmooth when polynomials do not give back the profiles.
        """
        self.cells, points = _wide_points(profiles, bound)
        functions, self.coefficients = span(profiles, points, WIDE_SPAN_ERROR)
        _check(profiles, self.coefficients, functions, self.cells, WIDE_CELL_BITS, SEVENTH, WIDE_ERROR)
        self.table = _lines(functions, SEVENTH, TERMS, np.float64)
        _read_only(self)

    def accumulate(self, stat, slots, weights, out, start, stop):
        accumulate_moments(
            stat, slots, weights, self.table, 52 - WIDE_CELL_BITS, self.cells.origin, out, start, stop
        )

    def function(self, combination):
        lines = (self.table[:, : self.rank] @ combination).reshape(-1, SEVENTH.count)
        return _by_table((lines @ FROM_SEVENTH.T).reshape(-1, 4), FINE_CELL_BITS, self.cells.origin)


class NotSmooth(ValueError):
    """Profiles that a table cannot hold to the accuracy that is asked for."""


def tabulated(
    profile: Callable[[np.ndarray], np.ndarray], bound: float
) -> Callable[[np.ndarray, np.ndarray], None]:
    """One function of the statistic by a table: called with statistics and a float64 array (rows, columns) to
    fill.

    To 1e-10 of its largest value. Raises NotSmooth when polynomials do not give back the function.
    """
    cells, points = _wide_points([profile], bound)
    values = np.asarray(profile(points), np.float64)[None]
    _check([profile], np.ones((1, 1)), values, cells, WIDE_CELL_BITS, SEVENTH, WIDE_ERROR)
    lines = values.reshape(-1, SEVENTH.count) @ SEVENTH.to_powers.T
    return _by_table((lines @ FROM_SEVENTH.T).reshape(-1, 4), FINE_CELL_BITS, cells.origin)


def _wide_points(profiles: Sequence[Any], bound: float) -> tuple[Cells, np.ndarray]:
    cells = cells_for(profiles, bound, WIDE_CELL_BITS, SEVENTH.nodes, SEVENTH.to_even, WIDE_SPAN_ERROR)
    return cells, cells.points(WIDE_CELL_BITS, SEVENTH.nodes)


def _check(
    profiles: Sequence[Any],
    coefficients: np.ndarray,
    functions: np.ndarray,
    cells: Cells,
    bits: int,
    degree: Degree,
    error: float,
) -> None:
    """Compare with profiles what polynomials through functions (R, points) give where those through Chebyshev
    points are worst.
    """
    between = (functions.reshape(len(functions), -1, degree.count) @ degree.to_extremes.T).reshape(
        len(functions), -1
    )
    true = values_of(profiles, cells.points(bits, EXTREMES))
    if not np.all(np.abs(coefficients @ between - true) <= error * np.abs(true).max(axis=1, keepdims=True)):
        raise NotSmooth("the kernels are no smooth functions of their statistic")


def _lines(functions: np.ndarray, degree: Degree, group: int, dtype: Any) -> np.ndarray:
    """The table of functions (R, points): lines belong to powers within a cell, (cells * count, R padded to
    whole groups).
    """
    rank, size = functions.shape
    table = aligned_zeros((size, -(-rank // group) * group), dtype)
    table[:, :rank] = (degree.to_powers @ functions.T.reshape(-1, degree.count, rank)).reshape(-1, rank)
    return table


def _by_table(table: np.ndarray, bits: int, origin: float) -> Callable[[np.ndarray, np.ndarray], None]:
    """The function with the coefficients `table` (cells, 2 or 4) of 1, u (, u^2, u^3) in each of 2^bits cells
    per octave.
    """

    def fill(stat: np.ndarray, out: np.ndarray) -> None:
        look_up(np.ascontiguousarray(stat), table, 52 - bits, origin, out, 0, stat.shape[0])

    return fill


def _chebyshev(count: int) -> np.ndarray:
    """Points 0 < u < 1 through which polynomials of degree count - 1 come closest to smooth functions."""
    return (1 - np.cos((np.arange(count) + 0.5) * np.pi / count)) / 2


def _powers(places: np.ndarray, count: int) -> np.ndarray:
    """(len(places), count) powers of v = 2 u - 1, which runs from -1 to 1 over a cell."""
    return np.vander(2 * places - 1, count, increasing=True)


# Where in a cell polynomials through Chebyshev points are worst.
EXTREMES = np.array([0.0, 0.5])


class Degree:
    """Polynomials of degree count - 1 within a cell.

    nodes : (count,) places at which functions are evaluated. to_powers, to_extremes, to_even : what values
    there are multiplied with to have coefficients of powers of v, values at EXTREMES, and values at evenly
    spaced places.
    """

    def __init__(self, count: int, even: int):
        self.count, self.nodes = count, _chebyshev(count)
        self.to_powers = np.linalg.inv(_powers(self.nodes, count))
        self.to_extremes = _powers(EXTREMES, count) @ self.to_powers
        self.to_even = _powers(np.linspace(0, 1, even), count) @ self.to_powers

    def to_cubics(self, more_bits: int) -> np.ndarray:
        """(4 * fine, count): from coefficients over v in a cell to those over 1, u, u^2, u^3 in each of fine
        = 2^more_bits cells in it.
        """
        fine, nodes = 1 << more_bits, _chebyshev(4)
        values = _powers((np.add.outer(np.arange(fine), nodes) / fine).ravel(), self.count).reshape(
            fine, 4, self.count
        )
        return (np.linalg.inv(np.vander(nodes, 4, increasing=True)) @ values).reshape(4 * fine, self.count)


CUBIC, SEVENTH = Degree(4, even=5), Degree(8, even=3)
FROM_CUBICS = CUBIC.to_cubics(0)
FROM_SEVENTH = SEVENTH.to_cubics(FINE_CELL_BITS - WIDE_CELL_BITS)


def aligned_zeros(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """Zeros that start at a cache line, so that a line of a table never straddles more of them than it
    must.
    """
    size = np.dtype(dtype).itemsize * shape[0] * shape[1]
    buffer = np.zeros(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


def _read_only(basis: TableBasis | WideTableBasis) -> None:
    """As arrays will be after a journey through Ray: one compiled version serves both, and fits may share a
    basis.
    """
    basis.table.flags.writeable = basis.coefficients.flags.writeable = False
