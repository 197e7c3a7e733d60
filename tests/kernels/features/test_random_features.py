"""Random features and machines over them: formulas, losses, gradients."""

import numpy as np
import pytest

from raymkl.kernels.features import random_features as rf

D, COLUMNS, CLASSES = 11, 3, 4
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(40, COLUMNS))
Y = RANDOM.integers(CLASSES, size=40)
SCALES = np.array([0.5, 1.0, 2.0])
NOISE = rf.draw_noise(5, 2, D, COLUMNS)
WAVES = rf.frequencies(NOISE, SCALES)
COEF = 2.0 * RANDOM.normal(size=(CLASSES, 2 * D))


def slow_scores(X, coef=COEF, noise=NOISE, scales=SCALES):
    out = []
    for x in X:
        angles = [(scales * row) @ x for row in noise]
        out.append(
            [
                sum(c * v for c, v in zip(row, [*np.cos(angles), *np.sin(angles)], strict=True))
                / np.sqrt(len(noise))
                for row in coef
            ]
        )
    return np.array(out)


def slow_loss(s, y):
    return max(0.0, 1.0 + max(s[m] for m in range(len(s)) if m != y) - s[y])


def test_noise_depends_on_seed_and_number_alone():
    np.testing.assert_array_equal(NOISE, rf.draw_noise(5, 2, D, COLUMNS))
    assert not np.array_equal(NOISE, rf.draw_noise(5, 3, D, COLUMNS))
    assert not np.array_equal(NOISE, rf.draw_noise(6, 2, D, COLUMNS))
    many = rf.draw_noise(0, 0, 5000, 4)
    assert abs(many.mean()) < 0.03 and abs(many.std() - 1) < 0.03


def test_features_have_length_one_and_approximate_the_kernel():
    wide = rf.frequencies(rf.draw_noise(0, 0, 20_000, COLUMNS), SCALES)
    phi = rf.features(X, wide)
    np.testing.assert_allclose(np.sum(phi**2, axis=1), 1.0, atol=1e-12)
    distances = ((X[:, None] - X[None]) ** 2 * SCALES**2).sum(axis=2)
    np.testing.assert_allclose(phi @ phi.T, np.exp(-distances / 2), atol=0.04)


def test_scores_and_losses(monkeypatch):
    monkeypatch.setattr(rf, "TILE", 2 * D * 16)  # several tiles
    slow = slow_scores(X)
    np.testing.assert_allclose(rf.scores_of(X, WAVES, COEF), slow, atol=1e-12)
    losses = [slow_loss(s, y) for s, y in zip(slow, Y, strict=True)]
    np.testing.assert_allclose(rf.losses_of(X, Y, WAVES, COEF), losses, atol=1e-12)
    every = rf.hinges(slow)
    np.testing.assert_allclose(every, [[slow_loss(s, m) for m in range(CLASSES)] for s in slow], atol=1e-12)
    own = np.exp(-every)
    np.testing.assert_allclose(
        np.exp(rf.log_probabilities(X, WAVES, COEF)), own / own.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_probabilities_of_huge_losses_are_finite():
    logs = rf.log_probabilities(X, WAVES, 1e6 * COEF)
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0)


def objective(coef, log_scales, shares):
    return float(shares @ rf.losses_of(X, Y, rf.frequencies(NOISE, np.exp(log_scales)), coef))


@pytest.mark.parametrize("tile", [2 * D * 16, 2**18])
def test_gradients_are_those_of_differences(tile, monkeypatch):
    monkeypatch.setattr(rf, "TILE", tile)
    shares = RANDOM.random(len(X))
    by_coef, by_scales = rf.gradients(X, Y, shares, WAVES, COEF, scales=True)
    step = 1e-6
    for m, j in [(0, 0), (1, D), (2, 2 * D - 1), (3, 5)]:
        up, down = COEF.copy(), COEF.copy()
        up[m, j] += step
        down[m, j] -= step
        slope = (objective(up, np.log(SCALES), shares) - objective(down, np.log(SCALES), shares)) / (2 * step)
        assert by_coef[m, j] == pytest.approx(slope, abs=1e-6)
    for j in range(COLUMNS):
        e = step * np.eye(COLUMNS)[j]
        slope = (
            objective(COEF, np.log(SCALES) + e, shares) - objective(COEF, np.log(SCALES) - e, shares)
        ) / (2 * step)
        assert by_scales[j] == pytest.approx(slope, abs=1e-5)
    same, none = rf.gradients(X, Y, shares, WAVES, COEF, scales=False)
    np.testing.assert_array_equal(same, by_coef)
    assert not none.any()


def test_gradients_in_float32_are_close():
    shares = RANDOM.random(len(X))
    exact = rf.gradients(X, Y, shares, WAVES, COEF, scales=True)
    short = rf.gradients(
        *(a if a.dtype.kind == "i" else a.astype(np.float32) for a in (X, Y, shares, WAVES, COEF)),
        scales=True,
    )
    for a, b in zip(short, exact, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max())


def test_another_origin_changes_no_score_and_no_norm():
    center = np.array([300.0, -20.0, 7.0])
    moved = rf.moved_origin(COEF, NOISE, SCALES, center)
    np.testing.assert_allclose(slow_scores(X + center, moved), slow_scores(X), atol=1e-10)
    assert np.sum(moved**2) == pytest.approx(np.sum(COEF**2))
