"""Rows at work: who leaves, who stays, and that those who left wrongly come back."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from raymkl import MKLClassifier, RayParams
from raymkl.engine import plan
from raymkl.engine.heads import asked
from raymkl.engine.heads import state as head_state
from raymkl.engine.heads.head import HeadSolver
from raymkl.engine.rounds.proving import proof_request
from raymkl.engine.shard import proof
from raymkl.engine.shard.head_rows import WORTH_LEAVING, HeadRows
from raymkl.engine.shard.proof import prove, review
from raymkl.kernels import Linear, rbf
from raymkl.optim.losses import EpsilonInsensitive
from tests.builders import head_of
from tests.engine.given_points import entries, problem_of, some_point, standing_at
from tests.reference import dual_optimum, dual_point, dual_value, gram, noisy_problem

N = 400
X, Y = noisy_problem(N, seed=71)
BANK = [*rbf([0.05, 0.5]), Linear()]
RANKS = [2, 1]


def rows_of(head=None, first=100, n=200):
    return HeadRows(head_of(Y) if head is None else head, slice(first, first + n), RANKS)


# -- leaving ---------------------------------------------------------------------------------------


def filled():
    state = rows_of()
    for G in state.G:
        G[:] = np.random.default_rng(0).normal(size=G.shape)
    state.offset = np.arange(200.0)
    return state


def test_rows_leave_with_all_that_is_kept_of_them():
    state, before = filled(), filled()
    stays = np.arange(200) % 2 == 0
    state.shrink(stays)
    np.testing.assert_array_equal(state.rows, np.arange(0, 200, 2))
    again = np.arange(100) % 5 == 0
    state.shrink(again)
    left = np.arange(0, 200, 10)
    np.testing.assert_array_equal(state.rows, left)
    np.testing.assert_array_equal(state.offset, left)
    for G, whole in zip(state.G, before.G, strict=True):
        np.testing.assert_array_equal(G, whole[left])
    np.testing.assert_array_equal(state.of(np.arange(200) * 3), left * 3)
    np.testing.assert_array_equal(state.places(np.array([10, 190])), [1, 19])
    np.testing.assert_array_equal(state.numbers(np.array([1, 19])), [10, 190])
    np.testing.assert_array_equal(state.at_work(np.array([10, 11, 190, 199])), [10, 190])


def test_few_do_not_leave_alone():
    """Smaller arrays cost something as well."""
    state = filled()
    few = round(200 * (1 - WORTH_LEAVING))
    assert not state.shrink(np.arange(200) >= few - 1)
    assert state.rows is None and len(state.offset) == 200
    assert state.shrink(np.arange(200) >= few + 1)
    assert len(state.rows) == len(state.G[0]) == len(state.offset) < 200


def test_beginning_anew():
    state = filled()
    state.work_on(np.array([3, 5]))
    assert state.offset is None and all(
        G.shape == (2, rank) and not G.any() for G, rank in zip(state.G, RANKS, strict=True)
    )
    state.work_on(None)
    assert all(G.shape == (200, rank) for G, rank in zip(state.G, RANKS, strict=True))


@given(st.integers(0, 10**6), st.floats(-2, 2), st.booleans())
def test_reach_is_the_rate_at_which_the_dual_would_grow(seed, b, regression):
    """Against the derivative of the dual objective in every direction that the box leaves, one row at a
    time.
    """
    rng = np.random.default_rng(seed)
    head = head_of(
        Y, np.where(np.arange(N) % 7 == 0, 0.0, 1.5), loss=EpsilonInsensitive(0.3) if regression else None
    )
    state, f = rows_of(head), rng.normal(size=200)
    lower, upper = state.terms.lower, state.terms.upper
    state.a = np.where(
        rng.uniform(size=200) < 0.5, np.clip(rng.normal(size=200), lower, upper), np.clip(0.0, lower, upper)
    )
    found = state.reach(f, b, every_row=True)
    t = 1e-7
    for i in range(200):
        rates = [-np.inf]
        for step in (t, -t):
            there = state.a[i] + step
            if (step > 0 and state.a[i] < upper[i]) or (step < 0 and state.a[i] > lower[i]):
                y = head.targets[100 + i]
                value = y * step - (0.3 * (abs(there) - abs(state.a[i])) if regression else 0.0)
                rates.append((value - (f[i] + b) * step) / t)
        assert found[i] == pytest.approx(max(rates), abs=1e-6)
    assert np.all(found[(np.arange(100, 300) % 7) == 0] == -np.inf)
    rows = np.arange(0, 200, 3)
    state.work_on(rows)
    np.testing.assert_array_equal(state.reach(f[rows], b), found[rows])
    np.testing.assert_array_equal(state.reach(f, b, every_row=True), found)


def test_losses_of_rows_at_work_and_of_all():
    state, f = rows_of(), np.linspace(-2, 2, 200)
    y, b = Y[100:300], np.array([-0.5, 0.3])
    all_rows = [np.maximum(0, 1 - y * (f + one)).sum() for one in b]
    np.testing.assert_allclose(state.losses(f, b), all_rows)
    rows = np.arange(0, 200, 4)
    state.work_on(rows)
    np.testing.assert_allclose(state.losses(f, b, every_row=True), all_rows)
    np.testing.assert_allclose(
        state.losses(f[rows], b), [np.maximum(0, 1 - y[rows] * (f[rows] + one)).sum() for one in b]
    )


# -- coming back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_review_takes_violators_back(dtype, shards, monkeypatch):
    """All rows without a dual variable have left, violators among them; after a proof the violators work
    again, with right sums.
    """
    monkeypatch.setattr(proof, "FEWEST_AT_WORK", 5)
    a, theta, b = some_point(Y, share=0.1), np.array([0.6, 0.4, 0.1]), 0.1
    f = (entries(BANK, X) @ theta) @ a
    with standing_at(problem_of(BANK, N, dtype), X, [head_of(Y)], [(a, theta)], shards) as coordinator:
        coordinator.solvers[0].point.intercept = b
        states = [shard.heads[0] for shard in coordinator.crew.pool.shards]
        for state in states:
            state.shrink(state.a != 0)
            assert state.rows is not None
        request = proof_request(coordinator.shared, coordinator.roster.at_work)
        coordinator.crew.ask("apply", prove, request)
        coordinator.crew.ask("apply", review, request)
        violates = (a == 0) & (Y * (f + b) < 1 - 1e-4)
        assert violates.sum() > 50
        for state, (first, last) in zip(states, coordinator.crew.pool.ranges, strict=True):
            own = slice(first, last)
            there = np.zeros(last - first, bool)
            there[slice(None) if state.rows is None else state.rows] = True
            assert there[violates[own]].all() and there[a[own] != 0].all()
            # Of the others only the nearest are there, half as many as must be.
            others = there & ~((a[own] != 0) | (Y[own] * (f[own] + b) < 1))
            assert others.sum() <= 0.5 * (there.sum() - others.sum()) + 6
            if others.any():
                margin = (Y * (f + b))[own]
                assert (
                    margin[others].max()
                    <= np.sort(margin[(a[own] == 0) & (margin >= 1)])[others.sum() - 1] + 1e-6
                )
            # Sums and offsets are those of the rows that are there.
            values = np.concatenate(state.G, axis=1) @ coordinator.solvers[0].combination
            np.testing.assert_allclose(values + state.offset, f[own][there], atol=1e-10)
            np.testing.assert_allclose(values, f[own][there], atol=1e-3 if dtype == np.float32 else 1e-7)


def fit(dtype="float32"):
    return MKLClassifier(
        kernels=BANK, C=1.0, tol=1e-4, dtype=dtype, engine="local", ray_params=RayParams(num_shards=2)
    ).fit(X, Y)


class Seen:
    """What happens in a fit with working sets of 48 rows: rows at work after every reply, and reviews."""

    def __init__(self, monkeypatch):
        self.at_work, self.reviews, original = [], 0, HeadRows.shrink
        for name in ("WORKING_SET", "SMALLEST_WORKING_SET"):
            monkeypatch.setattr(plan, name, 48)

        def shrink(state, stays):
            worth_it = original(state, stays)
            self.at_work.append(len(state.a) if state.rows is None else len(state.rows))
            return worth_it

        def reviewed(shard, request, held):
            self.reviews += 1
            return review(shard, request, held)

        monkeypatch.setattr(HeadRows, "shrink", shrink)
        monkeypatch.setattr("raymkl.engine.rounds.proving.review", reviewed)


@cache
def optimum():
    return dual_optimum(gram(BANK, X), Y, 1.0, 4 / 3)


def leave_too_early(monkeypatch, proofs):
    """Let violators leave as well until there were so many proofs."""
    rule = HeadSolver.leave.fget

    def leave(solver):
        hasty = solver.head.shrinks and solver.certificate is not None and solver.course.proofs < proofs
        return (solver.seen.middle, -solver.violation) if hasty else rule(solver)

    monkeypatch.setattr(HeadSolver, "leave", property(leave))
    monkeypatch.setattr(proof, "FEWEST_AT_WORK", 8)


@pytest.mark.slow
def test_rows_that_leave_wrongly_come_back(monkeypatch):
    """The first proof fails for it; then the rows are chosen anew, and the fit ends at the optimum of all
    rows.
    """
    leave_too_early(monkeypatch, proofs=1)
    seen = Seen(monkeypatch)
    model = fit()
    assert min(seen.at_work) < 100 and seen.reviews >= 2
    failed = [row["gap"] for row in model.history_[:-1] if row["precision"] == "proved"]
    assert failed and max(failed) > 0.1
    assert model.converged_ and np.max(model.duality_gap_) <= 1e-4
    best = optimum()
    assert model.dual_objective_ == pytest.approx(
        best, rel=1e-4
    ) and model.primal_objective_ == pytest.approx(best, rel=2e-4)


def test_a_gap_that_no_proof_has_shown_is_not_reported(monkeypatch):
    """Rows leave wrongly again and again: the rounds believe in small gaps, and the proofs do not."""
    leave_too_early(monkeypatch, proofs=10**9)
    monkeypatch.setattr(head_state, "FUTILE_PROOFS", 2)
    Seen(monkeypatch)
    with pytest.warns(ConvergenceWarning, match="relative duality gap"):
        model = fit()
    believed = [row["gap"] for row in model.history_ if row["precision"] == "float32"]
    proved = [row["gap"] for row in model.history_ if row["precision"] == "proved"]
    gap = float(np.max(model.duality_gap_))
    assert not model.converged_ and gap == min(proved) > 10 * min(believed)
    K = gram(BANK, X)
    dual = dual_value(dual_point(model, N), Y, K, 4 / 3)
    assert model.dual_objective_ == pytest.approx(dual, rel=1e-6)
    best = optimum()
    assert dual <= best * (1 + 1e-6) and model.primal_objective_ >= best * (1 - 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_leave_as_it_shows(monkeypatch, dtype):
    """As the rules are, rows leave, and the model is the one of all rows.

    Inner products in float64 are as good as a proof, and light.
    """
    monkeypatch.setattr("raymkl.models.description.problem.FEW_VALUES", 0)
    seen = Seen(monkeypatch)
    model = fit(dtype)
    assert min(seen.at_work) < 0.8 * N / 2
    monkeypatch.setattr(asked, "SETTLING", -1.0)
    seen.at_work.clear()
    whole = fit(dtype)
    assert not seen.at_work and model.converged_ and whole.converged_
    assert model.dual_objective_ == pytest.approx(whole.dual_objective_, rel=1e-4)


def test_f_of_rows_that_left(monkeypatch):
    """Held-out rows have no dual variable; they may leave the rounds, their f is that of the proof."""
    seen = Seen(monkeypatch)
    from raymkl.engine.pools.local import LocalPool
    from raymkl.engine.rounds.coordinator import Coordinator

    for name, value in (("SETTLING", 10.0), ("LEAVING", 0.0), ("NEAR", 0.0)):
        monkeypatch.setattr(asked, name, value)
    held_out = np.arange(0, N, 5)
    bounds = np.where(np.isin(np.arange(N), held_out), 0.0, 1.0)
    problem = problem_of(BANK, N)
    pool = LocalPool({None: X}, problem, 2)
    try:
        ((result,),) = Coordinator(pool, problem).run(
            [head_of(Y, bounds, tol=1e-4, watch=held_out[::-1].copy())]
        )
    finally:
        pool.close()
    assert min(seen.at_work) < 0.8 * N / 2
    f = (entries(BANK, X)[held_out[::-1]] @ (result.theta * result.scale)) @ result.a + result.intercept
    np.testing.assert_allclose(result.f, f, atol=1e-9)
