"""One set of weights for several heads: the joint problem against a conic solver, and its certificate by
definition.

max_{a_1..a_H}  sum_h sum(y_h a_h) - 1/2 || ( sqrt(sum_h a_h' K_m a_h) )_m ||_{p*}^2,    0 <= y_h a_h <=
                bounds,  sum(a_h) = 0
"""

import contextlib
import warnings
from copy import deepcopy
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

from raymkl import MKLClassifier, kernels
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.rounds.coordinator import Coordinator
from tests import builders
from tests.engine import given_points
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import dual_exponent, gram, noisy_problem

BANK = [*kernels.rbf([0.05, 0.5]), kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0)]
N = 48
NORMS = [1.0, 4 / 3, 2.0, 4.0]


@cache
def data():
    rng = np.random.default_rng(2)
    labels = np.arange(N) % 3
    X = rng.normal(size=(N, 4)) + 1.2 * np.eye(3, 4)[labels]
    return X, labels, gram(BANK, X)


def _root(matrix):
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-11 * values.max()
    return (np.sqrt(values[kept]) * vectors[:, kept]).T


@cache
def joint_optimum(p, C):
    """Optimal value of the joint problem of three classes, by a conic solver."""
    _, labels, K = data()
    roots = [_root(K[..., m]) for m in range(K.shape[2])]
    variables = [cp.Variable(N) for _ in range(3)]
    gains, constraints = [], []
    for label, a in enumerate(variables):
        signed = cp.multiply(np.where(labels == label, 1.0, -1.0), a)
        gains.append(cp.sum(signed))
        constraints += [signed >= 0, signed <= C, cp.sum(a) == 0]
    lengths = cp.hstack([cp.norm2(cp.hstack([root @ a for a in variables])) for root in roots])
    star = dual_exponent(p)
    size = cp.max(lengths) if np.isinf(star) else cp.pnorm(lengths, star)
    problem = cp.Problem(cp.Maximize(sum(gains) - cp.square(size) / 2), constraints)
    with warnings.catch_warnings(), contextlib.suppress(cp.error.SolverError):
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value)


def values(a, theta, b, p, C):
    """Primal and dual of the joint problem by definition. a : (3, n). b : (3,)."""
    _, labels, K = data()
    Y = np.where(labels == np.arange(3)[:, None], 1.0, -1.0)
    s = np.array([sum(row @ K[..., m] @ row for row in a) for m in range(K.shape[2])])
    lengths = theta * np.sqrt(s)
    f = a @ (K @ theta) + b[:, None]
    primal = 0.5 * np.sum(lengths**p) ** (2 / p) + C * np.maximum(0, 1 - Y * f).sum()
    star = dual_exponent(p)
    size = np.sqrt(s.max()) if np.isinf(star) else np.sum(np.sqrt(s) ** star) ** (1 / star)
    return primal, (Y * a).sum() - 0.5 * size**2


def check(a, theta, b, certificate, p, C, tol):
    primal, dual = values(a, theta, b, p, C)
    optimum = joint_optimum(p, C)
    assert certificate.gap <= tol
    assert certificate.primal == pytest.approx(primal, rel=1e-6) and certificate.dual == pytest.approx(
        dual, rel=1e-6
    )
    # The certificate encloses the optimum, up to the accuracy of the conic solver.
    assert dual - 1e-5 * abs(optimum) <= optimum <= primal + 1e-5 * abs(optimum)
    assert np.abs(a.sum(axis=1)).max() < 1e-8
    signed = np.where(data()[1] == np.arange(3)[:, None], a, -a)
    assert signed.min() >= 0 and signed.max() <= C + 1e-12


SOLVERS = [
    ("chunking", "analytic"),
    ("wrapper", "analytic"),
    ("chunking", "cutting_plane"),
    ("wrapper", "cutting_plane"),
]


@pytest.mark.parametrize(
    "p, solver, step", [(p, *way) for p in NORMS for way in SOLVERS if p <= 2 or way[1] == "analytic"]
)
def test_the_joint_problem(p, solver, step):
    X, labels, _ = data()
    tol = 1e-5 if step == "analytic" else 1e-4
    model = MKLClassifier(
        kernels=BANK, C=2.0, p=p, solver=solver, theta_step=step, tol=tol, engine="local", shared_weights=True
    )
    model.fit(X, labels)
    assert model.kernel_weights_.shape == (len(BANK),) and isinstance(model.duality_gap_, float)
    a = np.zeros((3, N))
    a[:, model.support_] = model.dual_coef_

    class Kept:
        gap, primal, dual = model.duality_gap_, model.primal_objective_, model.dual_objective_

    check(a, model.kernel_weights_, model.intercept_, Kept, p, 2.0, tol)
    f = data()[2] @ model.kernel_weights_ @ a.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), f, atol=1e-8)


