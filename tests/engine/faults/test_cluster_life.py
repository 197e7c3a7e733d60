"""Life on a cluster: processes that die or stop at a given evaluation of a kernel, lost nodes, and nothing
that stays behind.

Faults happen by schedule, never by timing: a kernel brings its own process down (see `faulty_kernel`).
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raymkl import MKLClassifier, Session
from raymkl.engine.faults.policy import ShardFailure
from raymkl.kernels import RBF
from tests.engine.faults.faulty_kernel import X, Y, faulty, model, params
from tests.processes import own_workers, wait_for
from tests.reference import apart

pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at titles of processes"),
]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Decision values of a run without faults."""
    return (
        model(faulty(tmp_path_factory.mktemp("calm"), 10**9), engine="local").fit(X, Y).decision_function(X)
    )


@pytest.fixture
def cluster(ray_cluster):
    """Whatever a test does, nothing of ours is left in the cluster."""
    assert_empty(ray_cluster)
    yield ray_cluster
    assert_empty(ray_cluster)


def assert_empty(ray):
    assert wait_for(lambda: not own_workers(), 30), own_workers()
    assert wait_for(lambda: ray.available_resources().get("CPU", 0.0) == 2.0, 30), ray.available_resources()
    assert wait_for(lambda: states(ray) <= {"REMOVED"}, 30), states(ray)


def states(ray):
    """States of all placement groups that there ever were."""
    return {group["state"] for group in ray.util.placement_group_table().values()}


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "times, what, who, more",
    [
        (1, "kill", "shard", {}),
        (2, "kill", "shard", {}),
        (1, "stop", "shard", {"timeout_s": 6.0}),
        (1, "kill", "coordinator", {}),
    ],
    ids=["a killed shard", "two killed shards", "a stopped shard", "a killed coordinator"],
)
def test_a_process_is_lost(cluster, tmp_path, calm, capfd, times, what, who, more):
    clf = model(faulty(tmp_path, 4, times, what, who), **more).set_params(verbose=1).fit(X, Y)
    assert len(os.listdir(tmp_path)) == times
    assert clf.shard_failures_ == times and clf.resumed_from_ is None
    assert clf.converged_ and apart(clf.decision_function(X), calm) < 0.05
    said = re.findall(r"\[raymkl\] (the coordinator|shard \d) lost \(.+\), replaced", capfd.readouterr().err)
    assert len(said) == times and all(name.startswith(who) or who in name for name in said)


def test_a_coordinator_that_goes_again_before_it_has_begun(cluster, tmp_path, calm, monkeypatch):
    """As on a node that is gone without Ray knowing it: the next two in its place die at their start, and all
    that is one event.
    """
    from raymkl.engine.pools import ray_session
    from raymkl.engine.pools.coordinator_actor import CoordinatorActor

    folder = str(tmp_path)

    class Unlucky(CoordinatorActor):
        def __init__(self, place):
            for name in ("first", "second", "third"):
                if not os.path.exists(f"{folder}/{name}"):
                    open(f"{folder}/{name}", "w").close()
                    if name != "first":
                        os._exit(1)
                    break
            super().__init__(place)

    unlucky = cluster.remote(concurrency_groups={"watch": 1}, max_concurrency=4, max_restarts=0)(Unlucky)
    monkeypatch.setattr(ray_session, "coordinator_class", lambda runs_at_once: unlucky)
    clf = model(faulty(tmp_path, 4, who="coordinator"), max_shard_failures=1).fit(X, Y)
    assert clf.shard_failures_ == 3 and clf.converged_ and apart(clf.decision_function(X), calm) < 0.05


def test_what_is_lost_before_the_first_round(cluster, tmp_path, calm):
    """A shard that goes while a session starts is a loss of its first fit; one that goes between two fits is
    a loss of neither.
    """
    calm_kernel = faulty(tmp_path, 10**9)
    with Session("ray", params()) as session:
        for losses in (1, 0):
            # Shard 0, then shard 1: that one is still the session's first.
            cluster.kill(session.actors().place.actors[1 - losses])
            clf = model(calm_kernel, engine=session).fit(X, Y)
            assert clf.shard_failures_ == losses and apart(clf.decision_function(X), calm) < 0.05


def test_a_slow_start_is_no_loss(cluster, tmp_path, monkeypatch):
    """A process that takes longer to start than a ping may take is waited for, and somebody can ask what for;
    only then it is lost.
    """
    from raymkl.engine.faults.policy import ShardsLost
    from raymkl.engine.pools import ray_pool
    from raymkl.engine.pools.actors import ShardActor
    from raymkl.engine.pools.ray_shards import Place, ShardActors, placed
    from tests.builders import problem_of

    started = str(tmp_path / "started")

    class Slow(ShardActor):
        def __init__(self):
            while not os.path.exists(started):
                time.sleep(0.02)
            super().__init__()

    actor = cluster.remote(concurrency_groups={"watch": 1}, num_cpus=0)(Slow).remote()
    where = params(num_shards=1, timeout_s=0.2)  # until it has started: a busy machine may answer later
    try:
        pool = ray_pool.RayPool(
            ShardActors(Place([actor], (None, False), where)),
            placed({None: X}, problem_of([RBF()], len(X)), 1),
            where,
        )
        with monkeypatch.context() as impatient:
            impatient.setattr(ray_pool, "START_SECONDS", 0.5)
            with pytest.raises(ShardsLost, match=r"did not start within 0\.5 seconds"):
                pool.load([0])
        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(pool.load, [0])
            assert wait_for(lambda: pool.waits_for is not None or loading.done(), 30)
            assert re.fullmatch(r"shard 0 to start, for \d+ s", pool.waits_for)
            pool.params = params(num_shards=1)
            Path(started).touch()
            loading.result(600)
        assert pool.waits_for is None and len(pool.call_all("resources")) == 1
    finally:
        Path(started).touch()
        cluster.kill(actor)


