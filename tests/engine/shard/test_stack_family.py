"""Ready-made matrices in a shard: what it makes of them equals numpy, and no step is computed twice."""

import numpy as np
import pytest

from raymkl import MKLClassifier
from raymkl.data.store import StoreRows
from raymkl.engine.shard import stack_family
from raymkl.engine.shard.stack_family import ShardStacks
from raymkl.engine.shard.threads import RowThreads
from raymkl.kernels import rbf, write_store
from tests.reference import gram, noisy_problem

N, DEPTH, FIRST, LAST = 50, 4, 12, 40
RNG = np.random.default_rng(2)
FACTORS = RNG.normal(size=(N, 6, DEPTH))
STACK = np.einsum("idm,jdm->ijm", FACTORS, FACTORS)
IDS = np.array([3, 12, 13, 20, 31, 39, 44, 49])
OWN = IDS[(IDS >= FIRST) & (IDS < LAST)]
MATRICES = np.array([0, 3])
ALL = np.arange(DEPTH)
DELTA = np.linspace(1, 2, len(IDS))


@pytest.fixture(params=["float64", "float32", "store"])
def own(request, tmp_path):
    """Own rows of the stack, as a shard has them."""
    if request.param == "store":
        return StoreRows(write_store(tmp_path / "k", STACK, dtype=np.float64, block_rows=7, progress=False))[
            FIRST:LAST
        ]
    return np.ascontiguousarray(STACK[FIRST:LAST].astype(request.param))


@pytest.fixture(params=[1, 3])
def stacks(request):
    return ShardStacks(FIRST, LAST - FIRST, RowThreads(request.param))


@pytest.mark.parametrize("matrices", [ALL, MATRICES], ids=["all", "some"])
def test_parts_of_a_working_set(own, stacks, matrices):
    weights, delta = RNG.random(len(matrices)), RNG.normal(size=len(IDS))
    delta[2] = 0.0
    among = STACK[np.ix_(OWN, IDS, matrices)]
    for _ in range(2):  # the second time from the same memory
        np.testing.assert_allclose(
            stacks.hessian(0, own, OWN, IDS, matrices, weights), among @ weights, rtol=1e-5
        )
        np.testing.assert_allclose(
            stacks.change(0, own, OWN, IDS, matrices, delta),
            np.einsum("ijm,j->im", among, delta),
            rtol=1e-4,
            atol=1e-4,
        )


def test_two_stacks_do_not_share_their_answers(stacks):
    one, other = STACK[FIRST:LAST].copy(), 2.0 * STACK[FIRST:LAST]
    first = stacks.hessian(0, one, OWN, IDS, ALL, np.ones(DEPTH))
    second = stacks.hessian(1, other, OWN, IDS, ALL, np.ones(DEPTH))
    np.testing.assert_allclose(second, 2.0 * first, rtol=1e-12)


def test_a_store_is_read_once_for_a_hessian_and_once_for_a_step(tmp_path, monkeypatch):
    store = write_store(tmp_path / "k", STACK, dtype=np.float64, progress=False)
    rows, stacks, read = StoreRows(store)[FIRST:LAST], ShardStacks(FIRST, LAST - FIRST, RowThreads(1)), []
    segments = type(store).row_segments
    monkeypatch.setattr(
        type(store),
        "row_segments",
        lambda self, ids, *more: read.append(len(ids)) or segments(self, ids, *more),
    )
    monkeypatch.setattr(
        "raymkl.kernels.pairs.stacks.READ_BYTES", 3 * N * DEPTH * 8
    )  # three whole rows at a time
    np.testing.assert_allclose(
        stacks.hessian(0, rows, OWN, IDS, ALL, np.ones(DEPTH)),
        STACK[np.ix_(OWN, IDS)].sum(axis=2),
        rtol=1e-10,
    )
    assert sum(read) == len(OWN) and max(read) == 3
    read.clear()
    stacks.change(0, rows, OWN, IDS, ALL, DELTA)
    assert sum(read) == len(IDS) and len(read) > 1
    out = np.zeros((LAST - FIRST, DEPTH))
    stacks.add(0, rows, IDS, ALL, 0.5 * DELTA, out)
    np.testing.assert_allclose(out, 0.5 * np.einsum("ijm,j->im", STACK[FIRST:LAST, IDS], DELTA), rtol=1e-10)
    assert sum(read) == len(IDS)
    stacks.forget()
    stacks.add(0, rows, IDS, ALL, 0.5 * DELTA, out)
    assert sum(read) == 2 * len(IDS)


