"""Where a run over a mixture is: all that it has to know between two calls to the shards, and how that is
kept in a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ....optim.mixture.descent import Adam
from ....optim.mixture.posterior import Posterior, Prior
from .machines import Layout, Machines


@dataclass(frozen=True)
class Frame:
    """What does not change in a run.

    weight : of all rows. center, spread : (d,) their mean and standard deviations.
    """

    weight: float
    center: np.ndarray
    spread: np.ndarray
    prior: Prior
    layout: Layout | None


@dataclass
class Place:
    """Where a run is.

    stage : before the passes of an iteration, amid a descent, or done. posterior : to go on from. machines :
    likewise; those before the descent while there is one. labels : (rows of positive weight,) of the last
    sample. descent : where it is. epoch : of the descent.
    epochs : of all so far, which number the draws. next_stamp, next_origin : numbers that no machine has had.
    bound, rise : at the end of the last iteration, and what it rose by. history : rows. samples : labels of
    all sweeps. seconds_before : of the runs before this one. final_labels : (n,) of all rows, before the
    final phase.
    """

    stage: str
    iteration: int
    posterior: Posterior
    machines: Machines | None
    labels: np.ndarray | None = None
    descent: Adam | None = None
    epoch: int = 0
    epochs: int = 0
    next_stamp: int = 0
    next_origin: int = 0
    bound: float = -np.inf
    rise: float = np.inf
    converged: bool = False
    history: list[dict] = field(default_factory=list)
    samples: list[np.ndarray] = field(default_factory=list)
    seconds_before: float = 0.0
    final_labels: np.ndarray | None = None


PARTS = {"posterior": Posterior, "machines": Machines, "descent": Adam}


def packed(place: Place) -> dict:
    """Nested dicts and lists of arrays and numbers."""
    values = dict(vars(place))
    for name in PARTS:
        values[name] = None if values[name] is None else dict(vars(values[name]))
    return values


def unpacked(state: dict) -> Place:
    """The place that was packed; raises KeyError, TypeError or ValueError for something else."""
    values = {part.name: state[part.name] for part in fields(Place)}
    for name, kind in PARTS.items():
        values[name] = (
            None
            if values[name] is None
            else kind(**{key: _own(value) for key, value in values[name].items()})
        )
    values["seconds_before"] = float(state.get("seconds", values["seconds_before"]))
    return Place(**{name: _own(value) for name, value in values.items()})


def _own(value: Any) -> Any:
    """Arrays that may be written to: those out of a file may not."""
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [np.array(part) for part in value]
    return np.array(value) if isinstance(value, np.ndarray) else value
