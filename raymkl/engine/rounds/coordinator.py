"""The coordinator: runs rounds over a pool of shards for any number of heads, until every head is certified.

    set up     statistics are prepared, bases built, normalisation constants learned, heads added
    round      one call to every shard: (rows entering, changes of every head, new weights) -> (violators, gradients,
               quadratic terms, losses); then certificate, working set, sub-problem and weight step of every head
    finish     dual variables, weights, intercept and certificate of every head

It knows pools only by `call_all` and `call_some`, so it runs the same in this process and inside an actor.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from ...kernels.pairs.tables import WideTableBasis
from ..faults.policy import FailurePolicy
from ..faults.recovery import NO_IDS, bring_up_to_date, restore
from ..plan import plan_of
from ..problem import Head, HeadRequest, Problem
from ..programs.program import Program
from ..resources import usable_cpus
from ..shard.blas_threads import one_blas_thread
from ..shard.proof import HeadProof, ProofRequest, prove, review
from ..shard.threads import RowThreads
from ..sizing import together
from .blocks import WorkingBlocks
from .caches import CachesOfRows
from .crew import Crew
from .head import HeadSolver
from .head_result import HeadResult, feasible, result_of
from .head_state import NARROW_PATIENCE, PATIENCE
from .head_summary import HeadSummary, Step
from .leader import Leader
from .shared import Shared

# Error of a kernel value, relative to the mean of its diagonal.
ROUND_OFF = {"float32": 1e-6, "tables": 1e-10, "float64": 1e-14}
# A proof with cached statistics holds if a sample shows an error of the gap below this part of the tolerance.
SAMPLED_PART = 0.05


class Coordinator:
    """Trains heads over a pool.

    `rounds(heads)` trains a given list. Heads may also come and go: `open`, then `add`, `round_once` and `drop` as wanted.
    """

    def __init__(
        self,
        pool: Any,
        problem: Problem,
        budget: int | None = None,
        threads: int | None = None,
        policy: FailurePolicy | None = None,
        standing: CachesOfRows | None = None,
    ):
        """policy : what to do when shards are lost (None: none may be). standing : caches over these rows that outlive the run.

        threads : of the coordinator; None takes one per usable CPU, because the shards rest while it works.
        """
        threads = threads or usable_cpus()
        self.crew = Crew(pool, policy, lambda shard: bring_up_to_date(self, shard))
        self.shared = Shared(self.crew, problem, budget, standing)
        self.round = 0
        # Heads at work, and their changes that the shards have not heard of yet.
        self.solvers: dict[int, HeadSolver] = {}
        self.steps: dict[int, Step] = {}
        self.history: list[dict] = []
        self.results: dict[int, list[HeadResult]] = {}
        self.leaders: dict[int, Leader] = {}
        self.factors: dict[int, np.ndarray] = {}
        self.diagonals: dict[int, np.ndarray] = {}
        self.waiting: deque[list[tuple[int, Head]]] = deque()
        self.dropped: list[int] = []
        self.buffers: dict[int, np.ndarray] = {}
        self.restarted: set[int] = set()
        # Heads whose watched rows are wanted after every round, and their decision values in the last one.
        self.peek: set[int] = set()
        self.peeked: dict[int, np.ndarray] = {}
        self.threads = RowThreads(threads)
        self.heads_at_a_time = ThreadPoolExecutor(threads)
        self.one_thread = RowThreads(1)
        self.numbered = 0
        self.shard_seconds = self.seconds_before = 0.0
        self.finished: set[int] = set()
        self.limits: Any = None

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, heads: list[Head]) -> list[list[HeadResult]]:
        """Train all heads; returns the results of every head's stages, in the order of the heads."""
        for _ in self.rounds(heads):
            pass
        return self.outcome(heads)

    def outcome(self, heads: list[Head] | Program) -> Any:
        """What was learned, after `rounds`: the results of every head's stages, or what a program hands back."""
        return heads.outcome() if isinstance(heads, Program) else [self.results[h] for h in range(len(heads))]

    def rounds(self, heads: list[Head] | Program, state: dict | None = None) -> Iterator[list[dict]]:
        """Train all heads, yielding the new rows of the history after every round; `results` holds what was learned.

        state : of an earlier run (see `recovery.state_of`) to go on from.
        """
        try:
            if isinstance(heads, Program):
                yield from heads.rounds(self)
                self.shared.keep_caches()
                return
            self.finished = set() if state is None else restore(self, heads, state)
            self.open(len(heads), together(heads))
            self.add(heads)
            while self.busy:
                yield self.round_once()
            self.shared.keep_caches()
        finally:
            self.close()

    def close(self) -> None:
        """End the threads."""
        self.shared.let_go_of_caches()
        self.threads.close()
        self.heads_at_a_time.shutdown()
        if self.limits is not None:
            self.limits.restore_original_limits()

    def open(self, n_heads: int, together: int = 1) -> None:
        """Prepare statistics and bases, and plan memory for so many heads at a time (or as many as fit, `together` at least)."""
        self.started = time.perf_counter()
        if n_heads > 1:  # sub-problems run side by side, and BLAS must not start threads in each of them
            self.one_blas_thread()
        self.together = together
        self.shared.prepare()
        self.shared.open(n_heads, together)
        self.blocks = self._working_blocks()

    def _working_blocks(self) -> WorkingBlocks:
        shared = self.shared
        return WorkingBlocks(shared.problem, shared.bases, shared.centers, shared.seen, self.threads, self._ask_stacks)

    def one_blas_thread(self) -> None:
        """Let BLAS work with one thread until the end of the run."""
        if self.limits is None:
            self.limits = one_blas_thread()

    def set_gates(self, gates: np.ndarray) -> None:
        """Other gates (n, J) for heads that are added from now on; no head may be at work."""
        self.shared.set_gates(gates)

    @property
    def seconds(self) -> float:
        """Since the start of the run, including the time before it was resumed."""
        return self.seconds_before + time.perf_counter() - self.started

    @property
    def busy(self) -> bool:
        return bool(self.solvers or self.waiting)

    def add(self, heads: list[Head]) -> list[int]:
        """New heads; they join the next round, or wait until there is room. Returns their numbers."""
        numbers = list(range(self.numbered, self.numbered + len(heads)))
        self.numbered += len(heads)
        parties: dict[Any, list] = {}
        for h, head in zip(numbers, heads, strict=True):
            if h in self.finished:
                continue
            parties.setdefault(("alone", h) if head.group is None else ("group", head.group), []).append((h, head))
        self.waiting.extend(parties.values())
        return numbers

    def drop(self, numbers: list[int]) -> None:
        """Forget heads, finished or not; the shards do so with the next round."""
        wanted = set(numbers)
        for h in numbers:
            if h in self.solvers:
                del self.solvers[h], self.factors[h], self.diagonals[h]
                self.leaders.pop(h, None)
                self.steps.pop(h, None)
                self.blocks.forget(h)
                self.dropped.append(h)
                self.crew.told(h)
        self.waiting = deque(party for party in self.waiting if not wanted & {h for h, _ in party})

    def round_once(self, paused: Container[int] = ()) -> list[dict]:
        """One round for all heads that are not done, except the `paused` ones; returns the new rows of the history."""
        self._admit()
        active = [h for h in sorted(self.solvers) if h not in paused]
        if not active:
            return []
        self._review([h for h in active if self.solvers[h].review_due])
        summaries = self._round(active, self.steps)
        for h, summary in zip(active, summaries, strict=True):
            self.solvers[h].absorb(summary)
        for leader in dict.fromkeys(self.leaders[h] for h in active if h in self.leaders):
            leader.absorb_members()
        ready = [h for h in active if self.solvers[h].ready]
        worked_in = np.dtype(self.shared.problem.dtype).name
        precision = {h: "proved" if self.shared.accurate or h in ready else worked_in for h in active}
        self._settle(ready)
        rows = self._record(active, precision)
        self._finish([h for h in active if self.solvers[h].done], active)
        self._step([h for h in active if h in self.solvers and h not in self.restarted])
        return rows

    def _admit(self) -> None:
        """Take waiting heads in as long as there is room."""
        chosen: list[tuple[int, Head]] = []
        while self.waiting:
            there = len(self.solvers) + len(chosen)
            if there and there + len(self.waiting[0]) > self.shared.plan.heads:
                break
            chosen += self.waiting.popleft()
        if not chosen:
            return
        chosen = [(h, replace(head, shrinks=self._may_shrink(h, head))) for h, head in chosen]
        heads = [head for _, head in chosen]
        masks = np.stack([(head.bounds > 0).astype(float) for head in heads])
        diagonal = np.sum(self.crew.ask("diagonals", masks), axis=0)
        factors = self.shared.normalisations(heads, masks, diagonal)
        diagonal = np.abs(diagonal) / np.maximum(masks.sum(axis=1), 1)[:, None]
        error = self._round_off(diagonal)
        self.crew.ask("add_heads", dict(chosen))
        groups: dict[int, list[int]] = {}
        for k, (h, head) in enumerate(chosen):
            coefficients = self.shared.coefficients * factors[k][:, None]
            # Held weights may stand still for long between two steps.
            steady = self.shared.problem.may_widen and head.solver == "chunking" and head.theta_step != "cutting_plane"
            patience = NARROW_PATIENCE if steady else PATIENCE
            plan = self.shared.plan
            self.solvers[h] = HeadSolver(head, coefficients, plan.working_set, plan.new, factors[k] * error[k], patience)
            self.factors[h], self.diagonals[h], self.steps[h] = factors[k], diagonal[k], Step()
            self.results.setdefault(h, [])
            if head.start is not None:
                self.steps[h] = self._starting_step(self.solvers[h])
            if head.group is not None:
                groups.setdefault(head.group, []).append(h)
        for members in groups.values():
            leader = Leader([self.solvers[h] for h in members])
            self.leaders.update(dict.fromkeys(members, leader))
        self.blocks.share(len(self.solvers))

    def _may_shrink(self, h: int, head: Head) -> bool:
        """Whether a head can do with sums for the rows near the margin: light statistics only, more rows than one working set, nobody who
        looks at other rows between the rounds.
        """
        light = all(statistic in self.shared.problem.light for statistic in self.shared.statistics)
        alone = head.group is None and not head.every_row and h not in self.peek
        return light and alone and not self.shared.accurate and self.shared.problem.n_rows > self.shared.plan.working_set

    @staticmethod
    def _starting_step(solver: HeadSolver) -> Step:
        """The given dual variables, brought into the head's box, as a change from zero."""
        solver.a = feasible(solver.head.start[0], solver.lower, solver.upper)
        ids = np.flatnonzero(solver.a)
        return Step(ids, solver.a[ids], solver.a[ids])

    def _settle(self, ready: list[int]) -> None:
        """Look once more, in full precision, at heads that believe they are done; they are, or go on."""
        if ready and not self.shared.accurate:
            for h, (losses, s) in zip(ready, self._proofs(ready), strict=True):
                self.solvers[h].take_proof(losses, s)
            moved = [h for h in ready if self.solvers[h].renew_weights()]
            for h, (losses, s) in zip(moved, self._proofs(moved, quadratic=False) if moved else [], strict=True):
                self.solvers[h].take_proof(losses, s)
        parties = dict.fromkeys(self.leaders.get(h, self.solvers[h]) for h in ready)
        for party in parties:
            party.settle()
        # Heads that can do no better in this precision go on in a wider one, if there is one.
        if any(party.exhausted and party.certificate.gap > party.head.tol for party in parties):
            self._widen()

    def _widen(self) -> None:
        """Go on with float64 statistics, from the points where all heads are. Nothing changes where there is no room for them."""
        if not self.shared.problem.may_widen:
            return
        wide, heads = replace(self.shared.problem, dtype=np.float64, may_widen=False), self.shared.plan.heads
        try:
            plan_of(wide, self.crew.pool.ranges, self.shared.problem.n_entries, heads, self.together, self.shared.budget)
        except ValueError:
            return
        # Without a plan, shards that replace lost ones are not told of heads: all of them are below.
        self.shared.widen(wide)
        self.shared.prepare()
        self.shared.open(heads, self.together)
        self.blocks = self._working_blocks()
        self.blocks.share(len(self.solvers))
        for h, solver in self.solvers.items():
            solver.widened(self.shared.coefficients * self.factors[h][:, None], self.factors[h] * self._round_off(self.diagonals[h]))
            self.steps[h] = Step()
        for leader in dict.fromkeys(self.leaders.values()):
            leader.widened()
        for shard in range(len(self.crew.pool.ranges)):
            self.crew.refresh(shard)

    def _round_off(self, diagonal: np.ndarray) -> np.ndarray:
        """(..., E) how wrong entries of kernel matrices are, by the dtype of their statistics and the tables. diagonal : their mean."""
        error = diagonal.copy()
        for family, basis in zip(self.shared.problem.families, self.shared.bases, strict=True):
            narrow = self.shared.problem.dtype_of(family.statistic) == np.float32
            error[..., family.members] *= ROUND_OFF["float32" if narrow else "tables" if isinstance(basis, WideTableBasis) else "float64"]
        return error

    def _review(self, heads: list[int]) -> None:
        """Choose the rows at work of heads whose proof has failed; the shards have the f of all rows that it has shown."""
        for held in (True, False):
            some = [h for h in heads if self.solvers[h].held == held]
            if some:
                self.crew.ask("apply", review, self.proof_request(some), held)
        for h in heads:
            self.solvers[h].review_due = False

    def proof_request(self, heads: list[int]) -> ProofRequest:
        """The present points of some heads."""
        solvers = [self.solvers[h] for h in heads]
        ids = np.flatnonzero(np.any([solver.told != 0 for solver in solvers], axis=0))
        request = ProofRequest(ids, self.shared.rows_of(ids) if self.shared.compared and len(ids) else {}, self.shared.bounds)
        for h, solver in zip(heads, solvers, strict=True):
            places = np.flatnonzero(solver.told[ids])
            point = (places, solver.told[ids[places]], solver.theta * self.factors[h], solver.combination)
            request.heads.append(HeadProof(h, *point, solver.intercepts, solver.intercept))
        return request

    def _proofs(self, heads: list[int], quadratic: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """Accurate losses (B,) and quadratic terms (E,) of the present points of some heads. quadratic : else these are known already."""
        found: dict[int, tuple] = {}
        # Large weights of vanishing quadratic terms (p > 2, say) ask for all the precision there is.
        rough = [h for h in heads if self.shared.cached and self.solvers[h].head.norm.bounded]
        for some, precise in ((rough, False), (None, True)):
            some = [h for h in heads if h not in found] if some is None else some
            if not some:
                continue
            request = replace(self.proof_request(some), quadratic=quadratic)
            if not precise:
                request.slots = self.shared.cache.slot[request.ids]
            parts = self.crew.ask("apply", prove, request)
            for k, h in enumerate(some):
                losses, terms, error, variance = (
                    np.sum([getattr(part[k], name) for part in parts], axis=0) for name in ("losses", "quadratic", "error", "variance")
                )
                allowed = SAMPLED_PART * self.solvers[h].head.tol * abs(self.solvers[h].certificate.primal)
                if precise or abs(error) + 3.0 * np.sqrt(variance) <= allowed:
                    found[h] = losses, terms * self.factors[h] if quadratic else self.solvers[h].s
        return [found[h] for h in heads]

    def _finish(self, done: list[int], active: list[int]) -> None:
        """Keep the results of heads that are done with a stage; they go on with the next one or leave.

        active : heads of this round. Others may have made a step that the shards do not know yet: there is no f to show of them.
        """
        curious = [h for h in active if h in self.peek and h not in done]
        watched = [h for h in done + curious if self.solvers[h].head.watch is not None]
        wanted = [(h, self.solvers[h].combination, np.sort(self.solvers[h].head.watch)) for h in watched]
        values = self.crew.ask("f_of", wanted) if wanted else []
        # Shards own ascending ranges of rows, so their parts join to the order of the sorted ids.
        held_out = {h: np.concatenate([part[k] for part in values]) for k, h in enumerate(watched)}
        for h, f in held_out.items():
            watch = self.solvers[h].head.watch
            held_out[h] = f[np.searchsorted(np.sort(watch), watch)] + self.solvers[h].certificate.intercept
        self.peeked = {h: held_out[h] for h in curious if h in held_out}
        for h in done:
            self.results[h].append(result_of(self.solvers[h], self.factors[h], held_out.get(h)))
        leaders = dict.fromkeys(self.leaders[h] for h in done if h in self.leaders)
        for party in [self.solvers[h] for h in done if h not in self.leaders] + list(leaders):
            if not party.last_stage:
                party.next_stage()
        self.restarted = {h for h in done if not self.solvers[h].done}
        self.finished.update(h for h in done if h not in self.restarted)
        self.drop([h for h in done if h not in self.restarted])

    def _round(self, active: list[int], steps: dict[int, Step]) -> list[HeadSummary]:
        """One call to every shard (several when a warm start brings more columns than the cache holds)."""
        for h in active:
            # All columns of a round must be cached at once; a long warm start goes in portions.
            while len(steps[h].ids) > self.shared.plan.working_set:
                portion, steps[h] = steps[h][: self.shared.plan.working_set], steps[h][self.shared.plan.working_set :]
                self._call([h], {h: portion})
        return self._call(active, steps)

    def _call(self, active: list[int], steps: dict[int, Step]) -> list[HeadSummary]:
        self.round += 1
        touched = np.unique(np.concatenate([steps[h].ids for h in active])).astype(np.int64)
        request, _ = self.shared.entering(touched, np.any([solver.a != 0 for solver in self.solvers.values()], axis=0), self.round)
        request.columns, request.drop, self.dropped = touched, self.dropped, []
        if self.shared.problem.light and len(touched):
            self.shared.columns_computed += len(touched)
            request.column_rows = self.shared.rows_of(touched)
        for h in active:
            solver, step = self.solvers[h], steps[h]
            slots = self.shared.cache.slots(step.ids) if self.shared.cached else step.ids
            request.heads.append(
                HeadRequest(
                    head=h,
                    columns=step.ids,
                    slots=slots,
                    delta=step.delta,
                    values=step.values,
                    combination=solver.combination,
                    intercepts=solver.intercepts,
                    watch=solver.working_set,
                    count=self._violators_wanted(solver),
                    spaced=solver.rounds == 0 and solver.head.start is None,
                    bounds_factor=solver.bounds_factor,
                    stretch=solver.stretch,
                    leave=solver.leave,
                    hold=solver.hold,
                )
            )
        called = time.perf_counter()
        replies = self.crew.advance(request)
        for h in active:
            self.solvers[h].stretch = 1.0
            if steps[h] is self.steps.get(h):  # else it was a portion, and more is to come
                self.steps[h] = Step()
                self.crew.told(h)
        self.shard_seconds = time.perf_counter() - called
        for reply in replies:
            self.shared.seen.add(reply.new_ids, reply.new_rows)
        return [HeadSummary.of([reply.heads[k] for reply in replies], request.heads[k].count) for k in range(len(active))]

    def _violators_wanted(self, solver: HeadSolver) -> int:
        """Rows per side that shards report: enough for a whole working set at the start, for its new part later."""
        if self.shared.plan.working_set >= self.shared.problem.n_rows:
            return self.shared.problem.n_rows
        return max((self.shared.plan.working_set if solver.rounds == 0 else self.shared.plan.new) // 2, 1)

    def _step(self, active: list[int]) -> None:
        """Let every head take its next step; the changes are kept until the shards hear of them. Several heads are solved side by side."""
        for h in (h for h in active if self.solvers[h].going_back):
            self.steps[h] = self.solvers[h].return_to_best()
        sets = {h: self.solvers[h].next_working_set() for h in active if not self.solvers[h].going_back}
        moving = sorted((h for h in sets if len(sets[h])), key=lambda h: -len(sets[h]))  # longest first
        self.blocks.gather(np.unique(np.concatenate([NO_IDS, *(sets[h] for h in moving)])))

        def solve(h: int, threads: RowThreads) -> None:
            # A buffer belongs to the thread that uses it.
            buffer = self._buffer(threading.get_ident(), len(sets[h]))
            self.steps[h] = self.solvers[h].step(sets[h], self.blocks.of(h, sets[h], buffer, threads))

        if len(moving) == 1 or self.shared.problem.depths:  # shards that have ready-made matrices are asked, and may be lost in between
            for h in moving:
                solve(h, self.threads)
        else:
            list(self.heads_at_a_time.map(lambda h: solve(h, self.one_thread), moving))

    def _buffer(self, worker: int, q: int) -> np.ndarray:
        """(q, q) memory for a Hessian, one piece per thread: fresh pages would cost more than filling them."""
        if self.buffers.get(worker, np.empty(0)).size < q * q:
            self.buffers[worker] = np.empty(q * q)
        return self.buffers[worker][: q * q].reshape(q, q)

    def _ask_stacks(self, method: str, s: int, ids: np.ndarray, *arguments: np.ndarray) -> np.ndarray:
        """(q, ...) what shards make of ready-made matrices among the rows of a working set; every shard has its rows of them."""
        calls = []
        for shard, (first, last) in enumerate(self.crew.pool.ranges):
            mine = ids[(ids >= first) & (ids < last)]
            if len(mine):
                calls.append((shard, method, (s, mine, ids, *arguments)))
        # Ids are sorted and shards own contiguous ranges, so the parts come in order.
        parts = self.crew.ask_some(calls)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    # -- records ------------------------------------------------------------------------------------------------------

    def _record(self, active: list[int], precision: dict[int, str]) -> list[dict]:
        """One row of the history per head that took part in the round. precision : of their certificates."""
        seconds = self.seconds
        rows = [
            {
                "round": self.round,
                "seconds": seconds,
                "shard_seconds": self.shard_seconds,
                "head": h,
                "stage": solver.stage,
                "primal": solver.certificate.primal,
                "dual": solver.certificate.dual,
                "gap": solver.certificate.gap,
                # Of these three: that of the kernels as their formulas state them, or that of the rounds.
                "precision": precision[h],
                "tol": solver.head.tol,
                "violation": solver.violation,
                "support_vectors": int(np.count_nonzero(solver.a)),
                "columns_computed": self.shared.columns_computed,
                "cached_columns": len(self.shared.cache.columns),
                "cache_hits": self.shared.cache.hits,
                "cache_capacity": self.shared.cache.capacity,
                "rows_per_shard": max(last - first for first, last in self.crew.pool.ranges),
                "expected_peak_bytes": self.shared.plan.expected_peak,
            }
            for h, solver in ((h, self.solvers[h]) for h in active)
        ]
        self.history += rows
        return rows
