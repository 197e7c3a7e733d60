"""The service behind a tuned search: one set of kernel blocks (or a few), heads that come and go with the trials.

It runs inside an actor. A trial's folds and classes are heads; after every round the trial gets a report (score so far, gap), and
when a scheduler stops the trial, its heads are dropped before the next round. A trial that does not fetch its reports is paused, so
that early stopping saves work; one that is never heard of again is dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from ..engine.faults.policy import FailurePolicy
from ..engine.opening import opened
from ..engine.params import RayParams
from ..engine.pools.local import LocalPool
from .folds import Folds, blocks_key, learns_by_heads, of_heads, template_of

# Reports a trial may be behind before its heads pause.
UNREAD = 2
# Seconds without a word from a trial after which it is given up.
LEASE_S = 600.0
# Sets of kernel blocks that are kept although no trial uses them any more.
MOST_IDLE_ROOMS = 2


@dataclass
class _Trial:
    room: Any
    parties: list = field(default_factory=list)  # per fold: (heads, what turns decision values into something to score)
    values: dict = field(default_factory=dict)  # decision values by head
    gaps: dict = field(default_factory=dict)
    reports: deque = field(default_factory=deque)
    heard: float = field(default_factory=time.monotonic)
    error: Exception | None = None
    done: bool = False

    @property
    def heads(self) -> list[int]:
        return [h for heads, _ in self.parties for h in heads]


class _Room:
    """One set of kernel blocks with its coordinator."""

    def __init__(self, folds: Folds, trial_heads: list, threads: int, place: Any = None):
        """place : of the shard actors of a session, or None."""
        self.folds, self.place = folds, place
        with ExitStack() as stack:  # nothing is left when something fails here
            self._begin(stack, trial_heads, threads)
            self.stack = stack.pop_all()

    def _begin(self, stack: ExitStack, trial_heads: list, threads: int) -> None:
        folds, template = self.folds, self.folds.estimator
        problem, rows = folds.problem(trial_heads)
        params = template.ray_params
        budget = None if params is None else params.memory_per_shard
        if template.engine == "ray" or self.place is not None:
            pool: Any = self._pool_on_ray(stack, rows, problem, params or RayParams())
        else:
            pool = LocalPool(rows, problem, threads)
        self.problem = problem
        policy = FailurePolicy(0) if params is None else FailurePolicy(params.max_shard_failures, params.max_preemptions)
        self.coordinator = stack.enter_context(opened(pool, problem, budget, policy, threads))
        self.coordinator.begin(max(64, len(trial_heads)), max(len(trial_heads), 1))

    def _pool_on_ray(self, stack: ExitStack, rows: dict, problem: Any, params: RayParams) -> Any:
        """Shard actors: those of a session, or of this room alone."""
        import ray

        from ..engine.pools.ray_pool import RayPool
        from ..engine.pools.ray_shards import ShardActors, choose_shards, placed, shard_actors

        place = self.place
        if place is None:
            count = params.num_shards
            if count is None:  # something is left to the trials
                left = int((ray.cluster_resources().get("CPU", 1.0) - 0.5) / params.cpus_per_shard)
                count = max(1, min(left, choose_shards(problem.n_rows, params)))
            place = stack.enter_context(shard_actors(count, params))
        shards = ShardActors(place)
        stack.callback(shards.close)
        return RayPool(shards, placed(rows, problem, len(place.actors)), params)

    def serves(self, heads: list) -> bool:
        """Whether the statistics are precise enough for heads of these bounds (a large C may ask for float64, see models.base)."""
        template, problem = self.folds.estimator, self.problem
        if template.dtype != "auto" or problem.dtype == np.float64 or template.normalize == "spherical":
            return True
        return template._wide(self.folds.rows, problem.families, heads) <= problem.wide

    def forget(self, heads: list[int]) -> None:
        """Drop heads, trained or not, with all that is known about them."""
        self.coordinator.drop(heads)
        self.coordinator.peek.wanted.difference_update(heads)
        for h in heads:
            self.coordinator.journal.results.pop(h, None)


class SearchService:
    """Trains the heads of all trials; see the module. All methods may be called from several threads at once."""

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        splits: list,
        scorer: Any,
        sample_weight: Any = None,
        threads: int = 1,
        place: Any = None,
    ):
        """place : of the shard actors of a session that the work is done in, or None."""
        self.estimator, self.scorer, self.threads, self.place = estimator, scorer, threads, place
        self.data = (X, y, splits, sample_weight)
        self.changed = threading.Condition()
        self.trials: dict[str, _Trial] = {}
        self.wishes: deque = deque()
        self.rooms: dict[Any, _Room] = {}
        self.closed = False
        self.worker = threading.Thread(target=self._work, daemon=True)
        self.worker.start()

    # -- for the trials -------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the blocks of the estimator as it is now, before the first trial comes."""
        X, y, splits, sample_weight = self.data
        folds = Folds(template_of(self.estimator, {}), X, y, splits, sample_weight)
        C = float(self.estimator.C)
        room = _Room(folds, [head for fold in range(len(splits)) for head in folds.heads({}, fold, (C,))[0]], self.threads, self.place)
        with self.changed:
            self.rooms[blocks_key(self.estimator, {}), room.problem.wide] = room

    def start(self, name: str, setting: dict) -> None:
        """Begin a trial; one with the same name (that was restarted, say) ends."""
        with self.changed:
            self.stop(name)
            self.trials[name] = _Trial(None)
            self.wishes.append((self.trials[name], setting))
            self.changed.notify_all()

    def next_report(self, name: str) -> dict:
        """The trial's next report: score, gap, round, done. Waits for it; an error of the trial is raised here."""
        with self.changed:
            trial = self.trials.get(name)
            while trial is not None and not (trial.reports or trial.done or trial.error is not None or self.closed):
                trial.heard = time.monotonic()
                self.changed.wait(1.0)
                trial = self.trials.get(name)
            if trial is None or self.closed:
                raise RuntimeError(f"trial {name} is not known here: it was stopped or the search is over")
            if trial.error is not None:
                raise trial.error
            if not trial.reports:
                raise RuntimeError(f"trial {name} is done and has no more reports")
            trial.heard = time.monotonic()
            report = trial.reports.popleft()
            self.changed.notify_all()
            return report

    def stop(self, name: str) -> None:
        """End a trial; its heads are gone before the next round."""
        with self.changed:
            trial = self.trials.pop(name, None)
            if trial is not None and trial.room is not None:
                self.wishes.append((trial, None))
            self.changed.notify_all()

    def active_heads(self) -> int:
        """Heads in training or waiting."""
        with self.changed:
            return sum(room.coordinator.roster.n_heads for room in list(self.rooms.values()))

    def close(self) -> None:
        """Stop all work and let go of all shards."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self.worker.join()

    # -- the worker's thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while True:
                with self.changed:
                    self._forget_silent_trials()
                    while not self.closed and not self.wishes and not self._runnable():
                        self.changed.wait(1.0)
                        self._forget_silent_trials()
                    if self.closed:
                        return
                    wishes, self.wishes = list(self.wishes), deque()
                for trial, setting in wishes:
                    self._fulfil(trial, setting)
                advanced = [self._round(room) for room in list(self.rooms.values())]
                if not any(advanced) and not wishes:
                    with self.changed:  # heads wait for the place of paused ones
                        self.changed.wait(0.05)
        finally:
            with self.changed:
                self.closed = True
                self.changed.notify_all()
            for room in self.rooms.values():
                room.stack.close()

    def _waiting_for_reader(self) -> set[int]:
        """Ids of trials that have not fetched their reports."""
        return {id(trial) for trial in self.trials.values() if len(trial.reports) >= UNREAD}

    def _runnable(self) -> bool:
        late = self._waiting_for_reader()
        return any(t.room is not None and not t.done and t.error is None and id(t) not in late for t in self.trials.values())

    def _forget_silent_trials(self) -> None:
        now = time.monotonic()
        for name in [name for name, trial in self.trials.items() if now - trial.heard > LEASE_S]:
            trial = self.trials.pop(name)
            if trial.room is not None:
                self.wishes.append((trial, None))

    def _fulfil(self, trial: _Trial, setting: dict | None) -> None:
        """Begin a trial with its setting, or end one (None)."""
        if setting is None:
            trial.room.forget(trial.heads)
            return
        if not self._known(trial):
            return
        try:
            self._add(trial, setting)
        except Exception as error:  # a trial's mistake is that trial's alone
            with self.changed:
                trial.error = error
                self.changed.notify_all()

    def _add(self, trial: _Trial, setting: dict) -> None:
        X, y, splits, sample_weight = self.data
        if not learns_by_heads(self.estimator, setting):
            raise ValueError(
                "kernels=None is a bank made from the rows of each fold, which cannot share blocks; search over lists of kernels"
            )
        own, key = of_heads(self.estimator, setting), blocks_key(self.estimator, setting)
        rooms = [room for (other, _), room in self.rooms.items() if other == key]
        folds = rooms[0].folds if rooms else Folds(template_of(self.estimator, setting), X, y, splits, sample_weight)
        clone(folds.estimator).set_params(**own)._check_params()
        C = float(own.pop("C", self.estimator.C))
        made = [folds.heads(own, fold, (C,)) for fold in range(len(splits))]
        everyone = [head for heads, _ in made for head in heads]
        room = next((room for room in rooms if room.serves(everyone)), None)
        if room is None:
            self._close_idle_rooms()
            room = _Room(folds, everyone, self.threads, self.place)
            with self.changed:
                self.rooms[key, room.problem.wide] = room
        parties = []
        for heads, held_out in made:
            parties.append((room.coordinator.add(heads), held_out))
        trial.parties = parties
        room.coordinator.peek.wanted.update(trial.heads)
        with self.changed:
            trial.room = room
            stopped = not self._known(trial)
        if stopped:  # while its heads were made
            room.forget(trial.heads)

    def _known(self, trial: _Trial) -> bool:
        with self.changed:
            return any(other is trial for other in self.trials.values())

    def _close_idle_rooms(self) -> None:
        """Before another set of blocks is made, let go of those that no trial uses, the oldest first, except for a few."""
        with self.changed:
            used = {id(trial.room) for trial in self.trials.values()}
            idle = [key for key, room in self.rooms.items() if id(room) not in used and not room.coordinator.busy]
            closing = [self.rooms.pop(key) for key in idle[: max(len(idle) - MOST_IDLE_ROOMS, 0)]]
        for room in closing:
            room.stack.close()

    def _round(self, room: _Room) -> bool:
        """One round of a room's heads; whether any took part."""
        coordinator = room.coordinator
        with self.changed:
            mine = [trial for trial in self.trials.values() if trial.room is room and not trial.done and trial.error is None]
            late = self._waiting_for_reader()
            paused = {h for trial in mine if id(trial) in late for h in trial.heads}
        if not coordinator.busy:
            return False
        try:
            rows = coordinator.round_once(paused)
        except Exception as error:  # every trial over these blocks hears of it
            with self.changed:
                for trial in mine:
                    trial.error = error
                self.changed.notify_all()
            for trial in mine:
                room.forget(trial.heads)
            return True
        gaps = {row["head"]: row["gap"] for row in rows}
        coordinator.journal.history.clear()
        for trial in mine:
            self._tell(trial, room, gaps)
        return bool(rows)

    def _tell(self, trial: _Trial, room: _Room, gaps: dict) -> None:
        """Put a report together if the trial took part in the round and all its folds have decision values."""
        coordinator, heads = room.coordinator, trial.heads
        if not any(h in gaps for h in heads):
            return
        for h in heads:
            trial.gaps[h] = gaps.get(h, trial.gaps.get(h, np.inf))
            if coordinator.journal.results.get(h):
                trial.values[h] = coordinator.journal.results[h][-1].f
            elif h in coordinator.peek.values:
                trial.values[h] = coordinator.peek.values[h]
        if len(trial.values) < len(heads):
            return
        done = all(coordinator.journal.results.get(h) for h in heads)
        try:
            scores = [
                float(room.folds.score(self.scorer, held_out, [trial.values[h] for h in own], fold))
                for fold, (own, held_out) in enumerate(trial.parties)
            ]
        except Exception as error:  # a scorer may raise anything
            with self.changed:
                trial.error = error
                self.changed.notify_all()
            room.forget(heads)
            return
        report = {
            "score": float(np.mean(scores)),
            "score_std": float(np.std(scores)),
            "gap": float(max(trial.gaps.values())),
            "round": coordinator.journal.round,
            "done": done,
        }
        if done:
            room.forget(heads)
        with self.changed:
            trial.done = done
            trial.reports.append(report)
            self.changed.notify_all()
