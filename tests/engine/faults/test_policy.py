"""The failure policy: what a run survives and what it says when it does not, without a cluster."""

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.engine.faults.policy import ONE_EVENT_SECONDS, FailurePolicy, LossEvent, ShardFailure, ShardsLost

LOSSES = st.lists(st.dictionaries(st.integers(-1, 5), st.text(max_size=5), min_size=1, max_size=4), max_size=8)


@given(st.integers(0, 10), LOSSES)
def test_a_run_goes_on_up_to_the_limit_and_not_beyond(most, losses):
    """A loss of several shards is one event; all of them are counted and told."""
    policy = FailurePolicy(most)
    for number, lost in enumerate(losses, 1):
        if number > most:
            with pytest.raises(ShardFailure):
                policy.note(lost)
            losses = losses[:number]
            break
        policy.note(lost)
    assert policy.events == len(losses) and policy.total == sum(map(len, losses)) == len(policy.news)


@given(LOSSES)
def test_any_number(losses):
    policy = FailurePolicy(-1)
    for lost in losses:
        policy.note(lost)
        policy.note(lost, preempted=True)
    assert policy.events == policy.preemptions == len(losses)


def test_preempted_nodes_are_counted_apart():
    policy = FailurePolicy(0, 2)
    policy.note({0: "ActorDiedError", 1: "silent"}, preempted=True)
    policy.note({0: "ActorDiedError"}, preempted=True)
    assert (policy.events, policy.preemptions, policy.total) == (0, 2, 3)
    assert policy.news[0] == "shard 0 lost (its node was preempted: ActorDiedError), replaced"
    words = r"lost shard 0 2 times, shard 1 1 time, shard 2 1 time \(3 preemptions\), more than max_preemptions=2 allows"
    with pytest.raises(ShardFailure, match=words):
        policy.note({2: "gone"}, preempted=True)


def test_more_of_the_same_event():
    policy = FailurePolicy(1)
    policy.note({0: "gone"})
    policy.note({1: "gone as well"}, another=False)
    assert (policy.events, policy.total) == (1, 2)
    with pytest.raises(ShardFailure, match=r"lost shard 0 2 times, shard 1 1 time \(2 events\), more than max_shard_failures=1 allows"):
        policy.note({0: "again"})


@pytest.mark.parametrize(
    "most, losses, words",
    [
        (0, [{2: "ActorDiedError"}], "lost shard 2 1 time, more than max_shard_failures=0 allows; the last cause: ActorDiedError"),
        (2, [{1: "a"}, {1: "b"}, {1: "answered no ping"}], "lost shard 1 3 times, .*=2 allows; the last cause: answered no ping"),
        (0, [{0: "x", 3: "the node died"}], r"lost shard 0 1 time, shard 3 1 time \(1 event\), .*the last cause: the node died"),
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
    policy = FailurePolicy(3, failures=Counter({0: 2, -1: 1}), events=3)
    assert policy.total == 3
    with pytest.raises(ShardFailure, match="the coordinator 1 time, shard 0 2 times, shard 1 1 time"):
        policy.note({1: "again"})


def test_what_one_event_is():
    """All that goes in one recovery, and what follows from the same node within a minute; a shard that goes again is another one."""
    event = LossEvent()
    first = ShardsLost({0: "gone"}, nodes={0: "a"})
    assert not event.covers(first, 0.0)
    event.add(first)
    assert event.covers(ShardsLost({1: "gone"}), None) and not event.covers(ShardsLost({0: "again", 1: "gone"}), None)
    event.until = 10.0
    neighbour = ShardsLost({1: "gone"}, nodes={1: "a"})
    assert event.covers(neighbour, 11.0) and not event.covers(neighbour, 11.0 + ONE_EVENT_SECONDS)
    assert not event.covers(ShardsLost({1: "gone"}), 11.0)  # nobody knows where it lived
    assert not event.covers(ShardsLost({1: "gone", 2: "gone"}, nodes={1: "a", 2: "b"}), 11.0)
    assert not event.covers(first, 11.0)


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
    loss = pickle.loads(pickle.dumps(ShardsLost({2: "gone", 0: "silent"}, preempted=True)))
    assert loss.lost == {2: "gone", 0: "silent"} and loss.preempted and str(loss) == "shard 0: silent; shard 2: gone"
    policy = pickle.loads(pickle.dumps(FailurePolicy(3, -1, Counter({1: 2}), events=2)))
    assert policy.total == 2 and policy.most == 3
    assert str(pickle.loads(pickle.dumps(ShardFailure("lost shard 1")))) == "lost shard 1"
