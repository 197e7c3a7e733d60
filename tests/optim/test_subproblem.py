"""The step along a direction and the response of the weights, against grids and numerical derivatives."""

import numpy as np
import pytest

from raymkl.optim.norms import LpNorm
from raymkl.optim.subproblem import line_search, weight_response

CURVED = [1.05, 4 / 3, 1.8, 3.0, 10.0, np.inf]
ALL = [1.0, *CURVED, 2.0]


def response_matrix(norm, s, g, coefficients):
    """The second part of the Hessian, put together from its factor."""
    return weight_response(norm, s, g, coefficients) @ g.T


def random_kernels(rng, n_kernels, n_rows):
    factors = rng.normal(size=(n_kernels, n_rows, n_rows + 1)) * rng.uniform(0.3, 1.5, (n_kernels, 1, 1))
    return np.einsum("mij,mkj->mik", factors, factors)


def quadratic(kernels, a, b):
    return np.array([a @ K @ b for K in kernels])


def random_line(seed, n_kernels=4, n_rows=6, size=1.0):
    """gain, s0, s1, s2 of a direction d of ascent at a random dual point a."""
    rng = np.random.default_rng(seed)
    kernels, a, d = (
        random_kernels(rng, n_kernels, n_rows),
        rng.normal(size=n_rows),
        size * rng.normal(size=n_rows),
    )
    s0, s1, s2 = quadratic(kernels, a, a), 2 * quadratic(kernels, a, d), quadratic(kernels, d, d)
    return s0, s1, s2, rng


def dual_along(norm, gain, s0, s1, s2, t, smoothing=0.0):
    return np.array(
        [ti * gain - 0.5 * norm.dual(s0 + ti * s1 + ti**2 * s2 + smoothing) for ti in np.atleast_1d(t)]
    )


def assert_as_good_as_the_grid(norm, gain, s0, s1, s2, smoothing=0.0, loss=1e-5):
    t = line_search(norm, gain, s0, s1, s2, smoothing)
    assert 0.0 <= t <= 1.0
    grid = dual_along(norm, gain, s0, s1, s2, np.linspace(0, 1, 1001), smoothing)
    assert dual_along(norm, gain, s0, s1, s2, t, smoothing)[0] >= grid.max() - loss * (grid.max() - grid[0])
    return t


@pytest.mark.slow
@pytest.mark.parametrize("p", ALL)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 1.0])
def test_line_search_finds_the_best_step(p, share):
    # The gain is set so that the maximum is at t = share; p = 1 has kinks, where a small error in t costs in
    # first order.
    for seed in range(6):
        s0, s1, s2, _ = random_line(seed)
        norm = LpNorm(p)
        gain = 0.5 * norm.weights(s0 + share * s1 + share**2 * s2) @ (s1 + 2 * share * s2)
        t = assert_as_good_as_the_grid(norm, gain, s0, s1, s2, loss=1e-3 if p == 1 else 1e-5)
        assert t == pytest.approx(share, rel=2e-3)


@pytest.mark.parametrize("p", ALL)
def test_line_search_with_random_gains(p):
    for seed in range(12):
        s0, s1, s2, rng = random_line(seed, size=0.5)
        norm = LpNorm(p)
        slope = 0.5 * norm.weights(s0) @ s1
        gain = slope + rng.uniform(0.05, 1.5) * norm.dual(s2)
        assert_as_good_as_the_grid(norm, gain, s0, s1, s2, loss=1e-3 if p == 1 else 1e-5)


@pytest.mark.parametrize("p", ALL)
def test_line_search_takes_the_full_step_while_the_dual_still_grows(p):
    s0, s1, s2, _ = random_line(20)
    gain = 0.5 * LpNorm(p).weights(s0 + s1 + s2) @ (s1 + 2 * s2) + 1.0
    assert line_search(LpNorm(p), gain, s0, s1, s2) == 1.0


@pytest.mark.parametrize("p", ALL)
def test_line_search_stays_when_the_direction_leads_down(p):
    s0, s1, s2, _ = random_line(21)
    gain = 0.5 * LpNorm(p).weights(s0) @ s1 - 1.0
    assert line_search(LpNorm(p), gain, s0, s1, s2) < 1e-12


