"""Sizing: how many shards a run has, and requests that can never be met are refused with what was asked for
and what there is.
"""

from dataclasses import replace

import numpy as np
import pytest

from raymkl import MKLClassifier, RayParams
from raymkl.engine import sizing
from raymkl.engine.plan import DEFAULT_SHARE
from raymkl.engine.problem import Head, Problem
from raymkl.kernels import Custom, Laplacian, rbf
from raymkl.kernels.pairs.families import group
from raymkl.optim.losses import Hinge
from raymkl.optim.norms import LpNorm
from tests.processes import wait_for
from tests.reference import apart, noisy_problem

placement = pytest.importorskip("raymkl.engine.pools.placement")

BANK = [*rbf([0.05, 0.5]), Laplacian(gamma=0.2)]
X, Y = noisy_problem(400, seed=51)


# -- the memory plan -------------------------------------------------------------------------------


def problem_and_heads(n=400, heads=1):
    problem = Problem([None], group(BANK), n, len(BANK), None, np.float64, exact=True)
    return problem, [
        Head(np.resize(Y, n).astype(float), np.ones(n), Hinge(), LpNorm(4 / 3)) for _ in range(heads)
    ]


def choose(asked, most, budget, n=400, heads=1):
    problem, made = problem_and_heads(n, heads)
    return sizing.choose({None: np.resize(X, (n, 6))}, problem, made, asked, most, budget)


def test_as_asked_or_one_per_place_with_enough_rows():
    assert choose(7, 3, None) == 7
    assert choose(None, 3, None) == 1  # 400 rows are not worth a second process
    assert sizing.usual_shards(6 * sizing.ROWS_PER_SHARD, 3) == 3
    assert sizing.usual_shards(6 * sizing.ROWS_PER_SHARD, 30) == 6
    assert choose(7, 3, 10**9) == 7


def test_a_small_budget_takes_more_shards():
    """With half of what one shard needs, two are needed, and so on, up to what the cluster holds."""
    least = {}
    for count in (1, 2, 4):
        with pytest.raises(
            ValueError, match=r"memory_per_shard=1 bytes cannot hold one round.*need at least \d+ bytes"
        ) as caught:
            choose(count, 8, 1)
        least[count] = int(str(caught.value).split("at least ")[1].split()[0])
    assert least[1] > least[2] > least[4]
    for count, budget in least.items():
        assert choose(None, 8, budget) == count
        assert choose(count, 8, budget) == count
    with pytest.raises(ValueError, match="give more memory per shard or use more shards"):
        choose(None, 2, least[4])


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_the_refusal_is_the_same_everywhere(ray_cluster, monkeypatch, engine):
    """On Ray it is said before any process starts."""
    from raymkl.engine.pools import ray_shards

    def never(*arguments, **more):
        raise AssertionError("an actor was started")

    monkeypatch.setattr(ray_shards, "start_shard", never)
    params = RayParams(num_shards=2, cpus_per_shard=0.5, memory_per_shard=20_000, timeout_s=60.0)
    with pytest.raises(ValueError) as caught:
        MKLClassifier(kernels=BANK, engine=engine, ray_params=params).fit(X, Y)
    words = str(caught.value)
    assert words.startswith(
        "memory_per_shard=20000 bytes cannot hold one round: shards of 200 rows need at least "
    )
    known = MESSAGES.setdefault("words", words)
    assert words == known


MESSAGES: dict = {}


# -- a cluster -------------------------------------------------------------------------------------


def test_more_memory_than_any_node_has(ray_cluster):
    largest = max(node["Resources"]["memory"] for node in ray_cluster.nodes())
    params = RayParams(num_shards=1, memory_per_shard=int(largest) + 1, timeout_s=60.0)
    with pytest.raises(
        ValueError,
        match=rf"is more than any node of the Ray cluster has: the largest one has {int(largest)} bytes",
    ):
        MKLClassifier(kernels=BANK, engine="ray", ray_params=params).fit(X, Y)


def reserved(ray):
    """Bytes of the cluster's memory that somebody has reserved."""
    return ray.cluster_resources()["memory"] - ray.available_resources().get("memory", 0.0)


@pytest.mark.parametrize("budget", [50 * 2**20, None], ids=["a budget", "the default one"])
def test_shards_reserve_their_memory(ray_cluster, budget):
    from raymkl import Session

    assert wait_for(lambda: reserved(ray_cluster) == 0, 30)
    there = ray_cluster.cluster_resources()["memory"]
    each = 10**6 + (int(DEFAULT_SHARE * there / 2) if budget is None else budget)
    with Session(
        "ray",
        RayParams(num_shards=2, cpus_per_shard=0.25, memory_per_shard=budget, timeout_s=60.0),
        row_bytes=10**6,
    ) as session:
        MKLClassifier(kernels=BANK, engine=session).fit(X, Y)
        assert wait_for(lambda: abs(reserved(ray_cluster) - 2 * each) < 2**10, 30), (
            reserved(ray_cluster),
            each,
        )
        # Others find room beside them, whatever their budget is.
        assert (
            MKLClassifier(kernels=BANK, engine="ray", ray_params=RayParams(num_shards=2, cpus_per_shard=0.25))
            .fit(X, Y)
            .converged_
        )
    assert wait_for(lambda: reserved(ray_cluster) == 0, 30)


