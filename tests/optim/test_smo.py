"""The compiled solver against OSQP and CVXPY."""

import cvxpy as cp
import numpy as np
import osqp
import pytest
import scipy.sparse as sp

from raymkl.optim.smo import smo
from raymkl.optim.subproblem import solve

TOLERANCE = 1e-9
pytestmark = pytest.mark.filterwarnings("ignore:The default value of raise_error")  # osqp
KINDS = ["full", "low", "zero"]


def random_problem(kind, size, seed, fixed=0.0):
    """Q, residual, feasible start, box. fixed : share of variables whose box is a point."""
    rng = np.random.default_rng(seed)
    rank = {"full": size + 5, "low": max(1, size // 10), "zero": 1}[kind]
    factor = rng.normal(size=(size, rank)) / np.sqrt(rank)
    Q = factor @ factor.T * (kind != "zero")
    y, bound = np.where(np.arange(size) % 2, -1.0, 1.0), rng.uniform(0.5, 2, size)
    lower, upper = np.minimum(0, y * bound), np.maximum(0, y * bound)
    x = lower + (upper - lower) * rng.choice([0.0, 1.0, 0.3, 0.7], size)
    point = rng.random(size) < fixed
    lower[point] = upper[point] = x[point]
    return Q, y - 0.5 * rng.normal(size=size), x, lower, upper


def by_osqp(Q, residual, x, lower, upper, tolerance):
    """The same as `solve` by another method: new variables (q,) and the violation left."""
    n = len(x)
    constraints = sp.vstack([sp.csc_matrix(np.ones((1, n))), sp.identity(n)]).tocsc()
    problem = osqp.OSQP()
    problem.setup(
        sp.csc_matrix(np.triu((Q + Q.T) / 2)),
        -np.asarray(residual, float),
        constraints,
        np.concatenate([[0.0], lower - x]),
        np.concatenate([[0.0], upper - x]),
        eps_abs=min(tolerance, 1e-6) * 1e-2,
        eps_rel=0.0,
        max_iter=200_000,
        polishing=True,
        verbose=False,
    )
    solution = np.clip(x + problem.solve().x, lower, upper)
    # An interior-point solution stops short of its bounds by its tolerance; those variables are meant to be
    # there.
    near = 1e-9 * np.maximum(upper - lower, 1e-300)
    solution = np.where(solution - lower <= near, lower, np.where(upper - solution <= near, upper, solution))
    gradient = Q @ (solution - x) - residual
    up, low = solution < upper, solution > lower
    violation = max(0.0, np.max(-gradient[up], initial=-np.inf) - np.min(-gradient[low], initial=np.inf))
    return solution, float(violation)


def objective(Q, residual, d):
    return residual @ d - 0.5 * d @ Q @ d


def by_cvxpy(Q, residual, x, lower, upper):
    """Largest objective, and the size of its linear and quadratic parts as a scale for comparisons."""
    values, vectors = np.linalg.eigh(Q)
    root = (vectors * np.sqrt(np.maximum(values, 0))).T
    d = cp.Variable(len(x))
    constraints = [x + d >= lower, x + d <= upper, cp.sum(d) == 0]
    return cp.Problem(cp.Maximize(residual @ d - 0.5 * cp.sum_squares(root @ d)), constraints).solve(
        solver=cp.CLARABEL
    )


def violation_of(Q, residual, x, solution, lower, upper):
    slope = residual - Q @ (solution - x)
    grow, shrink = slope[solution < upper], slope[solution > lower]
    return max(0.0, grow.max() - shrink.min()) if len(grow) and len(shrink) else 0.0


def assert_feasible(solution, x, lower, upper, slack=0.0):
    assert np.all(solution >= lower - slack) and np.all(solution <= upper + slack)
    assert solution.sum() == pytest.approx(x.sum(), abs=1e-9 * len(x) + slack)


@pytest.mark.parametrize("fixed", [0.0, 0.3])
@pytest.mark.parametrize("size", [2, 20, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_smo_agrees_with_cvxpy(kind, size, fixed):
    problem = random_problem(kind, size, seed=size, fixed=fixed)
    Q, residual, x, lower, upper = problem
    solution, violation = solve(*problem, TOLERANCE)
    assert_feasible(solution, x, lower, upper)
    assert violation <= TOLERANCE
    assert (
        violation_of(*problem[:3], solution, lower, upper) <= 1e-7
    )  # recomputed, so round-off has no place to hide
    assert objective(Q, residual, solution - x) == pytest.approx(by_cvxpy(*problem), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("fixed", [0.0, 0.3])
@pytest.mark.parametrize("size", [2, 20, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_smo_agrees_with_osqp(kind, size, fixed):
    problem = random_problem(kind, size, seed=size + 1, fixed=fixed)
    Q, residual, x, lower, upper = problem
    solution, _ = solve(*problem, TOLERANCE)
    other, _ = by_osqp(*problem, TOLERANCE)
    assert_feasible(other, x, lower, upper, slack=1e-7)
    assert objective(Q, residual, solution - x) == pytest.approx(
        objective(Q, residual, other - x), rel=1e-6, abs=1e-7
    )


@pytest.mark.parametrize("size", [2, 20, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_osqp_reports_that_its_solution_is_optimal(kind, size):
    problem = random_problem(kind, size, seed=size + 2)
    _, violation = by_osqp(*problem, 1e-6)
    assert violation <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["lower", "upper", "mixed"])
def test_start_with_all_variables_at_bounds(kind, end):
    Q, residual, x, lower, upper = random_problem(kind, 30, seed=3)
    x = {"lower": lower, "upper": upper, "mixed": np.where(np.arange(30) % 3, lower, upper)}[end].copy()
    solution, violation = solve(Q, residual, x, lower, upper, TOLERANCE)
    assert_feasible(solution, x, lower, upper)
    assert violation <= TOLERANCE
    assert objective(Q, residual, solution - x) == pytest.approx(
        by_cvxpy(Q, residual, x, lower, upper), rel=1e-6, abs=1e-7
    )


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_without_room_leave_everything(kind):
    Q, residual, x, _, _ = random_problem(kind, 10, seed=4)
    solution, violation = solve(Q, residual, x, x.copy(), x.copy(), TOLERANCE)
    assert np.array_equal(solution, x) and violation == 0.0


@pytest.mark.parametrize("side", ["grow", "shrink"])
def test_a_side_that_is_empty_leaves_everything(side):
    # Every variable may grow but none may shrink, or the reverse: the sum constraint allows no move.
    Q, residual, _, lower, upper = random_problem("full", 10, seed=5)
    x = (lower if side == "grow" else upper).copy()
    solution, violation = solve(Q, residual, x, lower, upper, TOLERANCE)
    assert np.array_equal(solution, x) and violation == 0.0


def test_two_variables_by_hand():
    # max 2 d1 - 1/2 d'd with d2 = -d1: d1 = 1 inside the box, then cut off by the box of the second variable.
    Q, residual, x = np.eye(2), np.array([2.0, 0.0]), np.zeros(2)
    wide, _ = solve(Q, residual, x, np.full(2, -5.0), np.full(2, 5.0), TOLERANCE)
    tight, _ = solve(Q, residual, x, np.array([-5.0, -0.25]), np.full(2, 5.0), TOLERANCE)
    assert np.allclose(wide, [1.0, -1.0]) and np.array_equal(tight, [0.25, -0.25])


def test_two_variables_need_one_exact_move():
    # Curvature along (1, -1) is 2 + 1 - 2 * 0.5 = 2, the slope 2: one move of length 1.
    Q, x = np.array([[2.0, 0.5], [0.5, 1.0]]), np.zeros(2)
    steps, violation = smo(Q, np.array([-2.0, 0.0]), x, np.full(2, -5.0), np.full(2, 5.0), TOLERANCE, 100)
    assert steps == 1 and violation <= TOLERANCE and np.allclose(x, [1.0, -1.0], rtol=1e-14)


@pytest.mark.parametrize("bound", [1.0, 100.0])
@pytest.mark.parametrize("spread", [1e4, 1e7])
def test_badly_conditioned_problems(spread, bound):
    # Moving pairs alone zigzags here; whatever helps it along must keep the constraints and end at the
    # optimum.
    rng = np.random.default_rng(13)
    vectors = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    Q = (vectors * np.geomspace(1e2 / spread, 1e2, 40)) @ vectors.T
    Q = (Q + Q.T) / 2
    y, x = np.where(np.arange(40) % 2, -1.0, 1.0), np.zeros(40)
    lower, upper = np.minimum(0, bound * y), np.maximum(0, bound * y)
    solution, violation = solve(Q, y, x, lower, upper, 1e-7)
    assert_feasible(solution, x, lower, upper)
    assert violation <= 1e-7 and violation_of(Q, y, x, solution, lower, upper) <= 1e-6
    assert objective(Q, y, solution) == pytest.approx(by_cvxpy(Q, y, x, lower, upper), rel=1e-6)


@pytest.mark.parametrize("method", [solve, by_osqp])
def test_a_solution_is_kept_when_started_from_it(method):
    Q, residual, x, lower, upper = random_problem("full", 40, seed=6)
    solution, _ = method(Q, residual, x, lower, upper, TOLERANCE)
    again, _ = method(Q, residual - Q @ (solution - x), solution, lower, upper, TOLERANCE)
    assert np.allclose(again, solution, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_twice_and_inputs_untouched(kind):
    problem = random_problem(kind, 100, seed=7)
    copies = [part.copy() for part in problem]
    first, first_violation = solve(*problem, 1e-6)
    second, second_violation = solve(*problem, 1e-6)
    assert first.tobytes() == second.tobytes() and first_violation == second_violation
    assert all(np.array_equal(part, copy) for part, copy in zip(problem, copies, strict=True))


def test_every_pair_improves_the_objective():
    Q, residual, x, lower, upper = random_problem("low", 50, seed=8)
    values = [
        objective(Q, residual, solve(Q, residual, x, lower, upper, TOLERANCE, max_steps=n)[0] - x)
        for n in range(40)
    ]
    assert values[0] == 0.0 and np.all(np.diff(values) >= -1e-12) and values[-1] > 0


def test_smo_leaves_the_gradient_at_the_solution():
    Q, residual, x, lower, upper = random_problem("full", 30, seed=9)
    gradient, solution = -residual, x.copy()
    steps, violation = smo(Q, gradient, solution, lower, upper, 1e-6, 100_000)
    assert 0 < steps < 100_000 and violation <= 1e-6
    assert np.allclose(gradient, Q @ (solution - x) - residual, atol=1e-10)


@pytest.mark.parametrize("max_steps", [0, 3])
def test_giving_up_early_reports_the_violation_at_the_solution(max_steps):
    Q, residual, x, lower, upper = random_problem("full", 60, seed=10)
    solution, violation = solve(Q, residual, x, lower, upper, TOLERANCE, max_steps=max_steps)
    assert_feasible(solution, x, lower, upper)
    assert violation == pytest.approx(violation_of(Q, residual, x, solution, lower, upper), rel=1e-9)
