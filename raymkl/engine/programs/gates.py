"""Localized multiple kernel learning: gates are learned by descent on the optimal value of the SVM.

    min_gates  J(gates),    J = max_a  sum_i y_i a_i - 1/2 sum_m sum_ij a_i a_j eta_m(i) eta_m(j) k_m(i, j)
               (box, sum(a) = 0)
    eta_m(x) = exp(s_m(x)) / sum_k exp(s_k(x)),       scores s_m affine in x, or a function in a kernel's
    feature space

With B[i, m] = sum_j a_j k_m(i, j) eta_m(j) and A[i] = sum_m eta_m(i) B[i, m] the gradient in the scores is

    dJ / ds_m(i) = -a_i eta_m(i) (B[i, m] - A[i])

Every evaluation of J is an SVM solved by the engine over cached columns, from the last dual variables. A
trial is given up as soon as its dual value shows that J cannot be smaller. Directions are gradients,
corrected by the curvature that the last steps have met. Steps are accepted only when the certified primal
value, an upper bound of J, falls enough, so the objective never increases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...optim.quasi_newton import Memory, Vector
from ..heads.result import HeadResult
from ..problem import Head
from ..rounds.coordinator import Coordinator
from ..shard.shard import Shard
from .gate_scores import KernelScores, LinearScores
from .program import Program

# Gates below this are zero: the kernel is not evaluated there.
NO_GATE_BELOW = 1e-8
# Part of the decrease promised by the gradient that a step must keep, and how much shorter the next trial is.
SUFFICIENT = 1e-4
SHORTER = 0.3
MOST_TRIALS = 12
# Scores change by at most this much in a step.
LARGEST_CHANGE = 4.0
# A squared gradient below this part of the objective is none: one kernel, or gates that are all 0 or 1.
NO_SLOPE = 1e-12
# With at most this many rows the matrices of the many SVMs are so small that threads of BLAS wait for each
# other more than they work, on a busy machine for a hundred times as long.
FEW_ROWS = 1_000
# SVMs begin with this relative gap and end with the wanted one.
FIRST_GAP = 1e-2
# Part of the last relative decrease to which the next SVM is solved.
GAP_OF_DECREASE = 0.1


@dataclass
class Gating:
    """Learned gates of one head.

    parameters : see `gate_scores`. gates : (n, M) softmax values. result : of the SVM. steps : taken.
    """

    parameters: Any
    gates: np.ndarray
    result: HeadResult
    history: list[dict]
    steps: int
    settled: bool


@dataclass
class _State:
    """A point of the descent."""

    parameters: Any
    scores: np.ndarray
    gates: np.ndarray
    result: HeadResult
    products: np.ndarray  # (n, M) B

    @property
    def objective(self) -> float:
        return self.result.certificate.primal


def softmax(scores: np.ndarray) -> np.ndarray:
    """(n, M) gates of scores (n, M): rows sum to one, values below 1e-8 are zero."""
    values = np.exp(scores - scores.max(axis=1, keepdims=True))
    values /= values.sum(axis=1, keepdims=True)
    values[values < NO_GATE_BELOW] = 0.0
    return values / values.sum(axis=1, keepdims=True)


def entry_products(shard: Shard, h: int, coefficients: np.ndarray) -> np.ndarray | None:
    """(own rows, E) sum_j a_j gate_e(j) k_e(j, i) of a head; None when the shard does not know it.

    coefficients : (E, R).
    """
    if h not in shard.heads:
        return None
    return np.concatenate(shard.heads[h].G, axis=1) @ coefficients.T


@dataclass
class GatedDescent(Program):
    """Learn the gates of every head, one head after the other, over one set of cached columns.

    model : where scores come from. base_gates : (n, M) factors of the gates (spherical normalisation) or
    None. max_iter, tol : steps at most, and the relative decrease of the objective below which they end.
    n_init, seed : random starts.
    """

    heads: list[Head]
    model: LinearScores | KernelScores
    n_kernels: int
    max_iter: int
    tol: float
    n_init: int
    seed: int
    base_gates: np.ndarray | None = None

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        self.found: list[Gating] = []
        coordinator.begin(1)
        if coordinator.shared.problem.n_rows <= FEW_ROWS:
            coordinator.threads.one_blas_thread()
        coordinator.blocks.share(2)  # every solve meets the same pairs
        random = np.random.default_rng(self.seed)
        self.model.begin(coordinator.crew)
        active = np.any([head.bounds > 0 for head in self.heads], axis=0).astype(float)
        self.normalisation = coordinator.shared.normalisation(self.heads[0], active)
        for head in self.heads:
            best: Gating | None = None
            for _ in range(self.n_init):
                if best is not None and coordinator.winding_up:
                    break
                found = yield from self._descend(coordinator, head, random)
                if best is None or found.result.certificate.primal < best.result.certificate.primal:
                    best = found
            self.found.append(best)
        self.model.close(coordinator.crew)

    def outcome(self) -> list[Gating]:
        return self.found

    # -- one descent -------------------------------------------------------------------------------

    def _descend(
        self, coordinator: Coordinator, head: Head, random: np.random.Generator
    ) -> Iterator[list[dict]]:
        """From a random start down to where steps lower the objective by less than the tolerance; returns a
        `Gating`.
        """
        parameters, scores = self.model.start(self.n_kernels, random)
        gap = max(self.tol, FIRST_GAP)
        state = yield from self._evaluate(coordinator, head, parameters, scores, None, gap, np.inf)
        history = [self._row(coordinator, state, 0, 0.0)]
        memory, steps, settled, flat = Memory(), 0, False, 0
        gradient = self._gradient(state)
        while steps < self.max_iter and not settled and not coordinator.winding_up:
            if gradient.inner(gradient) <= NO_SLOPE * abs(state.objective):
                settled = True
                break
            step = memory.direction(gradient)
            new, length = yield from self._search(
                coordinator, head, state, step, step.inner(gradient), len(memory) > 0, gap
            )
            if new is None and len(memory):
                memory = Memory()  # once more along the gradient itself
            elif new is None and gap > self.tol:
                # No step could be certified: the SVMs must be sharper. The objective of the same gates can
                # only come down.
                gap = max(self.tol, 0.1 * gap)
                state = yield from self._sharpened(coordinator, head, state, gap)
                gradient = self._gradient(state)
            elif new is None:
                settled = True
            else:
                steps += 1
                decrease = (state.objective - new.objective) / max(abs(state.objective), 1e-300)
                before, gradient, state = gradient, self._gradient(new), new
                memory.add(step, length, before, gradient)
                history.append(self._row(coordinator, state, steps, length))
                flat = flat + 1 if decrease < self.tol else 0
                gap = float(np.clip(GAP_OF_DECREASE * decrease, self.tol, gap))
                settled = flat >= 2 and gap <= self.tol
        if state.result.certificate.gap > self.tol and not coordinator.winding_up:
            last = yield from self._sharpened(coordinator, head, state, self.tol)
            if last is not state:
                state = last
                history.append(self._row(coordinator, state, steps, 0.0))
        return Gating(state.parameters, state.gates, state.result, history, steps, settled)

    def _search(
        self,
        coordinator: Coordinator,
        head: Head,
        state: _State,
        step: Vector,
        slope: float,
        curved: bool,
        gap: float,
    ) -> Iterator[list[dict]]:
        """Line search against `step`: the state there and the length, or None when no length lowers the
        objective enough.

        slope : of the objective along the step. curved : whether the step knows of curvature, and so how long
        it should be.
        """
        if slope <= 0.0:
            return None, 0.0
        largest = float(np.abs(step.change).max())
        length = min(1.0 if curved else 1.0 / largest, LARGEST_CHANGE / largest)
        for _ in range(MOST_TRIALS):
            if coordinator.winding_up:
                break
            if length * slope < 0.1 * self.tol * abs(state.objective) and gap <= self.tol:
                break  # less is promised than what is wanted
            parameters = self.model.moved(state.parameters, step.parameters, length)
            ceiling = state.objective - SUFFICIENT * length * slope
            new = yield from self._evaluate(
                coordinator, head, parameters, state.scores - length * step.change, state, gap, ceiling
            )
            if new is not None:
                return new, length
            length *= SHORTER
        return None, 0.0

    def _sharpened(
        self, coordinator: Coordinator, head: Head, state: _State, gap: float
    ) -> Iterator[list[dict]]:
        """The state at the same gates with its SVM solved to a smaller gap, or the state itself where that is
        not lower.
        """
        sharper = yield from self._evaluate(
            coordinator, head, state.parameters, state.scores, state, gap, np.inf
        )
        return sharper if sharper.objective <= state.objective else state

    def _gradient(self, state: _State) -> Vector:
        average = np.sum(state.gates * state.products, axis=1, keepdims=True)
        slopes = -state.result.a[:, None] * state.gates * (state.products - average)
        return Vector(slopes, *self.model.direction(slopes))

    def _evaluate(self, coordinator, head, parameters, scores, before, gap, ceiling) -> Iterator[list[dict]]:
        """The state at the given scores, its SVM solved from `before`; None when its objective is not below
        the ceiling.
        """
        gates = softmax(scores)
        coordinator.shared.set_gates(gates if self.base_gates is None else gates * self.base_gates)
        start = None if before is None else (before.result.a, before.result.theta)
        (h,) = coordinator.add(
            [
                replace(
                    head,
                    start=start,
                    tol=gap,
                    ceiling=ceiling,
                    normalisation=self.normalisation,
                    every_row=True,
                )
            ]
        )
        while coordinator.busy:
            yield coordinator.round_once()
        result = coordinator.journal.results.pop(h)[-1]
        if result.certificate.primal > ceiling:
            return None
        # The shards forget a head with the next round; until then they have its sums.
        parts = coordinator.crew.apply(
            entry_products, h, coordinator.shared.found.coefficients * self.normalisation[:, None]
        )
        if any(
            part is None for part in parts
        ):  # a shard was lost in between; the one in its place has never heard of the head
            return (yield from self._evaluate(coordinator, head, parameters, scores, before, gap, ceiling))
        products = np.concatenate(parts)
        return _State(
            parameters,
            scores,
            gates,
            result,
            products if self.base_gates is None else products * self.base_gates,
        )

    @staticmethod
    def _row(coordinator: Coordinator, state: _State, step: int, length: float) -> dict:
        """A row of the history: the last round of the SVM, and where the descent is."""
        return {
            **coordinator.journal.history[-1],
            "objective": state.objective,
            "step": step,
            "step_length": float(length),
        }
