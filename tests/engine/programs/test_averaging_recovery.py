"""Dual averaging whose shards are lost by schedule: what was learned is what the undisturbed run learned."""

import numpy as np
import pytest

from raymkl import StochasticMKLClassifier
from raymkl.engine import run as train_module
from raymkl.engine.events import Outcome
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.programs import lost_margins
from raymkl.engine.rounds import shared
from raymkl.engine.rounds.caches import ColumnCache
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.kernels import Linear, rbf
from tests.engine.lossy_pool import Fault, LossyPool, travelled
from tests.reference import gram, noisy_problem

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SHARDS = 3
BANK = [*rbf([0.05, 0.5]), Linear()]
X, _ = noisy_problem(45, seed=5)
T, _ = noisy_problem(30, seed=6)
Y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])
SETTINGS = {
    "kernels": BANK,
    "C": 0.2,
    "max_iter": 3,
    "batch_size": 6,
    "tol": 1e-9,
    "random_state": 0,
    "engine": "local",
}
CASES = {
    "kernels": (StochasticMKLClassifier(**SETTINGS, beta=0.01), X, T),
    "spherical": (StochasticMKLClassifier(**SETTINGS, normalize="spherical"), X, T),
    "matrices": (
        StochasticMKLClassifier(**{**SETTINGS, "kernels": "precomputed"}),
        gram(BANK, X),
        gram(BANK, T, X),
    ),
    "landmarks": (StochasticMKLClassifier(**SETTINGS, n_landmarks=12, normalize="multiplicative"), X, T),
}


class Runs:
    """Fits over lossy pools. pool, policy : of the last one."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def fit(self, name, faults=()):
        """The decision values of new examples, and the gap."""
        model, data, new = CASES[name]

        def train_here(rows, problem, program, *_):
            program = travelled(program)
            self.pool, self.policy = LossyPool(rows, travelled(problem), SHARDS, faults), FailurePolicy(1000)
            self.pool.coordinator = coordinator = Coordinator(
                self.pool, problem, policy=self.policy, threads=1
            )
            coordinator.crew.load()
            for _ in coordinator.rounds(program):
                pass
            assert not any(shard.scratch for shard in self.pool.shards), "something was left with a shard"
            return Outcome(coordinator.outcome(program), coordinator.journal.history, self.policy.total)

        self.monkeypatch.setattr(train_module, "_train_here", train_here)
        model.fit(data, Y)
        return model.decision_function(new), model.duality_gap_


@pytest.mark.parametrize("name", CASES)
def test_lost_shards_come_back_to_where_the_others_are(name, monkeypatch):
    monkeypatch.setattr(lost_margins, "REBUILT_COLUMNS", 7)  # several portions
    runs = Runs(monkeypatch)
    f, gap = runs.fit(name)
    calls = runs.pool.seen["apply"]
    schedules = [
        [Fault("apply", number, (number % SHARDS,), bool(number % 2))] for number in range(1, calls + 1, 2)
    ]
    schedules.append([Fault("apply", calls // 2, (0, 1, 2), worked=True)])
    schedules.append(
        [Fault("apply", calls // 2 + more, (more % SHARDS,), worked=more % 2 == 0) for more in range(8)]
    )
    for faults in schedules:
        f_now, gap_now = runs.fit(name, faults)
        assert len(runs.pool.deaths) == runs.policy.total > 0, faults
        np.testing.assert_allclose(f_now, f, atol=1e-9, err_msg=str(faults))
        assert gap_now == pytest.approx(gap, abs=1e-9)


def test_a_cache_of_few_columns(monkeypatch):
    """Batches lose more margins than there is room for columns, and what a new shard has to catch up with
    drives out columns of others.
    """
    runs = Runs(monkeypatch)
    f, gap = runs.fit("kernels")
    monkeypatch.setattr(shared, "ColumnCache", lambda capacity, n: ColumnCache(min(capacity, 4), n))
    f_now, gap_now = runs.fit("kernels")
    np.testing.assert_allclose(f_now, f, atol=1e-9)
    assert gap_now == pytest.approx(gap, abs=1e-9)
    for number in range(2, runs.pool.seen["apply"] + 1, 3):
        for worked in (False, True):
            f_now, gap_now = runs.fit("kernels", [Fault("apply", number, (number % SHARDS,), worked)])
            assert len(runs.pool.deaths) == 1
            np.testing.assert_allclose(f_now, f, atol=1e-9, err_msg=f"{number} {worked}")
            assert gap_now == pytest.approx(gap, abs=1e-9)
