"""Decision values of rows that a head watches, e.g. held-out ones: at the end of its stages, and in between
for those who ask.
"""

from __future__ import annotations

import numpy as np

from ..heads.head import HeadSolver
from .crew import Crew


class Peek:
    """wanted : heads whose values are wanted after every round.

    values : theirs in the last one, (k,) of `Head.watch`.
    """

    def __init__(self) -> None:
        self.wanted: set[int] = set()
        self.values: dict[int, np.ndarray] = {}

    def look(
        self, crew: Crew, done: dict[int, HeadSolver], others: dict[int, HeadSolver]
    ) -> dict[int, np.ndarray]:
        """Values of heads that are `done` with a stage.

        Those of `others` in this round are kept where they are wanted.
        """
        curious = {h: solver for h, solver in others.items() if h in self.wanted}
        found = _watched_values(crew, {**done, **curious})
        self.values = {h: found[h] for h in curious if h in found}
        return found


def _watched_values(crew: Crew, solvers: dict[int, HeadSolver]) -> dict[int, np.ndarray]:
    """(k,) decision values by head, of those that watch rows. The shards must know their points."""
    watching = {h: solver for h, solver in solvers.items() if solver.head.watch is not None}
    if not watching:
        return {}
    parts = crew.ask(
        "f_of", [(h, solver.combination, np.sort(solver.head.watch)) for h, solver in watching.items()]
    )
    found = {}
    for k, (h, solver) in enumerate(watching.items()):
        # Shards own ascending ranges of rows, so their parts join to the order of the sorted ids.
        f, watch = np.concatenate([part[k] for part in parts]), solver.head.watch
        found[h] = f[np.searchsorted(np.sort(watch), watch)] + solver.certificate.intercept
    return found
