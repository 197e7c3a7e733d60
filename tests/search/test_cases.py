"""Cases over one set of blocks: any mask, targets, setting and part of the bank gives what a fit of its own
gives, in any batch.
"""

from copy import deepcopy

import numpy as np
import pytest

from raymkl import MKLClassifier, MKLRegressor, RayParams, kernels, norms
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.search import cases as cases_module
from raymkl.search.cases import Case, SharedRows, batch_sizes, solved, standing
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import noisy_problem

X, Y = noisy_problem(90, seed=3)
Y3 = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
BANK = [*kernels.rbf([0.05, 0.5]), kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0)]
TRAIN, TEST = np.arange(0, 70), np.arange(70, 90)


def model(cls=MKLClassifier, **more):
    return cls(**{"kernels": BANK, "engine": "local", "tol": 1e-7, **more})


def results(estimator, some, y=Y, each=1):
    return list(solved(SharedRows(estimator, X), some, len(some), each, "test"))


@pytest.mark.parametrize("keep", [[2], [0, 3], [0, 1, 2]])
@pytest.mark.parametrize(
    "setting",
    [
        *({"p": p} for p in (1.0, 1.1, 4 / 3, 2.0, 3.0)),
        {"theta_step": "cutting_plane", "p": 1.0},
        {"solver": "wrapper"},
        {"normalize": "multiplicative"},
        {"normalize": "trace"},
        {"normalize": "tail"},
        {"normalize": "spherical"},
        {"loss": "logistic"},
        {"norm": norms.LpNorm(1.5)},
    ],
    ids=str,
)
def test_a_head_that_leaves_kernels_out_is_that_of_a_smaller_bank(setting, keep):
    if setting.get("solver") == "wrapper" or "theta_step" in setting:
        setting = {**setting, "tol": 1e-5}
    entries = np.isin(np.arange(4), keep)
    (one,) = results(model(**setting), [Case(Y, TRAIN, TEST, (1.0,), entries=entries)])
    found = one.stages[0][0]
    wanted = model(**{**setting, "kernels": [BANK[m] for m in keep]}).fit(X[TRAIN], Y[TRAIN])
    loose = 1e-2 if setting.get("tol") else 1e-4
    np.testing.assert_allclose(found.theta[keep], wanted.kernel_weights_, atol=loose)
    assert not found.theta[~entries].any()
    assert found.certificate.gap <= setting.get("tol", 1e-7)
    assert found.certificate.primal == pytest.approx(
        wanted.primal_objective_, rel=10 * setting.get("tol", 1e-7)
    )
    np.testing.assert_allclose(found.f, wanted.decision_function(X[TEST]), atol=loose)


def test_an_unbounded_norm_without_some_kernels():
    entries = np.array([True, False, True, True])
    (one,) = results(model(p=np.inf), [Case(Y, TRAIN, TEST, (1.0,), entries=entries)])
    wanted = model(p=np.inf, kernels=[BANK[m] for m in (0, 2, 3)]).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(one.stages[0][0].f, wanted.decision_function(X[TEST]), atol=1e-3)


def test_masks_targets_settings_and_paths_at_once():
    random = np.random.default_rng(0)
    some = [
        Case(Y, TRAIN, TEST, (0.1, 3.0), {"p": 1.5}),
        Case(random.permutation(Y), np.sort(random.permutation(90)[:50]), TEST, (1.0,)),
        Case(Y, np.arange(20, 90), np.arange(20), (1.0,), {"p": 2.0}, np.array([True, True, False, True])),
    ]
    for one in results(model(normalize="multiplicative"), some):
        case = one.case
        bank = (
            BANK
            if case.entries is None
            else [kernel for kernel, keep in zip(BANK, case.entries, strict=True) if keep]
        )
        for stage, C in enumerate(case.path):
            own = model(normalize="multiplicative", C=C, kernels=bank, **case.setting).fit(
                X[case.train], case.y[case.train]
            )
            np.testing.assert_allclose(
                one.stages[stage][0].f, own.decision_function(X[case.watch]), atol=1e-4
            )
            predicted = one.scored_as(stage).predict(None)
            assert np.mean(predicted == own.predict(X[case.watch])) == 1.0


