"""The terms of every loss against its definition: conjugates on a grid, slopes and curvatures by differences,
starts that are feasible.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.optim.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    OneClass,
    Quantile,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Terms,
    feasible,
    keeping_sum,
)

MARGIN = [Hinge(), SquaredHinge(), Logistic(), Squared()]
NUMBERS = [
    EpsilonInsensitive(0.3),
    Squared(),
    SquaredEpsilonInsensitive(0.3),
    Huber(0.7),
    Quantile(0.8),
    OneClass(),
]
EVERY = [*((loss, True) for loss in MARGIN), *((loss, False) for loss in NUMBERS)]
GRID = np.linspace(-80, 80, 160_001)
NAIVE = {
    "hinge": lambda f, y: max(0.0, 1 - y * f),
    "squared_hinge": lambda f, y: max(0.0, 1 - y * f) ** 2 / 2,
    "logistic": lambda f, y: float(np.log1p(np.exp(-abs(f))) + max(-y * f, 0.0)),
    "squared": lambda f, y: (y - f) ** 2 / 2,
    "epsilon_insensitive": lambda f, y: max(abs(y - f) - 0.3, 0.0),
    "squared_epsilon_insensitive": lambda f, y: max(abs(y - f) - 0.3, 0.0) ** 2 / 2,
    "huber": lambda f, y: (y - f) ** 2 / 2 if abs(y - f) <= 0.7 else 0.7 * abs(y - f) - 0.7**2 / 2,
    "quantile": lambda f, y: 0.8 * (y - f) if y > f else -0.2 * (y - f),
    "one_class": lambda f, y: max(0.0, -f),
}
every_loss = pytest.mark.parametrize(
    ("loss", "signs"), EVERY, ids=lambda value: getattr(value, "name", str(value))
)


def some(signs, n=40, seed=0):
    """Targets, bounds and a number in (0, 1) per row."""
    rng = np.random.default_rng(seed)
    return (
        rng.choice([-1.0, 1.0], n) if signs else rng.normal(size=n) * 2,
        rng.uniform(0.2, 3, n),
        rng.uniform(0.02, 0.98, n),
    )


def inside(terms, share):
    """A point strictly within the box."""
    lower, upper = np.maximum(terms.lower, -2 * terms.bounds), np.minimum(terms.upper, 2 * terms.bounds)
    return lower + share * (upper - lower)


@every_loss
def test_value(loss, signs):
    y, _, _ = some(signs)
    f = np.random.default_rng(1).normal(size=len(y)) * 2
    np.testing.assert_allclose(
        loss.value(f, y), [NAIVE[loss.name](fi, yi) for fi, yi in zip(f, y, strict=True)], atol=1e-12
    )


@every_loss
def test_conjugate_is_the_maximum_over_f(loss, signs):
    y, bounds, share = some(signs)
    terms = Terms(loss, y, bounds)
    a = inside(terms, share)
    slow = []
    for ai, yi, c in zip(a, y, bounds, strict=True):
        f = np.concatenate([GRID, yi + np.array([0.0, -0.3, 0.3])])  # kinks are not on the grid
        slow.append(c * np.max(-ai / c * f - loss.value(f, yi)))
    np.testing.assert_allclose(loss.conjugate(a, y, bounds), slow, atol=1e-5)
    assert terms.value(a) == pytest.approx(-np.sum(slow), abs=1e-3)


@every_loss
def test_conjugate_is_infinite_outside_the_box(loss, signs):
    y, bounds, _ = some(signs)
    lower, upper = loss.box(y, bounds)
    for end, beyond in ((lower, -1e-3), (upper, 1e-3)):
        closed = np.isfinite(end)
        assert np.isposinf(loss.conjugate((end + beyond)[closed], y[closed], bounds[closed])).all()


@every_loss
def test_slope_and_curvature_are_derivatives(loss, signs):
    y, bounds, share = some(signs)
    terms, step = Terms(loss, y, bounds), 1e-5
    a = inside(terms, share)
    a = np.where(np.abs(a) < 1e-3, 0.01 * np.sign(a + 1e-9) * bounds, a)  # not at a kink
    term = lambda point: -loss.conjugate(point, y, bounds)
    slope = (term(a + step) - term(a - step)) / (2 * step) + loss.kink * np.sign(a)
    np.testing.assert_allclose(terms.slope(a), slope, rtol=1e-4, atol=1e-5)
    curvature = -(term(a + step) - 2 * term(a) + term(a - step)) / step**2
    np.testing.assert_allclose(terms.curvature(a), curvature, rtol=2e-2, atol=1e-4)


@every_loss
def test_masked_rows_have_no_part_in_anything(loss, signs):
    y, bounds, share = some(signs)
    masked = np.arange(len(y)) % 3 == 0
    bounds = np.where(masked, 0.0, bounds)
    terms, rest = Terms(loss, y, bounds), Terms(loss, y[~masked], bounds[~masked])
    a = np.where(masked, 0.0, inside(terms, share))
    assert np.all(terms.lower[masked] == 0) and np.all(terms.upper[masked] == 0)
    assert terms.value(a) == pytest.approx(rest.value(a[~masked]))
    np.testing.assert_array_equal(terms.slope(a)[~masked], rest.slope(a[~masked]))
    assert np.isfinite(terms.slope(a)).all() and np.isfinite(terms.curvature(a)).all()
    start = loss.start(y, bounds, 0.3 * bounds.sum() if loss.name == "one_class" else 0.0)
    assert start is None or not start[masked].any()


@every_loss
def test_weak_duality(loss, signs):
    """Fenchel-Young: c loss(f) - term(a) >= -a f, with equality at f = slope(a), off the kink."""
    y, bounds, share = some(signs)
    terms, f = Terms(loss, y, bounds), np.random.default_rng(4).normal(size=40) * 3
    a = inside(terms, share)
    assert np.all(bounds * loss.value(f, y) + loss.conjugate(a, y, bounds) >= -a * f - 1e-9)
    best = terms.slope(a) - loss.kink * np.sign(a)
    np.testing.assert_allclose(
        bounds * loss.value(best, y) + loss.conjugate(a, y, bounds), -a * best, atol=1e-7
    )


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
def test_slopes_of_smooth_terms_can_be_inverted(loss):
    y, bounds, share = some(True)
    terms = Terms(loss, y, bounds)
    a = inside(terms, share)
    np.testing.assert_allclose(terms.at_slope(terms.slope(a)), a, rtol=1e-10, atol=1e-12)
    for total in (0.0, 0.2):
        moved = keeping_sum(terms, terms.slope(a), total)
        assert moved.sum() == pytest.approx(total, abs=1e-12)
        assert np.ptp(terms.slope(moved) - terms.slope(a)) < 1e-9


def test_far_slopes_stay_inside_the_box():
    y, bounds = np.array([1.0, -1.0, 1.0]), np.array([0.1, 3.0, 1e6])
    terms = Terms(Logistic(), y, bounds)
    for u in (-1e4, -40.0, 40.0, 1e4):
        a = terms.at_slope(np.full(3, u))
        assert (
            np.all((a > terms.lower) & (a < terms.upper))
            and np.isfinite(terms.slope(a)).all()
            and np.isfinite(terms.value(a))
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(EVERY))
def test_starts_and_feasible_points(seed, which):
    loss, signs = which
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 40))
    y, bounds, _ = some(signs, n, seed)
    y[:2] = (1.0, -1.0)
    bounds = bounds * np.r_[True, True, rng.random(n - 2) < 0.8]
    terms = Terms(loss, y, bounds)
    total = float(rng.uniform(0.01, 1)) * bounds.sum() if loss.name == "one_class" else 0.0
    given_point = rng.normal(size=n) * (bounds > 0)
    for point in (loss.start(y, bounds, total), feasible(terms, given_point, total)):
        if point is None:
            continue
        assert np.all(point >= terms.lower) and np.all(point <= terms.upper)
        assert point.sum() == pytest.approx(total, abs=1e-9 * bounds.sum())
        assert np.isfinite(terms.value(point))
        np.testing.assert_allclose(feasible(terms, point, total), point, atol=1e-9 * bounds.max())
