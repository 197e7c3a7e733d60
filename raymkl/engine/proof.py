"""Proofs: certificates of the kernels as their formulas state them, whatever precision the rounds work in.

Rounds work with float32 statistics and tables, and with sums that were brought up to date many times. The error of f is the error of a
kernel value times `sum theta` times `sum |a|`, so a gap found that way may be false. When a head believes that it is done, its point
`(a, theta)` is looked at once more: every shard computes, in float64 and from its rows as they came,

    f_i = sum_j a_j sum_e weights[e] gate_e(i) k_e(x_i, x_j) gate_e(j)      of its own rows
    s_e = sum_ij a_i a_j gate_e(i) k_e(x_i, x_j) gate_e(j)                  over its own support rows i and all j

from which the loss, the primal and the dual value follow as they are. If the gap was false, the rounds go on from there: what the
accurate f differs by is kept beside the sums (`Shard.offsets`), and the rounds are then wrong only about what has changed since. That is
mixed-precision refinement, as for systems of linear equations.

Sums of ready-made matrices, of strings and of formulas in float64 are accurate as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.accurate import AccurateSums, accurate_sums
from ..kernels.basis import FormulaBasis, LinearBasis, PowerBasis, StackBasis
from ..kernels.families import NO_GATE
from ..kernels.match_counts import RunBasis
from .rows import take

if TYPE_CHECKING:
    from .messages import Problem
    from .shard import Shard

# Rows and columns of a block of statistics; it stays in the processor's cache while all heads look at it.
BLOCK_ROWS = 256
BLOCK_COLUMNS = 512


@dataclass
class HeadProof:
    """What is to be proved of one head.

    places : (k,) its support rows among the ids of the request. values : (k,) their dual variables. weights : (E,) of the entries,
    normalisation included. combination : (R,) the same over the basis functions. intercepts : (B,) candidates to evaluate the loss at.
    """

    head: int
    places: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    combination: np.ndarray
    intercepts: np.ndarray


@dataclass
class ProofRequest:
    """Points to look at. ids : (K,) sorted support rows of all heads. rows : their features. largest : of every statistic."""

    ids: np.ndarray
    rows: dict
    bounds: list[float]
    heads: list[HeadProof] = field(default_factory=list)


@dataclass
class Proof:
    """A shard's part: losses (B,) of its rows, and quadratic (E,) terms of its support rows, without normalisation factors."""

    losses: np.ndarray
    quadratic: np.ndarray


def is_accurate(problem: Problem, statistic: Any, basis: Any) -> bool:
    """Whether sums over a basis are as good as formulas in float64."""
    if isinstance(basis, StackBasis | LinearBasis | RunBasis):
        return True
    return isinstance(basis, PowerBasis | FormulaBasis) and problem.dtype_of(statistic) == np.float64


def prove(shard: Shard, request: ProofRequest) -> list[Proof]:
    """This shard's part of the proofs; what f differs by from the shard's sums is kept as the offset of the head."""
    sums = {
        f: accurate_sums(family, request.bounds[shard.family_statistic[f]])
        for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True))
        if not is_accurate(shard.problem, family.statistic, basis)
    }
    points = [_Point(shard, part, request.ids, sums) for part in request.heads]
    for s in sorted({shard.family_statistic[f] for f in sums}):
        _sweep(shard, request, s, [f for f in sums if shard.family_statistic[f] == s], points)
    return [point.proof() for point in points]


