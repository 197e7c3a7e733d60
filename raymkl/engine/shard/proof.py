"""Proofs: certificates of the kernels as their formulas state them, whatever precision the rounds work in.

Rounds work with float32 statistics and tables, and with sums that were brought up to date many times. The
error of f is the error of a kernel value times `sum theta` times `sum |a|`, so a gap found that way may be
false. When a head believes that it is done, its point `(a, theta)` is looked at once more: every shard
computes, in float64 and from its rows as they came,

    f_i = sum_j a_j sum_e weights[e] gate_e(i) k_e(x_i, x_j) gate_e(j)      of its own rows
    s_e = sum_ij a_i a_j gate_e(i) k_e(x_i, x_j) gate_e(j)                  over its own support rows i and
    all j

from which the loss, the primal and the dual value follow as they are. If the gap was false, the rounds go on
from there: what the accurate f differs by is kept beside the sums (`HeadRows.offset`), and the rounds are
then wrong only about what has changed since. That is mixed-precision refinement, as for systems of linear
equations.

Sums of ready-made matrices, of strings and of formulas in float64 are accurate as they are.

Computing float64 statistics of rows with many columns would cost as much as all rounds. There the cached ones
are used, with accurate functions of them, and precise values of a sample of the rows tell what that is worth
(`Proof.error`): their errors are those of rounding, random and independent, and to first order they cancel
out of the gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.pairs.accurate import MANY, AccurateSums, accurate_sums
from ...kernels.pairs.basis import FormulaBasis, LinearBasis, PowerBasis, StackBasis
from ...kernels.pairs.families import NO_GATE
from ...kernels.pairs.match_counts import RunBasis
from ...optim.losses import joint_losses
from .light_blocks import add_light
from .sweep import Columns, precise_values, sweep

if TYPE_CHECKING:
    from ..problem import Problem, RoundRequest
    from .shard import Shard

# Rows at work in a shard, at least.
FEWEST_AT_WORK = 256
# Rows of a shard whose precise values tell what rough ones are worth.
SAMPLE = 96


@dataclass
class HeadProof:
    """What is to be proved of one head.

    places : (k,) its support rows among the ids of the request. values : (k,) their dual variables. weights :
    (E,) of the entries, normalisation included. combination : (R,) the same over the basis functions.
    intercepts : (B,) candidates to evaluate the loss at.
    intercept : the best one so far.
    """

    head: int
    places: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    combination: np.ndarray
    intercepts: np.ndarray
    intercept: float


@dataclass
class ProofRequest:
    """Points to look at. ids : (K,) sorted support rows of all heads. rows : their features. bounds : of
    every statistic.

    slots : (K,) where cached statistics may be used, else None. quadratic : whether quadratic terms are
    wanted, or f alone.
    """

    ids: np.ndarray
    rows: dict
    bounds: list[float]
    heads: list[HeadProof] = field(default_factory=list)
    slots: np.ndarray | None = None
    quadratic: bool = True


@dataclass
class Proof:
    """A shard's part: losses (B,) of its rows, and quadratic (E,) terms of its support rows, without
    normalisation factors.

    error, variance : of what rough statistics make of primal - dual, as a sample of rows shows it.
    """

    losses: np.ndarray
    quadratic: np.ndarray
    error: float = 0.0
    variance: float = 0.0


def is_accurate(problem: Problem, statistic: Any, basis: Any) -> bool:
    """Whether sums over a basis are as good as formulas in float64."""
    if isinstance(basis, StackBasis | LinearBasis | RunBasis):
        return True
    return isinstance(basis, PowerBasis | FormulaBasis) and problem.dtype_of(statistic) == np.float64


def prove(shard: Shard, request: ProofRequest) -> list[Proof]:
    """This shard's part of the proofs; what f differs by from the shard's sums is kept as the offset of the
    head.
    """
    families = [
        f
        for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True))
        # Of rows that are not at work there are no sums over light statistics, accurate or not.
        if family.statistic in shard.problem.light or not is_accurate(shard.problem, family.statistic, basis)
    ]
    sums = {
        f: accurate_sums(shard.problem.families[f], request.bounds[shard.pairs.of_family[f]])
        for f in families
    }
    points = [_Point(shard, part, request, sums) for part in request.heads]
    columns = Columns(request.ids, request.rows, request.slots)
    sweep(shard, columns, sums, points)
    proofs = [point.proof() for point in points]
    rough = any(columns.is_rough(shard, shard.pairs.of_family[f]) for f in families)
    for party in _parties(points):
        # The classes of a joint problem have one loss, which their first head brings in.
        first = proofs[points.index(party[0])]
        first.losses = _losses(party)
        if rough:
            first.error, first.variance = _sampled_error(party, columns)
    return proofs


def mask_sums(
    shard: Shard,
    request: RoundRequest,
    ids: np.ndarray,
    slots: np.ndarray,
    rows: dict,
    bounds: list[float],
    masks: np.ndarray,
    weights: list[np.ndarray],
) -> np.ndarray:
    """(H, E) sum_i sum_j masks[h, i] weights[h, j] k_e(x_i, x_j) over own rows i and the given columns j,
    without gates.

    Rows i that lack a view of the kernel are left out; of columns j that is said by their weights. request :
    columns to cache first, for sums that are made of cached ones. ids, slots, rows : (k,) columns, where they
    are cached, and their features. bounds : of the statistics. masks : (H, n_total). weights : of every
    family, (H, k).
    """
    shard.enter(request)
    every = masks[:, shard.own.range]
    own = [
        every if family.present is None else every * family.present[shard.own.range]
        for family in shard.problem.families
    ]
    result, sums = np.zeros((len(masks), shard.problem.n_entries)), {}
    for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True)):
        if family.statistic in shard.problem.light or not is_accurate(shard.problem, family.statistic, basis):
            sums[f] = accurate_sums(family, bounds[shard.pairs.of_family[f]])
            continue
        for h in range(len(masks)):
            result[h, family.members] = basis.coefficients @ (
                own[f][h] @ shard.column_sums(f, ids, slots, weights[f][h])
            )
    points = [
        _Mask([part[h] for part in own], [part[h] for part in weights], sums) for h in range(len(masks))
    ]
    sweep(shard, Columns(ids, rows, slots), sums, points)
    for h, point in enumerate(points):
        for f, totals in point.totals.items():
            result[h, shard.problem.families[f].members] = sums[f].total(totals)
    return result


class _Mask:
    """Sums over all pairs of some rows. left : of every family, (own rows,). right : (columns,) likewise."""

    def __init__(self, left: list[np.ndarray], right: list[np.ndarray], sums: dict[int, AccurateSums]):
        self.left, self.right, self.sums = left, right, sums
        self.totals = {f: family_sums.moments() for f, family_sums in sums.items()}

    def add(
        self, f: int, moments: np.ndarray, stat: np.ndarray, rows: slice, columns: slice, room: np.ndarray
    ) -> None:
        self.sums[f].add(moments, stat, self.left[f][rows], self.right[f][columns])


class _Point:
    """A point of one head, as one shard sees it."""

    def __init__(self, shard: Shard, part: HeadProof, request: ProofRequest, sums: dict[int, AccurateSums]):
        self.shard, self.part, self.sums, self.state = shard, part, sums, shard.heads[part.head]
        self.wants_quadratic, ids = request.quadratic, request.ids
        self.f = np.zeros(shard.own.n)
        right = np.zeros(len(ids))
        right[part.places] = part.values
        own = np.zeros(shard.own.n)
        mine = shard.own.has(ids)
        own[ids[mine] - shard.own.first] = right[mine]
        self.left: dict[int, np.ndarray] = {}
        self.right: dict[int, np.ndarray] = {}
        self.functions, self.totals = {}, {}
        for f, family_sums in sums.items():
            family = shard.problem.families[f]
            gated = family.gate != NO_GATE
            self.left[f] = own * shard.own.gates[:, family.gate] if gated else own
            self.right[f] = right * shard.problem.gates[ids, family.gate] if gated else right
            self.functions[f] = family_sums.function(part.weights[family.members])
            self.totals[f] = family_sums.moments()

    def add(
        self, f: int, moments: np.ndarray, stat: np.ndarray, rows: slice, columns: slice, room: np.ndarray
    ) -> None:
        """Take the pairs of a block into the decision values and into the moments of the quadratic terms."""
        stat, right = self._weighing(f, stat, columns)
        self._add_values(f, stat, right, rows, self.f[rows], room)
        if self.wants_quadratic:
            self.sums[f].add(moments, stat, self.left[f][rows], right)

    def add_values(
        self,
        f: int,
        stat: np.ndarray,
        rows: slice | np.ndarray,
        columns: slice,
        out: np.ndarray,
        room: np.ndarray,
    ) -> None:
        """Add the part of a block to decision values (rows,)."""
        self._add_values(f, *self._weighing(f, stat, columns), rows, out, room)

    def _weighing(self, f: int, stat: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        """A block and what its columns weigh, without those that are no support rows, or those of other
        heads, or outside a gate.
        """
        right = self.right[f][columns]
        some = np.flatnonzero(right)
        if len(some) < MANY * len(right):
            return stat.take(some, axis=1), right[some]
        return stat, right

    def _add_values(
        self, f: int, stat: np.ndarray, right: np.ndarray, rows: Any, out: np.ndarray, room: np.ndarray
    ) -> None:
        values, gate = np.zeros(len(stat)), self.shard.problem.families[f].gate
        self.functions[f](stat, right, values, room)
        out += values if gate == NO_GATE else values * self.shard.own.gates[rows, gate]

    def proof(self) -> Proof:
        shard, part = self.shard, self.part
        state, quadratic = self.state, np.zeros(shard.problem.n_entries)
        known, rough = np.zeros(shard.own.n), np.zeros(1)
        for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True)):
            if f in self.sums and self.wants_quadratic:
                quadratic[family.members] = self.sums[f].total(self.totals[f])
            if state.G is None:
                continue
            gate = 1.0 if family.gate == NO_GATE else state.of(shard.own.gates[:, family.gate])
            values = gate * (state.G[f] @ part.combination[shard.functions[f]])
            if f in self.sums:
                rough = rough + values
            else:
                known += values
                quadratic[family.members] = basis.coefficients @ ((gate * state.a) @ state.G[f])
        if self.sums:
            state.f = known + self.f
            state.offset = state.of(self.f) - rough
        self.true_f = known + self.f
        return Proof(np.zeros(len(part.intercepts)), quadratic)


def _parties(points: list[_Point]) -> list[list[_Point]]:
    """Points whose rows have one loss together: those of the classes of a joint problem, every other one
    alone.
    """
    parties: dict[Any, list[_Point]] = {}
    for point in points:
        head = point.state.head
        parties.setdefault(("joint", head.group) if head.loss.is_joint else point, []).append(point)
    return list(parties.values())


def _losses(party: list[_Point]) -> np.ndarray:
    """(B,) weighted losses at the candidates for the intercept."""
    state = party[0].state
    if not state.head.loss.is_joint:
        return state.losses(party[0].true_f, party[0].part.intercepts, every_row=True)
    F = np.stack([point.true_f for point in party], axis=1)
    return np.array([float(state.terms.bounds @ joint_losses(F, state.terms.targets))])


def _sampled_error(party: list[_Point], columns: Columns) -> tuple[float, float]:
    """What the gap differs by, and the variance of that, from precise values of some rows that have a part in
    it.

    Of row i: bound_i (loss(f_i) - loss(rough f_i)) + a_i (f_i - rough f_i), the second part for every class;
    it is what the quadratic terms differ by, to first order and weighted as they are in the gap. At the
    optimum both cancel.
    """
    terms, b = party[0].state.terms, party[0].part.intercept
    value = joint_losses if terms.loss.is_joint else lambda F, targets: terms.loss.value(F[:, 0] + b, targets)
    F, A = (
        np.stack(parts, axis=1)
        for parts in ([point.state.f for point in party], [point.state.a for point in party])
    )
    matters = np.flatnonzero((terms.bounds > 0) & (A.any(axis=1) | (value(F, terms.targets) > 0)))
    if len(matters) == 0:
        return 0.0, 0.0
    rows = matters[np.unique(np.linspace(0, len(matters) - 1, min(SAMPLE, len(matters))).astype(int))]
    rough, targets = F[rows], terms.targets[rows]
    moved = [precise_values(point.shard, columns, point.sums, point, rows) - point.f[rows] for point in party]
    precise = rough + np.stack(moved, axis=1)
    errors = terms.bounds[rows] * (value(precise, targets) - value(rough, targets)) + np.sum(
        A[rows] * (precise - rough), axis=1
    )
    missed = 0.0 if len(rows) == len(matters) else errors.var() / len(rows)
    return float(errors.mean() * len(matters)), float(missed * len(matters) ** 2)


def review(shard: Shard, request: ProofRequest, held: bool = False) -> None:
    """Choose the rows at work anew, where a proof has shown violators among those that had left, and make
    their sums.

    At work are all rows with a dual variable other than zero, all violators, and half as many of those that
    come nearest to being one.
    held : whether f alone is kept for them.
    """
    for part in request.heads:
        state = shard.heads[part.head]
        reach = state.reach(state.f, part.intercept, every_row=True)
        needed = (state.a != 0) | (reach > 0)
        count = max(int(1.5 * needed.sum()), FEWEST_AT_WORK)
        nearest = np.argsort(np.where(needed, -np.inf, -reach), kind="stable")[:count]
        state.work_on(np.sort(nearest[reach[nearest] > -np.inf]), held)
        if held:
            state.offset = state.of(state.f)
            continue
        add_light(shard, request.ids, request.rows, {part.head: (request.ids[part.places], part.values)})
        state.offset = state.of(state.f) - shard.sums(state, part.combination)[0]
