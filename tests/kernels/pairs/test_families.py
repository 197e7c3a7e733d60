"""Families: which kernels share a statistic, which basis they get, and their weighted sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.kernels import (
    RBF,
    Chi2,
    Custom,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    rbf,
)
from raymkl.kernels.pairs.basis import FormulaBasis, PowerBasis, StackBasis
from raymkl.kernels.pairs.families import NO_GATE, group
from raymkl.kernels.pairs.statistics import InnerProduct, KernelValue, SquaredDistance
from raymkl.kernels.pairs.tables import TableBasis, WideTableBasis

rng = np.random.default_rng(5)


def product(A, B):
    return A @ B.T


def test_grouping_by_statistic_in_order_of_appearance():
    kernels = [
        Linear(),
        RBF(1.0),
        Polynomial(2),
        RBF(0.1, view="a"),
        2 * RBF(0.5),
        RBF(1.0) + Linear(),
        RBF(2.0) * RBF(1.0),
    ]
    families = group(kernels)
    assert [family.members for family in families] == [[0, 2], [1, 4, 6], [3], [5]]
    assert [family.gate for family in families] == [NO_GATE] * 4
    assert families[0].statistic == InnerProduct() and families[1].statistic == SquaredDistance()
    assert families[2].statistic == SquaredDistance("a") and isinstance(families[3].statistic, KernelValue)
    for family in families:
        assert family.kernels == [kernels[m] for m in family.members]


def test_grouping_by_gate():
    families = group([RBF(1.0), RBF(2.0), RBF(3.0), Linear()], gates=[0, NO_GATE, 0, 0])
    assert [(family.gate, family.members) for family in families] == [(0, [0, 2]), (NO_GATE, [1]), (0, [3])]


def test_equal_views_written_differently_are_one_family():
    families = group([RBF(view=[0, 1]), RBF(view=np.array([0, 1])), RBF(view=[1, 0])])
    assert [family.members for family in families] == [[0, 1], [2]]


def test_a_mask_and_column_numbers_are_two_families():
    assert len(group([RBF(view=[0, 1]), RBF(view=[False, True])])) == 2


def test_no_kernels_no_families():
    assert group([]) == []


POOL = [
    RBF(1.0),
    RBF(0.1),
    Linear(),
    Polynomial(2),
    Laplacian(),
    Chi2(),
    RBF(view="a"),
    Linear() + RBF(),
    Custom(product),
]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(choice=st.lists(st.tuples(st.sampled_from(POOL), st.integers(-1, 2)), max_size=20))
def test_families_partition_the_entries(choice):
    """Every entry is in exactly one family, members rise, and no two families could be merged."""
    families = group([kernel for kernel, _ in choice], [gate for _, gate in choice])
    assert sorted(m for family in families for m in family.members) == list(range(len(choice)))
    assert all(family.members == sorted(family.members) for family in families)
    assert len({(family.statistic, family.gate) for family in families}) == len(families)
    assert [family.members[0] for family in families] == sorted(family.members[0] for family in families)
    for family in families:
        assert all(
            (choice[m][0].statistic(), choice[m][1]) == (family.statistic, family.gate)
            for m in family.members
        )


@pytest.mark.parametrize(
    "kernels, exact, kind",
    [
        (rbf([1.0, 0.1]), False, TableBasis),
        (rbf([1.0, 0.1]), True, FormulaBasis),
        ([Laplacian()], False, TableBasis),
        ([Linear()], False, PowerBasis),
        ([Linear()], True, PowerBasis),  # a linear function of the statistic is exact already
        ([Linear(), Polynomial(3)], False, PowerBasis),
        ([Linear(), Polynomial(3)], True, FormulaBasis),
        ([Polynomial(12)], False, PowerBasis),
        (
            [Polynomial(13)],
            False,
            FormulaBasis,
        ),  # powers too high; inner products may be negative, so no table either
        ([HistogramIntersection()], False, PowerBasis),
        ([Custom(product)], False, PowerBasis),
        ([RBF() + Linear()], True, PowerBasis),
        ([Precomputed(index=1), Precomputed(index=0)], False, StackBasis),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_choice_of_basis(kernels, exact, kind, dtype):
    (family,) = group(kernels)
    basis = family.basis(10.0, exact=exact, dtype=dtype)
    kind = WideTableBasis if kind is TableBasis and dtype is np.float64 else kind
    assert type(basis) is kind and len(basis.coefficients) == len(kernels)


@pytest.mark.parametrize(
    "kernels",
    [
        rbf([1.0, 0.1, 0.02]),
        [Linear(), Polynomial(2, 0.1, 1.0)],
        [HistogramIntersection(), 3 * HistogramIntersection()],
    ],
    ids=str,
)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 2e-10)])
def test_bases_give_back_the_kernel_matrices(kernels, exact, dtype, tolerance):
    """From rows to kernel values through statistic, bound and basis, as training does it."""
    (family,) = group(kernels)
    X = rng.uniform(0, 1, size=(12, 6))
    prepared = family.statistic.prepare({None: X}, dtype)
    basis = family.basis(family.statistic.bound(family.statistic.largest(prepared)), exact, dtype)
    stat = family.statistic.pairs(prepared, prepared)
    for kernel, line in zip(kernels, basis.coefficients, strict=True):
        np.testing.assert_allclose(basis.matrix(stat, line), kernel(X), rtol=0, atol=tolerance)


def test_basis_of_ready_made_matrices_follows_the_index():
    (family,) = group([Precomputed(index=2), Precomputed(index=0)])
    basis = family.basis(1.0)
    np.testing.assert_array_equal(basis.coefficients, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(basis.matrices, [0, 2])


BANKS = {
    "gaussian": (rbf(2.0 ** np.linspace(2, -20, 60)), 300.0),
    "few": ([RBF(1.0), 2 * RBF(0.3)], 3.0),
    "laplacian": ([Laplacian(gamma) for gamma in (3.0, 0.1, 0.01)], 1e3),
    "chi2": ([Chi2(1.0), Chi2(0.5)], 2.0),
    "composite": ([RBF(1.0) * RBF(0.1), RBF(5.0) + RBF(0.01)], 50.0),
}


@pytest.mark.parametrize("kernels, bound", BANKS.values(), ids=BANKS.keys())
def test_combined_by_table_and_by_formula_agree(kernels, bound):
    (family,) = group(kernels)
    weights = rng.dirichlet(np.ones(len(kernels))) / 2
    ends = [0.0, 5e-324, 1e-300, 1e-20, 1e-9 * bound, bound]
    stat = np.concatenate(
        [ends, rng.uniform(0, bound, 3000), bound * 10.0 ** rng.uniform(-14, 0, 3000)]
    ).reshape(2, -1)
    naive = sum(w * kernel.profile(stat) for w, kernel in zip(weights, kernels, strict=True))
    by_table, by_formula = (
        family.combined(weights, bound, tabulated=True),
        family.combined(weights, bound, tabulated=False),
    )
    assert by_table.table is not None and by_formula.table is None
    np.testing.assert_allclose(by_formula(stat), naive, rtol=1e-12)
    np.testing.assert_allclose(by_table(stat), naive, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(by_table(np.asfortranarray(stat)), by_table(stat))


def test_combined_leaves_out_zero_weights():
    def refuse(t):
        raise AssertionError("a kernel of weight zero was evaluated")

    used, unused = RBF(1.0), RBF(2.0)
    (family,) = group([used, unused])
    unused.profile = refuse
    stat = rng.uniform(0, 5, size=(3, 4))
    np.testing.assert_allclose(family.combined(np.array([0.5, 0.0]), 5.0, True)(stat), 0.5 * np.exp(-stat))
    np.testing.assert_array_equal(family.combined(np.zeros(2), 5.0, True)(stat), np.zeros((3, 4)))


def test_combined_of_signed_statistics_goes_by_formula():
    (family,) = group([Linear(), Polynomial(2, 1.0, 1.0)])
    combined = family.combined(np.array([2.0, 0.5]), 4.0, tabulated=True)
    stat = rng.normal(size=(5, 3))
    assert combined.table is None
    np.testing.assert_allclose(combined(stat), 2 * stat + 0.5 * (stat + 1) ** 2)


def test_combined_needs_one_weight_per_kernel():
    (family,) = group(rbf([1.0, 2.0]))
    with pytest.raises(ValueError):
        family.combined(np.ones(3), 1.0, tabulated=False)
