"""What a run has come to: rounds and seconds so far, the rows of its history, and what heads have learned. A
run that is resumed goes on with the journal of the one before.
"""

from __future__ import annotations

import time

import numpy as np

from ..heads.head import HeadSolver
from ..heads.result import HeadResult


class Journal:
    """The records of a run.

    round : number of the last one. history : a row per round and head. results : by head, of every stage that
    is over. finished : heads that are done with all of theirs. seconds_before : of a run that was resumed.
    shard_seconds : that the last round took in the shards.
    """

    def __init__(self) -> None:
        self.round = 0
        self.history: list[dict] = []
        self.results: dict[int, list[HeadResult]] = {}
        self.finished: set[int] = set()
        self.seconds_before = self.shard_seconds = 0.0
        self.started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start of the run, including the time before it was resumed."""
        return self.seconds_before + time.perf_counter() - self.started

    def begin(self) -> None:
        """Time runs from now on."""
        self.started = time.perf_counter()

    def record(self, solvers: dict[int, HeadSolver], precision: dict[int, str], facts: dict) -> list[dict]:
        """One row of the history per head that took part in the round.

        precision : of their certificates. facts : that hold for all.
        """
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
                **facts,
            }
            for h, solver in solvers.items()
        ]
        self.history += rows
        return rows
