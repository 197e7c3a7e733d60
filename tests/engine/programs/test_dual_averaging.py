"""The rule of dual averaging: weights of kernels, lost margins, certificates and orders, each against its
formula.
"""

import numpy as np
import pytest

from raymkl.engine.programs.dual_averaging import (
    Task,
    choose_landmarks,
    exponent,
    kernel_weights,
    lost_margins,
    norm,
    row_losses,
    visits,
)


@pytest.mark.parametrize("q", [2.0, 3.5, 14.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_weights_of_kernels(q, scale):
    lengths, prices = np.array([3.0, 1.0, 0.5, 2.0]), np.array([0.5, 0.2, 0.7, 0.0])
    nu = np.maximum(lengths - prices, 0)
    mu = nu ** (q - 1) / (np.sum(nu**q) ** ((q - 2) / q) * lengths)
    np.testing.assert_allclose(kernel_weights(scale * lengths, scale * prices, q), mu, rtol=1e-12)
    assert kernel_weights(lengths, prices, q)[2] == 0


def test_nothing_is_worth_its_price():
    assert not kernel_weights(np.array([0.0, 1.0]), np.array([0.0, 2.0]), 3.0).any()
    assert norm(np.zeros(3), 1.5) == 0.0


def test_exponents():
    assert exponent(None, 2) == 2.0 and exponent(None, 100) == 2 * np.log(100)
    assert exponent(4 / 3, 5) == pytest.approx(4.0)


def test_lost_margins():
    scores = np.array([[0.0, 0.0, 0.0], [2.0, 0.5, 0.9], [2.0, 0.5, 1.5], [0.0, 3.0, 3.0]])
    change = lost_margins(scores, np.array([1, 0, 0, 0]), np.array([1.0, 1.0, 2.0, 0.5]))
    # Equal rivals: the first of them. A margin of one or more is kept.
    assert change.tolist() == [[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, -2.0], [0.5, -0.5, 0.0]]
    np.testing.assert_allclose(row_losses(scores, np.array([1, 0, 0, 0])), [1.0, 0.0, 0.5, 4.0])


def test_round_off_decides_nothing():
    scores, y, weights = np.array([[1.0, 0.3, 0.3]]), np.array([0]), np.ones(1)
    expected = lost_margins(scores, y, weights)
    for bump in (1e-15, -1e-15):
        assert np.array_equal(lost_margins(scores + np.array([0, bump, -bump]), y, weights), expected)
    assert not lost_margins(np.array([[1.0, 1e-15]]), y, weights).any()


def test_orders_come_from_seed_and_epoch():
    ids = np.array([0, 2, 3, 7, 8, 9, 11])
    whole = [order.tolist() for _, _, order in visits(ids, 3, 1)]
    assert len(whole) == 1 and sorted(whole[0]) == ids.tolist()
    assert whole == [order.tolist() for _, _, order in visits(ids, 3, 1)]
    assert whole != [order.tolist() for _, _, order in visits(ids, 3, 2)] and whole != [
        order.tolist() for _, _, order in visits(ids, 4, 1)
    ]
    windows = [(first, last, sorted(order.tolist())) for first, last, order in visits(ids, 3, 1, window=4)]
    assert windows == [(0, 4, [0, 2, 3]), (4, 8, [7]), (8, 12, [8, 9, 11])]
    assert set(choose_landmarks(ids, 3, 5)) <= set(ids) and np.array_equal(choose_landmarks(ids, 7, 5), ids)


def test_a_certificate_is_that_of_the_definitions():
    random = np.random.default_rng(0)
    n, K, p = 12, 3, 1.4
    q = p / (p - 1)
    phi = random.normal(size=(4, n, 5))
    y, weights = random.integers(K, size=n), random.uniform(0.5, 2.0, n)
    task = Task(y, weights, K, 0.3, q, np.array([0.0, 0.01, 0.02, 5.0]), 1, 1, 1e-3, 0)
    N = lost_margins(random.normal(size=(n, K)), y, weights)
    theta = np.einsum("mil,ik->mlk", phi, N)
    squares = np.einsum("mlk,mlk->m", theta, theta)
    A = task.scale(n) * N
    w = np.einsum("m,mil,ik->mlk", task.kernel_weights(squares, n), phi, A)
    lengths, rho = np.sqrt(np.einsum("mlk,mlk->m", w, w)), 0.3 * weights.sum() * task.prices
    F = np.einsum("mil,mlk->ik", phi, w)
    losses = float(weights @ row_losses(F, y))
    primal = 0.5 * np.sum(lengths**p) ** (2 / p) + rho @ lengths + 0.3 * losses
    s = np.sqrt(np.einsum("ik,mil,mjl,jk->m", A, phi, phi, A))
    dual = A[np.arange(n), y].sum() - 0.5 * np.sum(np.maximum(s - rho, 0) ** q) ** (2 / q)
    found = task.certificate(squares, float(N[np.arange(n), y].sum()), losses, n)
    assert found["primal"] == pytest.approx(primal, rel=1e-12) and found["dual"] == pytest.approx(
        dual, rel=1e-12
    )
    assert found["gap"] == pytest.approx((primal - dual) / primal, rel=1e-9) and lengths[3] == 0
