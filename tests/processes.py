"""Processes that a test has started.

Only these are looked up, counted or struck: the next Ray on the machine is somebody else's.
"""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def wait_for(condition, seconds):
    """Whether a condition comes true.

    seconds : what an idle machine may need; a busy one is given ten times as long.
    """
    deadline = time.monotonic() + 10 * seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def free_ports(count):
    """Ports of this machine that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def listens(port):
    """Whether somebody listens at a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True


def _all():
    """(process, parent, command line) of every process that can be read; where there is no /proc (macOS),
    `ps` is asked.
    """
    if not PROC.is_dir():
        listed = subprocess.run(
            ["ps", "-Aww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        ).stdout
        for line in listed.splitlines():
            pid, parent, words = (*line.split(None, 2), "")[:3]
            yield int(pid), int(parent), words
        return
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                # The name, in brackets, may hold anything; after it come the state and the parent.
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                yield (
                    int(entry.name),
                    int(parent),
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip(),
                )


def own_processes(root=None):
    """Command lines of all descendants of a process (None: of this one) by process id."""
    below, words = {}, {}
    for pid, parent, line in _all():
        below.setdefault(parent, []).append(pid)
        words[pid] = line
    found, todo = {}, list(below.get(os.getpid() if root is None else root, ()))
    while todo:
        pid = todo.pop()
        found[pid] = words[pid]
        todo += below.get(pid, ())
    return found


def own_workers():
    """Titles of Ray's processes below this one that hold a shard or a coordinator of ours, by process id."""
    ours = ("ray::ShardActor", "ray::CoordinatorActor")
    return {pid: line for pid, line in own_processes().items() if line.startswith(ours)}


def births(pids):
    """When processes were started, by which the next one of that number is told from them.

    Those that have ended are left out.
    """
    found = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    return found


def strike(born, how=signal.SIGKILL):
    """Send a signal to the processes of which `births` was taken, as far as they are still there."""
    for pid, when in births(born).items():
        if when == born[pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
