"""Problems, heads and shards that are ready, as small as tests want them.

Modules that need other defaults bind them to these.
"""

import numpy as np

from raymkl.engine.problem import Head, Problem
from raymkl.kernels import Laplacian, Linear, Polynomial, rbf
from raymkl.kernels.pairs.families import NO_GATE, group
from raymkl.kernels.pairs.statistics import InnerProduct, SquaredDistance
from raymkl.optim.losses import Hinge
from raymkl.optim.norms import LpNorm

# Distances, inner products and a statistic that is always cached.
MIXED_BANK = [*rbf([0.05, 0.5]), Linear(), Polynomial(degree=2, coef0=1.0), Laplacian(gamma=0.2)]


def problem_of(
    bank, n, dtype=np.float64, light=False, gate_of_entry=None, gates=None, join=False, exact=None, **more
):
    """Dense rows in one view.

    light : keep no statistics of distances and inner products. exact : None for "in float64".
    """
    exact = dtype == np.float64 if exact is None else exact
    problem = Problem(
        [None], group(bank, gate_of_entry, join=join), n, len(bank), gates, dtype, exact=exact, **more
    )
    problem.light = frozenset(
        f.statistic
        for f in problem.families
        if light and isinstance(f.statistic, SquaredDistance | InnerProduct)
    )
    return problem


def head_of(y, C=1.0, p=4 / 3, loss=None, **more):
    """A head over targets y. C : one number, or one per row."""
    return Head(
        np.asarray(y, float), np.broadcast_to(C, (len(y),)).astype(float), loss or Hinge(), LpNorm(p), **more
    )


def gated(K, gate_of_entry, gates):
    """Entries gate(x) k(x, z) gate(z) of (n, n, E) matrices, written out."""
    parts = [
        K[..., e] if g == NO_GATE else np.outer(gates[:, g], gates[:, g]) * K[..., e]
        for e, g in enumerate(gate_of_entry or [NO_GATE] * K.shape[2])
    ]
    return np.stack(parts, axis=-1)


def made_ready(shard, heads, capacity=60):
    """Make a shard ready for rounds; returns the (E, R) coefficients of the entries over its functions."""
    largest = shard.prepare({})
    bounds = [
        statistic.bound(size * 1.5) for statistic, size in zip(shard.pairs.statistics, largest, strict=True)
    ]
    families = shard.problem.families
    bases = [
        family.basis(bounds[shard.pairs.of_family[f]], shard.problem.exact)
        for f, family in enumerate(families)
    ]
    shard.take_bases(bases, capacity)
    shard.add_heads(dict(enumerate(heads)))
    spread = np.zeros((shard.problem.n_entries, sum(basis.rank for basis in bases)))
    at = 0
    for family, basis in zip(families, bases, strict=True):
        spread[family.members, at : at + basis.rank] = basis.coefficients
        at += basis.rank
    return spread
