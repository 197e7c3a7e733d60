"""Regression: against scikit-learn's SVR with one kernel and a conic solver with several, and the whole
estimator contract.
"""

import pickle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import SVR

from raymkl import MKLRegressor, RayParams, load
from raymkl.kernels import RBF, Linear, rbf
from tests.reference import _root, dual_exponent, gram

BANK = [*rbf([0.1, 1.0]), Linear()]


def wave(n=70, seed=0, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, scale * (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)) + offset


def optimum(K, y, C, epsilon, p):
    """Value of the dual, by a conic solver. C : number or (n,)."""
    a, star = cp.Variable(len(y)), dual_exponent(p)
    lengths = cp.hstack([cp.norm2(_root(K[..., m]) @ a) for m in range(K.shape[2])])
    penalty = cp.square(cp.max(lengths) if np.isinf(star) else cp.pnorm(lengths, star))
    problem = cp.Problem(
        cp.Maximize(y @ a - epsilon * cp.norm1(a) - penalty / 2), [cp.abs(a) <= C, cp.sum(a) == 0]
    )
    return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (100.0, 1e4), (1e-3, -2.0)])
@pytest.mark.parametrize("tube", [0.0, 0.1, 0.6])
def test_one_kernel_is_support_vector_regression(scale, offset, tube):
    X, y = wave(120, scale=scale, offset=offset)
    T, _ = wave(40, seed=1)
    epsilon = tube * scale
    model = MKLRegressor(kernels=[RBF(0.3)], C=2.0, epsilon=epsilon, p=2, tol=1e-7, engine="local").fit(X, y)
    reference = SVR(gamma=0.3, C=2.0, epsilon=epsilon, tol=1e-8).fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.predict(T), reference.predict(T), atol=2e-3 * scale)


@pytest.mark.parametrize("p", [1, 4 / 3, 2, 4])
@pytest.mark.parametrize(
    "more", [{}, {"solver": "wrapper"}, {"theta_step": "cutting_plane"}, {"dtype": "float32"}]
)
def test_the_optimum_is_that_of_a_conic_solver(p, more):
    if p > 2 and "theta_step" in more:
        pytest.skip("cutting planes take p in [1, 2]")
    X, y = wave(60)
    model = MKLRegressor(kernels=BANK, C=3.0, epsilon=0.2, p=p, tol=1e-4, engine="local", **more).fit(X, y)
    best = optimum(gram(BANK, X), y, 3.0, 0.2, p)
    assert model.duality_gap_ <= 1e-4
    assert model.dual_objective_ == pytest.approx(best, rel=3e-4) and model.dual_objective_ <= best * (
        1 + 1e-5
    )
    assert model.primal_objective_ >= best * (1 - 1e-5)


def test_certificate_is_what_the_model_says():
    """Primal and dual from public attributes alone."""
    X, y = wave(60)
    model = MKLRegressor(kernels=BANK, C=3.0, epsilon=0.2, tol=1e-6, engine="local").fit(X, y)
    K, a = gram(BANK, X), np.zeros(60)
    a[model.support_] = model.dual_coef_[0]
    f = model.predict(X)
    np.testing.assert_allclose(f, K @ model.kernel_weights_ @ a + model.intercept_[0], atol=1e-9)
    lengths = model.kernel_weights_ * np.sqrt([a @ K[..., m] @ a for m in range(3)])
    primal = 0.5 * np.sum(lengths ** (4 / 3)) ** 1.5 + 3.0 * np.maximum(np.abs(y - f) - 0.2, 0).sum()
    assert primal == pytest.approx(model.primal_objective_, rel=1e-6)
    assert abs(a.sum()) < 1e-9 and np.abs(a).max() <= 3.0


def test_sample_weights_scale_the_bounds():
    X, y = wave(50)
    weights = np.random.default_rng(1).uniform(0, 2, 50)
    weights[:10] = 0.0
    model = MKLRegressor(kernels=BANK, C=2.0, tol=1e-5, engine="local").fit(X, y, sample_weight=weights)
    best = optimum(gram(BANK, X[10:]), y[10:], 2.0 * weights[10:], 0.1, 4 / 3)
    assert model.dual_objective_ == pytest.approx(best, rel=1e-4)
    assert np.all(model.support_ >= 10)


