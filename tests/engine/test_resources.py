"""What a process may really use: limits of nested control groups of both kinds, CPUs that Ray assigned, and
shares per node.
"""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from raymkl.engine import resources
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.problem import Problem
from raymkl.engine.resources import (
    cpus_among,
    free_memory,
    memory_shares,
    shared_cpus,
    this_node,
    usable_cpus,
)
from raymkl.engine.shard.shard import Shard
from raymkl.kernels import RBF
from raymkl.kernels.pairs.families import group

GB = 2**30
UNLIMITED = 9223372036854771712  # as version 1 writes it
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime master:14 - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that writes files of a machine with 100 GB of free memory; the process may run on 64 of its
    CPUs.
    """
    monkeypatch.setattr(resources, "_cpus_to_run_on", lambda: 64)

    def write(files):
        for name, text in {
            "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {100 * GB // 1024} kB\n",
            **files,
        }.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text))
        return tmp_path

    return write


def v2(files, own="/", mounts=V2_MOUNT):
    return {"proc/self/cgroup": f"0::{own}\n", "proc/self/mountinfo": mounts} | {
        f"sys/fs/cgroup/{name}": text for name, text in files.items()
    }


def v1(files, own="/", top="/"):
    return {
        "proc/self/cgroup": f"9:name=systemd:/\n4:memory:{own}\n2:cpu,cpuacct:{own}\n0::/\n",
        "proc/self/mountinfo": V1_MOUNTS.format(top=top),
    } | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}


def limits_of(root):
    return usable_cpus(root), free_memory(root) / GB


def test_without_groups_the_machine_is_ours(machine):
    assert limits_of(machine({})) == (64, 100)
    unlimited = {
        "a/cpu.max": "max 100000\n",
        "a/memory.max": "max\n",
        "a/memory.high": "max\n",
        "a/memory.current": 5 * GB,
    }
    assert limits_of(machine(v2(unlimited, "/a"))) == (64, 100)


def test_no_limits_in_version_1(machine):
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": UNLIMITED,
        "memory/memory.usage_in_bytes": 60 * GB,
    }
    assert limits_of(machine(v1(files))) == (64, 100)


def test_a_container_of_version_2(machine):
    """Its own group is the root of what it sees. Files that were not read for a while are as good as free."""
    files = {
        "cpu.max": "200000 100000\n",
        "memory.max": 8 * GB,
        "memory.current": 5 * GB,
        "memory.stat": f"anon 1\nfile 7\ninactive_anon 99\ninactive_file {2 * GB}\nactive_file 5\n",
    }
    assert limits_of(machine(v2(files))) == (2, 5)


def test_a_container_of_version_1(machine):
    """Without a name space for groups: /proc names the group from the machine's root, the mount shows the
    group alone.
    """
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": 150000,
        "cpu,cpuacct/cpu.cfs_period_us": 50000,
        "memory/memory.limit_in_bytes": 4 * GB,
        "memory/memory.usage_in_bytes": 3 * GB,
        "memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GB}\n",
    }
    assert limits_of(machine(v1(files, "/docker/1f2e", top="/docker/1f2e"))) == (3, 2)


@pytest.mark.parametrize("place", ["pod", "pod/own", "pod/own/task"])
def test_the_smallest_limit_on_the_way_counts(machine, place):
    files = {}
    for name in ("pod", "pod/own", "pod/own/task"):
        smallest = name == place
        files |= {f"{name}/cpu.max": "300000 100000" if smallest else "1600000 100000"}
        files |= {f"{name}/memory.max": (10 if smallest else 50) * GB, f"{name}/memory.current": GB}
    assert limits_of(machine(v2(files, "/pod/own/task"))) == (3, 9)


def test_what_others_of_a_group_above_use_is_not_free(machine):
    files = {
        "pod/memory.max": 20 * GB,
        "pod/memory.current": 19 * GB,
        "pod/a/memory.max": 10 * GB,
        "pod/a/memory.current": GB,
    }
    assert limits_of(machine(v2(files, "/pod/a"))) == (64, 1)


def test_groups_beside_our_own_do_not_count(machine):
    files = {
        "other/cpu.max": "100000 100000",
        "other/memory.max": GB,
        "own/memory.max": 30 * GB,
        "own/memory.current": 0,
    }
    assert limits_of(machine(v2(files, "/own"))) == (64, 30)


def test_both_versions_on_one_machine(machine):
    """As systemd calls it, hybrid: limits are found wherever the controllers are."""
    old = v1({"memory/a/memory.limit_in_bytes": 6 * GB, "memory/a/memory.usage_in_bytes": 0}, "/a")
    mounts = old["proc/self/mountinfo"] + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    files = old | {"proc/self/mountinfo": mounts, "sys/fs/cgroup/unified/cpu.max": "400000 100000"}
    assert limits_of(machine(files)) == (4, 6)


def test_where_mounts_cannot_be_read_the_usual_place_is_looked_at(machine):
    assert limits_of(machine(v2({"cpu.max": "100000 100000", "memory.max": GB}, mounts=""))) == (1, 1)


def test_a_group_outside_of_what_is_mounted(machine):
    """/proc then names it by a way up."""
    assert limits_of(machine(v2({"cpu.max": "500000 100000"}, own="/../../other"))) == (5, 100)


def test_a_group_that_is_throttled_is_full(machine):
    files = {"memory.max": 50 * GB, "memory.high": 20 * GB, "memory.current": 15 * GB}
    assert limits_of(machine(v2(files))) == (64, 5)


def test_a_limit_that_was_lowered_below_what_is_used(machine):
    assert limits_of(machine(v2({"memory.max": GB, "memory.current": 2 * GB}))) == (64, 0)


@pytest.mark.parametrize("quota, cpus", [(10000, 1), (100000, 1), (150000, 2), (6400000, 64), (9900000, 64)])
def test_parts_of_cpus(machine, quota, cpus):
    assert limits_of(machine(v2({"cpu.max": f"{quota} 100000"}))) == (cpus, 100)


def test_this_process():
    cpus, free = usable_cpus(), free_memory()
    assert 1 <= cpus <= 4096 and 2**26 < free < 2**50


# -- Ray -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assigned, cpus",
    [
        ({}, None),
        ({"memory": 5.0}, None),
        ({"CPU": 2.0, "GPU": 1.0}, 2.0),
        ({"CPU_group_0_1f": 3.0, "CPU_group_1f": 3.0, "bundle_group_0_1f": 0.001}, 3.0),
    ],
)
def test_cpus_among_assigned_resources(assigned, cpus):
    assert cpus_among(assigned) == cpus


@pytest.mark.parametrize(
    "mode, assigned, cpus", [(1, {"CPU": 3.0}, 3), (1, {"CPU": 0.5}, 1), (1, {}, 64), (0, None, 64)]
)
def test_threads_follow_assigned_cpus(machine, monkeypatch, mode, assigned, cpus):
    """In workers (mode 1); drivers cannot be asked, and one that asked for no CPUs has those of its
    container.
    """

    def asked():
        assert assigned is not None
        return assigned

    context = SimpleNamespace(worker=SimpleNamespace(mode=mode), get_assigned_resources=asked)
    fake = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context, WORKER_MODE=1)
    monkeypatch.setitem(sys.modules, "ray", fake)
    assert usable_cpus(machine({})) == cpus


def test_in_workers_of_ray(ray_cluster):
    def look():
        return usable_cpus(), this_node()

    cpus = usable_cpus()
    for asked in (0.5, 1, 2):
        seen, node = ray_cluster.get(ray_cluster.remote(num_cpus=asked)(look).remote())
        assert seen == min(max(1, math.floor(asked)), cpus)
        assert node == this_node()  # there is one node


# -- shards ----------------------------------------------------------------------------------------


def test_a_shard_says_what_it_may_use():
    node, cpus, free = Shard().resources()
    assert node == this_node() and cpus == usable_cpus()
    assert free == pytest.approx(free_memory(), rel=0.5)


def test_shards_of_one_process_share_its_memory():
    rows = {None: np.zeros((30, 2))}
    pool = LocalPool(rows, Problem([None], group([RBF()]), 30, 1), 3)
    try:
        reports = pool.call_all("resources")
    finally:
        pool.close()
    assert memory_shares(reports) == [min(free for _, _, free in reports) // 3] * 3


def test_shares_are_per_node():
    reports = [("a", 8, 30), ("b", 2, 9), ("a", 8, 33), ("a", 8, 36), ("c", 1, 5)]
    assert memory_shares(reports) == [10, 9, 10, 10, 5]
    assert memory_shares([]) == []


@pytest.mark.parametrize("own, expected", [(None, 5), (1.0, 6), (0.5, 5)])
def test_a_coordinator_works_while_the_shards_of_its_node_rest(machine, monkeypatch, own, expected):
    monkeypatch.setattr(resources, "assigned_cpus", lambda: own)
    here = this_node()
    reports = [(here, 2, 1), ("another", 8, 1), (here, 3, 1)]
    assert shared_cpus(reports, machine({})) == expected
    assert shared_cpus([("another", 8, 1)], machine({})) == 1
    assert shared_cpus([], machine({})) == (64 if own is None else 1)


def test_a_coordinator_takes_no_more_than_its_container_has(machine):
    assert shared_cpus([(this_node(), 8, 1)], machine(v2({"cpu.max": "400000 100000"}))) == 4
