"""Compiled loops over blocks of pair statistics, with the memory that they work in. The loops themselves are
in the files beside it.

A block `stat` is stored by column: `stat[slot, i]` is the statistic of row i and the example in that slot, so
that a new example is one contiguous line. Every loop releases the interpreter lock; threads share the work by
ranges of rows.

Numba compiles a loop when it first meets arrays of some dtypes, and keeps the result in a file.
"""

from __future__ import annotations

import numpy as np

from . import cubics, vectors, wide
from .lanes import COLUMNS, CUBIC_TERMS, LANES, TERMS, TILE


def accumulate_cubics(
    stat: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    table: np.ndarray,
    shift: int,
    origin: float,
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, with float32
    statistics.

    stat : (n_slots, n_rows) float32. slots, weights : (k,). table : (cells * CUBIC_TERMS, R padded) float32,
    the coefficients of v^c in line CUBIC_TERMS * cell + c. shift, origin : see `tables`. out : (n_rows, R)
    float64.
    """
    _check(table, CUBIC_TERMS, LANES, slots, weights)
    lines, padded = table.shape
    if stat.dtype != np.float32:
        raise TypeError(f"this table is for statistics in float32, got {stat.dtype}")
    places, powers = (
        np.empty((COLUMNS, LANES), np.int32),
        np.empty((COLUMNS, CUBIC_TERMS * LANES), np.float32),
    )
    moments, sums = np.zeros((LANES, lines), np.float32), np.empty((LANES, padded), np.float32)
    cubics.accumulate_cubics(
        stat, slots, weights, table, shift, origin, places, powers, moments, sums, out, start, stop
    )


def accumulate_moments(
    stat: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    table: np.ndarray,
    shift: int,
    origin: float,
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, where functions are
    polynomials in every cell.

    stat : (n_slots, n_rows), non-negative. slots, weights : (k,). table : (cells * TERMS, R padded) float64,
    the coefficients of v^c in line TERMS * cell + c. shift, origin : see `tables`. out : (n_rows, R) float64.
    """
    _check(table, TERMS, TERMS, slots, weights)
    lines, padded = table.shape
    places, powers, sums = np.empty(TILE, np.int64), np.empty((3, TILE)), np.empty((TILE, padded))
    wide.accumulate_moments(
        stat,
        slots,
        weights,
        table,
        shift,
        origin,
        places,
        powers,
        np.zeros((TILE, lines)),
        sums,
        out,
        start,
        stop,
    )


def _check(table: np.ndarray, terms: int, lanes: int, slots: np.ndarray, weights: np.ndarray) -> None:
    """Loops do not look whether they leave an array."""
    lines, padded = table.shape
    if lines % terms or padded % lanes or len(weights) != len(slots):
        raise ValueError(
            f"tables have {terms} lines per cell and lines of whole vectors of {lanes} numbers, and every "
            "slot has a weight; "
            f"got {lines} lines of {padded} numbers, {len(slots)} slots, {len(weights)} weights"
        )


def look_up(
    stat: np.ndarray, table: np.ndarray, shift: int, origin: float, out: np.ndarray, start: int, stop: int
) -> None:
    """out[i, j] = the function at stat[i, j] for start <= i < stop; in every cell a polynomial of u, 0 <= u <
    1.

    stat, out : (rows, columns), stat non-negative. table : (cells, 4) float64, coefficients of 1, u, u^2,
    u^3.
    shift, origin : see `tables`; bits are those of float64 whatever the statistic is.
    """
    if table.shape[1] != 4:
        raise ValueError(f"cells of a table have 4 coefficients, got {table.shape[1]}")
    wide.look_up(stat, table, shift, origin, out, start, stop)


def warm_up() -> None:
    """Load the loops of a shard's rounds, so that a new process does it while it waits for others and not in
    round one.
    """
    stat, norms = np.ones((1, 1), np.float32), np.ones(1, np.float32)
    accumulate_cubics(
        stat,
        np.zeros(1, np.int64),
        np.ones(1),
        np.ones((CUBIC_TERMS, LANES), np.float32),
        20,
        0.5,
        np.zeros((1, 1)),
        0,
        1,
    )
    vectors.squared_norms(stat, np.ones(1))
    vectors.squares_in_place(stat, norms, norms)
    vectors.finish_squared_distances(stat.copy(), norms, norms, stat, np.zeros(1, np.int64), 0)
