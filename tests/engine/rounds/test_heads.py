"""Many heads over one set of blocks: each learns what it would learn alone, comes and goes when asked, and
waits when memory is short.
"""

from functools import cache

import numpy as np
import pytest

from raymkl import MKLClassifier, kernels
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.rounds.blocks import WorkingBlocks
from raymkl.engine.rounds.coordinator import Coordinator
from tests import builders
from tests.reference import gram, noisy_problem

N = 90
BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0)]
X, Y = noisy_problem(N)
RNG = np.random.default_rng(7)


def problem_of(bank=BANK, n=N, dtype=np.float64):
    return builders.problem_of(bank, n, dtype, join=True)


def head_of(mask=None, C=1.0, p=4 / 3, targets=Y, **more):
    bounds = C if mask is None else C * np.asarray(mask, float)
    return builders.head_of(targets, bounds, p, **{"tol": 1e-6, **more})


class Run:
    """A coordinator over a local pool, closed at the end."""

    def __init__(self, shards=1, budget=None, rows=X, problem=None):
        problem = problem or problem_of(n=len(rows))
        self.pool = LocalPool({None: rows.astype(problem.dtype)}, problem, shards)
        self.coordinator = Coordinator(self.pool, problem, budget, threads=2)

    def __enter__(self):
        return self.coordinator

    def __exit__(self, *error):
        self.coordinator.close()
        self.pool.close()


def train(heads, **options):
    with Run(**options) as coordinator:
        return coordinator.run(heads), coordinator.journal.history


def assert_same_solution(ours, reference, atol=1e-5):
    assert ours.converged and reference.converged
    np.testing.assert_allclose(ours.theta, reference.theta, atol=atol)
    np.testing.assert_allclose(ours.certificate.dual, reference.certificate.dual, rtol=1e-5)
    np.testing.assert_allclose(ours.a, reference.a, atol=20 * atol)
    assert ours.intercept == pytest.approx(reference.intercept, abs=20 * atol)


def many_heads():
    """36 problems that have little in common: masks, C, p, targets, normalisation, solvers."""
    heads = []
    for k in range(36):
        mask = RNG.random(N) < RNG.uniform(0.4, 1.0)
        targets = Y if k % 3 else np.where(RNG.random(N) < 0.3, -Y, Y)
        heads.append(
            head_of(
                mask,
                C=10.0 ** RNG.uniform(-1.5, 1),
                p=[4 / 3, 2.0, 3.0, 1.1][k % 4],
                targets=targets,
                normalize=[None, "multiplicative", "trace"][k % 3],
                solver="wrapper" if k % 7 == 6 else "chunking",
            )
        )
    return heads


@cache
def alone():
    """The same heads, one run each."""
    return [train([head])[0][0][0] for head in HEADS]


HEADS = many_heads()


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_many_heads_learn_what_each_learns_alone(shards):
    results, history = train(HEADS, shards=shards)
    for result, reference in zip(results, alone(), strict=True):
        assert len(result) == 1
        assert_same_solution(result[0], reference, atol=1e-4)
    # A head that is done costs nothing any more: its rounds are over, those of others go on.
    last = {h: max(row["round"] for row in history if row["head"] == h) for h in range(len(HEADS))}
    counts = {h: sum(row["head"] == h for row in history) for h in range(len(HEADS))}
    assert all(counts[h] == results[h][0].rounds for h in counts)
    assert len(set(last.values())) > 3 and min(last.values()) < max(last.values())
    assert [row["gap"] for row in history if row["head"] == 0][-1] <= 1e-6


def test_masked_rows_keep_zero_variables():
    for head, reference in zip(HEADS, alone(), strict=True):
        assert not reference.a[head.bounds == 0].any()
        assert abs(reference.a.sum()) < 1e-9 and np.all(np.abs(reference.a) <= head.bounds + 1e-12)


