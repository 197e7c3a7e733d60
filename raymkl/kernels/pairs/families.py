"""Families: kernels that share one pair statistic, and the bases that serve them.

An *entry* of a model is a kernel with an optional gate: `gate(x) * k(x, z) * gate(z)`. Entries with the same
statistic and the same gate form a family; the statistic of a pair is computed once for all families that use
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base import Kernel
from .basis import Basis, FormulaBasis, LinearBasis, PowerBasis, StackBasis
from .match_counts import RunBasis
from .statistics import Matrices, Statistic
from .table_cache import table_basis
from .tables import NotSmooth, tabulated

NO_GATE = -1
# Polynomials beyond this degree are evaluated by their formula: powers in float32 would lose too much.
MAX_POWER = 12


@dataclass
class Family:
    """Entries over one statistic and one gate.

    members : (E_f,) positions of its entries in the model's list. kernels : their kernels. gate : gate column
    or NO_GATE.
    planes : (E_f,) which number of a pair each kernel is a function of, for statistics with several. present
    : (n,) which rows have the views that the kernels read, of which alone constants are learned; None for all
    of them.
    """

    statistic: Statistic
    gate: int
    kernels: list[Kernel] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    planes: list[int] = field(default_factory=list)
    present: np.ndarray | None = field(default=None, compare=False)

    def values(self, position: int, t: np.ndarray) -> np.ndarray:
        """Values of one of the kernels.

        t : statistics (rows, columns) or (rows,), with the depth as second axis if there is one.
        """
        return self.kernels[position].profile(t if self.statistic.depth == 1 else t[:, self.planes[position]])

    def basis(
        self, bound: float, exact: bool = False, dtype: Any = np.float32, coarse: bool = False
    ) -> Basis:
        """The basis for training: `bound` is the largest statistic, `dtype` that of statistics.

        exact : formulas are asked for. coarse : whether tables may span the kernels less precisely.
        """
        if isinstance(self.statistic, Matrices):
            return StackBasis([kernel.index for kernel in self.kernels])
        powers = [kernel.powers() for kernel in self.kernels]
        if self.statistic.block_of_its_own:
            return RunBasis([self.statistic.degrees[plane] for plane in self.planes], [c[1] for c in powers])
        if self.statistic.reads_strings and all(map(_is_multiple, powers)):
            return LinearBasis(self.planes, [c[1] for c in powers])
        if all(c is not None and len(c) <= MAX_POWER + 1 for c in powers) and not (
            exact and max(map(len, powers)) > 2
        ):
            return PowerBasis(powers, bound)
        if exact or not self.statistic.non_negative:
            return FormulaBasis([kernel.profile for kernel in self.kernels])
        return table_basis(self.kernels, bound, dtype, coarse)

    def combined(self, weights: np.ndarray, bound: float, tabulated: bool) -> _Combined:
        """The function sum_m weights[m] k_m of the statistic, for float64 statistics up to `bound`."""
        return _Combined(self, weights, bound, tabulated)


class _Combined:
    """A weighted sum of the kernels of a family as one function of the statistic: by formula, or by a fine
    table.
    """

    def __init__(self, family: Family, weights: np.ndarray, bound: float, tabulate: bool):
        self.parts = [(w, kernel) for w, kernel in zip(weights, family.kernels, strict=True) if w != 0]
        self.family, self.weights = family, weights
        self.table = None
        if tabulate and family.statistic.non_negative and len(self.parts) > 1:
            with contextlib.suppress(NotSmooth):
                self.table = tabulated(
                    lambda t: sum(w * kernel.profile(t) for w, kernel in self.parts), bound
                )

    def __call__(self, stat: np.ndarray) -> np.ndarray:
        """Values (rows, columns) of float64 statistics."""
        if self.table is not None:
            out = np.empty(stat.shape)
            self.table(stat, out)
            return out
        total = np.zeros((stat.shape[0], stat.shape[-1]))
        for position, weight in enumerate(self.weights):
            if weight != 0:
                total += weight * self.family.values(position, stat)
        return total


def group(kernels: Sequence[Kernel], gates: Sequence[int] | None = None, join: bool = False) -> list[Family]:
    """Families of a list of kernels, in order of first appearance. gates : gate column of each entry, or
    None.

    join : let one statistic of larger depth stand for several that are computed in one pass (weighted-degree
    kernels of all degrees); the values of a kernel are then those of `Family.values`.
    """
    families: dict[tuple, Family] = {}
    statistics = [kernel.statistic() for kernel in kernels]
    joined = _joined(kernels, statistics, gates or [NO_GATE] * len(kernels)) if join else {}
    for position, (kernel, own) in enumerate(zip(kernels, statistics, strict=True)):
        gate = NO_GATE if gates is None else gates[position]
        statistic = joined.get(own.kin, own) if _is_multiple(kernel.powers()) else own
        family = families.setdefault((statistic, gate), Family(statistic, gate))
        family.kernels.append(kernel)
        family.members.append(position)
        family.planes.append(0 if statistic.depth == 1 else statistic.plane_of(own))
    return list(families.values())


def cell_dtypes(families: Sequence[Family], rows: Mapping, dtype_of: Callable[[Statistic], Any]) -> dict:
    """dtype in which each statistic of these rows is cached, where it may be another one than it is computed
    in.

    Only kernels that are multiples of their statistic read cells of any kind.
    """
    other = {
        family.statistic
        for family in families
        if not all(_is_multiple(kernel.powers()) for kernel in family.kernels)
    }
    return {
        family.statistic: family.statistic.cell_dtype(rows, dtype_of(family.statistic))
        for family in families
        if family.statistic.reads_strings and family.statistic not in other
    }


def _is_multiple(powers: np.ndarray | None) -> bool:
    """Whether a kernel is a multiple of its statistic."""
    return powers is not None and len(powers) == 2 and powers[0] == 0


def _joined(kernels: Sequence[Kernel], statistics: Sequence[Statistic], gates: Sequence[int]) -> dict:
    """Statistics of kin joined into one, by their kin."""
    kin: dict = {}
    for kernel, statistic, gate in zip(kernels, statistics, gates, strict=True):
        if statistic.kin is not None and _is_multiple(kernel.powers()):
            members, used = kin.setdefault(statistic.kin, ([], set()))
            members.append(statistic)
            used.add(gate)
    return {key: members[0].joined(members, len(used) == 1) for key, (members, used) in kin.items()}
