"""Training from a kernel store on disk is training on the matrices in it."""

import numpy as np
import pytest

from raymkl import MKLClassifier, RayParams
from raymkl.kernels import RBF, Linear, rbf, stored, write_store
from tests.reference import apart, gram, noisy_problem

X, Y = noisy_problem(150, seed=4)
X_TEST, _ = noisy_problem(60, seed=5)
BANK = [*rbf([0.02, 0.1, 0.5]), Linear()]
K_TEST = gram(BANK, X_TEST, X)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "store"
    write_store(path, BANK, X, block_rows=40, progress=False)
    return path


def fit(X, kernels="precomputed", **more):
    return MKLClassifier(**{"kernels": kernels, "tol": 1e-6, "engine": "local", **more}).fit(X, Y)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("normalize", [None, "trace", "multiplicative"])
def test_same_model_as_the_kernels_themselves(store, shards, normalize):
    from_disk = fit(str(store), normalize=normalize, ray_params=RayParams(num_shards=shards))
    direct = fit(X, BANK, normalize=normalize)
    assert np.allclose(from_disk.kernel_weights_, direct.kernel_weights_, atol=1e-4)
    assert apart(from_disk.decision_function(K_TEST), direct.decision_function(X_TEST)) < 1e-3
    columns = from_disk.decision_function(K_TEST[:, from_disk.support_])
    assert np.allclose(columns, from_disk.decision_function(K_TEST), rtol=1e-9)


def test_next_to_other_kernels(store):
    bank = [*stored(store), RBF(gamma=1.0, view="x")]
    model = fit({"x": X}, bank)
    direct = fit(X, [*BANK, RBF(gamma=1.0)])
    block = {"x": X_TEST, str(store): K_TEST[:, model.support_]}
    assert apart(model.decision_function(block), direct.decision_function(X_TEST)) < 1e-3


def test_on_ray(store, ray_session):
    model = fit(store, engine=ray_session)
    assert apart(model.decision_function(K_TEST), fit(store).decision_function(K_TEST)) < 1e-3


def test_stores_of_something_else(store, tmp_path):
    with pytest.raises((ValueError, FileNotFoundError), match="store"):
        fit(str(tmp_path / "nothing"))
    with pytest.raises(TypeError, match="kernel store"):
        fit(store).predict(store)
    indefinite = np.eye(len(X))
    indefinite[0, 1] = indefinite[1, 0] = 5.0
    write_store(tmp_path / "bad", indefinite[..., None], progress=False)
    with pytest.raises(ValueError, match="definite"):
        fit(tmp_path / "bad")
