"""Posteriors, densities and the bound of a mixture against slow formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.optim.mixture import posterior as mix
from tests.optim.mixture import reference as slow

D = 3
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(60, D)) @ np.diag([1.0, 3.0, 0.2]) + [5.0, 0.0, -2.0]
ROOT = RANDOM.normal(size=(D, D))
PRIOR = mix.Prior(np.array([4.0, 1.0, -1.0]), 0.3, 5.5, ROOT @ ROOT.T + 0.5 * np.eye(D), 0.7)


def shares(K, seed=0):
    values = np.random.default_rng(seed).dirichlet(np.full(K, 0.3), size=len(X))
    return values * np.random.default_rng(seed + 1).uniform(0.5, 2.0, size=(len(X), 1))


def posterior(K, seed=0):
    R = shares(K, seed)
    return R, mix.posterior_of(mix.statistics_of(X - PRIOR.mean, R), PRIOR)


def components(q):
    return list(zip(PRIOR.mean + q.shifts, q.mean_precision, q.degrees_of_freedom, q.scatter, strict=True))


@pytest.mark.parametrize("K", [1, 2, 5])
def test_posteriors_are_the_conjugate_ones(K):
    R, q = posterior(K)
    for k, (mean, tau, nu, S) in enumerate(components(q)):
        r = R[:, k]
        assert tau == pytest.approx(0.3 + r.sum()) and nu == pytest.approx(5.5 + r.sum())
        np.testing.assert_allclose(mean, (0.3 * PRIOR.mean + r @ X) / tau)
        scatter = (
            PRIOR.scatter
            + 0.3 * np.outer(PRIOR.mean, PRIOR.mean)
            + (X.T * r) @ X
            - tau * np.outer(mean, mean)
        )
        np.testing.assert_allclose(S, scatter, atol=1e-9)
        assert q.sticks[0, k] == pytest.approx(1 + r.sum())
        assert q.sticks[1, k] == pytest.approx(0.7 + R[:, k + 1 :].sum())


@pytest.mark.parametrize("K", [1, 4])
def test_densities_are_those_of_the_formulas(K):
    _, q = posterior(K)
    U = X[:7] - PRIOR.mean
    expected = [
        [slow.expected_log_density(x, *parts) for parts in components(q)] for x in X[:7]
    ] + slow.expected_log_weights(q.sticks)
    np.testing.assert_allclose(mix.expected_logs(q).logs(U), expected, rtol=1e-10)
    t = [[slow.student(x, *parts) for parts in components(q)] for x in X[:7]] + np.log(
        slow.weights(q.sticks.copy())
    )
    np.testing.assert_allclose(mix.predictive(q).logs(U), t, rtol=1e-9)
    assert mix.expected_weights(q.sticks).sum() == pytest.approx(1.0, abs=1e-12)


def test_divergence_is_that_of_the_formulas():
    _, q = posterior(3)
    prior = (PRIOR.mean, PRIOR.mean_precision, PRIOR.degrees_of_freedom, PRIOR.scatter)
    exact = slow.kl_of_sticks(q.sticks, 0.7) + sum(
        slow.kl_of_component(*parts, *prior) for parts in components(q)
    )
    assert mix.divergence(q, PRIOR) == pytest.approx(exact, rel=1e-6)
    nobody = mix.Statistics(np.zeros(3), np.zeros((3, D)), np.zeros((3, D, D)))
    assert mix.divergence(mix.posterior_of(nobody, PRIOR), PRIOR) == pytest.approx(0.0, abs=1e-10)


def entropy(R):
    """Of shares (n, K) whose rows sum to the rows' weights."""
    v = R.sum(axis=1, keepdims=True)
    r = R / v
    return -np.sum(v * np.where(r > 0, r * np.log(np.where(r > 0, r, 1.0)), 0.0))


def elbo(R, q):
    logs = mix.expected_logs(q).logs(X - PRIOR.mean)
    return float(np.sum(R * logs) + entropy(R) - mix.divergence(q, PRIOR))


@pytest.mark.parametrize("K", [1, 2, 6])
def test_at_the_best_posteriors_the_bound_is_evidence_sticks_and_entropy(K):
    """What merges go by."""
    R, q = posterior(K, seed=4)
    statistics = mix.statistics_of(X - PRIOR.mean, R)
    short = mix.evidence(statistics, PRIOR).sum() + mix.stick_term(statistics.counts, 0.7) + entropy(R)
    assert elbo(R, q) == pytest.approx(short, rel=1e-9)


def test_posteriors_and_shares_at_their_best_raise_the_bound():
    R, q = posterior(4, seed=9)
    v = R.sum(axis=1)
    values = [elbo(R, q)]
    for _ in range(5):
        r, logs = mix.shares_of(mix.expected_logs(q).logs(X - PRIOR.mean))
        R = r * v[:, None]
        values.append(elbo(R, q))
        assert values[-1] == pytest.approx(float(v @ logs) - mix.divergence(q, PRIOR))
        q = mix.posterior_of(mix.statistics_of(X - PRIOR.mean, R), PRIOR)
        values.append(elbo(R, q))
    assert np.all(np.diff(values) > -1e-9)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=6), st.sampled_from([0.01, 1.0, 30.0]))
def test_clusters_change_their_order_only_where_that_helps(counts, concentration):
    counts = np.array(counts)
    order = mix.best_order(counts, concentration)
    if order is not None:
        assert mix.stick_term(counts[order], concentration) > mix.stick_term(counts, concentration)
        assert np.all(np.diff(counts[order]) <= 0)
    elif concentration <= 1 and len(counts) > 1:
        best = mix.stick_term(np.sort(counts)[::-1], concentration)
        assert best <= mix.stick_term(counts, concentration) + 1e-9 * abs(best)


def test_shares_of_logs_far_apart():
    shares, logs = mix.shares_of(np.array([[-1e5, -np.inf, -1e5 - 800.0], [3.0, 3.0, -np.inf]]))
    np.testing.assert_allclose(shares, [[1, 0, 0], [0.5, 0.5, 0]])
    np.testing.assert_allclose(logs, [-1e5, 3 + np.log(2)])
