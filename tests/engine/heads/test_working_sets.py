"""Which rows make up the working sets of a run: spread over the shards at first, then newcomers and those
that came last.
"""

import numpy as np
import pytest

from raymkl import MKLClassifier
from raymkl.engine import plan
from raymkl.engine.heads import ascent
from raymkl.engine.heads.ascent import INNER, WHOLE
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.kernels import RBF, rbf
from raymkl.optim.losses import EpsilonInsensitive, Hinge
from tests import builders
from tests.reference import noisy_problem

N, SIZE = 900, 64
BANK = rbf([0.02, 0.1, 0.5])
X, Y = noisy_problem(N, seed=5)


@pytest.fixture
def small_sets(monkeypatch):
    """Working sets that are much smaller than the data, so that it matters who is in them."""
    monkeypatch.setattr(plan, "WORKING_SET", SIZE)


def coordinator_of(rows, shards):
    problem = builders.problem_of(BANK, len(rows))
    pool = LocalPool({None: rows}, problem, shards)
    return Coordinator(pool, problem), pool


def head_of(y, loss=None, C=1.0, tol=1e-3):
    return builders.head_of(y, C, loss=loss, tol=tol)


def sets_of(rows, head, shards=1):
    """The working sets of a run, and its result."""
    coordinator, pool = coordinator_of(rows, shards)
    sets = []
    try:
        for _ in coordinator.rounds([head]):
            sets += [solver.working_set for solver in coordinator.solvers.values()]
        return sets, coordinator.outcome([head])[0][-1]
    finally:
        pool.close()


@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(0.1)], ids=["hinge", "epsilon"])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_first_working_set_is_spread_over_all_rows(small_sets, loss, shards):
    first = sets_of(X, head_of(Y, loss), shards)[0][0]
    distinct = SIZE if isinstance(loss, Hinge) else SIZE // 2  # in regression every row may grow and shrink
    assert 0.9 * distinct <= len(first) <= SIZE
    per_fifth = np.bincount(first // (N // 5), minlength=5)
    assert per_fifth.min() >= 0.6 * len(first) / 5


def test_the_first_working_set_is_as_full_as_a_class_in_one_shard_allows(small_sets):
    order = np.argsort(Y, kind="stable")
    first = sets_of(X[order], head_of(Y[order]), shards=2)[0][0]
    assert len(first) >= SIZE // 3 and len(set(Y[order][first])) == 2


@pytest.mark.parametrize("C", [1.0, 30.0])
def test_the_order_of_the_rows_does_not_matter(small_sets, C):
    """Rows sorted by class, as many files are: when the first rows of a working set stayed, this took half as
    many rounds again.
    """
    rounds = {}
    for name, order in {
        "as they are": np.arange(N),
        "by class": np.argsort(Y, kind="stable"),
        "by feature": np.argsort(X[:, 0]),
    }.items():
        rounds[name] = sets_of(X[order], head_of(Y[order], C=C))[1].rounds
    assert max(rounds.values()) <= 1.25 * min(rounds.values()), rounds


def test_rows_that_came_last_stay(small_sets):
    """Of rows inside their bounds that are no violators, none leaves that came after one that stays."""
    C = 30.0
    coordinator, pool = coordinator_of(X, 1)
    checked = 0
    try:
        coordinator.begin(1)
        coordinator.add([head_of(Y, C=C)])
        coordinator.round_once()
        solver = coordinator.solvers[0]
        while coordinator.busy:
            a, entered = solver.a.copy(), solver.rows.entered.copy()
            inside = solver.working_set[
                (np.abs(a) > 0)[solver.working_set] & (np.abs(a) < C)[solver.working_set]
            ]
            coordinator.round_once()
            waiting = np.setdiff1d(
                inside, np.concatenate([solver.seen.summary.grow, solver.seen.summary.shrink])
            )
            stays = np.isin(waiting, solver.working_set)
            if coordinator.busy and stays.any() and not stays.all():
                checked += 1
                assert entered[waiting[stays]].min() >= entered[waiting[~stays]].max()
    finally:
        coordinator.close()
        pool.close()
    assert checked >= 3


@pytest.mark.parametrize(("bank", "part"), [([RBF(0.05)], WHOLE), (rbf([0.01, 0.05, 0.3]), INNER)])
def test_all_rows_at_once_are_solved_precisely_where_no_weights_follow(monkeypatch, bank, part):
    """One kernel is done after one sub-problem.

    With several the weights move after it, and a precise solution would be lost.
    """
    tolerances, original = [], ascent.solve_terms

    def solve(Q, terms, residual, x, tolerance, **more):
        tolerances.append((tolerance, len(x)))
        return original(Q, terms, residual, x, tolerance, **more)

    monkeypatch.setattr(ascent, "solve_terms", solve)
    clf = MKLClassifier(kernels=bank, engine="local", tol=1e-3).fit(X[:400], Y[:400])
    assert clf.converged_ and clf.duality_gap_ <= 1e-3
    assert tolerances[0] == (part, 400)  # the first violation is above 1
    assert (len(tolerances) == 1) == (len(bank) == 1)
