"""Compiled loops over blocks of pair statistics: what they take and give. The loops themselves are in `loops`.

A block `stat` is stored by column: `stat[slot, i]` is the statistic of row i and the example in that slot, so that a new
example is one contiguous line. Every loop releases the interpreter lock; threads share the work by ranges of rows.

Nothing here imports numba: a loop comes out of a file of machine code if there is one (see `machine_code`).
"""

from __future__ import annotations

import numpy as np

from .machine_code import Loop

# Rows of a table are padded to whole groups of this many float32: one register of AVX-512, two or four of narrower machines.
LANES = 16
# Columns added in one go, so that partial sums are loaded and stored once for all of them.
COLUMNS = 4
# Rows handled together: a few cache lines of statistics, whose partial sums stay in the first-level cache.
TILE = 64
# Coefficients of a polynomial in a cell of a wide table: a register of AVX-512 full of float64, as are the functions taken together.
TERMS = 8

_TABLE = {"shift": 15, "origin": 0.5, "start": 0, "stop": 64}

# target[slots[i], first + j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j])
finish_squared_distances = Loop(
    "finish_squared_distances", "products:T[2] a_norms:T[1] b_norms:T[1] target:T[2]= slots:int64[1] first:int64", trial={"first": 0}
)
# products[i, j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j])
squares_in_place = Loop("squares_in_place", "products:T[2]= a_norms:T[1] b_norms:T[1]")
# out[i] = sum_d array[i, d]^2, summed in float64
squared_norms = Loop("squared_norms", "array:T[2] out:float64[1]=", fastmath=True)
# block[i, j] = block[j, i] for the given rows i and columns j (disjoint sets)
mirror = Loop("mirror", "block:T[2]= rows:int64[1] columns:int64[1]")
# target[target_rows[i], target_columns[j]] = source[source_rows[i], source_columns[j]] for all i, j
copy_pairs = Loop(
    "copy_pairs",
    "source:T[2] source_rows:int64[1] source_columns:int64[1] target:T[2]= target_rows:int64[1] target_columns:int64[1]",
)
# out[i, r] += sum_k weights[k] * (stat[slots[k], i] * inverse_scale) ** exponents[r] for start <= i < stop
accumulate_powers = Loop(
    "accumulate_powers",
    "stat:T[2] slots:int64[1] weights:float64[1] exponents:int64[1] inverse_scale:float64 out:float64[2]= start:int64 stop:int64",
    trial={"inverse_scale": 0.7, "start": 0, "stop": 64},
)
# Ready-made kernel matrices: out[i, r] += sum_k weights[k] * stack[rows[i], columns[k], matrices[r]] for start <= i < stop
accumulate_stack = Loop(
    "accumulate_stack",
    "stack:T[3] rows:int64[1] columns:int64[1] matrices:int64[1] weights:float64[1] out:float64[2]= start:int64 stop:int64",
    trial={"start": 0, "stop": 64},
)
# out[i, j] = sum_r weights[r] * stack[rows[i], columns[j], matrices[r]] for start <= i < stop
combine_stack = Loop(
    "combine_stack",
    "stack:T[3] rows:int64[1] columns:int64[1] matrices:int64[1] weights:float64[1] out:float64[2]= start:int64 stop:int64",
    fastmath=True,
    trial={"start": 0, "stop": 64},
)
# out[i] += sum_k weights[k] * lines[k, i]
add_lines = Loop("add_lines", "lines:T[2] weights:float64[1] out:float64[1]=")
# What square matrices are judged by, for pairs j <= i, start <= i < stop (see `loops.survey_stack`); all results : (M,)
survey_stack = Loop(
    "survey_stack",
    "stack:T[3] roots:float64[2] largest:float64[1]= asymmetry:float64[1]= excess:float64[1]= start:int64 stop:int64",
    trial={"start": 0, "stop": 64},
)
# Statistics of all pairs of rows of A (n_a, d) and B (n_b, d), out : (n_a, n_b).
l1_distances = Loop("l1_distances", "A:T[2] B:T[2] out:T[2]=", fastmath=True)
chi2_distances = Loop("chi2_distances", "A:T[2] B:T[2] out:T[2]=", fastmath=True)
intersections = Loop("intersections", "A:T[2] B:T[2] out:T[2]=", fastmath=True)