@pytest.mark.parametrize("y", [np.full(30, 1234.5), np.linspace(7.0, 7.01, 30)])
def test_targets_inside_one_tube(y):
    X, _ = wave(30)
    model = MKLRegressor(kernels=BANK, epsilon=0.1, engine="local").fit(X, y)
    assert model.converged_ and len(model.support_) == 0 and model.n_iter_ < 10
    assert np.abs(model.predict(X) - y).max() <= 0.1


def test_containers_normalisation_and_precomputed():
    X, y = wave(60)
    T, _ = wave(20, seed=3)
    settings = {"C": 3.0, "tol": 1e-6, "engine": "local"}
    expected = MKLRegressor(kernels=BANK, **settings).fit(X, y).predict(T)
    ready = MKLRegressor(kernels="precomputed", **settings).fit(gram(BANK, X), y)
    np.testing.assert_allclose(ready.predict(gram(BANK, T, X)), expected, atol=1e-4)
    sparse = MKLRegressor(kernels=BANK, **settings).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(T)), expected, atol=1e-4)
    for kind in ("multiplicative", "trace", "spherical"):
        model = MKLRegressor(kernels=BANK, normalize=kind, **{**settings, "tol": 1e-4}).fit(X, y)
        assert model.converged_ and np.isfinite(model.predict(T)).all()


def test_several_shards_and_working_sets_that_do_not_hold_all_rows():
    X, y = wave(400, seed=5)
    whole = MKLRegressor(kernels=BANK, C=5.0, tol=1e-6, engine="local").fit(X, y)
    small = RayParams(num_shards=3, memory_per_shard=1_200_000)
    parts = MKLRegressor(
        kernels=BANK, C=5.0, tol=1e-6, dtype="float64", engine="local", ray_params=small
    ).fit(X, y)
    assert parts.converged_
    assert parts.dual_objective_ == pytest.approx(whole.dual_objective_, rel=1e-5)


def test_warm_start_continues_over_C():
    X, y = wave(80)
    model = MKLRegressor(kernels=BANK, C=1.0, warm_start=True, tol=1e-5, engine="local").fit(X, y)
    warm = model.set_params(C=1.1).fit(X, y).predict(X)
    cold = MKLRegressor(kernels=BANK, C=1.1, tol=1e-5, engine="local").fit(X, y).predict(X)
    np.testing.assert_allclose(warm, cold, atol=1e-3)


def test_save_load_pickle_clone(tmp_path):
    X, y = wave(40)
    model = MKLRegressor(kernels=BANK, epsilon=0.05, engine="local").fit(X, y)
    model.save(tmp_path / "model.arrow")
    for copy in (load(tmp_path / "model.arrow"), pickle.loads(pickle.dumps(model))):
        assert type(copy) is MKLRegressor and copy.epsilon == 0.05
        np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert clone(model).get_params()["epsilon"] == 0.05


@pytest.mark.parametrize(
    ("params", "y", "word"),
    [
        ({"epsilon": -0.1}, None, "epsilon"),
        ({"epsilon": "small"}, None, "epsilon"),
        ({"C": 0}, None, "C must"),
        ({}, ["a"] * 30, "numbers"),
        ({}, [np.nan] * 30, "NaN"),
        ({}, [1.0] * 29, "29"),
    ],
)
def test_bad_input_is_named(params, y, word):
    X, good = wave(30)
    with pytest.raises(ValueError, match=word):
        MKLRegressor(kernels=BANK, engine="local", **params).fit(X, good if y is None else np.array(y))


def test_ray_gives_the_local_model(ray_session):
    X, y = wave(80)
    local, remote = (MKLRegressor(kernels=BANK, tol=1e-6, engine=e).fit(X, y) for e in ("local", ray_session))
    np.testing.assert_allclose(remote.predict(X), local.predict(X), atol=1e-6)