# -- normalisation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
def test_normalisation_constants_come_from_the_rows_of_the_head(shards):
    K, mask = gram(BANK, X), np.arange(N) % 3 > 0
    diagonal = np.stack([np.diag(K[..., m]) for m in range(len(BANK))], axis=1)
    heads = [head_of(m, normalize=kind) for m in (mask, ~mask) for kind in ("multiplicative", "trace", None)]
    results, _ = train(heads, shards=shards)
    for own, part in ((mask, results[:3]), (~mask, results[3:])):
        inner = K[np.ix_(own, own)]
        np.testing.assert_allclose(
            1 / part[0][0].scale, diagonal[own].mean(axis=0) - inner.mean(axis=(0, 1)), rtol=1e-9
        )
        np.testing.assert_allclose(1 / part[1][0].scale, diagonal[own].sum(axis=0), rtol=1e-9)
        np.testing.assert_array_equal(part[2][0].scale, 1.0)


def test_an_intercept_that_is_not_unique_is_the_same_for_all_partitions():
    """With all variables at their bounds every b of an interval is optimal; its middle is taken, as LIBSVM
    does.
    """
    y = np.where(np.arange(N) % 2, 1, -1)
    results = [train([head_of(C=1e-3, targets=y)], shards=shards)[0][0][0] for shards in (1, 2, 5)]
    assert all(set(np.unique(np.abs(result.a))) == {1e-3} for result in results)
    f = gram(BANK, X) @ results[0].theta @ results[0].a
    residual = y - f
    middle = ((residual[y < 0]).max() + (residual[y > 0]).min()) / 2
    np.testing.assert_allclose([result.intercept for result in results], middle, atol=1e-9)


# -- held-out rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [None, "multiplicative", "trace"])
@pytest.mark.parametrize("shards", [1, 3])
def test_watched_rows_are_predicted_as_by_a_model_without_them(normalize, shards):
    train_rows = np.flatnonzero(np.arange(N) % 3)
    watch = np.array([87, 3, 0, 3, 45, 66, 9])  # in any order, and twice
    mask = np.isin(np.arange(N), train_rows)
    results, _ = train(
        [head_of(mask, C=2.0, normalize=normalize, watch=watch), head_of(mask, C=0.1, watch=watch[:2])],
        shards=shards,
    )
    model = MKLClassifier(kernels=BANK, C=2.0, tol=1e-6, engine="local", normalize=normalize).fit(
        X[train_rows], Y[train_rows]
    )
    assert results[0][0].f.shape == (7,) and results[1][0].f.shape == (2,)
    np.testing.assert_allclose(results[0][0].f, model.decision_function(X[watch]), atol=1e-4)


def test_nothing_is_watched_unless_asked():
    assert train([head_of()])[0][0][0].f is None


# -- paths over C ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [(0.05, 0.5, 5.0, 50.0), (50.0, 5.0, 0.5, 0.05), (1.0, 1.0), (3.0, 0.01, 30.0)], ids=str
)
@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, 4.0])
def test_a_path_is_a_fit_for_every_value(path, p):
    mask, watch = np.arange(N) % 4 > 0, np.arange(0, N, 4)
    (stages,), history = train([head_of(mask, p=p, path=path, watch=watch)], shards=2)
    assert len(stages) == len(path)
    separate = [train([head_of(mask, C=C, p=p, watch=watch)])[0][0][0] for C in path]
    for k, (stage, single) in enumerate(zip(stages, separate, strict=True)):
        assert stage.converged and stage.certificate.gap <= 1e-6
        assert stage.certificate.dual == pytest.approx(single.certificate.dual, rel=3e-6)
        np.testing.assert_allclose(stage.f, single.f, atol=2e-2 if p == 1 else 2e-3)
        assert np.all(np.abs(stage.a) <= path[k] * mask + 1e-12) and abs(stage.a.sum()) < 1e-9 * max(path)
        assert sum(row["stage"] == k for row in history) == stage.rounds


