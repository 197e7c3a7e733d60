"""Clusters that may grow: what is refused at once and what is waited for, and a cluster with Ray's fake
autoscaler.
"""

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from raymkl.engine.pools.growth import Growth, is_managed, refusal, rooms_at_most


def kind(name, most, **resources):
    return SimpleNamespace(name=name, max_count=most, resources=resources)


def test_what_a_cluster_may_become():
    groups = [kind("head", 1, CPU=0), kind("worker", 3, CPU=4, memory=100)]
    assert rooms_at_most(groups, [], 10) == [{"CPU": 0}, *[{"CPU": 4, "memory": 100}] * 3]
    assert (
        rooms_at_most([kind("worker", -1, CPU=2)], [], 5) == [{"CPU": 2}] * 5
    )  # any number: no more than shards matter
    # Nodes that are there are among those that may be, unless somebody started them by hand.
    alive = [("worker", {"CPU": 4.0}), ("", {"CPU": 16.0})]
    assert rooms_at_most([kind("worker", 2, CPU=4)], alive, 10) == [{"CPU": 16.0}, {"CPU": 4}, {"CPU": 4}]


@pytest.mark.parametrize(
    "shards, demand, most, words",
    [
        (12, {"CPU": 1}, 3, None),
        (
            13,
            {"CPU": 1},
            3,
            "13 shards of 1 CPU need 13 CPUs, the Ray cluster, with all nodes that its autoscaler may add, "
            "has 12",
        ),
        (
            1,
            {"CPU": 5},
            3,
            "1 shard of 5 CPU need 5 CPUs, the Ray cluster, with all nodes that its autoscaler may add, has "
            "4",
        ),
        (10**6, {"CPU": 4}, -1, None),
        (
            2,
            {"CPU": 1, "memory": 101},
            3,
            "is more than any node of the Ray cluster, with all nodes that its autoscaler may add, has",
        ),
        (1, {"CPU": 1, "disk": 1}, 3, "need 1 'disk'"),
    ],
)
def test_what_could_never_be_met_is_refused_at_once(shards, demand, most, words):
    growth = Growth(True, rooms_at_most([kind("worker", most, CPU=4, memory=100)], [], shards))
    found = refusal(shards, demand, growth)
    assert found is None if words is None else words in found


def test_nobody_says_what_may_come():
    assert refusal(10**9, {"CPU": 1}, Growth(True)) is None


@pytest.mark.parametrize(
    "report, managed",
    [
        (None, False),
        ({}, False),
        ({"active_nodes": {"node_" + "ab" * 28: 2}}, False),  # Ray's autoscaler that only looks on
        ({"active_nodes": {"": 1}}, False),
        ({"active_nodes": {"ray.head.default": 1}, "pending_nodes": [], "pending_launches": {}}, True),
        ({"active_nodes": {}, "pending_launches": {"worker": 2}}, True),
        ({"active_nodes": ["", "headgroup"]}, True),
        ({"active_nodes": None, "pending_nodes": [["10.0.0.1", "worker", "setting-up"]]}, True),
    ],
)
def test_whether_there_is_an_autoscaler(report, managed):
    assert is_managed(report) == managed


@pytest.mark.cluster
def test_a_cluster_scaled_to_zero(tmp_path):
    """In a process of its own (see `growing_script`)."""
    root = str(Path(__file__).resolve().parents[3])
    script = [sys.executable, "-m", "tests.engine.pools.growing_script", str(tmp_path)]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, textwrap.shorten(done.stdout, 2000) + done.stderr[-3000:]
    assert "all is well" in done.stdout.splitlines(), done.stdout  # Ray may have a last word
