"""Ready-made matrices that are not kernels, or not of the right shape, are refused with the matrix named."""

import numpy as np
import pytest
import scipy.sparse as sp

from raymkl import MKLClassifier
from raymkl.kernels import RBF, Linear, Precomputed
from raymkl.models import reading
from tests.checks import fails
from tests.reference import gram, noisy_problem

X, Y = noisy_problem(60, seed=9)
K = gram([RBF(gamma=0.1), Linear()], X)


def fit(stack, y=Y, **more):
    return MKLClassifier(**{"kernels": "precomputed", "engine": "local", **more}).fit(stack, y)


def indefinite(eigenvalue, n=60, seed=0):
    """A symmetric matrix with a positive diagonal, unit eigenvalues and one negative one."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(n, n)))[0]
    matrix = (vectors * np.concatenate([[eigenvalue], np.ones(n - 1)])) @ vectors.T
    return (matrix + matrix.T) / 2


@pytest.mark.parametrize(
    "stack",
    [np.moveaxis(K, -1, 0), K[:, :50], K[:50], K[..., None], np.ones(60), np.ones((60, 60, 0)), X],
    ids=["kernels first", "columns missing", "rows missing", "4-D", "1-D", "no kernels", "features"],
)
def test_wrong_shapes(stack):
    fails(["precomputed", "shape", "(n, n, M)", str(stack.shape)], lambda: fit(stack))


def test_sparse_and_textual_stacks():
    fails(["precomputed", "sparse"], lambda: fit(sp.csr_matrix(K[..., 0])))
    fails([], lambda: fit(np.full((60, 60, 1), "text")))
    fails([], lambda: fit(None))


def test_rows_and_labels_must_match():
    fails(["60", "59"], lambda: fit(K, Y[:59]))


def test_asymmetric():
    bad = K.copy()
    bad[3, 5, 1] += 1.0
    fails(["kernel 1", "symmetric"], lambda: fit(bad))


def test_negative_diagonal():
    bad = K.copy()
    bad[7, 7, 1] = -0.5 * np.abs(bad).max()
    fails(["kernel 1", "definite", "diagonal"], lambda: fit(bad))
    fails(["definite"], lambda: fit(-K))


@pytest.mark.parametrize("eigenvalue", [-3.0, -10.0, -50.0])
@pytest.mark.parametrize("seed", range(3))
def test_large_negative_eigenvalue_behind_a_positive_diagonal(eigenvalue, seed):
    """With a negative eigenvalue of this size a dual without bound could be reported as an optimum."""
    bad = indefinite(eigenvalue, seed=seed)
    bad += np.diag(np.maximum(0.01 - np.diag(bad), 0.0))
    assert np.diag(bad).min() > 0
    assert np.linalg.eigvalsh(bad)[0] < -0.5
    fails(["kernel 1", "definite"], lambda: fit(np.stack([K[..., 0], bad], axis=-1), C=10.0))


def test_an_entry_larger_than_its_diagonal_allows():
    bad = np.eye(60)
    bad[2, 9] = bad[9, 2] = 5.0
    fails(["definite"], lambda: fit(bad[..., None]))


def test_slight_round_off_is_welcome():
    """Float32 matrices are neither quite symmetric nor quite definite."""
    noise = np.random.default_rng(0).normal(size=K.shape) * 1e-7
    assert fit((K + noise).astype(np.float32)).converged_
    low_rank = gram([Linear(view=[0])], X)
    assert np.linalg.eigvalsh(low_rank[..., 0])[0] < 0
    assert fit(low_rank).converged_


def test_matrices_of_a_view_are_checked_too():
    """Also those of a stack whose first matrix is not used."""
    bad = K.copy()
    bad[3, 5, 1] += 1.0
    bank = [RBF(gamma=0.1, view="v"), Precomputed(view="m", index=0), Precomputed(view="m", index=1)]
    fails(["symmetric", "m"], lambda: fit({"v": X, "m": bad}, kernels=bank))
    fails(["symmetric", "m"], lambda: fit({"v": X, "m": bad}, kernels=[bank[0], bank[2]]))


def test_an_index_beyond_the_stack():
    fails(["index=4", "2"], lambda: fit({"m": K}, kernels=[Precomputed(view="m", index=4)]))
    fails(["index"], lambda: fit({"m": K}, kernels=[Precomputed(view="m", index=-1)]))


@pytest.mark.parametrize("kernels", ["precomputed", [Precomputed()]], ids=["word", "objects"])
def test_spherical_needs_more_than_a_matrix(kernels):
    rows = K if kernels == "precomputed" else {"m": K}
    fails(["spherical", "normalize"], lambda: fit(rows, kernels=kernels, normalize="spherical"))


def test_prediction_stacks_of_another_shape():
    model = fit(K)
    support = len(model.support_)
    for bad in (K[:10, :33], K[:10, :, :1], K[:10, : support - 1]):
        fails(["shape", 60, support], lambda bad=bad: model.predict(bad))
    fails(["shape"], lambda: model.predict(X[:10]))


def test_a_stack_of_prediction_that_has_nan():
    bad = K[:10].copy()
    bad[2, 3, 1] = np.nan
    fails(["nan", "kernel 1"], lambda: fit(K).predict(bad))


@pytest.mark.parametrize("value, word", [(np.nan, "nan"), (np.inf, "infinity")])
@pytest.mark.parametrize("place", [(0, 0, 0), (59, 59, 1), (31, 7, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("moved", [False, True])
def test_entries_that_are_not_finite_are_named(value, word, place, dtype, moved, monkeypatch):
    monkeypatch.setattr(reading.numbers, "CHECKED_BYTES", 5000)  # several portions
    bad = K.astype(dtype)
    bad[place] = value
    bad = np.moveaxis(np.ascontiguousarray(np.moveaxis(bad, 2, 0)), 0, 2) if moved else bad
    fails([word, f"kernel {place[2]}", f"({place[0]}, {place[1]})"], lambda: fit(bad))


def test_very_large_entries_are_finite():
    """Their squares are not."""
    large = np.full((3, 4), 1e200)
    assert reading.numbers.first_not_finite(large) is None
    large[2, 1] = -np.inf
    assert reading.numbers.first_not_finite(large) == (2, 1)
    assert reading.numbers.first_not_finite(np.empty((0, 3))) is None and reading.numbers.first_not_finite(
        np.full(3, np.nan)
    ) == (0,)


@pytest.mark.parametrize("room", [True, False])
def test_a_stack_with_its_axes_moved(room, monkeypatch):
    """Copied where there is memory for it, else read as it lies; the model is the same."""
    monkeypatch.setattr(reading.matrices, "free_memory", lambda: 10**9 if room else 0)
    moved = np.moveaxis(np.ascontiguousarray(np.moveaxis(K, 2, 0)), 0, 2)
    assert reading.precomputed_stack(moved, square=True).flags.c_contiguous == room
    one, other = fit(K), fit(moved)
    np.testing.assert_allclose(one.decision_function(K), other.decision_function(moved), atol=1e-9)
    bad = moved.copy(order="K")
    bad[3, 5, 1] += 1.0
    assert not bad.flags.c_contiguous
    fails(["kernel 1", "symmetric"], lambda: fit(bad))
