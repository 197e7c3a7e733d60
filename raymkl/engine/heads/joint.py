"""The classes of one joint problem: heads that share rows, weights, working sets and a loss.

    max_A  sum_i a_{i,y_i} - 1/2 dual_norm(s(A)),    s_m = sum_k a_k' K_m a_k,    a_ik <= c_i [k = y_i],
           sum_k a_ik = 0 for every row

Shards keep the sums of every class as those of any head. What the classes have together is known here: the
certificate and the decisions of their leader, the rows to move (by the violation of a row over all classes),
and the sub-problem of these rows with a variable per class, whose solution the weights follow as those of one
head do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...optim.certificate import certify
from ...optim.joint_rows import move_rows, violation_within
from ...optim.losses import joint_losses
from ...optim.weights import FollowMultipliers, rule_of
from .ascent import INNER, MOST_REPEATS, POLISH_ROWS, POLISHED, REPEATED_ROWS, WHOLE
from .head import HeadSolver
from .leader import Leader
from .summary import Step

if TYPE_CHECKING:
    from ..rounds.blocks import WorkingBlock

NO_INTERCEPT = np.zeros(1)


class RowBox(NamedTuple):
    """Ends (n,) of the largest dual variable of every row."""

    lower: np.ndarray
    upper: np.ndarray


class JointLeader(Leader):
    """Leads the classes of a joint problem; `next_working_set` and `steps` take the place of those of its
    members.
    """

    def __init__(self, members: list[HeadSolver]):
        super().__init__(members)
        head = self.head
        rule = rule_of(head.norm, members[0].rule.used, head.tol, self.theta, head.solver, head.theta_step)
        if not isinstance(
            rule, FollowMultipliers
        ):  # which looks at the parts of f; what leaders do otherwise serves there
            self.rule = rule
        for member in members:
            member.point.intercepts = NO_INTERCEPT

    def starting_steps(self) -> list[Step]:
        """The dual variables that the classes begin with, as changes from zero. Rows that do not sum to zero
        (they come from a problem with other bounds) shrink until they do.
        """
        A, terms = self.a, self.members[0].box.terms
        rows, classes = np.arange(len(A)), terms.targets.astype(np.int64)
        wrong = np.abs(A.sum(axis=1)) > 1e-9 * terms.bounds
        others = np.minimum(A, 0.0)
        others[rows, classes] = 0.0
        total = -others.sum(axis=1)
        others *= np.minimum(terms.bounds / np.maximum(total, 1e-300), 1.0)[:, None]
        others[rows, classes] = np.minimum(-others.sum(axis=1), terms.bounds)
        A[wrong] = others[wrong]
        return [member.begin_at(np.ascontiguousarray(A[:, k])) for k, member in enumerate(self.members)]

    # -- what the members have together ------------------------------------------------------------

    @property
    def a(self) -> np.ndarray:
        """(n, K) dual variables."""
        return np.stack([member.a for member in self.members], axis=1)

    @property
    def violation(self) -> float:
        return self.members[0].violation

    @property
    def noise(self) -> np.ndarray:
        """(E,) round-off of the quadratic terms."""
        return self.round_off * float(np.sum(self.a**2))

    @property
    def coefficients(self) -> np.ndarray:
        """(E, R) of the entries over all basis functions; rows and normalisation are those of all classes."""
        return self.members[0].coefficients

    def _certify(self) -> None:
        super()._certify()
        self.certificate = replace(self.certificate, intercept=0.0)
        for member in self.members:
            member.seen.certificate, member.point.intercept = self.certificate, 0.0

    def satisfied(self) -> bool:
        """Whether to ask for a proof: the gap is small enough, and small problems are polished, as those of
        one head are.
        """
        if self.certificate.gap > self.head.tol:
            return False
        first = self.members[0]
        may_polish = self.rule.ascends and first.box.n_active <= POLISH_ROWS
        return not (may_polish and self.course.polishes(self.violation, POLISHED))

    def next_stage(self) -> None:
        """All classes go on with their next bounds, their dual variables multiplied by one number: rows keep
        their sums.
        """
        first, size = self.members[0], self.head.norm.dual(self.s)
        ratio = self.head.path[first.stage + 1] / first.bounds_factor
        t = min(max(self._dual_value() / size, min(ratio, 1.0)), ratio) if size > 0 else min(ratio, 1.0)
        for member in self.members:
            member.enter_stage(t)
        self.s = self.s * t**2
        self.theta = self.rule.new_stage(self.theta, self.s)
        self._hand_over_weights()
        self.course.start_stage()

    # -- the next step -----------------------------------------------------------------------------

    def next_working_set(self) -> np.ndarray:
        """Ids (q,) of the rows to move, or none after a weight step."""
        first = self.members[0]
        if first.seen.stale:
            return np.empty(0, np.int64)
        box = RowBox(np.zeros(len(first.a)), first.box.terms.bounds)
        chosen = first.rows.next(
            first.seen.summary, np.abs(self.a).max(axis=1), box, first.rounds, shrinks=False
        )
        for member in self.members:
            member.rows.ids = chosen
        return chosen

    def steps(self, ids: np.ndarray, block: WorkingBlock) -> list[Step]:
        """Solve the sub-problem of a working set; moves dual variables and weights, and returns the change of
        every class.
        """
        members, before = self.members, self.a[ids]
        for member in members:
            member.point.before_step = member.a.copy()
        gradients = np.stack(
            [member.seen.summary.gradients_of(ids) for member in members], axis=1
        )  # (q, K, R)
        offsets = np.stack([member.seen.summary.offsets_of(ids) for member in members], axis=1)
        self._move(ids, block, offsets, gradients)
        self._hand_over_weights()
        steps = []
        for k, member in enumerate(members):
            member.point.before_step = None
            moved = member.a[ids]
            changed = moved != before[:, k]
            steps.append(Step(ids[changed], (moved - before[:, k])[changed], moved[changed]))
        return steps

    def _move(self, ids: np.ndarray, block: WorkingBlock, offsets: np.ndarray, gradients: np.ndarray) -> None:
        """Move rows and weights; a working set of all rows is solved several times where the weights answer
        and no shard need be asked.
        """
        terms = self.members[0].box.terms
        classes, upper = terms.targets[ids].astype(np.int64), terms.bounds[ids]
        linear = -offsets
        linear[np.arange(len(ids)), classes] += 1.0
        whole, repeats, violation = (
            len(ids) == self.members[0].box.n_active,
            self.rule.repeats,
            self.violation,
        )
        precision = WHOLE if whole and not repeats else INNER
        again = whole and repeats and not block.asks_shards and len(ids) <= REPEATED_ROWS
        for repeat in range(MOST_REPEATS if again else 1):
            before, tolerance = violation, max(precision * min(violation, 1.0), 1e-14)
            gradients = gradients + self._move_once(ids, block, linear, gradients, classes, upper, tolerance)
            residual, A = linear - gradients @ (self.coefficients.T @ self.theta), self.a[ids]
            violation = violation_within(residual, A, classes, upper)
            if violation <= POLISHED or (repeat >= 2 and violation > 0.5 * before):
                break
            if (
                again
                and self._gap_within(residual, linear, classes, upper) <= 0.5 * self.head.tol
                and len(ids) > POLISH_ROWS
            ):
                break

    def _move_once(
        self,
        ids: np.ndarray,
        block: WorkingBlock,
        linear: np.ndarray,
        gradients: np.ndarray,
        classes: np.ndarray,
        upper: np.ndarray,
        tolerance: float,
    ) -> np.ndarray:
        """The change (q, K, R) of the working set's gradients by one sub-problem.

        linear : (q, K) residual without the gradients.
        """
        rule, q, K = self.rule, len(ids), len(self.members)
        self.theta = rule.before_step(self.theta, self.s, self.noise)
        combination = self.coefficients.T @ self.theta
        flat = gradients.reshape(q * K, -1)
        response = rule.response(self.s, flat, self.coefficients)
        none = np.zeros((q, K, 0))
        left, right = (none, none) if response is None else (response.reshape(gradients.shape), gradients)
        residual, x = linear - gradients @ combination, self.a[ids]
        A = x.copy()
        Q = np.ascontiguousarray(block.hessian(combination, None, None))
        move_rows(
            Q,
            np.ascontiguousarray(left),
            np.ascontiguousarray(right),
            residual,
            A,
            classes,
            upper,
            tolerance,
            100 * q + 5_000,
        )
        delta = A - x
        change = np.zeros(gradients.shape)
        for k in np.flatnonzero(delta.any(axis=0)):
            change[:, k] = block.change(np.ascontiguousarray(delta[:, k]))
        s1 = 2.0 * (self.coefficients @ np.einsum("qk,qkr->r", delta, gradients))
        s2 = self.coefficients @ np.einsum("qk,qkr->r", delta, change)
        t = rule.step_length(float(np.sum(linear * delta)), self.s, s1, s2)
        moved = A if t == 1.0 else self._between(x, delta, t, classes, upper)
        for k, member in enumerate(self.members):
            member.point.a[ids] = moved[:, k]
        self.s = np.maximum(self.s + t * s1 + t * t * s2, 0.0)
        self.theta = rule.after_step(self.theta, self.s, t, self.certificate.weight_gap)
        return t * change

    @staticmethod
    def _between(
        x: np.ndarray, delta: np.ndarray, t: float, classes: np.ndarray, upper: np.ndarray
    ) -> np.ndarray:
        """A part t of a step, with every row in its box and its own class making up for the others'
        round-off.
        """
        rows = np.arange(len(x))
        moved = np.minimum(x + t * delta, 0.0)
        moved[rows, classes] = 0.0
        moved[rows, classes] = np.minimum(-moved.sum(axis=1), upper)
        return moved

    def _gap_within(
        self, residual: np.ndarray, linear: np.ndarray, classes: np.ndarray, upper: np.ndarray
    ) -> float:
        """Relative gap of the problem that consists of the rows of a working set alone."""
        own = np.zeros(residual.shape)
        own[np.arange(len(own)), classes] = 1.0
        losses = float(upper @ joint_losses(own - residual, classes))
        value = float(sum(member.box.terms.value(member.a) for member in self.members))
        return certify(self.head.norm, self.theta, self.s, value, NO_INTERCEPT, np.array([losses])).gap
