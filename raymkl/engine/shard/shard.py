"""A shard: some of the rows, the statistics of those rows with every cached column, and the gradients of
every head.

For every head and basis function r it keeps

    G[i, r] = sum_j a_j gate(j) basis_r(statistic(x_j, x_i))        for its own rows i

(see `head_rows`), from which f, residuals, quadratic terms and violators follow. It never sees more than its
own rows and the rows that entered a working set. The same class runs in a thread of this process and inside a
Ray actor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ...data.rows import from_block
from ...kernels.pairs.basis import Basis, StackBasis
from ...kernels.pairs.families import NO_GATE
from ...kernels.pairs.statistics import Matrices, Statistic
from ..problem import Head, HeadReply, HeadRequest, Problem, RoundReply, RoundRequest
from ..resources import free_memory, this_node, usable_cpus
from .head_rows import HeadRows, reply_of
from .joint_rows import joint_groups, joint_reply
from .light_blocks import add_light
from .own_rows import OwnRows
from .pair_statistics import PairStatistics
from .stack_family import ShardStacks
from .threads import RowThreads

# Rows whose statistics with themselves are computed at a time, in float64.
DIAGONAL_ROWS = 4096


class Shard:
    """Some of the rows.

    own : those rows. pairs : their statistics with columns. bases : of every family, and `functions` the
    places of each one's among all.
    heads : by number. stacks : work on ready-made matrices. last_reply : in case it was lost. scratch : what
    functions that run here (see `apply`) keep between calls.
    """

    def __init__(self, threads: int = 1, standing: dict[int, list] | None = None):
        """standing : caches over these rows that outlive a run, by serial number (see `rounds.caches`)."""
        self.threads = RowThreads(threads)
        self.standing: dict[int, list] = {} if standing is None else standing

    def load(self, block: pa.Table | dict, first: int, problem: Problem) -> None:
        """Take rows first <= i < first + n, an Arrow block or arrays by view, and forget all that was before.

        Rows that are still in their source are read now.
        """
        self.problem = problem
        self.own = OwnRows(from_block(block, problem.views), first, problem.gates)
        self.pairs = PairStatistics(self.own, problem, self.standing)
        self.bases: list[Basis] = []
        self.functions: list[slice] = []
        self.heads: dict[int, HeadRows] = {}
        self.stacks = ShardStacks(first, self.own.n, self.threads)
        self.last_reply: RoundReply | None = None
        self.scratch: dict[str, Any] = {}

    def resources(self) -> tuple[str, int, int]:
        """(node, CPUs, free bytes) that this shard's process may use, whose memory it shares with the other
        shards of the node.
        """
        return this_node(), usable_cpus(), free_memory()

    # -- setting up --------------------------------------------------------------------------------

    def moments(self) -> dict:
        """Per dense view of a squared-distance statistic: (rows, column sums, sum of squares), to choose a
        centre.
        """
        return {view: self.own.moments(view) for view in self.pairs.centred_views}

    def prepare(self, centers: dict) -> list[float]:
        """Ready the rows for every statistic; returns each statistic's `largest` over these rows."""
        return self.pairs.prepare(self.problem, centers)

    def set_problem(self, problem: Problem) -> None:
        """The same problem in another precision; `prepare` and all that comes after it follow."""
        self.problem = problem

    def set_gates(self, gates: np.ndarray) -> None:
        """Other gates (n_total, J), for heads that come from now on."""
        self.problem = replace(self.problem, gates=gates)
        self.own.set_gates(gates)

    def apply(self, work: Callable, *arguments: Any) -> Any:
        """What a function of the engine returns for this shard: work(shard, *arguments)."""
        return work(self, *arguments)

    def diagonals(self, masks: np.ndarray, gated: bool = True) -> np.ndarray:
        """(H, E) sum over the rows of each mask (H, n_total) of every entry's k(i, i), gates applied unless
        not wanted.

        Without gates, over those rows of the mask that have the views of the entry's kernel.
        """
        own = masks[:, self.own.range]
        sums = np.empty((len(masks), self.problem.n_entries))
        for f, family in enumerate(self.problem.families):
            weights = own * self.own.gates[:, family.gate] ** 2 if gated and family.gate != NO_GATE else own
            if not gated and family.present is not None:
                weights = own * family.present[self.own.range]
            rows = self.pairs.prepared[self.pairs.of_family[f]]
            if isinstance(family.statistic, Matrices):
                diagonal = self.stacks.diagonal(rows.array)
                sums[:, family.members] = weights @ diagonal[:, [kernel.index for kernel in family.kernels]]
                continue
            t = np.asarray(
                family.statistic.diagonal(rows) if gated else self._precise_diagonal(f), np.float64
            )
            if self.own.n and np.all(t == t[0]):  # the distance of a row to itself, for one
                t, weights = t[:1], weights.sum(axis=1, keepdims=True)
            for position, member in enumerate(family.members):
                sums[:, member] = weights @ family.values(position, t)
        return sums

    def _precise_diagonal(self, f: int) -> np.ndarray:
        """(n,) statistics of own rows with themselves, in float64: a constant may be a small difference of
        large sums of them.
        """
        statistic, prepared = self.problem.families[f].statistic, self.pairs.prepared[self.pairs.of_family[f]]
        narrow = self.problem.dtype_of(statistic) != np.float64 and not statistic.reads_strings
        if not narrow or type(statistic).diagonal is Statistic.diagonal:
            return statistic.diagonal(prepared)
        parts = [
            np.arange(start, min(start + DIAGONAL_ROWS, self.own.n))
            for start in range(0, self.own.n, DIAGONAL_ROWS)
        ]
        views = list(statistic.views)
        return np.concatenate(
            [
                np.zeros(0),
                *(statistic.diagonal(statistic.prepare(self.own.take(views, part))) for part in parts),
            ]
        )

    def take_bases(
        self, bases: list[Basis], capacity: int, serial: int | None = None, forget: Sequence[int] = ()
    ) -> bool:
        """Take the bases of the families and reserve a cache of `capacity` columns (memory is touched only
        when used).

        serial : of caches that stand and are to be used instead; returns whether they are here. forget :
        those not wanted any more.
        """
        self.pairs.forget(forget)
        self.bases = bases
        edges = np.cumsum([0, *(basis.rank for basis in bases)]).tolist()
        self.functions = [slice(*ends) for ends in pairwise(edges)]
        return self.pairs.reserve(capacity, serial)

    def keep_caches(self, serial: int) -> None:
        """Have the present caches ready for the next run over these rows."""
        self.pairs.keep(serial)

    def forget_caches(self, serials: Sequence[int]) -> None:
        """Let go of caches that stand."""
        self.pairs.forget(serials)

    def column_sums(self, f: int, ids: np.ndarray, slots: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(n, R) sum_j weights[j] basis_r(i, j) of a family over columns that are cached or ready-made,
        without gates.
        """
        out = np.zeros((self.own.n, self.bases[f].rank))
        self._accumulate(self.bases[f], *self.pairs.kept_block(f, ids, slots), weights, out)
        return out

    def add_heads(self, heads: dict[int, Head]) -> None:
        """Add learning problems by their numbers; dual variables start at zero."""
        for h, head in heads.items():
            self.heads[h] = HeadRows(head, self.own.range, [basis.rank for basis in self.bases])

    def drop_heads(self, numbers: list[int]) -> None:
        """Forget learning problems that are over."""
        for h in numbers:
            self.heads.pop(h, None)  # a shard that replaces another one may never have heard of a head

    # -- a round -----------------------------------------------------------------------------------

    def advance(self, request: RoundRequest) -> RoundReply:
        """Cache the entering columns, apply the changes of every head, and report.

        A round asked for twice is done once.
        """
        if self.last_reply is not None and self.last_reply.round == request.round:
            return self.last_reply
        self.drop_heads(request.drop)
        self.pairs.enter(request)
        for part in request.heads:
            self._change(part)
        changes = {part.head: (part.columns, part.delta) for part in request.heads}
        add_light(
            self,
            request.columns,
            request.column_rows,
            changes,
            {part.head: part.combination for part in request.heads},
        )
        joint: dict[int, HeadReply] = {}
        for parts in joint_groups(request.heads, self.heads).values():
            joint |= joint_reply(self, parts)
        replies = [joint[part.head] if part.head in joint else reply_of(self, part) for part in request.heads]
        self.stacks.forget()
        wanted = [np.concatenate([reply.grow, reply.shrink]) for reply in replies]
        local = self.own.distinct(*(ids - self.own.first for ids in wanted))
        self.last_reply = RoundReply(
            request.round, replies, *self.own.unsent(local, self.pairs.travelling_views)
        )
        return self.last_reply

    def _accumulate(
        self, basis: Basis, block: np.ndarray, slots: np.ndarray, weights: np.ndarray, out: np.ndarray
    ) -> None:
        # Arrays out of Ray's object store are read-only, which compiled code counts as another type; copies
        # of these two are tiny.
        slots, weights = np.array(slots), np.array(weights)
        self.threads.split(
            self.own.n,
            lambda start, stop: basis.accumulate(block, slots, weights, out, start, stop),
            cost=float(len(slots)) * self.own.n * basis.rank,
        )

    def _change(self, part: HeadRequest) -> None:
        """Bring a head's dual variables, and its sums over columns that are at hand, up to date."""
        state = self.heads[part.head]
        state.restage(part.bounds_factor, part.stretch)
        if len(part.columns) == 0:
            return
        mine = self.own.has(part.columns)
        state.a[part.columns[mine] - self.own.first] = part.values[mine]
        for f, (family, basis) in enumerate(zip(self.problem.families, self.bases, strict=True)):
            if family.statistic in self.problem.light:
                continue
            block, places = self.pairs.kept_block(f, part.columns, part.slots)
            weights, live = self.gated(f, part.columns, part.delta)
            places = places[live]
            if len(places) and isinstance(basis, StackBasis):
                self.stacks.add(self.pairs.of_family[f], block, places, basis.matrices, weights, state.G[f])
            elif len(places):
                self._accumulate(basis, block, places, weights, state.G[f])

    def gated(self, f: int, columns: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, Any]:
        """What columns weigh in a family, and which of them (a kernel whose gate is zero for an example is
        not evaluated for it).
        """
        gate = self.problem.families[f].gate
        if gate == NO_GATE:
            return weights, slice(None)
        weights = weights * self.problem.gates[columns, gate]
        live = np.flatnonzero(weights)
        return weights[live], live

    def sums(self, state: HeadRows, combination: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f (m,) of the rows at work as G has it, and what it leaves of quadratic terms: (R,), or (1,) where
        weights are held.
        """
        a = state.of(state.a)
        if state.G is None:
            return state.offset.copy(), np.array([a @ state.offset])
        f_values = np.zeros(len(a)) if state.offset is None else state.offset.copy()
        quadratic = []
        for f, (family, G) in enumerate(zip(self.problem.families, state.G, strict=True)):
            values = G @ combination[self.functions[f]]
            gated = a
            if family.gate != NO_GATE:
                gate = state.of(self.own.gates[:, family.gate])
                values, gated = gate * values, gate * a
            f_values += values
            quadratic.append(gated @ G)
        return f_values, np.concatenate(quadratic)

    def gradients(self, state: HeadRows, local: np.ndarray) -> np.ndarray:
        """(k, R) gradients of own rows that are at work over all basis functions, gates applied."""
        parts = []
        for family, G in zip(self.problem.families, state.G, strict=True):
            rows = G[state.places(local)]
            parts.append(
                rows if family.gate == NO_GATE else rows * self.own.gates[local, family.gate][:, None]
            )
        return np.concatenate(parts, axis=1)

    # -- taking the place of a lost shard ----------------------------------------------------------

    def ping(self) -> bool:
        """Whether this process is alive; answered also while a round is being worked on."""
        return True

    def enter(self, request: RoundRequest) -> None:
        """Compute columns that the caches of the other shards hold."""
        self.pairs.enter(request)

    def resume(self, states: dict[int, tuple[float, np.ndarray]]) -> None:
        """Take over stages and dual variables of heads, by number: (factor of the bounds, a (n_total,))."""
        for h, (bounds_factor, a) in states.items():
            self.heads[h].take_over(bounds_factor, a[self.own.range])

    def hold_heads(self, numbers: list[int]) -> None:
        """Keep f alone for heads whose weights are held; it is zero until a proof says what it is."""
        for h in numbers:
            self.heads[h].hold(np.zeros(self.own.n))

    def rebuild(self, ids: np.ndarray, rows: dict, values: dict[int, np.ndarray]) -> None:
        """Add the part of some columns to the gradients.

        ids : (k,). rows : their features. values : (k,) dual variables by head.
        """
        values = {
            h: a for h, a in values.items() if self.heads[h].G is not None
        }  # what is held a proof brings back
        add_light(
            self,
            ids,
            rows,
            {h: (ids[used], a[used]) for h, a in values.items() if len(used := np.flatnonzero(a))},
        )
        light, statistics = self.problem.light, self.pairs.statistics
        blocks = {
            s: self.pairs.fresh_block(s, ids, rows)
            for s, statistic in enumerate(statistics)
            if statistic not in light
        }
        for h, a in values.items():
            for f, (family, basis) in enumerate(zip(self.problem.families, self.bases, strict=True)):
                if self.pairs.of_family[f] not in blocks:
                    continue
                weights = a if family.gate == NO_GATE else a * self.problem.gates[ids, family.gate]
                block, places = blocks[self.pairs.of_family[f]]
                used = np.flatnonzero(weights)
                if len(used):
                    self._accumulate(basis, block, places[used], weights[used], self.heads[h].G[f])

    # -- asked for now and then --------------------------------------------------------------------

    def fetch(self, ids: np.ndarray) -> dict:
        """Features of own rows."""
        return self.own.take(self.pairs.travelling_views, ids - self.own.first)

    def stack_hessian(self, s: int, *arguments: np.ndarray) -> np.ndarray:
        """Own rows of a combination of ready-made matrices, see `ShardStacks.hessian`."""
        return self.stacks.hessian(s, self.pairs.prepared[s].array, *arguments)

    def stack_change(self, s: int, *arguments: np.ndarray) -> np.ndarray:
        """Own rows of the products of ready-made matrices with a change, see `ShardStacks.change`."""
        return self.stacks.change(s, self.pairs.prepared[s].array, *arguments)

    def f_of(self, wanted: list[tuple[int, np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        """f without the intercept, per (head, combination, ids), of those ids that are own rows, in their
        order.
        """
        found = []
        for h, combination, ids in wanted:
            own = self.own.numbers(ids)
            state = self.heads[h]
            if (
                state.rows is not None or state.G is None
            ):  # of rows that are not at work there are no sums, but a proof
                found.append(state.f[own])
                continue
            values = self.gradients(state, own) @ combination
            found.append(values if state.offset is None else values + state.offset[own])
        return found
