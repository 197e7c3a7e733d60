"""Shards that are lost by schedule: the model is the one of the undisturbed run, whenever and however often
it happens.
"""

import re
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raymkl.engine.faults.policy import FailurePolicy, ShardFailure
from raymkl.engine.faults.recovery import restore, state_of
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.engine.rounds.journal import Journal
from raymkl.kernels import Laplacian, Linear, Polynomial, Precomputed, rbf
from raymkl.kernels.pairs.families import NO_GATE
from raymkl.optim.losses import EpsilonInsensitive, Hinge
from tests import builders
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import apart, dual_value, gram, noisy_problem

SHARDS = 3
BANK = [*rbf([0.05, 0.5]), Linear(), Polynomial(degree=2, coef0=1.0), Laplacian(gamma=0.2)]
X, Y = noisy_problem(48, seed=31)
X_MANY, Y_MANY = noisy_problem(135, seed=32)
GATES = np.random.default_rng(3).uniform(0.2, 1.5, size=(48, 2))


def head_of(y=Y, bounds=1.0, **more):
    return builders.head_of(y, bounds, **{"tol": 1e-6, **more})


def problem_of(n=48, bank=BANK, **more):
    return builders.problem_of(bank, n, **more)


def least_budget(problem, rows, heads):
    """Bytes per shard with which one round just fits: caches hold 64 columns, everything else is evicted and
    computed again.
    """
    with pytest.raises(ValueError, match="need at least") as caught:
        run(problem, rows, heads, budget=1)
    return int(re.search(r"at least (\d+) bytes", str(caught.value)).group(1))


def run(problem, rows, heads, faults=(), budget=None, most=1000, state=None):
    """Results by head and stage, the pool, and the coordinator."""
    pool = LossyPool(rows, deepcopy(problem), SHARDS, faults)
    pool.coordinator = coordinator = Coordinator(
        pool, deepcopy(problem), budget, policy=FailurePolicy(most), threads=2
    )
    heads = deepcopy(heads)
    coordinator.crew.load()
    for _ in coordinator.rounds(heads, state):
        pass
    return coordinator.outcome(heads), pool, coordinator


def classes(n):
    return [np.where(np.arange(n) % 3 == c, 1.0, -1.0) for c in range(3)]


# Heads that begin with more dual variables than a working set holds.
WARM = [
    head_of(Y_MANY, 1.3, tol=1e-5, start=(0.5 * Y_MANY, np.full(5, 0.3))),
    head_of(-Y_MANY, 0.5, tol=1e-5, start=(-np.linspace(0, 0.5, 135) * Y_MANY, np.full(5, 0.3))),
]
FOLD = np.where(np.arange(48) % 4 == 0, 0.0, 1.0)
PATH = (0.1, 1.0, 5.0)
GATED = [0, 0, NO_GATE, 1, 1]
CASES = {
    "one head": (problem_of(), X, [head_of()]),
    "regression": (problem_of(), X, [head_of(X[:, 0] + 0.1 * Y, 2.0, loss=EpsilonInsensitive(0.1))]),
    "p=1": (problem_of(), X, [head_of(p=1.0, tol=1e-4)]),
    "wrapper": (problem_of(), X, [head_of(solver="wrapper", tol=1e-4)]),
    "cutting planes": (problem_of(), X, [head_of(theta_step="cutting_plane", tol=1e-4)]),
    "classes": (problem_of(), X, [head_of(y) for y in classes(48)]),
    "path": (
        problem_of(),
        X,
        [head_of(bounds=FOLD, path=PATH, watch=np.flatnonzero(FOLD == 0)), head_of(p=2.0, path=PATH[::-1])],
    ),
    "shared weights": (
        problem_of(),
        X,
        [head_of(y, group=0, tol=1e-4, path=(1.0, 3.0)) for y in classes(48)],
    ),
    "multiplicative": (
        problem_of(),
        X,
        [head_of(normalize="multiplicative"), head_of(bounds=FOLD, normalize="multiplicative")],
    ),
    "gates": (problem_of(gate_of_entry=GATED, gates=GATES), X, [head_of(), head_of(-Y, 0.3)]),
    "precomputed": (
        problem_of(bank=[Precomputed(index=m) for m in range(5)], depths={None: 5}),
        gram(BANK, X),
        [head_of(), head_of(np.roll(Y, 5), path=(0.5, 2.0))],
    ),
    "proofs": (
        problem_of(dtype=np.float32),
        X,
        [head_of(tol=1e-4), head_of(-Y, 0.3, tol=1e-4, path=(0.5, 2.0))],
    ),
    "proofs, gates": (
        problem_of(gate_of_entry=GATED, gates=GATES, dtype=np.float32, light=True),
        X,
        [head_of(tol=1e-4)],
    ),
    "light": (problem_of(light=True), X, [head_of(), head_of(p=2.0, path=PATH)]),
    "evictions": (problem_of(135), X_MANY, [head_of(Y_MANY, tol=1e-5)]),
    "evictions, normalised": (
        problem_of(135),
        X_MANY,
        [head_of(Y_MANY, tol=1e-5, normalize="multiplicative", path=(0.3, 1.0))],
    ),
    "warm starts in portions": (problem_of(135), X_MANY, WARM),
}


