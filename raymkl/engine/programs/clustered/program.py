"""Clusters, and a machine for each, learned together: one bound, which every step raises or leaves where it
is.

An iteration (variational inference):

    mixture    some passes over the rows: responsibilities, then posteriors
    merge      clusters are joined where that raises the bound
    machines   descent of the machines on the rows of their clusters; one that got worse takes its old self
               back

and at the end, once, the machines are trained on memberships, which know no labels (`final`), because new
rows come without. Gibbs sampling puts a sweep in the place of the first two. Without machines
(`DirichletProcessMixture`) there are passes, and merges where they settle.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ....data.packed import digest
from ....optim.mixture.descent import Adam, steps_of_epoch
from ....optim.mixture.gibbs import sweep
from ....optim.mixture.merging import Costs, choose_merges, merged_statistics
from ....optim.mixture.posterior import (
    Posterior,
    Statistics,
    best_order,
    divergence,
    posterior_of,
    statistics_of,
)
from ...rounds.coordinator import Coordinator
from ..program import Program
from . import on_shards
from .descent import better_of, epoch_of_steps, machines_in, new_machines, usual_log_scales
from .machines import Layout, Machines
from .on_shards import NAME
from .place import Frame, Place, packed, unpacked
from .rows import Pass
from .settings import Learned, MixtureSettings
from .start import first_statistics, mean_and_variances, prior_of, spreads, sum_of

# Passes of an iteration.
PASSES = 5
# Without machines, merges are looked for when an iteration raises the bound by less than this per unit of
# weight.
SETTLED = 1e-3
SHARES, LAYOUT = "shares", "layout"
# Where a run can be: before the passes of an iteration; amid a descent, of an iteration, after the mixture,
# or of the final phase; done.
MIXTURE, MACHINES, AFTER, FINAL, DONE = "mixture", "machines", "after", "final", "done"
GIBBS_STREAM = 3


class MixtureProgram(Program):
    """Learn a mixture of the rows of all shards.

    view : which rows. y : (n,) classes, None without machines. weights : (n,).
    """

    checkpointed = True

    def __init__(self, view: Any, y: np.ndarray | None, weights: np.ndarray, settings: MixtureSettings):
        self.view, self.y, self.weights, self.settings = view, y, weights, settings
        self.place: Place | None = None
        self.carried: Pass | None = (
            None  # the last pass, if it is the one that the next iteration begins with
        )
        self.shared: Pass | None = None  # the pass whose shares a descent goes by, once the shards have them
        self.found: Learned | None = None

    # -- the run -----------------------------------------------------------------------------------

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        self.coordinator, self.crew, self.started = coordinator, coordinator.crew, time.perf_counter()
        self._open()
        if self.place is None:
            self._begin()
        self.told = len(self.place.history)
        yield []
        place = self.place
        while place.stage in (MIXTURE, MACHINES):
            if place.stage == MIXTURE:
                self._sample() if self.settings.inference == "gibbs" else self._mixture()
                yield self._news()
            if place.stage == MACHINES:
                yield from self._descend(self.settings.machines.epochs)
                self._settle("machines")
                self._end_iteration(self.place.history[-1]["bound"])
                yield self._news()
        if place.stage == AFTER:
            yield from self._descend(self.settings.machines.epochs)
            self._settle("machines")
            self._next(FINAL)
            yield self._news()
        # From here on the mixture, its bound and the labels stay what they are.
        if place.final_labels is None:
            place.final_labels = self._labels()
        if place.stage == FINAL:
            yield from self._descend(self.settings.machines.final_epochs)
            self._settle("final")
            yield self._news()
        place.stage = DONE
        for name in (SHARES, LAYOUT, NAME):
            if name in self.crew.kept:
                self.crew.release(name)
        self.found = Learned(
            self.frame.prior,
            place.posterior,
            place.machines,
            self.frame.layout,
            place.final_labels,
            place.bound,
            place.iteration,
            place.converged,
            place.rise / self.frame.weight,
            self.place.history,
            np.array(self.place.samples) if self.settings.inference == "gibbs" else None,
        )

    def outcome(self) -> Learned:
        return self.found

    def _open(self) -> None:
        """Have shards know their rows, and learn what the usual prior and the first scales go by."""
        settings = self.settings
        self.crew.keep(NAME, on_shards.open_rows, self.view, self.y, self.weights)
        d = self.crew.apply(on_shards.n_columns)[0]
        weight, center, variances = mean_and_variances(self.crew, d)
        spread = spreads(variances, center)
        prior, layout = prior_of(settings.prior, center, spread, settings.concentration), None
        if settings.machines is not None:
            layout = Layout(settings.machines.n_features, settings.machines.n_classes, settings.seed, center)
        self.frame = Frame(weight, center, spread, prior, layout)
        self.crew.keep(LAYOUT, on_shards.settle, prior.mean, layout)

    def _begin(self) -> None:
        settings, n = self.settings, int(np.count_nonzero(self.weights))
        statistics = first_statistics(
            self.crew, n, settings.n_clusters, self.frame.center, self.frame.spread, settings.seed
        )
        K = len(statistics.counts)
        machines = None
        if settings.machines is not None:
            machines = new_machines(settings.machines, self.frame.spread, np.arange(K), np.arange(K))
        posterior, machines = self._renewed(statistics, machines)
        self.place = Place(MIXTURE, 1, posterior, machines, next_stamp=K, next_origin=K)

    def _renewed(
        self, statistics: Statistics, machines: Machines | None
    ) -> tuple[Posterior, Machines | None]:
        """Posteriors for the responsibilities that these are the statistics of; clusters by size, if that
        helps.
        """
        order = best_order(statistics.counts, self.frame.prior.concentration)
        if order is not None:
            statistics, machines = statistics.take(order), None if machines is None else machines.take(order)
        return posterior_of(statistics, self.frame.prior), machines

    def _bound(self, found: Pass) -> float:
        """The bound at the place's posteriors and machines, of which a pass has found the part of the
        rows.
        """
        value, beta = (
            found.value - divergence(self.place.posterior, self.frame.prior),
            self.settings.label_weight,
        )
        if beta > 0:
            value -= beta / (2.0 * self.settings.machines.C) * float(self.place.machines.squared_norms.sum())
        return value

    def _record(self, phase: str, bound: float) -> None:
        seconds = self.place.seconds_before + time.perf_counter() - self.started
        clusters = self.place.posterior.n_clusters
        self.place.history.append(
            {
                "iteration": self.place.iteration,
                "phase": phase,
                "seconds": seconds,
                "bound": float(bound),
                "clusters": clusters,
            }
        )

    def _news(self) -> list[dict]:
        """Rows of the history that were not handed on yet."""
        rows = self.place.history[self.told :]
        self.told = len(self.place.history)
        return rows

    def _pass(self, keep: bool = False) -> Pass:
        place = self.place
        arguments = (place.posterior, place.machines, self.settings.label_weight, keep)
        return sum_of(
            self.crew.keep(SHARES, on_shards.expect, *arguments)
            if keep
            else self.crew.apply(on_shards.expect, *arguments)
        )

    # -- clusters ----------------------------------------------------------------------------------

    def _mixture(self) -> None:
        """Passes, and merges: in every iteration but the first where there are machines, else when the passes
        have settled.
        """
        place, labels_count = self.place, self.settings.label_weight > 0
        found = self._pass() if self.carried is None else self.carried
        self.carried = None
        for step in range(PASSES):
            place.posterior, place.machines = self._renewed(found.statistics, place.machines)
            found = self._pass(keep=labels_count and step + 1 == PASSES)
        bound = self._bound(found)
        self._record("mixture", bound)
        if labels_count:
            if place.iteration > 1:
                found = self._merge(found)
            self._next(MACHINES, found)
            return
        before, settled = (
            place.posterior.n_clusters,
            bound - place.bound < max(self.settings.tol, SETTLED) * self.frame.weight,
        )
        if settled or place.iteration >= self.settings.max_iter:
            found = self._merge(self._pass(keep=True))
            bound = self._bound(found)
        self.carried = found
        # After merges there is more to come, however little this iteration rose.
        self._end_iteration(bound, more=place.posterior.n_clusters < before)

    def _merge(self, found: Pass) -> Pass:
        """Join clusters as long as that raises the bound.

        found : the pass whose shares the shards have; returns the last such one.
        """
        place, settings, beta = self.place, self.settings, self.settings.label_weight
        merged = False
        while place.posterior.n_clusters > 1:
            costs = None
            if beta > 0:
                costs = Costs(
                    beta * found.losses, beta / (2.0 * settings.machines.C) * place.machines.squared_norms
                )
            merges = choose_merges(
                found.statistics,
                self.frame.prior,
                costs,
                lambda pairs: sum_of(self.crew.apply(on_shards.entropies, pairs)),
                lambda pairs: beta * sum_of(self.crew.apply(on_shards.cross_losses, place.machines, pairs)),
            )
            if not merges:
                break
            statistics, _, machine_of = merged_statistics(found.statistics, merges)
            machines = None if place.machines is None else place.machines.take(machine_of)
            place.posterior, place.machines = self._renewed(statistics, machines)
            found, merged = self._pass(keep=True), True
        if merged:
            self._record("merge", self._bound(found))
        return found

    def _sample(self) -> None:
        """A sweep over all rows."""
        place, settings, beta = self.place, self.settings, self.settings.label_weight
        if place.labels is None:
            # Every row begins where its share is largest.
            place.labels = self._labels()[self.weights > 0]
        n = int(np.count_nonzero(self.weights))
        rows, _ = (
            np.concatenate(part)
            for part in zip(*self.crew.apply(on_shards.some_rows, np.arange(n)), strict=True)
        )
        K = place.posterior.n_clusters
        penalties = np.zeros((n, K))
        if beta > 0:
            penalties = beta * np.concatenate(self.crew.apply(on_shards.all_losses, place.machines))
        random = np.random.default_rng([settings.seed, GIBBS_STREAM, place.iteration])
        U = rows - self.frame.prior.mean
        labels, fresh = sweep(U, place.labels, penalties, beta, self.frame.prior, random)
        counts = np.bincount(labels, minlength=len(fresh))
        slots = np.flatnonzero(counts)
        order = best_order(counts[slots].astype(float), self.frame.prior.concentration)
        slots = slots if order is None else slots[order]
        if place.machines is not None:
            place.machines = self._machines_of(slots, fresh)
        position = np.zeros(len(fresh), np.int64)
        position[slots] = np.arange(len(slots))
        place.labels = position[labels]
        shares = (place.labels[:, None] == np.arange(len(slots))).astype(float)
        place.posterior = posterior_of(statistics_of(U, shares), self.frame.prior)
        self.place.samples.append(place.labels)
        found = self._pass()
        bound = self._bound(found)
        self._record("mixture", bound)
        if place.machines is None:
            self._end_iteration(bound)
            return
        rows_of = sum_of(self.crew.keep(SHARES, on_shards.take_labels, place.labels, len(slots)))
        losses = sum_of(self.crew.apply(on_shards.losses_by_share, place.machines))
        self._next(MACHINES, replace(found, rows=rows_of, losses=losses))

    def _labels(self) -> np.ndarray:
        """(n,) the cluster with the largest share of each row."""
        place = self.place
        parts = self.crew.apply(
            on_shards.final_labels, place.posterior, place.machines, self.settings.label_weight, self.y
        )
        return np.concatenate(parts)

    def _machines_of(self, slots: np.ndarray, fresh: np.ndarray) -> Machines:
        """Machines of the clusters in some slots; those that are fresh begin anew, with noise of their
        own.
        """
        place = self.place
        count = int(np.count_nonzero(fresh[slots]))
        new = new_machines(
            self.settings.machines,
            self.frame.spread,
            place.next_origin + np.arange(count),
            place.next_stamp + np.arange(count),
        )
        place.next_origin += count
        place.next_stamp += count
        return machines_in(slots, fresh, place.machines, new)

    def _end_iteration(self, bound: float, more: bool = False) -> None:
        """Go on with the next iteration, or with what comes after the last one.

        more : whether to go on however little the bound rose.
        """
        place, settings = self.place, self.settings
        place.rise, place.bound = bound - place.bound, float(bound)
        sampling = settings.inference == "gibbs"  # to the last sweep
        place.converged = sampling or (place.rise < settings.tol * self.frame.weight and not more)
        goes_on = place.iteration < settings.max_iter and not self.coordinator.winding_up
        if goes_on and (sampling or not place.converged):
            place.iteration += 1
            place.stage = MIXTURE
        elif settings.machines is None:
            place.stage = DONE
        else:
            self._next(AFTER if settings.label_weight == 0 and settings.inference != "gibbs" else FINAL)

    # -- machines ----------------------------------------------------------------------------------

    def _next(self, stage: str, found: Pass | None = None) -> None:
        """Begin with a descent, or be done where it has no epochs.

        found : the pass whose shares the shards have, if they do.
        """
        place = self.place
        if stage == FINAL and self.settings.machines.final_epochs == 0:
            place.stage = DONE
            return
        place.stage, place.epoch = stage, 0
        place.descent = None
        self.shared = found

    def _shares(self) -> Pass:
        """Have shards hold the shares that a descent goes by; what they are."""
        place = self.place
        if place.stage == FINAL:
            return sum_of(self.crew.keep(SHARES, on_shards.remember, place.posterior, place.machines))
        if self.settings.inference == "gibbs":
            rows = sum_of(
                self.crew.keep(SHARES, on_shards.take_labels, place.labels, place.posterior.n_clusters)
            )
            found = self._pass()
        else:
            found = self._pass(keep=True)
            rows = found.rows
        return replace(
            found, rows=rows, losses=sum_of(self.crew.apply(on_shards.losses_by_share, place.machines))
        )

    def _descend(self, epochs: int) -> Iterator[list[dict]]:
        """Epochs of steps of all machines, on the shares that the shards have."""
        place, settings = self.place, self.settings.machines
        if self.shared is None:
            self.shared = self._shares()
        if place.descent is None:
            place.descent = Adam(
                place.machines.coef.astype(np.float32), place.machines.log_scales.astype(np.float32)
            )
        usual = usual_log_scales(settings, self.frame.spread).astype(np.float32)
        steps = steps_of_epoch(self.shared.rows, settings.batch_size)
        totals = np.maximum(steps * epochs, 1)
        while place.epoch < epochs and not (place.epoch and self.coordinator.winding_up):
            epoch_of_steps(self.crew, place, settings, self.settings.seed, steps, totals, usual)
            place.epoch += 1
            place.epochs += 1
            yield []

    def _settle(self, phase: str) -> None:
        """End a descent: a machine whose objective got worse takes its old self back."""
        place, settings = self.place, self.settings.machines
        adam: Adam = place.descent
        K = len(adam.coef)
        stamps = place.next_stamp + np.arange(K)
        place.next_stamp += K
        old = place.machines
        new = old.moved(adam.coef.astype(np.float64), adam.log_scales.astype(np.float64), stamps)
        losses = sum_of(self.crew.apply(on_shards.losses_by_share, new))
        place.machines = better_of(old, new, settings.C, self.shared.losses, losses)
        place.descent, self.shared = None, None
        self.carried = self._pass()
        self._record(phase, self._bound(self.carried))

    # -- checkpoints -------------------------------------------------------------------------------

    def identity(self, data: str) -> dict[str, str]:
        """What a checkpoint belongs to. data : digest of the rows."""
        given = {name: np.asarray(value).tolist() for name, value in sorted(self.settings.prior.items())}
        described = {key: repr(value) for key, value in asdict(replace(self.settings, prior={})).items()}
        labels = "none" if self.y is None else digest(self.y)
        return {
            **described,
            "data": data,
            "labels": labels,
            "sample weights": digest(self.weights),
            "prior": repr(given),
        }

    def state(self) -> dict | None:
        """The state of the run between two of its yields, None before there is one."""
        if self.place is None:
            return None
        now = self.place.seconds_before + time.perf_counter() - self.started
        return {"round": self.place.epochs + len(self.place.history), **packed(self.place), "seconds": now}

    def restore(self, state: dict) -> None:
        """Go on from a state; raises one of `plain_arrow.DAMAGE` for something that is none."""
        place = unpacked(state)
        if place.stage not in (MIXTURE, MACHINES, AFTER, FINAL, DONE):
            raise ValueError(f"a run is never at the stage {place.stage!r}")
        self.place = place