def test_several_classes_and_regression():
    (one,) = results(model(), [Case(Y3, TRAIN, TEST, (1.0,))], each=3)
    wanted = model().fit(X[TRAIN], Y3[TRAIN]).decision_function(X[TEST])
    np.testing.assert_allclose(np.stack([head.f for head in one.stages[0]], axis=1), wanted, atol=1e-4)
    values = X[:, 0] + 3.0
    (one,) = results(model(MKLRegressor), [Case(values, TRAIN, TEST, (1.0,))])
    np.testing.assert_allclose(
        one.scored_as().predict(None),
        model(MKLRegressor).fit(X[TRAIN], values[TRAIN]).predict(X[TEST]),
        atol=1e-4,
    )


def many(count, seed=1):
    random = np.random.default_rng(seed)
    return [
        Case(random.permutation(Y), np.sort(random.permutation(90)[:60]), TEST, (1.0,), mark=k)
        for k in range(count)
    ]


@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float32"}, {"normalize": "multiplicative", "dtype": "float32"}], ids=str
)
def test_no_result_depends_on_the_batches(monkeypatch, more):
    """To the last bit, where a working set holds all rows."""
    together = results(model(tol=1e-3, **more), many(11))
    monkeypatch.setattr(cases_module, "MOST_IN_BATCH", 4)
    shared = SharedRows(model(tol=1e-3, **more), X)
    assert (
        batch_sizes(shared, 11, 1) == [4, 4, 3]
        and batch_sizes(shared, 0, 1) == []
        and batch_sizes(shared, 3, 8) == [1, 1, 1]
    )
    apart = results(model(tol=1e-3, **more), many(11))
    for one, other in zip(together, apart, strict=True):
        assert one.case.mark == other.case.mark
        assert np.array_equal(one.stages[0][0].f, other.stages[0][0].f)
        assert np.array_equal(one.stages[0][0].a, other.stages[0][0].a)


def test_cases_are_made_when_their_batch_begins(monkeypatch):
    monkeypatch.setattr(cases_module, "MOST_IN_BATCH", 3)
    made = []

    def lazily():
        for case in many(9):
            made.append(case.mark)
            yield case

    for one in solved(SharedRows(model(tol=1e-2), X), lazily(), 9, 1, "test"):
        assert len(made) <= 3 * (one.case.mark // 3 + 1)


def test_rows_stand_while_several_runs_use_them():
    with standing(model(), X) as (estimator, rows):
        session = estimator.engine
        assert session.is_open
        found = list(solved(SharedRows(estimator, rows), many(3), 3, 1, "test"))
    assert not session.is_open
    for one, other in zip(found, results(model(), many(3)), strict=True):
        np.testing.assert_allclose(one.stages[0][0].f, other.stages[0][0].f, atol=1e-9)


@pytest.mark.parametrize(
    "faults",
    [[Fault("advance", 1, (1,))], [Fault("advance", 2, (0, 2), worked=True), Fault("apply", 1, (1,))]],
)
def test_shards_that_are_lost_by_schedule_change_no_study(faults):
    """Permuted targets, halves and smaller banks at once; the answers are those of the undisturbed run."""
    random = np.random.default_rng(4)
    some = [*many(3), Case(Y, TRAIN, TEST, (0.3, 2.0), entries=np.array([True, False, True, False]))]
    some += [Case(Y, np.flatnonzero(random.random(90) < 0.5), None, (1.0,)) for _ in range(2)]
    shared = SharedRows(model(normalize="multiplicative", dtype="float32"), X)
    heads = [head for case in some for head in shared.heads(case)[0]]
    problem, rows = shared.problem(heads)

    def outcome(faults):
        pool = LossyPool(rows, deepcopy(problem), 3, faults)
        pool.coordinator = coordinator = Coordinator(
            pool, deepcopy(problem), None, policy=FailurePolicy(100), threads=2
        )
        own = deepcopy(heads)
        coordinator.crew.load()
        for _ in coordinator.rounds(own):
            pass
        return coordinator.outcome(own), pool

    (calm, _), (stormy, pool) = outcome([]), outcome(faults)
    assert pool.deaths
    for one, other in zip(calm, stormy, strict=True):
        for stage, same in zip(one, other, strict=True):
            assert same.certificate.gap <= 1e-7
            np.testing.assert_allclose(same.theta, stage.theta, atol=2e-3)
            if stage.f is not None:
                np.testing.assert_allclose(same.f, stage.f, atol=2e-3)


def test_sizes_of_batches_are_those_of_the_rows_alone():
    shared = SharedRows(model(ray_params=RayParams(num_shards=1)), X)
    assert shared.most_heads == cases_module.MOST_IN_BATCH
    shared.n = 5_000
    assert 2 <= shared.most_heads < 32