class Counted:
    """Counts the rows that a loop over matrices goes through."""

    def __init__(self, monkeypatch):
        self.rows, original = 0, stack_family.accumulate_stack

        def loop(stack, rows, *arguments):
            self.rows += arguments[-1] - arguments[-2]
            original(stack, rows, *arguments)

        monkeypatch.setattr(stack_family, "accumulate_stack", loop)


@pytest.mark.parametrize("factor", [1.0, 0.37])
def test_a_step_that_is_known_is_not_computed_again(stacks, monkeypatch, factor):
    """The step is what was asked for, or a multiple of it; rows outside of the working set are computed."""
    own, delta = STACK[FIRST:LAST].copy(), RNG.normal(size=len(IDS))
    stacks.change(0, own, OWN, IDS, MATRICES, delta)
    counted, out = Counted(monkeypatch), np.ones((LAST - FIRST, 2))
    stacks.add(0, own, IDS, MATRICES, factor * delta, out)
    expected = 1.0 + factor * np.einsum("ijm,j->im", own[:, IDS][:, :, MATRICES], delta)
    np.testing.assert_allclose(out, expected, rtol=1e-10)
    assert counted.rows == LAST - FIRST - len(OWN)


OTHERS = {
    "nothing known": None,
    "other columns": (0, IDS - 1, MATRICES, DELTA),
    "other matrices": (0, IDS, np.array([1, 3]), DELTA),
    "another stack": (1, IDS, MATRICES, DELTA),
    "another step": (0, IDS, MATRICES, DELTA + np.eye(len(IDS))[3] * 1e-9),
}


@pytest.mark.parametrize("asked", OTHERS.values(), ids=OTHERS)
def test_another_step_is_computed(stacks, monkeypatch, asked):
    own, out = STACK[FIRST:LAST].copy(), np.zeros((LAST - FIRST, 2))
    if asked is not None:
        s, ids, matrices, delta = asked
        stacks.change(s, own, ids[(ids >= FIRST) & (ids < LAST)], ids, matrices, delta)
    counted = Counted(monkeypatch)
    stacks.add(0, own, IDS, MATRICES, DELTA, out)
    np.testing.assert_allclose(out, np.einsum("ijm,j->im", own[:, IDS][:, :, MATRICES], DELTA), rtol=1e-12)
    assert counted.rows == LAST - FIRST


def test_changes_are_forgotten(stacks, monkeypatch):
    own = STACK[FIRST:LAST].copy()
    stacks.change(0, own, OWN, IDS, MATRICES, DELTA)
    stacks.forget()
    counted = Counted(monkeypatch)
    stacks.add(0, own, IDS, MATRICES, DELTA, np.zeros((LAST - FIRST, 2)))
    assert counted.rows == LAST - FIRST and not stacks.changes


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fit_uses_what_it_knows(monkeypatch, classes):
    """All rows are in the working set, so hardly anything is left for the gradients to compute, and the model
    is the same as without.
    """
    X, y = noisy_problem(80, seed=3)
    y = y if classes == 2 else np.arange(80) % 3
    K = gram(rbf([0.01, 0.1, 1.0]), X)

    def fit():
        counted = Counted(monkeypatch)
        return MKLClassifier(kernels="precomputed", engine="local", tol=1e-6).fit(K, y), counted.rows

    knowing, few = fit()
    monkeypatch.undo()
    monkeypatch.setattr(stack_family, "SAME_STEP", -1.0)
    unknowing, many = fit()
    assert few <= 0.6 * many
    np.testing.assert_allclose(knowing.decision_function(K), unknowing.decision_function(K), atol=1e-6)
    np.testing.assert_allclose(knowing.dual_objective_, unknowing.dual_objective_, rtol=1e-7)
