"""Heads that can do no better in float32 go on in float64 where they may; where they may not, they say how
far they came.
"""

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from raymkl import MKLClassifier, RayParams, Session
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.kernels import rbf
from raymkl.models.description import problem as description
from tests.builders import head_of
from tests.engine.given_points import problem_of
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import decision_from, dual_point, dual_value, gram, noisy_problem

N = 120
X, Y = noisy_problem(N, seed=3)
# The widest kernel differs from a constant by 1e-8 or so, which float32 does not see.
BANK = rbf(10.0 ** np.arange(-9, 0))
C = 10.0
K = gram(BANK, X)


@pytest.fixture(autouse=True)
def no_problem_is_small(monkeypatch):
    """Small problems begin in float64."""
    monkeypatch.setattr(description, "SMALL_PROBLEM", 0)
    monkeypatch.setattr(description, "SMALL_PROBLEM_LARGE_P", 0)
    monkeypatch.setattr(description, "light_statistics", lambda families, rows: frozenset())


def fit(dtype, p, shards=2, **more):
    more = {"tol": 1e-3, **more}
    return MKLClassifier(
        kernels=BANK, p=p, C=C, dtype=dtype, engine="local", ray_params=RayParams(num_shards=shards), **more
    ).fit(X, Y)


def true_values(a, theta, f, p):
    """Primal and dual objective of a point straight from the matrices."""
    lengths = theta * np.sqrt(np.maximum(np.einsum("i,ijm,j->m", a, K, a), 0.0))
    size = lengths.max() if np.isinf(p) else np.sum(lengths**p) ** (1 / p)
    return 0.5 * size**2 + C * np.maximum(0.0, 1.0 - Y * f).sum(), dual_value(a, Y, K, p)


def assert_reported_is_true(model, p):
    primal, dual = true_values(
        dual_point(model, N), np.ravel(model.kernel_weights_), decision_from(model, K), p
    )
    allowed = 0.1 * model.tol * abs(primal)
    assert model.primal_objective_ == pytest.approx(
        primal, abs=allowed
    ) and model.dual_objective_ == pytest.approx(dual, abs=allowed)
    assert float(np.max(model.duality_gap_)) == pytest.approx(
        (primal - dual) / abs(primal), abs=0.1 * model.tol
    )


# Gaps that float32 does not reach.
BEYOND = pytest.mark.parametrize("p, tol", [(10, 1e-5), (np.inf, 1e-3)])


@BEYOND
@pytest.mark.parametrize("shards", [1, 3])
def test_auto_goes_on_in_float64(p, tol, shards):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = fit("auto", p, shards, tol=tol)
    assert model.converged_ and np.max(model.duality_gap_) <= tol
    precisions = [row["precision"] for row in model.history_]
    assert precisions[0] == "float32" and precisions[-1] == "proved" and "float64" in precisions
    # A proof in float32 has failed before.
    assert "proved" in precisions[: precisions.index("float64")]
    assert "float32" not in precisions[precisions.index("float64") :]
    assert_reported_is_true(model, p)


@BEYOND
def test_float32_ends_with_its_true_gap(p, tol):
    with pytest.warns(ConvergenceWarning, match="relative duality gap") as caught:
        model = fit("float32", p, tol=tol)
    assert not model.converged_ and np.max(model.duality_gap_) > tol
    assert {row["precision"] for row in model.history_} == {"float32", "proved"} and model.history_[-1][
        "precision"
    ] == "proved"
    said = float(re.search(r"duality gap of ([\d.e+-]+)", str(caught[0].message)).group(1).rstrip("."))
    assert said == pytest.approx(float(np.max(model.duality_gap_)), rel=0.06)
    assert_reported_is_true(model, p)


