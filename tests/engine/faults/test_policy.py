"""The failure policy: what a run survives and what it says when it does not, without a cluster."""

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.engine.faults.policy import (
    ONE_EVENT_SECONDS,
    START_SECONDS,
    FailurePolicy,
    LossEvent,
    ShardFailure,
    ShardsLost,
)

LOSSES = st.lists(
    st.dictionaries(st.integers(-1, 5), st.text(max_size=5), min_size=1, max_size=4), max_size=8
)


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
    words = (
        r"lost shard 0 2 times, shard 1 1 time, shard 2 1 time \(3 preemptions\), more than "
        r"max_preemptions=2 allows"
    )
    with pytest.raises(ShardFailure, match=words):
        policy.note({2: "gone"}, preempted=True)


def test_more_of_the_same_event():
    policy = FailurePolicy(1)
    policy.note({0: "gone"})
    policy.note({1: "gone as well"}, another=False)
    assert (policy.events, policy.total) == (1, 2)
    with pytest.raises(
        ShardFailure,
        match=r"lost shard 0 2 times, shard 1 1 time \(2 events\), more than max_shard_failures=1 allows",
    ):
        policy.note({0: "again"})


@pytest.mark.parametrize(
    "most, losses, words",
    [
        (
            0,
            [{2: "ActorDiedError"}],
            "lost shard 2 1 time, more than max_shard_failures=0 allows; the last cause: ActorDiedError",
        ),
        (
            2,
            [{1: "a"}, {1: "b"}, {1: "answered no ping"}],
            "lost shard 1 3 times, .*=2 allows; the last cause: answered no ping",
        ),
        (
            0,
            [{0: "x", 3: "the node died"}],
            r"lost shard 0 1 time, shard 3 1 time \(1 event\), .*the last cause: the node died",
        ),
        (
            1,
            [{-1: "silent"}, {-1: "WorkerCrashedError"}],
            "lost the coordinator 2 times, .*WorkerCrashedError",
        ),
        (
            2,
            [{4: "x"}, {-1: "y"}, {4: ""}],
            "lost the coordinator 1 time, shard 4 2 times, .*the last cause: unknown",
        ),
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


def gone(*shards, node=None, **more):
    return ShardsLost(dict.fromkeys(shards, "gone"), nodes=dict.fromkeys(shards, node), **more)


def test_what_one_event_is():
    """All that goes in one recovery, and what follows from the same node within a minute; a shard that goes
    again is another one.
    """
    event = LossEvent(since=0.0)
    assert not event.covers(gone(0, node="a"), 0.0)
    event.add(gone(0, node="a"))
    assert event.covers(gone(1), 1.0) and not event.covers(gone(0, 1), 1.0)
    event.until = 10.0
    neighbour = gone(1, node="a")
    assert event.covers(neighbour, 11.0) and not event.covers(neighbour, 11.0 + ONE_EVENT_SECONDS)
    assert not event.covers(gone(1), 11.0)  # nobody knows where it lived
    assert not event.covers(ShardsLost({1: "gone", 2: "gone"}, nodes={1: "a", 2: "b"}), 11.0)
    assert not event.covers(gone(0, node="a"), 11.0)


def test_what_is_lost_again_by_the_same_event():
    """Ray may start processes on a node that is gone before it knows of that: they never begin, or go with
    the node.
    """
    event = LossEvent(since=100.0)
    event.add(gone(-1, node="a"))
    never_began = gone(-1, unstarted=[-1])
    assert event.covers(never_began, 100.1) and event.covers(never_began, 99.0 + START_SECONDS)
    assert not event.covers(
        never_began, 100.0 + START_SECONDS
    )  # a run whose coordinator never comes up must end
    assert event.covers(gone(0, 1, unstarted=[0, 1]), 101.0)
    assert event.covers(gone(-1, node="a", dead=["a"]), 101.0)  # it had come up there, and the node is gone
    assert not event.covers(gone(-1, node="a", dead=["a"]), 101.0 + ONE_EVENT_SECONDS)
    assert not event.covers(gone(-1, node="a"), 101.0)  # the node is alive: that was another accident
    assert not event.covers(gone(-1, node="b", dead=["a", "b"]), 101.0)


def test_a_coordinator_that_never_comes_up_ends_the_run():
    """Lost with its node, and again and again before it has begun: one event, until the patience for a start
    is over.
    """
    policy = FailurePolicy(1)
    policy.lose(gone(-1, node="a"), 0.0)
    for now in range(1, 299, 7):
        policy.lose(gone(-1, unstarted=[-1]), float(now))
    assert policy.events == 1 and policy.total == 44
    with pytest.raises(
        ShardFailure,
        match=r"lost the coordinator 45 times \(2 events\), more than max_shard_failures=1 allows",
    ):
        policy.lose(gone(-1, unstarted=[-1]), START_SECONDS)


def test_a_coordinator_and_its_shards_go_with_their_node():
    """The shards are missed first, then the coordinator, then what was started in their place on the same
    node.
    """
    policy = FailurePolicy(1)
    policy.lose(gone(0, 1, node="a"), 0.0)
    policy.recovered(2.0)
    policy.lose(gone(-1, node="a", dead=["a"]), 3.0)
    policy.lose(gone(-1, unstarted=[-1]), 4.0)
    policy.lose(gone(0, 2, unstarted=[0, 2]), 6.0)
    assert policy.events == 1 and policy.total == 6
    policy.recovered(7.0)
    with pytest.raises(ShardFailure, match="2 events"):
        policy.lose(gone(2, node="b"), 8.0)


def test_what_was_lost_before_the_run_is_no_loss_of_it():
    policy = FailurePolicy(0)
    policy.forgive(gone(-1, unstarted=[-1]), 0.0)
    policy.lose(gone(-1, unstarted=[-1]), 5.0)
    assert policy.events == 0
    policy.recovered(6.0)
    with pytest.raises(ShardFailure):
        policy.lose(gone(-1), 7.0)
    fresh = FailurePolicy(0)
    fresh.recovered(1.0)
    with pytest.raises(ShardFailure):
        fresh.lose(gone(1, unstarted=[1]), 2.0)


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
    loss = pickle.loads(
        pickle.dumps(ShardsLost({2: "gone", 0: "silent"}, preempted=True, unstarted=[0], dead=["a"]))
    )
    assert loss.unstarted == {0} and loss.dead == {"a"}
    assert (
        loss.lost == {2: "gone", 0: "silent"}
        and loss.preempted
        and str(loss) == "shard 0: silent; shard 2: gone"
    )
    policy = pickle.loads(pickle.dumps(FailurePolicy(3, -1, Counter({1: 2}), events=2)))
    assert policy.total == 2 and policy.most == 3
    assert str(pickle.loads(pickle.dumps(ShardFailure("lost shard 1")))) == "lost shard 1"
