"""What the service behind a tuned search knows of one trial: its heads, its reports, and where it is.

The state of a trial is what another service can go on from: {"rounds": number, "heads": [(a, theta) or None,
...]}, with dual variables (n,) and weights (M,) of the heads of all folds.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .room import Room


@dataclass(eq=False)  # two are never the same, and their arrays are not compared
class Trial:
    """rounds : that it took part in, those before it was restored included.

    points : of heads that are done, (a, theta) by head.
    """

    setting: dict
    rounds: int = 0
    room: Any = None
    parties: list = field(
        default_factory=list
    )  # per fold: (heads, what turns decision values into something to score)
    points: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)  # decision values by head
    gaps: dict = field(default_factory=dict)
    reports: deque = field(default_factory=deque)
    heard: float = field(default_factory=time.monotonic)
    error: Exception | None = None
    done: bool = False

    @property
    def heads(self) -> list[int]:
        return [h for heads, _ in self.parties for h in heads]

    def state(self) -> dict:
        """Where the trial is, between two rounds."""
        heads: list[Any] = []
        for h in self.heads:
            solver = self.room.coordinator.solvers.get(h)
            point = self.points.get(h)
            heads.append(
                (solver.a.copy(), solver.theta.copy()) if point is None and solver is not None else point
            )
        return {"rounds": self.rounds, "heads": heads}

    def take_round(self, gaps: dict) -> None:
        """Keep what a round has shown. gaps : by head, of those that took part."""
        coordinator = self.room.coordinator
        self.rounds += 1
        for h in self.heads:
            self.gaps[h] = gaps.get(h, self.gaps.get(h, np.inf))
            if coordinator.journal.results.get(h):
                last = coordinator.journal.results[h][-1]
                self.values[h], self.points[h] = last.f, (last.a, last.theta)
            elif h in coordinator.peek.values:
                self.values[h] = coordinator.peek.values[h]

    def report(self, scorer: Any) -> dict:
        """Score of all folds so far, gap and round, once all heads have decision values."""
        journal = self.room.coordinator.journal
        done = all(journal.results.get(h) for h in self.heads)
        scores = [
            float(self.room.folds.score(scorer, held_out, [self.values[h] for h in own], fold))
            for fold, (own, held_out) in enumerate(self.parties)
        ]
        return {
            "score": float(np.mean(scores)),
            "score_std": float(np.std(scores)),
            "gap": float(max(self.gaps.values())),
            "round": journal.round,
            "done": done,
        }

    def average(self, state: dict, n_heads: int, splits: list, estimator: Any) -> list:
        """For every head over all rows a point to begin with, (a, theta), or None: the mean of its folds,
        where all have such a head.

        estimator : with the setting of this trial, for the weights.
        """
        folds, at = [], 0
        for own, _ in self.parties:
            folds.append(state["heads"][at : at + len(own)])
            at += len(own)
        if any(len(fold) != n_heads or any(point is None for point in fold) for fold in folds):
            return [None] * n_heads
        n = len(folds[0][0][0])
        # A row counts in the folds that it is a training row of.
        counts = np.maximum(np.sum([np.bincount(train, minlength=n) > 0 for train, _ in splits], axis=0), 1)
        points = [[fold[h] for fold in folds] for h in range(n_heads)]
        return [
            (
                np.sum([a for a, _ in same], axis=0) / counts,
                estimator._feasible(np.mean([theta for _, theta in same], axis=0)),
            )
            for same in points
        ]


@dataclass(eq=False)
class Fitting:
    """Heads over all rows that are trained for a trial's model.

    numbers : of the heads, once they are at work.
    """

    room: Room
    heads: list
    numbers: list[int] = field(default_factory=list)
    history: list[dict] = field(default_factory=list)
    results: list | None = None
    error: Exception | None = None

    @property
    def over(self) -> bool:
        return self.results is not None or self.error is not None

    def join(self) -> None:
        """Let the heads join the rounds of their room."""
        self.numbers = self.room.add(self.heads)

    def take_round(self, rows: list[dict]) -> list | None:
        """Keep the rows of a round; the results of all heads once they are done, which are then forgotten."""
        own = {h: place for place, h in enumerate(self.numbers)}
        self.history += [{**row, "head": own[row["head"]]} for row in rows if row["head"] in own]
        results = self.room.coordinator.journal.results
        if not all(results.get(h) for h in own):
            return None
        found = [results[h] for h in own]
        self.room.forget(self.numbers)
        return found


def go_on(heads: list, state: dict | None, estimator: Any, n_kernels: int) -> None:
    """Let new heads of all folds begin with the points of a state; one of other kernels or rows is none for
    them.

    Where weights are not bounded (p > 2), those of another problem lead astray more often than they help, and
    heads begin anew.
    estimator : with the setting of the trial, which may be another one than the state was found with: a
    scheduler may perturb it.
    """
    points = [] if state is None else state["heads"]
    if len(points) != len(heads):
        return
    for head, point in zip(heads, points, strict=True):
        fits = (
            point is not None
            and np.shape(point[0]) == (len(head.targets),)
            and np.shape(point[1]) == (n_kernels,)
        )
        if fits and head.norm.bounded:
            head.start = (np.asarray(point[0], float), estimator._feasible(np.asarray(point[1], float)))
