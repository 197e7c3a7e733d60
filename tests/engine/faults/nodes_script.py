"""A cluster of several nodes: shards spread over them, a node is lost in a given round and another one joins,
requests that do not fit.

python -m tests.engine.faults.nodes_script FOLDER
"""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

from raymkl import RayParams
from raymkl.engine.pools import ray_session
from raymkl.engine.pools.coordinator_actor import CoordinatorActor
from raymkl.engine.pools.placement import most_shards
from tests.engine.faults.faulty_kernel import LEAST_MEMORY, X, Y, faulty, model
from tests.processes import own_workers, wait_for
from tests.reference import apart

STORE = 100 * 2**20


def refused(words, **more):
    try:
        model(faulty(folder, 10**9), **{"num_shards": 1, **more}).fit(X, Y)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was refused; expected: {words}")


def nodes_with_shards():
    actors = [actor for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"]
    return {actor["Address"]["NodeID"] for actor in actors if actor["ActorClassName"] == "ShardActor"}


def preempt(node):
    """Take a node back as a cloud does: Ray is told why, then the node goes."""
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    gcs = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    accepted, why = gcs.drain_node(node.node_id, reason, "taken back", 1)
    assert accepted, why
    cluster.remove_node(node, allow_graceful=True)


class Heard(logging.Handler):
    """What the package says while it trains."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("raymkl").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


@contextmanager
def looking_often():
    """Coordinators look for places twice a second instead of once a minute."""

    class Quick(CoordinatorActor):
        look_every = 0.5

    usual, quick = (
        ray_session.coordinator_class,
        ray.remote(concurrency_groups={"watch": 1}, max_concurrency=4, max_restarts=0)(Quick),
    )
    ray_session.coordinator_class = lambda runs_at_once: quick
    try:
        yield
    finally:
        ray_session.coordinator_class = usual


folder = Path(sys.argv[1])
# Ray asks nodes more often than it does by itself, and so knows in two seconds, not fifteen, of one that does
# not even refuse to answer.
SOON = {"health_check_period_ms": 400}
HEAD = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "_system_config": SOON}
cluster = Cluster(initialize_head=True, head_node_args=HEAD)
nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)
try:
    assert most_shards(RayParams()) == 2
    want = model(faulty(folder, 10**9), engine="local").fit(X, Y).decision_function(X)

    (folder / "growing").mkdir()
    said = Heard()
    with ThreadPoolExecutor(1) as pool, looking_often():  # a node joins, and the run goes on with more shards
        kernel = faulty(folder / "growing", 4, what="wait")
        fit = pool.submit(model(kernel, num_shards=(2, 3), timeout_s=120.0, max_shard_failures=0).fit, X, Y)
        assert wait_for(lambda: (folder / "growing/ready").exists() or fit.done(), 120)
        nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE))
        cluster.wait_for_nodes()
        (folder / "growing/go").touch()
        clf = fit.result()
    # A slow machine may have something to say about the place that shards wait for.
    heard = [line for line in said.lines if "wait for a place" not in line]
    assert heard == ["going on with 3 shards instead of 2: so many find a place"], said.lines
    assert clf.shard_failures_ == 0 and apart(clf.decision_function(X), want) < 0.05
    assert most_shards(RayParams()) == 3  # a cluster that has grown is used by the next fit

    refused("50 shards of 1 CPU need 50 CPUs, the Ray cluster has 3", num_shards=50)
    refused("and the largest node of the Ray cluster has 1", cpus_per_shard=2, memory_per_shard=None)
    refused("is more than any node of the Ray cluster has", memory_per_shard=10**15)
    assert wait_for(lambda: not own_workers(), 30), own_workers()

    kernel = faulty(folder, 4, what="wait")
    with ThreadPoolExecutor(1) as pool:  # nodes come and go in the main thread only
        # Two shards on every node: a node is one event, or not even that where the coordinator goes along.
        six = {"num_shards": 6, "cpus_per_shard": 0.5, "memory_per_shard": LEAST_MEMORY // 3}
        fit = pool.submit(model(kernel, **six, timeout_s=120.0, max_shard_failures=1).fit, X, Y)
        assert wait_for(lambda: (folder / "ready").exists() or fit.done(), 120)
        assert len(nodes_with_shards()) == 3, fit.exception() if fit.done() else nodes_with_shards()
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
        nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE))
        (folder / "go").touch()
        clf = fit.result()
    assert clf.shard_failures_ >= 1
    assert apart(clf.decision_function(X), want) < 0.05

    (folder / "preempted").mkdir()
    kernel = faulty(folder / "preempted", 4, what="wait")
    with ThreadPoolExecutor(1) as pool:  # a node that is taken back is no failure
        fit = pool.submit(model(kernel, num_shards=3, timeout_s=120.0, max_shard_failures=0).fit, X, Y)
        assert wait_for(lambda: (folder / "preempted/ready").exists() or fit.done(), 120)
        preempt(nodes.pop(0))
        nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE))
        (folder / "preempted/go").touch()
        clf = fit.result()
    assert clf.shard_failures_ >= 1
    assert apart(clf.decision_function(X), want) < 0.05
    assert wait_for(lambda: not own_workers(), 30), own_workers()
    assert wait_for(lambda: ray.available_resources().get("CPU", 0.0) == 3.0, 30), ray.available_resources()
    assert wait_for(
        lambda: {group["state"] for group in ray.util.placement_group_table().values()} <= {"REMOVED"}, 30
    )
    print("all is well")
finally:
    ray.shutdown()
    cluster.shutdown()
