"""Proofs: losses and quadratic terms of a point in float64, whatever the rounds work in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.engine.rounds.proving import proof_request
from raymkl.engine.shard.proof import is_accurate, mask_sums, prove
from raymkl.kernels import Chi2, Custom, Laplacian, Linear, Polynomial, rbf
from raymkl.kernels.pairs.families import NO_GATE
from raymkl.optim.losses import EpsilonInsensitive
from tests.builders import head_of
from tests.engine.given_points import entries, f_of_all, problem_of, some_point, standing_at, told_nothing_new
from tests.reference import noisy_problem

N = 150
X, Y = noisy_problem(N, seed=51)
RNG = np.random.default_rng(5)
WIDE_ROWS = np.concatenate([X, RNG.normal(size=(N, 74))], axis=1)
HISTOGRAMS = np.abs(X)
GATES = RNG.uniform(0, 1.5, size=(N, 2)) * (RNG.uniform(size=(N, 2)) > 0.2)
BANK = [*rbf([0.001, 0.1, 2.0]), Linear(), Polynomial(degree=2, coef0=1.0), Laplacian(gamma=0.2)]
GATED = [0, 0, NO_GATE, 1, 1, 0]
INTERCEPTS = np.array([-0.7, 0.0, 0.4])


def proved(coordinator, heads, slots=False):
    """(losses (B,), s (E,), error, deviation) of some heads, summed over the shards."""
    request = proof_request(coordinator.shared, {h: coordinator.roster.at_work[h] for h in heads})
    for part in request.heads:
        part.intercepts = INTERCEPTS
    if slots:
        request.slots = coordinator.shared.cache.slot[request.ids]
    parts = coordinator.crew.ask("apply", prove, request)
    return [
        tuple(
            np.sum([getattr(part[k], name) for part in parts], axis=0)
            for name in ("losses", "quadratic", "error", "variance")
        )
        for k in range(len(heads))
    ]


def slow(K, head, a, theta):
    """The same from matrices, one head at a time."""
    f = (K @ theta) @ a
    losses = [0.0] * len(INTERCEPTS)
    for bound, value, target in zip(head.bounds, f, head.targets, strict=True):
        for k, b in enumerate(INTERCEPTS):
            losses[k] += bound * float(head.loss.value(value + b, target))
    return np.array(losses), np.einsum("i,ijm,j->m", a, K, a), f


POINTS = [
    (some_point(Y), np.array([0.9, 0.2, 0.0, 0.4, 0.1, 0.3])),
    (some_point(-Y, seed=1, share=0.1), np.array([0.0, 2.0, 0.5, 0.0, 0.0, 1.0])),
    (np.zeros(N), np.ones(6)),
]
HEADS = [
    head_of(Y),
    head_of(-Y, 2.0),
    head_of(X[:, 0], RNG.uniform(0, 2, N) * (np.arange(N) % 3 > 0), loss=EpsilonInsensitive(0.1)),
]


@pytest.mark.parametrize("gate_of_entry", [None, GATED], ids=["no gates", "gates"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("light", [True, False], ids=["light", "cached"])
@pytest.mark.parametrize("shards", [1, 4])
def test_what_is_proved_is_true(gate_of_entry, dtype, light, shards):
    """Several heads and losses, several families, a head that has not begun; statistics in full precision."""
    gates = None if gate_of_entry is None else GATES
    K = entries(BANK, X, gate_of_entry, gates)
    with standing_at(
        problem_of(BANK, N, dtype, light, gate_of_entry, gates), X, HEADS, POINTS, shards
    ) as coordinator:
        for (losses, s, error, variance), head, (a, theta), h in zip(
            proved(coordinator, [0, 1, 2]), HEADS, POINTS, range(3), strict=True
        ):
            expected, quadratic, f = slow(K, head, a, theta)
            size = np.abs(a).sum()
            np.testing.assert_allclose(losses, expected, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(s, quadratic, rtol=1e-11, atol=1e-11 * size**2)
            assert error == variance == 0.0
            # From now on the rounds know it as well.
            np.testing.assert_allclose(f_of_all(coordinator, h), f, rtol=1e-11, atol=1e-11 * max(size, 1.0))


def test_families_that_are_accurate_as_they_are():
    """Custom kernels and inner products in float64 have nothing to be proved: their sums are taken as they
    are.
    """
    bank = [Linear(), Custom(lambda A, B: 1 / (1 + np.abs(A[:, None] - B[None]).sum(-1))), *rbf([0.1, 1.0])]
    problem = problem_of(bank, N, np.float64, light=False)
    a, theta = some_point(Y), np.array([0.3, 0.5, 0.7, 0.2])
    with standing_at(problem, X, [head_of(Y)], [(a, theta)], shards=2) as coordinator:
        accurate = [
            is_accurate(problem, f.statistic, b)
            for f, b in zip(problem.families, coordinator.shared.found.bases, strict=True)
        ]
        assert sorted(accurate) == [False, True, True] and not coordinator.shared.accurate
        ((losses, s, _, _),) = proved(coordinator, [0])
    expected, quadratic, _ = slow(entries(bank, X), head_of(Y), a, theta)
    np.testing.assert_allclose(losses, expected, rtol=1e-11)
    np.testing.assert_allclose(s, quadratic, rtol=1e-11)


@pytest.mark.parametrize("scale, offset", [(1.0, 300.0), (1e-3, 0.0), (1e4, 0.0)])
def test_rows_far_from_the_origin_and_of_any_scale(scale, offset):
    far = scale * X + offset
    bank = rbf(np.array([0.01, 0.5]) / scale**2)
    a, theta = some_point(Y), np.array([3.0, 0.5])
    with standing_at(problem_of(bank, N), far, [head_of(Y)], [(a, theta)], shards=2) as coordinator:
        ((losses, s, _, _),) = proved(coordinator, [0])
    # The formula itself, with differences instead of norms.
    D = ((far[:, None] - far[None]) ** 2).sum(axis=-1)
    expected, quadratic, _ = slow(
        np.stack([np.exp(-kernel.gamma * D) for kernel in bank], axis=-1), head_of(Y), a, theta
    )
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    np.testing.assert_allclose(s, quadratic, rtol=1e-9)


def test_histograms():
    bank = [Chi2(gamma=0.3), Chi2(gamma=3.0), Laplacian(gamma=0.5)]
    a, theta = some_point(Y), np.array([0.5, 0.5, 0.2])
    with standing_at(problem_of(bank, N), HISTOGRAMS, [head_of(Y)], [(a, theta)], shards=2) as coordinator:
        ((losses, s, _, _),) = proved(coordinator, [0])
    expected, quadratic, _ = slow(entries(bank, HISTOGRAMS), head_of(Y), a, theta)
    np.testing.assert_allclose(losses, expected, rtol=1e-11)
    np.testing.assert_allclose(s, quadratic, rtol=1e-11)


# -- rough statistics ------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3], ids=lambda shards: f"{shards} shards")
def many_columns(request):
    """80 columns whose statistics are cached in float32, half of the columns in the cache, at a point with
    large dual variables.
    """
    bank = rbf(np.array([1e-4, 1e-3, 1e-2]))
    a, theta = 30.0 * some_point(Y), np.array([5.0, 2.0, 0.5])
    head = head_of(Y, 30.0, tol=1e-6)
    with standing_at(
        problem_of(bank, N, light=False), WIDE_ROWS, [head], [(a, theta)], request.param
    ) as coordinator:
        some = np.flatnonzero(a)[::2]
        request_, _ = coordinator.shared.entering(some, None)
        coordinator.crew.ask("enter", request_)
        yield coordinator, head, a, theta, entries(bank, WIDE_ROWS)


def test_rough_and_precise_proofs(many_columns):
    """Cached statistics are good to float32, with accurate functions of them; full precision is the truth."""
    coordinator, head, a, theta, K = many_columns
    expected, quadratic, _ = slow(K, head, a, theta)
    ((rough, rough_s, error, variance),) = proved(coordinator, [0], slots=True)
    assert (error, variance) != (0.0, 0.0)
    np.testing.assert_allclose(rough, expected, rtol=2e-5)
    np.testing.assert_allclose(rough_s, quadratic, rtol=1e-3)
    ((losses, s, error, variance),) = proved(coordinator, [0])
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    np.testing.assert_allclose(s, quadratic, rtol=1e-10)
    assert error == variance == 0.0
    assert np.abs(rough - expected).max() > 100 * np.abs(losses - expected).max()  # rough, indeed


def test_the_sampled_error_is_of_the_right_size(many_columns, monkeypatch):
    """All rows that matter are in the sample: it is the error.

    With a few of them it is so within its own deviation.
    """
    coordinator, head, a, theta, K = many_columns
    solver = coordinator.solvers[0]
    expected, quadratic, _ = slow(K, head, a, theta)
    at = int(np.argmin(np.abs(INTERCEPTS - solver.intercept)))
    assert INTERCEPTS[at] == solver.intercept

    def of_gap(losses, s):
        """What of primal - dual depends on f and s, to first order: the losses, and a'f = sum theta s."""
        return losses[at] + theta @ s

    monkeypatch.setattr("raymkl.engine.shard.proof.SAMPLE", 10_000)
    ((rough, rough_s, error, variance),) = proved(coordinator, [0], slots=True)
    true = of_gap(expected, quadratic) - of_gap(rough, rough_s)
    assert error == pytest.approx(true, rel=0.05, abs=1e-9) and variance == 0.0
    monkeypatch.setattr("raymkl.engine.shard.proof.SAMPLE", 25)
    ((_, _, error, variance),) = proved(coordinator, [0], slots=True)
    assert 0 < abs(error - true) <= 4 * np.sqrt(variance)
    assert np.sqrt(variance) < 100 * abs(true) + 1e-2


