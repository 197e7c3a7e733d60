"""One problem in every container that is accepted, ready-made matrices, and normalisations: the same model
each time.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from raymkl import MKLClassifier
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
from tests.reference import apart, decision_from, dual_optimum, gram, noisy_problem, normalised

X, Y = noisy_problem(80, seed=7)
X_TEST, _ = noisy_problem(50, seed=8)
NAMES = list("uvwxyz")
BANK = [RBF(gamma=0.1), RBF(gamma=0.5), Linear(view=[0, 1]), Polynomial(degree=2, coef0=1.0, view=[2, 3, 4])]


def classifier(bank=BANK, **more):
    return MKLClassifier(**{"kernels": bank, "engine": "local", "tol": 1e-6, **more})


REFERENCE = classifier().fit(X, Y)
EXPECTED = REFERENCE.decision_function(X_TEST)


def named(views):
    """The bank with views said in words, for containers that have names."""
    every, first, second = views
    return [
        RBF(gamma=0.1, view=every),
        RBF(gamma=0.5, view=every),
        Linear(view=first),
        Polynomial(degree=2, coef0=1.0, view=second),
    ]


def vectors(array):
    """An Arrow column of vectors."""
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).ravel()), array.shape[1])


def frame_with_text(array):
    frame = pd.DataFrame(array, columns=NAMES)
    frame.insert(0, "patient", [f"p{i}" for i in range(len(array))])
    frame["remark"] = "none"
    return frame


CONTAINERS = {
    "ndarray": (lambda A: A, BANK),
    "fortran": (np.asfortranarray, BANK),
    "float32": (lambda A: A.astype(np.float32), BANK),
    "csr": (sp.csr_matrix, BANK),
    "csc": (sp.csc_matrix, BANK),
    "csr_array": (sp.csr_array, BANK),
    "frame": (lambda A: pd.DataFrame(A, columns=NAMES), BANK),
    "frame by name": (frame_with_text, named((NAMES, ["u", "v"], ["w", "x", "y"]))),
    "table": (
        lambda A: pa.table({name: A[:, i] for i, name in enumerate(NAMES)}),
        named((None, ["u", "v"], ["w", "x", "y"])),
    ),
    "table of vectors": (
        lambda A: pa.table(
            {
                "all": vectors(A),
                "a": vectors(A[:, :2]),
                "b": vectors(A[:, 2:5]),
                "id": [str(i) for i in range(len(A))],
            }
        ),
        named(("all", "a", "b")),
    ),
    "dict": (lambda A: {"all": A, "a": A[:, :2], "b": sp.csr_matrix(A[:, 2:5])}, named(("all", "a", "b"))),
    "dict with columns": (
        lambda A: {"all": A, "other": ["text"] * len(A)},
        named(("all", ("all", [0, 1]), ("all", [2, 3, 4]))),
    ),
    "dict of frames": (
        lambda A: {"f": pd.DataFrame(A, columns=NAMES)},
        named(("f", ("f", ["u", "v"]), ("f", ["w", "x", "y"]))),
    ),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_model(name):
    make, bank = CONTAINERS[name]
    model = classifier(bank).fit(make(X), Y)
    np.testing.assert_allclose(model.kernel_weights_, REFERENCE.kernel_weights_, atol=1e-4)
    assert apart(model.decision_function(make(X_TEST)), EXPECTED) < 1e-3
    assert model.predict(make(X_TEST)).shape == (len(X_TEST),)


def test_a_model_of_names_finds_its_columns_in_another_order():
    make, bank = CONTAINERS["table"]
    bank = [kernel for kernel in bank if kernel.view is not None]
    model = classifier(bank).fit(make(X), Y)
    shuffled = make(X_TEST).select(NAMES[::-1])
    np.testing.assert_array_equal(model.decision_function(shuffled), model.decision_function(make(X_TEST)))


def test_matrices_next_to_vectors():
    """A stack of matrices is one view of a dict; its columns are the training rows, or those of support_
    alone.
    """
    K, K_test = gram(BANK[2:], X), gram(BANK[2:], X_TEST, X)
    bank = [
        RBF(gamma=0.1, view="v"),
        Precomputed(view="m", index=1),
        RBF(gamma=0.5, view="v"),
        Precomputed(view="m", index=0),
    ]
    model = classifier(bank).fit({"v": X, "m": K}, Y)
    np.testing.assert_allclose(model.kernel_weights_, REFERENCE.kernel_weights_[[0, 3, 1, 2]], atol=1e-4)
    full = model.decision_function({"v": X_TEST, "m": K_test})
    assert apart(full, EXPECTED) < 1e-3
    np.testing.assert_allclose(
        model.decision_function({"v": X_TEST, "m": K_test[:, model.support_]}), full, rtol=1e-12
    )


def test_two_stacks_of_different_depth():
    K, K_test = gram(BANK, X), gram(BANK, X_TEST, X)
    bank = [Precomputed(view="a", index=m) for m in range(3)] + [Precomputed(view="b")]
    model = classifier(bank).fit({"a": K[..., :3], "b": K[..., 3]}, Y)
    np.testing.assert_allclose(model.kernel_weights_, REFERENCE.kernel_weights_, atol=1e-4)
    assert apart(model.decision_function({"a": K_test[..., :3], "b": K_test[..., 3]}), EXPECTED) < 1e-3


@pytest.mark.parametrize("used", [[0], [1], [2, 0]], ids=str)
def test_a_stack_need_not_be_used_up(used):
    K, K_test = gram(BANK, X)[..., :3], gram(BANK, X_TEST, X)[..., :3]
    model = classifier([Precomputed(view="m", index=m) for m in used]).fit({"m": K}, Y)
    alone = classifier("precomputed").fit(K[..., used], Y)
    np.testing.assert_allclose(model.kernel_weights_, alone.kernel_weights_, atol=1e-4)
    assert apart(model.decision_function({"m": K_test}), alone.decision_function(K_test[..., used])) < 1e-3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_precomputed_stack(dtype):
    K, K_test = gram(BANK, X).astype(dtype), gram(BANK, X_TEST, X).astype(dtype)
    model = classifier("precomputed").fit(K, Y)
    assert apart(model.decision_function(K_test), EXPECTED) < (1e-3 if dtype == np.float64 else 1e-2)
    assert len(model.support_) < len(X)
    columns = model.decision_function(K_test[:, model.support_])
    np.testing.assert_allclose(columns, model.decision_function(K_test), rtol=1e-6)
    np.testing.assert_allclose(
        model.decision_function(K_test), decision_from(model, K_test.astype(float)), atol=1e-4
    )


def test_one_precomputed_matrix_may_be_two_dimensional():
    K = BANK[0](X)
    model = classifier("precomputed").fit(K, Y)
    np.testing.assert_array_equal(model.kernel_weights_, [1.0])
    np.testing.assert_allclose(
        model.decision_function(K), classifier(BANK[:1]).fit(X, Y).decision_function(X), atol=1e-4
    )


def test_kernels_left_open():
    model = classifier(None).fit(X, Y)
    assert len(model.kernels_) == len(model.kernel_weights_) > 1
    assert model.kernels is None
    again = classifier(model.kernels_).fit(X, Y)
    np.testing.assert_array_equal(again.decision_function(X_TEST), model.decision_function(X_TEST))
    assert model.score(X, Y) > 0.75


def test_kernels_left_open_for_sparse_rows_and_frames():
    values = [
        classifier(None).fit(make(X), Y).decision_function(make(X_TEST))
        for make in (np.asarray, sp.csr_matrix, pd.DataFrame)
    ]
    assert apart(values[1], values[0]) < 1e-3
    assert apart(values[2], values[0]) < 1e-3


@pytest.mark.parametrize(
    "bank",
    [RBF(gamma=0.1), (RBF(gamma=0.1),), RBF(gamma=0.05) * RBF(gamma=0.05)],
    ids=["object", "tuple", "product"],
)
def test_one_kernel_object_is_a_list_of_one(bank):
    model = classifier(bank).fit(X, Y)
    np.testing.assert_allclose(
        model.decision_function(X_TEST),
        classifier([RBF(gamma=0.1)]).fit(X, Y).decision_function(X_TEST),
        atol=1e-6,
    )


def cauchy(A, B):
    return 1 / (1 + ((A[:, None] - B[None]) ** 2).sum(axis=-1))


HISTOGRAMS = np.abs(X) / np.abs(X).sum(axis=1, keepdims=True)
FAMILIES = [
    [Laplacian(gamma=0.3), Laplacian(gamma=3.0)],
    [Chi2(gamma=1.0), Chi2(gamma=10.0), HistogramIntersection()],
    [Custom(cauchy), RBF(gamma=1.0)],
    [RBF(gamma=1.0) + Linear(), RBF(gamma=1.0) * Linear(view=[0, 1]), 3.0 * Polynomial(degree=3, coef0=0.5)],
    [Polynomial(degree=15, coef0=1.0), Polynomial(degree=1, gamma=2.0)],
]


@pytest.mark.parametrize("bank", FAMILIES, ids=lambda bank: type(bank[0]).__name__)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_family_of_kernels_reaches_its_optimum(bank, dtype):
    K = gram(bank, HISTOGRAMS)
    model = classifier(bank, C=10.0, tol=1e-4, dtype=dtype).fit(HISTOGRAMS, Y)
    assert model.converged_
    assert model.dual_objective_ == pytest.approx(dual_optimum(K, Y, 10.0, 4 / 3), rel=2e-4)
    np.testing.assert_allclose(
        model.decision_function(HISTOGRAMS[:30]), decision_from(model, K[:30]), atol=1e-8
    )


# -- normalisation ---------------------------------------------------------------------------------

# Diagonals that differ between rows, or normalisation has little to do.
UNEVEN = [RBF(gamma=0.1), Linear(), Polynomial(degree=2, coef0=1.0), 50.0 * RBF(gamma=0.5), Linear(view=[0])]


@pytest.mark.parametrize("kind", ["multiplicative", "trace", "spherical"])
@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_normalised_kernels_are_normalised_matrices(kind, p, dtype):
    """C grows with the trace: normalised by trace, kernels are n times smaller."""
    C, tol = (len(X) if kind == "trace" else 1.0), 1e-4
    K, K_test = gram(UNEVEN, X), gram(UNEVEN, X_TEST, X)
    N, N_test = normalised(kind, K, K_test, np.stack([kernel.diag(X_TEST) for kernel in UNEVEN], axis=1))
    model = classifier(UNEVEN, p=p, C=C, normalize=kind, tol=tol, dtype=dtype).fit(X, Y)
    assert model.dual_objective_ == pytest.approx(dual_optimum(N, Y, C, p), rel=2 * tol)
    if p < 2:
        assert np.sum(model.kernel_weights_ ** (p / (2 - p))) == pytest.approx(1, abs=1e-6)
    # New examples meet the constants of the training rows, whatever company they come in.
    exact = 1e-8 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(model.decision_function(X_TEST), decision_from(model, N_test), atol=exact)
    np.testing.assert_allclose(
        model.decision_function(X_TEST[:1]), decision_from(model, N_test)[:1], atol=exact
    )


@pytest.mark.parametrize("kind", ["multiplicative", "trace"])
def test_normalised_stacks(kind):
    K, K_test = gram(UNEVEN, X), gram(UNEVEN, X_TEST, X)
    vectors_model = classifier(UNEVEN, normalize=kind, C=10.0).fit(X, Y)
    matrices_model = classifier("precomputed", normalize=kind, C=10.0).fit(K, Y)
    assert apart(matrices_model.decision_function(K_test), vectors_model.decision_function(X_TEST)) < 1e-3


@pytest.mark.parametrize("kind", ["multiplicative", "trace", "spherical"])
def test_a_kernel_that_cannot_be_normalised_drops_out(kind):
    """Rows of zeros have no direction, a feature that is zero everywhere has no variance: weight must not
    become NaN.
    """
    padded = np.column_stack([X, np.zeros(len(X))])
    padded[::9, :2] = 0.0
    bank = [RBF(gamma=0.1), Linear(view=[6]), Linear(view=[0, 1])]
    model = classifier(bank, normalize=kind, C=10.0, tol=1e-4).fit(padded, Y)
    assert model.converged_
    assert np.isfinite(model.kernel_weights_).all()
    assert np.isfinite(model.decision_function(padded)).all()


def test_scale_of_kernels_is_undone_by_normalisation():
    plain = classifier(rbf([0.1, 0.5]), normalize="multiplicative").fit(X, Y)
    scaled = classifier([1e5 * RBF(gamma=0.1), 1e-5 * RBF(gamma=0.5)], normalize="multiplicative").fit(X, Y)
    np.testing.assert_allclose(scaled.kernel_weights_, plain.kernel_weights_, atol=1e-5)
    assert apart(scaled.decision_function(X_TEST), plain.decision_function(X_TEST)) < 1e-3
