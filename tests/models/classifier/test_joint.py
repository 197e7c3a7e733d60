"""One joint problem for all classes: certificates from matrices, a conic solver, other ways to the same
model, faults.
"""

import pickle
import warnings
from copy import deepcopy

import cvxpy as cp
import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from raymkl import MKLClassifier, RayParams, Session, kernels, load
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.rounds.coordinator import Coordinator
from raymkl.search import MKLSearchCV
from tests import builders
from tests.checks import fails
from tests.engine.lossy_pool import Fault, LossyPool
from tests.reference import gram

X, Y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)[::2]
Y = Y[::2]
BANK = [*kernels.rbf([0.01, 0.1, 1.0]), kernels.Linear(), kernels.RBF(gamma=30.0)]
K = gram(BANK, X)


def model(**more):
    return MKLClassifier(
        **{"kernels": BANK, "multi_class": "joint", "C": 0.1, "engine": "local", "tol": 1e-4, **more}
    )


def certificate(clf, K, y, c, p):
    """Primal, dual and the largest breach of constraints, from matrices (n, n, M)."""
    A, theta, own = (
        np.zeros((len(y), len(clf.classes_))),
        np.asarray(clf.kernel_weights_),
        y[:, None] == np.arange(len(clf.classes_)),
    )
    A[clf.support_] = clf.dual_coef_.T
    G = np.einsum("ijm,jk->ikm", K, A)
    v = np.sqrt(np.maximum(np.einsum("ik,ikm->m", A, G), 0))
    F = G @ theta
    losses = (F + ~own).max(axis=1) - F[own]
    size = lambda x, p: x.max() if np.isinf(p) else np.sum(x**p) ** (1 / p)
    primal = size(theta * v, p) ** 2 / 2 + np.sum(c * losses)
    dual = A[own].sum() - size(v, np.inf if p == 1 else p / (p - 1)) ** 2 / 2
    return primal, dual, max(np.abs(A.sum(axis=1)).max(), (A - own * np.reshape(c, (-1, 1))).max())


def optimum(y, c, p):
    own = (y[:, None] == np.arange(y.max() + 1)).astype(float)
    A, lengths = cp.Variable(own.shape), []
    for m in range(K.shape[2]):
        values, vectors = np.linalg.eigh(K[..., m])
        keep = values > 1e-10 * values.max()
        lengths.append(cp.norm((vectors[:, keep] * np.sqrt(values[keep])).T @ A, "fro"))
    size = cp.max(cp.hstack(lengths)) if p == 1 else cp.pnorm(cp.hstack(lengths), p / (p - 1))
    problem = cp.Problem(
        cp.Maximize(cp.sum(cp.multiply(own, A)) - cp.square(size) / 2),
        [own * np.reshape(c, (-1, 1)) >= A, cp.sum(A, axis=1) == 0],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(
    "p, C", [(1.0, 0.02), (1.1, 2.0), (4 / 3, 0.02), (4 / 3, 2.0), (2.0, 0.02), (4.0, 2.0)]
)
def test_certificates_are_true_and_optimal(p, C):
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(Y)) * (np.arange(len(Y)) % 9 != 0)
    clf = model(p=p, C=C).fit(X, Y, sample_weight=weights)
    primal, dual, breach = certificate(clf, K, Y, C * weights, p)
    best = optimum(Y, C * weights, p)
    assert clf.converged_ and breach < 1e-10 and -1e-5 * best <= primal - best <= 1e-3 * best
    assert clf.primal_objective_ == pytest.approx(primal, rel=1e-6) and clf.dual_objective_ == pytest.approx(
        dual, rel=1e-6
    )
    assert np.isscalar(clf.duality_gap_) and clf.kernel_weights_.shape == (5,) and not clf.intercept_.any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [10, 90])
