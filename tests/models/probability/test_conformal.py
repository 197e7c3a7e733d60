"""Sets and intervals, against the formulas written out row by row."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.kernels import Linear
from raymkl.models.expansion import Expansion
from raymkl.models.probability import conformal
from raymkl.models.probability.conformal import FoldModels, check_coverage, intervals, sets, strangeness


def models_of(fold, scores, n_values=1):
    """FoldModels whose expansion nobody asks."""
    n, heads = len(fold), (max(fold) + 1) * n_values
    nobody = Expansion(
        [Linear()],
        np.ones((heads, 1)),
        np.zeros((heads, 0)),
        np.empty(0, int),
        {None: np.empty((0, 1))},
        n,
        [-1],
    )
    return FoldModels(nobody, np.zeros(heads), np.asarray(fold), np.asarray(scores, float))


def test_strangeness_is_by_how_much_another_class_is_better():
    values = np.array([[3.0, 1.0, 2.0], [0.0, 0.0, -1.0]])
    np.testing.assert_allclose(strangeness(values), [[-1.0, 2.0, 1.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(strangeness(np.array([[0.5], [-2.0]])), [[1.0, -1.0], [-4.0, 4.0]])


def drawn(n, n_folds, n_values, seed, whole):
    """(fold, scores, values (5, F * H)) with many ties where `whole`."""
    rng = np.random.default_rng(seed)
    fold = rng.permutation(np.r_[np.arange(n_folds), rng.integers(0, n_folds, n - n_folds)])
    scores, values = rng.normal(size=n) * 2, rng.normal(size=(5, n_folds * n_values)) * 2
    return (fold, np.round(scores), np.round(values)) if whole else (fold, scores, values)


problems = {
    "n": st.integers(3, 40),
    "n_folds": st.integers(2, 3),
    "seed": st.integers(0, 1000),
    "whole": st.booleans(),
    "coverage": st.sampled_from([0.05, 0.5, 0.8, 0.9, 0.95, 0.975]),
}


@settings(max_examples=60, deadline=None)
@given(n_classes=st.integers(2, 4), **problems)
def test_sets_are_those_of_the_formula(n, n_folds, seed, whole, coverage, n_classes):
    n_values = 1 if n_classes == 2 else n_classes
    fold, scores, values = drawn(n, n_folds, n_values, seed, whole)
    found = sets(values, models_of(fold, scores, n_values), coverage)
    exact = 1 - Fraction(str(coverage))
    for x in range(len(values)):
        for k in range(n_classes):
            count = 0
            for i in range(n):
                f = values[x, fold[i] * n_values : (fold[i] + 1) * n_values]
                f = np.array([-f[0], f[0]]) if n_classes == 2 else f
                count += max(f[others] for others in range(n_classes) if others != k) - f[k] <= scores[i]
            assert found[x, k] == (Fraction(1 + count, n + 1) > exact)


@settings(max_examples=60, deadline=None)
@given(**problems)
def test_intervals_are_those_of_the_formula(n, n_folds, seed, whole, coverage):
    fold, scores, values = drawn(n, n_folds, 1, seed, whole)
    found = intervals(values, models_of(fold, np.abs(scores)), coverage)
    exact = Fraction(str(coverage))
    low, high = math.floor((1 - exact) * (n + 1)), math.ceil(exact * (n + 1))
    for x in range(len(values)):
        below = sorted(values[x, fold[i]] - abs(scores[i]) for i in range(n))
        above = sorted(values[x, fold[i]] + abs(scores[i]) for i in range(n))
        assert found[x, 0] == (below[low - 1] if low >= 1 else -np.inf)
        assert found[x, 1] == (above[high - 1] if high <= n else np.inf)


def test_intervals_are_made_in_tiles(monkeypatch):
    fold, scores, _ = drawn(30, 3, 1, 0, False)
    values = np.random.default_rng(1).normal(size=(100, 3))
    whole = intervals(values, models_of(fold, np.abs(scores)), 0.8)
    monkeypatch.setattr(conformal, "TILE_BYTES", 8 * 30 * 7)
    np.testing.assert_array_equal(intervals(values, models_of(fold, np.abs(scores)), 0.8), whole)


def test_a_copy_of_a_training_row_is_as_strange_as_that_up_to_round_off():
    models = models_of([0, 1, 0], [2.0, 5.0, 5.0])
    for nudge in (-1e-13, 0.0, 1e-13):
        assert sets(np.full((1, 2), -2.5 + nudge), models, 0.4)[0].tolist() == [
            True,
            True,
        ]  # class 1 is 5 strange: 3 of 4 rows


@pytest.mark.parametrize("coverage", [0, 1, 0.0, 1.0, -0.5, 1.2, "0.9", None, True, np.nan, np.inf])
def test_coverage_is_between_zero_and_one(coverage):
    with pytest.raises(ValueError, match="coverage"):
        check_coverage(coverage)


@pytest.mark.parametrize(
    "fold, scores, intercepts",
    [
        ([0, 2, 0], [1.0, 1.0, 1.0], 3),
        ([0, 2**60, 0], [1.0, 1.0, 1.0], 2),
        ([0, 1, 0], [1.0, 1.0], 2),
        ([0, 1, 0], [1.0, np.nan, 1.0], 2),
        ([0, 1, 0], [1.0, 1.0, 1.0], 3),
        ([0.0, 1.0, 0.0], [1.0, 1.0, 1.0], 2),
    ],
)
def test_folds_of_a_file_that_do_not_fit_are_refused(fold, scores, intercepts):
    good = models_of([0, 1, 0], [1.0, 1.0, 1.0])
    good.check(1)
    with pytest.raises(ValueError, match="folds"):
        FoldModels(good.expansion, np.zeros(intercepts), np.asarray(fold), np.asarray(scores)).check(1)
