"""k(x, x) of rows, and the gates that make kernels spherical.

    k(x, z) / sqrt(k(x, x) k(z, z)) = gate(x) k(x, z) gate(z),      gate(x) = 1 / sqrt(k(x, x))

Rows that stay in their source were measured when they were looked at (see `sources`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...kernels.base import Kernel
from ...kernels.normalize import gate_of_diagonal
from ...kernels.pairs.families import NO_GATE, group
from ...kernels.pairs.statistics import Statistic
from .. import sources


def spherical_gates(kernels: Sequence[Kernel], rows: Mapping) -> tuple[np.ndarray | None, list[int]]:
    """Gates (n, J) and the gate of every kernel; kernels whose gate is one whatever the row is have none.

    None without any gate.
    """
    columns, gate_of_kernel = [], []
    for gate in lengths(kernels, rows):
        gate_of_kernel.append(NO_GATE if gate is None else len(columns))
        if gate is not None:
            columns.append(gate)
    return (np.stack(columns, axis=1) if columns else None), gate_of_kernel


def lengths(kernels: Sequence[Kernel], rows: Mapping) -> list[np.ndarray | None]:
    """(n,) 1 / sqrt(k(x, x)) of every kernel; None where k(x, x) is one by its formula: rows of length one
    may be followed by others.
    """
    own = [kernel for kernel in kernels if not _has_length_one(kernel)]
    found = iter(diagonals(own, rows))
    return [None if _has_length_one(kernel) else gate_of_diagonal(next(found)) for kernel in kernels]


def _has_length_one(kernel: Kernel) -> bool:
    """Whether a kernel is a function of a distance that is one at zero."""
    return (
        type(kernel.statistic()).diagonal is Statistic.diagonal
        and float(np.asarray(kernel.profile(np.zeros(1)))[0]) == 1.0
    )


def diagonals(kernels: Sequence[Kernel], rows: Mapping) -> list[np.ndarray]:
    """k(x, x), (n,), of every kernel from rows by view key; what kernels share is computed once."""
    found = {m: sources.known_diagonal(kernel, rows) for m, kernel in enumerate(kernels)}
    unknown = [m for m, diagonal in found.items() if diagonal is None]
    for family in group([kernels[m] for m in unknown], join=True):
        t = family.statistic.diagonal(family.statistic.prepare(rows))
        found.update(
            {
                unknown[member]: np.asarray(family.values(i, t), np.float64)
                for i, member in enumerate(family.members)
            }
        )
    return [found[m] for m in range(len(kernels))]


def row_gates(kernels: Sequence[Kernel], rows: Mapping) -> np.ndarray | None:
    """(n, kernels) gates of new rows, one column per kernel whatever it holds; None without kernels."""
    return (
        np.stack([gate_of_diagonal(diagonal) for diagonal in diagonals(kernels, rows)], axis=1)
        if kernels
        else None
    )


def largest_diagonal(kernel: Kernel, rows: Mapping) -> float:
    """max over rows of |k(x, x)|."""
    known = sources.known_largest(kernel, rows)
    if known is not None:
        return known
    statistic = kernel.statistic()
    return float(
        np.abs(np.asarray(kernel.profile(statistic.diagonal(statistic.prepare(rows))), np.float64)).max()
    )
