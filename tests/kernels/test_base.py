"""Arithmetic of kernels, their parameters, equality and printed form."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from raymkl.data.views import view_key
from raymkl.kernels import (
    RBF,
    Chi2,
    Custom,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Product,
    Scaled,
    Sum,
)
from raymkl.kernels.pairs.statistics import InnerProduct, KernelValue, SquaredDistance

rng = np.random.default_rng(3)
X, Z = np.abs(rng.normal(size=(10, 4))), np.abs(rng.normal(size=(6, 4)))
DICT, OTHER = {"a": X, "b": sp.csr_matrix(X[:, :2])}, {"a": Z, "b": sp.csr_matrix(Z[:, :2])}


def cosine(A, B):
    return A @ B.T / np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))


# Pairs that share a statistic, that do not, that are composite themselves, and that have no formula.
PAIRS = [
    (RBF(1.0), RBF(0.1)),
    (Linear(), Polynomial(2, 0.5, 1.0)),
    (RBF(0.5), Linear()),
    (Laplacian(0.5), Chi2(0.5)),
    (HistogramIntersection(), Custom(cosine)),
    (Custom(cosine), Custom(cosine)),
    (RBF(1.0, view=0), RBF(1.0, view=[1, 2])),
    (RBF(1.0) + Linear(), Laplacian(2.0)),
    (RBF(1.0) * RBF(0.2), 3.0 * Linear(view=1)),
    (2.0 * (RBF(1.0) + Chi2()), Custom(cosine) * Linear()),
]
ALL = pytest.mark.parametrize("left, right", PAIRS, ids=repr)


@ALL
@pytest.mark.parametrize("operation", [np.add, np.multiply], ids=["+", "*"])
def test_sums_and_products_are_entry_by_entry(left, right, operation):
    kernel = left + right if operation is np.add else left * right
    np.testing.assert_allclose(kernel(X), operation(left(X), right(X)), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, Z), operation(left(X, Z), right(X, Z)), rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), operation(left.diag(X), right.diag(X)), rtol=1e-12)
    np.testing.assert_array_equal(kernel(X), kernel(X).T)
    eigenvalues = np.linalg.eigvalsh(kernel(X))
    assert kernel(X).dtype == np.float64 and eigenvalues[0] > -1e-8 * eigenvalues[-1]


@pytest.mark.parametrize(
    "kernel",
    [RBF(0.5), Linear(view=0), Custom(cosine), RBF() + Linear(), RBF() * Laplacian(), 3 * RBF()],
    ids=repr,
)
@pytest.mark.parametrize("scale", [2, 0.25, np.float64(3.0), np.float32(0.5)], ids=repr)
def test_scaling(kernel, scale):
    for scaled in (scale * kernel, kernel * scale):
        assert isinstance(scaled, Scaled)
        np.testing.assert_allclose(scaled(X, Z), float(scale) * kernel(X, Z), rtol=1e-12)
        np.testing.assert_allclose(scaled.diag(X), float(scale) * kernel.diag(X), rtol=1e-12)


def test_over_several_views():
    kernel = 2.0 * (RBF(0.5, view="a") * Linear(view="b")) + Laplacian(1.0, view=("a", [0, 3]))
    dense = Z[:, :2]
    expected = 2 * RBF(0.5)(X, Z) * Linear()(X[:, :2], dense) + Laplacian(1.0)(X[:, [0, 3]], Z[:, [0, 3]])
    np.testing.assert_allclose(kernel(DICT, OTHER), expected, rtol=1e-12)
    assert set(kernel.views) == {view_key(view) for view in ("a", "b", ("a", [0, 3]))}


def test_masks_and_column_numbers_do_not_share_a_statistic():
    """[False, True] chooses one of two columns, [0, 1] both."""
    one, other = RBF(view=[0, 1]), RBF(view=[False, True])
    np.testing.assert_allclose((one + other)(X[:, :2]), one(X[:, :2]) + other(X[:, :2]))


def test_kernels_over_one_statistic_stay_functions_of_it():
    assert (RBF(1.0) + 2 * RBF(0.5) * RBF(3.0)).statistic() == SquaredDistance()
    assert (Linear() * Polynomial(2)).statistic() == InnerProduct()
    assert isinstance((RBF(view=0) + RBF(view=1)).statistic(), KernelValue)
    assert isinstance((RBF() + Laplacian()).statistic(), KernelValue)


@pytest.mark.parametrize(
    "kernel, powers",
    [
        (Linear() + Polynomial(2, 1.0, 1.0), [1, 3, 1]),
        (Linear() * Polynomial(2, 1.0, 1.0), [0, 1, 2, 1]),
        (3 * (Linear() * Linear()) + Linear(), [0, 1, 3]),
        (RBF() + Linear(), [0, 1]),  # a value of its own
        (0.5 * (RBF() * Linear()), [0, 0.5]),
        (RBF() + RBF(0.5), None),
    ],
    ids=repr,
)
def test_powers_of_composites(kernel, powers):
    if powers is None:
        assert kernel.powers() is None
    else:
        np.testing.assert_allclose(kernel.powers(), powers)


@pytest.mark.parametrize("scale", [0, 0.0, -1, np.nan, np.inf])
def test_scaling_must_be_positive(scale):
    for make in (
        lambda: scale * RBF(),
        lambda: RBF() * scale,
        lambda: Scaled(RBF(), scale),
        lambda: (2 * RBF()).set_params(scale=scale),
    ):
        with pytest.raises(ValueError, match="positive"):
            make()


def test_only_kernels_and_numbers_combine():
    for make in (lambda: RBF() + 1, lambda: RBF() * "2", lambda: RBF() + "x"):
        with pytest.raises(TypeError):
            make()
    for kind in (Sum, Product):
        with pytest.raises(TypeError, match="takes kernels, got str"):
            kind(RBF(), "x")


def test_precomputed_has_no_sums():
    for make in (
        lambda: Precomputed() + RBF(),
        lambda: RBF() * Precomputed("K"),
        lambda: Precomputed() + Precomputed(index=1),
        lambda: 2 * Precomputed() + RBF(),
        lambda: (RBF() + Linear()).set_params(left=Precomputed()),
    ):
        with pytest.raises(TypeError, match=r"Precomputed\(.*cannot be (part of a sum or product|scaled)"):
            make()


def test_scaled_precomputed_is_the_scaled_matrix_or_an_early_error():
    try:
        kernel = 2.0 * Precomputed()
    except TypeError:
        return
    np.testing.assert_allclose(kernel(np.eye(3)), 2 * np.eye(3))


@pytest.mark.parametrize(
    "kernel",
    [Chi2() + RBF(), RBF() * Chi2(), 2 * Chi2(), 2 * (Chi2() + RBF()), 2 * (RBF() + Chi2()) * Linear()],
    ids=repr,
)
def test_parts_that_need_histograms_still_check_their_input(kernel):
    assert np.isfinite(kernel(X)).all()
    with pytest.raises(ValueError, match="non-negative"):
        kernel(X - 1.0)


def test_get_params():
    kernel = 2.0 * (RBF(0.5, view="a") + Polynomial(2))
    assert kernel.get_params(deep=False) == {"kernel": kernel.kernel, "scale": 2.0}
    deep = kernel.get_params()
    assert (
        deep["kernel__left__gamma"] == 0.5
        and deep["kernel__left__view"] == "a"
        and deep["kernel__right__degree"] == 2
    )
    assert set(RBF().get_params()) == {"gamma", "view"}


def test_set_params():
    kernel = 2.0 * (RBF(0.5) + Polynomial(2))
    assert kernel.set_params(scale=3.0, kernel__left__gamma=0.1, kernel__right__coef0=1.0) is kernel
    np.testing.assert_allclose(kernel(X, Z), 3 * (RBF(0.1)(X, Z) + Polynomial(2, 1.0, 1.0)(X, Z)))
    assert kernel.set_params(**kernel.get_params(deep=False)) == kernel


@pytest.mark.parametrize(
    "kernel, name, known",
    [(RBF(), "width", "gamma"), (RBF() + Linear(), "left__width", "gamma"), (2 * RBF(), "x", "scale")],
)
def test_unknown_parameters_are_named(kernel, name, known):
    with pytest.raises(ValueError, match=f"no parameter '{name.split('__')[-1]}'.*{known}"):
        kernel.set_params(**{name: 1})


@ALL
def test_copies_are_equal(left, right):
    kernel = left + 2 * right
    assert clone(kernel) == kernel and clone(kernel) is not kernel
    copy = pickle.loads(pickle.dumps(kernel))
    assert copy == kernel and hash(copy) == hash(kernel)


def test_equality():
    assert RBF(1) == RBF(1.0) and hash(RBF(1)) == hash(RBF(1.0))
    assert RBF(view=[0, 1]) == RBF(view=np.array([0, 1]))
    assert RBF() + Linear() == RBF() + Linear() and RBF() + Linear() != RBF() * Linear()
    different = [
        RBF(),
        RBF(2.0),
        RBF(view=0),
        Laplacian(),
        Linear(),
        Polynomial(1),
        RBF() + Linear(),
        Linear() + RBF(),
        2 * RBF(),
        3 * RBF(),
    ]
    assert len(set(different)) == len(different) and RBF() != "RBF()"
    assert Custom(cosine) == Custom(cosine) != Custom(cosine, view=0)


@pytest.mark.parametrize(
    "kernel, text",
    [
        (RBF(), "RBF()"),
        (RBF(0.5, view="a"), "RBF(gamma=0.5, view='a')"),
        (RBF(1 / 3), "RBF(gamma=0.333333)"),
        (Linear(view=[0, 1]), "Linear(view=[0, 1])"),
        (Polynomial(2, coef0=1.0), "Polynomial(degree=2, coef0=1)"),
        (2 * RBF() + Linear(), "(2 * RBF() + Linear())"),
        (0.5 * (RBF() * Chi2(2.0)), "0.5 * (RBF() * Chi2(gamma=2))"),
        (Custom(cosine), "Custom(cosine)"),
        (Custom(cosine, view=1), "Custom(cosine, view=1)"),
        (Precomputed("K", 2), "Precomputed(view='K', index=2)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_printed_form(kernel, text):
    assert repr(kernel) == text