def test_more_failures_than_allowed(cluster, tmp_path):
    (tmp_path / "faults").mkdir()
    kernel = faulty(tmp_path / "faults", 3, times=50)
    where = {"max_shard_failures": 2, "checkpoint_dir": str(tmp_path / "runs"), "checkpoint_every_s": 1e-3}
    with pytest.raises(ShardFailure) as caught:
        model(kernel, **where).fit(X, Y)
    words = str(caught.value)
    assert re.search(
        r"lost .*shard \d \d times?.*, more than max_shard_failures=2 allows; the last cause: "
        r"Actor(Died|Unavailable)Error",  # the other one where Ray does not know yet that it died
        words,
    ), words
    assert re.search(rf"the last checkpoint is {tmp_path}/runs/raymkl-\d+\.checkpoint", words), words
    # What was reached is not lost.
    for number in range(50):
        (tmp_path / "faults" / f"struck-{number}").touch()
    clf = model(kernel, **where).fit(X, Y)
    assert clf.resumed_from_ >= 1 and clf.converged_ and os.listdir(tmp_path / "runs") == []


# -- leaving ---------------------------------------------------------------------------------------

DRIVER = """
import sys
import ray
from tests.engine.faults.faulty_kernel import X, Y, faulty, model

ray.init(sys.argv[1], log_to_driver=False)
model(faulty(sys.argv[2], 4, what="wait")).fit(X, Y)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_a_driver_that_ends_takes_all_along(cluster, tmp_path, sent):
    """The signal comes while a shard is in the middle of a round, and stays there."""
    address = cluster.get_runtime_context().gcs_address
    root = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, address, str(tmp_path)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert wait_for(lambda: (tmp_path / "ready").exists() or driver.poll() is not None, 120)
        assert driver.poll() is None, driver.stderr.read()
        assert len(own_workers()) == 3
        driver.send_signal(sent)
        _, err = driver.communicate(timeout=600)
    finally:
        driver.kill()
    assert driver.returncode != 0
    if sent == signal.SIGINT:
        assert "KeyboardInterrupt" in err
    assert_empty(cluster)


def test_an_error_leaves_nothing(cluster):
    def treacherous(A, B):
        raise ZeroDivisionError("in a kernel")

    from raymkl.kernels import Custom

    kernel = Custom(treacherous, diag_function=lambda A: (A * A).sum(axis=1))
    with pytest.raises(ZeroDivisionError, match="in a kernel"):
        model(kernel).fit(X, Y)


def store_bytes(address):
    """Bytes of the object store that are in use."""
    from ray._private.internal_api import memory_summary

    text = memory_summary(address, stats_only=True)
    return float(re.search(r"Plasma memory usage ([\d.]+) MiB", text).group(1)) * 2**20


def own_bytes():
    """Memory of this process alone; pages of the object store count as soon as they have been touched once."""
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\s+(\d+) kB", file.read()).group(1)) * 1024


def test_four_fits_in_a_row(cluster):
    """Each brings 10 MB of rows; if they stayed, it would be seen."""
    import numpy as np

    address = cluster.get_runtime_context().gcs_address
    wide = np.random.default_rng(0).normal(size=(100, 12_500))
    clf = MKLClassifier(
        kernels=[RBF(gamma=5e-5)],
        engine="ray",
        tol=1e-2,
        ray_params=params(num_shards=1, memory_per_shard=None),
    )
    clf.fit(wide, Y[:100])
    before_store, before_own = store_bytes(address), own_bytes()
    for _ in range(4):
        clf.fit(wide, Y[:100])
    assert wait_for(lambda: not own_workers(), 30)
    # Ray lets go of objects a moment after the last reference to them.
    assert wait_for(lambda: store_bytes(address) - before_store < 15 * 2**20, 20)
    assert own_bytes() - before_own < 25 * 2**20


# -- nodes -----------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_three_nodes_one_of_which_is_lost(tmp_path):
    """A head without CPUs and three nodes, in a process of its own (see `nodes_script`)."""
    root = str(Path(__file__).resolve().parents[3])
    script = [sys.executable, "-m", "tests.engine.faults.nodes_script", str(tmp_path)]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, textwrap.shorten(done.stdout, 2000) + done.stderr[-3000:]
    assert "all is well" in done.stdout.splitlines(), done.stdout  # Ray may have a last word
