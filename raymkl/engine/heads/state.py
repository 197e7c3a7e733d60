"""What the coordinator knows of a head besides its point: its working set, what the last round has shown, the
course of its stage.

    primal - dual <= tol * |primal|    ends a stage, if accurate sums prove it

`Course` takes the decisions that need nothing but certificates: when a head asks for a proof, gives up or is
done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from ...optim.certificate import Certificate
from ...optim.working_set import choose
from ..problem import Head
from .ascent import DualBox
from .summary import HeadSummary

# Rounds that small heads may take to be polished (see `ascent.POLISHED`).
POLISH_ROUNDS = 60
# Rounds without progress after which a head gives up; progress is a smaller gap, or a dual objective that is
# larger by this part.
PATIENCE = 200
CLIMB = 1e-3
# The same in float32, where more precise statistics may be had instead.
NARROW_PATIENCE = 40
# Rounds without progress after which weights that follow ask for a proof, which may show why.
STALLED = 8
# Proofs of one stage after which it ends with what was proved, while weights are held and else, and after
# which one that shows no better gap than the last ends it.
MOST_HELD = 6
MOST_PROOFS = 20
FUTILE_PROOFS = 8


class State(Enum):
    """What a head is about to do."""

    WORKING = "rounds go on"
    READY = (
        "believes to be within the tolerance, or cannot tell why not: asks for a proof, and works on "
        "where that fails"
    )
    GOING_BACK = "has given up, and its next step leads back to the best point"
    GIVING_UP = "has given up at its best point, and ends with what the proof says"
    DONE = "the proof was the last one of this stage"
    EXHAUSTED = "done short of the tolerance; more precise statistics could show more"


class Holding(Enum):
    """Whether the weights of a head that follows stay as they are near the end, while shards keep f alone,
    which costs half.
    """

    NEVER = "weights follow"
    LATER = "weights follow until the gap is small"
    NEXT = "shards keep f alone from the next round on"
    NOW = "weights are held"


@dataclass
class Seen:
    """What the last round has shown of a head.

    summary : replies of all shards. violation : by how much both sides of the optimality conditions overlap.
    middle : between both sides, a value for b. losses : (B,) at the candidates for b. dual_value : the part
    of the dual objective that is not the norm. stale : whether f is another one by now, because the weights
    have moved or a proof has corrected it.
    """

    summary: HeadSummary | None = None
    violation: float = np.inf
    middle: float | None = None
    losses: np.ndarray | None = None
    dual_value: float = 0.0
    certificate: Certificate | None = None
    stale: bool = False

    @classmethod
    def of(cls, summary: HeadSummary) -> Seen:
        """What a summary says before the point is certified."""
        top = summary.grow_residual.max(initial=-np.inf)
        bottom = summary.shrink_residual.min(initial=np.inf)
        ends = [
            end for end in (top, bottom) if np.isfinite(end)
        ]  # one alone where all variables are at the same end of their box
        return cls(summary, max(top - bottom, 0.0), float(np.mean(ends)) if ends else None)


class Correction:
    """What proofs have shown the rounds' quadratic terms to differ by.

    offset : (E,) to be added to those of a round. proved : (E,) quadratic terms of this very point, until the
    next round is compared with them. made : whether there was a proof; shards then have what it has shown of
    f, from one stage to the next. stale : whether a shard has made its sums anew since then, whose errors are
    others: f and quadratic terms do not fit each other until the next proof.
    """

    def __init__(self, n_entries: int):
        self.offset = np.zeros(n_entries)
        self.proved: np.ndarray | None = None
        self.made = self.stale = False

    def take(self, s: np.ndarray) -> None:
        """Quadratic terms (E,) of this very point, by a proof."""
        self.proved, self.made, self.stale = s, True, False

    def applied(self, s: np.ndarray) -> np.ndarray:
        """The quadratic terms (E,) of a round, corrected."""
        if self.proved is not None:
            self.offset, self.proved = self.proved - s, None
        return s + self.offset

    def stretched(self, t: float) -> None:
        """All dual variables were multiplied by t."""
        self.offset = self.offset * t**2
        self.proved = None if self.proved is None else self.proved * t**2


class WorkingSet:
    """The rows that a head moves.

    ids : (q,) those of the last step. entered : (n,) the round in which a row last came into the working set.
    size, new : rows of a working set, and how many of them may be new.
    """

    def __init__(self, n_rows: int, size: int, new: int):
        self.ids = np.empty(0, np.int64)
        self.entered = np.zeros(n_rows, np.int32)
        self.size, self.new = size, new

    def next(
        self, summary: HeadSummary, a: np.ndarray, box: DualBox, number: int, shrinks: bool
    ) -> np.ndarray:
        """Ids of the rows to move in round `number`.

        shrinks : whether rows have left the rounds, which have no gradients any more.
        """
        if shrinks:
            self.ids = np.intersect1d(self.ids, summary.ids, assume_unique=True)
        now, lower, upper = (values[self.ids] for values in (a, box.lower, box.upper))
        inside = (now > lower) & (now < upper) & (now != 0)
        kept = np.concatenate([self._newest_first(self.ids[inside]), self._newest_first(self.ids[~inside])])
        new = max(self.new, self.size - len(kept))
        chosen = choose(
            summary.grow, summary.grow_residual, summary.shrink, summary.shrink_residual, kept, self.size, new
        )
        self.entered[np.setdiff1d(chosen, self.ids, assume_unique=True)] = number
        return chosen

    def _newest_first(self, ids: np.ndarray) -> np.ndarray:
        """Rows in the order in which they may stay. Those that came last have met the fewest others: 50
        kernels on 20,000 digits take 26 rounds this way, 30 with any rows and 40 with the oldest.
        """
        return ids[np.argsort(-self.entered[ids], kind="stable")]


class Found(NamedTuple):
    """A point that is worth going back to: its certificate, dual variables (n,) and weights (E,)."""

    certificate: Certificate
    a: np.ndarray
    theta: np.ndarray


class Course:
    """How far a head, or a group of them, has come in a stage, and what follows from it.

    rounds : of all stages. highest : the last dual objective that counted as progress. best : the best point
    as far as the rounds know;
    proved : the best one that was proved. proofs : of this stage, and the gap that the last one showed.
    stalled : whether rounds of this stage got nowhere. ending : whether no more rounds are wanted.
    polish_left, polished_to : rounds that may still be spent on polishing, and the violation that was
    reached.
    """

    def __init__(self, head: Head, patience: int):
        """patience : rounds without progress of the gap after which the head gives up."""
        self.head, self.patience, self.rounds, self.ending = head, patience, 0, False
        self.start_stage()

    def start_stage(self) -> None:
        """Begin anew with other bounds."""
        self.state = State.WORKING
        self.best: Found | None = None
        self.proved: Found | None = None
        self.first_round = self.last_progress = self.rounds
        self.highest: float | None = None
        self.polish_left, self.polished_to = POLISH_ROUNDS, np.inf
        self.proofs, self.last_proof, self.stalled = 0, np.inf, False

    def widen(self) -> None:
        """Go on with more precise statistics from the present point."""
        self.state, self.patience = State.WORKING, PATIENCE
        self.proofs, self.last_proof, self.last_progress, self.stalled = 0, np.inf, self.rounds, False

    def forget_proofs(self) -> None:
        """What proofs have shown so far is no reason to give up, because the sums are others by now."""
        self.proofs, self.last_proof = 0, np.inf

    @property
    def asks_for_proof(self) -> bool:
        return self.state in (State.READY, State.GIVING_UP)

    @property
    def has_given_up(self) -> bool:
        return self.state in (State.GOING_BACK, State.GIVING_UP)

    @property
    def is_over(self) -> bool:
        return self.state in (State.DONE, State.EXHAUSTED)

    @property
    def stuck(self) -> bool:
        """Whether the gap has not fallen for long."""
        return self.rounds - self.last_progress > self.patience

    def remember(self, certificate: Certificate, a: np.ndarray, theta: np.ndarray) -> bool:
        """Keep a point if it is the best so far; whether it is."""
        gap = certificate.gap
        # On a long way up the primal value may be anything.
        if self.highest is None or certificate.dual > self.highest + CLIMB * abs(self.highest):
            self.highest, self.last_progress = certificate.dual, self.rounds
        if self.best is not None and not gap < self.best.certificate.gap:
            return False
        if self.best is None or gap < 0.999 * self.best.certificate.gap:
            self.last_progress = self.rounds
        self.best = Found(certificate, a.copy(), theta.copy())
        return True

    def polishes(self, violation: float, polished: float) -> bool:
        """Whether a small head within its tolerance takes one more round.

        polished : a violation below which nothing is left to do.
        """
        if self.polish_left <= 0 or not violation > polished:
            return False
        # Rounds that no longer shrink the violation have met round-off.
        self.polish_left -= 1 if violation < 0.5 * self.polished_to else POLISH_ROUNDS // 4
        self.polished_to = min(self.polished_to, violation)
        return True

    def decide(
        self, certificate: Certificate, satisfied: bool, ascends: bool = False, held: bool = False
    ) -> None:
        """What comes after a round.

        satisfied : whether the gap is small enough to ask for a proof. ascends : see `WeightRule`.
        """
        if ascends and self.rounds - self.last_progress > STALLED:
            satisfied = self.stalled = True  # rounds that get nowhere may be wrong about where they are
        over = (
            self.ending
            or self.rounds - self.first_round >= self.head.max_rounds
            or certificate.dual > self.head.ceiling
        )
        if self.has_given_up or over or (self.stuck and not held):
            # What is reported is the best point; the shards go back to it first.
            back = self.state is not State.GOING_BACK and self.best.certificate.gap < 0.99 * certificate.gap
            self.state = State.GOING_BACK if back else State.GIVING_UP
        elif satisfied:
            self.state = State.READY

    def settle(self, certificate: Certificate, a: np.ndarray, theta: np.ndarray, held: bool = False) -> bool:
        """Decide on a proven certificate: done, or back to work.

        Whether weights that are held have to follow again.
        """
        gap, tol = certificate.gap, self.head.tol
        if self.proved is None or gap < self.proved.certificate.gap:
            self.proved = Found(certificate, a.copy(), theta.copy())
        self.best = self.proved  # what the rounds believed to be better has been looked at
        self.proofs += 1
        # Where more precise statistics may be had instead, there is no use in trying for long.
        futile = 1 if self.stalled else 2 if self.patience < PATIENCE else FUTILE_PROOFS
        no_better = self.proofs > futile and gap > 0.7 * self.last_proof
        exhausted = self.stuck or no_better or self.proofs > (MOST_HELD if held else MOST_PROOFS)
        self.last_proof = gap
        released = held and exhausted and gap > tol and not self.has_given_up
        if released:  # weights that follow are sharper
            exhausted, self.proofs, self.last_proof = False, 1, np.inf
        if gap <= tol or self.has_given_up or exhausted:
            self.state = State.EXHAUSTED if exhausted and gap > tol else State.DONE
        else:
            self.state, self.last_progress = State.WORKING, self.rounds
        return released
