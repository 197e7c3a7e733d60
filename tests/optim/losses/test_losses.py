"""Losses against their definitions, computed slowly."""

import numpy as np
import pytest

from raymkl.optim.losses import CLASSIFICATION, REGRESSION, EpsilonInsensitive, Hinge, Loss, Terms, slopes

GRID = np.linspace(-50, 50, 100_001)  # step 1e-3, so the kink of the hinge at f = +-1 is on it


def conjugate_on_grid(loss, a, y, bound, grid=GRID):
    """bound * max_f (-a / bound) f - loss(f, y)."""
    return bound * np.max(-a / bound * grid - loss.value(grid, y))


def test_hinge_value_is_the_naive_one():
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=200) * 3, rng.choice([-1.0, 1.0], 200)
    naive = [1 - yi * fi if yi * fi < 1 else 0.0 for fi, yi in zip(f, y, strict=True)]
    assert np.array_equal(Hinge().value(f, y), naive)


def test_hinge_value_broadcasts_over_candidates():
    f, y, b = np.array([0.5, -2.0, 1.0]), np.array([1.0, -1.0, -1.0]), np.array([-1.0, 0.0, 2.0, 3.0])
    values = Hinge().value(f + b[:, None], y)
    assert values.shape == (4, 3)
    assert all(values[i, j] == max(0.0, 1 - y[j] * (f[j] + b[i])) for i in range(4) for j in range(3))


