"""Shards: what they keep equals naive sums, and how rows are split over them does not change the model."""

import numpy as np
import pytest
import scipy.sparse as sp

from raymkl import MKLClassifier, RayParams
from raymkl.data.rows import take, to_table
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.problem import HeadRequest, RoundRequest
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.engine.shard.shard import Shard
from raymkl.kernels import RBF, Custom, Linear, Precomputed, rbf
from raymkl.kernels.pairs.families import NO_GATE
from tests import builders
from tests.builders import MIXED_BANK as BANK
from tests.builders import gated, made_ready
from tests.reference import apart, dual_optimum, dual_value, gram, noisy_problem

X, Y = noisy_problem(60, seed=11)
X_TEST, _ = noisy_problem(40, seed=12)
GATES = np.random.default_rng(3).uniform(0.1, 1.5, size=(60, 2))


def problem_of(bank, gate_of_entry=None, gates=None, dtype=np.float64, n=60):
    return builders.problem_of(bank, n, dtype, gate_of_entry=gate_of_entry, gates=gates)


def head_of(y=Y, bounds=1.0, p=4 / 3, **more):
    return builders.head_of(y, bounds, p, **more)


def run(problem, heads, rows=None, shards=1, budget=None):
    pool = LocalPool({None: X} if rows is None else rows, problem, shards)
    try:
        return [stages[-1] for stages in Coordinator(pool, problem, budget).run(heads)]
    finally:
        pool.close()


# -- one shard against naive sums ------------------------------------------------------------------


@pytest.mark.parametrize("gate_of_entry", [None, [0, 0, NO_GATE, 1, 1], [0, 1, 0, 1, 0]], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "make", [lambda A: {None: A}, lambda A: to_table({None: A}, [None])], ids=["dict", "table"]
)
@pytest.mark.parametrize("light", [False, True], ids=["cached", "light"])
def test_rounds_of_a_shard_equal_naive_sums(gate_of_entry, dtype, make, light):
    """Three rounds that change, change again and take back dual variables of own and of other rows."""
    problem = problem_of(BANK, gate_of_entry, None if gate_of_entry is None else GATES, dtype)
    if light:
        problem.light = frozenset(family.statistic for family in problem.families)
    first, last = 20, 45
    shard = Shard()
    shard.load(make(X[first:last].astype(dtype)), first, problem)
    spread = made_ready(shard, [head_of()])
    K = gated(gram(BANK, X), gate_of_entry, GATES)
    theta = np.array([0.3, 0.0, 0.5, 0.2, 0.9])
    intercepts = np.array([-0.4, 0.0, 1.1])
    a = np.zeros(60)
    rng = np.random.default_rng(0)
    for number, columns in enumerate(
        [np.array([3, 25, 40, 59]), np.array([25, 40, 44]), np.array([3, 30])], start=1
    ):
        values = (
            np.where(columns == 3, 0.0, rng.uniform(0, 1, len(columns)) * Y[columns])
            if number == 3
            else Y[columns] * 0.1 * number
        )
        part = HeadRequest(
            0,
            columns,
            columns,
            values - a[columns],
            values,
            spread.T @ theta,
            intercepts,
            np.array([22, 59]),
            4,
        )
        rows = take({None: X.astype(dtype)}, columns)
        reply = shard.advance(RoundRequest(number, columns, columns, rows, columns, rows, [part])).heads[0]
        a[columns] = values
        f = (K @ theta) @ a
        own = slice(first, last)
        exact = {"rtol": 1e-9, "atol": 1e-9} if dtype == np.float64 else {"rtol": 1e-4, "atol": 2e-4}
        np.testing.assert_allclose(
            shard.f_of([(0, spread.T @ theta, np.arange(first, last))])[0], f[own], **exact
        )
        naive = np.array([a[own] @ (K[own, :, e] @ a) for e in range(len(BANK))])
        np.testing.assert_allclose(spread @ reply.quadratic, naive, **exact)
        hinge = [np.maximum(0, 1 - Y[own] * (f[own] + b)).sum() for b in intercepts]
        np.testing.assert_allclose(reply.losses, hinge, **exact)
        # Violators of both sides carry their residuals, and the gradients of all rows asked for come along.
        for ids, residual in ((reply.grow, reply.grow_residual), (reply.shrink, reply.shrink_residual)):
            assert len(ids) <= 4 and np.all((ids >= first) & (ids < last))
            np.testing.assert_allclose(residual, Y[ids] - f[ids], **exact)
        assert 22 in reply.ids and 59 not in reply.ids
        np.testing.assert_allclose(
            reply.gradients @ spread.T, np.einsum("ijm,j->im", K[reply.ids], a), **exact
        )
        may_grow = np.where(Y > 0, a < 1, a < 0)[own]
        assert reply.grow_residual.max() == pytest.approx((Y - f)[own][may_grow].max(), abs=1e-3)


def test_features_of_a_row_travel_once():
    shard = Shard()
    shard.load({None: X}, 0, problem_of(BANK))
    spread = made_ready(shard, [head_of()])
    nothing = np.empty(0, np.int64)
    seen = []
    for number in (1, 2):
        part = HeadRequest(
            0, nothing, nothing, np.empty(0), np.empty(0), spread.sum(axis=0), np.zeros(1), nothing, 6
        )
        reply = shard.advance(RoundRequest(number, nothing, nothing, {}, heads=[part]))
        np.testing.assert_array_equal(reply.new_rows[None], X[reply.new_ids])
        seen += reply.new_ids.tolist()
    assert len(seen) == len(set(seen)) > 0