# -- what proofs leave behind ----------------------------------------------------------------------


@pytest.mark.parametrize("light", [True, False], ids=["light", "cached"])
@pytest.mark.parametrize("shards", [1, 3])
def test_offsets_make_the_next_round_accurate(light, shards):
    """Residuals, losses and quadratic terms of a round are wrong by float32 before a proof, and about the
    change since then after it.
    """
    bank = rbf([1e-4, 1e-3, 0.3])
    a, theta = 50.0 * some_point(Y), np.array([40.0, 5.0, 0.2])
    head = head_of(Y, 50.0)
    K = entries(bank, X)
    f = (K @ theta) @ a
    with standing_at(problem_of(bank, N, light=light), X, [head], [(a, theta)], shards) as coordinator:
        solver = coordinator.solvers[0]
        wrong = np.abs(f_of_all(coordinator, 0) - f).max()
        assert wrong > 1e-6
        told_nothing_new(coordinator)
        solver.point.intercepts = INTERCEPTS
        ((losses, s, _, _),) = proved(coordinator, [0])
        solver.take_proof(losses, s * coordinator.roster.at_work[0].normalisation)
        solver.settle()
        assert not solver.done
        told_nothing_new(coordinator)
        np.testing.assert_allclose(solver.s, np.einsum("i,ijm,j->m", a, K, a), rtol=1e-10)
        np.testing.assert_allclose(f_of_all(coordinator, 0), f, rtol=1e-10, atol=1e-10 * np.abs(a).sum())
        summary = solver.seen.summary
        np.testing.assert_allclose(summary.grow_residual, (Y - f)[summary.grow], atol=1e-8)
        np.testing.assert_allclose(
            summary.gradients @ solver.combination + summary.offsets, f[summary.ids], atol=1e-8
        )
        np.testing.assert_allclose(summary.losses, slow(K, head, a, theta)[0], rtol=1e-10)


