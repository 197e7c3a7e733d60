"""Accurate sums: what they say is what the formulas say, to the last digits of float64."""

from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.kernels import RBF, Chi2, Laplacian, Linear, Polynomial, rbf
from raymkl.kernels.base import Kernel
from raymkl.kernels.pairs.accurate import FIRST_CELL, CellSums, FormulaSums, PowerSums, accurate_sums
from raymkl.kernels.pairs.families import group
from raymkl.kernels.pairs.statistics import L1Distance, SquaredDistance

RNG = np.random.default_rng(0)
SQUARED_DISTANCE = SquaredDistance(None)


@dataclass(eq=False)
class Profile(Kernel):
    """Any function of a statistic."""

    function: Any
    of: Any = SQUARED_DISTANCE

    def statistic(self):
        return self.of

    def profile(self, t):
        return self.function(t)


def hat(t):
    """A corner within a cell, and zero beyond."""
    return np.maximum(0.0, 0.77 - t)


def hat_between_cells(t):
    """A corner where two cells meet: polynomials are exact on both sides of it."""
    return np.maximum(0.0, 1.0 - t)


def steep(t):
    """Infinitely steep at zero."""
    return np.exp(-(t**0.1))


def step(t):
    return (t < 1.234).astype(float)


BANKS = {
    "rbf": (rbf(2.0 ** np.arange(-12, 6)), CellSums, 40.0),
    "one rbf": ([RBF(gamma=0.3)], CellSums, 40.0),
    "rbf far apart": ([RBF(gamma=1e-9), RBF(gamma=1e9)], CellSums, 100.0),
    "laplacian": ([Laplacian(gamma=g) for g in (1e-3, 0.1, 2.0)], CellSums, 30.0),
    "chi2": ([Chi2(gamma=g) for g in (0.01, 1.0, 20.0)], CellSums, 2.0),
    "cauchy": ([Profile(lambda t, c=c: 1.0 / (1.0 + c * t)) for c in (0.01, 1.0, 30.0)], CellSums, 40.0),
    "polynomial": (
        [Linear(), Polynomial(degree=2, coef0=1.0), Polynomial(degree=5, gamma=0.1, coef0=2.0)],
        PowerSums,
        12.0,
    ),
    "high degree": ([Polynomial(degree=14, gamma=0.1, coef0=1.0)], FormulaSums, 12.0),
    "corner": ([Profile(hat), RBF(gamma=0.5)], FormulaSums, 4.0),
    "corner between cells": ([Profile(hat_between_cells), RBF(gamma=0.5)], CellSums, 4.0),
    "steep": ([Profile(steep, L1Distance(None))], FormulaSums, 4.0),
    "step": ([Profile(step)], FormulaSums, 4.0),
}


def block(name, rows=17, columns=23, seed=0):
    """The sums of a bank up to its bound, and statistics that include both ends of what there may be."""
    bank, kind, bound = BANKS[name]
    (family,) = group(bank)
    sums = accurate_sums(family, bound)
    assert type(sums) is kind
    rng = np.random.default_rng(seed)
    stat = np.exp(rng.uniform(np.log(1e-12 * bound), np.log(bound), size=(rows, columns)))
    stat.flat[:3] = 0.0, bound, np.nextafter(bound, 0)
    if not family.statistic.non_negative:
        stat *= rng.choice([-1.0, 1.0], size=stat.shape)
    return sums, stat, rng.normal(size=rows), rng.normal(size=columns)


@pytest.mark.parametrize("name", BANKS)
def test_decision_values(name):
    sums, stat, _, right = block(name)
    weights = np.abs(RNG.normal(size=len(BANKS[name][0])))
    out = np.full(len(stat), 0.5)
    sums.function(weights)(stat, right, out, np.empty(stat.size))
    for i in range(len(stat)):
        terms = np.array(
            [w * kernel.profile(stat[i]) * right for w, kernel in zip(weights, BANKS[name][0], strict=True)]
        )
        # A kernel is off by a part of its largest value, which is 1 where it is tabulated.
        largest = weights.sum() * np.abs(right).sum() if isinstance(sums, CellSums) else np.abs(terms).sum()
        assert abs(out[i] - 0.5 - fsum(terms.ravel())) <= 1e-12 * (largest + 0.5)


