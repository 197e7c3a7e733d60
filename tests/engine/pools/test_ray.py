"""The Ray engine gives the local engine's model, cleans up after itself, and its errors are the errors of the
local engine.

Every fit here starts processes of its own; what is asked of many inputs is asked of standing ones, in
`test_ray_inputs`.
"""

import pickle
import sys
import threading

import numpy as np
import pytest

from raymkl import MKLClassifier, RayParams
from raymkl.engine.run import WORTH_ACTORS, choose_engine
from raymkl.kernels import RBF, Custom, Laplacian, Linear, Polynomial, rbf
from tests.engine.faults.faulty_kernel import faulty
from tests.processes import own_workers, wait_for
from tests.reference import apart, noisy_problem

pytestmark = pytest.mark.usefixtures("ray_cluster")

X, Y = noisy_problem(80, seed=21)
X_TEST, _ = noisy_problem(40, seed=22)
BANK = [*rbf([0.05, 0.5]), Linear(), Polynomial(degree=2, coef0=1.0), Laplacian(gamma=0.2)]


def shards(count, **more):
    return RayParams(num_shards=count, **{"cpus_per_shard": 0.5, "timeout_s": 60.0, **more})


def fitted(train, y, bank=BANK, engine="local", count=1):
    return MKLClassifier(kernels=bank, tol=1e-6, engine=engine, ray_params=shards(count)).fit(train, y)


@pytest.fixture(scope="module")
def twice(ray_cluster):
    """Two fits after each other, with two shards each."""
    return [fitted(X, Y, engine="ray", count=2) for _ in range(2)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_shards_equals_local(twice, count):
    local = fitted(X, Y)
    remote = twice[0] if count == 2 else fitted(X, Y, engine="ray", count=count)
    assert remote.converged_ and remote.duality_gap_ <= 1e-6
    np.testing.assert_allclose(remote.kernel_weights_, local.kernel_weights_, atol=1e-3)
    assert apart(remote.decision_function(X_TEST), local.decision_function(X_TEST)) < 1e-3
    assert {"round", "seconds", "primal", "dual", "gap", "support_vectors"} <= set(remote.history_[0])


def test_the_same_partition_gives_the_same_bits(twice):
    """Partial results are summed in the order of the shards, not of their arrival."""
    local, (first, second) = fitted(X, Y, count=2), twice
    np.testing.assert_array_equal(first.dual_coef_, second.dual_coef_)
    np.testing.assert_array_equal(first.kernel_weights_, second.kernel_weights_)
    np.testing.assert_allclose(first.dual_objective_, local.dual_objective_, rtol=1e-9)


def test_more_shards_than_rows():
    two = X[:2], np.array([1, -1]), [RBF(gamma=0.1)]
    local, remote = fitted(*two), fitted(*two, engine="ray", count=3)
    np.testing.assert_allclose(remote.decision_function(X), local.decision_function(X), atol=1e-4)


# -- processes -------------------------------------------------------------------------------------


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads titles of processes")
def test_actors_are_seen_while_a_fit_runs_and_gone_after_it(tmp_path):
    """A shard waits in the middle of a round until somebody has looked."""
    assert wait_for(lambda: not own_workers(), 30), own_workers()
    seen = {}

    def look():
        wait_for((tmp_path / "ready").exists, 60)
        seen.update(own_workers())
        (tmp_path / "go").touch()

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        kernel = faulty(tmp_path, 1, what="wait")
        MKLClassifier(kernels=[kernel, RBF()], engine="ray", tol=1e-6, ray_params=shards(2)).fit(X, Y)
    finally:
        watcher.join()
    assert sum("Shard" in title for title in seen.values()) == 2, seen
    assert any("Coordinator" in title for title in seen.values()), seen
    assert wait_for(lambda: not own_workers(), 30), own_workers()


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [shards(3, cpus_per_shard=1), shards(1, cpus_per_shard=64), shards(100)],
    ids=["shards", "CPUs", "both"],
)
def test_more_than_the_cluster_has(params):
    with pytest.raises(ValueError, match="CPU"):
        MKLClassifier(kernels=BANK, engine="ray", ray_params=params).fit(X, Y)


