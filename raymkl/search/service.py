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

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.base import clone

from ..engine.programs.program import Program
from ..engine.run import Trained, train
from .checkpoints import redirected
from .folds import Folds
from .room import Room
from .settings import blocks_key, of_heads, template_of
from .trial import Fitting, Trial
from .worker import IDLE_S, Worker


class SearchService(Worker):
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
        super().__init__(
            estimator, (X, y, splits, sample_weight), scorer, threads, place, reservation, idle_s
        )

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
