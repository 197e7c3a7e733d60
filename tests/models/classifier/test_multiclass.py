"""More than two classes: one against the rest, class by class what a binary model learns, whatever the
classes look like.
"""

from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

from raymkl import MKLClassifier, RayParams, kernels, load
from tests.reference import apart, gram

BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0), kernels.Linear()]
NAMES = np.array(["ash", "birch", "cedar", "elm"])


def blobs(counts, features=5, spread=1.5, seed=0):
    """Rows of len(counts) classes in a random order: X (n, features), y (n,) whole numbers."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    centres = rng.normal(size=(len(counts), features)) * spread
    X = centres[y] + rng.normal(size=(len(y), features))
    order = rng.permutation(len(y))
    return X[order], y[order]


def model(**params):
    return MKLClassifier(**{"kernels": BANK, "tol": 1e-6, "engine": "local", **params})


@cache
def four_classes():
    X, y = blobs([25, 30, 20, 25])
    return X, NAMES[y]


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, 4.0])
@pytest.mark.parametrize("normalize", [None, "multiplicative", "spherical"])
def test_a_head_is_the_binary_model_of_its_class(p, normalize):
    X, y = four_classes()
    clf = model(p=p, normalize=normalize).fit(X, y)
    f = clf.decision_function(X)
    for h, label in enumerate(clf.classes_):
        binary = model(p=p, normalize=normalize).fit(X, np.where(y == label, 1, -1))
        g = binary.decision_function(X)
        assert apart(f[:, h], g) < (2e-2 if p == 1 else 5e-3)
        np.testing.assert_allclose(clf.kernel_weights_[h], binary.kernel_weights_, atol=5e-3)
        assert clf.dual_objective_[h] == pytest.approx(binary.dual_objective_, rel=1e-5)
        assert np.abs(clf.dual_coef_[h].sum()) < 1e-8


def test_fitted_attributes():
    X, y = four_classes()
    clf = model().fit(X, y)
    K, M, k = 4, len(BANK), len(clf.support_)
    assert clf.classes_.tolist() == NAMES.tolist() and clf.n_features_in_ == 5
    assert (
        clf.kernel_weights_.shape == (K, M)
        and clf.dual_coef_.shape == (K, k)
        and clf.intercept_.shape == (K,)
    )
    for name in ("duality_gap_", "primal_objective_", "dual_objective_"):
        assert getattr(clf, name).shape == (K,)
    assert clf.duality_gap_.max() <= 1e-6 and clf.converged_ is True and isinstance(clf.n_iter_, int)
    assert np.all(np.any(clf.dual_coef_ != 0, axis=0)) and np.all(np.diff(clf.support_) > 0)
    assert {row["head"] for row in clf.history_} == set(range(K))
    np.testing.assert_allclose(np.sum(clf.kernel_weights_ ** ((4 / 3) / (2 / 3)), axis=1), 1.0)
    f = clf.decision_function(X[:7])
    assert f.shape == (7, K)
    naive = (
        np.einsum("isk,hk,hs->ih", gram(BANK, X[:7], X)[:, clf.support_], clf.kernel_weights_, clf.dual_coef_)
        + clf.intercept_
    )
    np.testing.assert_allclose(f, naive, atol=1e-8)
    np.testing.assert_array_equal(clf.predict(X[:7]), NAMES[f.argmax(axis=1)])
    assert clf.score(X, y) > 0.9


def test_attributes_of_shared_weights():
    X, y = four_classes()
    clf = model(shared_weights=True).fit(X, y)
    assert (
        clf.kernel_weights_.shape == (len(BANK),)
        and clf.dual_coef_.shape[0] == 4
        and clf.intercept_.shape == (4,)
    )
    assert (
        isinstance(clf.duality_gap_, float)
        and isinstance(clf.primal_objective_, float)
        and clf.duality_gap_ <= 1e-6
    )
    assert clf.decision_function(X).shape == (len(y), 4) and clf.score(X, y) > 0.9
    naive = gram(BANK, X[:7], X)[:, clf.support_] @ clf.kernel_weights_ @ clf.dual_coef_.T + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(X[:7]), naive, atol=1e-8)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("normalize", [None, "spherical"])
def test_files(tmp_path, shared, normalize):
    X, y = four_classes()
    clf = model(shared_weights=shared, normalize=normalize).fit(X, y)
    clf.save(tmp_path / "model.raymkl")
    back = load(tmp_path / "model.raymkl")
    np.testing.assert_array_equal(back.decision_function(X), clf.decision_function(X))
    np.testing.assert_array_equal(back.predict(X), clf.predict(X))
    np.testing.assert_array_equal(back.kernel_weights_, clf.kernel_weights_)
    assert back.shared_weights is shared and back.classes_.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(back.duality_gap_, clf.duality_gap_)


# -- difficult classes -----------------------------------------------------------------------------


def test_a_class_with_two_examples():
    X, y = blobs([40, 2, 30], spread=3.0)
    clf = model().fit(X, y)
    assert clf.duality_gap_.max() <= 1e-6
    binary = model().fit(X, y == 1)
    assert apart(clf.decision_function(X)[:, 1], binary.decision_function(X)) < 5e-3
    signed = np.where(y[clf.support_] == 1, clf.dual_coef_[1], -clf.dual_coef_[1])
    assert signed.min() >= 0 and signed.max() <= 1 + 1e-12


def test_a_class_with_one_example():
    X, y = blobs([30, 1, 30], spread=4.0)
    clf = model(C=10.0).fit(X, y)
    assert clf.converged_ and clf.predict(X[y == 1]).tolist() == [1]


@pytest.mark.parametrize("shards", [2, 4, 7])
@pytest.mark.parametrize("shared", [False, True])
def test_a_class_that_a_shard_has_never_seen(shards, shared):
    """Rows sorted by class: most shards hold one or two of the classes."""
    X, y = four_classes()
    order = np.argsort(y, kind="stable")
    one = model(shared_weights=shared).fit(X[order], y[order])
    many = model(shared_weights=shared, ray_params=RayParams(num_shards=shards)).fit(X[order], y[order])
    assert np.max(many.duality_gap_) <= 1e-6
    assert apart(many.decision_function(X), one.decision_function(X)) < 5e-3
    np.testing.assert_allclose(many.kernel_weights_, one.kernel_weights_, atol=5e-3)


def test_thirty_classes_of_six():
    X, y = blobs([6] * 30, features=8, spread=2.5)
    clf = model(tol=1e-3, C=10.0, ray_params=RayParams(num_shards=2)).fit(X, y)
    assert (
        clf.kernel_weights_.shape == (30, len(BANK))
        and clf.duality_gap_.shape == (30,)
        and clf.duality_gap_.max() <= 1e-3
    )
    assert clf.decision_function(X).shape == (180, 30) and clf.score(X, y) > 0.95
    Z, z = blobs([6] * 30, features=8, spread=2.5)
    np.testing.assert_array_equal(Z, X)
    binary = model(tol=1e-3, C=10.0).fit(Z, z == 17)
    assert apart(clf.decision_function(X)[:, 17], binary.decision_function(X)) < 0.1


@pytest.mark.usefixtures("small_working_sets")
def test_finished_classes_leave_the_rounds():
    X, y = blobs([6] * 30, features=8, spread=2.5)
    clf = model(tol=1e-3).fit(X, y)
    rounds = np.array([sum(row["head"] == h for row in clf.history_) for h in range(30)])
    assert rounds.max() == clf.n_iter_ and rounds.min() < rounds.max()


# -- labels and weights ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        np.array([10, 20, 30, 40]),
        np.array([-1.5, 0.0, 2.0, 7.0]).astype(int),
        NAMES,
        NAMES.astype(object),
        np.array([True, False]),
    ],
    ids=["numbers", "negative", "strings", "objects", "booleans"],
)
def test_labels(labels):
    X, y = four_classes()
    index = np.searchsorted(NAMES, y) % len(labels)
    clf = model(tol=1e-4).fit(X, labels[index])
    assert set(clf.predict(X).tolist()) <= set(labels.tolist())
    assert clf.predict(X).dtype == clf.classes_.dtype and clf.score(X, labels[index]) > 0.8
    np.testing.assert_array_equal(clf.classes_, np.unique(labels))


def test_a_weight_of_two_is_a_row_that_occurs_twice():
    X, y = four_classes()
    weights = np.where(np.arange(len(y)) % 3 == 0, 2, 1)
    weighted = model().fit(X, y, sample_weight=weights)
    repeated = model().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert apart(weighted.decision_function(X), repeated.decision_function(X)) < 5e-3
    np.testing.assert_allclose(weighted.dual_objective_, repeated.dual_objective_, rtol=1e-5)


def test_a_weight_of_zero_is_no_row():
    X, y = four_classes()
    weights = (np.arange(len(y)) % 4 > 0).astype(float)
    weighted = model(normalize="multiplicative").fit(X, y, sample_weight=weights)
    left_out = model(normalize="multiplicative").fit(X[weights > 0], y[weights > 0])
    assert apart(weighted.decision_function(X), left_out.decision_function(X)) < 5e-3
    with pytest.raises(ValueError, match="'birch' has no example with a positive weight"):
        model().fit(X, y, sample_weight=(y != "birch").astype(float))


def test_class_weights():
    X, y = four_classes()
    heavy = {"ash": 1.0, "birch": 5.0, "cedar": 1.0, "elm": 0.5}
    given = model(class_weight=heavy).fit(X, y)
    by_rows = model().fit(X, y, sample_weight=[heavy[label] for label in y])
    assert apart(given.decision_function(X), by_rows.decision_function(X)) < 5e-3
    balanced = model(class_weight="balanced").fit(X, y)
    counts = {label: np.sum(y == label) for label in NAMES}
    explicit = model(class_weight={label: len(y) / (4 * count) for label, count in counts.items()}).fit(X, y)
    assert apart(balanced.decision_function(X), explicit.decision_function(X)) < 5e-3


def test_continuing_from_the_last_fit():
    X, y = four_classes()
    clf = model(warm_start=True).fit(X, y)
    warm = clf.set_params(C=3.0).fit(X, y)
    cold = model(C=3.0).fit(X, y)
    assert apart(warm.decision_function(X), cold.decision_function(X)) < 5e-3
    assert clone(clf).get_params()["warm_start"] is True


def test_a_single_class_is_an_error():
    X, _ = four_classes()
    with pytest.raises(ValueError, match="1 class"):
        model().fit(X, np.full(len(X), "ash"))
    with pytest.raises(ValueError, match="shared_weights must be True or False, got 'yes'"):
        model(shared_weights="yes").fit(X, np.arange(len(X)) % 3)
