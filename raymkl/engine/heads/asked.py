"""What others ask of a head, and its parts know: its point, its box, its course."""

from __future__ import annotations

import numpy as np

from ...optim.certificate import Certificate
from ..problem import Head
from .ascent import Ascent, DualBox, Point
from .state import Correction, Course, Holding, Seen, State, WorkingSet

# Rows leave the rounds once the gap is below the first number, if they are this many times the violation, and
# this part of the targets' size, away from moving their dual variable.
SETTLING = 0.3
LEAVING = 1.0
NEAR = 0.03


class AskedHead:
    """A head as leaders, rosters and rounds see it.

    head : the problem. box, point, ascent : of its dual variables and weights. rows : working set. course :
    where it is between its first round and its proof. seen : what the last round has shown. correction : by
    the last proof. holding : whether its weights are held.
    """

    head: Head
    box: DualBox
    point: Point
    ascent: Ascent
    rows: WorkingSet
    course: Course
    seen: Seen
    correction: Correction
    holding: Holding

    @property
    def a(self) -> np.ndarray:
        """(n,) dual variables."""
        return self.point.a

    @a.setter
    def a(self, values: np.ndarray) -> None:
        self.point.a = values

    @property
    def told(self) -> np.ndarray:
        """(n,) dual variables that the shards know, or will know by the steps that were handed over."""
        return self.point.told

    @property
    def theta(self) -> np.ndarray:
        """(E,) weights."""
        return self.point.theta

    @property
    def s(self) -> np.ndarray:
        """(E,) quadratic terms."""
        return self.point.s

    @property
    def coefficients(self) -> np.ndarray:
        """(E, R) coefficients of the entries over all basis functions, normalisation included."""
        return self.ascent.coefficients

    @property
    def round_off(self) -> np.ndarray:
        """(E,) error of a kernel value."""
        return self.ascent.round_off

    @property
    def combination(self) -> np.ndarray:
        """(R,) weights of the basis functions in f."""
        return self.ascent.combination

    @property
    def intercept(self) -> float:
        return self.point.intercept

    @property
    def intercepts(self) -> np.ndarray:
        """(B,) candidates for b, at which shards evaluate the losses."""
        return self.point.intercepts

    @property
    def lower(self) -> np.ndarray:
        """(n,) lower end of the box."""
        return self.box.lower

    @property
    def upper(self) -> np.ndarray:
        """(n,) upper end of the box."""
        return self.box.upper

    @property
    def bounds_factor(self) -> float:
        """What the stage multiplies the head's bounds by."""
        return self.box.bounds_factor

    @property
    def stage(self) -> int:
        return self.box.stage

    @property
    def last_stage(self) -> bool:
        return self.stage + 1 == len(self.head.path)

    @property
    def working_set(self) -> np.ndarray:
        """(q,) ids of the rows that moved last."""
        return self.rows.ids

    @property
    def certificate(self) -> Certificate:
        """Of the point that the last round, or its proof, has shown."""
        return self.seen.certificate

    @property
    def violation(self) -> float:
        return self.seen.violation

    @property
    def rounds(self) -> int:
        return self.course.rounds

    @property
    def corrected(self) -> bool:
        """Whether shards have what a proof has shown of f; while weights are held, all that they have of it
        is from a proof.
        """
        return self.correction.made or self.held

    @property
    def ready(self) -> bool:
        """Whether a proof is wanted."""
        return self.course.asks_for_proof

    @property
    def going_back(self) -> bool:
        """Whether the next step is `return_to_best`."""
        return self.course.state is State.GOING_BACK

    @property
    def done(self) -> bool:
        return self.course.is_over

    @property
    def exhausted(self) -> bool:
        """Whether nothing but more precise statistics would help."""
        return self.course.state is State.EXHAUSTED

    @property
    def held(self) -> bool:
        """Whether weights are held, and shards keep f alone."""
        return self.holding is Holding.NOW

    @property
    def hold(self) -> bool:
        """Whether shards are to keep f alone after the next round."""
        return self.holding is Holding.NEXT

    @property
    def leave(self) -> tuple[float, float] | None:
        """Intercept and band beyond which rows leave the rounds; None while too much is moving."""
        if not self.head.shrinks or self.certificate is None or self.certificate.gap > SETTLING:
            return None
        return self.seen.middle, LEAVING * self.violation + NEAR * float(np.abs(self.box.terms.linear).mean())
