"""The coordinator: runs rounds over a pool of shards for any number of heads, until every head is certified.

    set up     statistics are prepared, bases built, normalisation constants learned, heads added
    round      one call to every shard: (rows entering, changes of every head, new weights) -> (violators,
               gradients, quadratic terms, losses); then certificate, working set, sub-problem and weight step
               of every head
    finish     dual variables, weights, intercept and certificate of every head

It knows pools only by `call_all` and `call_some`, so it runs the same in this process and inside an actor.
What it works with:

    crew       the shards: asks them, replaces those that are lost          roster     the heads: who works,
               who waits
    shared     what heads share: bases, caches, memory plan                 journal    records: history,
               results, time
    threads    that solve sub-problems                                      blocks     statistics among rows
               of working sets
    peek       decision values that somebody wants between the rounds
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from ..faults.policy import FailurePolicy
from ..faults.recovery import NO_IDS, bring_up_to_date, restore
from ..heads.head import HeadSolver
from ..heads.result import HeadResult, result_of
from ..heads.roster import HeadAtWork, Roster
from ..heads.summary import HeadSummary, Step
from ..problem import Head, HeadRequest, Problem, together
from ..programs.program import Program
from ..resources import usable_cpus
from ..shard.threads import RowThreads
from .admission import admit, following
from .blocks import WorkingBlocks
from .caches import CachesOfRows
from .crew import Crew
from .journal import Journal
from .peek import Peek
from .proving import choose_rows_anew, look_again
from .shared import Shared
from .subproblem_threads import SubproblemThreads


class Coordinator:
    """Trains heads over a pool.

    `rounds(heads)` trains a given list. Heads may also come and go: `begin`, then `add`, `round_once` and
    `drop` as wanted.
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
        """policy : what to do when shards are lost (None: none may be). standing : caches over these rows
        that outlive the run.

        threads : of the coordinator; None takes one per usable CPU, because the shards rest while it works.
        """
        self.crew = Crew(pool, policy, lambda shard: bring_up_to_date(self, shard))
        self.shared = Shared(self.crew, problem, budget, standing)
        self.roster = Roster()
        self.journal = Journal()
        self.peek = Peek()
        self.winding_up = False
        self.threads = SubproblemThreads(threads or usable_cpus())

    @property
    def solvers(self) -> dict[int, HeadSolver]:
        """Heads at work, by number."""
        return {h: head.solver for h, head in self.roster.at_work.items()}

    # -- the run -----------------------------------------------------------------------------------

    def run(self, heads: list[Head]) -> list[list[HeadResult]]:
        """Train all heads; returns the results of every head's stages, in the order of the heads."""
        for _ in self.rounds(heads):
            pass
        return self.outcome(heads)

    def outcome(self, heads: list[Head] | Program) -> Any:
        """What was learned, after `rounds`: the results of every head's stages, or what a program hands
        back.
        """
        return (
            heads.outcome()
            if isinstance(heads, Program)
            else [self.journal.results[h] for h in range(len(heads))]
        )

    def rounds(self, heads: list[Head] | Program, state: dict | None = None) -> Iterator[list[dict]]:
        """Train all heads, yielding the new rows of the history after every round; the journal has what was
        learned.

        state : of an earlier run (see `recovery.state_of`) to go on from.
        """
        try:
            if isinstance(heads, Program):
                if state is not None:
                    heads.restore(state)
                yield from heads.rounds(self)
                self.shared.keep_caches()
                return
            if state is not None:
                restore(self.journal, heads, state)
            self.begin(len(heads), together(heads))
            self.add(heads)
            while self.busy:
                yield self.round_once()
            self.shared.keep_caches()
        finally:
            self.close()

    def wind_up(self) -> None:
        """End soon: every head, also one that comes later, ends with its best point, proved, after its next
        round. Programs look at `winding_up` between two of their rounds.
        """
        self.winding_up = True
        for head in self.roster.at_work.values():
            head.party.course.ending = True

    def close(self) -> None:
        """End the threads, and let go of what would keep this coordinator, and all arrays of its heads, until
        garbage is collected.
        """
        self.shared.let_go_of_caches()
        self.threads.close()
        self.crew.dismiss()

    def begin(self, n_heads: int, together: int = 1) -> None:
        """Prepare statistics and bases, and plan memory for so many heads at a time (or as many as fit,
        `together` at least).
        """
        self.journal.begin()
        if n_heads > 1:  # sub-problems run side by side, and BLAS must not start threads in each of them
            self.threads.one_blas_thread()
        self.shared.prepare()
        self.shared.reserve(n_heads, together)
        self.blocks = self._working_blocks()

    def _working_blocks(self) -> WorkingBlocks:
        shared, found = self.shared, self.shared.found
        return WorkingBlocks(
            shared.problem,
            found.bases,
            found.centers,
            shared.seen,
            self.threads.for_rows,
            self.crew.ask_owners,
        )

    @property
    def busy(self) -> bool:
        return self.roster.n_heads > 0

    def add(self, heads: list[Head]) -> list[int]:
        """New heads; they join the next round, or wait until there is room. Returns their numbers."""
        return self.roster.add(heads, self.journal.finished)

    def drop(self, numbers: list[int]) -> None:
        """Forget heads, finished or not; the shards do so with the next round."""
        for h in self.roster.drop(numbers):
            self.blocks.forget(h)
            self.crew.told(h)

    # -- a round -----------------------------------------------------------------------------------

    def round_once(self, paused: Container[int] = ()) -> list[dict]:
        """One round for all heads that are not done, except the `paused` ones; returns the new rows of the
        history.
        """
        self._admit()
        at_work = self.roster.at_work
        active = {h: at_work[h] for h in sorted(at_work) if h not in paused}
        if not active:
            return []
        choose_rows_anew(self.shared, {h: head for h, head in active.items() if head.solver.review_due})
        for head, summary in zip(active.values(), self._round(active), strict=True):
            head.solver.absorb(summary)
        for leader in dict.fromkeys(head.leader for head in active.values() if head.leader is not None):
            leader.absorb_members()
        ready = {h: head for h, head in active.items() if head.solver.ready}
        worked_in = np.dtype(self.shared.problem.dtype).name
        precision = {h: "proved" if self.shared.accurate or h in ready else worked_in for h in active}
        self._settle(ready)
        rows = self.journal.record(
            {h: head.solver for h, head in active.items()}, precision, self.shared.facts()
        )
        going_on = self._finish(active)
        self._step(going_on)
        return rows

    def _admit(self) -> None:
        """Take waiting heads in as long as there is room."""
        if not self.roster.waiting:
            return
        results = self.journal.results
        chosen = self.roster.call_up(self.shared.plan.heads, {h for h, stages in results.items() if stages})
        if not chosen:
            return
        chosen = [(h, following(self.shared, head, results)) for h, head in chosen]
        self.roster.at_work.update(admit(self.shared, chosen, self.peek.wanted))
        for h, _ in chosen:
            self.journal.results.setdefault(h, [])
        if self.winding_up:
            self.wind_up()
        self.blocks.share(
            min(self.roster.n_heads, self.shared.plan.heads)
        )  # also with those that come after these

    def _settle(self, ready: dict[int, HeadAtWork]) -> None:
        """Look once more, in full precision, at heads that believe they are done; they are, or go on."""
        if not self.shared.accurate:
            look_again(self.shared, ready)
        parties = dict.fromkeys(head.party for head in ready.values())
        for party in parties:
            party.settle()
        # Heads that can do no better in this precision go on in a wider one, if there is one.
        if any(party.exhausted and party.certificate.gap > party.head.tol for party in parties):
            self._widen()

    def _widen(self) -> None:
        """Go on with float64 statistics, from the points where all heads are.

        Nothing changes where there is no room for them.
        """
        if not self.shared.widen():
            return
        at_work = self.roster.at_work.values()
        self.blocks = self._working_blocks()
        self.blocks.share(len(at_work))
        for head in at_work:
            round_off = head.normalisation * self.shared.round_off(head.diagonal)
            head.solver.widened(self.shared.found.coefficients * head.normalisation[:, None], round_off)
            head.step = Step()
        for leader in dict.fromkeys(head.leader for head in at_work if head.leader is not None):
            leader.widened()
        for shard in range(len(self.crew.pool.ranges)):
            self.crew.refresh(shard)

    def _finish(self, active: dict[int, HeadAtWork]) -> dict[int, HeadAtWork]:
        """Keep the results of heads that are done with a stage; they begin the next one or leave. Returns
        those that are amid a stage.

        active : heads of this round. Others may have made a step that the shards do not know yet: there is no
        f to show of them.
        """
        done = {h: head for h, head in active.items() if head.solver.done}
        amid = {h: head for h, head in active.items() if h not in done}
        solvers = ({h: head.solver for h, head in some.items()} for some in (done, amid))
        held_out = self.peek.look(self.crew, *solvers)
        for h, head in done.items():
            self.journal.results[h].append(result_of(head.solver, head.normalisation, held_out.get(h)))
        for party in dict.fromkeys(head.party for head in done.values()):
            if not party.last_stage:
                party.next_stage()
        finished = [h for h, head in done.items() if head.solver.done]
        self.journal.finished.update(finished)
        self.drop(finished)
        return amid

    def _round(self, active: dict[int, HeadAtWork]) -> list[HeadSummary]:
        """One call to every shard (several when a warm start brings more columns than the cache holds)."""
        most = self.shared.plan.working_set
        for h, head in active.items():
            # All columns of a round must be cached at once; a long warm start goes in portions.
            while len(head.step.ids) > most:
                portion, head.step = head.step[:most], head.step[most:]
                self._call({h: head}, {h: portion})
        return self._call(active, {h: head.step for h, head in active.items()})

    def _call(self, active: dict[int, HeadAtWork], steps: dict[int, Step]) -> list[HeadSummary]:
        """steps : what the shards are to hear of: the changes of these heads, or a portion of them."""
        self.journal.round += 1
        touched = self.shared.columns_of(
            np.unique(np.concatenate([step.ids for step in steps.values()])).astype(np.int64)
        )
        in_use = np.any([solver.a != 0 for solver in self.solvers.values()], axis=0)
        request, _ = self.shared.entering(touched, in_use, self.journal.round)
        request.columns, request.drop = touched, self.roster.take_dropped()
        if self.shared.problem.light and len(touched):
            self.shared.columns_computed += len(touched)
            request.column_rows = self.shared.rows_of(touched)
        request.heads = [self._head_request(h, head.solver, steps[h]) for h, head in active.items()]
        called = time.perf_counter()
        replies = self.crew.advance(request)
        for h, head in active.items():
            head.solver.stretch = 1.0
            if steps[h] is head.step:  # else it was a portion, and more is to come
                head.step = Step()
                self.crew.told(h)
        self.journal.shard_seconds = time.perf_counter() - called
        for reply in replies:
            self.shared.seen.add(reply.new_ids, reply.new_rows)
        return [
            HeadSummary.of([reply.heads[k] for reply in replies], part.count)
            for k, part in enumerate(request.heads)
        ]

    def _head_request(self, h: int, solver: HeadSolver, step: Step) -> HeadRequest:
        return HeadRequest(
            head=h,
            columns=step.ids,
            slots=self.shared.cache.slots(step.ids) if self.shared.cached else step.ids,
            delta=step.delta,
            values=step.values,
            combination=solver.combination,
            intercepts=solver.intercepts,
            intercept=solver.intercept,
            watch=solver.working_set,
            count=self._violators_wanted(solver),
            spaced=solver.begins_at_zero,
            bounds_factor=solver.bounds_factor,
            stretch=solver.stretch,
            leave=solver.leave,
            hold=solver.hold,
        )

    def _violators_wanted(self, solver: HeadSolver) -> int:
        """Rows per side that shards report: enough for a whole working set at the start, for its new part
        later.
        """
        if self.shared.plan.working_set >= self.shared.problem.n_rows:
            return self.shared.problem.n_rows
        return max((self.shared.plan.working_set if solver.rounds == 0 else self.shared.plan.new) // 2, 1)

    def _step(self, heads: dict[int, HeadAtWork]) -> None:
        """Let heads take their next step; the changes are kept until the shards hear of them.

        Several heads are solved side by side.
        """
        for head in heads.values():
            if head.solver.going_back:
                head.step = head.solver.return_to_best()
        movers: dict[
            Any, list[int]
        ] = {}  # and the heads that each of them moves, of which the first lends its number
        for h, head in heads.items():
            if not head.solver.going_back:
                movers.setdefault(head.mover, []).append(h)
        sets = {numbers[0]: mover.next_working_set() for mover, numbers in movers.items()}
        moving = sorted((h for h in sets if len(sets[h])), key=lambda h: -len(sets[h]))  # longest first
        self._gather(np.unique(np.concatenate([NO_IDS, *(sets[h] for h in moving)])))

        def solve(h: int, threads: RowThreads) -> None:
            block, mover = (
                self.blocks.of(h, sets[h], self.threads.buffer(len(sets[h])), threads),
                heads[h].mover,
            )
            for number, step in zip(movers[mover], mover.steps(sets[h], block), strict=True):
                heads[number].step = step

        # Shards that have ready-made matrices are asked meanwhile, and may be lost.
        self.threads.solve(moving, solve, in_turn=bool(self.shared.problem.depths))

    def _gather(self, ids: np.ndarray) -> None:
        """Have the statistics among these rows, or all, ready for the blocks of working sets."""
        wanted = self.shared.columns_of(ids) if self.blocks.square is not None else ids
        if len(wanted) > len(ids):
            self.shared.rows_of(wanted)  # rows that no shard has reported are fetched
        self.blocks.gather(wanted)
