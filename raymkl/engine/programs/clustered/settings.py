"""What a mixture, and the machines of its clusters, are to be learned with; and what was learned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....optim.mixture.posterior import Posterior, Prior
from .machines import Layout, Machines


@dataclass(frozen=True)
class MachineSettings:
    """n_classes : M. The others are parameters of the estimator."""

    n_classes: int
    C: float
    label_weight: float
    n_features: int
    learn_scales: bool
    scale: float
    epochs: int
    final_epochs: int
    batch_size: int
    learning_rate: float


@dataclass(frozen=True)
class MixtureSettings:
    """n_clusters, concentration, inference, max_iter, tol : of the estimator. seed : of all that is drawn.
    machines : None for a mixture.

    prior : parts that were given, of `mean`, `mean_precision`, `degrees_of_freedom`, `scatter`, `spread`; the
    others are the usual ones.
    """

    n_clusters: int
    concentration: float
    prior: dict
    inference: str
    max_iter: int
    tol: float
    seed: int
    machines: MachineSettings | None = None

    @property
    def label_weight(self) -> float:
        return 0.0 if self.machines is None else self.machines.label_weight


@dataclass
class Learned:
    """What was learned.

    posterior, machines, bound : of the mixture before the final phase, but for the machines of it. labels :
    (n,).
    """

    prior: Prior
    posterior: Posterior
    machines: Machines | None
    layout: Layout | None
    labels: np.ndarray
    bound: float
    n_iter: int
    converged: bool
    rise: float
    history: list[dict] = field(default_factory=list)
    samples: np.ndarray | None = None
