"""The lengths behind an elastic net, against the equations that define them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raymkl.optim.norms import ElasticNetNorm

VALUES = arrays(float, st.integers(1, 9), elements=st.one_of(st.just(0.0), st.floats(1e-100, 50.0)))


@pytest.mark.parametrize("p", [1.02, 1.2, 4 / 3, 1.8, 2.0, 2.5, 4.0, 30.0])
@pytest.mark.parametrize("mix", [0.01, 0.5, 0.99])
@given(v=VALUES)
@settings(max_examples=30, deadline=None)
def test_lengths_solve_their_equation(p, mix, v):
    lengths, r = ElasticNetNorm(p, mix).lengths(v)
    assert r == pytest.approx(
        0.0 if v.max() == 0 else v.max() * np.sum((lengths / v.max()) ** p) ** (1 / p), rel=1e-12
    )
    if r > 0:
        shown = lengths > 1e-250 * r
        found = mix * r * (lengths / r) ** (p - 1) + (1 - mix) * lengths
        np.testing.assert_allclose(found[shown], v[shown], rtol=1e-10, atol=1e-12 * v.max())
        assert np.all((v > 0) | (lengths == 0))


@pytest.mark.parametrize("mix", [0.01, 0.5, 0.99])
@given(v=VALUES)
@settings(max_examples=40, deadline=None)
def test_thresholds_of_p_1(mix, v):
    """v - mix r is (1 - mix) l where l > 0, and not positive elsewhere."""
    lengths, r = ElasticNetNorm(1.0, mix).lengths(v)
    rest = v - mix * r - (1 - mix) * lengths
    assert r == pytest.approx(lengths.sum())
    np.testing.assert_allclose(rest[lengths > 0], 0.0, atol=1e-12 * v.max())
    assert np.all(rest <= 1e-12 * v.max())


@pytest.mark.parametrize("mix", [0.01, 0.5, 0.99])
@given(v=VALUES)
@settings(max_examples=40, deadline=None)
def test_lengths_of_p_inf_are_cut_off(mix, v):
    """What is left of v belongs to the largest lengths, and adds up to mix r."""
    lengths, r = ElasticNetNorm(np.inf, mix).lengths(v)
    rest = v - (1 - mix) * lengths
    assert r == lengths.max() and np.all(rest >= -1e-12 * v.max())
    assert rest.sum() == pytest.approx(mix * r, abs=1e-10 * v.max())
    np.testing.assert_allclose(rest[lengths < r], 0.0, atol=1e-12 * v.max())


def test_kernels_that_are_alike_stay_together():
    theta = ElasticNetNorm(1.0, 0.5).weights(np.array([1.0, 0.999, 0.01]))
    assert theta[0] == pytest.approx(theta[1], rel=1e-2) and theta[2] == 0


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 3.0, np.inf])
def test_weights_are_bounded_by_the_part_of_the_plain_sum(p):
    rng = np.random.default_rng(0)
    for mix in (0.1, 0.9):
        for _ in range(20):
            assert ElasticNetNorm(p, mix).weights(rng.uniform(0, 1, 6) ** 8).max() <= 1 / (1 - mix) + 1e-12


@pytest.mark.parametrize("mix", [1.5, 0.0, 1, "x", None, np.nan, True])
def test_parts_that_are_refused(mix):
    with pytest.raises(ValueError, match="mix"):
        ElasticNetNorm(1.0, mix)


@pytest.mark.parametrize("p", [0.5, np.nan, "x", None])
def test_block_norms_that_are_refused(p):
    with pytest.raises(ValueError, match="p must"):
        ElasticNetNorm(p, 0.5)
