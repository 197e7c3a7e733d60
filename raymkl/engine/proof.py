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
    from .messages import Problem, RoundRequest
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
    families = [f for f in range(len(shard.bases)) if not is_accurate(shard.problem, shard.problem.families[f].statistic, shard.bases[f])]
    sums = {f: accurate_sums(shard.problem.families[f], request.bounds[shard.family_statistic[f]]) for f in families}
    points = [_Point(shard, part, request.ids, sums) for part in request.heads]
    _sweep(shard, request.ids, request.rows, sums, points)
    return [point.proof() for point in points]


def mask_sums(
    shard: Shard, request: RoundRequest, ids: np.ndarray, slots: np.ndarray, rows: dict, bounds: list[float], masks: np.ndarray, weights: Any
) -> np.ndarray:
    """(H, E) sum_i sum_j masks[h, i] weights[h, j] k_e(x_i, x_j) over own rows i and the given columns j, without gates.

    request : columns to cache first, for sums that are made of cached ones. ids, slots, rows : (k,) columns, where they are cached, and
    their features. bounds : of the statistics. masks : (H, n_total). weights : (H, k).
    """
    shard.enter(request)
    own = masks[:, shard.first : shard.first + shard.n]
    result, sums = np.zeros((len(masks), shard.problem.n_entries)), {}
    for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True)):
        if family.statistic in shard.problem.light or not is_accurate(shard.problem, family.statistic, basis):
            sums[f] = accurate_sums(family, bounds[shard.family_statistic[f]])
            continue
        for h in range(len(masks)):
            result[h, family.members] = basis.coefficients @ (own[h] @ shard.column_sums(f, ids, slots, weights[h]))
    points = [_Mask(own[h], weights[h], sums) for h in range(len(masks))]
    _sweep(shard, ids, rows, sums, points)
    for h, point in enumerate(points):
        for f, totals in point.totals.items():
            result[h, shard.problem.families[f].members] = sums[f].total(totals)
    return result


def _sweep(shard: Shard, ids: np.ndarray, features: dict, sums: dict[int, AccurateSums], points: list) -> None:
    """Go through all pairs of own rows and columns, a block at a time, and let every point take what it wants of them.

    ids, features : of the columns. sums : of the families that are wanted. A point has `add` and, by family, `totals` of its moments.
    """
    for s in sorted({shard.family_statistic[f] for f in sums}):
        families = [f for f in sums if shard.family_statistic[f] == s]
        statistic = shard.statistics[s]
        columns = statistic.prepare(features, np.float64, shard.centers) if len(ids) else []
        parts = [(slice(at, at + BLOCK_COLUMNS), columns.take(slice(at, at + BLOCK_COLUMNS))) for at in range(0, len(ids), BLOCK_COLUMNS)]
        moments: dict[int, list] = {}

        def work(start: int, stop: int, statistic=statistic, parts=parts, families=families, moments=moments) -> None:
            mine = moments.setdefault(start, [[sums[f].moments() for f in families] for _ in points])
            for portion in range(start, stop):
                rows = slice(portion * BLOCK_ROWS, min((portion + 1) * BLOCK_ROWS, shard.n))
                own = statistic.prepare(take(shard.rows, rows), np.float64, shard.centers)
                for some, part in parts:
                    stat = np.ascontiguousarray(statistic.pairs(own, part), np.float64)
                    _set_diagonal(statistic, stat, own, ids[some] - shard.first - rows.start)
                    for point, own_moments in zip(points, mine, strict=True):
                        for f, moment in zip(families, own_moments, strict=True):
                            point.add(f, moment, stat, rows, some)

        shard.threads.split(-(-shard.n // BLOCK_ROWS), work)
        for start in sorted(moments):
            for point, own_moments in zip(points, moments[start], strict=True):
                for f, moment in zip(families, own_moments, strict=True):
                    point.totals[f] = point.totals[f] + moment


def _set_diagonal(statistic: Any, stat: np.ndarray, own: Any, places: np.ndarray) -> None:
    """The statistic of a row with itself is known exactly. places : (columns,) of the columns among the rows, where they are there."""
    there = np.flatnonzero((places >= 0) & (places < len(stat)))
    if len(there):
        stat[places[there], there] = statistic.diagonal(own.take(places[there]))


class _Mask:
    """Sums over all pairs of some rows. left : (own rows,). right : (columns,)."""

    def __init__(self, left: np.ndarray, right: np.ndarray, sums: dict[int, AccurateSums]):
        self.left, self.right, self.sums = left, right, sums
        self.totals = {f: family_sums.moments() for f, family_sums in sums.items()}

    def add(self, f: int, moments: np.ndarray, stat: np.ndarray, rows: slice, columns: slice) -> None:
        left, right = self.left[rows], self.right[columns]
        some, mine = np.flatnonzero(right), np.flatnonzero(left)
        if len(some) < len(right) or len(mine) < len(left):
            stat, left, right = np.ascontiguousarray(stat[np.ix_(mine, some)]), left[mine], right[some]
        self.sums[f].add(moments, stat, left, right)


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
