"""RayParams: what Ray Train's objects say, and what model files keep of it.

What is out of range is in tests/models/errors/test_errors.py.
"""

import numpy as np
import pytest

from raymkl import MKLClassifier, RayParams, io, load
from raymkl.kernels import RBF
from raymkl.models.files.entries import Reader
from tests.reference import noisy_problem

train = pytest.importorskip("ray.train")
X, Y = noisy_problem(60, seed=5)


def test_from_ray_train():
    scaling = train.ScalingConfig(
        num_workers=3,
        resources_per_worker={"CPU": 2, "memory": 1e9, "disk": 1},
        placement_strategy="PACK",
        accelerator_type="X1",
    )
    run = train.RunConfig(
        name="fit",
        storage_path="/shared/runs/",
        failure_config=train.FailureConfig(max_failures=-1),
        worker_runtime_env={"env_vars": {"A": "1"}},
    )
    assert RayParams.from_train(scaling, run, timeout_s=5.0) == RayParams(
        num_shards=3,
        cpus_per_shard=2,
        memory_per_shard=10**9,
        placement="PACK",
        resources={"disk": 1, "accelerator_type:X1": 0.001},
        max_shard_failures=-1,
        name="fit",
        storage_path="/shared/runs/",
        runtime_env={"env_vars": {"A": "1"}},
        timeout_s=5.0,
    )
    assert RayParams.from_train(train.ScalingConfig(num_workers=2)) == RayParams(
        num_shards=2, placement="PACK"
    )
    plain = RayParams.from_train(train.ScalingConfig(num_workers=2), train.RunConfig())
    assert (
        plain.name is None and plain.checkpoint_dir is None and plain.max_shard_failures == 0
    )  # as a FailureConfig says when nothing else is said


@pytest.mark.parametrize(
    "scaling, words",
    [
        (
            lambda: train.ScalingConfig(num_workers=2, use_gpu=True),
            "use_gpu=True, and shards compute on CPUs",
        ),
        (
            lambda: train.ScalingConfig(num_workers=2, resources_per_worker={"GPU": 1}, use_gpu=True),
            "use_gpu",
        ),
        (lambda: train.ScalingConfig(num_workers=0), "num_workers of scaling_config"),
        (lambda: 3, "scaling_config must be a ray.train.ScalingConfig, got 3"),
    ],
)
def test_what_shards_have_no_use_for(scaling, words):
    with pytest.raises(ValueError, match=words):
        RayParams.from_train(scaling())


def test_a_run_config_of_another_kind():
    with pytest.raises(ValueError, match=r"run_config must be a ray\.train\.RunConfig, got 'here'"):
        RayParams.from_train(train.ScalingConfig(num_workers=1), "here")


def test_model_files_keep_the_place_but_no_code(tmp_path):
    """A file may come from anybody, and a runtime_env decides what nodes install and run."""
    params = RayParams(
        num_shards=1,
        resources={"disk": 1.0},
        label_selector={"a": "b"},
        runtime_env={"pip": ["x"]},
        max_preemptions=3,
    )
    model = MKLClassifier(kernels=[RBF()], engine="local", ray_params=params).fit(X, Y)
    model.save(tmp_path / "m.raymkl")
    loaded = io.load(tmp_path / "m.raymkl").ray_params
    assert loaded == RayParams(
        num_shards=1, resources={"disk": 1.0}, label_selector={"a": "b"}, max_preemptions=3
    )
    with pytest.raises(ValueError, match="runtime_env"):
        Reader({})({"ray_params": {"runtime_env": {}}})


def test_files_of_before_have_all_fields_of_then():
    then = {
        "num_shards": 2,
        "cpus_per_shard": 1,
        "memory_per_shard": None,
        "max_shard_failures": 3,
        "timeout_s": 600.0,
    }
    assert Reader({})({"ray_params": {**then, "checkpoint_dir": None, "placement": "SPREAD"}}) == RayParams(
        num_shards=2
    )


@pytest.mark.parametrize("pair", [(2, 8), [2, 8], (np.int64(2), 8)])
def test_a_number_of_shards_that_may_change(pair, tmp_path):
    params = RayParams(num_shards=pair)
    assert params.num_shards == params.bounds == (2, 8) and hash(params) == hash(RayParams(num_shards=(2, 8)))
    assert [params.shards_where(places) for places in (0, 2, 5, 9)] == [2, 2, 5, 8]
    assert RayParams().bounds is RayParams(num_shards=3).bounds is None
    assert RayParams().shards_where(4) is None and RayParams(num_shards=3).shards_where(9) == 3
    model = MKLClassifier(kernels=[RBF(0.1)], engine="local", ray_params=params).fit(X, Y)
    model.save(tmp_path / "model.raymkl")
    assert load(tmp_path / "model.raymkl").ray_params == params


@pytest.mark.parametrize(
    "wrong", [(0, 2), (3, 2), (1, 2, 3), (1,), (1.5, 2), (True, 2), ("1", 2), 0, -1, 1.5, "2", True, {1, 2}]
)
def test_numbers_of_shards_that_are_none(wrong):
    with pytest.raises(ValueError, match=r"num_shards must be .*got"):
        RayParams(num_shards=wrong)