def _sweep(shard: Shard, request: ProofRequest, s: int, families: list[int], points: list[_Point]) -> None:
    """Go through all pairs of own rows and support rows, a block at a time."""
    statistic = shard.statistics[s]
    columns = statistic.prepare(request.rows, np.float64, shard.centers)
    blocks = range(0, len(columns), BLOCK_COLUMNS)
    parts = [columns.take(slice(first, first + BLOCK_COLUMNS)) for first in blocks]
    portions = -(-shard.n // BLOCK_ROWS)
    moments: dict[int, list] = {}

    def work(start: int, stop: int) -> None:
        mine = moments.setdefault(start, [[point.moments(f) for f in families] for point in points])
        for portion in range(start, stop):
            rows = slice(portion * BLOCK_ROWS, min((portion + 1) * BLOCK_ROWS, shard.n))
            own = statistic.prepare(take(shard.rows, rows), np.float64, shard.centers)
            for first, part in zip(blocks, parts, strict=True):
                stat = np.ascontiguousarray(statistic.pairs(own, part), np.float64)
                _set_diagonal(statistic, stat, own, request.ids[first : first + BLOCK_COLUMNS] - shard.first - rows.start)
                for point, sums in zip(points, mine, strict=True):
                    for f, moment in zip(families, sums, strict=True):
                        point.add(f, moment, stat, rows, slice(first, first + BLOCK_COLUMNS))

    shard.threads.split(portions, work)
    for start in sorted(moments):
        for point, sums in zip(points, moments[start], strict=True):
            for f, moment in zip(families, sums, strict=True):
                point.totals[f] = point.totals[f] + moment


def _set_diagonal(statistic: Any, stat: np.ndarray, own: Any, places: np.ndarray) -> None:
    """The statistic of a row with itself is known exactly. places : (columns,) of the columns among the rows, where they are there."""
    there = np.flatnonzero((places >= 0) & (places < len(stat)))
    if len(there):
        stat[places[there], there] = statistic.diagonal(own.take(places[there]))


class _Point:
    """A point of one head, as one shard sees it."""

    def __init__(self, shard: Shard, part: HeadProof, ids: np.ndarray, sums: dict[int, AccurateSums]):
        self.shard, self.part, self.sums = shard, part, sums
        self.f = np.zeros(shard.n)
        right = np.zeros(len(ids))
        right[part.places] = part.values
        own = np.zeros(shard.n)
        mine = (ids >= shard.first) & (ids < shard.first + shard.n)
        own[ids[mine] - shard.first] = right[mine]
        self.left: dict[int, np.ndarray] = {}
        self.right: dict[int, np.ndarray] = {}
        self.functions, self.totals = {}, {}
        for f, family_sums in sums.items():
            family = shard.problem.families[f]
            gated = family.gate != NO_GATE
            self.left[f] = own * shard.gates[:, family.gate] if gated else own
            self.right[f] = right * shard.problem.gates[ids, family.gate] if gated else right
            self.functions[f] = family_sums.function(part.weights[family.members])
            self.totals[f] = family_sums.moments()

    def moments(self, f: int) -> np.ndarray:
        return self.sums[f].moments()

    def add(self, f: int, moments: np.ndarray, stat: np.ndarray, rows: slice, columns: slice) -> None:
        """Take the pairs of a block into the decision values and into the moments of the quadratic terms."""
        right = self.right[f][columns]
        some = np.flatnonzero(right)  # support rows of other heads, or outside a gate, are not evaluated
        if len(some) == 0:
            return
        if len(some) < 0.7 * len(right):
            stat, right = np.ascontiguousarray(stat[:, some]), right[some]
        values, gate = np.zeros(len(stat)), self.shard.problem.families[f].gate
        self.functions[f](stat, right, values)
        self.f[rows] += values if gate == NO_GATE else values * self.shard.gates[rows, gate]
        left = self.left[f][rows]
        mine = np.flatnonzero(left)
        if len(mine):
            self.sums[f].add(moments, np.ascontiguousarray(stat[mine]), left[mine], right)

    def proof(self) -> Proof:
        shard, part = self.shard, self.part
        h, quadratic = part.head, np.zeros(shard.problem.n_entries)
        known, rough, at = np.zeros(shard.n), np.zeros(shard.n), 0
        for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True)):
            G = shard.G[h][f]
            gate = 1.0 if family.gate == NO_GATE else shard.gates[:, family.gate]
            values = gate * (G @ part.combination[at : at + basis.rank])
            at += basis.rank
            if f in self.sums:
                rough += values
                quadratic[family.members] = self.sums[f].total(self.totals[f])
            else:
                known += values
                quadratic[family.members] = basis.coefficients @ ((gate * shard.a[h]) @ G)
        if self.sums:
            shard.offsets[h] = self.f - rough
        return Proof(shard.losses(h, known + self.f, part.intercepts), quadratic)
