"""The failure policy: what a run survives and what it says when it does not, without a cluster."""

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.engine.faults.policy import FailurePolicy, ShardFailure, ShardsLost

LOSSES = st.lists(st.dictionaries(st.integers(-1, 5), st.text(max_size=5), min_size=1, max_size=4), max_size=8)


@given(st.integers(0, 10), LOSSES)
def test_a_run_goes_on_up_to_the_limit_and_not_beyond(most, losses):
    policy, count = FailurePolicy(most), 0
    for lost in losses:
        count += len(lost)
        if count > most:
            with pytest.raises(ShardFailure):
                policy.note(lost)
            break
        policy.note(lost)
    assert policy.total == count == len(policy.news)


@pytest.mark.parametrize(
    "most, losses, words",
    [
        (0, [{2: "ActorDiedError"}], "lost shard 2 1 time, more than max_shard_failures=0 allows; the last cause: ActorDiedError"),
        (2, [{1: "a"}, {1: "b"}, {1: "answered no ping"}], "lost shard 1 3 times, .*=2 allows; the last cause: answered no ping"),
        (1, [{0: "x", 3: "the node died"}], "lost shard 0 1 time, shard 3 1 time, .*the last cause: the node died"),
        (1, [{-1: "silent"}, {-1: "WorkerCrashedError"}], "lost the coordinator 2 times, .*WorkerCrashedError"),
        (2, [{4: "x"}, {-1: "y"}, {4: ""}], "lost the coordinator 1 time, shard 4 2 times, .*the last cause: unknown"),
    ],
)
def test_the_error_says_who_how_often_and_why(most, losses, words):
    policy = FailurePolicy(most)
    for lost in losses[:-1]:
        policy.note(lost)
    with pytest.raises(ShardFailure, match=words):
        policy.note(losses[-1])
    assert issubclass(ShardFailure, RuntimeError)


def test_failures_of_an_earlier_coordinator_count():
    policy = FailurePolicy(3, Counter({0: 2, -1: 1}))
    assert policy.total == 3
    with pytest.raises(ShardFailure, match="the coordinator 1 time, shard 0 2 times, shard 1 1 time"):
        policy.note({1: "again"})


def test_news_are_told_once():
    policy = FailurePolicy(5)
    policy.note({1: "ActorDiedError: it died", 0: ""})
    policy.note({-1: "silent"})
    assert policy.take_news() == [
        "shard 0 lost (unknown cause), replaced",
        "shard 1 lost (ActorDiedError: it died), replaced",
        "the coordinator lost (silent), replaced",
    ]
    assert policy.take_news() == [] and policy.total == 3


def test_losses_and_failures_cross_process_boundaries():
    loss = pickle.loads(pickle.dumps(ShardsLost({2: "gone", 0: "silent"})))
    assert loss.lost == {2: "gone", 0: "silent"} and str(loss) == "shard 0: silent; shard 2: gone"
    policy = pickle.loads(pickle.dumps(FailurePolicy(3, Counter({1: 2}))))
    assert policy.total == 2 and policy.most == 3
    assert str(pickle.loads(pickle.dumps(ShardFailure("lost shard 1")))) == "lost shard 1"
