"""The memory plan: budgets are kept, or refused with what would do; less memory costs time, never the
answer.
"""

import re
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl import MKLClassifier, RayParams
from raymkl.data.rows import split_ranges
from raymkl.engine.plan import DEFAULT_SHARE, plan, plan_of
from raymkl.engine.problem import Problem
from raymkl.engine.resources import free_memory, memory_shares
from raymkl.kernels import Laplacian, Linear, Precomputed, rbf
from raymkl.kernels.pairs.families import group
from tests.reference import apart, noisy_problem

SITUATION = {"shard_rows": 5_000, "n_rows": 20_000, "item": 8, "rank": 20, "n_heads": 1, "n_shards": 4}


def least_of(situation):
    """The smallest budget that is accepted, as the error says it."""
    with pytest.raises(ValueError) as caught:
        plan(**situation, budget=1)
    return int(re.search(r"at least (\d+) bytes", str(caught.value)).group(1))


@settings(max_examples=60, deadline=None)
@given(
    shard_rows=st.integers(2, 100_000),
    shards=st.integers(1, 20),
    item=st.integers(4, 32),
    rank=st.integers(1, 40),
    n_heads=st.integers(1, 12),
    factor=st.floats(1.0, 200.0),
)
def test_budgets_are_kept(shard_rows, shards, item, rank, n_heads, factor):
    situation = {
        "shard_rows": shard_rows,
        "n_rows": shard_rows * shards,
        "item": item,
        "rank": rank,
        "n_heads": n_heads,
        "n_shards": shards,
    }
    budget = int(least_of(situation) * factor) + 1
    chosen = plan(**situation, budget=budget)
    used = chosen.capacity * chosen.bytes_per_column + shard_rows * rank * chosen.heads * 8
    assert 1 <= chosen.heads <= n_heads
    assert used <= budget
    assert chosen.expected_peak <= budget * 1.001 or chosen.capacity == situation["n_rows"]
    assert 1 <= chosen.new <= chosen.working_set <= max(situation["n_rows"], 2)
    # A round of all heads of that time must find room for its columns at once.
    assert chosen.capacity >= min(chosen.working_set * chosen.heads, situation["n_rows"])
    assert chosen.capacity <= situation["n_rows"]


def test_too_small_a_budget_says_what_would_do():
    least = least_of(SITUATION)
    assert plan(**SITUATION, budget=least).capacity > 0
    with pytest.raises(ValueError, match=f"memory_per_shard={least - 1}") as caught:
        plan(**SITUATION, budget=least - 1)
    assert str(least) in str(caught.value)


def test_more_memory_never_gives_less():
    least = least_of(SITUATION)
    plans = [plan(**SITUATION, budget=int(least * factor)) for factor in np.geomspace(1, 1000, 60)]
    for smaller, larger in pairwise(plans):
        assert larger.capacity >= smaller.capacity
        assert larger.working_set >= smaller.working_set
    assert plans[-1].capacity == SITUATION["n_rows"]


def test_without_a_budget_free_memory_is_shared():
    chosen = plan(**SITUATION, budget=None)
    assert chosen.capacity * chosen.bytes_per_column <= max(free_memory() / SITUATION["n_shards"], 2**27)
    assert all(isinstance(value, int) for value in asdict(chosen).values())


# -- memory of nodes -------------------------------------------------------------------------------

GB = 2**30
(WIDE,) = group([Laplacian(gamma=gamma) for gamma in (0.1, 1.0)])


def planned(reports, n_rows=2_000_000, budget=None):
    """The plan over shards that report (node, CPUs, free bytes)."""
    problem = Problem([None], [WIDE], n_rows, 2)
    bounds = split_ranges(n_rows, len(reports))
    return plan_of(
        problem, bounds, rank=10, n_heads=1, together=1, budget=budget, free=memory_shares(reports)
    )


def test_the_smallest_share_decides():
    """Three shards on a large node, one on a small one: all cache the same columns, and none takes more than
    a quarter of its share.
    """
    reports = [("large", 8, 96 * GB)] * 3 + [("small", 1, 8 * GB)]
    chosen = planned(reports)
    assert 0.9 * DEFAULT_SHARE * 8 * GB < chosen.expected_peak <= DEFAULT_SHARE * 8 * GB
    assert chosen == planned([("a", 1, 8 * GB)] + [("b", 1, 8 * GB)] + [("c", 1, 100 * GB)] * 2)
    # The same shards on nodes of that size each have more.
    assert planned([("large", 8, 96 * GB)] * 4).capacity == pytest.approx(3 * chosen.capacity, rel=0.1)


def test_a_budget_is_a_budget_whatever_is_free():
    assert planned([("a", 1, GB)] * 2, budget=3 * GB) == planned([("a", 1, 500 * GB)] * 2, budget=3 * GB)


