"""The machines of the clusters over the shards: new ones, an epoch of steps, and which of two is better.

    1/2 ||coef_k||^2 + C sum_n share_nk loss_nk        is what the machine of cluster k is to make small

Every cluster has a problem of its own (see `optim.mixture.descent`); steps of all of them happen together.
"""

from __future__ import annotations

import numpy as np

from ....optim.mixture.descent import Adam
from ...rounds.crew import Crew
from . import on_shards
from .machines import Batch, Machines
from .place import Place
from .settings import MachineSettings
from .start import sum_of

# Logarithms of scales stay within this of the usual ones, whatever the rate.
FARTHEST_SCALES = 12.0


def usual_log_scales(settings: MachineSettings, spread: np.ndarray) -> np.ndarray:
    """(d,) that machines begin with. spread : (d,) of the rows."""
    return np.log(settings.scale * np.sqrt(2.0 / len(spread)) / spread)


def new_machines(
    settings: MachineSettings, spread: np.ndarray, origins: np.ndarray, stamps: np.ndarray
) -> Machines:
    """Machines of zeros with the usual scales."""
    coef = np.zeros((len(origins), settings.n_classes, 2 * settings.n_features))
    return Machines(coef, np.tile(usual_log_scales(settings, spread), (len(origins), 1)), origins, stamps)


def machines_in(slots: np.ndarray, fresh: np.ndarray, old: Machines, new: Machines) -> Machines:
    """Machines of the clusters in some slots: old ones, and new ones for those that are fresh.

    fresh : bool, of all slots. new : as many as slots are fresh.
    """
    both = Machines(
        *(
            np.concatenate([getattr(old, name), getattr(new, name)])
            for name in ("coef", "log_scales", "origins", "stamps")
        )
    )
    where = np.where(fresh[slots], len(old.stamps) + np.cumsum(fresh[slots]) - 1, slots)
    return both.take(where)


def epoch_of_steps(
    crew: Crew,
    place: Place,
    settings: MachineSettings,
    seed: int,
    steps: np.ndarray,
    totals: np.ndarray,
    usual: np.ndarray,
) -> None:
    """Move all machines of a descent by one epoch, in place.

    steps, totals : (K,) of this epoch, and in all. usual : (d,) scales that they stay near.
    """
    adam: Adam = place.descent
    for step in range(int(steps.max(initial=0))):
        active = np.flatnonzero(steps > step)
        batch = Batch(
            active,
            adam.coef[active],
            adam.log_scales[active],
            place.machines.origins[active],
            steps[active],
            place.epochs,
            step,
            seed,
            settings.learn_scales,
        )
        parts = crew.apply(on_shards.batch_gradients, batch)
        by_coef, by_scales = (sum_of(list(part)) for part in zip(*parts, strict=True))
        factor = (settings.C * steps[active]).astype(np.float32)
        gradients = (batch.coef + factor[:, None, None] * by_coef, factor[:, None] * by_scales)
        adam.step(active, gradients, settings.learning_rate, totals)
        np.clip(adam.log_scales, usual - FARTHEST_SCALES, usual + FARTHEST_SCALES, out=adam.log_scales)


def better_of(
    old: Machines, new: Machines, C: float, old_losses: np.ndarray, new_losses: np.ndarray
) -> Machines:
    """Of every cluster the machine with the lower objective. old_losses, new_losses : (K,) by share."""
    before = 0.5 * old.squared_norms + C * old_losses
    after = 0.5 * new.squared_norms + C * new_losses
    better = after < before
    return Machines(
        np.where(better[:, None, None], new.coef, old.coef),
        np.where(better[:, None], new.log_scales, old.log_scales),
        old.origins,
        np.where(better, new.stamps, old.stamps),
    )
