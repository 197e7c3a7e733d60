"""Shared by all tests: one small Ray cluster per session, started only when a test asks for it, and who is marked how.

    pytest -m "not ray and not slow"     the quick part, without any Ray
    pytest -m "not cluster"              all that needs one node at most

Tests with a fixture that starts Ray are marked `ray`; those that start it in a process of their own say so with a mark. `cluster` (several
nodes, or a cluster started as users start one) goes with `ray`. `slow` is said where it is measured: several seconds, alone or together.
"""

import signal

import pytest
from hypothesis import settings

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example of a property may have to compile a loop, which is no reason to call it slow.
settings.register_profile("raymkl", deadline=None)
settings.load_profile("raymkl")


# Fixtures that start Ray, and those of them that start more than a node in this process.
RAY_FIXTURES = {"ray_cluster", "job_server"}
CLUSTER_FIXTURES = {"job_server"}


def pytest_collection_modifyitems(items):
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & CLUSTER_FIXTURES:
            item.add_marker(pytest.mark.cluster)
        if fixtures & RAY_FIXTURES or item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.ray)


@pytest.fixture(scope="session")
def ray_cluster():
    """Two CPUs on this machine; nothing is left when the session ends."""
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    yield ray
    ray.shutdown()


@pytest.fixture
def small_working_sets(monkeypatch):
    """Working sets of 48 rows, in this process: small problems, too, take many rounds."""
    from raymkl.engine import plan

    for name in ("WORKING_SET", "LARGE_WORKING_SET", "STRING_WORKING_SET", "SMALLEST_WORKING_SET"):
        monkeypatch.setattr(plan, name, 48)