@pytest.mark.parametrize(
    "solver, step", [("wrapper", "analytic"), ("chunking", "cutting_plane"), ("wrapper", "cutting_plane")]
)
@pytest.mark.parametrize("path", [(0.1, 3.0), (3.0, 0.1)], ids=str)
def test_paths_of_all_solvers(solver, step, path):
    (stages,), _ = train([head_of(path=path, solver=solver, theta_step=step, tol=1e-4)])
    for stage, C in zip(stages, path, strict=True):
        single = train([head_of(C=C)])[0][0][0]
        assert stage.converged and stage.certificate.dual == pytest.approx(single.certificate.dual, rel=2e-4)


@pytest.mark.usefixtures("small_working_sets")
def test_a_path_is_warmer_than_separate_fits():
    """Rounds of a fine path: each stage begins near its end."""
    rows, y = noisy_problem(400)
    path = tuple(1.3**k for k in range(6))
    (stages,), _ = train([head_of(targets=y, path=path, tol=1e-3)], rows=rows)
    cold = train([head_of(targets=y, C=path[-1], tol=1e-3)], rows=rows)[0][0][0]
    assert np.mean([stage.rounds for stage in stages[1:]]) < cold.rounds


# -- memory ----------------------------------------------------------------------------------------


def test_heads_wait_when_memory_is_short():
    rows, y = noisy_problem(600)
    problem = problem_of(n=600, dtype=np.float32)
    heads = [head_of(np.arange(600) % 5 != k, targets=y, C=C, tol=1e-4) for k in range(4) for C in (0.3, 3.0)]
    with Run(rows=rows, problem=problem, budget=4_000_000, shards=2) as coordinator:
        at_once = []
        for round_rows in coordinator.rounds(heads):
            at_once.append(len({row["head"] for row in round_rows}))
        assert coordinator.shared.plan.heads < len(heads)
        assert max(at_once) <= coordinator.shared.plan.heads and max(at_once) > 1
        assert len(coordinator.shared.cache.columns) <= coordinator.shared.plan.capacity
        results = coordinator.outcome(heads)
    free, _ = train(heads, rows=rows, problem=problem)
    for short, roomy in zip(results, free, strict=True):
        assert short[0].converged and short[0].certificate.dual == pytest.approx(
            roomy[0].certificate.dual, rel=3e-4
        )


def test_a_budget_for_no_head_at_all_is_an_error():
    with Run(budget=1_000) as coordinator, pytest.raises(ValueError, match="memory_per_shard=1000"):
        coordinator.run([head_of()])


# -- heads that come and go ------------------------------------------------------------------------


def shard_heads(coordinator):
    return [sorted(shard.heads) for shard in coordinator.crew.pool.shards]


def test_a_dropped_head_leaves_and_the_others_go_on():
    with Run(shards=2) as coordinator:
        coordinator.begin(3)
        first, second = coordinator.add([head_of(C=1.0), head_of(C=30.0)])
        coordinator.round_once()
        assert shard_heads(coordinator) == [[first, second]] * 2
        coordinator.drop([second])
        assert sorted(coordinator.solvers) == [first]
        rows = coordinator.round_once()
        assert {row["head"] for row in rows} <= {first} and shard_heads(coordinator) == [[first]] * 2
        (third,) = coordinator.add([head_of(C=0.1)])
        assert third not in (first, second)
        while coordinator.busy:
            coordinator.round_once()
        assert_same_solution(coordinator.journal.results[first][0], train([head_of(C=1.0)])[0][0][0])
        assert_same_solution(coordinator.journal.results[third][0], train([head_of(C=0.1)])[0][0][0])
        assert coordinator.journal.results[second] == []


def test_a_waiting_head_can_be_dropped():
    with Run() as coordinator:
        coordinator.begin(2)
        first, second = coordinator.add([head_of(), head_of(C=9.0)])
        coordinator.drop([second])
        while coordinator.busy:
            assert {row["head"] for row in coordinator.round_once()} == {first}
        assert second not in coordinator.journal.results