def test_rounds_of_float64_formulas_are_proofs():
    model = fit("float64", 4 / 3, exact=True)
    assert {row["precision"] for row in model.history_} == {"proved"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_say_their_precision(dtype):
    """The last row is that of the certificate in the model; proofs come after rounds that say what they
    are.
    """
    model = fit(dtype, 4 / 3)
    precisions = [row["precision"] for row in model.history_]
    assert set(precisions) == {dtype, "proved"} and precisions[0] == dtype and precisions[-1] == "proved"
    assert model.history_[-1]["gap"] == np.max(model.duality_gap_)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rounds, goes_back", [(5, False), (6, True)])
@pytest.mark.usefixtures("small_working_sets")
def test_max_iter_ends_with_the_certificate_of_what_is_reported(dtype, rounds, goes_back):
    """Gaps go up after steps of the weights; the best point is reported, and the gap is that of this
    point.
    """
    with pytest.warns(ConvergenceWarning, match=f"after {rounds} rounds"):
        model = fit(dtype, 1.5, tol=1e-9, max_iter=rounds, theta_step="cutting_plane")
    assert model.n_iter_ == rounds and len(model.history_) == rounds + goes_back
    gap, gaps = float(np.max(model.duality_gap_)), [row["gap"] for row in model.history_]
    assert gap == gaps[-1] and gap <= 1.02 * min(gaps) + 1e-4
    if goes_back:
        assert gap < 0.9 * gaps[-2]
    primal, dual = true_values(
        dual_point(model, N), np.ravel(model.kernel_weights_), decision_from(model, K), 1.5
    )
    assert gap == pytest.approx((primal - dual) / primal, rel=1e-6, abs=1e-8)
    assert model.primal_objective_ == pytest.approx(
        primal, rel=1e-7
    ) and model.dual_objective_ == pytest.approx(dual, rel=1e-7)


@pytest.mark.parametrize("rounds", [12, 20, 27])
@pytest.mark.usefixtures("small_working_sets")
def test_going_back_does_not_trust_what_rounds_believed(rounds):
    """Weights of the widest kernels grow so large that tables in float64 are off as well: the gap of the best
    point is proved, too.
    """
    with pytest.warns(ConvergenceWarning, match=f"after {rounds} rounds"):
        model = fit("float64", 3, tol=1e-9, max_iter=rounds, solver="wrapper")
    assert rounds <= len(model.history_) <= rounds + 1 and model.history_[-1]["precision"] == "proved"
    primal, dual = true_values(
        dual_point(model, N), np.ravel(model.kernel_weights_), decision_from(model, K), 3
    )
    assert float(np.max(model.duality_gap_)) == pytest.approx((primal - dual) / primal, rel=1e-5)


# -- lost shards -----------------------------------------------------------------------------------


def run(faults=(), shards=3):
    problem = problem_of(BANK, N, may_widen=True)
    pool = LossyPool({None: X}, problem, shards, faults)
    pool.coordinator = coordinator = Coordinator(pool, problem, policy=FailurePolicy(100), threads=1)
    coordinator.crew.load()
    ((result,),) = coordinator.run([head_of(Y, C, p=10, tol=1e-5)])
    return result, pool, coordinator


@pytest.mark.slow
def test_shards_lost_before_while_and_after_precision_grows():
    calm, pool, coordinator = run()
    assert calm.converged and coordinator.shared.problem.dtype == np.float64 and pool.seen["set_problem"]
    methods = (
        "set_problem",
        "prepare",
        "take_bases",
        "add_heads",
        "resume",
        "rebuild",
        "apply",
        "advance",
        "moments",
    )
    for method in methods:
        for number in sorted({1, max(pool.seen[method] - 1, 1), pool.seen[method]}):
            for worked in (False, True):
                result, disturbed, _ = run([Fault(method, number, (0, 1, 2), worked)])
                assert disturbed.deaths, (method, number)
                assert result.converged and result.certificate.gap <= 1e-5, (method, number)
                assert result.certificate.dual == pytest.approx(calm.certificate.dual, rel=2e-3)
                primal, dual = true_values(
                    result.a, result.theta, (K @ result.theta) @ result.a + result.intercept, 10
                )
                assert result.certificate.gap == pytest.approx((primal - dual) / primal, abs=1e-6), (
                    method,
                    number,
                )
                assert all(shard.problem.dtype == np.float64 for shard in disturbed.shards), (method, number)


def test_caches_of_the_narrow_rounds_do_not_outlive_a_wider_run():
    """In a session the caches that stand after a fit are those it ended with."""
    with Session("local", RayParams(num_shards=2)) as session:
        rows = session.put(X)
        for _ in range(3):
            model = MKLClassifier(kernels=BANK, p=np.inf, C=C, tol=1e-4, engine=session).fit(rows, Y)
            assert {row["precision"] for row in model.history_} >= {"float32", "float64"}
            assert [len(kept) for kept in session._kept.values()] == 2 * [len(session._standing.idle)]
