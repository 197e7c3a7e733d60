"""Shards that are at a given point `(a, theta)` of some heads, without a run that leads there."""

from contextlib import contextmanager

import numpy as np

from raymkl.engine.faults.recovery import bring_up_to_date
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.problem import Head, Problem
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.kernels.pairs.families import NO_GATE, group
from raymkl.kernels.pairs.statistics import InnerProduct, SquaredDistance
from raymkl.optim.losses import Hinge
from raymkl.optim.norms import LpNorm
from tests.reference import gram


def problem_of(bank, n, dtype=np.float32, light=True, gate_of_entry=None, gates=None, **more):
    """Dense rows in one view; `light` keeps no statistics of distances and inner products."""
    problem = Problem([None], group(bank, gate_of_entry), n, len(bank), gates, dtype, **more)
    problem.light = frozenset(f.statistic for f in problem.families if light and isinstance(f.statistic, SquaredDistance | InnerProduct))
    return problem


def head_of(y, C=1.0, p=4 / 3, loss=None, **more):
    return Head(np.asarray(y, float), np.broadcast_to(C, (len(y),)).astype(float), loss or Hinge(), LpNorm(p), **more)


def some_point(y, seed=0, share=0.6):
    """Dual variables (n,) of the hinge loss at C = 1: a part of them zero, a part at their bound."""
    rng = np.random.default_rng(seed)
    alpha = np.clip(rng.uniform(-0.3, 1.3, len(y)), 0, 1) * (rng.uniform(size=len(y)) < share)
    return y * alpha


def entries(bank, X, gate_of_entry=None, gates=None):
    """(n, n, E) matrices gate(x) k(x, z) gate(z) in float64, written out."""
    K = gram(bank, np.asarray(X, np.float64))
    for e, g in enumerate(gate_of_entry or []):
        if g != NO_GATE:
            K[..., e] *= np.outer(gates[:, g], gates[:, g])
    return K


@contextmanager
def standing_at(problem, X, heads, points, shards=1):
    """A coordinator whose heads, and all shards, are at points (a, theta)."""
    pool = LocalPool({None: X}, problem, shards)
    coordinator = Coordinator(pool, problem, threads=1)
    try:
        coordinator.open(len(heads))
        coordinator.add(heads)
        coordinator._admit()
        for h, (a, theta) in enumerate(points):
            point = coordinator.solvers[h].point
            point.a, point.theta = np.array(a), np.array(theta)
        for shard in range(len(pool.bounds)):
            bring_up_to_date(coordinator, shard)
        yield coordinator
    finally:
        coordinator.close()
        pool.close()


def told_nothing_new(coordinator):
    """A round that changes nothing: the heads hear what the shards know of their points."""
    heads = sorted(coordinator.solvers)
    for h, summary in zip(heads, coordinator._round(heads, coordinator.steps), strict=True):
        coordinator.solvers[h].absorb(summary)


def f_of_all(coordinator, h):
    """(n,) f without intercept as the shards' sums (and what proofs added to them) have it."""
    n = coordinator.problem.n_rows
    return np.concatenate([part[0] for part in coordinator._ask("f_of", [(h, coordinator.solvers[h].combination, np.arange(n))])])