@pytest.mark.parametrize("p", ALL)
def test_line_search_from_the_origin(p):
    # At a = 0 the dual is t gain - t^2/2 dual(s2), with its maximum at gain / dual(s2).
    _, _, s2, _ = random_line(22)
    norm, zero = LpNorm(p), np.zeros(4)
    assert line_search(norm, 0.3 * norm.dual(s2), zero, zero, s2) == pytest.approx(0.3, rel=2e-4)


@pytest.mark.parametrize("p", [3.0, np.inf])
def test_line_search_with_smoothing_maximises_the_smoothed_dual(p):
    for seed in range(6):
        s0, s1, s2, _ = random_line(seed, n_rows=4)
        s0[0] = s1[0] = 0.0  # a kernel that enters along the direction
        norm, floor = LpNorm(p), 1e-2
        end = s0 + 0.4 * s1 + 0.16 * s2 + floor
        gain = 0.5 * norm.weights(end) @ (s1 + 0.8 * s2)
        assert assert_as_good_as_the_grid(norm, gain, s0, s1, s2, floor) == pytest.approx(0.4, rel=2e-3)


def numerical_hessian(function, a, step=1e-4):
    n = len(a)
    hessian, unit = np.empty((n, n)), step * np.eye(n)
    for i in range(n):
        for j in range(n):
            corners = [
                function(a + si * unit[i] + sj * unit[j]) * si * sj for si in (1, -1) for sj in (1, -1)
            ]
            hessian[i, j] = sum(corners) / (4 * step**2)
    return hessian


@pytest.mark.parametrize("p", CURVED)
@pytest.mark.parametrize("n_kernels", [1, 2, 5])
def test_weight_response_is_the_rest_of_the_hessian(p, n_kernels):
    rng = np.random.default_rng(n_kernels)
    norm, kernels, a = LpNorm(p), random_kernels(rng, n_kernels, 5), rng.normal(size=5)
    s = quadratic(kernels, a, a)
    hessian = numerical_hessian(lambda x: 0.5 * norm.dual(quadratic(kernels, x, x)), a)
    at_theta = np.einsum("m,mij->ij", norm.weights(s), kernels)
    response = response_matrix(norm, s, np.stack([K @ a for K in kernels], axis=1), np.eye(n_kernels))
    assert np.allclose(response, hessian - at_theta, atol=1e-5 * np.abs(hessian).max())
    # The dual penalty is convex, so the whole Hessian must not have a negative eigenvalue.
    assert np.linalg.eigvalsh(at_theta + response).min() >= -1e-9 * np.abs(hessian).max()


@pytest.mark.parametrize("p", CURVED)
def test_weight_response_of_kernels_that_share_basis_functions(p):
    # Kernels are sums of basis functions: the answer must be that of the kernels themselves, on a part of the
    # rows.
    rng = np.random.default_rng(7)
    basis, coefficients, a, rows = (
        random_kernels(rng, 3, 6),
        rng.uniform(0, 1, (4, 3)),
        rng.normal(size=6),
        np.array([0, 2, 5]),
    )
    kernels = np.einsum("mr,rij->mij", coefficients, basis)
    s = quadratic(kernels, a, a)
    plain = response_matrix(LpNorm(p), s, np.stack([K @ a for K in kernels], axis=1)[rows], np.eye(4))
    shared = response_matrix(LpNorm(p), s, np.stack([K @ a for K in basis], axis=1)[rows], coefficients)
    assert shared.shape == (3, 3) and np.allclose(shared, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_weights_that_do_not_follow_have_no_response(p):
    assert weight_response(LpNorm(p), np.ones(2), np.ones((3, 2)), np.eye(2)) is None


@pytest.mark.parametrize("p", [1.05, 4 / 3, 1.8])
def test_weight_response_of_a_kernel_that_is_not_used_yet(p):
    # s_m = 0 means K_m a = 0; it must not disturb the others. (p > 2 asks for an infinite weight; the engine
    # smooths s.)
    g = np.array([[1.0, 0.0, 0.5], [-2.0, 0.0, 1.0]])
    s = np.array([1.5, 0.0, 0.7])
    with_zero = response_matrix(LpNorm(p), s, g, np.eye(3))
    without = response_matrix(LpNorm(p), s[[0, 2]], g[:, [0, 2]], np.eye(2))
    assert np.allclose(with_zero, without, rtol=1e-9)
