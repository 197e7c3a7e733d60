"""Only descendants of a test are seen, however deep they are, and nobody else's processes."""

import os
import subprocess
import sys

import pytest

from tests.processes import PROC, births, own_processes, own_workers, strike, wait_for

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="there is no /proc")

# A process with a title like a shard's; it ends with what it reads from.
NAMED = "import sys; sys.stdin.read()"
PARENT = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {NAMED!r}, 'ray::Shard.advance'], "
    "stdin=sys.stdin)"
)


def children(command):
    return subprocess.Popen([sys.executable, "-c", *command], stdin=subprocess.PIPE)


def test_descendants_are_found_and_struck():
    process = children([PARENT])
    try:
        assert wait_for(
            lambda: any("ray::Shard.advance" in line for line in own_processes(process.pid).values()), 30
        )
        inner = {pid for pid, line in own_processes(process.pid).items() if "ray::Shard.advance" in line}
        assert len(inner) == 1 and process.pid not in inner
        assert {*inner, process.pid} <= set(own_processes())
        assert os.getpid() not in own_processes() and os.getppid() not in own_processes()
        # A process that only has such a word among its arguments is no worker of Ray.
        assert not inner & set(own_workers())
        assert births([2**22 + 1]) == {}  # no process has this number
        strike(dict.fromkeys(inner, "another time"))  # others that had the same number
        assert inner <= set(own_processes())
        strike(births(inner))
        process.wait(300)
        assert wait_for(lambda: not inner & set(own_processes()), 10)
    finally:
        process.kill()
        process.wait(300)


def test_processes_beside_are_not_ours():
    first, second = children([NAMED]), children([NAMED])
    try:
        assert wait_for(lambda: {first.pid, second.pid} <= set(own_processes()), 30)
        assert second.pid not in own_processes(first.pid)
    finally:
        for process in (first, second):
            process.kill()
            process.wait(300)
