"""Descent by batches: draws of rows, steps of epochs, and Adam's steps."""

import numpy as np
import pytest

from raymkl.optim.mixture.descent import LEAST_STEPS, MOST_STEPS, Adam, row_draws, steps_of_epoch


def test_draws_of_rows_are_even_and_depend_on_seed_epoch_and_number_alone():
    draws = row_draws(3, 5, np.arange(20_000))
    assert draws.min() >= 0 and draws.max() < 1
    assert np.abs(np.bincount((draws * 20).astype(int)) - 1000).max() < 150
    np.testing.assert_array_equal(row_draws(3, 5, np.arange(500, 700)), draws[500:700])
    for other in (row_draws(4, 5, np.arange(20_000)), row_draws(3, 6, np.arange(20_000))):
        assert abs(np.corrcoef(draws, other)[0, 1]) < 0.03
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.03


def test_epochs_have_steps_enough_and_not_too_many():
    steps = steps_of_epoch(np.array([0, 1, 128, 1024, 5_000, 10**7]), 128)
    assert steps.tolist() == [0, LEAST_STEPS, LEAST_STEPS, 8, 40, MOST_STEPS]


@pytest.mark.parametrize("apart", [False, True])
def test_clusters_descend_as_if_alone(apart):
    """A quadratic bowl for each; some take part in fewer steps."""
    goal = np.random.default_rng(0).normal(size=(3, 2, 4))
    widths = np.array([0.3, -0.5, 1.0])[:, None] * np.ones((3, 2))
    adam, totals = Adam(np.zeros((3, 2, 4)), np.zeros((3, 2))), np.array([400, 200, 400])
    for step in range(400):
        active = np.flatnonzero(totals > step)
        for some in [active[:1], active[1:]] if apart else [active]:
            adam.step(some, (adam.coef[some] - goal[some], adam.log_scales[some] - widths[some]), 0.1, totals)
    np.testing.assert_allclose(adam.coef, goal, atol=1e-3)
    np.testing.assert_allclose(adam.log_scales, widths, atol=0.05)
    assert adam.steps.tolist() == totals.tolist()


def test_rates_fall_to_zero():
    adam, totals, moves = Adam(np.zeros((1, 1, 1)), np.zeros((1, 1))), np.array([50]), []
    for _ in range(50):
        before = adam.coef.copy()
        adam.step(np.array([0]), (np.ones((1, 1, 1)), np.ones((1, 1))), 0.1, totals)
        moves.append(abs(adam.coef - before).item())
    assert moves[0] == pytest.approx(0.1, rel=1e-3) and np.all(np.diff(moves) < 0) and moves[-1] < 1e-3
    assert adam.log_scales.item() == pytest.approx(0.3 * adam.coef.item(), rel=1e-6)