def heads_of(p, path=(1.0,), group_number=0, **more):
    _, labels, _ = data()
    more = {"tol": 1e-5, "path": path, "group": group_number, **more}
    return [builders.head_of(np.where(labels == label, 1.0, -1.0), p=p, **more) for label in range(3)]


def run(heads, shards=2, budget=None):
    X = data()[0]
    problem = builders.problem_of(BANK, N, join=True)
    pool = LocalPool({None: X}, problem, shards)
    try:
        coordinator = Coordinator(pool, problem, budget, threads=2)
        return coordinator.run(heads), coordinator.journal.history
    finally:
        pool.close()


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("path", [(0.1, 1.0, 10.0), (10.0, 1.0, 0.1)], ids=["ascending", "descending"])
def test_a_path_of_a_group(p, path):
    results, history = run(heads_of(p, path, watch=np.array([5, 2])))
    for k, C in enumerate(path):
        stages = [result[k] for result in results]
        theta = stages[0].theta
        for stage in stages:
            np.testing.assert_array_equal(stage.theta, theta)
            assert (
                stage.converged
                and stage.certificate.gap == stages[0].certificate.gap
                and stage.f.shape == (2,)
            )
        a, b = np.stack([stage.a for stage in stages]), np.array([stage.intercept for stage in stages])
        check(a, theta, b, stages[0].certificate, p, C, 1e-5)
        np.testing.assert_allclose(
            [stage.f[0] for stage in stages], a @ (data()[2] @ theta)[:, 5] + b, atol=1e-8
        )
    # Members move together from stage to stage.
    assert all({row["head"] for row in history if row["stage"] == k} == {0, 1, 2} for k in range(3))


@pytest.mark.parametrize("path", [(0.3, 3.0), (3.0, 0.3)], ids=["ascending", "descending"])
def test_a_path_of_a_group_by_cutting_planes(path):
    """Cuts of the last stage belong to other bounds and must not be used again."""
    results, _ = run(heads_of(1.0, path, theta_step="cutting_plane", tol=1e-4))
    for k, C in enumerate(path):
        stages = [result[k] for result in results]
        a, b = np.stack([stage.a for stage in stages]), np.array([stage.intercept for stage in stages])
        check(a, stages[0].theta, b, stages[0].certificate, 1.0, C, 1e-4)


@pytest.mark.parametrize("light", [True, False], ids=["light", "cached"])
def test_a_shard_that_is_lost_after_a_proof_of_the_group(light):
    """What the proof has shown of f is gone with the shard; the new one finds it out again, for every member,
    also in later stages.
    """
    rng = np.random.default_rng(4)
    X, labels, bank = rng.normal(size=(60, 4)), np.arange(60) % 3, kernels.rbf([1e-4, 1e-3, 0.3])
    problem = given_points.problem_of(bank, 60, light=light)  # tables in float32, whose first proof fails
    more = {"group": 0, "tol": 1e-5, "path": (1.0, 3.0)}
    heads = [builders.head_of(np.where(labels == label, 1.0, -1.0), 50.0, **more) for label in range(3)]

    def rounds(faults=()):
        """The stage and the pool after every round."""
        pool = LossyPool({None: X}, deepcopy(problem), 2, faults)
        pool.coordinator = coordinator = Coordinator(
            pool, deepcopy(problem), policy=FailurePolicy(9), threads=1
        )
        coordinator.crew.load()
        for rows in coordinator.rounds(deepcopy(heads)):
            yield rows[0]["stage"], pool

    def members(pool):
        return [state for shard in pool.shards for state in shard.heads.values()]

    # By stage: the rounds that begin with something a proof has shown.
    corrected = {0: [], 1: []}
    for stage, pool in rounds():
        if pool.seen["apply"] and members(pool)[0].offset is not None:
            corrected[stage].append(pool.seen["advance"] + 1)
    calm = pool.seen["advance"]
    for number in (corrected[0][0], *corrected[1][:3]):
        for _, pool in rounds([Fault("advance", number)]):
            if pool.seen["advance"] == number + 1:  # it was asked for twice
                assert pool.deaths == [("advance", 0)] and len(members(pool)) == 6
                assert all(state.offset is not None for state in members(pool))
        # Sums that were made anew are wrong in another way; without a proof the gap would stand still until
        # the patience is over.
        assert pool.seen["advance"] <= calm + 5
        assert all(result.converged for stages in pool.coordinator.outcome(heads) for result in stages)