class Calm:
    """Undisturbed runs, each made once: what it learned, and how often every method was called."""

    known: dict = {}

    @classmethod
    def of(cls, name):
        if name not in cls.known:
            problem, rows, heads = CASES[name]
            rows = {None: rows}
            budget = least_budget(problem, rows, heads) if problem.n_rows > 100 else None
            results, pool, coordinator = run(problem, rows, heads, budget=budget)
            if budget is not None:
                assert coordinator.shared.plan.capacity < problem.n_rows
            cls.known[name] = (problem, rows, heads, budget, results, pool.seen)
        return cls.known[name]


def decision(problem, rows, result):
    """f of all rows, straight from the formula."""
    bank = [
        kernel
        for _, kernel in sorted(
            (e, k) for f in problem.families for e, k in zip(f.members, f.kernels, strict=True)
        )
    ]
    K = rows[None] if rows[None].ndim == 3 else gram(bank, rows[None])
    gate = {e: f.gate for f in problem.families for e in f.members}
    parts = []
    for e in range(problem.n_entries):
        g = np.ones(problem.n_rows) if gate[e] == NO_GATE else problem.gates[:, gate[e]]
        parts.append(g[:, None] * K[..., e] * g)
    return np.stack(parts, axis=-1) @ (result.theta * result.scale) @ result.a + result.intercept


def assert_same_model(name, results):
    problem, rows, heads, _, calm, _ = Calm.of(name)
    assert (
        [len(stages) for stages in results]
        == [len(stages) for stages in calm]
        == [len(head.path) for head in heads]
    )
    for head, stages, expected in zip(heads, results, calm, strict=True):
        for result, other in zip(stages, expected, strict=True):
            assert result.converged and result.certificate.gap <= head.tol
            assert result.certificate.dual == pytest.approx(other.certificate.dual, rel=4 * head.tol)
            assert result.certificate.primal == pytest.approx(other.certificate.primal, rel=4 * head.tol)
            # The last digits of a vary along flat directions of the dual; by how much follows from the gap.
            assert (
                apart(decision(problem, rows, result), decision(problem, rows, other))
                < 3 * np.sqrt(head.tol) + 1e-3
            )
            if head.watch is not None:
                np.testing.assert_allclose(
                    result.f, decision(problem, rows, result)[head.watch], atol=3 * np.sqrt(head.tol)
                )


def disturbed(name, faults):
    """Run with faults; the model must be the same and every loss counted once."""
    problem, rows, heads, budget, _, _ = Calm.of(name)
    results, pool, coordinator = run(problem, rows, heads, faults, budget)
    assert_same_model(name, results)
    assert coordinator.crew.policy.total == len(pool.deaths)
    for s in range(SHARDS):
        assert coordinator.crew.policy.failures[s] == sum(shard == s for _, shard in pool.deaths)
    return pool


@pytest.mark.parametrize("name", CASES)
def test_the_undisturbed_run_is_right(name):
    problem, rows, heads, _, results, _ = Calm.of(name)
    if (
        problem.gates is None
        and heads[0].normalize is None
        and isinstance(heads[0].loss, Hinge)
        and heads[0].group is None
    ):
        K = rows[None] if rows[None].ndim == 3 else gram(BANK, rows[None])
        for head, stages in zip(heads, results, strict=True):
            for result in stages:
                error = 1e-7 if problem.dtype == np.float64 else 0.1 * head.tol
                assert dual_value(result.a, head.targets, K, head.norm.p) == pytest.approx(
                    result.certificate.dual, rel=error
                )
    assert_same_model(name, results)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_shard_lost_at_the_first_and_the_last_call_of_every_method(name):
    """At the first call before the work, at the last one after it; in rounds both."""
    for method, count in Calm.of(name)[5].items():
        # Only the owner of a row is asked for it.
        shards = (0, 1, 2) if method in ("fetch", "stack_hessian", "stack_change") else (count % SHARDS,)
        moments = [(1, False), (count, True)] + ([(1, True), (count, False)] if method == "advance" else [])
        for number, worked in moments:
            assert disturbed(name, [Fault(method, number, shards, worked)]).deaths, (method, number, worked)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["one head", "classes", "path", "precomputed", "proofs", "light", "warm starts in portions"]
)
def test_a_shard_lost_in_any_round(name):
    rounds = Calm.of(name)[5]["advance"]
    for number in np.unique(np.linspace(1, rounds, 6).astype(int)).tolist():
        pool = disturbed(name, [Fault("advance", number, (number % SHARDS,), bool(number % 2))])
        assert pool.deaths == [("advance", number % SHARDS)]


