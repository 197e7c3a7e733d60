"""The problem as the engine is told it: families of kernels, their gates, the precision of statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...data.rows import row_count
from ...data.views import is_sparse
from ...engine import Head, Problem
from ...kernels.base import Kernel
from ...kernels.defaults import beyond_float32
from ...kernels.pairs.families import cell_dtypes, group
from ...kernels.pairs.statistics import InnerProduct, SquaredDistance
from ..missing.gating import Gating, without_constant_gates
from .diagonals import largest_diagonal

# With dtype="auto", problems with at most this many kernel values use float64.
SMALL_PROBLEM = 1_000_000
# The same for p > 2, with statistics that are kept.
SMALL_PROBLEM_LARGE_P = 50_000_000
# In float64, so many kernel values are computed by their formulas in less time than it takes to make a table.
FEW_VALUES = 50_000
# With dtype="auto", statistics without an upper bound (inner products, values of kernels) are float64 when C
# times their largest value exceeds this: f is then a small difference of large numbers.
LARGE_VALUES = 1_000.0
# Statistics of dense rows with at most this many columns are not cached.
LIGHT_COLUMNS = 64


def problem_of(
    rows: dict,
    kernels: list[Kernel],
    heads: list[Head],
    gating: Gating,
    normalize: object,
    dtype: str,
    exact: bool,
) -> Problem:
    """What is to be solved over these rows. kernels : of every entry. gating : gates of the rows and of the
    entries. normalize, dtype, exact : as of the estimators.
    """
    for head in heads:
        head.norm.check(len(kernels))
    n = row_count(rows)
    values = n * n * len(kernels)
    learned = normalize not in (None, "spherical")
    families = group(*without_constant_gates(kernels, gating.gates, gating.of_entry, learned), join=True)
    for family in families:
        family.present = gating.present_of(family.gate)
    light = light_statistics(families, rows)
    # Where weights are not bounded (p > 2, say) quadratic terms may vanish: their round-off decides about
    # the gap, and light statistics cost little more in float64.
    cheap = values <= SMALL_PROBLEM_LARGE_P or all(family.statistic in light for family in families)
    bounded = all(head.norm.bounded for head in heads)
    small = values <= SMALL_PROBLEM or (not bounded and cheap)
    automatic = dtype == "auto"
    double = dtype == "float64" or (automatic and small) or beyond_float32(rows, kernels, dtype == "float32")
    # The gates of "spherical" bring all values down to one.
    may_be_wide = automatic and not double and normalize != "spherical"
    problem = Problem(
        views=list(rows),
        families=families,
        n_rows=n,
        n_entries=len(kernels),
        gates=gating.gates,
        dtype=np.float64 if double else np.float32,
        exact=exact or (double and values <= FEW_VALUES),
        coarse=bounded,
        may_widen=automatic and not double,
        light=light,
        wide=wide_statistics(rows, families, heads) if may_be_wide else frozenset(),
        depths={key: array.shape[2] for key, array in rows.items() if getattr(array, "ndim", 2) == 3},
    )
    problem.cells = cell_dtypes(families, rows, problem.dtype_of)
    return problem


def wide_statistics(rows: dict, families: list, heads: list[Head]) -> frozenset:
    """Statistics to compute in float64 although others are float32."""
    largest = max(head.bounds.max() * max(head.path) for head in heads)
    return frozenset(
        family.statistic
        for family in families
        if family.statistic.cacheable
        and not family.statistic.non_negative
        and largest * max(largest_diagonal(kernel, rows) for kernel in family.kernels) > LARGE_VALUES
    )


def light_statistics(families: list, rows: Mapping) -> frozenset:
    """Statistics of so few columns that computing them takes no longer than reading them from memory."""
    return frozenset(
        family.statistic
        for family in families
        if isinstance(family.statistic, SquaredDistance | InnerProduct)
        and not is_sparse(rows[family.statistic.view])
        and rows[family.statistic.view].shape[1] <= LIGHT_COLUMNS
    )
