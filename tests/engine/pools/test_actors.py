"""The shard as an actor: shards of several runs in one process, each of which works on one call at a time."""

import subprocess
import sys
import threading

import numpy as np

from raymkl.engine.pools.actors import ShardActor
from tests.builders import MIXED_BANK as BANK
from tests.builders import problem_of
from tests.reference import noisy_problem

X, _ = noisy_problem(60, seed=11)


def loaded(*runs):
    actor = ShardActor()
    for run in runs:
        actor.load(run, {None: X}, 0, problem_of(BANK, len(X)))
    return actor


def test_threads_come_with_the_rows():
    actor = ShardActor()
    actor.load("one", {None: X}, 0, problem_of(BANK, len(X)), threads=3)
    assert actor.shards["one"].threads.threads == 3
    actor.end("one")
    assert not actor.shards


def in_order(actor, first, second, seconds):
    """What two calls, of these runs, leave behind when the first one waits for the second, at most so
    long.
    """
    begun, go_on, order = threading.Event(), threading.Event(), []

    def slow(shard):
        begun.set()
        go_on.wait(seconds)
        order.append("slow")

    def quick(shard):
        order.append("quick")
        go_on.set()

    workers = [
        threading.Thread(target=actor.call, args=(run, "apply", work))
        for run, work in ((first, slow), (second, quick))
    ]
    workers[0].start()
    assert begun.wait(300)
    workers[1].start()
    for worker in workers:
        worker.join(600)
    return order


def test_one_call_of_a_run_at_a_time():
    assert in_order(loaded("one", "two"), "one", "one", 0.5) == ["slow", "quick"]


def test_runs_do_not_wait_for_each_other():
    assert in_order(loaded("one", "two"), "one", "two", 300) == ["quick", "slow"]


def test_runs_know_nothing_of_each_other():
    actor = loaded("one", "two")
    assert actor.call("one", "apply", lambda shard: shard.scratch.setdefault("mine", 1)) == 1
    assert actor.call("two", "apply", lambda shard: dict(shard.scratch)) == {}
    actor.end("one")
    assert list(actor.shards) == ["two"]


def test_caches_over_rows_that_were_put_outlive_a_run():
    actor = loaded("one")
    actor.call("one", "moments")
    actor.call("one", "prepare", {})
    bases = [family.basis(100.0, False, np.float64) for family in actor.shards["one"].problem.families]
    assert actor.call("one", "take_bases", bases, 10)
    cache = actor.shards["one"].pairs.cache
    actor.call("one", "keep_caches", 7)
    actor.end("one")
    actor.load("two", {None: X}, 0, problem_of(BANK, len(X)))
    actor.call("two", "prepare", {})
    assert actor.call("two", "take_bases", bases, 10, 7) and actor.shards["two"].pairs.cache is cache
    assert not actor.call(
        "two", "take_bases", bases, 10, 8
    )  # unknown: empty ones, and the coordinator hears of it
    assert actor.shards["two"].pairs.cache is not cache
    actor.forget([7])
    actor.load("three", {None: X}, 0, problem_of(BANK, len(X)))
    actor.call("three", "prepare", {})
    assert not actor.call("three", "take_bases", bases, 10, 7)


def test_loading_the_actor_loads_what_a_shard_needs():
    code = (
        "import raymkl.engine.pools.actors, sys; print({'ray', 'sklearn', 'cvxpy', 'pandas'} & "
        "set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "set()", result.stderr
