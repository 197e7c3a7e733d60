"""Shared by all tests: one small Ray cluster per session, started only when a test asks for it."""

import pytest
from hypothesis import settings

# The first example of a property may have to compile a loop, which is no reason to call it slow.
settings.register_profile("raymkl", deadline=None)
settings.load_profile("raymkl")


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