def test_resources_labels_and_environment(ray_cluster):
    """Any node has a resource and a label of its own; functions of the user see the environment of the
    actors.
    """
    import os

    def spoken(A, B):
        return (A @ B.T) * (2.0 if os.environ.get("RAYMKL_TEST_WORD") == "said" else 1.0)

    node = ray_cluster.nodes()[0]["NodeID"]
    place = {
        "resources": {"node:__internal_head__": 0.125},
        "label_selector": {"ray.io/node-id": node},
        "placement": "PACK",
    }
    params = RayParams(
        2, 0.5, timeout_s=60.0, runtime_env={"env_vars": {"RAYMKL_TEST_WORD": "said"}}, **place
    )
    told = MKLClassifier(kernels=[Custom(spoken)], engine="ray", tol=1e-5, ray_params=params).fit(X, Y)
    want = MKLClassifier(kernels=[Custom(lambda A, B: 2 * (A @ B.T))], engine="local", tol=1e-5).fit(X, Y)
    assert told.primal_objective_ == pytest.approx(want.primal_objective_, rel=1e-4)
    for wrong, words in (
        ({"label_selector": {"ray.io/node-id": "x"}}, "CPU"),
        ({"resources": {"nowhere": 1}}, "'nowhere'"),
    ):
        with pytest.raises(ValueError, match=words):
            MKLClassifier(kernels=BANK, engine="ray", ray_params=replace(params, **wrong)).fit(X, Y)


def test_one_shard_per_cpu_when_nothing_is_asked_for(ray_cluster):
    from raymkl.engine.pools.ray_shards import choose_shards

    assert placement.most_shards(RayParams()) == 2
    assert choose_shards(10**6, RayParams()) == 2 and choose_shards(100, RayParams()) == 1
    assert choose_shards(10**6, RayParams(cpus_per_shard=0.5)) == 4
    assert choose_shards(10**6, RayParams(cpus_per_shard=2)) == 1


def fit_inside(ray, bundles, num_shards, timeout_s=60.0, others=0):
    """Fit in a task of one CPU inside a placement group, some CPUs of which others hold.

    Returns decision values and groups made.
    """
    from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    place = placement_group([{"CPU": cpus} for cpus in bundles])
    assert place.wait(300)

    class Holder:
        def there(self):
            return True

    @ray.remote(num_cpus=0.5, max_retries=0)
    def fit(X, Y, bank, params):
        before = set(placement_group_table())
        fitted = MKLClassifier(kernels=bank, engine="ray", tol=1e-5, ray_params=params).fit(X, Y)
        return fitted.decision_function(X), set(placement_group_table()) - before

    here = PlacementGroupSchedulingStrategy(
        place, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
    )
    there = PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=1)
    holders = [
        ray.remote(num_cpus=0.5)(Holder).options(scheduling_strategy=there).remote() for _ in range(others)
    ]
    ray.get([holder.there.remote() for holder in holders])
    params = RayParams(num_shards=num_shards, cpus_per_shard=0.5, timeout_s=timeout_s)
    try:
        return ray.get(fit.options(scheduling_strategy=here).remote(X, Y, BANK, params), timeout=900)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    finally:
        for holder in holders:
            ray.kill(holder)
        remove_placement_group(place)


def test_inside_somebodys_placement_group(ray_cluster):
    """Shards live there, no group is made; too small a group is an error that says so."""
    values, made = fit_inside(ray_cluster, [0.5, 1.0], 2)
    assert not made
    assert (
        apart(values, MKLClassifier(kernels=BANK, engine="local", tol=1e-5).fit(X, Y).decision_function(X))
        < 1e-2
    )
    with pytest.raises(
        ValueError,
        match=r"3 shards of 0.5 CPU need 1.5 CPUs, the placement group .* has 1 \(1.5, of which this task "
        r"holds 0.5",
    ):
        fit_inside(ray_cluster, [0.5, 1.0], 3)


def test_a_group_that_others_have_filled(ray_cluster):
    from raymkl.engine.faults.policy import ShardFailure

    with pytest.raises(
        ShardFailure,
        match=r"2 shards of 0.5 CPU found no place within timeout_s=2 seconds: .* of the placement group",
    ):
        fit_inside(ray_cluster, [0.5, 1.0], 2, timeout_s=2.0, others=2)


def test_the_metrics_of_a_run(ray_cluster):
    """They are recorded without complaint, whatever rows a program hands out, under the job's name."""
    from raymkl.engine.pools.metrics import RunMetrics

    metrics = RunMetrics()
    local = MKLClassifier(kernels=BANK, engine="local").fit(X, Y)
    metrics.record(local.history_[:1], 0)
    metrics.record([{"gap": 0.5}, {"gap": 0.25, "objective": 1.0}], 2)
    metrics.record([], 3)
    metrics.close()
    job = ray_cluster.get_runtime_context().get_job_id()
    parts = [metrics.gap, metrics.rounds, metrics.columns, metrics.hits, metrics.bytes, metrics.failures]
    assert all(part.info["default_tags"] == {"job": job} for part in parts)
    assert all(part.info["name"].startswith("raymkl_") for part in parts)
    assert len({part.info["name"] for part in parts}) == len(parts)


def test_places_are_our_own_and_what_is_free(ray_cluster):
    from ray.util.placement_group import placement_group, remove_placement_group

    ours, others = placement_group([{"CPU": 0.5}] * 2), placement_group([{"CPU": 0.5}])
    try:
        assert ours.wait(300) and others.wait(300)
        half, whole = RayParams(cpus_per_shard=0.5), RayParams(cpus_per_shard=0.5, memory_per_shard=2**50)
        assert wait_for(
            lambda: placement.places_for((ours, True), half) == 3, 10
        )  # two of ours, and one beside those of others
        assert wait_for(lambda: placement.places_for((others, True), half) == 2, 10)
        assert placement.places_for((ours, True), whole) < 3  # nobody has so much memory
    finally:
        remove_placement_group(ours)
        remove_placement_group(others)