# -- sums for normalisation ------------------------------------------------------------------------


@pytest.mark.parametrize("light", [True, False], ids=["light", "cached"])
@settings(max_examples=12)
@given(data=st.data())
def test_sums_over_masks(light, data):
    """Any masks of rows, rows that lack what a family reads, and weights of columns, in float32, over
    families of all kinds.
    """
    shards = data.draw(st.integers(1, 3))
    ids = np.array(sorted(data.draw(st.sets(st.integers(0, N - 1), min_size=1, max_size=40))))
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    masks = (rng.uniform(size=(2, N)) < 0.6).astype(float)
    bank = [*BANK, Custom(lambda A, B: A @ B.T + 1.0)]
    problem = problem_of(bank, N, light=light)
    there = np.ones((N, len(bank)))
    for family in problem.families[1:]:
        family.present = rng.uniform(size=N) < 0.7
        there[:, family.members] = family.present[:, None]
    weights = [
        masks[:, ids] * rng.uniform(1, 2) * there[ids][:, family.members[0]] for family in problem.families
    ]
    with standing_at(problem, X, [head_of(Y)], [(np.zeros(N), np.ones(7))], shards) as coordinator:
        request, slots = coordinator.shared.entering(ids, None)
        rows = coordinator.shared.rows_of(ids)
        found = np.sum(
            coordinator.crew.ask(
                "apply", mask_sums, request, ids, slots, rows, coordinator.shared.found.bounds, masks, weights
            ),
            axis=0,
        )
    K = entries(bank, X)[:, ids]
    right = np.empty((2, len(ids), len(bank)))
    for family, part in zip(problem.families, weights, strict=True):
        right[:, :, family.members] = part[:, :, None]
    expected = np.einsum("hi,im,ijm,hjm->hm", masks, there, K, right)
    sizes = np.einsum("hi,im,ijm,hjm->hm", masks, there, np.abs(K), right)
    # Of what is kept in float32 the sums are as good as that.
    error = np.where(np.arange(len(bank)) < 5, 1e-12 if light else 1e-6, 1e-6)
    assert np.all(np.abs(found - expected) <= error * sizes)
