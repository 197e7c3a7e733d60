"""The thread that does the work of a search service: rounds of all rooms, and between two of them what trials
wish for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.base import clone

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


class Worker:
    """Has the heads of all trials take part in rounds, as long as somebody reads their reports.

    What other threads change too is changed under the lock of `changed`. See `SearchService` for the
    arguments; data : X, y, splits, sample_weight.
    """

    def __init__(
        self,
        estimator: Any,
        data: tuple,
        scorer: Any,
        threads: int,
        place: Any,
        reservation: Any,
        idle_s: float,
    ):
        self.estimator, self.scorer, self.threads, self.place = estimator, scorer, threads, place
        self.reservation, self.idle_s, self.data = reservation, idle_s, data
        self.changed = threading.Condition()
        self.trials: dict[str, Trial] = {}
        self.fittings: list[Fitting] = []
        self.wishes: deque[Callable[[], None]] = deque()  # to be done between two rounds
        self.rooms: dict[Any, Room] = {}
        self.closed = False
        # When there was a trial, or something to do, for the last time; None before the first one.
        self.needed: float | None = None
        self.worker = threading.Thread(target=self._work, daemon=True)
        self.worker.start()

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
        heads = trial.heads
        if not any(h in gaps for h in heads):
            return
        trial.take_round(gaps)
        if len(trial.values) < len(heads):
            return
        try:
            report = trial.report(self.scorer)
        except Exception as error:  # a scorer may raise anything
            with self.changed:
                trial.error = error
                self.changed.notify_all()
            room.forget(heads)
            return
        done = report["done"]
        if done:
            room.forget(heads)
        with self.changed:
            trial.done = done
            trial.reports.append(report)
            self.changed.notify_all()