@pytest.mark.parametrize("name", ["classes", "shared weights", "gates", "evictions"])
def test_two_and_all_shards_at_once(name):
    middle = max(Calm.of(name)[5]["advance"] // 2, 1)
    assert len(disturbed(name, [Fault("advance", middle, (0, 2))]).deaths) == 2
    assert len(disturbed(name, [Fault("advance", middle, (0, 1, 2), worked=True)]).deaths) == 3


@pytest.mark.parametrize(
    "method", ["load", "prepare", "take_bases", "add_heads", "resume", "rebuild", "enter"]
)
@pytest.mark.parametrize("again", [(1,), (0, 1), (0, 2), (2,)], ids=str)
def test_lost_again_while_it_is_brought_up_to_date(method, again):
    """The new shard itself, and others that nobody thought of, in every step of a recovery."""
    before = Calm.of("path")[5][method]
    pool = disturbed("path", [Fault("advance", 3, (1,)), Fault(method, before + 1, again, worked=True)])
    # Calls that bring one shard up to date go to that shard alone.
    assert pool.deaths[0] == ("advance", 1)
    assert len(pool.deaths) == (2 if 1 in again else 1)


def test_another_shard_lost_while_rows_are_fetched_for_a_recovery():
    """A resumed run has dual variables of rows that it has never seen: a recovery asks their owners, which
    may be lost as well.
    """
    problem, rows, heads, _, _, _ = Calm.of("classes")
    coordinator = Coordinator(
        LossyPool(rows, deepcopy(problem), SHARDS), deepcopy(problem), policy=FailurePolicy(0)
    )
    coordinator.crew.pool.coordinator = coordinator
    coordinator.crew.load()
    rounds = coordinator.rounds(deepcopy(heads))
    next(rounds)
    state = deepcopy(state_of(coordinator))
    rounds.close()
    assert all(np.any(part["a"]) for part in state["heads"].values()) and len(state["heads"]) >= 2
    faults = [
        Fault("diagonals", 1, (0,)),
        Fault("advance", 1, (0, 1)),
        Fault("fetch", 1, (1, 2)),
        Fault("fetch", 2, (2,)),
    ]
    results, pool, coordinator = run(problem, rows, heads, faults, state=state)
    assert_same_model("classes", results)
    assert coordinator.crew.policy.total == len(pool.deaths) >= 3


def test_the_same_shard_again_and_again():
    rounds = Calm.of("classes")[5]["advance"]
    pool = disturbed(
        "classes", [Fault("advance", number, (1,), bool(number % 2)) for number in range(1, 2 * rounds, 2)]
    )
    assert len(pool.deaths) >= rounds / 2


METHODS = (
    "moments",
    "prepare",
    "take_bases",
    "diagonals",
    "load",
    "add_heads",
    "advance",
    "f_of",
    "apply",
    "fetch",
)
METHODS += ("stack_hessian", "stack_change", "enter", "resume", "rebuild")
FAULTS = st.builds(
    Fault,
    st.one_of(st.just("advance"), st.sampled_from(METHODS)),
    st.integers(1, 14),
    st.sets(st.integers(0, SHARDS - 1), min_size=1).map(lambda s: tuple(sorted(s))),
    st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(CASES)), st.lists(FAULTS, min_size=1, max_size=6))
def test_any_schedule(name, faults):
    disturbed(name, faults)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2])
def test_more_losses_than_allowed(most):
    problem, rows, heads, _, _, _ = Calm.of("one head")
    faults = [Fault("advance", number, (1,)) for number in (1, 2, 3, 4, 5)]
    with pytest.raises(
        ShardFailure,
        match=rf"lost shard 1 {most + 1} time.*max_shard_failures={most}.*by schedule in advance",
    ):
        run(problem, rows, heads, faults, most=most)
    run(problem, rows, heads, faults[:most], most=most)


def test_losses_during_a_recovery_count():
    problem, rows, heads, _, _, _ = Calm.of("one head")
    faults = [Fault("advance", 2, (0,)), *(Fault("load", number, (0,)) for number in range(2, 10))]
    with pytest.raises(ShardFailure, match="lost shard 0 4 times"):
        run(problem, rows, heads, faults, most=3)