def test_the_plan_of_our_own_kubernetes_job(monkeypatch):
    """The coordinator may run on the head, which has 8 Gi; what counts is what the workers' 64 Gi leave to
    each of their shards.
    """
    text = (Path(__file__).resolve().parents[2] / "cluster_configs" / "kuberay_job.yaml").read_text()
    spec = yaml.safe_load(text)["spec"]
    n_shards = int(re.search(r"--shards (\d+)", spec["entrypoint"]).group(1))
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    nodes, cpus, memory = (
        workers["replicas"],
        int(limits["cpu"]),
        int(limits["memory"].removesuffix("Gi")) * GB,
    )
    assert (n_shards, nodes, cpus, memory) == (16, 2, 8, 64 * GB)  # one shard per CPU
    in_use = 6 * GB  # Ray itself, the shards' code and rows
    monkeypatch.setattr(
        "raymkl.engine.plan.free_memory", lambda: pytest.fail("the coordinator's own memory was asked for")
    )
    chosen = planned([(f"worker-{shard % nodes}", 1, memory - in_use) for shard in range(n_shards)])
    share = (memory - in_use) // (n_shards // nodes)
    assert share == 7.25 * GB
    assert 0.95 * DEFAULT_SHARE * share < chosen.expected_peak <= DEFAULT_SHARE * share


@pytest.mark.parametrize("n_rows", [1, 2, 3, 50])
def test_few_rows(n_rows):
    chosen = plan(n_rows, n_rows, 8, 3, 1, None, 1)
    assert chosen.capacity == n_rows
    assert 1 <= chosen.new <= chosen.working_set


def test_matrices_need_no_cache_and_have_working_sets_as_usual():
    """However many there are: nothing is copied out of them."""
    chosen = [plan(1000, 4000, 0, depth, 1, None, 4) for depth in (1, 100, 10_000)]
    assert {(one.working_set, one.bytes_per_column) for one in chosen} == {
        (plan(1000, 4000, 8, 1, 1, None, 4).working_set, 0)
    }


def test_matrices_have_room_for_what_a_step_changes():
    (family,) = group([Precomputed(index=m) for m in range(5)])
    problem = Problem([None], [family], 100, 5, depths={None: 5})
    chosen = plan_of(problem, [(0, 60), (60, 100)], rank=5, n_heads=1, together=1, budget=None)
    assert chosen.expected_peak == 2 * 60 * 5 * 8


# -- a fit within a budget -------------------------------------------------------------------------

X, Y = noisy_problem(400, seed=4)
X_TEST, _ = noisy_problem(60, seed=5)
# Statistics of Laplacians are cached, however few columns there are.
BANK = [*rbf([0.1, 0.5]), Linear(), Laplacian(gamma=0.3), Laplacian(gamma=2.0)]


def fit(budget, shards=1, y=Y, **more):
    params = RayParams(num_shards=shards, memory_per_shard=budget)
    return MKLClassifier(kernels=BANK, tol=1e-5, engine="local", ray_params=params, **more).fit(X, y)


def least_budget(**more):
    with pytest.raises(ValueError, match="memory_per_shard=1 ") as caught:
        fit(1, **more)
    return int(re.search(r"at least (\d+) bytes", str(caught.value)).group(1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_a_fit_that_evicts_finds_the_same_model(dtype, shards, C):
    budget = least_budget(dtype=dtype, shards=shards)
    tight, roomy = fit(budget, shards, dtype=dtype, C=C), fit(None, shards, dtype=dtype, C=C)
    assert tight.history_[-1]["cache_capacity"] < len(tight.support_) < roomy.history_[-1]["cache_capacity"]
    assert tight.converged_
    assert tight.dual_objective_ == pytest.approx(roomy.dual_objective_, rel=2e-5)
    assert apart(tight.decision_function(X_TEST), roomy.decision_function(X_TEST)) < 2e-2


def test_several_classes_within_a_budget():
    y = np.arange(400) % 3
    budget = least_budget(y=y)
    tight, roomy = fit(budget, y=y), fit(None, y=y)
    np.testing.assert_allclose(tight.dual_objective_, roomy.dual_objective_, rtol=2e-5)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_a_warm_start_with_more_support_vectors_than_the_cache_holds(C):
    budget = least_budget()
    cold = fit(None, C=C)
    warm = MKLClassifier(
        kernels=BANK,
        tol=1e-5,
        C=C,
        engine="local",
        warm_start=True,
        ray_params=RayParams(1, memory_per_shard=budget),
    )
    warm.fit(X, Y)
    warm.set_params(tol=1e-6).fit(X, Y)
    assert warm.dual_objective_ == pytest.approx(cold.dual_objective_, rel=2e-5)