def test_an_error_in_a_shard_comes_back_as_it_was():
    """Only blocks with some rows fail, so the error arises in a shard, in the middle of a run."""
    bad = float(X[70, 0])

    def treacherous(A, B):
        values = A @ B.T
        values[np.ix_(A[:, 0] == bad, B[:, 0] == bad)] = np.nan
        return values

    kernel = Custom(treacherous, diag_function=lambda A: (A * A).sum(axis=1))
    for engine in ("local", "ray"):
        with pytest.raises(ValueError, match="NaN or infinity") as caught:
            MKLClassifier(kernels=[kernel], engine=engine, ray_params=shards(2)).fit(X, Y)
        assert type(caught.value) is ValueError
    assert wait_for(lambda: not own_workers(), 30), own_workers()


def test_too_little_memory_is_the_same_error_on_ray():
    with pytest.raises(ValueError, match="memory_per_shard=100"):
        MKLClassifier(kernels=BANK, engine="ray", ray_params=shards(2, memory_per_shard=100)).fit(X, Y)


def test_auto_stays_local_for_small_problems():
    assert choose_engine("auto", 80) == "local"
    assert choose_engine("auto", WORTH_ACTORS) == "ray"  # a cluster is running
    # More shards than the cluster could hold: only a local run can succeed.
    assert (
        MKLClassifier(kernels=BANK, engine="auto", ray_params=RayParams(num_shards=50)).fit(X, Y).converged_
    )


def test_nothing_of_the_cluster_is_kept(ray_cluster, twice):
    """The CPUs are free again, and the model can be pickled and used where there is no Ray."""
    model = twice[1]
    data = pickle.dumps(model)
    assert b"ray.actor" not in data and b"ObjectRef" not in data
    np.testing.assert_array_equal(
        pickle.loads(data).decision_function(X_TEST), model.decision_function(X_TEST)
    )
    assert wait_for(lambda: ray_cluster.available_resources().get("CPU", 0.0) == 2.0, 30), (
        ray_cluster.available_resources()
    )


def test_a_shard_that_lives_with_others_moves_out_again(ray_cluster):
    """Its place is free: after the next look it has a CPU of its own, nothing is counted as lost, and the
    model is the same.
    """
    from raymkl.engine.faults.places import Lookout
    from raymkl.engine.faults.policy import FailurePolicy
    from raymkl.engine.opening import opened
    from raymkl.engine.pools.local import LocalPool
    from raymkl.engine.pools.ray_pool import RayPool
    from raymkl.engine.pools.ray_shards import ShardActors, placed, shard_actors
    from tests.builders import head_of, problem_of

    rows, y = noisy_problem(300, seed=71)
    where, bank = RayParams(num_shards=2, cpus_per_shard=0.5, timeout_s=60.0), rbf([0.05, 0.5])

    def trained(pool, lookout=None):
        with opened(pool, problem_of(bank, len(rows)), policy=FailurePolicy(0)) as coordinator:
            for _ in coordinator.rounds([head_of(y, 1.0, tol=1e-4)]):
                if lookout is not None:
                    lookout.look(pool, coordinator.crew, 2)
            return coordinator.outcome([None])[0][-1], coordinator.crew.policy

    with shard_actors(2, where) as place:
        shards = ShardActors(place)
        free = f"CPU_group_0_{place.group[0].id.hex()}"
        try:
            shards.replaced(0, shards.actors[0], crowded=True)
            assert wait_for(lambda: ray_cluster.available_resources().get(free) == 0.5, 30)
            pool = RayPool(shards, placed({None: rows}, problem_of(bank, len(rows)), 2), where)
            assert pool.may_move_out() == [0] and pool.places() >= 2
            found, policy = trained(pool, Lookout(every=0.0))
            assert policy.news == ["shard 0 moved back to a place of its own"] and policy.total == 0
            assert pool.may_move_out() == [] and ray_cluster.available_resources().get(free, 0.0) == 0.0
        finally:
            shards.close()
    expected, _ = trained(LocalPool({None: rows}, problem_of(bank, len(rows)), 2))
    assert apart(found.a, expected.a) < 0.1 and apart(found.theta, expected.theta) < 0.1
