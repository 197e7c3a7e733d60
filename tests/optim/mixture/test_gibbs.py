"""Collapsed Gibbs sampling: changes of rank one against fresh decompositions, and visits of all partitions
against exact probabilities.
"""

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln

from raymkl.optim.mixture.gibbs import Slots, _add, _log_t, sweep
from raymkl.optim.mixture.posterior import Prior, Statistics, evidence
from tests.optim.mixture import reference as slow

D = 3
RANDOM = np.random.default_rng(0)
U = RANDOM.normal(size=(30, D)) * [1.0, 100.0, 0.01]
PRIOR = Prior(np.zeros(D), 0.4, 5.0, np.diag([1.0, 1e4, 1e-4]), 1.3)


def arrays(slots):
    return slots.counts, slots.sums, slots.scatters, slots.inverses, slots.logdets, slots.changes


def test_rows_go_in_and_out_as_if_all_were_computed_anew():
    labels = RANDOM.integers(3, size=30)
    slots = Slots.of(U, labels, 3, PRIOR)
    for _ in range(2_000):
        row, to = RANDOM.integers(30), RANDOM.integers(3)
        _add(U[row], labels[row], -1.0, 0.4, *arrays(slots))
        labels[row] = to
        _add(U[row], to, 1.0, 0.4, *arrays(slots))
    fresh = Slots.of(U, labels, 3, PRIOR)
    np.testing.assert_allclose(slots.logdets, fresh.logdets, atol=1e-9)
    for found, exact in ((slots.inverses, fresh.inverses), (slots.scatters, fresh.scatters)):
        np.testing.assert_allclose(found, exact, atol=1e-8 * np.abs(exact).max())


def test_the_density_of_a_row_is_the_student_t():
    slots = Slots.of(U, np.zeros(30, int), 1, PRIOR)
    x = np.array([0.3, -50.0, 0.02])
    found = _log_t(x, slots.counts[0], slots.sums[0], slots.inverses[0], slots.logdets[0], 0.4, 5.0)
    assert found == pytest.approx(
        slow.student(x, slots.sums[0] / 30.4, 30.4, 35.0, slots.scatters[0]), rel=1e-9
    )


def partitions(n):
    """Every partition of n rows once, clusters numbered as they come."""
    return [
        p
        for p in product(range(n), repeat=n)
        if all(v <= max(p[:i], default=-1) + 1 for i, v in enumerate(p))
    ]


def first_come(labels):
    names = {}
    return tuple(names.setdefault(v, len(names)) for v in labels)


@pytest.mark.parametrize("penalty", [0.0, 1.5])
def test_partitions_are_visited_as_often_as_they_should(penalty):
    """With a penalty, every new cluster has that of a machine of zeros for all of its rows, as long as it is
    not trained.
    """
    rows = np.array([[0.0], [0.4], [1.9], [2.6]])
    prior = Prior(np.zeros(1), 0.3, 3.0, np.eye(1), 0.8)
    logs = {}
    for p in partitions(4):
        groups = [rows[np.equal(p, k)] for k in range(max(p) + 1)]
        logs[p] = sum(
            evidence(Statistics(np.array([float(len(g))]), g.sum(axis=0)[None], (g.T @ g)[None]), prior)[0]
            + gammaln(len(g))
            + np.log(0.8)
            for g in groups
        )
    exact = np.exp(np.array(list(logs.values())) - np.logaddexp.reduce(list(logs.values())))
    chances = dict(zip(logs, exact, strict=True))
    random, labels, slots, visits = np.random.default_rng(5), np.zeros(4, int), 1, dict.fromkeys(logs, 0)
    for _ in range(8_000):
        labels, fresh = sweep(rows, labels, np.full((4, slots), penalty), penalty, prior, random)
        slots = len(fresh)
        visits[first_come(labels)] += 1
    assert len(chances) == 15
    assert 0.5 * sum(abs(visits[p] / 8_000 - chance) for p, chance in chances.items()) < 0.03


def test_a_machine_that_fits_draws_rows_and_a_fresh_one_has_its_own_penalty():
    rows = np.tile(np.zeros((1, 2)), (40, 1))
    prior = Prior(np.zeros(2), 1.0, 4.0, np.eye(2), 1e-12)
    penalties = np.zeros((40, 2))
    penalties[:20, 0] = penalties[20:, 1] = 50.0
    labels, fresh = sweep(rows, np.arange(40) % 2, penalties, 1.0, prior, np.random.default_rng(0))
    assert labels[:20].tolist() == [1] * 20 and labels[20:].tolist() == [0] * 20 and not fresh[:2].any()


def test_as_many_clusters_as_rows_find_a_slot():
    rows = 1e3 * np.arange(12.0)[:, None]
    prior = Prior(np.zeros(1), 1.0, 3.0, np.eye(1) * 1e-6, 1e60)
    labels, fresh = sweep(rows, np.zeros(12, int), np.zeros((12, 1)), 0.0, prior, np.random.default_rng(0))
    assert len(set(labels.tolist())) == 12 and fresh[labels].sum() >= 11
