"""Kernels that bring their own process down at a given evaluation, and what is seen of the processes of a Ray cluster."""

import os
import signal
import subprocess
import time

import ray

from raymkl.kernels import Custom


def faulty(folder, at, times=1, what="kill", who="shard"):
    """An inner-product kernel with a fault: the process that evaluates it for the `at`-th time is killed or stopped, `times` times in all.

    who : "shard" (an actor) or "coordinator" (a task). Files in `folder` count, so that a process in the place of a lost one knows of it.
    what : "kill", "stop", or "wait" until the file `go` is there (the file `ready` says that it waits).
    """
    folder = str(folder)

    def strike():
        for number in range(times):
            try:
                os.close(os.open(f"{folder}/struck-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if what == "wait":
                open(f"{folder}/ready", "w").close()
                deadline = time.monotonic() + 120
                while not os.path.exists(f"{folder}/go") and time.monotonic() < deadline:
                    time.sleep(0.02)
            else:
                os.kill(os.getpid(), signal.SIGKILL if what == "kill" else signal.SIGSTOP)
            return

    def product(A, B):
        if ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
            is_shard = ray.get_runtime_context().get_actor_id() is not None
            if is_shard == (who == "shard"):
                count = int(os.environ.get(folder, "0")) + 1
                os.environ[folder] = str(count)
                if count >= at:
                    strike()
        return A @ B.T

    return Custom(product, diag_function=lambda A: (A * A).sum(axis=1))


def workers():
    """Titles of the processes that hold a shard or a coordinator of the cluster that we are connected to, by process id."""
    nodes = [node["NodeID"] for node in ray.nodes()]
    lines = subprocess.run(["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split(None, 2) for line in lines]
    raylets = {row[0] for row in rows if any(f"--node_id={node} " in row[2] for node in nodes)}
    assert raylets
    return {int(row[0]): row[2] for row in rows if row[1] in raylets and ("Shard" in row[2] or "Coordinator" in row[2])}


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
