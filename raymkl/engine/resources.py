"""CPUs and memory that this process may really use: a container or a Ray worker is seldom given the whole
machine.

Limits come from control groups (cgroups, version 2 and version 1), which nest: on the way from the process's
own group to the root every group may set one, and all of them hold. `root` is where /proc and /sys are looked
for; tests give a tree of their own.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path("/")
# Version 1 says "no limit" with the largest multiple of a page that fits 63 bits; nobody has an exbibyte.
NO_LIMIT = 2**60
USUAL_MOUNT = "/sys/fs/cgroup"


def usable_cpus(root: Path = ROOT) -> int:
    """Threads that are worth starting: CPUs that this process may run on, within the quotas of its groups and
    what Ray has assigned.
    """
    cpus, assigned = container_cpus(root), assigned_cpus()
    # Rounded down: nothing holds these threads back, and the other part of the CPU is somebody else's.
    return cpus if assigned is None else max(1, min(cpus, int(assigned)))


def container_cpus(root: Path = ROOT) -> int:
    """CPUs that this process may run on, within the quotas of its groups."""
    quota = _smallest_quota(root)
    # Rounded up: the kernel holds the last thread back, and nobody else loses by it.
    return max(1, _cpus_to_run_on() if quota is None else min(_cpus_to_run_on(), math.ceil(quota)))


def shared_cpus(reports: Sequence[tuple[str, int, int]], root: Path = ROOT) -> int:
    """Threads for a coordinator: the CPUs of the shards on its node, which rest while it works, and its
    own.
    """
    own = assigned_cpus() or 0.0
    there = sum(cpus for node, cpus, _ in reports if node == this_node())
    return max(1, min(container_cpus(root), int(own + there))) if reports else usable_cpus(root)


def free_memory(root: Path = ROOT) -> int:
    """Bytes that this process may still take: the least of what the machine has and of what is left of the
    limits of its groups.
    """
    left = [_free_on_machine(root)]
    for version, folder in _groups("memory", root):
        limit = _memory_limit(folder, version)
        if limit is not None:
            left.append(limit - _memory_in_use(folder, version))
    return max(0, min(left))


def assigned_cpus() -> float | None:
    """CPUs that Ray has assigned to this task or actor.

    None elsewhere, and for those that asked for none: nobody counted on them.
    """
    ray = sys.modules.get("ray")  # where nobody has loaded it, this is no worker of it
    if ray is None or not getattr(ray, "is_initialized", bool)():
        return None
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return None
    return cpus_among(context.get_assigned_resources())


def cpus_among(assigned: dict[str, float]) -> float | None:
    """CPUs among the resources that Ray says it has assigned.

    In a placement group they have the group's name and, beside it, that of the bundle: CPU_group_0_1f...,
    CPU_group_1f...
    """
    names = [name for name in assigned if name == "CPU" or name.startswith("CPU_group_")]
    return max((float(assigned[name]) for name in names), default=0.0) or None


def this_node() -> str:
    """Name of what shares its memory with this process: Ray's node, else the machine."""
    ray = sys.modules.get("ray")
    if ray is not None and getattr(ray, "is_initialized", bool)():
        return str(ray.get_runtime_context().get_node_id())
    return platform.node()


def memory_shares(reports: Sequence[tuple[str, int, int]]) -> list[int]:
    """Free bytes per shard: those of its node divided by the shards there.

    reports : `Shard.resources()` of every shard.
    """
    shards = Counter(node for node, _, _ in reports)
    # Shards of one node look one after another; the least that one of them saw holds for all.
    least = {node: min(free for where, _, free in reports if where == node) for node in shards}
    return [least[node] // shards[node] for node, _, _ in reports]


# -- the machine -----------------------------------------------------------------------------------


def _cpus_to_run_on() -> int:
    """By the scheduler, which knows of taskset and of cpusets of containers."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_on_machine(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# -- control groups --------------------------------------------------------------------------------


def _groups(controller: str, root: Path) -> Iterator[tuple[int, Path]]:
    """(version, folder) of all groups whose limits hold for this process: its own and those above, as far as
    they are visible.
    """
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, own = line.rstrip("\n").split(":", 2)
        version = 2 if (number, controllers) == ("0", "") else 1
        if version == 1 and controller not in controllers.split(","):
            continue
        top, mount = _mounted(controller, version, root)
        # A container may see its own group as the root of the mount, while /proc still names it from the
        # machine's root.
        parts = PurePosixPath(own).parts[1:]
        above = PurePosixPath(top).parts[1:]
        inside = parts[len(above) :] if parts[: len(above)] == above else ()
        if ".." in inside:  # the process is outside of what is mounted here
            inside = ()
        for depth in range(len(inside), -1, -1):
            yield version, mount.joinpath(*inside[:depth])


def _mounted(controller: str, version: int, root: Path) -> tuple[str, Path]:
    """Which group the mount of a controller shows at its top, and where it is mounted."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(), "", "", ""][:3]
        if (version == 2 and kind == "cgroup2") or (
            version == 1 and kind == "cgroup" and controller in options.split(",")
        ):
            top, place = before.split()[3:5]
            return top, root / place.lstrip("/")
    place = USUAL_MOUNT if version == 2 else f"{USUAL_MOUNT}/{controller}"
    return "/", root / place.lstrip("/")


@cache
def _smallest_quota(root: Path) -> float | None:
    """CPUs by the quotas of all groups.

    Read once: they stay as they are, and small predictions ask again and again.
    """
    quotas = [_quota(folder, version) for version, folder in _groups("cpu", root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path, version: int) -> float | None:
    """CPUs that a group may use, None where there is no limit."""
    if version == 2:
        words = "".join(_lines(folder / "cpu.max")).split()
        quota, period = (words[0], words[1]) if len(words) == 2 else ("max", "")
        return None if quota == "max" else int(quota) / int(period)
    limit, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return None if limit is None or limit <= 0 or not period else limit / period


def _memory_limit(folder: Path, version: int) -> int | None:
    """Bytes that a group may use.

    Beyond `memory.high` it is not killed, but slowed down so much that it comes to the same.
    """
    names = ["memory.max", "memory.high"] if version == 2 else ["memory.limit_in_bytes"]
    limits = [
        limit
        for limit in (_number(folder / name) for name in names)
        if limit is not None and limit < NO_LIMIT
    ]
    return min(limits, default=None)


def _memory_in_use(folder: Path, version: int) -> int:
    """Bytes that a group uses and cannot give back at once: pages of files that nobody has read for a while
    are as good as free.
    """
    used = _number(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes")) or 0
    name = (
        "inactive_file" if version == 2 else "total_inactive_file"
    )  # with the groups below, as in the other numbers
    for line in _lines(folder / "memory.stat"):
        if line.startswith(f"{name} "):
            return max(used - int(line.split()[1]), 0)
    return used


def _lines(path: Path) -> list[str]:
    """Lines of a file of the kernel, none where there is no such file."""
    try:
        return path.read_text().splitlines(keepends=True)
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file of the kernel; None for "max" and where there is no such file."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.lstrip("-").isdigit() else None
