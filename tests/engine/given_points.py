"""Shards that are at a given point `(a, theta)` of some heads, without a run that leads there."""

from contextlib import contextmanager

import numpy as np

from raymkl.engine.faults.recovery import bring_up_to_date
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.rounds.coordinator import Coordinator
from tests import builders
from tests.reference import gram


def problem_of(bank, n, dtype=np.float32, light=True, gate_of_entry=None, gates=None, **more):
    """As in a usual run: no statistics are kept, kernels are tables in either precision."""
    return builders.problem_of(bank, n, dtype, light, gate_of_entry, gates, **{"exact": False, **more})


def some_point(y, seed=0, share=0.6):
    """Dual variables (n,) of the hinge loss at C = 1: a part of them zero, a part at their bound."""
    rng = np.random.default_rng(seed)
    alpha = np.clip(rng.uniform(-0.3, 1.3, len(y)), 0, 1) * (rng.uniform(size=len(y)) < share)
    return y * alpha


def entries(bank, X, gate_of_entry=None, gates=None):
    """(n, n, E) matrices gate(x) k(x, z) gate(z) in float64, written out."""
    return builders.gated(gram(bank, np.asarray(X, np.float64)), gate_of_entry, gates)


@contextmanager
def standing_at(problem, X, heads, points, shards=1):
    """A coordinator whose heads, and all shards, are at points (a, theta)."""
    pool = LocalPool({None: X}, problem, shards)
    coordinator = Coordinator(pool, problem, threads=1)
    try:
        coordinator.begin(len(heads))
        coordinator.add(heads)
        coordinator._admit()
        for h, (a, theta) in enumerate(points):
            point = coordinator.solvers[h].point
            point.a, point.theta = np.array(a), np.array(theta)
        for shard in range(len(pool.ranges)):
            bring_up_to_date(coordinator, shard)
        yield coordinator
    finally:
        coordinator.close()
        pool.close()


def told_nothing_new(coordinator):
    """A round that changes nothing: the heads hear what the shards know of their points."""
    at_work = coordinator.roster.at_work
    for head, summary in zip(at_work.values(), coordinator._round(at_work), strict=True):
        head.solver.absorb(summary)


def f_of_all(coordinator, h):
    """(n,) f without intercept as the shards' sums (and what proofs added to them) have it."""
    n = coordinator.shared.problem.n_rows
    return np.concatenate(
        [
            part[0]
            for part in coordinator.crew.ask("f_of", [(h, coordinator.solvers[h].combination, np.arange(n))])
        ]
    )
