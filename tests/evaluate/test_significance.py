"""The corrected t-test and Holm's correction, against their definitions written another way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from raymkl.evaluate import corrected_t_test, holm


def test_without_overlap_it_is_the_usual_paired_test():
    d = np.random.default_rng(0).normal(0.3, 1.0, 12)
    assert corrected_t_test(d, 0.0) == pytest.approx(stats.ttest_1samp(d, 0.0).pvalue)


def test_overlap_makes_differences_less_sure():
    d = np.random.default_rng(1).normal(0.5, 1.0, 10)
    values = [corrected_t_test(d, ratio) for ratio in (0.0, 0.1, 1.0)]
    assert values == sorted(values)
    # Ten folds: the t of the usual test shrinks by sqrt((1/10) / (1/10 + 1/9)).
    t = stats.ttest_1samp(d, 0.0).statistic * np.sqrt(0.1 / (0.1 + 1 / 9))
    assert corrected_t_test(d, 1 / 9) == pytest.approx(2 * stats.t.sf(abs(t), 9))


def test_differences_without_variance_and_too_few():
    assert corrected_t_test([0.0, 0.0, 0.0], 0.5) == 1.0
    assert corrected_t_test([0.1, 0.1], 0.5) == 0.0
    assert np.isnan(corrected_t_test([0.3], 0.5)) and np.isnan(corrected_t_test([0.3, np.nan], 0.5))


def slow_holm(p):
    """Of every hypothesis: the largest corrected value among those that are at least as sure."""
    ranks = np.sort(p)
    return [
        min(1.0, max((len(p) - i) * ranks[i] for i in range(np.searchsorted(ranks, value, "right"))))
        for value in p
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm(p):
    found = holm(p)
    np.testing.assert_allclose(found, slow_holm(np.array(p)))
    assert np.all(found >= np.array(p)) and np.all(found <= 1)


def test_no_test_has_no_correction():
    np.testing.assert_allclose(holm([0.01, np.nan, 0.02]), [0.02, np.nan, 0.02])
