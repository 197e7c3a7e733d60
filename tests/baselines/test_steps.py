"""The parts of the baselines: intercept, directions, second derivatives, the quadratic program."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl import kernels
from raymkl.baselines.hessian import SimplexProgram, hessian
from raymkl.baselines.simple import descent_direction, longest_step
from raymkl.baselines.svm import WeightedSVM, best_intercept, cleaned
from tests.reference import gram, noisy_problem

BANK = [*kernels.rbf([0.02, 0.1, 0.5]), kernels.Polynomial(degree=2, coef0=1.0), kernels.Linear()]


@pytest.fixture
def svm():
    X, y = noisy_problem(n=120)
    return WeightedSVM(
        np.ascontiguousarray(np.moveaxis(gram(BANK, X), 2, 0)), y.astype(float), C=1.0, tol=1e-8
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.sampled_from([-1.0, 1.0])), min_size=1, max_size=30))
def test_best_intercept_by_trying_all(rows):
    f, y = np.array(rows).T
    b, loss = best_intercept(f, y)
    tried = [np.maximum(0, 1 - y * (f + other)).sum() for other in y - f]
    assert np.isclose(loss, min(tried), atol=1e-9)
    assert np.isclose(np.maximum(0, 1 - y * (f + b)).sum(), loss)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5)), min_size=2, max_size=12).filter(
        lambda rows: max(r[0] for r in rows) > 0.01
    )
)
def test_directions_go_down_and_stay_on_the_simplex(rows):
    weights, gradient = np.array(rows).T
    weights = cleaned(weights)
    direction = descent_direction(weights, gradient)
    assert abs(direction.sum()) < 1e-9 and gradient @ direction <= 1e-9
    if (direction < 0).any():
        reach, first = longest_step(weights, direction)
        moved = weights + reach * direction
        assert moved.min() > -1e-9 and abs(moved[first]) < 1e-9 and np.isclose(moved.sum(), 1.0)


def test_value_gradient_and_hessian_are_those_of_the_svm(svm):
    """Against differences of optimal values; the second derivatives hold as long as the free dual variables
    stay free.
    """
    weights = np.full(len(BANK), 0.2)
    point = svm.solve(weights)
    certificate = svm.certify(point)
    gradient, second = -0.5 * certificate.terms, hessian(svm, point, certificate.products)
    assert np.linalg.eigvalsh(second).min() > -1e-6 * np.abs(second).max()
    for m in range(len(BANK)):
        step = np.zeros(len(BANK))
        step[m] = 1e-4
        up, down = svm.solve(weights + step), svm.solve(weights - step)
        assert np.isclose((up.value - down.value) / 2e-4, gradient[m], rtol=1e-3)
        slopes = [-0.5 * svm.certify(end).terms for end in (up, down)]
        np.testing.assert_allclose(
            (slopes[0] - slopes[1]) / 2e-4, second[m], rtol=0.1, atol=0.02 * np.abs(second).max()
        )
    assert svm.n_solved == 1 + 2 * len(BANK)


def test_hessian_without_free_dual_variables(svm):
    svm.C = 1e-9
    point = svm.solve(np.full(len(BANK), 0.2))
    point.a[:] = np.sign(point.a) * svm.C
    np.testing.assert_array_equal(hessian(svm, point, svm.certify(point).products), 0.0)


def test_sharper_until_it_may_not(svm):
    svm.precision = 1e-3
    rough = svm.certify(svm.solve(np.full(len(BANK), 0.2)))
    assert svm.refined(rough) and svm.precision == pytest.approx(1e-4)
    while svm.sharpen():
        pass
    assert svm.precision == 1e-8 and not svm.refined(rough)
    assert svm.certify(svm.solve(np.full(len(BANK), 0.2))).svm_gap < rough.svm_gap


@pytest.mark.parametrize("M", [1, 2, 7, 30])
def test_quadratic_programs_in_a_row(M):
    """Set up once; every later one is an update, and as right as the first."""
    rng, program = np.random.default_rng(M), SimplexProgram(M)
    for _ in range(4):
        part = rng.normal(size=(M, max(M // 2, 1)))  # not of full rank
        H, g, d = part @ part.T, 10 * rng.normal(size=M), cleaned(rng.random(M))
        solver = program._solver
        z = program.solve(H, g, d)
        assert solver is None or program._solver is solver
        assert z.min() > -1e-5 and abs(z.sum() - 1) < 1e-5
        x = cp.Variable(M)
        problem = cp.Problem(
            cp.Minimize(cp.sum_squares(part.T @ (x - d)) / 2 + g @ (x - d)), [x >= 0, cp.sum(x) == 1]
        )
        problem.solve(solver=cp.CLARABEL)
        z = cleaned(z)
        value = 0.5 * (z - d) @ H @ (z - d) + g @ (z - d)
        assert value <= problem.value + 1e-4 * max(1.0, abs(problem.value))


def test_hessian_of_matrices_that_are_a_little_indefinite(svm):
    """Ready-made matrices come with round-off of their own."""
    noise = np.random.default_rng(0).normal(size=svm.matrices.shape)
    svm.matrices += 1e-4 * (noise + np.swapaxes(noise, 1, 2))
    weights = np.zeros(len(BANK))
    weights[-1] = 1.0  # the linear kernel has rank six
    point = svm.solve(weights)
    assert np.isfinite(hessian(svm, point, svm.certify(point).products)).all()


def test_quadratic_program_that_begins_without_curvature():
    program, g, d = SimplexProgram(3), np.array([1.0, -2.0, 0.5]), np.full(3, 1 / 3)
    np.testing.assert_allclose(program.solve(np.zeros((3, 3)), g, d), [0, 1, 0], atol=1e-5)
    H = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    np.testing.assert_allclose(program.solve(H, g, d), SimplexProgram(3).solve(H, g, d), atol=1e-5)
