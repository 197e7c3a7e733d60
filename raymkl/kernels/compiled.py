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

_TABLE = {"shift": 15, "first": int(np.float32(0.5).view(np.int32)), "start": 0, "stop": 64}
_WIDE_TABLE = {**_TABLE, "shift": 46, "first": int(np.float64(0.5).view(np.int64))}

# target[slots[i], first + j] = max(0, a_norms[i] + b_norms[j] - 2 products[i, j])
finish_squared_distances = Loop(
    "finish_squared_distances", "products:T[2] a_norms:T[1] b_norms:T[1] target:T[2]= slots:int64[1] first:int64", trial={"first": 0}
)
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

_CELLS = {"first": int(np.float64(0.5).view(np.int64)), "shift": 48, "edge": 0.5}
_sum_polynomials = Loop(
    "sum_polynomials",
    "stat:float64[2] bits:int64[2] table:float64[2] first:int64 shift:int64 edge:float64 weights:float64[1] out:float64[1]=",
    fastmath=True,
    trial=_CELLS,
)
_add_moments = Loop(
    "add_moments",
    "stat:float64[2] bits:int64[2] left:float64[1] right:float64[1] first:int64 shift:int64 edge:float64 moments:float64[2]=",
    trial=_CELLS,
)
_accumulate_table = Loop(
    "accumulate_table",
    "bits:int32[2] slots:int64[1] weights:float64[1] table:float32[2] shift:int64 first:int64 sums:float32[2]= out:float64[2]= "
    "start:int64 stop:int64",
    trial=_TABLE,
)
_look_up_float32 = Loop(
    "look_up_float32",
    "bits:int32[2] table:float64[1] shift:int64 first:int64 out:float64[2]= start:int64 stop:int64",
    trial=_TABLE,
)
_look_up_float64 = Loop(
    "look_up_float64",
    "bits:int64[2] table:float64[1] shift:int64 first:int64 out:float64[2]= start:int64 stop:int64",
    trial=_WIDE_TABLE,
)


def accumulate_table(
    stat: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    table: np.ndarray,
    shift: int,
    first: int,
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """out[i, r] += sum_k weights[k] * basis_r(stat[slots[k], i]) for start <= i < stop, with float32 statistics.

    stat : (n_slots, n_rows) float32, non-negative. slots, weights : (k,), k a multiple of COLUMNS (pad with weight 0).
    table : (cells + 1, R padded) float32. shift, first : bits dropped, and the bit pattern of the first cell. out : (n_rows, R) float64.
    """
    if len(slots) % COLUMNS or len(weights) != len(slots) or table.shape[1] % LANES:
        raise ValueError(
            f"slots and weights come in groups of {COLUMNS} and tables in lines of {LANES} numbers; "
            f"got {len(slots)} slots, {len(weights)} weights, lines of {table.shape[1]}"
        )
    sums = np.empty((TILE, table.shape[1]), np.float32)
    _accumulate_table(_bits(stat, np.float32, np.int32), slots, weights, table, shift, first, sums, out, start, stop)


def look_up_float32(stat: np.ndarray, table: np.ndarray, shift: int, first: int, out: np.ndarray, start: int, stop: int) -> None:
    """out[i, j] = interpolated table value of stat[i, j] for start <= i < stop. stat : float32, table : (cells + 1,), out : float64."""
    _look_up_float32(_bits(stat, np.float32, np.int32), table, shift, first, out, start, stop)


def look_up_float64(stat: np.ndarray, table: np.ndarray, shift: int, first: int, out: np.ndarray, start: int, stop: int) -> None:
    """The same for float64 statistics (`shift` and `first` refer to their 64-bit patterns)."""
    _look_up_float64(_bits(stat, np.float64, np.int64), table, shift, first, out, start, stop)


def sum_polynomials(stat: np.ndarray, table: np.ndarray, first: int, shift: int, edge: float, weights: np.ndarray, out: np.ndarray) -> None:
    """out[i] += sum_j weights[j] * P(stat[i, j]), P the polynomial of the statistic's cell (see `loops`). stat : float64, >= 0."""
    _sum_polynomials(stat, _bits(stat, np.float64, np.int64), table, first, shift, edge, weights, out)


def add_moments(stat: np.ndarray, left: np.ndarray, right: np.ndarray, first: int, shift: int, edge: float, moments: np.ndarray) -> None:
    """moments[cell, k] += left[i] * right[j] * v^k for all pairs of a block, v in [-1, 1] across the cell. stat : float64, >= 0."""
    _add_moments(stat, _bits(stat, np.float64, np.int64), left, right, first, shift, edge, moments)


def _bits(stat: np.ndarray, number: type, integer: type) -> np.ndarray:
    """The bits of the statistics, without a copy."""
    if stat.dtype != number:
        raise TypeError(f"this table is for statistics in {np.dtype(number)}, got {stat.dtype}")
    return stat.view(integer)


def warm_up() -> None:
    """Load the loops of a shard's rounds, so that a new process does it while it waits for others and not in round one."""
    for loop in (_accumulate_table, finish_squared_distances, squared_norms):
        loop.load("float32")