# -- the whole run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("gate_of_entry", [[0, 0, NO_GATE, 1, 1], [0, 1, 0, 1, 0]], ids=str)
@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
@pytest.mark.parametrize("shards", [1, 3])
def test_gated_entries_reach_the_optimum_of_the_gated_matrices(gate_of_entry, p, shards):
    K = gated(gram(BANK, X), gate_of_entry, GATES)
    result = run(problem_of(BANK, gate_of_entry, GATES), [head_of(p=p, tol=1e-5)], shards=shards)[0]
    assert result.converged
    best = dual_optimum(K, Y, 1.0, p)
    assert dual_value(result.a, Y, K, p) == pytest.approx(best, rel=2e-5)
    assert result.certificate.dual == pytest.approx(best, rel=2e-5)


@pytest.mark.parametrize(
    "solver, step", [("chunking", "analytic"), ("wrapper", "analytic"), ("chunking", "cutting_plane")]
)
def test_several_heads_equal_the_heads_one_by_one(solver, step):
    """Heads share caches, not results: different labels, bounds, norms and masks."""
    masked = np.where(np.arange(60) % 5 == 0, 0.0, 1.0)
    settings = {"solver": solver, "theta_step": step, "tol": 1e-5}
    heads = [
        head_of(**settings),
        head_of(-Y, 0.3, 1.05, **settings),
        head_of(np.roll(Y, 7), 5.0, 1.8, **settings),
    ]
    heads += [head_of(bounds=masked, p=2.0, **settings)]
    problem = problem_of(BANK)
    together = run(problem, heads, shards=2)
    for head, result in zip(heads, together, strict=True):
        alone = run(problem, [head], shards=2)[0]
        assert result.converged and alone.converged
        assert result.certificate.dual == pytest.approx(alone.certificate.dual, rel=2e-5)
        np.testing.assert_allclose(result.theta, alone.theta, atol=1e-2)


@pytest.mark.parametrize("shards", [1, 4])
def test_masked_rows_keep_a_zero_dual_variable(shards):
    masked = np.where(np.arange(60) % 3 == 1, 0.0, 2.0)
    result = run(problem_of(BANK), [head_of(bounds=masked, tol=1e-6)], shards=shards)[0]
    assert np.all(result.a[masked == 0] == 0)
    kept = masked > 0
    best = dual_optimum(gram(BANK, X)[np.ix_(kept, kept)], Y[kept], 2.0, 4 / 3)
    assert result.certificate.dual == pytest.approx(best, rel=1e-5)


def cauchy(A, B):
    return 1 / (1 + ((A[:, None] - B[None]) ** 2).sum(axis=-1))


SOURCES = {
    "dense": (X, X_TEST, BANK),
    "sparse": (sp.csr_matrix(X), sp.csr_matrix(X_TEST), BANK[:4]),
    "precomputed": (gram(BANK, X), gram(BANK, X_TEST, X), "precomputed"),
    "custom": (X, X_TEST, [Custom(cauchy), RBF(gamma=0.1)]),
    "mixed": (
        {"v": X, "m": gram(BANK[:2], X)},
        {"v": X_TEST, "m": gram(BANK[:2], X_TEST, X)},
        [Linear(view="v"), Precomputed(view="m", index=0), Precomputed(view="m", index=1)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shards", [2, 3, 7, 100], ids=lambda s: f"{s} shards")
def test_how_rows_are_split_does_not_matter(source, shards):
    """100 shards for 60 rows: some are empty."""
    train, test, bank = SOURCES[source]
    models = [
        MKLClassifier(kernels=bank, tol=1e-6, engine="local", ray_params=RayParams(num_shards=s)).fit(
            train, Y
        )
        for s in (1, shards)
    ]
    assert apart(models[1].decision_function(test), models[0].decision_function(test)) < 1e-3


@pytest.mark.parametrize("kind", ["multiplicative", "trace", "spherical"])
@pytest.mark.parametrize("shards", [3, 70])
def test_normalisation_over_shards(kind, shards):
    models = [
        MKLClassifier(
            kernels=BANK, C=10, tol=1e-6, normalize=kind, engine="local", ray_params=RayParams(num_shards=s)
        ).fit(X, Y)
        for s in (1, shards)
    ]
    assert apart(models[1].decision_function(X_TEST), models[0].decision_function(X_TEST)) < 1e-3


@pytest.mark.parametrize("shards", [2, 5])
def test_float32_rows_far_from_the_origin_over_shards(shards):
    """The common centre of all shards is what keeps squared distances of such rows right in float32."""
    far = X + 1e4
    settings = {"kernels": rbf([0.05, 0.5]), "tol": 1e-4, "dtype": "float32", "engine": "local"}
    split = MKLClassifier(**settings, ray_params=RayParams(num_shards=shards)).fit(far, Y)
    near = MKLClassifier(**{**settings, "dtype": "float64"}).fit(X, Y)
    assert apart(split.decision_function(X_TEST + 1e4), near.decision_function(X_TEST)) < 2e-2