def test_groups_do_not_know_of_each_other():
    """Two groups and a head of its own in one run learn what they learn alone."""
    loner = heads_of(4 / 3, (0.5,))[0]
    loner.group = None
    first, second = heads_of(4 / 3, (1.0,), 0), heads_of(2.0, (3.0,), 1)
    together, _ = run([first[0], second[0], loner, first[1], second[1], first[2], second[2]])
    for heads, places in ((first, (0, 3, 5)), (second, (1, 4, 6)), ([loner], (2,))):
        alone, _ = run(heads, shards=1)
        for place, result in zip(places, alone, strict=True):
            np.testing.assert_allclose(together[place][0].theta, result[0].theta, atol=2e-3)
            assert together[place][0].certificate.dual == pytest.approx(result[0].certificate.dual, rel=2e-5)


def test_a_group_is_trained_together_however_little_memory_there_is():
    heads = [*heads_of(4 / 3, (1.0,), 0), *heads_of(4 / 3, (3.0,), 1)]
    results, history = run(heads, shards=1, budget=600_000)
    first = [row["head"] for row in history if row["round"] == 1]
    assert set(first) in ({0, 1, 2}, {0, 1, 2, 3, 4, 5})
    for k, C in ((0, 1.0), (3, 3.0)):
        stages = [result[0] for result in results[k : k + 3]]
        a, b = np.stack([stage.a for stage in stages]), np.array([stage.intercept for stage in stages])
        check(a, stages[0].theta, b, stages[0].certificate, 4 / 3, C, 1e-5)


def test_two_classes_have_one_head_and_share_nothing():
    X, y = noisy_problem()
    plain = MKLClassifier(kernels=BANK, engine="local", tol=1e-5).fit(X, y)
    shared = MKLClassifier(kernels=BANK, engine="local", tol=1e-5, shared_weights=True).fit(X, y)
    np.testing.assert_array_equal(plain.kernel_weights_, shared.kernel_weights_)
    np.testing.assert_array_equal(plain.decision_function(X), shared.decision_function(X))


def test_shared_weights_are_a_compromise():
    """Weights of their own serve the classes better, all together, than common ones."""
    X, labels, _ = data()
    own = MKLClassifier(kernels=BANK, C=2.0, tol=1e-6, engine="local").fit(X, labels)
    shared = MKLClassifier(kernels=BANK, C=2.0, tol=1e-6, engine="local", shared_weights=True).fit(X, labels)
    assert not np.allclose(own.kernel_weights_, shared.kernel_weights_)
    assert shared.primal_objective_ >= own.dual_objective_.sum()


def test_stopping_short_keeps_a_valid_certificate():
    from sklearn.exceptions import ConvergenceWarning

    X, labels, _ = data()
    model = MKLClassifier(kernels=BANK, C=2.0, tol=1e-9, max_iter=3, engine="local", shared_weights=True)
    with pytest.warns(ConvergenceWarning, match="3 rounds"):
        model.fit(X, labels)
    a = np.zeros((3, N))
    a[:, model.support_] = model.dual_coef_
    primal, dual = values(a, model.kernel_weights_, model.intercept_, 4 / 3, 2.0)
    assert not model.converged_ and model.primal_objective_ == pytest.approx(primal, rel=1e-6)
    assert (
        model.dual_objective_ == pytest.approx(dual, rel=1e-6)
        and dual <= joint_optimum(4 / 3, 2.0) + 1e-6 <= primal + 2e-6
    )


def test_continuing_from_the_last_fit():
    X, labels, _ = data()
    model = MKLClassifier(kernels=BANK, C=2.0, tol=1e-4, engine="local", shared_weights=True, warm_start=True)
    rounds = model.fit(X, labels).n_iter_
    again = model.fit(X, labels)
    assert again.n_iter_ <= rounds and again.duality_gap_ <= 1e-4
    assert model.set_params(C=4.0).fit(X, labels).dual_objective_ == pytest.approx(
        joint_optimum(4 / 3, 4.0), rel=2e-4
    )
