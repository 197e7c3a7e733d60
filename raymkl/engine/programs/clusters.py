"""Training with one set of gates per cluster: clusters are found on the shards, then the heads are trained
over gated entries.

    entry (j, m) has the kernel   c_j(x) k_m(x, z) c_j(z),      c_j(x) proportional to exp(-tau dist^2(x,
    S_j))

Everything happens in one run of the engine, over rows that are loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...kernels.combined import CombinedKernel
from ..heads.result import HeadResult
from ..problem import Head
from ..rounds.coordinator import Coordinator
from .k_means import Clusters, kernel_k_means, likelihoods, tau_of_evenness
from .program import Program


@dataclass
class Clustered:
    """What was learned.

    results : one per head. tau : of the likelihoods. weights : (M,) of the clustering kernel. gates : (n, J).
    """

    results: list[HeadResult]
    clusters: Clusters
    tau: float
    weights: np.ndarray
    gates: np.ndarray


@dataclass
class ClusteredTraining(Program):
    """Find clusters, set gates, train heads.

    kernel : whose feature space is clustered; with `scaled`, its weights are multiplied by the kernels'
    normalisation factors.
    n_clusters, n_init, seed : of k-means. tau : or None, to be found from `evenness`. layout : of every gate
    column, its cluster and its column of `base_gates` (n, J0), or -1 for none. The entries of cluster j are
    those at j * M <= e < (j + 1) * M.
    """

    heads: list[Head]
    kernel: CombinedKernel
    scaled: bool
    n_clusters: int
    n_init: int
    seed: int
    tau: float | None
    evenness: float
    layout: list[tuple[int, int]]
    base_gates: np.ndarray | None = None

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        coordinator.begin(len(self.heads))
        masks = np.stack([(head.bounds > 0).astype(float) for head in self.heads])
        heads, kernel = self.heads, self.kernel
        if self.scaled:
            # All heads have the same rows; what they are normalised by is needed for the clusters already.
            normalisation = coordinator.shared.normalisation(heads[0], masks[0])
            heads = [replace(head, normalisation=normalisation) for head in heads]
            kernel = CombinedKernel(
                kernel.kernels, kernel.weights * normalisation[: len(kernel.weights)], kernel.spherical
            )
        active = np.flatnonzero(masks.max(axis=0) > 0)
        clusters = kernel_k_means(
            coordinator.crew, kernel, active, self.n_clusters, self.n_init, np.random.default_rng(self.seed)
        )
        tau = tau_of_evenness(clusters.distances[active], self.evenness) if self.tau is None else self.tau
        gates = gates_of(likelihoods(clusters.distances, tau), self.layout, self.base_gates)
        coordinator.shared.set_gates(gates)
        numbers = coordinator.add(heads)
        while coordinator.busy:
            yield coordinator.round_once()
        self.found = Clustered(
            [coordinator.journal.results[h][-1] for h in numbers], clusters, tau, kernel.weights, gates
        )

    def outcome(self) -> Clustered:
        return self.found


def gates_of(
    likelihood: np.ndarray, layout: list[tuple[int, int]], base_gates: np.ndarray | None
) -> np.ndarray:
    """(n, J) gates: the likelihood (n, l) of a column's cluster, times its base gate where it has one."""
    return np.stack(
        [likelihood[:, j] if b < 0 else likelihood[:, j] * base_gates[:, b] for j, b in layout], axis=1
    )
