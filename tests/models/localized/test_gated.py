"""Localized models with a gating model: gradient, descent, gates of new examples, and the estimator
contract.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from raymkl import LocalizedMKLClassifier, MKLClassifier, RayParams, load
from raymkl.engine.programs.gates import softmax
from raymkl.kernels import RBF, Custom, Linear, Polynomial, Precomputed, Spectrum, rbf
from tests.reference import apart, gram, noisy_problem, normalised

BANK = [*rbf([0.1, 0.5]), Linear()]
X, Y = noisy_problem(70, seed=3)
T, _ = noisy_problem(40, seed=4)
K = gram(BANK, X)
# Most tests stop a descent early, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:the gates had not settled")
# Three clusters of classes along a line: one linear kernel cannot, several linear kernels with regions can.
LINE = np.random.default_rng(0).normal(size=(80, 2))
STRIPES = np.where(np.abs(LINE[:, 0]) > 0.7, 1, -1)


def model(**more):
    return LocalizedMKLClassifier(
        **{
            "kernels": BANK,
            "random_state": 0,
            "engine": "local",
            "n_init": 1,
            "max_iter": 4,
            "tol": 1e-2,
            **more,
        }
    )


def svm_value(stack, gates, y, C):
    """Optimal value of the SVM with kernel sum_m gate_m(i) k_m(i, j) gate_m(j), by scikit-learn."""
    matrix = np.einsum("im,ijm,jm->ij", gates, stack, gates)
    svc = SVC(C=C, kernel="precomputed", tol=1e-8).fit(matrix, y)
    a = np.zeros(len(y))
    a[svc.support_] = svc.dual_coef_[0]
    return np.abs(a).sum() - 0.5 * a @ matrix @ a, a


def gates_from(clf, data):
    return softmax(data @ clf.gating_coef_.T + clf.gating_intercept_)


@pytest.mark.parametrize("gating", ["linear", "kernel"])
def test_the_svm_at_the_learned_gates_is_certified(gating):
    clf = model(gating=gating, C=2.0, tol=1e-4, max_iter=5).fit(X, Y)
    gates = clf.gates(X)
    assert gates.shape == (70, 3) and gates.min() >= 0
    np.testing.assert_allclose(gates.sum(axis=1), 1.0)
    best, _ = svm_value(K, gates, Y, 2.0)
    assert clf.duality_gap_ <= 1e-4
    assert clf.dual_objective_ == pytest.approx(best, rel=2e-4)
    a = np.zeros(70)
    a[clf.support_] = clf.dual_coef_[0]
    f = np.einsum("im,ijm,jm,j->i", clf.gates(T), gram(BANK, T, X), gates, a) + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(T), f, atol=1e-7)
    np.testing.assert_array_equal(clf.kernel_weights_, np.ones(3))


@pytest.mark.parametrize("gating", ["linear", "kernel"])
def test_the_objective_never_increases_and_beats_its_start(gating):
    clf = model(gating=gating, C=2.0, tol=1e-5, max_iter=20).fit(X, Y)
    objective = np.array([row["objective"] for row in clf.history_])
    assert len(objective) > 3 and np.all(np.diff(objective) <= 1e-12 * objective[:-1])
    assert objective[-1] < 0.98 * objective[0]
    assert objective[-1] == pytest.approx(clf.primal_objective_)


def test_the_learned_gates_are_stationary():
    """No small move of the scores' coefficients lowers the SVM's value by more than the tolerance
    suggests.
    """
    clf = model(C=2.0, tol=1e-5, max_iter=100, kernels=[RBF(0.1), Linear()]).fit(X, Y)
    stack = gram(clf.kernels_, X)
    here, a = svm_value(stack, clf.gates(X), Y, 2.0)
    gates = clf.gates(X)
    B = np.einsum("ijm,jm,j->im", stack, gates, a)
    slope = -a[:, None] * gates * (B - np.sum(gates * B, axis=1, keepdims=True))
    # The formula is the derivative of the SVM's value in the scores.
    scores, step = np.log(np.maximum(gates, 1e-12)), 1e-4
    direction = np.outer(X[:, 0], [1.0, 0.0])
    there = [svm_value(stack, softmax(scores + sign * step * direction), Y, 2.0)[0] for sign in (1, -1)]
    assert (there[0] - there[1]) / (2 * step) == pytest.approx(np.sum(slope * direction), abs=1e-3 * here)
    gradient = np.concatenate([X.T @ slope, slope.sum(axis=0)[None]])
    assert np.abs(gradient).max() < 0.02 * here


def test_regions_of_linear_kernels_solve_what_one_cannot():
    lin = Linear()
    clf = model(kernels=[lin, lin, lin], C=10.0, n_init=3, max_iter=20).fit(LINE, STRIPES)
    plain = MKLClassifier(kernels=[lin], C=10.0, engine="local").fit(LINE, STRIPES)
    assert plain.score(LINE, STRIPES) < 0.7 < 0.95 < clf.score(LINE, STRIPES)


def test_more_starts_are_never_worse():
    one, three = (
        model(kernels=[Linear()] * 3, C=10.0, n_init=k, max_iter=8).fit(LINE, STRIPES) for k in (1, 3)
    )
    assert three.primal_objective_ <= one.primal_objective_


def test_gates_of_vectors_are_affine_in_them():
    clf = model().fit(X, Y)
    assert clf.gating_coef_.shape == (3, X.shape[1]) and clf.gating_intercept_.shape == (3,)
    np.testing.assert_allclose(clf.gates(T), gates_from(clf, T), atol=1e-12)
    data = {"a": X[:, :3], "b": X[:, 3:]}
    views = model(kernels=rbf([0.1, 1.0], view="a"), gating_view="b").fit(data, Y)
    np.testing.assert_allclose(views.gates(data), gates_from(views, data["b"]), atol=1e-12)
    assert views.decision_function(data).shape == (70,)


def test_one_kernel_is_a_plain_svm():
    clf = model(kernels=[RBF(0.3)], C=2.0, tol=1e-6).fit(X, Y)
    np.testing.assert_array_equal(clf.gates(T), np.ones((40, 1)))
    svc = SVC(gamma=0.3, C=2.0, tol=1e-8).fit(X, Y)
    assert apart(clf.decision_function(T), svc.decision_function(T)) < 1e-3


@pytest.mark.parametrize("kernel", [None, "uniform", 1, RBF(0.2)])
def test_gates_in_a_kernels_space(kernel):
    clf = model(gating="kernel", gating_kernel=kernel, C=2.0).fit(X, Y)
    chosen = K.mean(axis=2) if kernel in (None, "uniform") else K[..., 1] if kernel == 1 else RBF(0.2)(X)
    scores = chosen[:, clf.gating_support_] @ clf.gating_dual_coef_.T + clf.gating_intercept_
    np.testing.assert_allclose(clf.gates(X), softmax(scores), atol=1e-8)


def test_precomputed_kernels_give_the_same_model():
    settings = {"gating": "kernel", "gating_kernel": 0, "C": 2.0}
    vectors = model(**settings).fit(X, Y)
    ready = model(kernels="precomputed", **settings).fit(K, Y)
    cross = gram(BANK, T, X)
    np.testing.assert_allclose(ready.gates(cross), vectors.gates(T), atol=1e-6)
    assert apart(ready.decision_function(cross), vectors.decision_function(T)) < 1e-4
    with pytest.raises(ValueError, match="all 70 training rows"):
        ready.gates(cross[:, ready.support_])


@pytest.mark.parametrize("kind", ["multiplicative", "trace", "spherical"])
def test_kernels_are_normalised_before_they_are_gated(kind):
    settings = {
        "gating": "kernel",
        "gating_kernel": RBF(0.2),
        "C": 50.0 if kind == "trace" else 2.0,
        "tol": 1e-4,
        "max_iter": 5,
    }
    clf = model(normalize=kind, **settings).fit(X, Y)
    train, cross = normalised(
        kind, K, gram(BANK, T, X), np.stack([kernel.diag(T) for kernel in BANK], axis=1)
    )
    best, _ = svm_value(train, clf.gates(X), Y, settings["C"])
    assert clf.dual_objective_ == pytest.approx(best, rel=1e-3)
    coefficients = np.zeros(70)
    coefficients[clf.support_] = clf.dual_coef_[0]
    f = np.einsum("im,ijm,jm,j->i", clf.gates(T), cross, clf.gates(X), coefficients) + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(T), f, atol=1e-6)


def test_kernels_are_not_evaluated_where_their_gate_is_zero():
    """Two far groups: sharp gates give each a kernel of its own, and the other kernel never sees its rows."""
    rng = np.random.default_rng(0)
    far = np.concatenate([rng.normal(size=(30, 2)) - 1000, rng.normal(size=(30, 2)) + 1000])
    seen = []

    def watched(A, B):
        seen.append(np.asarray(A))
        return np.exp(-0.1 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    y = np.where(rng.uniform(size=60) < 0.5, 1, -1)
    clf = model(kernels=[Custom(watched), RBF(0.1)], C=1.0, gating="linear", max_iter=20).fit(far, y)
    # Make the gates as sharp as they get, then predict.
    clf.gating_coef_ = np.array([[1.0, 0.0], [-1.0, 0.0]])
    clf.gating_intercept_ = np.zeros(2)
    gates = clf.gates(far)
    assert set(np.unique(gates)) == {0.0, 1.0}
    clf.expansion_ = replace(clf.expansion_, support_gates=gates[clf.support_])
    seen.clear()
    values = clf.decision_function(far)
    # k(x, x) is asked row by row when rows are prepared; blocks of pairs only where the gate is open.
    blocks = [block for block in seen if len(block) > 1]
    assert blocks and all(np.all(block[:, 0] > 0) for block in blocks)
    assert np.isfinite(values).all()


def test_more_classes_have_gates_of_their_own(tmp_path):
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])]
    clf = model(C=2.0, tol=1e-3, max_iter=3).fit(X, y)
    gates = clf.gates(X)
    assert (
        gates.shape == (70, 3, 3)
        and clf.gating_coef_.shape == (3, 3, X.shape[1])
        and clf.kernel_weights_.shape == (3, 3)
    )
    assert clf.decision_function(T).shape == (40, 3) and set(clf.predict(T)) <= {"a", "b", "c"}
    for c, label in enumerate(clf.classes_):
        best, _ = svm_value(K, gates[:, c], np.where(y == label, 1, -1), 2.0)
        assert clf.dual_objective_[c] == pytest.approx(best, rel=2e-3)
        rows = [row["objective"] for row in clf.history_ if row["head"] == c]
        assert np.all(np.diff(rows) <= 0)
    np.testing.assert_allclose(
        clf.contributions(T).sum(axis=2) + clf.intercept_, clf.decision_function(T), atol=1e-8
    )
    clf.save(tmp_path / "model.arrow")
    np.testing.assert_array_equal(
        load(tmp_path / "model.arrow").decision_function(T), clf.decision_function(T)
    )


@pytest.mark.parametrize("gating", ["linear", "kernel"])
def test_shards_and_containers_do_not_matter(gating):
    one = model(gating=gating, C=2.0).fit(X, Y)
    many = model(gating=gating, C=2.0, ray_params=RayParams(num_shards=3)).fit(X, Y)
    assert apart(many.decision_function(T), one.decision_function(T)) < 1e-3
    sparse = model(gating=gating, C=2.0).fit(sp.csr_matrix(X), Y)
    assert apart(sparse.decision_function(sp.csr_matrix(T)), one.decision_function(T)) < 1e-3


@pytest.mark.parametrize("gating", ["linear", "kernel"])
def test_ray_gives_the_local_model(ray_session, gating):
    local, remote = (
        model(gating=gating, C=2.0, engine=e, max_iter=2).fit(X, Y) for e in ("local", ray_session)
    )
    np.testing.assert_allclose(remote.gates(T), local.gates(T), atol=1e-4)
    assert apart(remote.decision_function(T), local.decision_function(T)) < 1e-3
    assert remote.engine_used_ == "ray" and remote.n_iter_ == 2


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"gating": "kernel"},
        {"gating": "kernel", "gating_kernel": Polynomial(2)},
        {"normalize": "spherical"},
    ],
)
def test_save_load_pickle_clone(tmp_path, more):
    clf = model(**more).fit(X, Y)
    clf.save(tmp_path / "model.arrow")
    for copy in (load(tmp_path / "model.arrow"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(copy.gates(T), clf.gates(T))
        np.testing.assert_array_equal(copy.decision_function(T), clf.decision_function(T))
    assert clone(clf).get_params() == clf.get_params()
    np.testing.assert_array_equal(clone(clf).fit(X, Y).dual_coef_, clf.dual_coef_)


def test_gating_is_a_parameter_and_gates_a_method():
    clf = model(gating="kernel")
    assert clf.gating == "kernel" and clf.get_params()["gating"] == "kernel" and type(clf.gating) is str
    assert clf.set_params(gating="linear").gating == "linear"
    assert "gating" in repr(model(gating="kernel"))
    with pytest.raises(ValueError, match="not fitted"):
        clf.gates(X)


def test_stopping_short_is_said():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        clf = model(max_iter=2, tol=1e-6, C=2.0).fit(X, Y)
    assert not clf.converged_ and clf.n_iter_ == 2


@pytest.mark.parametrize(
    ("params", "data", "word"),
    [
        ({"gating": "cubic"}, X, "gating"),
        ({"gating": 3}, X, "gating"),
        ({"kernels": "precomputed"}, K, "gating"),
        ({"gating": "linear", "gating_kernel": 0}, X, "gating_kernel"),
        ({"gating": "kernel", "gating_kernel": 9}, X, "gating_kernel"),
        ({"gating": "kernel", "gating_kernel": "best"}, X, "gating_kernel"),
        ({"gating": "kernel", "gating_kernel": RBF(1.0), "kernels": "precomputed"}, K, "gating_kernel"),
        (
            {"gating_view": "text", "kernels": rbf([1.0], view="x")},
            {"x": X, "text": np.array(["acgt"] * 70, object)},
            "gating_view",
        ),
        ({"gating_view": "nowhere", "kernels": rbf([1.0], view="x")}, {"x": X}, "nowhere"),
        ({"gating": "kernel", "gating_kernel": np.eye(2)}, X, "gating_kernel"),
        ({"gating": "kernel", "gating_view": [0, 1]}, X, "gating_view"),
        (
            {"kernels": [Precomputed(view="k")]},
            {"k": K},
            'gating="linear".*needs vectors, but X holds ready-made matrices',
        ),
        (
            {"kernels": [Precomputed(view="k")], "gating_view": "k"},
            {"k": K},
            "gating_view='k' needs vectors, but view 'k' of X",
        ),
        (
            {"kernels": [Spectrum(2)]},
            ["acgt"] * 70,
            "gating_view=None reads X as numbers, the kernels read it as strings",
        ),
        (
            {"kernels": [Spectrum(2)]},
            ["2024"] * 70,
            "gating_view=None reads X as numbers, the kernels read it as strings",
        ),
        (
            {"gating_view": "b", "kernels": rbf([1.0], view="a")},
            {"a": X, "b": X[:50]},
            "different numbers of rows",
        ),
        ({"n_init": 0}, X, "n_init"),
        ({"max_iter": 0}, X, "max_iter"),
    ],
)
def test_bad_input_is_named(params, data, word):
    with pytest.raises(ValueError, match=word):
        model(**params).fit(data, Y)
