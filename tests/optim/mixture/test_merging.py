"""Merges against brute force: the bound of explicit responsibilities, before and after."""

from itertools import combinations

import numpy as np
import pytest

from raymkl.optim.mixture.merging import EMPTY, Costs, Merge, choose_merges, merged_statistics
from raymkl.optim.mixture.posterior import Prior, evidence, statistics_of, stick_term

PRIOR = Prior(np.zeros(2), 0.1, 4.0, 0.3 * np.eye(2), 1.0)


class Case:
    """Rows in clusters, with losses of every machine on every row."""

    def __init__(self, seed, K=5, beta=1.5, machines=True):
        random = np.random.default_rng(seed)
        centers = 2.5 * random.normal(size=(3, 2))
        self.U = centers[random.integers(3, size=70)] + 0.5 * random.normal(size=(70, 2))
        self.R = random.dirichlet(np.full(K, 0.15), size=70) * random.uniform(0.5, 2.0, size=(70, 1))
        self.losses, self.norms, self.beta = (
            random.exponential(0.7, size=(70, K)),
            random.exponential(2.0, size=K),
            beta,
        )
        self.machines = machines
        self.asked = []

    def bound(self, R, machine):
        """machine : (K',) which one every cluster has."""
        v = R.sum(axis=1, keepdims=True)
        r = R / v
        entropy = -np.sum(v * np.where(r > 0, r * np.log(np.where(r > 0, r, 1.0)), 0.0))
        statistics = statistics_of(self.U, R)
        value = (
            evidence(statistics, PRIOR).sum() + stick_term(statistics.counts, PRIOR.concentration) + entropy
        )
        return value - (
            self.beta * np.sum(R * self.losses[:, machine]) + self.norms[machine].sum()
            if self.machines
            else 0.0
        )

    def joined(self, R, machine, i, j, chosen):
        R, machine = R.copy(), np.array(machine)
        R[:, i] += R[:, j]
        machine[i] = chosen
        return np.delete(R, j, axis=1), np.delete(machine, j)

    def entropies(self, pairs):
        out = []
        v = self.R.sum(axis=1)
        for i, j in pairs:
            r, s = self.R[:, i] / v, self.R[:, j] / v
            terms = (
                [(x * np.log(x) if x > 0 else 0.0) for x in (r + s)],
                [(x * np.log(x) if x > 0 else 0.0) for x in r],
            )
            out.append(
                -v @ (np.array(terms[0]) - terms[1] - np.array([x * np.log(x) if x > 0 else 0.0 for x in s]))
            )
        return np.array(out)

    def cross(self, pairs):
        self.asked.append(pairs)
        return np.array([self.beta * (self.R[:, j] @ self.losses[:, i]) for i, j in pairs])

    def choose(self):
        costs = Costs(self.beta * np.sum(self.R * self.losses, axis=0), self.norms) if self.machines else None
        return choose_merges(statistics_of(self.U, self.R), PRIOR, costs, self.entropies, self.cross)


@pytest.mark.parametrize("machines", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_the_first_merge_is_the_best_of_all(seed, machines):
    case = Case(seed, machines=machines)
    K = case.R.shape[1]
    before = case.bound(case.R, np.arange(K))
    gains = {
        (i, j, chosen): case.bound(*case.joined(case.R, np.arange(K), i, j, chosen)) - before
        for i, j in combinations(range(K), 2)
        for chosen in ((i, j) if machines else (i,))
    }
    best = max(gains, key=gains.get)
    merges = case.choose()
    assert bool(merges) == (gains[best] > 0)
    if merges:
        found = (merges[0].kept, merges[0].gone, merges[0].machine if machines else merges[0].kept)
        assert gains[found] == pytest.approx(gains[best], abs=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_several_merges_are_disjoint_and_raise_the_bound(seed):
    case = Case(seed, K=9)
    merges = case.choose()
    touched = [k for merge in merges for k in (merge.kept, merge.gone)]
    assert len(touched) == len(set(touched))
    statistics, left, machine = merged_statistics(statistics_of(case.U, case.R), merges)
    R = case.R.copy()
    for merge in merges:
        R[:, merge.kept] += R[:, merge.gone]
    R = R[:, left]
    np.testing.assert_allclose(statistics_of(case.U, R).squares, statistics.squares, atol=1e-10)
    if merges:
        assert case.bound(R, machine) > case.bound(case.R, np.arange(9))


def test_losses_are_asked_for_few_pairs():
    """Three groups far apart, each of them in three pieces: no loss could make up for a merge of two
    groups.
    """
    case, group = Case(0, K=9), np.arange(70) % 3
    case.U = 100.0 * np.eye(3, 2)[group] + np.random.default_rng(0).normal(size=(70, 2))
    case.R = np.eye(9)[3 * group + np.arange(70) // 3 % 3]
    merges = case.choose()
    (pairs,) = case.asked
    assert len(merges) == 3 and len(pairs) == 2 * 9
    assert np.all(pairs[:, 0] // 3 == pairs[:, 1] // 3)


def test_empty_clusters_go_at_once():
    case = Case(1, K=6)
    case.R[:, [0, 3]] = 0.0
    case.R[:, 5] *= 1e-30
    largest = int(case.R.sum(axis=0).argmax())
    merges = case.choose()
    assert merges == [Merge(largest, k, largest) for k in (0, 3, 5)]
    statistics, left, machine = merged_statistics(statistics_of(case.U, case.R), merges)
    assert left.tolist() == [1, 2, 4] and machine.tolist() == [1, 2, 4] and np.all(statistics.counts > EMPTY)
    assert case.bound(case.R[:, left], machine) >= case.bound(case.R, np.arange(6))


def test_one_cluster_has_nothing_to_merge():
    assert Case(0, K=1).choose() == []
