"""Sines and cosines of many angles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.kernels.loops.waves import LARGEST_ANGLE, waves


@pytest.mark.parametrize("dtype, error", [(np.float32, 4e-7), (np.float64, 1e-15)])
@pytest.mark.parametrize("width", [1e-3, 1.0, 30.0, 1e3])
def test_they_are_those_of_numpy(dtype, error, width):
    angles = (width * np.random.default_rng(0).normal(size=(37, 29))).astype(dtype)
    exact = np.hstack([np.cos(angles, dtype=np.float64), np.sin(angles, dtype=np.float64)])
    found = waves(angles, 0.5)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, 0.5 * exact, atol=error, rtol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_beyond_the_limit_are_left_to_numpy(dtype):
    largest = LARGEST_ANGLE[np.dtype(dtype)]
    angles = np.array([[0.999 * largest, -0.999 * largest, 10 * largest, 1e7 * largest]], dtype)
    for part in (angles[:, :2], angles):
        exact = np.hstack([np.cos(part, dtype=np.float64), np.sin(part, dtype=np.float64)])
        np.testing.assert_allclose(
            waves(np.ascontiguousarray(part), 1.0), exact, atol=1e-6 if dtype == np.float32 else 1e-14
        )


def test_no_rows_and_no_angles():
    assert waves(np.empty((0, 5)), 1.0).shape == (0, 10)


@given(st.floats(-1e6, 1e6))
def test_the_circle_has_radius_one(angle):
    (cos, sin) = waves(np.array([[angle]]), 1.0)[0]
    assert cos**2 + sin**2 == pytest.approx(1.0, abs=1e-14)