def test_shards_that_are_put_on_a_node_that_is_gone_are_one_event():
    """Ray does not know yet: what replaces them goes again and again while it is being started."""
    problem, rows, heads, _, _, _ = Calm.of("one head")
    faults = [
        Fault("advance", 2, (0, 1)),
        *(Fault("load", number, (0, 1), began=False) for number in range(2, 9)),
    ]
    _, pool, coordinator = run(problem, rows, heads, faults, most=1)
    assert coordinator.crew.policy.events == 1 and coordinator.crew.policy.total == len(pool.deaths) == 16


def test_shards_lost_together_are_one_event():
    """As on a node: all at once; those in their place one after the other while they are brought up to
    date.
    """
    problem, rows, heads, _, _, seen = Calm.of("one head")
    faults = [Fault("advance", 2, (0, 1))]
    _, pool, coordinator = run(problem, rows, heads, faults, most=1)
    assert coordinator.crew.policy.events == 1 and coordinator.crew.policy.total == len(pool.deaths) == 2
    faults += [
        Fault("take_bases", seen["take_bases"] + 1, (0,)),
        Fault("take_bases", seen["take_bases"] + 3, (1,)),
    ]
    _, pool, coordinator = run(problem, rows, heads, faults, most=2)
    assert coordinator.crew.policy.events == 2 and coordinator.crew.policy.total == len(pool.deaths) == 4


def test_lost_shards_are_counted_once_each():
    """Two at once, and one of them again while they are replaced: three losses."""
    problem, rows, heads, _, _, seen = Calm.of("one head")
    faults = [Fault("advance", 2, (0, 1)), Fault("take_bases", seen["take_bases"] + 1, (0,))]
    _, pool, coordinator = run(problem, rows, heads, faults, most=3)
    assert coordinator.crew.policy.total == len(pool.deaths) == 3


# -- state of a run --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "one head",
        "classes",
        "path",
        "shared weights",
        "multiplicative",
        "precomputed",
        "evictions, normalised",
    ],
)
def test_a_run_goes_on_from_any_round(name):
    problem, rows, heads, budget, _, _ = Calm.of(name)
    states = []
    pool = LossyPool(rows, deepcopy(problem), SHARDS)
    pool.coordinator = coordinator = Coordinator(pool, deepcopy(problem), budget, policy=FailurePolicy(0))
    coordinator.crew.load()
    for _ in coordinator.rounds(deepcopy(heads)):
        states.append(deepcopy(state_of(coordinator)))
    for at in np.unique(np.linspace(0, len(states) - 1, 4).astype(int)).tolist():
        results, _, resumed = run(
            problem, rows, heads, [Fault("advance", 2, (at % SHARDS,))], budget, state=deepcopy(states[at])
        )
        assert_same_model(name, results)
        assert resumed.journal.history[: len(states[at]["history"])] == states[at]["history"]
        assert resumed.journal.seconds > states[at]["seconds"]


def test_a_state_between_two_stages_has_no_stage_twice():
    """Ctrl-C may come after the results of a stage were kept and before the next one began."""
    problem, rows, heads, _, _, _ = Calm.of("path")
    pool = LossyPool(rows, deepcopy(problem), SHARDS)
    pool.coordinator = coordinator = Coordinator(pool, deepcopy(problem), policy=FailurePolicy(0))
    coordinator.crew.load()
    rounds = coordinator.rounds(deepcopy(heads))
    while not coordinator.journal.results.get(0):
        next(rounds)
    state = deepcopy(state_of(coordinator))
    rounds.close()
    state["heads"]["0"]["stage"] -= 1
    results, _, _ = run(problem, rows, heads, state=state)
    assert_same_model("path", results)


def test_an_error_of_a_shard_is_no_loss():
    """What a kernel raises ends the run; no shard is replaced for it."""

    class Treacherous(LossyPool):
        def call_some(self, calls):
            if calls[0][1] == "advance":
                raise ZeroDivisionError("in a kernel")
            return super().call_some(calls)

    problem = problem_of()
    pool = Treacherous({None: X}, problem, SHARDS)
    pool.coordinator = coordinator = Coordinator(pool, problem, policy=FailurePolicy(5))
    coordinator.crew.load()
    with pytest.raises(ZeroDivisionError, match="in a kernel"):
        coordinator.run([head_of()])
    assert pool.generation == 0 and coordinator.crew.policy.total == 0


def test_restore_names_what_is_finished():
    problem, rows, heads, _, _, _ = Calm.of("classes")
    _, _, coordinator = run(problem, rows, heads)
    state = state_of(coordinator)
    fresh = Journal()
    restore(fresh, deepcopy(heads), state)
    assert fresh.finished == {0, 1, 2} and fresh.round == coordinator.journal.round
