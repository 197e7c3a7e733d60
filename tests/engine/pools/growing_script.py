"""A cluster scaled to zero, with Ray's fake autoscaler: it grows for a fit, and what it cannot add is
refused.

python -m tests.engine.pools.growing_script FOLDER
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

# A cluster for a minute, of this machine alone; both sides must say the same, which older versions of Ray
# need not be told.
os.environ["RAY_AUTH_MODE"] = "disabled"

import ray

from raymkl import MKLClassifier, RayParams, kernels
from raymkl.engine.faults.policy import ShardFailure
from raymkl.engine.pools.growth import Growth, growth_of_cluster
from tests.processes import free_ports, listens, wait_for
from tests.reference import noisy_problem

LISTS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
)
LISTS += ("worker_start_ray_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter")
STORE = 100 * 2**20


def configuration(port):
    flags = dict.fromkeys(
        ("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check", "launch_multiple"), True
    )
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    worker = {
        "resources": {"CPU": 1, "object_store_memory": STORE},
        "node_config": {},
        "min_workers": 0,
        "max_workers": 2,
    }
    return {
        "cluster_name": "growing",
        "max_workers": 2,
        "provider": {"type": "fake_multinode", "gcs_address": f"127.0.0.1:{port}", **flags},
        "available_node_types": {"head": head, "worker": worker},
        "head_node_type": "head",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "file_mounts_sync_continuously": False,
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        **{name: [] for name in LISTS},
    }


def model(shards, wait):
    return MKLClassifier(
        kernels=kernels.rbf([0.1, 1.0]), engine="ray", ray_params=RayParams(num_shards=shards, timeout_s=wait)
    )


class Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


folder, (port,), said = Path(sys.argv[1]), free_ports(1), Heard()
logging.getLogger("raymkl").addHandler(said)
(folder / "scaling.json").write_text(json.dumps(configuration(port)))
command = [
    "ray",
    "start",
    "--head",
    f"--port={port}",
    "--num-cpus=0",
    f"--autoscaling-config={folder / 'scaling.json'}",
    "--block",
]
command += ["--include-dashboard=false", f"--object-store-memory={STORE}", "--node-ip-address=127.0.0.1"]
environment = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
head = subprocess.Popen(
    command, env=environment, start_new_session=True, **quiet
)  # a group of its own: see the end


def is_up():
    if not listens(port):  # Ray itself would try to connect for a while
        return False
    try:
        ray.init(f"127.0.0.1:{port}", log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ray.exceptions.RayError):
        time.sleep(0.5)
    return ray.is_initialized()


try:
    assert wait_for(lambda: head.poll() is not None or is_up(), 90) and head.poll() is None
    X, y = noisy_problem(200, seed=5)
    assert "CPU" not in ray.cluster_resources()
    # The autoscaler is a process that starts after the others, and says nothing until then.
    assert wait_for(lambda: growth_of_cluster(RayParams(), 2) == Growth(True), 60)
    clf = model(2, 600.0).fit(X, y)
    # On a busy machine the fake autoscaler starts nodes twice where one is slow, whatever its limits say.
    nodes = ray.cluster_resources()["CPU"]
    assert clf.converged_ and nodes >= 2.0, (clf.converged_, nodes)
    first = "2 shards of 1 CPU: the autoscaler is asked for nodes, waiting up to "
    assert said.lines[0].startswith(first) and "need 2 CPUs, the Ray cluster has 0" in said.lines[0], (
        said.lines
    )
    try:
        model(20, 3.0).fit(X, y)
    except ShardFailure as error:
        wanted = (
            "20 shards of 1 CPU need 20 CPUs, the Ray cluster has ",
            "did not come within 3 seconds (timeout_s)",
        )
        assert all(words in str(error) for words in wanted), error
    else:
        raise AssertionError("nothing was refused")
    assert wait_for(
        lambda: {group["state"] for group in ray.util.placement_group_table().values()} <= {"REMOVED"}, 30
    )
    print("all is well")
finally:
    ray.shutdown()
    head.terminate()
    with suppress(subprocess.TimeoutExpired):
        head.wait(60)
    with suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)  # the head leaves some processes of the nodes that it has added
