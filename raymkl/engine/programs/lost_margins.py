"""Dual averaging over kernels: shards keep the scores of their rows up to date, one batch after the other.

Every shard keeps, for its own rows i and all basis functions r of all families,

    G[k, i, r] = sum_j N[j, k] gate(j) basis_r(statistic(x_j, x_i))

Scores of a batch are read from there, rows of the batch that lost their margin are added: only these cost
kernel values, and columns that were met before are in the caches. Lengths of theta follow from the same
numbers,

    ||theta + change||^2 = ||theta||^2 + sum_{i in batch} change_i (G before + G after)_i

and are summed up anew at the end of every epoch, with the losses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels.pairs.families import NO_GATE
from ..problem import Head, RoundRequest
from ..rounds.coordinator import Coordinator
from ..shard.shard import Shard
from .dual_averaging import Task, lost_margins, row_losses, visits
from .program import Program

NAME = "lost margins"
NO_IDS = np.empty(0, np.int64)
# Columns that are added at a time where a shard has to begin anew.
REBUILT_COLUMNS = 256


@dataclass
class Averaged:
    """What was learned.

    N : (n, K) lost margins. t : visits. mu : (M,) weights. normalisation : (M,) factors of the kernels.
    """

    N: np.ndarray
    t: int
    mu: np.ndarray
    normalisation: np.ndarray
    history: list[dict]


@dataclass
class Change:
    """A batch: rows ids (k,) whose N changes by delta (k, K), where their columns stand, and watch (q,), rows
    to report on.

    step : its number. A step that is asked for twice is done once.
    """

    step: int
    request: RoundRequest
    ids: np.ndarray
    slots: np.ndarray
    delta: np.ndarray
    watch: np.ndarray


# -- what runs on a shard --------------------------------------------------------------------------


@dataclass
class _Sums:
    """G of a shard, by family (K, own rows, R), after step `step`, whose reply is kept in case that it was
    lost.

    step is -1 while G is begun anew, `portions` of its columns being there.
    """

    G: list[np.ndarray]
    step: int = 0
    reply: Any = None
    portions: int = 0


def open_sums(shard: Shard, n_classes: int) -> None:
    """Begin with nothing lost."""
    shard.scratch[NAME] = _Sums([np.zeros((n_classes, shard.own.n, basis.rank)) for basis in shard.bases])


def advance(shard: Shard, change: Change) -> np.ndarray | None:
    """Apply a change; (own rows of watch, R, K) sums after it.

    None when this shard has not seen the steps before.
    """
    sums: _Sums = shard.scratch[NAME]
    shard.pairs.enter(change.request)  # whatever else is to be done: all caches hold the same columns
    if sums.step == change.step:
        return sums.reply
    if sums.step != change.step - 1:
        return None
    if len(change.ids):
        add_columns(shard, sums.G, change.ids, change.slots, change.delta)
    sums.step, sums.reply = change.step, _of_rows(shard, sums.G, shard.own.numbers(change.watch))
    return sums.reply


def add_columns(
    shard: Shard, G: list[np.ndarray], ids: np.ndarray, slots: np.ndarray, delta: np.ndarray
) -> None:
    """Add columns whose statistics are at hand, with weights delta (k, K)."""
    # Arrays out of Ray's object store are read-only, which compiled code counts as another type.
    for f, (family, basis) in enumerate(zip(shard.problem.families, shard.bases, strict=True)):
        block, places = shard.pairs.kept_block(f, ids, slots)
        gated = delta if family.gate == NO_GATE else delta * shard.problem.gates[ids, family.gate][:, None]
        for k, out in enumerate(G[f]):
            live = np.flatnonzero(gated[:, k])
            if len(live):
                some, weights = np.array(places[live]), np.ascontiguousarray(gated[live, k])
                shard.threads.split(
                    shard.own.n,
                    lambda start, stop, some=some, weights=weights, out=out, basis=basis, block=block: (
                        basis.accumulate(block, some, weights, out, start, stop)
                    ),
                    cost=float(len(some)) * shard.own.n * basis.rank,
                )


def _of_rows(shard: Shard, G: list[np.ndarray], numbers: Any) -> np.ndarray:
    """(q, R, K) sums of own rows over all basis functions, gates applied."""
    parts = []
    for family, sums in zip(shard.problem.families, G, strict=True):
        part = sums[:, numbers].transpose(1, 2, 0)
        parts.append(
            part if family.gate == NO_GATE else part * shard.own.gates[numbers, family.gate][:, None, None]
        )
    return np.concatenate(parts, axis=1)


def begin_anew(shard: Shard, step: int) -> bool:
    """Empty the sums of a shard that has not seen all steps; whether it is one."""
    sums: _Sums = shard.scratch[NAME]
    if sums.step >= step:
        return False
    for G in sums.G:
        G[:] = 0.0
    sums.step, sums.reply, sums.portions = -1, None, 0
    return True


def rebuild(shard: Shard, portion: int, change: Change, step: int) -> None:
    """Add columns with all that they have lost, where sums are begun anew.

    portion : 1, 2, ... step : of the sums with these columns.
    """
    sums: _Sums = shard.scratch[NAME]
    shard.pairs.enter(change.request)
    if (
        sums.step != -1 or sums.portions != portion - 1
    ):  # done already, or another shard that was lost meanwhile: it will be asked again
        return
    add_columns(shard, sums.G, change.ids, change.slots, change.delta)
    sums.step, sums.portions = step, portion


def epoch_part(
    shard: Shard, N: np.ndarray, combination: np.ndarray, y: np.ndarray, weights: np.ndarray, step: int
) -> Any:
    """Own part of sum_i N_i G_i (R,), and of the losses sum_i c_i loss_i at scores G combination.

    None where steps are missing.
    """
    sums: _Sums = shard.scratch[NAME]
    if sums.step != step:
        return None
    own = shard.own.range
    used = np.flatnonzero(weights[own])
    G = _of_rows(shard, sums.G, used)
    quadratic = np.einsum("ik,irk->r", N[own][used], G)
    return quadratic, float(
        weights[own][used] @ row_losses(np.einsum("irk,r->ik", G, combination), y[own][used])
    )


# -- what runs in the coordinator ------------------------------------------------------------------


@dataclass
class LostMargins(Program):
    """Dual averaging over the rows of all shards.

    head : which rows are normalised by, or None where factors are known (M,).
    """

    task: Task
    head: Head | None = None
    normalisation: np.ndarray | None = None
    history: list[dict] = field(default_factory=list)

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        task, started = self.task, time.perf_counter()
        coordinator.begin(task.n_classes, task.n_classes)
        self.shared, self.crew = coordinator.shared, coordinator.crew
        if self.normalisation is None:
            self.normalisation = self.shared.normalisation(self.head, (task.weights > 0).astype(float))
        self.functions = self.shared.found.coefficients * self.normalisation[:, None]  # (M, R)
        self.crew.keep(NAME, open_sums, task.n_classes)
        self.N, self.step, self.t = np.zeros((len(task.y), task.n_classes)), 0, 0
        self.forms = np.zeros(self.functions.shape[1])  # sum_i N_i G_i of every basis function
        for epoch in range(1, task.max_iter + 1):
            self._epoch(epoch)
            row = {"epoch": epoch, "seconds": 0.0, **self._certificate()}
            row["seconds"] = time.perf_counter() - started
            self.history.append(row)
            yield [row]
            if row["gap"] <= task.tol or coordinator.winding_up:
                break
        mu = task.kernel_weights(self.functions @ self.forms, self.t)
        self.crew.release(NAME)
        self.found = Averaged(self.N, self.t, mu, self.normalisation, self.history)
        self.shared = self.crew = None

    def outcome(self) -> Averaged:
        return self.found

    def _epoch(self, epoch: int) -> None:
        """Visit every row once. What a batch changes goes out with the question for the next one."""
        task, ids = self.task, np.flatnonzero(self.task.weights)
        lost, delta, before = NO_IDS, np.empty((0, task.n_classes)), None
        for _, _, order in visits(ids, task.seed, epoch, task.window):
            for start in range(0, len(order), task.batch_size):
                batch = np.sort(order[start : start + task.batch_size])
                G = self._advance(lost, delta, batch, before)
                combination = self._combination()
                change = lost_margins(
                    np.einsum("irk,r->ik", G, combination), task.y[batch], task.weights[batch]
                )
                rows = np.flatnonzero(np.any(change != 0, axis=1))
                lost, delta, before = batch[rows], change[rows], G[rows]
                self.N[lost] += delta
                self.t += len(batch)
        self._advance(lost, delta, NO_IDS, before)

    def _combination(self) -> np.ndarray:
        """(R,) weights of the basis functions that make scores of sums."""
        mu = self.task.kernel_weights(self.functions @ self.forms, self.t)
        return self.task.scale(self.t) * mu @ self.functions

    def _advance(
        self, lost: np.ndarray, delta: np.ndarray, batch: np.ndarray, before: np.ndarray | None
    ) -> np.ndarray:
        """(b, R, K) sums of the rows of a batch, once the last one's changes are known everywhere; lengths
        follow. before : (k, R, K).
        """
        watch = np.union1d(lost, batch) if len(lost) else batch
        at_once = self.shared.cache.capacity  # a batch may lose more margins than there is room for columns
        for start in range(0, max(len(lost), 1), at_once):
            self.step += 1
            some, asked = slice(start, start + at_once), watch if start + at_once >= len(lost) else NO_IDS
            while _incomplete(
                parts := self.crew.apply(advance, self._change(lost[some], delta[some], asked))
            ):
                self._rebuild(lost[start:], delta[start:], self.step - 1)
        G = np.concatenate(parts)  # shards own contiguous ranges: rows come in order
        if len(lost):
            after = G[np.searchsorted(watch, lost)]
            self.forms += np.einsum("ik,irk->r", delta, before + after)
        return G[np.searchsorted(watch, batch)]

    def _change(self, ids: np.ndarray, delta: np.ndarray, watch: np.ndarray) -> Change:
        """The present step; its columns have their slots from now on, which what comes between may take from
        them.
        """
        request, slots = (
            self.shared.entering(ids, None) if len(ids) else (RoundRequest(0, NO_IDS, NO_IDS, {}), NO_IDS)
        )
        return Change(self.step, request, ids, slots, delta, watch)

    def _rebuild(self, lost: np.ndarray, delta: np.ndarray, step: int) -> None:
        """Bring shards that took the place of lost ones to where the others are: after a step, before these
        changes.
        """
        N = self.N.copy()
        N[lost] -= delta
        self.crew.apply(begin_anew, step)
        ids = np.flatnonzero(np.any(N != 0, axis=1))
        at_once = min(REBUILT_COLUMNS, self.shared.cache.capacity)
        portions = [ids[start : start + at_once] for start in range(0, len(ids), at_once)] or [NO_IDS]
        for number, some in enumerate(portions, 1):
            request, slots = self.shared.entering(some, None)
            change = Change(step, request, some, slots, N[some], NO_IDS)
            self.crew.apply(rebuild, number, change, step if number == len(portions) else -1)

    def _certificate(self) -> dict:
        """Primal, dual and gap at the end of an epoch."""
        task = self.task
        while _incomplete(
            parts := self.crew.apply(epoch_part, self.N, self._combination(), task.y, task.weights, self.step)
        ):
            self._rebuild(NO_IDS, np.empty((0, task.n_classes)), self.step)
        self.forms = np.sum([part[0] for part in parts], axis=0)
        gain = float(self.N[np.arange(len(task.y)), task.y].sum())
        return task.certificate(self.functions @ self.forms, gain, sum(part[1] for part in parts), self.t)


def _incomplete(parts: list) -> bool:
    """Whether some shard could not answer."""
    return any(part is None for part in parts)
