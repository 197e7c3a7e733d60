"""The sub-problem of a working set with the terms of every loss: optimality conditions, a conic solver, badly
conditioned matrices.
"""

import cvxpy as cp
import numpy as np
import pytest

from raymkl.optim.losses import CLASSIFICATION, REGRESSION, OneClass, Terms, feasible, slopes
from raymkl.optim.subproblem import solve_terms

Q_ROWS = 60
LOSSES = [
    *((kind(), True) for kind in CLASSIFICATION.values()),
    *((kind(), False) for kind in REGRESSION.values()),
    (OneClass(), False),
]
every_loss = pytest.mark.parametrize(
    ("loss", "signs"), LOSSES, ids=lambda value: getattr(value, "name", str(value))
)


def problem(loss, signs, seed=0, q=Q_ROWS, scale=5.0):
    """Q, terms, a feasible point, and what the variables sum to."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(q, 5))
    Q = scale * np.exp(-0.2 * np.sum((rows[:, None] - rows[None]) ** 2, axis=-1))
    targets = np.sign(rows[:, 0] + 0.5 * rng.normal(size=q)) if signs else 2 * rows[:, 0] + rng.normal(size=q)
    terms = Terms(loss, targets, rng.uniform(0.6, 6.0, q))
    total = 0.25 * terms.bounds.sum() if loss.name == "one_class" else 0.0
    return Q, terms, feasible(terms, 0.3 * rng.normal(size=q), total), total


def violation(Q, terms, x):
    grow, shrink = slopes(terms.slope(x) - Q @ x, x, terms.kink)
    return grow[x < terms.upper].max() - shrink[x > terms.lower].min()


@every_loss
@pytest.mark.parametrize("seed", range(5))
def test_optimality(loss, signs, seed):
    Q, terms, x, total = problem(loss, signs, seed)
    before = Q.copy()
    solution = solve_terms(Q, terms, terms.slope(x) - Q @ x, x, 1e-9)
    np.testing.assert_array_equal(Q, before)
    assert (
        np.all(solution >= terms.lower)
        and np.all(solution <= terms.upper)
        and solution.sum() == pytest.approx(total, abs=1e-9)
    )
    assert violation(Q, terms, solution) <= 1e-8
    assert terms.value(solution) - 0.5 * solution @ Q @ solution >= terms.value(x) - 0.5 * x @ Q @ x


@every_loss
def test_against_a_conic_solver(loss, signs):
    Q, terms, x, total = problem(loss, signs)
    y, c = terms.targets, terms.bounds
    a = cp.Variable(len(c))
    alpha, ridge, options = cp.multiply(y, a), cp.sum(cp.multiply(0.5 / c, cp.square(a))), vars(loss)
    share = cp.multiply(1 / c, alpha)
    term, box = {
        "hinge": lambda: (cp.sum(alpha), [alpha >= 0, alpha <= c]),
        "squared_hinge": lambda: (cp.sum(alpha) - ridge, [alpha >= 0]),
        "logistic": lambda: (cp.sum(cp.multiply(c, cp.entr(share) + cp.entr(1 - share))), []),
        "squared": lambda: (y @ a - ridge, []),
        "epsilon_insensitive": lambda: (y @ a - options["epsilon"] * cp.norm1(a), [cp.abs(a) <= c]),
        "squared_epsilon_insensitive": lambda: (y @ a - options["epsilon"] * cp.norm1(a) - ridge, []),
        "huber": lambda: (y @ a - ridge, [cp.abs(a) <= options["delta"] * c]),
        "quantile": lambda: (y @ a, [a >= (options["quantile"] - 1) * c, a <= options["quantile"] * c]),
        "one_class": lambda: (cp.Constant(0.0), [a >= 0, a <= c]),
    }[loss.name]()
    best = cp.Problem(
        cp.Maximize(term - cp.quad_form(a, cp.psd_wrap(Q)) / 2), [*box, cp.sum(a) == total]
    ).solve(solver=cp.CLARABEL)
    solution = solve_terms(Q, terms, terms.slope(x) - Q @ x, x, 1e-9)
    assert terms.value(solution) - 0.5 * solution @ Q @ solution == pytest.approx(best, rel=1e-6)


@every_loss
@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_matrices_of_any_size(loss, signs, scale):
    """Kernels that hardly matter, and those that dominate: then pairs zigzag, and boxes without ends need
    some.
    """
    Q, terms, x, _ = problem(loss, signs, scale=scale)
    tolerance = (
        1e-12 if loss.is_smooth else 1e-7 * max(scale, 1.0)
    )  # of smooth terms that is in units of dual variables
    solution = solve_terms(Q, terms, terms.slope(x) - Q @ x, x, tolerance)
    assert violation(Q, terms, solution) <= 1e-6 * max(scale, 1.0)


def test_a_logistic_start_at_zero_is_left_at_once():
    """Rows that no working set has met have a share of zero, where the slope is infinite."""
    from raymkl.optim.losses import Logistic

    Q, terms, _, _ = problem(Logistic(), True, q=300)
    x = np.zeros(300)
    solution = solve_terms(Q, terms, terms.slope(x) - Q @ x, x, 1e-9)
    assert np.all(solution != 0) and violation(Q, terms, solution) <= 1e-7
