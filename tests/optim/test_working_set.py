"""Choosing rows, against sorting them all in Python."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raymkl.optim.working_set import choose, evenly_spaced, merge, violators


def random_rows(seed, n):
    """residual (with many ties), a at or inside its box, lower, upper; some boxes are points."""
    rng = np.random.default_rng(seed)
    residual = rng.integers(-3, 4, n) / 2 if rng.random() < 0.5 else rng.normal(size=n)
    lower, upper = -rng.integers(0, 2, n).astype(float), rng.integers(0, 2, n).astype(float)
    return residual, lower + (upper - lower) * rng.choice([0.0, 0.5, 1.0], n), lower, upper


def naive_violators(residual, a, lower, upper, count):
    grow = sorted((-residual[i], i) for i in range(len(a)) if a[i] < upper[i])
    shrink = sorted((residual[i], i) for i in range(len(a)) if a[i] > lower[i])
    return [i for _, i in grow[:count]], [i for _, i in shrink[:count]]


@given(seed=st.integers(0, 10**6), n=st.integers(0, 60), count=st.integers(1, 70))
@settings(max_examples=200, deadline=None)
def test_violators_are_the_first_of_a_full_sort(seed, n, count):
    rows = random_rows(seed, n)
    grow, shrink = violators(*rows, count)
    naive = naive_violators(*rows, count)
    assert grow.tolist() == naive[0] and shrink.tolist() == naive[1]


def test_ties_go_to_the_lower_row_number():
    residual, a = np.array([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0]), np.zeros(8)
    grow, shrink = violators(residual, a, a - 1, a + 1, 3)
    assert grow.tolist() == [1, 3, 5] and shrink.tolist() == [0, 2, 4]


def test_rows_without_room_are_no_violators():
    residual, a = np.array([9.0, 1.0, -9.0, 0.0]), np.array([1.0, 0.5, 0.0, 0.0])
    grow, shrink = violators(residual, a, np.zeros(4), np.array([1.0, 1.0, 1.0, 0.0]), 5)
    assert grow.tolist() == [1, 2] and shrink.tolist() == [1, 0]


@given(n=st.integers(0, 300), count=st.integers(1, 320), seed=st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_evenly_spaced_rows_are_allowed_distinct_and_spread(n, count, seed):
    _, a, lower, upper = random_rows(seed, n)
    for rows, allowed in zip(evenly_spaced(a, lower, upper, count), (a < upper, a > lower), strict=True):
        allowed = np.flatnonzero(allowed)
        assert len(rows) == min(count, len(allowed))
        assert np.isin(rows, allowed).all() and np.all(np.diff(rows) > 0)
        if len(rows) > 1:
            assert rows[0] == allowed[0] and rows[-1] == allowed[-1]
            steps = np.diff(np.searchsorted(allowed, rows))
            assert steps.max() - steps.min() <= 1  # no part of the data is preferred


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), count=st.integers(1, 30), shards=st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_merging_shards_is_choosing_from_all_rows(seed, n, count, shards):
    residual, a, lower, upper = random_rows(seed, n)
    ids, keys = ([], []), ([], [])
    for part in np.array_split(np.arange(n), shards):
        found = violators(residual[part], a[part], lower[part], upper[part], count)
        for side, sign in ((0, -1.0), (1, 1.0)):
            ids[side].append(part[found[side]])
            keys[side].append(sign * residual[part[found[side]]])
    whole = violators(residual, a, lower, upper, count)
    # The order in which shards answer must not matter.
    order = np.random.default_rng(seed).permutation(shards)
    for side in (0, 1):
        got, _ = merge([ids[side][i] for i in order], [keys[side][i] for i in order], count)
        assert np.array_equal(got, whole[side])


def naive_choice(grow, grow_residual, shrink, shrink_residual, kept, size, new):
    """Rows in turn, each only if a partner on the other side makes a pair that improves; then the kept
    ones.
    """
    pairs = [
        (g, s)
        for g, rg in zip(grow, grow_residual, strict=True)
        for s, rs in zip(shrink, shrink_residual, strict=True)
        if rg > rs
    ]
    good_grow, good_shrink = (
        [g for g in grow if g in {p[0] for p in pairs}],
        [s for s in shrink if s in {p[1] for p in pairs}],
    )
    turns = [
        side[i]
        for i in range(max(len(good_grow), len(good_shrink)))
        for side in (good_grow, good_shrink)
        if i < len(side)
    ]
    entering = list(dict.fromkeys(turns))[:new]
    return sorted(list(dict.fromkeys([*entering, *kept]))[:size])


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    size=st.integers(2, 30),
    new=st.integers(2, 30),
    count=st.integers(1, 20),
)
@settings(max_examples=300, deadline=None)
def test_choose_is_the_naive_choice(seed, n, size, new, count):
    residual, a, lower, upper = random_rows(seed, n)
    grow, shrink = violators(residual, a, lower, upper, count)
    assume(len(grow) and len(shrink))  # a side that is empty has its own test below
    kept = np.random.default_rng(seed + 1).permutation(n)[: size // 2]
    arguments = (grow, residual[grow], shrink, residual[shrink], kept, size, new)
    got = choose(*arguments)
    assert got.tolist() == naive_choice(*arguments)
    # What the engine relies on, stated apart from the reference.
    entered = np.setdiff1d(got, kept)
    assert len(got) <= size and len(entered) <= new and np.all(np.diff(got) > 0)
    for i in entered:
        up = i in grow and np.any(residual[i] > residual[shrink])
        down = i in shrink and np.any(residual[i] < residual[grow])
        assert up or down


@pytest.mark.parametrize(
    ("size", "new", "expected"),
    [(4, 2, [1, 2, 8, 9]), (4, 4, [1, 2, 3, 4]), (3, 2, [1, 2, 9]), (8, 2, [1, 2, 7, 8, 9])],
)
def test_kept_rows_fill_up_in_their_order(size, new, expected):
    grow, shrink, kept = np.array([1, 3]), np.array([2, 4]), np.array([9, 8, 7])
    got = choose(grow, np.array([5.0, 4.0]), shrink, np.array([-5.0, -4.0]), kept, size, new)
    assert got.tolist() == expected


def test_an_optimal_point_lets_no_row_enter():
    grow, shrink, kept = np.array([1, 3]), np.array([2, 4]), np.array([9, 8])
    got = choose(grow, np.array([1.0, 0.5]), shrink, np.array([1.0, 2.0]), kept, 10, 10)
    assert got.tolist() == [8, 9]


@pytest.mark.parametrize("empty", ["grow", "shrink"])
def test_rows_without_a_partner_do_not_enter(empty):
    nothing, none = np.empty(0, np.int64), np.empty(0)
    rows, residual, kept = np.array([1, 3]), np.array([1.0, 0.5]), np.array([9, 8])
    sides = (nothing, none, rows, residual) if empty == "grow" else (rows, residual, nothing, none)
    assert choose(*sides, kept, 10, 10).tolist() == [8, 9]


def test_a_row_on_both_sides_enters_once():
    got = choose(
        np.array([5, 6]), np.array([2.0, 1.0]), np.array([6, 5]), np.array([1.0, 2.0]), np.array([5]), 4, 4
    )
    assert got.tolist() == [5, 6]