@pytest.mark.parametrize("y", [-1.0, 1.0])
@pytest.mark.parametrize("bound", [0.01, 1.0, 7.5])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.99, 1.0])
def test_hinge_conjugate_is_the_maximum_over_f(y, bound, share):
    loss, a = Hinge(), y * share * bound
    got = loss.conjugate(np.array([a]), np.array([y]), np.array([bound]))
    assert got[0] == pytest.approx(conjugate_on_grid(loss, a, y, bound), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("y", [-1.0, 1.0])
@pytest.mark.parametrize("share", [-0.3, -1e-6, 1 + 1e-6, 1.5])
def test_hinge_conjugate_is_infinite_outside_the_box(y, share):
    loss, bound = Hinge(), 2.0
    a = y * share * bound
    assert np.isposinf(loss.conjugate(np.array([a]), np.array([y]), np.array([bound])))[0]
    # The definition agrees: the maximum keeps growing with the range of f.
    ranges = [conjugate_on_grid(loss, a, y, bound, GRID * scale) for scale in (1e6, 1e8, 1e10)]
    assert ranges[0] < ranges[1] < ranges[2] and ranges[2] > 1e3
    assert Terms(loss, np.array([y]), np.array([bound])).value(np.array([a])) == -np.inf


@pytest.mark.parametrize("excess", [-1e-12, 1 + 1e-12])
def test_hinge_conjugate_forgives_round_off_at_the_ends(excess):
    value = Hinge().conjugate(np.array([excess * 3.0]), np.array([1.0]), np.array([3.0]))
    assert np.isfinite(value).all()


def test_hinge_box_is_where_the_conjugate_is_finite():
    rng = np.random.default_rng(1)
    y, bounds = rng.choice([-1.0, 1.0], 50), rng.uniform(0.1, 5, 50)
    lower, upper = Hinge().box(y, bounds)
    assert np.array_equal(lower, np.where(y > 0, 0.0, -bounds))
    assert np.array_equal(upper, np.where(y > 0, bounds, 0.0))
    for inside in (lower, upper, (lower + upper) / 2):
        assert np.isfinite(Hinge().conjugate(inside, y, bounds)).all()
    for outside in (lower - 0.01, upper + 0.01):
        assert np.isinf(Hinge().conjugate(outside, y, bounds)).all()


def test_hinge_dual_value_is_the_linear_term_and_the_sum_of_alpha():
    rng = np.random.default_rng(2)
    y, bounds = rng.choice([-1.0, 1.0], 40), rng.uniform(0.1, 5, 40)
    alpha = rng.uniform(0, 1, 40) * bounds
    a = y * alpha
    assert Terms(Hinge(), y, bounds).value(a) == pytest.approx(alpha.sum(), rel=1e-12)
    assert Hinge().linear(y) @ a == pytest.approx(alpha.sum(), rel=1e-12)


def test_hinge_linear_is_float_for_integer_targets():
    linear = Hinge().linear(np.array([1, -1, 1]))
    assert linear.dtype == float
    assert np.array_equal(linear, [1.0, -1.0, 1.0])


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_bound_zero_masks_a_row(y):
    loss = Hinge()
    targets, bounds = np.array([1.0, y, -1.0]), np.array([2.0, 0.0, 2.0])
    lower, upper = loss.box(targets, bounds)
    assert lower[1] == upper[1] == 0.0
    a = np.array([1.5, 0.0, -1.5])
    assert loss.conjugate(a, targets, bounds)[1] == 0.0
    assert Terms(loss, targets, bounds).value(a) == pytest.approx(
        Terms(loss, targets[[0, 2]], bounds[[0, 2]]).value(a[[0, 2]])
    )
    assert np.isposinf(loss.conjugate(np.array([1.5, 1e-6 * y, -1.5]), targets, bounds)[1])


def test_weak_duality_of_one_row():
    # Fenchel-Young: bound * loss(f) + bound * conj(-a / bound) >= -a f, which is all the certificate needs.
    rng = np.random.default_rng(3)
    y, bounds, f = rng.choice([-1.0, 1.0], 500), rng.uniform(0.1, 5, 500), rng.normal(size=500) * 3
    a = y * rng.uniform(0, 1, 500) * bounds
    loss = Hinge()
    assert np.all(bounds * loss.value(f, y) + loss.conjugate(a, y, bounds) >= -a * f - 1e-12)


def test_losses_are_registered_under_their_names():
    assert all(cls().name == name for losses in (CLASSIFICATION, REGRESSION) for name, cls in losses.items())


@pytest.mark.parametrize("call", ["value", "box", "conjugate"])
def test_base_loss_says_what_is_missing(call):
    arguments = [np.zeros(1)] * {"value": 2, "box": 2, "conjugate": 3}[call]
    with pytest.raises(TypeError, match="Loss has no"):
        getattr(Loss(), call)(*arguments)


# -- epsilon-insensitive loss ----------------------------------------------------------------------


def test_epsilon_insensitive_value_is_the_naive_one():
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=200), rng.normal(size=200)
    naive = [max(abs(yi - fi) - 0.3, 0.0) for fi, yi in zip(f, y, strict=True)]
    np.testing.assert_allclose(EpsilonInsensitive(0.3).value(f, y), naive)


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("y", [-2.0, 0.0, 3.5])
@pytest.mark.parametrize("share", [-1.0, -0.4, 0.0, 0.7, 1.0])
def test_epsilon_insensitive_conjugate_is_the_maximum_over_f(epsilon, y, share):
    loss, bound = EpsilonInsensitive(epsilon), 2.5
    got = loss.conjugate(np.array([share * bound]), np.array([y]), np.array([bound]))
    assert got[0] == pytest.approx(conjugate_on_grid(loss, share * bound, y, bound), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("share", [-1.5, 1 + 1e-6])
def test_epsilon_insensitive_conjugate_is_infinite_outside_the_box(share):
    loss, bound = EpsilonInsensitive(0.2), np.array([2.0])
    assert np.isposinf(loss.conjugate(share * bound, np.array([1.0]), bound))[0]
    lower, upper = loss.box(np.array([1.0]), bound)
    assert lower[0] == -2.0 and upper[0] == 2.0


def test_epsilon_insensitive_dual_is_its_linear_part_less_the_kink():
    rng = np.random.default_rng(2)
    y, a, bounds = rng.normal(size=30), rng.uniform(-1, 1, 30), np.ones(30)
    loss = EpsilonInsensitive(0.25)
    assert Terms(loss, y, bounds).value(a) == pytest.approx(loss.linear(y) @ a - loss.kink * np.abs(a).sum())
    assert Hinge().kink == 0


def test_slopes_are_one_sided_derivatives():
    loss, step = EpsilonInsensitive(0.25), 1e-7
    a, y = np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), np.array([0.3, -2.0, 1.0, 0.0, 5.0])
    value = lambda point: -loss.conjugate(point, y, np.full(5, 2.0))
    up, down = slopes(loss.linear(y), a, loss.kink)
    np.testing.assert_allclose(up, (value(a + step) - value(a)) / step, atol=1e-6)
    np.testing.assert_allclose(down, (value(a) - value(a - step)) / step, atol=1e-6)
    assert slopes(y, a, 0.0) == (y, y)