def test_more_rows_than_a_working_set(dtype, columns):
    """Blocks of rows, light and cached statistics, and rounds that end with a proof."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(5, columns))
    y = rng.integers(0, 5, 1900)
    rows = centres[y] + 1.3 * rng.normal(size=(1900, columns))
    bank = kernels.rbf([0.1 / columns, 1.0 / columns])
    clf = model(kernels=bank, C=1.0, tol=1e-3, dtype=dtype, ray_params=RayParams(num_shards=2)).fit(rows, y)
    primal, dual, breach = certificate(clf, gram(bank, rows), y, 1.0, 4 / 3)
    assert clf.converged_ and breach < 1e-9 and primal - dual <= 1.1e-3 * primal
    assert clf.duality_gap_ == pytest.approx((primal - dual) / primal, abs=1e-4)


def test_other_ways_to_the_same_model(tmp_path):
    f = lambda **more: model(tol=1e-6, p=1.2, **more).fit(X, Y).decision_function(X)
    base = f()
    for more in (
        {"ray_params": RayParams(num_shards=4)},
        {"dtype": "float32", "tol": 1e-5},
        {"theta_step": "analytic"},
    ):
        np.testing.assert_allclose(
            model(**{"tol": 1e-6, "p": 1.2, **more}).fit(X, Y).decision_function(X), base, atol=2e-3
        )
    for more in ({"solver": "wrapper"}, {"theta_step": "cutting_plane"}):
        np.testing.assert_allclose(
            model(tol=1e-5, p=1.2, **more).fit(X, Y).decision_function(X), base, atol=5e-3
        )
    ready = model(tol=1e-6, p=1.2, kernels="precomputed").fit(K, Y)
    np.testing.assert_allclose(ready.decision_function(K), base, atol=1e-4)
    with Session("local") as session:
        np.testing.assert_allclose(
            model(tol=1e-6, p=1.2, engine=session).fit(session.put(X), Y).decision_function(X),
            base,
            atol=1e-4,
        )
    clf = model().fit(X, Y)
    clf.save(tmp_path / "m")
    for again in (load(tmp_path / "m"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    np.testing.assert_allclose(clf.contributions(X).sum(axis=2), clf.decision_function(X), atol=1e-9)


def test_weights_names_and_two_classes():
    w = np.r_[np.zeros(15), np.full(20, 2.0), np.ones(len(Y) - 35)]
    rows = np.r_[np.arange(15, len(Y)), np.arange(15, 35)]
    weighted, repeated = model(tol=1e-7).fit(X, Y, sample_weight=w), model(tol=1e-7).fit(X[rows], Y[rows])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-4)
    named = model().fit(X, np.array(["a", "b", "c"])[Y])
    assert named.score(X, np.array(["a", "b", "c"])[Y]) > 0.95
    two = Y < 2
    joint, plain = model().fit(X[two], Y[two]), model(multi_class="ovr").fit(X[two], Y[two])
    np.testing.assert_array_equal(joint.decision_function(X), plain.decision_function(X))
    assert joint.intercept_.shape == (1,) and joint.intercept_[0] != 0


def test_warm_starts_and_paths():
    cold = model(tol=1e-6, C=0.3).fit(X, Y).decision_function(X)
    warm = model(tol=1e-6, C=2.0, warm_start=True).fit(X, Y)
    np.testing.assert_allclose(warm.set_params(C=0.3).fit(X, Y).decision_function(X), cold, atol=1e-3)
    np.testing.assert_allclose(warm.set_params(C=0.3).fit(X, Y).decision_function(X), cold, atol=1e-3)
    search = MKLSearchCV(model(tol=1e-5), {"C": [0.01, 0.1, 1.0], "multi_class": ["joint", "ovr"]}, cv=3).fit(
        X, Y
    )
    assert search.best_score_ > 0.9 and len(search.cv_results_["params"]) == 6


def test_stopping_short_keeps_a_valid_certificate():
    with pytest.warns(ConvergenceWarning):
        clf = model(C=10.0, p=1.05, tol=1e-9, max_iter=1, kernels=BANK[:4]).fit(X, Y)
    primal, dual, breach = certificate(clf, K[..., :4], Y, 10.0, 1.05)
    assert clf.duality_gap_ == pytest.approx((primal - dual) / primal, abs=1e-6) and breach < 1e-9


def run_with(rows, y, bank, faults, tol, light=False):
    """Results of the classes' heads with three shards of which some are lost."""
    heads = MKLClassifier(kernels=bank, multi_class="joint", tol=tol)._heads(
        y, np.unique(y), np.full(len(y), 0.5)
    )
    problem = builders.problem_of(bank, len(y), dtype=np.float32, light=light, may_widen=True)
    pool = LossyPool({None: rows}, deepcopy(problem), 3, faults)
    pool.coordinator = coordinator = Coordinator(pool, deepcopy(problem), policy=FailurePolicy(10), threads=1)
    coordinator.crew.load()
    for _ in coordinator.rounds(heads):
        pass
    assert coordinator.crew.policy.total == sum(len(fault.shards) for fault in faults)
    return [stages[-1] for stages in coordinator.outcome(heads)]


@pytest.mark.parametrize(
    "bank",
    [kernels.rbf([0.05, 0.5]), [kernels.Laplacian(gamma=0.1), kernels.Linear()]],
    ids=["light", "cached"],
)
@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize(("method", "number"), [("add_heads", 1), ("advance", 1), ("advance", 2)])
def test_lost_shards(bank, method, number, worked):
    """A shard that is lost at any call is replaced, and the model is that of the undisturbed run."""
    rows, y = load_iris(return_X_y=True)
    calm, lossy = (
        run_with(rows[::2], y[::2], bank, faults, 1e-6, light=True)
        for faults in ([], [Fault(method, number, (1,), worked)])
    )
    for one, other in zip(calm, lossy, strict=True):
        np.testing.assert_allclose(other.a, one.a, atol=1e-4)
        assert other.certificate.gap <= 1e-6


@pytest.mark.parametrize(
    "faults", [[Fault("advance", 3, (0,))], [Fault("apply", 1, (2,))], [Fault("advance", 5, (1, 2), True)]]
)
def test_lost_shards_of_many_rows(faults):
    """Several rounds over blocks of rows, and a proof at the end."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, 1700)
    rows = rng.normal(size=(4, 6))[y] + 1.2 * rng.normal(size=(1700, 6))
    calm, lossy = (
        run_with(rows, y, kernels.rbf([0.02, 0.2]), some, 1e-3, light=True) for some in ([], faults)
    )
    assert all(result.certificate.gap <= 1e-3 for result in [*calm, *lossy])
    assert lossy[0].certificate.dual == pytest.approx(calm[0].certificate.dual, rel=2e-3)
    np.testing.assert_allclose(np.sum([result.a for result in lossy], axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("more", "words"),
    [({"multi_class": "both"}, ["multi_class", "ovr"]), ({"loss": "logistic"}, ["joint", "loss"])],
)
def test_bad_values(more, words):
    fails(words, lambda: model(**more).fit(X, Y))


@pytest.mark.ray
def test_ray_gives_the_local_model(ray_session):
    there = model(tol=1e-6, engine=ray_session).fit(X, Y)
    np.testing.assert_allclose(
        there.decision_function(X), model(tol=1e-6).fit(X, Y).decision_function(X), atol=1e-5
    )
