"""The programs behind a quadratic norm, against other solvers; and what it refuses."""

import threading

import numpy as np
import pytest
from scipy.optimize import nnls

from raymkl.optim.norms import QuadraticNorm
from raymkl.optim.norms.quadratic import Above


def definite(M, seed, ridge=0.05):
    root = np.random.default_rng(seed).normal(size=(M, M + 1))
    return root @ root.T / M + ridge * np.eye(M)


def by_least_squares(A, v):
    """min_{z >= v} z'Az = max_{l >= 0} 2 l'v - l' A^-1 l."""
    L = np.linalg.cholesky(np.linalg.inv(A))
    lengths = nnls(L.T, np.linalg.solve(L, v))[0]
    return 2 * lengths @ v - np.sum((L.T @ lengths) ** 2)


@pytest.mark.parametrize("M", [1, 2, 6, 30])
@pytest.mark.parametrize("seed", range(3))
def test_one_program_after_the_other(M, seed):
    A, rng = definite(M, seed), np.random.default_rng(seed)
    above = Above(A)
    for _ in range(10):
        v = rng.uniform(0, 1, M) ** rng.choice([0.5, 3.0]) * rng.choice([1e-8, 1.0, 1e6])
        z, lengths, free = above.solve(v)
        scale = z.max()
        assert np.all(z >= v * (1 - 1e-15)) and np.all(lengths >= 0) and np.all(lengths[free] == 0)
        np.testing.assert_allclose(A @ z, lengths, atol=1e-11 * scale * A.max())
        np.testing.assert_allclose(lengths * (z - v), 0.0, atol=1e-11 * scale**2)
        assert lengths @ v == pytest.approx(by_least_squares(A, v), rel=1e-9)


@pytest.mark.parametrize("way", ["_from_osqp", "_from_least_squares"])
def test_each_way_alone_finds_where_constraints_hold(way, monkeypatch):
    A = definite(12, 4)
    expected = Above(A).solve(np.linspace(0.1, 1.0, 12))
    above = Above(A)
    found = above._exact(np.linspace(0.1, 1.0, 12), getattr(above, way)(np.linspace(0.1, 1.0, 12)))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_array_equal(found[2], expected[2])


def test_a_wrong_answer_of_the_solver_is_noticed(monkeypatch):
    A, v = definite(12, 5), np.linspace(1.0, 0.1, 12)
    expected = Above(A).solve(v)
    for wrong in (np.zeros(12, bool), np.arange(12) < 5):
        above = Above(A)
        monkeypatch.setattr(above, "_from_osqp", lambda v, wrong=wrong: wrong)
        np.testing.assert_allclose(above.solve(v)[1], expected[1], atol=1e-12)


def test_the_solver_is_set_up_once(monkeypatch):
    import osqp

    made = []
    old = osqp.OSQP.setup
    monkeypatch.setattr(
        osqp.OSQP, "setup", lambda self, *args, **more: (made.append(1), old(self, *args, **more))[1]
    )
    norm, rng = QuadraticNorm(definite(15, 6)), np.random.default_rng(0)
    for _ in range(30):
        norm.weights(rng.uniform(0, 1, 15) ** 4)
    assert len(made) == 1


def test_threads_may_share_a_norm():
    norm = QuadraticNorm(definite(10, 7))
    points = [np.random.default_rng(seed).uniform(0, 1, 10) ** 3 for seed in range(40)]
    expected, found = [QuadraticNorm(norm.E).weights(s) for s in points], [None] * 40

    def work(start):
        for k in range(start, 40, 4):
            found[k] = norm.weights(points[k])

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_kernels_that_speak_for_others_silence_them():
    """Neighbours in a chain: a kernel whose neighbours are much larger has z > v, and no weight."""
    norm = QuadraticNorm(2.5 * np.eye(3) - np.eye(3, k=1) - np.eye(3, k=-1))
    theta = norm.weights(np.array([1.0, 1e-4, 1.0]))
    assert theta[1] == 0 and np.all(theta[[0, 2]] > 0)


def test_curvature_of_vanishing_terms_is_a_number():
    for norm in (
        QuadraticNorm(definite(4, 8)),
        QuadraticNorm(2.5 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)),
    ):
        found = norm.curvature(np.array([1.0, 0.0, 2.0, 1e-200]))
        assert np.isfinite(found[:, [0, 2]][[0, 2]]).all() and not np.isnan(found).any()


def test_large_matrices_have_a_short_name():
    E = definite(9, 9)
    other = E.copy()
    other[0, 0] += 1.0
    assert len(repr(QuadraticNorm(E))) < 80 and repr(QuadraticNorm(E)) != repr(QuadraticNorm(other))
    assert repr(QuadraticNorm(np.eye(2))) == "QuadraticNorm(E=[[1.0, 0.0], [0.0, 1.0]])"


def test_the_matrix_is_a_copy_that_stays():
    E = np.eye(3)
    norm = QuadraticNorm(E)
    E[0, 0] = 5.0
    assert norm.E[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        norm.E[0, 0] = 2.0


@pytest.mark.parametrize(
    "E, word",
    [
        (np.ones((3, 3)), "definite"),
        (np.diag([1.0, -1.0]), "definite"),
        (np.eye(3) + np.eye(3, k=1), "symmetric"),
        (np.eye(3)[:2], "square"),
        (np.ones(4), "square"),
        ([[1.0, np.nan], [np.nan, 1.0]], "NaN"),
        ("many", "numbers"),
        (np.empty((0, 0)), "square"),
    ],
)
def test_matrices_that_are_refused(E, word):
    with pytest.raises(ValueError, match=word):
        QuadraticNorm(E)


def test_another_number_of_kernels_is_refused():
    QuadraticNorm(np.eye(3)).check(3)
    with pytest.raises(ValueError, match="shape"):
        QuadraticNorm(np.eye(3)).check(4)
