"""Kernels that bring their own process down at a given evaluation, and models with them whose rounds are
many.
"""

import os
import signal
import time

import ray

from raymkl import MKLClassifier, RayParams
from raymkl.kernels import RBF, Custom
from tests.reference import noisy_problem

X, Y = noisy_problem(300, seed=61)
# Caches of 64 columns: there are many rounds, and every one of them evaluates kernels.
LEAST_MEMORY = 440_000


def params(**more):
    return RayParams(
        **{"num_shards": 2, "cpus_per_shard": 1, "memory_per_shard": LEAST_MEMORY, "timeout_s": 60.0, **more}
    )


def model(kernel, engine="ray", **more):
    return MKLClassifier(
        kernels=[kernel, RBF(gamma=0.3)], tol=1e-4, C=2.0, engine=engine, ray_params=params(**more)
    )


def faulty(folder, at, times=1, what="kill", who="shard"):
    """An inner-product kernel with a fault: the process that evaluates it for the `at`-th time is killed or
    stopped, `times` times in all.

    who : "shard" or "coordinator". Files in `folder` count, so that a process in the place of a lost one
    knows of it.
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
            with open("/proc/self/cmdline") as title:  # Ray writes the name of the actor there
                is_shard = "Shard" in title.read()
            if is_shard == (who == "shard"):
                count = int(os.environ.get(folder, "0")) + 1
                os.environ[folder] = str(count)
                if count >= at:
                    strike()
        return A @ B.T

    return Custom(product, diag_function=lambda A: (A * A).sum(axis=1))