def test_paused_heads_stand_still():
    with Run(shards=2) as coordinator:
        coordinator.begin(2)
        first, second = coordinator.add([head_of(C=1.0), head_of(C=10.0)])
        coordinator.round_once()
        coordinator.peek.wanted.update([first, second])
        before = coordinator.solvers[second].a.copy()
        while first in coordinator.solvers:
            assert {row["head"] for row in coordinator.round_once(paused={second})} == {first}
        np.testing.assert_array_equal(coordinator.solvers[second].a, before)
        assert coordinator.round_once(paused={second}) == [] and coordinator.busy
        while coordinator.busy:
            coordinator.round_once()
        assert_same_solution(coordinator.journal.results[second][0], train([head_of(C=10.0)])[0][0][0])


def test_a_head_may_be_paused_from_the_beginning():
    with Run() as coordinator:
        coordinator.begin(2)
        first, second = coordinator.add([head_of(watch=np.arange(5)), head_of(C=3.0, watch=np.arange(5))])
        coordinator.peek.wanted.update([first, second])
        coordinator.round_once(paused={second})
        assert second not in coordinator.peek.values
        while coordinator.busy:
            coordinator.round_once()
        assert_same_solution(coordinator.journal.results[second][0], train([head_of(C=3.0)])[0][0][0])


@pytest.mark.usefixtures("small_working_sets")
def test_peeking_shows_f_of_the_current_point():
    K, watch = gram(BANK, X), np.arange(0, N, 4)[::-1].copy()
    with Run(shards=3) as coordinator:
        coordinator.begin(1)
        (number,) = coordinator.add([head_of(np.arange(N) % 4 > 0, C=5.0, watch=watch, p=1.05)])
        coordinator.peek.wanted.add(number)
        seen = 0
        while coordinator.busy:
            # The point that the coming round certifies.
            a, theta = np.zeros(N), None
            if number in coordinator.solvers:
                a, theta = coordinator.solvers[number].a.copy(), coordinator.solvers[number].theta.copy()
            coordinator.round_once()
            if number in coordinator.peek.values and theta is not None:
                b = coordinator.solvers[number].certificate.intercept
                np.testing.assert_allclose(
                    coordinator.peek.values[number], (K[watch] @ theta) @ a + b, atol=1e-8
                )
                seen += 1
        assert seen >= 2 and number not in coordinator.peek.values


# -- blocks of working sets ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_shared_square_holds_what_every_head_would_compute(dtype):
    problem = problem_of([*BANK, kernels.Laplacian(gamma=0.2)], dtype=dtype)
    with Run(problem=problem) as coordinator:
        coordinator.begin(2)
        coordinator.shared.entering(np.arange(N), None)
        arguments = (
            problem,
            coordinator.shared.found.bases,
            coordinator.shared.found.centers,
            coordinator.shared.seen,
            coordinator.threads.for_rows,
            coordinator.crew.ask_owners,
        )
        shared, own = WorkingBlocks(*arguments), WorkingBlocks(*arguments)
        shared.share(2)
        assert shared.square is not None and own.square is None
        for ids in (np.arange(5, 40), np.array([1, 7, 8, 33, 60, 61]), np.arange(20, 90, 3)):
            combination, delta = (
                RNG.random(coordinator.shared.found.coefficients.shape[1]),
                RNG.normal(size=len(ids)),
            )
            shared.gather(ids)
            blocks = [
                blocks.of(0, ids, np.empty((len(ids), len(ids))), coordinator.threads.one)
                for blocks in (shared, own)
            ]
            one, other = (block.hessian(combination, None, None).copy() for block in blocks)
            np.testing.assert_allclose(
                one,
                other,
                rtol=2e-5 if dtype is np.float32 else 1e-10,
                atol=1e-6 if dtype is np.float32 else 1e-12,
            )
            np.testing.assert_allclose(*(block.change(delta) for block in blocks), rtol=1e-4, atol=1e-5)
            assert np.abs(one - one.T).max() <= 1e-6 * np.abs(one).max()


def test_one_head_needs_no_square_and_large_problems_get_none():
    with Run() as coordinator:
        coordinator.begin(1)
        coordinator.blocks.share(1)
        assert coordinator.blocks.square is None
        coordinator.blocks.problem.n_rows = 10**6
        coordinator.blocks.share(5)
        assert coordinator.blocks.square is None
