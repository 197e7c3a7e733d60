"""The service behind a tuned search: one set of kernel blocks (or a few), heads that come and go with the
trials.

It runs inside an actor. A trial's folds and classes are heads; after every round the trial gets a report
(score so far, gap), and when a scheduler stops the trial, its heads are dropped before the next round. A
trial that does not fetch its reports is paused, so that early stopping saves work; one that is never heard of
again is dropped.

    trial    reports of its folds, one per round; its state (dual variables and weights of its heads), from
             which it goes on later or elsewhere; its model, that is its setting fitted to all rows, as heads
             over the same blocks
    nobody   when there has been no trial for a while, all blocks and shards are let go; the next trial has
             them made again
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from ..engine.programs.program import Program
from ..engine.run import Trained, train
from .checkpoints import redirected
from .folds import Folds
from .room import Room
from .settings import blocks_key, learns_by_heads, of_heads, template_of
from .trial import Fitting, Trial, go_on

# Reports a trial may be behind before its heads pause.
UNREAD = 2
# Seconds without a word from a trial after which it is given up.
LEASE_S = 600.0
# Sets of kernel blocks that are kept although no trial uses them any more.
MOST_IDLE_ROOMS = 2
# Seconds without a trial after which all blocks are let go.
IDLE_S = 20.0


class SearchService:
    """Trains the heads of all trials; see the module.

    All methods may be called from several threads at once.
    """

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
        reservation: Any = None,
        idle_s: float = IDLE_S,
    ):
        """place : of the shard actors of a session that the work is done in, or None. reservation : what the
        work takes of a cluster, with `take` and `release`, or None. idle_s : seconds without a trial after
        which blocks are let go.
        """
        self.estimator, self.scorer, self.threads, self.place = estimator, scorer, threads, place
        self.reservation, self.idle_s = reservation, idle_s
        self.data = (X, y, splits, sample_weight)
        self.changed = threading.Condition()
        self.trials: dict[str, Trial] = {}
        self.fittings: list[Fitting] = []
        self.wishes: deque[Callable[[], None]] = deque()  # to be done by the worker between two rounds
        self.rooms: dict[Any, Room] = {}
        self.closed = False
        self.needed: float | None = (
            None  # when there was a trial, or something to do, for the last time; None before the first one
        )
        self.worker = threading.Thread(target=self._work, daemon=True)
        self.worker.start()

    # -- for the trials ----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the blocks of the estimator as it is now, before the first trial comes."""
        X, y, splits, sample_weight = self.data
        folds = Folds(template_of(self.estimator, {}), X, y, splits, sample_weight)
        C = float(self.estimator.C)
        room = Room(
            folds,
            [head for fold in range(len(splits)) for head in folds.fold({}, fold, (C,))[0]],
            self.threads,
            self.place,
        )
        with self.changed:
            self.rooms[blocks_key(self.estimator, {}), room.problem.wide] = room

    def start(self, name: str, setting: dict, state: dict | None = None) -> None:
        """Begin a trial, from a state where there is one; a trial with the same name (that was restarted,
        say) ends.
        """
        with self.changed:
            self.stop(name)
            trial = self.trials[name] = Trial(setting, 0 if state is None else int(state["rounds"]))
            self.wishes.append(partial(self._begin, trial, state))
            self.changed.notify_all()

    def next_report(self, name: str) -> dict:
        """The trial's next report: score, gap, round, done.

        Waits for it; an error of the trial is raised here.
        """
        with self.changed:
            trial = self.trials.get(name)
            while trial is not None and not (
                trial.reports or trial.done or trial.error is not None or self.closed
            ):
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
            self._drop(name)
            self.changed.notify_all()

    def state(self, name: str) -> dict:
        """Where a trial is, from which `start` goes on: {"rounds": number, "heads": [(a, theta) or None,
        ...]}, the heads of all folds.
        """
        with self.changed:
            trial = self._trial(name)
        return self._between_rounds(trial.state)

    def model(self, name: str) -> Any:
        """The estimator with the trial's setting, fitted to all rows over the blocks of the trial.

        It begins where the trial's folds are on average. Of a trial that is not done, it is the model after
        as many rounds as the trial has taken; its `duality_gap_` says how good that is.
        """
        with self.changed:
            trial = self._trial(name)
            while trial.room is None and trial.error is None and not self.closed:
                trial.heard = time.monotonic()
                self.changed.wait(1.0)
        if trial.error is not None:
            raise trial.error
        state = self._between_rounds(trial.state)
        X, y, _, sample_weight = self.data
        model = clone(self.estimator).set_params(**clone(trial.setting, safe=False))
        engine = model.engine
        # Tail sums, the one thing besides heads that a fit may have to find, are found here: a cluster may
        # have no more CPUs to give.
        model.set_params(engine="local")
        model._train_elsewhere = partial(self._train, trial, state)
        try:
            with redirected(model, None):
                model.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))
        finally:
            del model._train_elsewhere
        return model.set_params(engine=engine if isinstance(engine, str) else "auto")

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

    def _trial(self, name: str) -> Trial:
        trial = self.trials.get(name)
        if trial is None or self.closed:
            raise RuntimeError(f"trial {name} is not known here: it was stopped or the search is over")
        trial.heard = time.monotonic()
        return trial

    def _between_rounds(self, work: Callable[[], Any]) -> Any:
        """What the worker's thread finds, when it comes to it."""
        found: list = []

        def wish() -> None:
            value = work()
            with self.changed:
                found.append(value)
                self.changed.notify_all()

        with self.changed:
            self.wishes.append(wish)
            self.changed.notify_all()
            while not found and not self.closed:
                self.changed.wait(1.0)
        if not found:
            raise RuntimeError("the search is over")
        return found[0]

    def _train(self, trial: Trial, state: dict, rows: dict, problem: Any, heads: Any) -> Trained:
        """Heads over all rows, in the room of a trial, from where its folds are on average."""
        if isinstance(heads, Program):
            return train(rows, problem, heads, "local")
        estimator = clone(trial.room.folds.estimator).set_params(**of_heads(self.estimator, trial.setting))
        for head, start in zip(heads, trial.average(state, len(heads), self.data[2], estimator), strict=True):
            head.start = start if head.norm.bounded else None  # see `go_on`
            if not trial.done:
                head.max_rounds = min(head.max_rounds, max(trial.rounds, 1))
        fitting = Fitting(trial.room, heads)
        with self.changed:
            self.fittings.append(fitting)
            self.wishes.append(partial(self._join, fitting))
            self.changed.notify_all()
            while not fitting.over and not self.closed:
                trial.heard = time.monotonic()
                self.changed.wait(1.0)
            self.fittings.remove(fitting)
        if not fitting.over:
            raise RuntimeError("the search is over")
        if fitting.error is not None:
            raise fitting.error
        on_shards = self.place is not None or estimator.engine == "ray"
        return Trained(fitting.results, fitting.history, "ray" if on_shards else "local")

    # -- the worker's thread -----------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while True:
                with self.changed:
                    self._forget_silent_trials()
                    while not self.closed and not self.wishes and not self._runnable() and not self._idle():
                        self.changed.wait(1.0)
                        self._forget_silent_trials()
                    if self.closed:
                        return
                    wishes, self.wishes = list(self.wishes), deque()
                    if wishes:
                        self.needed = time.monotonic()
                for wish in wishes:
                    wish()
                if self._idle():
                    self._let_go()
                advanced = [self._round(room) for room in list(self.rooms.values())]
                if not any(advanced) and not wishes:
                    with self.changed:  # heads wait for the place of paused ones
                        self.changed.wait(0.05)
        finally:
            with self.changed:
                self.closed = True
                self.changed.notify_all()
            self._let_go()

    def _idle(self) -> bool:
        """Whether blocks are kept for nobody, for long."""
        with self.changed:
            if self.trials or self.fittings:
                self.needed = time.monotonic()
            kept = bool(self.rooms) or (self.reservation is not None and self.reservation.taken)
            return kept and self.needed is not None and time.monotonic() - self.needed > self.idle_s

    def _let_go(self) -> None:
        """Close all rooms, and give back what was reserved."""
        with self.changed:
            rooms, self.rooms = list(self.rooms.values()), {}
        for room in rooms:
            room.stack.close()
        if self.reservation is not None:
            self.reservation.release()

    def _waiting_for_reader(self) -> set[int]:
        """Ids of trials that have not fetched their reports."""
        return {id(trial) for trial in self.trials.values() if len(trial.reports) >= UNREAD}

    def _runnable(self) -> bool:
        late = self._waiting_for_reader()
        at_work = any(
            t.room is not None and not t.done and t.error is None and id(t) not in late
            for t in self.trials.values()
        )
        return at_work or any(fitting.numbers and not fitting.over for fitting in self.fittings)

    def _drop(self, name: str) -> None:
        trial = self.trials.pop(name, None)
        if trial is not None and trial.room is not None:
            self.wishes.append(partial(trial.room.forget, trial.heads))

    def _forget_silent_trials(self) -> None:
        now = time.monotonic()
        for name in [name for name, trial in self.trials.items() if now - trial.heard > LEASE_S]:
            self._drop(name)

    def _begin(self, trial: Trial, state: dict | None) -> None:
        """Let the heads of a trial join the rounds."""
        if not self._known(trial):
            return
        try:
            if self.reservation is not None:
                self.reservation.take()
            self._add(trial, trial.setting, state)
        except Exception as error:  # a trial's mistake is that trial's alone
            with self.changed:
                trial.error = error
                self.changed.notify_all()

    def _join(self, fitting: Fitting) -> None:
        """Let the heads of a model join the rounds."""
        try:
            fitting.join()
        except Exception as error:
            with self.changed:
                fitting.error = error
                self.changed.notify_all()

    def _add(self, trial: Trial, setting: dict, state: dict | None) -> None:
        X, y, splits, sample_weight = self.data
        if not learns_by_heads(self.estimator, setting):
            raise ValueError(
                "kernels=None is a bank made from the rows of each fold, which cannot share blocks; search "
                "over lists of kernels"
            )
        own, key = of_heads(self.estimator, setting), blocks_key(self.estimator, setting)
        rooms = [room for (other, _), room in self.rooms.items() if other == key]
        folds = (
            rooms[0].folds
            if rooms
            else Folds(template_of(self.estimator, setting), X, y, splits, sample_weight)
        )
        clone(folds.estimator).set_params(**own)._check_params()
        C = float(own.pop("C", self.estimator.C))
        made = [folds.fold(own, fold, (C,)) for fold in range(len(splits))]
        everyone = [head for heads, _ in made for head in heads]
        go_on(everyone, state, clone(folds.estimator).set_params(**own), len(folds.kernels))
        room = next((room for room in rooms if room.serves(everyone)), None)
        if room is None:
            self._close_idle_rooms()
            room = Room(folds, everyone, self.threads, self.place)
            with self.changed:
                self.rooms[key, room.problem.wide] = room
        trial.parties = [(room.add(heads), held_out) for heads, held_out in made]
        room.coordinator.peek.wanted.update(trial.heads)
        with self.changed:
            trial.room = room
            stopped = not self._known(trial)
        if stopped:  # while its heads were made
            room.forget(trial.heads)

    def _known(self, trial: Trial) -> bool:
        with self.changed:
            return any(other is trial for other in self.trials.values())

    def _close_idle_rooms(self) -> None:
        """Before another set of blocks is made, let go of those that no trial uses, the oldest first, except
        for a few.
        """
        with self.changed:
            used = {id(user.room) for user in (*self.trials.values(), *self.fittings)}
            idle = [
                key for key, room in self.rooms.items() if id(room) not in used and not room.coordinator.busy
            ]
            closing = [self.rooms.pop(key) for key in idle[: max(len(idle) - MOST_IDLE_ROOMS, 0)]]
        for room in closing:
            room.stack.close()

    def _round(self, room: Room) -> bool:
        """One round of a room's heads; whether any took part."""
        coordinator = room.coordinator
        with self.changed:
            mine = [
                trial
                for trial in self.trials.values()
                if trial.room is room and not trial.done and trial.error is None
            ]
            late = self._waiting_for_reader()
            paused = {h for trial in mine if id(trial) in late for h in trial.heads}
            fittings = [
                fitting
                for fitting in self.fittings
                if fitting.room is room and fitting.numbers and not fitting.over
            ]
        if not coordinator.busy:
            return False
        try:
            rows = coordinator.round_once(paused)
        except Exception as error:  # every trial over these blocks hears of it
            with self.changed:
                for user in (*mine, *fittings):
                    user.error = error
                self.changed.notify_all()
            for trial in mine:
                room.forget(trial.heads)
            for fitting in fittings:
                room.forget(fitting.numbers)
            return True
        gaps = {row["head"]: row["gap"] for row in rows}
        coordinator.journal.history.clear()
        for fitting in fittings:
            self._take(fitting, rows)
        for trial in mine:
            self._tell(trial, room, gaps)
        return bool(rows)

    def _take(self, fitting: Fitting, rows: list[dict]) -> None:
        found = fitting.take_round(rows)
        with self.changed:
            fitting.results = found
            self.changed.notify_all()

    def _tell(self, trial: Trial, room: Room, gaps: dict) -> None:
        """Put a report together if the trial took part in the round and all its folds have decision
        values.
        """
        coordinator, heads = room.coordinator, trial.heads
        if not any(h in gaps for h in heads):
            return
        trial.take_round(gaps)
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
