"""Weights that hardly move are held, and shards keep f alone; proofs say whether the weights have to move
once more.
"""

import numpy as np
import pytest

from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.heads import head as head_solver
from raymkl.engine.heads.head import HeadSolver
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.kernels import Linear, rbf
from raymkl.optim.weights import Follow
from tests.builders import head_of
from tests.engine.given_points import entries, problem_of
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import dual_value, noisy_problem

pytestmark = pytest.mark.usefixtures("small_working_sets")

N, C = 260, 2.0
X, Y = noisy_problem(N, seed=17)
BANK = [*rbf([0.003, 0.03, 0.3, 1.0]), Linear()]
K = entries(BANK, X)


def trained(pool=None, p=4 / 3, tol=1e-4, **more):
    """Result of a head, its coordinator, and whether weights were held after each round."""
    problem = problem_of(BANK, N)
    pool = LocalPool({None: X}, problem, 2) if pool is None else pool(problem)
    coordinator = Coordinator(pool, problem, policy=FailurePolicy(100), threads=1)
    pool.coordinator = coordinator
    coordinator.crew.load()
    held = []
    for _ in coordinator.rounds([head_of(Y, C, p, tol=tol, **more)]):
        held.append([solver.held for solver in coordinator.solvers.values()])
    ((result,),) = coordinator.outcome([None])
    return result, coordinator, [part[0] for part in held if part]


def assert_proved(result, p, tol):
    """The certificate is that of the matrices themselves."""
    quadratic = np.maximum(np.einsum("i,ijm,j->m", result.a, K, result.a), 0.0)
    f = (K @ result.theta) @ result.a + result.intercept
    primal = (
        0.5 * np.sum((result.theta * np.sqrt(quadratic)) ** p) ** (2 / p)
        + C * np.maximum(0.0, 1.0 - Y * f).sum()
    )
    dual = dual_value(result.a, Y, K, p)
    assert result.certificate.primal == pytest.approx(
        primal, rel=0.1 * tol
    ) and result.certificate.dual == pytest.approx(dual, rel=0.1 * tol)
    assert result.converged and (primal - dual) / primal <= 1.1 * tol


@pytest.mark.parametrize("p", [1.2, 4 / 3, 1.7, 2.0])
@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_weights_are_held_near_the_end(p, tol):
    result, _, held = trained(p=p, tol=tol)
    assert any(held) and not held[0]
    assert_proved(result, p, tol)


def test_the_model_is_the_one_of_weights_that_follow(monkeypatch):
    held = trained(tol=1e-6)[0]
    monkeypatch.setattr(Follow, "may_be_held", False)
    follows, _, never = trained(tol=1e-6)
    assert not any(never)
    np.testing.assert_allclose(held.theta, follows.theta, atol=2e-3)
    assert held.certificate.dual == pytest.approx(follows.certificate.dual, rel=2e-6)


def test_weights_that_were_held_too_early_move(monkeypatch):
    """Held from the first step on, they belong to a sample; proofs renew them, and in the end they follow
    again.
    """
    monkeypatch.setattr(head_solver, "HELD_AT_MOST", 10.0)
    monkeypatch.setattr(head_solver, "HELD_BELOW", np.inf)
    moved = []
    original = HeadSolver.renew_weights
    monkeypatch.setattr(
        HeadSolver, "renew_weights", lambda solver: moved.append(original(solver)) or moved[-1]
    )
    result, _, _ = trained(tol=1e-5)
    assert any(moved)
    assert_proved(result, 4 / 3, 1e-5)


def test_a_path_over_held_weights():
    problem = problem_of(BANK, N)
    coordinator = Coordinator(LocalPool({None: X}, problem, 2), problem, threads=1)
    (stages,) = coordinator.run([head_of(Y, 1.0, tol=1e-4, path=(0.3, 1.0, C))])
    assert_proved(stages[-1], 4 / 3, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("worked", [False, True])
def test_shards_lost_while_weights_are_held(worked):
    calm, _, held = trained(lambda problem: LossyPool({None: X}, problem, 3, []))
    first = held.index(True) + 1
    for number in (first, first + 1, len(held)):
        result, _, _ = trained(
            lambda problem, number=number: LossyPool(
                {None: X}, problem, 3, [Fault("advance", number, (0, 2), worked)]
            )
        )
        assert_proved(result, 4 / 3, 1e-4)
        assert result.certificate.dual == pytest.approx(calm.certificate.dual, rel=2e-4)
