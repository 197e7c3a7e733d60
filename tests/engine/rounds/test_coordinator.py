"""The coordinator's book-keeping: which column is where, which rows are known, and points that are
feasible.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.engine.rounds.caches import ColumnCache, RowStore
from raymkl.engine.run import WORTH_A_CLUSTER, choose_engine
from raymkl.optim.losses import Hinge, Terms, feasible


def ids(*values):
    return np.array(values, np.int64)


def test_a_cache_fills_before_it_evicts():
    cache = ColumnCache(4, 31)
    np.testing.assert_array_equal(cache.place(ids(10, 20)), [10, 20])
    np.testing.assert_array_equal(cache.place(ids(20, 30)), [30])
    np.testing.assert_array_equal(cache.place(ids(10, 20, 30)), [])
    assert set(cache.columns.tolist()) == {10, 20, 30}
    assert len(set(cache.slots(ids(10, 20, 30)).tolist())) == 3


def test_the_column_unused_for_the_longest_time_goes_first():
    cache = ColumnCache(3, 31)
    for column in (1, 2, 3):
        cache.place(ids(column))
    cache.place(ids(1))  # 2 is now the oldest
    slot = cache.slots(ids(2))
    np.testing.assert_array_equal(cache.place(ids(4)), [4])
    assert set(cache.columns.tolist()) == {1, 3, 4}
    np.testing.assert_array_equal(cache.slots(ids(4)), slot)


def test_columns_of_this_round_are_never_evicted_by_it():
    cache = ColumnCache(3, 31)
    cache.place(ids(1, 2, 3))
    cache.place(ids(5, 1))
    assert {1, 5} <= set(cache.columns.tolist())
    cache.place(ids(7, 8, 1))
    assert set(cache.columns.tolist()) == {1, 7, 8}


def test_an_empty_request_changes_nothing():
    cache = ColumnCache(2, 31)
    cache.place(ids(1, 2))
    before = cache.slot.copy()
    assert len(cache.place(ids())) == 0
    np.testing.assert_array_equal(cache.slot, before)
    assert len(cache.slots(ids())) == 0
    with pytest.raises(KeyError, match="column 3"):
        cache.slots(ids(1, 3))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 12),
    st.lists(st.lists(st.integers(0, 30), min_size=0, max_size=12, unique=True), max_size=15),
    st.booleans(),
)
def test_slots_are_unique_and_columns_stay_where_they_are(capacity, requests, with_mask):
    """A shard overwrites a slot only for an id that was returned as missing: all others must keep theirs."""
    cache, content = ColumnCache(capacity, 31), {}
    mask = np.arange(31) % 3 == 0
    for request in requests:
        wanted = np.array(request[:capacity], np.int64)
        missing = cache.place(wanted, mask) if with_mask else cache.place(wanted)
        content.update(zip(cache.slots(missing).tolist(), missing.tolist(), strict=True))
        slots = cache.slots(wanted)
        assert len(set(slots.tolist())) == len(slots)
        assert np.all((slots >= 0) & (slots < capacity))
        assert [content[slot] for slot in slots.tolist()] == wanted.tolist()


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_a_store_returns_rows_in_the_order_asked_for(make):
    A = np.random.default_rng(0).normal(size=(10, 3))
    store = RowStore(10)
    for part in (ids(4, 1), ids(), ids(9, 0, 2), ids(7)):
        store.add(part, {None: make(A)[part], "b": A[part, :1]})
    for wanted in (ids(4), ids(9, 4, 2), ids(7, 0, 1, 2, 4, 9), ids(2, 2, 4)):
        got = store.rows(wanted)
        first = got[None].toarray() if sp.issparse(got[None]) else got[None]
        np.testing.assert_array_equal(first, A[wanted])
        np.testing.assert_array_equal(got["b"], A[wanted, :1])
    np.testing.assert_array_equal(store.missing(ids(7, 3, 4)), [3])


def test_a_store_of_many_parts():
    """Parts are joined now and then; rows must not move."""
    A = np.arange(60.0).reshape(30, 2)
    store = RowStore(30)
    order = np.random.default_rng(1).permutation(30)
    for i in order:
        store.add(ids(i), {None: A[[i]]})
    np.testing.assert_array_equal(store.rows(order[::-1])[None], A[order[::-1]])
    assert len(store.parts) <= RowStore.MOST_PARTS


def test_a_store_does_not_know_other_rows():
    store = RowStore(10)
    store.add(ids(1), {None: np.ones((1, 2))})
    with pytest.raises(KeyError):
        store.rows(ids(2))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000))
def test_feasible_points(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    y, bounds = rng.choice([-1.0, 1.0], n), rng.uniform(0, 2, n) * (rng.random(n) < 0.8)
    terms, a = Terms(Hinge(), y, bounds), rng.normal(size=n) * 2
    point = feasible(terms, a)
    assert np.all(point >= terms.lower) and np.all(point <= terms.upper)
    assert abs(point.sum()) <= 1e-12 * n * 2
    # Variables only shrink: a row that was at zero stays there.
    assert np.all(np.abs(point) <= np.abs(a) + 1e-15)


def test_a_feasible_point_stays():
    a = np.array([0.5, -0.25, -0.25, 0.0])
    np.testing.assert_array_equal(feasible(Terms(Hinge(), np.array([1.0, -1, -1, -1]), np.ones(4)), a), a)


def test_one_sided_points_become_zero():
    np.testing.assert_array_equal(
        feasible(Terms(Hinge(), np.ones(2), np.ones(2)), np.array([1.0, 2.0])), [0.0, 0.0]
    )


def test_engines():
    assert choose_engine("local", 10**9) == "local"
    assert choose_engine("ray", 10) == "ray"
    assert choose_engine("auto", 10) == "local"
    assert choose_engine("auto", WORTH_A_CLUSTER) == "ray"
