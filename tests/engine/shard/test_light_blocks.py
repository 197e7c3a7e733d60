"""Light statistics: sums over blocks that are made and forgotten equal those over cached ones, and naive
ones.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.data.rows import take
from raymkl.engine.problem import HeadRequest, RoundRequest
from raymkl.engine.shard import light_blocks
from raymkl.engine.shard.light_blocks import LightSum, add_columns
from raymkl.engine.shard.shard import Shard
from raymkl.kernels import Linear, Polynomial, rbf
from raymkl.kernels.pairs.families import NO_GATE
from tests.builders import gated, head_of, made_ready, problem_of
from tests.reference import gram, noisy_problem

X, Y = noisy_problem(60, seed=21)
BANK = [*rbf([0.02, 0.3, 2.0]), Linear(), Polynomial(degree=2, coef0=1.0)]
GATES = np.random.default_rng(3).uniform(0.1, 1.5, size=(60, 2))
FIRST, LAST = 13, 50


@pytest.fixture(params=[(512, 256), (8, 5), (1, 1)], ids=str)
def blocks(request, monkeypatch):
    """Blocks of all rows and columns, of some, and of one."""
    monkeypatch.setattr(light_blocks, "BLOCK_ROWS", request.param[0])
    monkeypatch.setattr(light_blocks, "BLOCK_COLUMNS", request.param[1])


def shard_of(dtype, light, heads=1, gate_of_entry=None, threads=1, offset=0.0):
    problem = problem_of(BANK, 60, dtype, light, gate_of_entry, None if gate_of_entry is None else GATES)
    shard = Shard(threads)
    shard.load({None: (X + offset)[FIRST:LAST]}, FIRST, problem)
    spread = made_ready(shard, [head_of(Y) for _ in range(heads)])
    return shard, spread


def told(shard, spread, number, changes, offset=0.0):
    """A round in which dual variables change: (columns, delta) by head."""
    columns = np.unique(np.concatenate([ids for ids, _ in changes]))
    request = RoundRequest(
        number,
        columns,
        columns,
        take({None: X + offset}, columns),
        columns,
        take({None: X + offset}, columns),
    )
    for h, (ids, delta) in enumerate(changes):
        request.heads.append(
            HeadRequest(h, ids, ids, delta, delta, spread.sum(axis=0), np.zeros(1), ids[:0], 4)
        )
    return shard.advance(request)


CHANGES = [
    (np.array([0, 3, 13, 20, 21, 49, 50, 59]), np.array([0.5, -1.0, 0.3, 0.8, -0.6, 1.0, -0.4, -0.2])),
    (np.array([20, 48]), np.array([1.0, -1.0])),
    (np.arange(60), np.linspace(-1, 1, 60)),
]


@pytest.mark.parametrize("gate_of_entry", [None, [0, 0, NO_GATE, 1, 1], [0, 1, 0, 1, 0]], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("blocks")
def test_sums_equal_those_over_cached_statistics_and_naive_ones(dtype, gate_of_entry):
    """Several heads at once, with columns of other shards, of own rows, and of all rows."""
    (light, spread), (cached, _) = (
        shard_of(dtype, kind, len(CHANGES), gate_of_entry) for kind in (True, False)
    )
    replies = [told(shard, spread, 1, CHANGES) for shard in (light, cached)]
    assert all(cache is None for cache in light.pairs.cache) and not any(
        cache is None for cache in cached.pairs.cache
    )
    K = gated(gram(BANK, X), gate_of_entry, GATES)[FIRST:LAST]
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for h, (ids, delta) in enumerate(CHANGES):
        for G, H in zip(light.heads[h].G, cached.heads[h].G, strict=True):
            np.testing.assert_allclose(
                G, H, **(close if dtype == np.float64 else {"rtol": 1e-4, "atol": 3e-5})
            )
        own = np.arange(LAST - FIRST)
        gradients = light.gradients(light.heads[h], own)
        np.testing.assert_allclose(gradients @ spread.T, np.einsum("ijm,j->im", K[:, ids], delta), **close)
        assert replies[0].heads[h].quadratic == pytest.approx(
            replies[1].heads[h].quadratic, rel=1e-4, abs=1e-3
        )


def test_threads_do_not_matter():
    (one, spread), (two, _) = shard_of(np.float32, True), shard_of(np.float32, True, threads=2)
    for shard in (one, two):
        told(shard, spread, 1, CHANGES[:1])
    for G, H in zip(one.heads[0].G, two.heads[0].G, strict=True):
        np.testing.assert_array_equal(G, H)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("blocks")
def test_some_rows_are_those_of_all(dtype):
    """Rows at work have the sums that they would have among all, whether a column is one of them, another own
    row, or elsewhere.
    """
    (whole, spread), (some, _) = shard_of(dtype, True), shard_of(dtype, True)
    rows = np.array([0, 7, 8, 20, 35, 36])
    some.heads[0].work_on(rows)
    for number, change in enumerate(CHANGES, start=1):
        for shard in (whole, some):
            told(shard, spread, number, [change])
    for G, H in zip(some.heads[0].G, whole.heads[0].G, strict=True):
        assert len(G) == len(rows)
        np.testing.assert_allclose(
            G,
            H[rows],
            rtol=1e-12 if dtype == np.float64 else 1e-4,
            atol=1e-12 if dtype == np.float64 else 1e-4,
        )


@pytest.mark.parametrize("rows", [None, np.array([2, 9, 30])], ids=["all rows", "some rows"])
@pytest.mark.usefixtures("blocks")
def test_a_row_is_at_no_distance_from_itself(rows):
    """Far from the origin squared distances in float32 are off by whole numbers; that of a row to itself is
    known.
    """
    shard, _ = shard_of(np.float32, True, offset=1e4)
    s = next(s for s, statistic in enumerate(shard.pairs.statistics) if statistic.non_negative)
    f = shard.pairs.of_family.index(s)
    ids = np.array([FIRST + 2, FIRST + 9, FIRST + 30])
    columns = shard.pairs.statistics[s].prepare(take({None: X + 1e4}, ids), np.float32, shard.pairs.centers)
    for place, own in enumerate((2, 9, 30)):
        out = np.zeros((shard.own.n if rows is None else len(rows), shard.bases[f].rank))
        add_columns(
            shard, s, columns, ids, rows, [LightSum(shard.bases[f], np.array([place]), np.ones(1), out)]
        )
        values = out @ shard.bases[f].coefficients.T
        np.testing.assert_allclose(values[own if rows is None else place], 1.0, atol=3e-6)


@settings(max_examples=30)
@given(st.data())
def test_any_changes_of_any_heads(data):
    """Heads with other columns, other weights and other rows at work share the blocks that they have in
    common.
    """
    shard, spread = shard_of(np.float64, True, 3)
    changes, kept = [], []
    for h in range(3):
        ids = np.array(sorted(data.draw(st.sets(st.integers(0, 59), max_size=20))), np.int64)
        changes.append(
            (ids, np.array(data.draw(st.lists(st.floats(-2, 2), min_size=len(ids), max_size=len(ids)))))
        )
        rows = data.draw(
            st.none()
            | st.sets(st.integers(0, LAST - FIRST - 1), min_size=1).map(lambda s: np.array(sorted(s)))
        )
        shard.heads[h].work_on(rows)
        kept.append(np.arange(LAST - FIRST) if rows is None else rows)
    told(shard, spread, 1, changes)
    K = gram(BANK, X)[FIRST:LAST]
    for h, (ids, delta) in enumerate(changes):
        found = shard.gradients(shard.heads[h], kept[h]) @ spread.T
        np.testing.assert_allclose(
            found, np.einsum("ijm,j->im", K[kept[h]][:, ids], delta), rtol=1e-9, atol=1e-9
        )
