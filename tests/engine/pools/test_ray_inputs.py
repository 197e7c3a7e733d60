"""Whatever rows, kernels and labels there are, the Ray engine gives the local engine's model.

One session runs all fits: they are quick.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from raymkl import MKLClassifier
from raymkl.kernels import RBF, Custom, Linear, Precomputed
from tests.engine.pools.test_ray import BANK, X_TEST, X, Y
from tests.reference import apart, gram


def both(ray_session, train, y, bank=BANK, **more):
    """The model of both engines."""
    settings = {"kernels": bank, "tol": 1e-6, **more}
    return tuple(MKLClassifier(**settings, engine=engine).fit(train, y) for engine in ("local", ray_session))


SOURCES = {
    "precomputed": (gram(BANK, X), gram(BANK, X_TEST, X), {"bank": "precomputed"}),
    "sparse": (sp.csr_matrix(X), sp.csr_matrix(X_TEST), {"bank": BANK[:4]}),
    "float32": (X, X_TEST, {"dtype": "float32", "tol": 1e-4}),
    "multiplicative": (X, X_TEST, {"normalize": "multiplicative"}),
    "spherical": (X, X_TEST, {"normalize": "spherical"}),
    "mixed": (
        {"v": X, "m": gram(BANK[:2], X)},
        {"v": X_TEST, "m": gram(BANK[:2], X_TEST, X)},
        {"bank": [Linear(view="v"), Precomputed(view="m", index=0), Precomputed(view="m", index=1)]},
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_all_kinds_of_input(ray_session, source):
    train, test, more = SOURCES[source]
    local, remote = both(ray_session, train, Y, **more)
    limit = 1e-3 if more.get("tol", 1e-6) == 1e-6 else 2e-2
    assert apart(remote.decision_function(test), local.decision_function(test)) < limit


def test_several_classes(ray_session):
    y = np.array(["a", "b", "c"])[np.arange(80) % 3]
    local, remote = both(ray_session, X, y)
    np.testing.assert_allclose(remote.dual_objective_, local.dual_objective_, rtol=1e-5)
    assert apart(remote.decision_function(X_TEST), local.decision_function(X_TEST)) < 5e-3


def test_functions_of_the_user_travel_to_the_shards(ray_session):
    """A test module is not importable in a worker; what a user defines in a notebook is not either."""

    def local_cauchy(A, B):
        return 1 / (1 + ((A[:, None] - B[None]) ** 2).sum(axis=-1))

    local, remote = both(ray_session, X, Y, bank=[Custom(local_cauchy), RBF(gamma=0.1)])
    assert apart(remote.decision_function(X_TEST), local.decision_function(X_TEST)) < 1e-3
