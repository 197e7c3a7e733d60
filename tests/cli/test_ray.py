"""The command line and Ray: which session it starts and ends, and the demonstration, which trains through
it.
"""

import sys
import types

import numpy as np
import pytest

import raymkl
from raymkl.cli.options import ray_session
from tests.cli.builders import TRAIN, run


@pytest.fixture
def fake_ray(monkeypatch):
    """A Ray that only takes notes."""
    fake = types.ModuleType("ray")
    fake.calls = []
    fake.is_initialized = lambda: False
    fake.init = lambda **options: fake.calls.append(options)
    fake.shutdown = lambda: fake.calls.append("shutdown")
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (("ray",), {}),
        (("ray", "head:6379"), {"address": "head:6379"}),
        (("ray", None, 2), {"address": "local", "num_cpus": 2}),
    ],
)
def test_a_ray_session_ends_with_its_block_whatever_happens(fake_ray, arguments, expected):
    with pytest.raises(RuntimeError, match="inside"), ray_session(*arguments):
        raise RuntimeError("inside")
    assert fake_ray.calls == [{"log_to_driver": False, "logging_level": "ERROR", **expected}, "shutdown"]


def test_a_ray_session_of_somebody_else_is_left_alone(fake_ray, monkeypatch):
    with ray_session("local"):
        pass
    fake_ray.is_initialized = lambda: True
    with ray_session("ray"):
        pass
    assert fake_ray.calls == []
    fake_ray.is_initialized = lambda: False
    monkeypatch.setenv("RAY_ADDRESS", "job:6379")  # as in a submitted job
    with ray_session("ray", num_cpus=2):
        pass
    assert fake_ray.calls[0]["address"] == "job:6379" and "num_cpus" not in fake_ray.calls[0]


def test_a_cluster_that_cannot_be_reached_is_a_failure(fake_ray, box):
    def refuse(**options):
        raise ConnectionError("Could not connect to the cluster")

    fake_ray.init = refuse
    result = run("train", box / "train.csv", *TRAIN, "--address", "nowhere:1", "--out", box / "x")
    assert result.exit_code == 1
    assert (
        result.stderr.strip().splitlines()[-1]
        == "Error: cannot use the Ray cluster at nowhere:1: Could not connect to the cluster"
    )


def test_demo_through_ray(ray_cluster, tmp_path):
    result = run("demo", "--out", tmp_path / "shown")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "shown").iterdir()) == ["model.raymkl", "report.html"]
    model = raymkl.load(tmp_path / "shown" / "model.raymkl")
    assert np.max(model.duality_gap_) <= 1e-3 and model.kernel_weights_.shape == (10, 16)
    for words in ("accuracy", "duality gap", "uniform sum", "best single kernel", "weights", "next:"):
        assert words in result.output
    lines = {line.split("  ")[0]: line for line in result.output.splitlines()}
    accuracy = {
        name: float(lines[name].split()[len(name.split())])
        for name in ("learned weights", "uniform sum", "best single kernel")
    }
    assert (
        accuracy["learned weights"] >= max(accuracy.values()) - 0.005 and accuracy["learned weights"] > 0.97
    )
    weights = model.kernel_weights_.mean(axis=0)
    by_view = {
        view: max(w for w, k in zip(weights, model.kernels_, strict=True) if k.view == view)
        for view in ("pixels", "noise")
    }
    assert by_view["noise"] < by_view["pixels"]
    assert ray_cluster.is_initialized()  # it was not the demo that started Ray
