"""Shared by all tests: in which process a test runs, one small Ray cluster per session, and who is marked
how.

    pytest                               all, in two processes
    pytest tests/files/test_io.py              one file, or one test, in this process
    pytest -n 0                          all in this process
    pytest -m "not ray and not slow"     the quick part, without any Ray
    pytest -m "not cluster"              all that needs one node at most
    pytest --hypothesis-profile=explore  properties with examples that nobody has seen before

Tests with a fixture that starts Ray are marked `ray`; those that start it in a process of their own say so
with a mark. `cluster` (several nodes, or a cluster started as users start one) goes with `ray`. `slow` is
said where it is measured: several seconds, alone or together.

Two processes: one begins with all that waits for Ray, the other with what computes. Both have a temporary
directory of Ray and a BLAS thread of their own, so that neither finds or slows down what the other one has.
Loops that one has compiled are the other's as well: to compile them takes a good part of the time.
"""

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example of a property may have to compile a loop, and the machine may be busy, which is no reason
# to call it slow. Examples are the same in every run until the test changes: who changes something else is
# not stopped by an example that nobody had met.
settings.register_profile(
    "raymkl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("raymkl"), derandomize=False)
settings.load_profile("raymkl")

PROCESSES = 2
RAY_DIRECTORY = pytest.StashKey()
# Fixtures that start Ray, and those of them that start more than a node in this process.
RAY_FIXTURES = {"ray_cluster", "ray_session", "job_server"}
CLUSTER_FIXTURES = {"job_server"}
# Files that take or compile most begin first, so that both processes end at about the same time and what is
# compiled is there for both; all others follow in the order of their names.
LONGEST = (
    "tests/models/test_common_checks.py",
    "tests/engine/programs/test_clustered.py",
    "tests/examples/test_examples.py",
    "tests/pages/test_typing.py",
    "tests/examples/test_benchmarks.py",
    "tests/models/classifier/test_joint.py",
    "tests/models/mixtures/test_clustered.py",
    "tests/models/localized/test_sequences.py",
    "tests/models/test_losses.py",
    "tests/models/test_norms.py",
)


# -- processes -------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """For folders; files and single tests are quicker without a second process."""
    names = [argument.split("::")[0] for argument in config.args]
    # Both processes put sets in the same order, and with them the cases of a test.
    os.environ.setdefault("PYTHONHASHSEED", str(random.randrange(2**32)))
    return PROCESSES if any(Path(config.invocation_params.dir, name).is_dir() for name in names) else 0


def pytest_configure(config):
    """What a process has for itself.

    Before any test is loaded, and so before Ray, BLAS and the compiler look at it.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None and getattr(config.option, "numprocesses", None):
        return  # this one only hands out tests
    above = os.environ.get("RAY_TMPDIR", "/tmp")
    os.makedirs(above, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="rk", dir=above)  # short: Ray puts sockets there
    os.environ["RAY_TMPDIR"] = config.stash[RAY_DIRECTORY] = folder
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(
        "RAY_AUTH_MODE", "disabled"
    )  # else Ray leaves a token in the home of whoever runs the tests
    os.environ.setdefault(
        "RAY_worker_niceness", "0"
    )  # by itself Ray lets its processes wait for all others, and tests wait for them
    if worker is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(config.rootpath / ".pytest_cache" / f"loops-{worker}")
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ[f"{library}_NUM_THREADS"] = "1"


def pytest_unconfigure(config):
    if RAY_DIRECTORY in config.stash:
        shutil.rmtree(config.stash[RAY_DIRECTORY], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at groups
def pytest_collection_modifyitems(items):
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & CLUSTER_FIXTURES:
            item.add_marker(pytest.mark.cluster)
        if fixtures & RAY_FIXTURES or item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.ray)
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.xdist_group("ray"))
    items.sort(key=place_of)


def place_of(item):
    """Ray comes first, since it takes longest; tests that count its processes come before those that leave
    some standing.
    """
    file = item.nodeid.split("::")[0]
    ray, standing = (
        item.get_closest_marker("ray") is not None,
        "ray_session" in getattr(item, "fixturenames", ()),
    )
    return not ray, standing, LONGEST.index(file) if file in LONGEST else len(LONGEST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What runs in one process, one after the other: all that is marked `ray`, and otherwise the tests of a
    file, which share fixtures.
    """
    from xdist.scheduler import LoadGroupScheduling

    class OfFiles(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return super()._split_scope(nodeid).split("::")[0]  # a group, or the file of a test that has none

    return OfFiles(config, log)


# -- fixtures --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def ray_cluster():
    """Two CPUs on this machine; nothing is left when the session ends."""
    ray = pytest.importorskip("ray")
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20
    )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def ray_session(ray_cluster):
    """Two shards that stand until the end, for tests of what is computed: such a fit takes no longer than one
    in this process.
    """
    from raymkl import RayParams, Session

    with Session("ray", RayParams(num_shards=2, cpus_per_shard=0.25, timeout_s=60.0)) as session:
        yield session


@pytest.fixture
def small_working_sets(monkeypatch):
    """Working sets of 48 rows, in this process: small problems, too, take many rounds."""
    from raymkl.engine import plan

    for name in ("WORKING_SET", "LARGE_WORKING_SET", "STRING_WORKING_SET", "SMALLEST_WORKING_SET"):
        monkeypatch.setattr(plan, name, 48)