_accumulate_table = Loop(
    "accumulate_table",
    "stat:float32[2] slots:int64[1] weights:float64[1] table:float32[2] shift:int64 origin:float64 sums:float32[2]= out:float64[2]= "
    "start:int64 stop:int64",
    trial=_TABLE,
)
_accumulate_moments = Loop(
    "accumulate_moments",
    "stat:T[2] slots:int64[1] weights:float64[1] table:float64[2] shift:int64 origin:float64 places:int64[1]= powers:float64[2]= "
    "moments:float64[2]= sums:float64[2]= out:float64[2]= start:int64 stop:int64",
    trial={"shift": 49, "origin": 0.5, "start": 0, "stop": 64},
    module="raymkl.kernels.wide_loops",
)
# moments[cell, c] += left[i] * right[j] * v(stat[i, j])^c for all pairs; moments : (2 * cells, TERMS)
pair_moments = Loop(
    "pair_moments",
    "stat:float64[2] left:float64[1] right:float64[1] shift:int64 origin:float64 moments:float64[2]=",
    trial={"shift": 49, "origin": 0.5},
    module="raymkl.kernels.wide_loops",
)
# By the number of coefficients in a cell.
_look_up = {
    terms: Loop(
        name,
        "stat:T[2] table:float64[2] shift:int64 origin:float64 out:float64[2]= start:int64 stop:int64",
        trial={"shift": 46, "origin": 0.5, "start": 0, "stop": 64},
        module="raymkl.kernels.wide_loops",
    )
    for terms, name in ((2, "look_up_linear"), (4, "look_up_cubic"))
}


def accumulate_table(
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
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, with float32 statistics.

    stat : (n_slots, n_rows) float32, non-negative. slots, weights : (k,), k a multiple of COLUMNS (pad with weight 0).
    table : (cells + 1, R padded) float32. shift, origin : see `tables`. out : (n_rows, R) float64.
    """
    if len(slots) % COLUMNS or len(weights) != len(slots) or table.shape[1] % LANES:
        raise ValueError(
            f"slots and weights come in groups of {COLUMNS} and tables in lines of {LANES} numbers; "
            f"got {len(slots)} slots, {len(weights)} weights, lines of {table.shape[1]}"
        )
    sums = np.empty((TILE, table.shape[1]), np.float32)
    if stat.dtype != np.float32:
        raise TypeError(f"this table is for statistics in float32, got {stat.dtype}")
    _accumulate_table(stat, slots, weights, table, shift, origin, sums, out, start, stop)


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
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, where functions are polynomials in every cell.

    stat : (n_slots, n_rows), non-negative. slots, weights : (k,). table : (cells * TERMS, R padded) float64, the coefficients of v^c in
    line TERMS * cell + c. shift, origin : see `tables`. out : (n_rows, R) float64.
    """
    lines, padded = table.shape
    if lines % TERMS or padded % TERMS or len(weights) != len(slots):
        raise ValueError(
            f"tables have {TERMS} lines per cell and lines of whole vectors of {TERMS} numbers, and every slot has a weight; "
            f"got {lines} lines of {padded} numbers, {len(slots)} slots, {len(weights)} weights"
        )
    places, powers, sums = np.empty(TILE, np.int64), np.empty((3, TILE)), np.empty((TILE, padded))
    _accumulate_moments(stat, slots, weights, table, shift, origin, places, powers, np.zeros((TILE, lines)), sums, out, start, stop)


def look_up(stat: np.ndarray, table: np.ndarray, shift: int, origin: float, out: np.ndarray, start: int, stop: int) -> None:
    """out[i, j] = the function at stat[i, j] for start <= i < stop; in every cell a polynomial of u, 0 <= u < 1.

    stat, out : (rows, columns), stat non-negative. table : (cells, 2) or (cells, 4) float64, coefficients of 1, u or 1, u, u^2, u^3.
    shift, origin : see `tables`; bits are those of float64 whatever the statistic is.
    """
    if table.shape[1] not in _look_up:
        raise ValueError(f"cells of a table have {' or '.join(map(str, _look_up))} coefficients, got {table.shape[1]}")
    _look_up[table.shape[1]](stat, table, shift, origin, out, start, stop)


def warm_up() -> None:
    """Load the loops of a shard's rounds, so that a new process does it while it waits for others and not in round one."""
    for loop in (_accumulate_table, finish_squared_distances, squares_in_place, squared_norms):
        loop.load("float32")
