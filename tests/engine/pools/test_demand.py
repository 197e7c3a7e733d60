"""What shards ask for and what places have, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl import RayParams
from raymkl.engine.plan import DEFAULT_SHARE
from raymkl.engine.pools.demand import (
    demand_of,
    holds,
    matches,
    memory_to_reserve,
    trouble_with,
    whole_shards,
)

GIB = 2**30


def nodes(*cpus, memory=None):
    return [
        {"CPU": float(room)} if memory is None else {"CPU": float(room), "memory": float(memory)}
        for room in cpus
    ]


def trouble(shards, each, cpus, kind="SPREAD", **more):
    return trouble_with(shards, {"CPU": each}, nodes(*cpus), kind, **more)


def test_whole_shards_per_node():
    def count(cpus, each, kind="SPREAD"):
        return whole_shards(nodes(*cpus), {"CPU": each}, kind)

    assert count([0, 1, 1, 1], 1) == 3
    assert count([3, 3], 2) == 2
    assert count([0.3], 0.1) == 3  # 0.3 / 0.1 is 2.9999999999999996
    assert count([4, 2, 1], 2, "STRICT_SPREAD") == 2
    assert count([4, 2, 1], 2, "STRICT_PACK") == 2
    assert count([], 1) == 0


@given(st.lists(st.integers(0, 8), max_size=6), st.integers(1, 20), st.sampled_from([0.5, 1, 2, 3]))
def test_trouble_is_exactly_what_does_not_fit(cpus, shards, each):
    words = trouble(shards, each, cpus)
    assert (words is None) == (shards <= sum(int(c // each) for c in cpus))
    if words is not None:
        assert words.startswith(f"{shards} shard") and "CPU" in words


@pytest.mark.parametrize(
    "shards, each, cpus, words",
    [
        (50, 1, [0, 1, 1, 1], "50 shards of 1 CPU need 50 CPUs, the Ray cluster has 3; ask for fewer shards"),
        (
            1,
            4,
            [2, 2, 2],
            "1 shard of 4 CPU need 4 CPUs, each on one node, and the largest node of the Ray cluster has 2",
        ),
        (3, 2, [3, 3], "has nodes of 3, 3 CPUs, which hold 2 whole shards with placement='SPREAD'"),
        (1, 1, [], "the Ray cluster has 0"),
    ],
)
def test_what_was_asked_and_what_there_is(shards, each, cpus, words):
    assert words in trouble(shards, each, cpus)


def test_somebody_elses_group():
    assert trouble(2, 1, [1, 1, 1], "STRICT_PACK", taken=1.0, inside=True) is None
    words = trouble(3, 1, [1, 1, 1], "STRICT_PACK", taken=1.0, inside=True)
    assert (
        "need 3 CPUs, the placement group that this fit runs in has 2 (3, of which this task holds 1)"
        in words
    )
    words = trouble(1, 2, [1, 1], inside=True)
    assert "the largest bundle of the placement group that this fit runs in has 1" in words


# -- memory and other resources --------------------------------------------------------------------


def test_custom_resources():
    demand = demand_of(RayParams(cpus_per_shard=1, resources={"disk": 2}))
    rooms = [{"CPU": 8.0, "disk": 5.0}, {"CPU": 8.0}]
    assert [holds(room, demand) for room in rooms] == [2, 0]
    assert trouble_with(2, demand, rooms) is None
    assert (
        "3 shards of 2 'disk' need 6 'disk', the Ray cluster has 5; ask for fewer shards or less 'disk'"
        in trouble_with(3, demand, rooms)
    )
    words = trouble_with(3, demand, [{"CPU": 8.0, "disk": 3.0}, {"CPU": 8.0, "disk": 3.0}])
    assert (
        words.startswith("3 shards of 1 CPU and 2 'disk' need 3 CPUs")
        and "which hold 2 whole shards" in words
    )


def test_memory_in_words():
    demand = {"CPU": 1, "memory": 3 * GIB}
    assert trouble_with(2, demand, nodes(4, memory=6 * GIB)) is None
    words = trouble_with(3, demand, nodes(4, memory=6 * GIB))
    assert (
        f"3 shards of {3 * GIB} bytes need {9 * GIB} bytes of memory, the Ray cluster has {6 * GIB}" in words
    )
    assert f"memory_per_shard={3 * GIB} bytes is more than any node" in trouble_with(
        1, demand, nodes(4, memory=2 * GIB)
    )


def test_a_budget_and_the_rows_are_reserved():
    params = RayParams(memory_per_shard=2 * GIB)
    assert memory_to_reserve(2, params, nodes(4, memory=8 * GIB), row_bytes=GIB) == 3 * GIB
    assert (
        memory_to_reserve(4, params, nodes(4, memory=8 * GIB), row_bytes=GIB) == 2 * GIB
    )  # there is no room for more
    assert (
        memory_to_reserve(5, params, nodes(8, memory=8 * GIB), row_bytes=GIB) == 2 * GIB
    )  # which is refused, with these words
    assert memory_to_reserve(2, params, nodes(4), inside=True) == 0  # somebody's bundles without memory


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2**36)), max_size=5),
    st.integers(1, 12),
    st.integers(0, 2**36),
)
def test_without_a_budget_no_shard_is_kept_out_by_memory(sizes, shards, row_bytes):
    rooms = [{"CPU": float(cpus), "memory": float(memory)} for cpus, memory in sizes]
    memory = memory_to_reserve(shards, RayParams(), rooms, row_bytes)
    plain, asked = demand_of(RayParams()), demand_of(RayParams(), memory)
    for room in rooms:
        assert min(holds(room, asked), shards) == min(holds(room, plain), shards)


def test_the_default_share():
    assert memory_to_reserve(2, RayParams(), nodes(4, memory=8 * GIB)) == int(DEFAULT_SHARE * 4 * GIB)
    assert (
        memory_to_reserve(2, RayParams(), nodes(4, memory=8 * GIB), GIB) == int(DEFAULT_SHARE * 4 * GIB) + GIB
    )
    assert memory_to_reserve(2, RayParams(), nodes(4, memory=0)) == 0
    assert memory_to_reserve(2, RayParams(), nodes(0)) == 0


@pytest.mark.parametrize(
    "selector, fine",
    [
        (None, True),
        ({"a": "1"}, True),
        ({"a": "2"}, False),
        ({"a": "!2"}, True),
        ({"b": "!2"}, True),
        ({"b": "2"}, False),
        ({"a": "in(1, 2)"}, True),
        ({"a": "!in(1,2)"}, False),
        ({"a": "1", "b": "x"}, False),
    ],
)
def test_labels(selector, fine):
    assert matches({"a": "1"}, selector) == fine