@pytest.mark.parametrize("name", BANKS)
def test_quadratic_terms(name):
    sums, stat, left, right = block(name)
    moments = sums.moments()
    for some in (slice(0, 5), slice(5, None)):  # in two blocks
        sums.add(moments, np.ascontiguousarray(stat[some]), left[some], right)
    for kernel, found in zip(BANKS[name][0], sums.total(moments), strict=True):
        terms = left[:, None] * kernel.profile(stat) * right
        largest = np.abs(np.outer(left, right)).sum() if isinstance(sums, CellSums) else np.abs(terms).sum()
        assert abs(found - fsum(terms.ravel())) <= 1e-12 * largest


@pytest.mark.parametrize("name", [name for name, (_, kind, _) in BANKS.items() if kind is CellSums])
def test_every_single_value(name):
    """One pair at a time: errors of many pairs cannot cancel.

    Zero, the bound, and the borders of all cells are among them.
    """
    bank, _, bound = BANKS[name]
    (family,) = group(bank)
    sums = accurate_sums(family, bound)
    borders = sums.cells.points(4, np.array([0.0]))
    borders = borders[borders <= bound]
    t = np.unique(
        np.concatenate([[0.0, bound], borders, np.nextafter(borders, np.inf), np.linspace(0, bound, 400)])
    )
    t = t[t <= bound]
    for m, kernel in enumerate(bank):
        out = np.zeros(len(t))
        sums.function(np.eye(len(bank))[m])(
            np.ascontiguousarray(t[:, None]), np.ones(1), out, np.empty(len(t))
        )
        np.testing.assert_allclose(out, kernel.profile(t), rtol=0, atol=1e-12)
    # Polynomials come from inverses by LAPACK, whose last bits differ: 0.7e-15 with NumPy 2.4, 5.6e-15 with
    # 1.26 to 2.2.
    assert out[0] == pytest.approx(1.0, abs=FIRST_CELL)


def test_empty_sums_are_zero():
    for name in BANKS:
        sums, stat, left, right = block(name)
        np.testing.assert_array_equal(sums.total(sums.moments()), np.zeros(len(BANKS[name][0])))
        moments, out = sums.moments(), np.zeros(len(stat))
        sums.add(moments, np.empty((0, len(right))), left[:0], right)
        sums.function(np.zeros(len(BANKS[name][0])))(stat, right, out, np.empty(stat.size))
        assert not np.any(sums.total(moments)) and not np.any(out)


@given(
    st.lists(st.floats(-9, 9), min_size=1, max_size=6),
    st.floats(-8, 8),
    st.integers(0, 10**6),
)
def test_any_widths_and_bounds(exponents, size, seed):
    """Gaussians of any widths on statistics of any scale, with dual variables that sum to zero, as those of a
    certificate do.
    """
    bank, bound = rbf(10.0 ** np.array(exponents)), 10.0**size
    (family,) = group(bank)
    sums, rng = accurate_sums(family, bound), np.random.default_rng(seed)
    stat = bound * rng.uniform(size=(12, 9)) ** rng.integers(1, 30)
    left, right = rng.normal(size=12), rng.normal(size=9)
    right -= right.mean()
    moments = sums.moments()
    sums.add(moments, stat, left, right)
    for kernel, found in zip(bank, sums.total(moments), strict=True):
        expected = fsum((left[:, None] * kernel.profile(stat) * right).ravel())
        assert abs(found - expected) <= 1e-12 * np.abs(np.outer(left, right)).sum()


def test_moments_of_parts_add_up():
    sums, stat, left, right = block("rbf")
    whole, first, second = sums.moments(), sums.moments(), sums.moments()
    sums.add(whole, stat, left, right)
    sums.add(first, np.ascontiguousarray(stat[:, :9]), left, right[:9])
    sums.add(second, np.ascontiguousarray(stat[:, 9:]), left, right[9:])
    np.testing.assert_allclose(sums.total(first + second), sums.total(whole), rtol=1e-12, atol=1e-12)


def test_what_is_not_said_is_an_error():
    from raymkl.kernels.pairs.accurate import AccurateSums

    empty = AccurateSums()
    for call in (
        lambda: empty.function(np.ones(1)),
        empty.moments,
        lambda: empty.add(None, None, None, None),
        lambda: empty.total(None),
    ):
        with pytest.raises(TypeError, match="AccurateSums"):
            call()
