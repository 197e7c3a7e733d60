"""Places that come and go, by schedule: a run goes on with other shards, at most once a minute, and the model
is the same.
"""

import pickle
from copy import deepcopy
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.engine.faults.places import LOOK_EVERY_SECONDS, Lookout, Resplit
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.faults.recovery import state_of
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.engine.shard.shard import Shard
from raymkl.kernels import Laplacian, Linear, rbf
from tests.builders import head_of, problem_of
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import apart, gram, noisy_problem

BANK = [*rbf([0.05, 0.5]), Linear(), Laplacian(gamma=0.2)]
X, Y = noisy_problem(160, seed=33)
SECONDS_PER_ROUND = 25.0
many_rounds = pytest.mark.usefixtures("small_working_sets")


class Clock:
    """Time that passes when a round is over."""

    now = 0.0

    def __call__(self):
        return self.now


class Housed(LossyPool):
    """A pool with a schedule of places: from this second on, so many shards find one.

    crowded : shards that live with others.
    """

    def __init__(self, shards, clock, schedule, crowded=(), faults=()):
        super().__init__({None: X}, problem_of(BANK, len(X)), shards, faults)
        self.clock, self.schedule, self.crowded, self.moved = clock, schedule, list(crowded), []

    def places(self):
        return max((second, places) for second, places in self.schedule if second <= self.clock.now)[1]

    def may_move_out(self):
        return list(self.crowded) if self.places() >= len(self.ranges) else []

    def replace(self, shards):
        for s in set(shards) & set(self.crowded):  # planned: the old one is alive until now
            self.crowded.remove(s)
            self.moved.append((self.clock.now, s))
            self.alive[s], self.shards[s] = False, Shard()
        super().replace(shards)


def run(schedule, bounds=None, shards=2, crowded=(), faults=()):
    """Decision values, the numbers of shards (second, count) that the run had, and the last coordinator."""
    clock, state, counts = Clock(), None, [(0.0, shards)]
    heads = [head_of(Y, 1.0, tol=1e-6), head_of(-Y, 0.4, tol=1e-6, path=(0.5, 2.0))]
    while True:
        pool = Housed(counts[-1][1], clock, schedule, crowded, faults if state is None else ())
        pool.coordinator = coordinator = Coordinator(
            pool, deepcopy(pool.problem), policy=FailurePolicy(0 if not faults else 2), threads=1
        )
        lookout, own = Lookout(bounds, clock=clock), deepcopy(heads)
        try:
            coordinator.crew.load()
            for _ in coordinator.rounds(own, state):
                clock.now += SECONDS_PER_ROUND
                lookout.look(pool, coordinator.crew, len(pool.ranges))
        except Resplit as other:
            counts.append((clock.now, other.count))
            state = deepcopy(state_of(coordinator))
            continue
        results = coordinator.outcome(own)
        values = [
            np.einsum("ijm,m,j->i", gram(BANK, X), stages[-1].theta, stages[-1].a) for stages in results
        ]
        return values, counts, coordinator


@cache
def calm_values():
    return run([(0.0, 2)])[0]


def assert_same(values):
    assert all(apart(value, calm) < 1e-2 for value, calm in zip(values, calm_values(), strict=True))


@many_rounds
def test_a_run_grows_and_shrinks_with_its_cluster_at_most_once_a_minute():
    values, counts, _ = run([(0.0, 2), (30.0, 3), (40.0, 5), (160.0, 9), (260.0, 1)], bounds=(2, 6))
    assert [count for _, count in counts] == [2, 5, 6, 2]
    seconds = [second for second, _ in counts]
    assert all(later - earlier >= LOOK_EVERY_SECONDS for earlier, later in pairwise(seconds))
    assert_same(values)


@many_rounds
def test_a_fixed_number_stays():
    values, counts, coordinator = run([(0.0, 9)])
    assert counts == [(0.0, 2)] and coordinator.crew.pool.generation == 0
    assert_same(values)


@many_rounds
def test_shards_move_out_again_when_their_places_are_back():
    values, counts, coordinator = run([(0.0, 1), (100.0, 3)], shards=3, crowded=[0, 2])
    pool = coordinator.crew.pool
    assert (
        [s for _, s in pool.moved] == [0, 2]
        and pool.moved[0][0] >= 100.0
        and len({second for second, _ in pool.moved}) == 1
    )
    assert coordinator.crew.policy.total == 0  # nothing was lost
    assert coordinator.crew.policy.news == ["shards 0, 2 moved back to places of their own"]
    assert counts == [(0.0, 3)]
    assert_same(values)


@many_rounds
def test_a_shard_that_is_lost_while_it_moves():
    calm = run([(0.0, 2)], crowded=[1])[2].crew.pool.seen
    values, _, coordinator = run(
        [(0.0, 2)], crowded=[1], faults=[Fault("add_heads", calm["add_heads"], (1,))]
    )
    assert coordinator.crew.policy.failures == {1: 1} and len(coordinator.crew.pool.moved) == 1
    assert_same(values)


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)).map(sorted).map(tuple),
    st.integers(0, 20),
    st.integers(1, 9),
)
def test_another_number(bounds, places, count):
    wanted = Lookout(bounds).another_number(places, count)
    best = min(range(bounds[0], bounds[1] + 1), key=lambda shards: abs(shards - places))
    assert wanted == (None if best == count else best)
    assert Lookout().another_number(places, count) is None


def test_another_number_travels():
    assert pickle.loads(pickle.dumps(Resplit(3))).count == 3


@pytest.mark.parametrize("every", [1.0, 60.0])
def test_when_it_is_time(every):
    clock = Clock()
    lookout, seen = Lookout(every=every, clock=clock), []
    for clock.now in np.arange(0.0, 5 * every + 0.1, every / 4).tolist():
        if lookout.is_due():
            seen.append(clock.now)
    assert seen == [every * turn for turn in range(1, 6)]
