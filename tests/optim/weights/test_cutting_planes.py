"""Cutting planes for the weights against programs stated here, independently of the package."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from raymkl.optim.norms import LpNorm, weight_norm
from raymkl.optim.weights.cutting_planes import PATIENCE, CuttingPlanes

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*being approximated"
)  # cvxpy on exponents that are not small fractions

SHAPES = [(2, 1), (2, 7), (3, 30), (5, 2), (8, 16), (20, 1), (20, 12), (20, 30)]
BALLS = [1.05, 4 / 3, 1.8]


def random_cuts(rng, n_kernels, n_cuts):
    """Cuts of random dual points: S = 1/2 a'K_m a of random kernels, L scaled so that the objective is
    positive.
    """
    factors = rng.normal(size=(n_kernels, 6, 3)) * rng.uniform(0.3, 2, (n_kernels, 1, 1))
    points = rng.normal(size=(n_cuts, 6))
    slopes = 0.5 * np.sum(np.einsum("ri,mij->rmj", points, factors) ** 2, axis=2)
    return slopes.sum(axis=1) + rng.uniform(0, 1, n_cuts), slopes


def uniform_cuts(rng, n_kernels, n_cuts):
    """Cuts with no structure; the best value may have either sign."""
    return rng.uniform(0, 2, n_cuts), rng.uniform(0, 3, (n_cuts, n_kernels))


def planes_with(p, constants, slopes):
    planes = CuttingPlanes(LpNorm(p), slopes.shape[1])
    for constant, slope in zip(constants, slopes, strict=True):
        planes.add(constant, slope)
    return planes


def best_linear(constants, slopes):
    """min_theta max_r constants_r - slopes_r theta over the simplex; variables (eta+, eta-, theta)."""
    n_cuts, n_kernels = slopes.shape
    result = linprog(
        np.r_[1, -1, np.zeros(n_kernels)],
        A_ub=np.c_[-np.ones(n_cuts), np.ones(n_cuts), -slopes],
        b_ub=-constants,
        A_eq=np.r_[0, 0, np.ones(n_kernels)][None],
        b_eq=[1],
    )
    return result.fun


def best_in_ball(constants, slopes, q):
    theta = cp.Variable(slopes.shape[1], nonneg=True)
    return cp.Problem(cp.Minimize(cp.max(constants - slopes @ theta)), [cp.pnorm(theta, q) <= 1]).solve(
        solver=cp.CLARABEL
    )


def naive_largest(constants, slopes, theta):
    return max(
        c - sum(s * t for s, t in zip(slope, theta, strict=True))
        for c, slope in zip(constants, slopes, strict=True)
    )


def assert_feasible(theta, p):
    assert np.isfinite(theta).all() and np.all(theta >= 0)
    q = weight_norm(p)
    assert theta.max() <= 1 + 1e-12 if np.isinf(q) else np.sum(theta**q) <= 1 + 1e-9


@pytest.mark.parametrize("cuts", [random_cuts, uniform_cuts])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sparse_weights_are_the_linear_program(shape, cuts):
    constants, slopes = cuts(np.random.default_rng(sum(shape)), *shape)
    theta = planes_with(1.0, constants, slopes).step()
    assert_feasible(theta, 1.0)
    assert theta.sum() == pytest.approx(1.0)
    assert naive_largest(constants, slopes, theta) == pytest.approx(
        best_linear(constants, slopes), rel=1e-6, abs=1e-7
    )


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [random_cuts, uniform_cuts])
@pytest.mark.parametrize("p", BALLS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_step_is_as_good_as_the_power_norm_program(shape, p, cuts):
    constants, slopes = cuts(np.random.default_rng(sum(shape)), *shape)
    theta = planes_with(p, constants, slopes).step()
    assert_feasible(theta, p)
    best = best_in_ball(constants, slopes, weight_norm(p))
    assert naive_largest(constants, slopes, theta) <= best + 1e-4 * max(
        abs(best), np.abs(constants).max() * 1e-3
    )


@pytest.mark.parametrize("p", BALLS)
def test_cuts_that_arrive_one_by_one(p):
    # The way the engine uses it: each step starts from the last theta.
    constants, slopes = random_cuts(np.random.default_rng(5), 6, 15)
    planes = CuttingPlanes(LpNorm(p), 6)
    for r in range(15):
        planes.add(constants[r], slopes[r])
        theta = planes.step()
        assert_feasible(theta, p)
    best = best_in_ball(constants, slopes, weight_norm(p))
    assert naive_largest(constants, slopes, theta) <= best + 1e-4 * abs(best)


@pytest.mark.parametrize("p", [1.0, *BALLS])
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_unit_of_the_objective_does_not_matter(p, scale):
    constants, slopes = random_cuts(np.random.default_rng(6), 5, 8)
    plain, scaled = planes_with(p, constants, slopes), planes_with(p, constants * scale, slopes * scale)
    assert np.allclose(plain.step(), scaled.step(), atol=1e-4)


def test_plain_sum_has_weights_one():
    constants, slopes = random_cuts(np.random.default_rng(7), 4, 6)
    assert np.array_equal(planes_with(2.0, constants, slopes).step(), np.ones(4))


@pytest.mark.parametrize("p", [1.0, *BALLS])
def test_one_kernel_has_weight_one(p):
    assert planes_with(p, np.array([1.0, 2.0]), np.array([[0.5], [0.7]])).step() == pytest.approx(
        [1.0], abs=1e-6
    )


@pytest.mark.parametrize("p", BALLS)
def test_one_cut_gives_the_analytic_weights(p):
    s = np.array([0.5, 2.0, 1.0, 0.1])
    theta = planes_with(p, np.array([5.0]), s[None]).step()
    assert theta @ s == pytest.approx(LpNorm(p).dual(s), rel=1e-5)


@pytest.mark.parametrize("p", [1.0, *BALLS])
def test_a_useless_kernel_and_an_empty_cut_do_no_harm(p):
    # Kernel 2 is zero everywhere, and the dual point a = 0 gives the cut eta >= 0.
    planes = planes_with(
        p, np.array([0.0, 3.0, 3.2]), np.array([[0.0, 0.0, 0.0], [1.0, 0.2, 0.0], [0.3, 1.1, 0.0]])
    )
    theta = planes.step()
    assert_feasible(theta, p)
    assert theta[2] ** weight_norm(p) < 1e-3  # its share of the ball


@pytest.mark.parametrize("p", [1.0, *BALLS])
def test_inactive_cuts_are_dropped_and_the_optimum_stays(p):
    rng = np.random.default_rng(8)
    constants, slopes = random_cuts(rng, 4, 5)
    weak = constants.min() - 10 - rng.uniform(0, 1, 6)
    everything = np.r_[constants, weak], np.vstack([slopes, rng.uniform(0, 1, (6, 4))])
    best = best_linear(*everything) if p == 1 else best_in_ball(*everything, weight_norm(p))
    planes = planes_with(p, *everything)
    for _ in range(PATIENCE - 1):
        planes.step()
    assert len(planes.constants) == 11  # patience not over yet
    for _ in range(PATIENCE + 2):
        theta = planes.step()
        # Cuts that hold the optimum must survive: the value over ALL cuts stays the best one.
        assert naive_largest(*everything, theta) == pytest.approx(best, rel=1e-4)
    assert 1 <= len(planes.constants) <= 5
    assert len(planes.constants) == len(planes.slopes) == len(planes.slack_for)
    assert planes.constants.min() >= constants.min()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 11))
@pytest.mark.parametrize("p", [1.0, *BALLS])
def test_cuts_that_hold_the_optimum_are_never_dropped(p, seed):
    # The weights are exact to a few 1e-6 only, so cuts that meet at the optimum do not have equal values to
    # more than that.
    cuts = random_cuts(np.random.default_rng(seed), 8, 20)
    best = best_linear(*cuts) if p == 1 else best_in_ball(*cuts, weight_norm(p))
    planes = planes_with(p, *cuts)
    for _ in range(PATIENCE + 3):
        theta = planes.step()
    assert len(planes.constants) < 20
    assert naive_largest(*cuts, theta) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0])
def test_largest_cut(p):
    constants, slopes = random_cuts(np.random.default_rng(9), 3, 5)
    planes = planes_with(p, constants, slopes)
    assert planes.largest_cut(np.full(3, 0.2)) == pytest.approx(
        naive_largest(constants, slopes, np.full(3, 0.2))
    )
    theta = planes.step()
    assert planes.largest_cut(theta) <= planes.largest_cut(LpNorm(p).start(3)) + 1e-12


def test_negative_round_off_in_a_cut_becomes_zero():
    planes = CuttingPlanes(LpNorm(1.0), 2)
    planes.add(1.0, np.array([-1e-17, 0.5]))
    assert np.array_equal(planes.slopes, [[0.0, 0.5]])
