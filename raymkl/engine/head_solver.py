"""The coordinator's side of one head: certificate, working set, sub-problem, weights.

    max_a  dual_value(a) - 1/2 dual_norm(s(a)),    s_m = a' K_m a,    lower <= a <= upper,  sum(a) = 0

A round brings the gradients of all rows up to date and certifies the current point. Then the variables of a working set
move. How the weights move is the head's `WeightRule`:

* follow       theta is the gradient of the dual norm at every dual point; the sub-problem knows how theta will answer and a
               line search on the exact dual makes every round an ascent step (chunking, analytic, p > 1).
* fixed point  theta is recomputed from ||w_m|| after every sub-problem (chunking, analytic, p at or very near 1).
* multipliers  as "follow", with a calmer norm in place of the dual norm that is renewed until both agree (chunking, auto, p at or very
               near 1; see `optim.multipliers`).
* hold         theta stays until the SVM at this theta is solved well enough, then takes an analytic or cutting-plane step
               (wrapper: solved to full precision; cutting planes and heads that share weights: until theta is the larger part of the gap).
* led          theta is that of a group of heads (see `shared_weights`), which also decides when they are done.

A head with a `path` solves the same problem for one set of bounds after the other (stages), each from where the last one ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..optim.certificate import Certificate, certify, intercept_candidates, intercept_from_residuals
from ..optim.losses import slopes
from ..optim.multipliers import Multipliers
from ..optim.norms import Norm
from ..optim.subproblem import line_search, solve, weight_response
from ..optim.weights import CuttingPlanes
from ..optim.working_set import choose, merge
from .messages import Head, HeadReply
from .working_blocks import WorkingBlock

# Dual exponents beyond this make the weights jump between kernels; the fixed point is calmer there.
LARGEST_FOLLOWED_EXPONENT = 64.0
# The wrapper solves each SVM to this part of the tolerance.
FULL_PRECISION = 0.1
# Sub-problems are solved to this part of the current violation.
INNER = 0.03
# And to this part, if that solves the whole problem.
WHOLE = 1e-3
# Heads with at most this many rows are solved on to this violation, which costs milliseconds.
POLISH_ROWS = 256
POLISHED = 1e-11
POLISH_ROUNDS = 60
# Steps of the fixed point are stretched up to this factor.
LONGEST_STRIDE = 32.0
# Cutting planes that move no weight by more than this have come to their end.
STANDS_STILL = 1e-9
# A new stage of a path begins with every weight at least this part of the largest one.
LIFTED = 1e-2
# Rounds without progress of the gap after which a head gives up.
PATIENCE = 200


@dataclass
class HeadSummary:
    """Replies of all shards for one head, put together in the order of the shards.

    ids : (k,) sorted rows whose `gradients` (k, R) came back. The rest is as in `HeadReply`.
    """

    grow: np.ndarray
    grow_residual: np.ndarray
    shrink: np.ndarray
    shrink_residual: np.ndarray
    ids: np.ndarray
    gradients: np.ndarray
    quadratic: np.ndarray
    losses: np.ndarray

    @classmethod
    def of(cls, replies: list[HeadReply], count: int) -> HeadSummary:
        sides = []
        for name, sign in (("grow", -1.0), ("shrink", 1.0)):
            keys = [sign * getattr(reply, f"{name}_residual") for reply in replies]
            best, key = merge([getattr(reply, name) for reply in replies], keys, count)
            sides += [best, sign * key]
        # Shards own ascending ranges of rows and report them in order, so the joined ids are sorted.
        return cls(
            *sides,
            ids=np.concatenate([reply.ids for reply in replies]),
            gradients=np.concatenate([reply.gradients for reply in replies]),
            quadratic=np.sum([reply.quadratic for reply in replies], axis=0),
            losses=np.sum([reply.losses for reply in replies], axis=0),
        )

    def gradients_of(self, ids: np.ndarray) -> np.ndarray:
        """(len(ids), R) gradients of rows that were reported."""
        return self.gradients[np.searchsorted(self.ids, ids)]


@dataclass
class Step:
    """A change of dual variables: ids (k,), delta (k,), and the new values (k,)."""

    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    delta: np.ndarray = field(default_factory=lambda: np.empty(0))
    values: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __getitem__(self, part: slice) -> Step:
        return Step(self.ids[part], self.delta[part], self.values[part])


class HeadSolver:
    """State `(a, theta, b)` of a head and the decisions of its rounds."""

    def __init__(self, head: Head, spread: np.ndarray, size: int, new: int, round_off: np.ndarray):
        """spread : (E, R) coefficients of the entries over all basis functions, normalisation included.

        size, new : rows of a working set, and how many of them may be new. round_off : (E,) error of a kernel value.
        """
        self.head, self.spread, self.size, self.new, self.round_off = head, spread, size, new, round_off
        self.stage = head.stage
        self.stretch = 1.0  # what the shards are to multiply the dual variables by, once
        self._set_bounds()
        self.linear = head.loss.linear(head.targets)
        self.a = np.zeros(len(head.targets))
        self.n_active = int(np.sum(head.bounds > 0))
        self.used = np.abs(spread).max(axis=1) > 0
        self.theta = head.norm.start(len(spread)) if head.start is None else np.array(head.start[1], float)
        self.s = np.zeros(len(spread))
        self.rule = self._rule()
        self.multipliers = Multipliers(head.norm, self.theta, self.used, head.tol) if self.rule == "multipliers" else None
        self.planes = CuttingPlanes(head.norm, len(spread)) if self._cuts() else None
        self.working_set = np.empty(0, np.int64)
        self.entered = np.zeros(len(head.targets), np.int32)  # the round in which a row last came into the working set
        self.intercepts = intercept_candidates(0.0, 1.0)
        self.intercept = 0.0
        self.violation = np.inf
        self.certificate: Certificate | None = None
        self.rounds = 0
        self.weights_moved = False
        self.smoothing = np.zeros(len(spread))
        self._start_stage()

    def _set_bounds(self) -> None:
        self.scale = self.head.path[self.stage]
        self.bounds = self.head.bounds * self.scale
        self.lower, self.upper = self.head.loss.box(self.head.targets, self.bounds)

    def _start_stage(self) -> None:
        self.best: tuple | None = None
        self.first_round = self.last_progress = self.rounds
        self.polish_left, self.polished_to = POLISH_ROUNDS, np.inf
        self.stride, self.last_weight_gap = 1.0, np.inf
        self.done = self.converged = False

    @property
    def last_stage(self) -> bool:
        return self.stage + 1 == len(self.head.path)

    def next_stage(self) -> None:
        """Go on with the next bounds of the path.

        All dual variables are multiplied by one number, which keeps them feasible and costs the shards no kernel value: of the
        numbers that fit the new box, the one with the best dual objective `t * value - t^2 / 2 * dual_norm`.
        """
        value, size = self.head.loss.dual_value(self.a, self.head.targets, self.bounds), self.head.norm.dual(self.s)
        ratio = self.head.path[self.stage + 1] / self.scale
        self.stretch = min(max(value / size, min(ratio, 1.0)), ratio) if size > 0 else min(ratio, 1.0)
        self.stage += 1
        self._set_bounds()
        self.a = np.clip(self.a * self.stretch, self.lower, self.upper)  # the very operation of the shards: equal to the last bit
        self.s = self.s * self.stretch**2
        self._renew_weights()
        self._start_stage()

    def _renew_weights(self) -> None:
        """What the weights of the last stage leave to the next one.

        Cuts belong to the old bounds. Steps of the fixed point are factors: a weight that has come down to nothing would take so
        many of them to return that they grow too long and overshoot.
        """
        if self.multipliers is not None:
            self.multipliers.new_bounds(self.theta)
            self.theta = self._followed_weights()
        elif self._cuts():
            self.planes = CuttingPlanes(self.head.norm, len(self.spread))
        elif self.rule in ("fixed point", "hold") and self.head.norm.p < 2:
            self.theta = np.where(self.used, self.head.norm.project(np.maximum(self.theta, LIFTED * self.theta.max())), 0.0)

    def _rule(self) -> str:
        head = self.head
        if head.solver == "wrapper" or head.theta_step == "cutting_plane" or head.group is not None:
            return "hold"
        if head.norm.k <= LARGEST_FOLLOWED_EXPONENT:
            return "follow"
        return "multipliers" if head.theta_step == "auto" else "fixed point"

    def _cuts(self) -> bool:
        """Whether held weights take steps of cutting planes: where asked for, and where they are quicker than the analytic ones."""
        quicker = self.head.theta_step == "auto" and self.rule == "hold" and self.head.norm.p == 1
        return self.head.theta_step == "cutting_plane" or quicker

    @property
    def combination(self) -> np.ndarray:
        """(R,) weights of the basis functions in f."""
        return self.spread.T @ self.theta

    # -- after a round ----------------------------------------------------------------------------------------------

    def absorb(self, summary: HeadSummary) -> None:
        """Certify the current point, decide whether the head is done, and let a `hold` head take its weight step."""
        self.summary = summary
        self.rounds += 1
        self.stretch = 1.0
        self.s = self._quadratic_terms(summary.quadratic)
        dual_value = self.head.loss.dual_value(self.a, self.head.targets, self.bounds)
        self.losses = summary.losses
        self.certificate = certify(self.head.norm, self.theta, self.s, dual_value, self.intercepts, summary.losses)
        top = summary.grow_residual.max(initial=-np.inf)
        bottom = summary.shrink_residual.min(initial=np.inf)
        self.violation = max(top - bottom, 0.0)
        if np.isfinite(top) and np.isfinite(bottom):
            self.middle = (top + bottom) / 2
        else:
            self.middle = self.certificate.intercept
        if top < bottom:  # every b between them is optimal; which candidate wins by a rounding error must not decide about predictions
            self.certificate = replace(self.certificate, intercept=self.middle)
        self.intercept = self.certificate.intercept
        self.weights_moved = False
        if self.rule == "led":
            return
        if self.multipliers is not None:
            wanted = self.multipliers.after_round(self.certificate, self.theta, self._gram)
            if wanted is not None:  # the next round says what the certificate of these weights is
                self.theta, self.weights_moved = wanted, True
                return
        self._remember()
        self._decide()
        if not self.done and self.rule == "hold":
            self._held_weight_step(dual_value)
        if not self.done and self.multipliers is not None and self._stalled:
            before, self.theta = self.theta, self._followed_weights()
            self.weights_moved = bool(np.any(self.theta != before))

    def _quadratic_terms(self, quadratic: np.ndarray) -> np.ndarray:
        """s (E,) = a'K_e a; clearly negative ones mean that a kernel is not positive semi-definite."""
        s = self.spread @ quadratic
        allowed = 1e-3 * np.abs(s).max(initial=0.0) + 1e3 * self.round_off * float(self.a @ self.a)
        bad = np.flatnonzero(s < -allowed)
        if len(bad):
            raise ValueError(
                f"kernel {bad[0]} is not positive semi-definite: the optimiser met a quadratic form of {s[bad[0]]:.6g}; "
                "every kernel must be positive semi-definite on the training rows"
            )
        return np.maximum(s, 0.0)

    def _remember(self) -> None:
        gap = self.certificate.gap
        if self.best is None or gap < self.best[0].gap:
            if self.best is None or gap < 0.999 * self.best[0].gap:
                self.last_progress = self.rounds
            self.best = (self.certificate, self.a.copy(), self.theta.copy())

    def _decide(self) -> None:
        if self.certificate.gap <= self.head.tol:
            self.converged = True
            polishing = self.rule == "follow" and self.n_active <= POLISH_ROWS and self.polish_left > 0
            if polishing and self.violation > POLISHED * max(1.0, np.abs(self.linear).max()):
                # Rounds that no longer shrink the violation have met round-off.
                self.polish_left -= 1 if self.violation < 0.5 * self.polished_to else POLISH_ROUNDS // 4
                self.polished_to = min(self.polished_to, self.violation)
            else:
                self.done = True
        stuck = self.rounds - self.last_progress > PATIENCE or self.certificate.dual > self.head.ceiling
        if self.rounds - self.first_round >= self.head.max_rounds or stuck:
            self.done = True

    @property
    def _stalled(self) -> bool:
        """Whether no dual variable can move at these weights."""
        return self.violation <= 1e-13 * max(1.0, np.abs(self.linear).max())

    def _held_weight_step(self, dual_value: float) -> None:
        certificate, norm = self.certificate, self.head.norm
        precise = FULL_PRECISION * self.head.tol * abs(certificate.primal)
        enough = precise if self.head.solver == "wrapper" else max(precise, 0.5 * certificate.weight_gap)
        if (certificate.svm_gap > enough and not self._stalled) or norm.p == 2:
            return
        before = self.theta
        if self.planes is not None:
            self.planes.add(dual_value, 0.5 * self.s)
            self.theta = self.planes.step()
            solved = certificate.svm_gap <= FULL_PRECISION * precise or self._stalled
            if self.head.theta_step == "auto" and solved and np.abs(self.theta - before).max() <= STANDS_STILL:
                # Cuts tell weights apart by the objective, to its round-off; the rest is left to the fixed point.
                self.planes, self.theta = None, before
                self.theta = self._fixed_point_weights()
        elif norm.p < 2:
            self.theta = self._fixed_point_weights()
        else:
            self._update_smoothing()
            self.theta = self._followed_weights()
        self.weights_moved = bool(np.any(self.theta != before))

    def _update_smoothing(self) -> None:
        """A floor (E,) under the quadratic terms from which weights are made.

        Terms below the round-off of the statistics mean nothing. For p > 2 a vanishing term asks for an infinite weight; a floor
        that changes the dual penalty by less than half the tolerance, for all kernels together, keeps it finite.
        """
        norm, floor = self.head.norm, 0.0
        if norm.p > 2:
            share = 0.5 * self.head.tol * norm.k / max(self.used.sum(), 1)
            floor = norm.sizes(self.s) * share ** (1.0 / norm.k)
        self.smoothing = np.where(self.used, np.maximum(floor, self.round_off * float(self.a @ self.a)), 0.0)

    def _followed_weights(self) -> np.ndarray:
        return np.where(self.used, self._followed_norm().weights(self.s + self.smoothing), 0.0)

    def _followed_norm(self) -> Norm:
        """The norm whose gradient the weights are."""
        return self.head.norm if self.multipliers is None else self.multipliers.followed

    def _fixed_point_weights(self) -> np.ndarray:
        """theta moved along the step of the fixed point, in logarithms; steps grow while the weights' part of the gap shrinks."""
        norm, part = self.head.norm, self.certificate.weight_gap
        self.stride = min(1.3 * self.stride, LONGEST_STRIDE) if part <= self.last_weight_gap else max(0.5 * self.stride, 1.0)
        self.last_weight_gap = part
        target = norm.weights_from_lengths(self.theta * np.sqrt(self.s))
        # A weight that is exactly zero could never return.
        with np.errstate(divide="ignore"):
            now, then = np.log(np.maximum(self.theta, 1e-12 * self.theta.max())), np.log(np.maximum(target, 1e-12 * target.max()))
        logs = now + self.stride * (then - now)
        return np.where(self.used, norm.project(np.exp(np.maximum(logs - norm.largest(logs), np.log(1e-12)))), 0.0)

    def _gram(self) -> np.ndarray:
        """(E, E) inner products of the kernels' parts of f on the rows that were reported, without their means (b makes up for them).

        The quadratic terms count as much as all rows together: they must stay the same, too.
        """
        g = self.summary.gradients - self.summary.gradients.mean(axis=0)
        gram = self.spread @ (g.T @ g) @ self.spread.T
        return gram + np.outer(self.s, self.s) * (np.trace(gram) / max(float(self.s @ self.s), 1e-300))

    # -- the next step ------------------------------------------------------------------------------------------------

    def next_working_set(self) -> np.ndarray:
        """Ids (q,) of the rows to move, or none after a weight step (rows are chosen once f knows the new weights)."""
        if self.weights_moved:
            return np.empty(0, np.int64)
        summary = self.summary
        a, lower, upper = (values[self.working_set] for values in (self.a, self.lower, self.upper))
        inside = (a > lower) & (a < upper) & (a != 0)
        kept = np.concatenate([self._newest_first(self.working_set[inside]), self._newest_first(self.working_set[~inside])])
        new = max(self.new, self.size - len(kept))
        chosen = choose(summary.grow, summary.grow_residual, summary.shrink, summary.shrink_residual, kept, self.size, new)
        self.entered[np.setdiff1d(chosen, self.working_set, assume_unique=True)] = self.rounds
        if len(chosen) == 0:
            # Nothing can move, so b lies between the residuals of both sides.
            self.intercepts = intercept_candidates(self.middle, abs(self.middle - self.intercept), (self.intercept,))
        return chosen

    def _newest_first(self, ids: np.ndarray) -> np.ndarray:
        """Rows in the order in which they may stay. Those that came last have met the fewest others: 50 kernels on 20,000 digits take
        26 rounds this way, 30 with any rows and 40 with the oldest.
        """
        return ids[np.argsort(-self.entered[ids], kind="stable")]

    def step(self, ids: np.ndarray, block: WorkingBlock) -> Step:
        """Solve the sub-problem of a working set; moves `a`, `theta` and the candidates for b, and returns the change."""
        if len(ids) == 0:
            return Step()
        kink = self.head.loss.kink
        self.working_set = ids
        x, lower, upper = self.a[ids], self.lower[ids], self.upper[ids]
        gradients = self.summary.gradients_of(ids)
        following, norm = self.rule in ("follow", "multipliers"), self._followed_norm()
        if following:
            self._update_smoothing()
            self.theta = self._followed_weights() if self.s.max(initial=0.0) > 0 else self.theta
        residual = self.linear[ids] - gradients @ self.combination
        left = None
        if following and self.s.max(initial=0.0) > 0:
            smooth = self.s + self.smoothing
            left = weight_response(norm, np.where(self.used, smooth, smooth.max()), gradients, self.spread, 2.0 * self.smoothing)
        Q = block.hessian(self.combination, left, gradients)
        tolerance = max(INNER * self.violation, 1e-14)
        # All rows at once: the answer, if no weights follow it. After them a precise one would have to be found anew.
        whole = len(ids) == self.n_active
        settled = not following or self.head.norm.p == 2 or self.used.sum() == 1
        if whole or not np.isfinite(tolerance):
            tolerance = (WHOLE if settled else INNER) * min(self.violation, 1.0)
        solution, _ = solve(Q, residual, x, lower, upper, tolerance, max_steps=200 * len(ids) + 20_000, kink=kink)
        delta = solution - x
        change = block.change(delta)
        gain = float(self.linear[ids] @ delta)
        s1, s2 = 2.0 * (self.spread @ (delta @ gradients)), self.spread @ (delta @ change)
        t = 1.0
        if following:
            exact = (lambda t: gain - kink * float(np.sign(x + t * delta) @ delta)) if kink else gain
            t = line_search(norm, exact, self.s, s1, s2, self.smoothing)
        moved = solution if t == 1.0 else np.clip(x + t * delta, lower, upper)
        self.s = np.maximum(self.s + t * s1 + t * t * s2, 0.0)
        if following:
            self.theta = self._followed_weights()
            if self.multipliers is not None:
                self.multipliers.after_step(t)
        elif self.rule == "fixed point":
            self.theta = self._fixed_point_weights()
        self.a[ids] = moved
        self._place_intercepts(ids, self.linear[ids] - (gradients + t * change) @ self.combination)
        changed = moved != x
        return Step(ids[changed], (moved - x)[changed], moved[changed])

    def _place_intercepts(self, ids: np.ndarray, residual: np.ndarray) -> None:
        """Candidates for b around the value that the working set's optimality conditions ask for."""
        grow, shrink = self.a[ids] < self.upper[ids], self.a[ids] > self.lower[ids]
        center = intercept_from_residuals(slopes(residual, self.a[ids], self.head.loss.kink), grow, shrink, self.bounds[ids])
        center = self.intercept if center is None else center
        width = min(max(self.violation, abs(center - self.intercept)), 10.0)
        self.intercepts = intercept_candidates(center, width, (self.intercept, self.middle))
