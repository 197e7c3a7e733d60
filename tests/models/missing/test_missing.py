"""Rows that lack a view: any pattern of presence gives the model of the gated matrices, with a true
certificate.
"""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

from raymkl import MKLClassifier, MKLRegressor, RayParams, Session, Views, kernels, load, search
from tests.models.missing.reference import certificate, clusters, gated, in_clusters
from tests.reference import apart, dual_optimum, noisy_problem

N, T = 60, 40
NAMES = ["left", "right", "flat"]
X, Y = noisy_problem(N + T, seed=5, features=9)
DATA = {"left": X[:, :4], "right": X[:, 3:6] + 20.0, "flat": np.abs(X[:, 6:])}
BANK = [
    *kernels.rbf([0.05, 0.5], view="left"),
    kernels.RBF(0.2, view=("left", [0, 1])),
    kernels.Linear(view="right"),
    kernels.Chi2(0.3, view="flat"),
    kernels.RBF(0.1, view="left") * kernels.Polynomial(degree=2, gamma=0.1, coef0=1.0, view="flat"),
]
READS = [("left",), ("left",), ("left",), ("right",), ("flat",), ("left", "flat")]
GATED = ("zero", "scaled", "neutral")


def holes(n=N + T, share=0.35, seed=0):
    """(n, 3) presence; every row has a view."""
    rng = np.random.default_rng(seed)
    there = rng.random((n, 3)) > share
    there[np.arange(n), rng.integers(0, 3, n)] = True
    return there


THERE = holes()
# What stands in absent rows is nothing that anybody could compute with.
HOLED = Views(
    {name: np.where(THERE[:, [v]], DATA[name], [np.nan, np.inf, -1e300][v]) for v, name in enumerate(NAMES)},
    present=THERE,
)
TRAIN, TEST = HOLED[:N], HOLED[N:]


def part(rows):
    return {name: array[rows] for name, array in DATA.items()}


def references(there=THERE, kind=None, missing="zero"):
    train, test = slice(0, N), slice(N, N + T)
    return gated(BANK, READS, NAMES, (part(train), there[train]), (part(test), there[test]), kind, missing)


def classifier(**more):
    return MKLClassifier(**{"kernels": BANK, "engine": "local", "tol": 1e-6, **more})


# -- the problem -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", GATED)
@pytest.mark.parametrize("kind", [None, "multiplicative", "trace", "spherical"])
def test_the_optimum_is_that_of_the_gated_matrices(missing, kind):
    K, Kt = references(kind=kind, missing=missing)
    C = 50.0 if kind == "trace" else 1.0
    clf = classifier(missing=missing, normalize=kind, C=C).fit(TRAIN, Y[:N])
    primal, dual = certificate(clf, K, Y[:N], C, 4 / 3)
    assert dual == pytest.approx(dual_optimum(K, Y[:N], C, 4 / 3), rel=1e-5)
    assert clf.duality_gap_ <= 1e-6 and (primal - dual) / primal == pytest.approx(clf.duality_gap_, abs=1e-7)
    f = Kt @ clf.kernel_weights_ @ _dual(clf) + clf.intercept_
    assert np.abs(f - clf.decision_function(TEST)).max() < 1e-9 * np.abs(f).max()


@pytest.mark.parametrize(
    "p, tol, C", [(1, 1e-3, 1.0), (1.1, 1e-4, 0.01), (2, 1e-5, 100.0), (3, 1e-4, 10.0), (np.inf, 1e-3, 1.0)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)  # float32 alone does not get as far for p > 2
def test_certificates_are_true_for_every_norm(p, tol, C, dtype):
    K, _ = references(kind="multiplicative", missing="neutral")
    clf = classifier(missing="neutral", normalize="multiplicative", p=p, tol=tol, C=C, dtype=dtype).fit(
        TRAIN, Y[:N]
    )
    primal, dual = certificate(clf, K, Y[:N], C, p)
    assert clf.duality_gap_ <= tol or (dtype == "float32" and p > 2)
    assert (primal - dual) / primal == pytest.approx(clf.duality_gap_, abs=0.1 * tol)


@settings(max_examples=15)
@given(
    data=st.data(),
    missing=st.sampled_from(GATED),
    kind=st.sampled_from([None, "multiplicative", "spherical", "tail"]),
)
def test_any_pattern_of_presence(data, missing, kind):
    """Views that hardly anybody has, or all have; new rows without any view."""
    rows = st.lists(st.booleans(), min_size=3, max_size=3)
    there = np.array(data.draw(st.lists(rows, min_size=N + T, max_size=N + T)))
    there[:N][~there[:N].any(axis=1), 0] = True
    there[:4] = True  # tail sums leave out two eigenvalues
    train, test = Views(part(slice(0, N)), present=there[:N]), Views(part(slice(N, None)), present=there[N:])
    if kind == "tail" and missing == "neutral":
        missing = "zero"  # indicators of few views have no tail
    K, Kt = references(there, kind, missing)
    C = 20.0 if kind == "tail" else 1.0
    clf = classifier(missing=missing, normalize=kind, C=C, tol=1e-4).fit(train, Y[:N])
    primal, dual = certificate(clf, K, Y[:N], C, 4 / 3)
    assert clf.converged_ and (primal - dual) / primal == pytest.approx(clf.duality_gap_, abs=1e-5)
    f = Kt @ clf.kernel_weights_ @ _dual(clf) + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(test), f, atol=1e-8 * max(1.0, np.abs(f).max()))
    parts = clf.contributions(test)
    lacking = np.column_stack([~there[N:][:, [NAMES.index(v) for v in views]].all(axis=1) for views in READS])
    assert (
        np.all(parts[:, : len(BANK)][lacking] == 0.0) and not np.signbit(parts[:, : len(BANK)][lacking]).any()
    )
    nothing = ~there[N:].any(axis=1)
    offset = parts[nothing, -1] if missing == "neutral" else 0.0
    np.testing.assert_allclose(
        clf.decision_function(test)[nothing],
        offset + clf.intercept_ + np.zeros(nothing.sum()),
        atol=1e-12,
        rtol=0,
    )


def _dual(model):
    a = np.zeros(N)
    a[model.support_] = model.dual_coef_[0]
    return a


@pytest.mark.parametrize("p", [1, 4 / 3, 2.0, 3.0])
@pytest.mark.parametrize("kind", ["multiplicative", "spherical"])
def test_patterns_are_clusters_with_a_norm_of_their_own(p, kind):
    K, Kt = references(kind=kind)
    clf = classifier(missing="pattern", normalize=kind, p=p, tol=1e-4).fit(TRAIN, Y[:N])
    assert {tuple(row) for row in clf.patterns_.tolist()} == {tuple(row) for row in THERE[:N].tolist()}
    own, other = clusters(THERE[:N], clf.patterns_), clusters(THERE[N:], clf.patterns_)
    rounds = own.shape[1]
    E, groups = in_clusters(K, own, own), np.repeat(np.arange(rounds), len(BANK))
    primal, dual = certificate(clf, E, Y[:N], 1.0, p, groups)
    assert clf.kernel_weights_.shape == (rounds, len(BANK))
    assert clf.duality_gap_ <= 1e-4 and (primal - dual) / primal == pytest.approx(clf.duality_gap_, abs=1e-5)
    f = in_clusters(Kt, other, own) @ clf.kernel_weights_.ravel() @ _dual(clf) + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(TEST), f, atol=1e-9 * np.abs(f).max())
    np.testing.assert_allclose(
        clf.contributions(TEST).sum(axis=1) + clf.intercept_, f, atol=1e-9 * np.abs(f).max()
    )


def test_patterns_of_classes_and_of_new_rows():
    labels = np.searchsorted(np.quantile(X[:, 0], [0.3, 0.6]), X[:, 0])
    few = Views(
        part(slice(0, N)), present=np.where(THERE[:N].all(axis=1)[:, None], True, [True, False, True])
    )
    for shared, shape in ((False, (3, 3, len(BANK))), (True, (3, len(BANK)))):
        clf = classifier(missing="pattern", shared_weights=shared, tol=1e-3).fit(few, labels[:N])
        assert clf.kernel_weights_.shape == shape and clf.patterns_.shape == (2, 3) and clf.converged_
    unseen = Views(part(slice(N, None)), present=np.tile([False, True, True], (T, 1)))
    common = clf.expansion_.weights[:, : len(BANK)]
    parts = clf.expansion_.entry_contributions(*clf._rows_to_predict(unseen))
    assert np.all(parts[:, :, len(BANK) :] == 0) and np.any(parts[:, :, : len(BANK)][:, common > 0] != 0)


# -- kinds of models -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"shared_weights": True},
        {"multi_class": "joint"},
        {"loss": "squared_hinge"},
        {"loss": "logistic"},
        {"beta": 0.002},
    ],
    ids=lambda more: next(iter(more), "ovr"),
)
def test_classes_and_losses(more):
    labels = np.searchsorted(np.quantile(X[:, 0], [0.3, 0.6]), X[:, 0])
    K, Kt = references(kind="multiplicative", missing="neutral")
    clf = classifier(missing="neutral", normalize="multiplicative", tol=1e-5, **more).fit(TRAIN, labels[:N])
    ready = classifier(kernels="precomputed", tol=1e-5, **more).fit(K, labels[:N])
    assert apart(clf.decision_function(TEST), ready.decision_function(Kt)) < 0.02


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared", "quantile"])
def test_regression(loss):
    target = X[:, 0] + 0.3 * X[:, 7]
    K, Kt = references(kind="multiplicative", missing="scaled")
    options = {"loss": loss, "engine": "local", "tol": 1e-6, "epsilon": 0.05}
    model = MKLRegressor(BANK, missing="scaled", normalize="multiplicative", **options).fit(TRAIN, target[:N])
    ready = MKLRegressor("precomputed", **options).fit(K, target[:N])
    assert apart(model.predict(TEST), ready.predict(Kt)) < 0.01


def test_a_regression_without_support_vectors():
    model = MKLRegressor(BANK, missing="zero", epsilon=100.0, engine="local").fit(TRAIN, X[:N, 0])
    nobody = Views(part(slice(N, None)), present=np.zeros((T, 3), bool))
    assert len(model.support_) == 0
    np.testing.assert_array_equal(model.predict(nobody), np.full(T, model.intercept_[0]))


@pytest.mark.parametrize("missing", [*GATED, "pattern"])
def test_complete_rows_are_the_plain_model(missing):
    full = Views(part(slice(0, N)))
    plain = classifier().fit(full, Y[:N])
    clf = classifier(missing=missing).fit(full, Y[:N])
    if missing == "pattern":  # all rows are common, and of the one pattern
        assert clf.kernel_weights_.shape == (2, len(BANK))
        return
    assert apart(clf.decision_function(full), plain.decision_function(full)) < 1e-3
    np.testing.assert_allclose(clf.kernel_weights_[: len(BANK)], plain.kernel_weights_, atol=1e-4)
    lacking = Views(
        part(slice(0, N)), present=np.tile([False, True, True], (N, 1))
    )  # what everybody has in training may be absent later
    assert np.all(clf.contributions(lacking)[:, [0, 1, 2, 5]] == 0)


@pytest.mark.parametrize("p", [1, 1.5, 2, 4, np.inf])
def test_neutral_over_one_array(p):
    """Nobody lacks anything: the last kernel is zero, and does not disturb."""
    plain, neutral = (
        classifier(kernels=kernels.rbf([0.1, 1.0]), p=p, tol=1e-4, missing=m).fit(X, Y)
        for m in ("error", "neutral")
    )
    assert (
        len(neutral.kernels_) == 3 and apart(neutral.decision_function(X), plain.decision_function(X)) < 0.01
    )


@pytest.mark.parametrize("missing", [*GATED, "pattern"])
def test_shards_files_and_pickles(missing, tmp_path):
    clf = classifier(missing=missing, normalize="spherical").fit(TRAIN, Y[:N])
    f = clf.decision_function(TEST)
    for shards in (2, 5):
        other = classifier(
            missing=missing, normalize="spherical", ray_params=RayParams(num_shards=shards)
        ).fit(TRAIN, Y[:N])
        assert apart(other.decision_function(TEST), f) < 1e-3
    clf.save(tmp_path / "model.raymkl")
    for again in (load(tmp_path / "model.raymkl"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.decision_function(TEST), f)
        np.testing.assert_array_equal(again.contributions(TEST), clf.contributions(TEST))
        assert again.kernels_ == clf.kernels_ and list(again.view_names_) == NAMES


def test_rows_in_a_session():
    f = classifier(missing="neutral", normalize="multiplicative").fit(TRAIN, Y[:N]).decision_function(TEST)
    with Session(engine="local") as session:
        rows = session.put(TRAIN)
        clf = classifier(missing="neutral", normalize="multiplicative", engine=session)
        for _ in range(2):
            assert apart(clf.fit(rows, Y[:N]).decision_function(TEST), f) < 1e-3


# -- what is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [*GATED, "pattern"])
def test_what_stands_in_absent_rows_changes_no_bit(missing):
    tidy = Views(DATA, present=THERE)
    ours, theirs = (
        classifier(missing=missing, normalize="multiplicative").fit(Z[:N], Y[:N]) for Z in (HOLED, tidy)
    )
    np.testing.assert_array_equal(ours.decision_function(HOLED[N:]), theirs.decision_function(tidy[N:]))
    np.testing.assert_array_equal(ours.dual_coef_, theirs.dual_coef_)


def test_strings_sparse_rows_and_matrices():
    rng = np.random.default_rng(3)
    texts = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(N)]
    counts, similar = sp.csr_matrix(rng.poisson(0.5, (N, 9)).astype(float)), X[:N] @ X[:N].T + np.eye(N)
    there = holes(N, seed=9)
    names, bank = (
        ["text", "counts", "similar"],
        [
            kernels.WeightedDegree(2, view="text"),
            kernels.Linear(view="counts"),
            kernels.Precomputed(view="similar"),
        ],
    )
    broken = np.where(np.outer(there[:, 2], there[:, 2]), similar, np.nan)
    V = Views(
        {
            "text": [t if s else None for t, s in zip(texts, there[:, 0], strict=True)],
            "counts": counts,
            "similar": broken,
        },
        present=there,
        matrices=["similar"],
    )
    stack = [kernels.WeightedDegree(2)(texts), counts.toarray() @ counts.toarray().T, similar]
    K = np.stack([matrix * np.outer(s, s) for matrix, s in zip(stack, there.T, strict=True)], axis=2)
    clf = classifier(kernels=bank, missing="zero").fit(V, Y[:N])
    ready = classifier(kernels="precomputed").fit(K, Y[:N])
    assert (
        list(clf.view_names_) == names and apart(clf.decision_function(V), ready.decision_function(K)) < 1e-3
    )
    # New examples bring columns of their own: those of training rows that lack the matrix may hold anything.
    new = {"text": texts[:5], "counts": counts[:5], "similar": broken[:5]}
    new["similar"] = np.where(there[:, 2], similar[:5], np.nan)
    complete = np.stack([matrix[:5] * s for matrix, s in zip(stack, there.T, strict=True)], axis=2)
    np.testing.assert_allclose(
        clf.decision_function(new), complete @ clf.kernel_weights_ @ _dual(clf) + clf.intercept_, atol=1e-9
    )
    new["similar"] = new["similar"][:, clf.support_]
    np.testing.assert_allclose(
        clf.decision_function(new), complete @ clf.kernel_weights_ @ _dual(clf) + clf.intercept_, atol=1e-9
    )


def test_new_rows_that_all_lack_a_view():
    clf = classifier(missing="zero", normalize="spherical").fit(TRAIN, Y[:N])
    some = np.tile([True, False, False], (T, 1))
    _, Kt = references(np.concatenate([THERE[:N], some]), "spherical")
    f = Kt @ clf.kernel_weights_ @ _dual(clf) + clf.intercept_
    np.testing.assert_allclose(
        clf.decision_function(Views(part(slice(N, None)), present=some)), f, atol=1e-9 * np.abs(f).max()
    )


# -- constants, folds, searches --------------------------------------------------------------------


@pytest.mark.parametrize("missing", [*GATED, "pattern"])
@pytest.mark.parametrize("kind", ["multiplicative", "trace", "tail"])
def test_constants_are_those_of_the_fold(missing, kind):
    if (missing, kind) == ("neutral", "tail"):
        pytest.skip("indicators of few views have no tail")
    grid, estimator = {"C": [1.0, 30.0]}, classifier(missing=missing, normalize=kind, tol=1e-5)
    splitter = StratifiedKFold(3, shuffle=True, random_state=0)
    ours, theirs = (
        s(estimator, grid, cv=splitter, scoring="roc_auc", refit=False).fit(TRAIN, Y[:N])
        for s in (search.MKLSearchCV, GridSearchCV)
    )
    for fold in range(3):
        np.testing.assert_allclose(
            ours.cv_results_[f"split{fold}_test_score"],
            theirs.cv_results_[f"split{fold}_test_score"],
            atol=0.011,
        )


def test_a_search_over_missing():
    grid = {"C": [1.0], "missing": ["zero", "scaled", "neutral", "pattern"]}
    model = MKLRegressor(BANK, normalize="multiplicative", engine="local", tol=1e-5)
    ours, theirs = (
        s(model, grid, cv=KFold(2), refit=False).fit(TRAIN, X[:N, 0])
        for s in (search.MKLSearchCV, GridSearchCV)
    )
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=1e-3
    )


def test_scaled_gates_that_are_one_number_are_not_seen_by_constants():
    """Every row has two of three views, and all have the first: its gate is sqrt(3 / 2), whatever the kernels
    are divided by.
    """
    there = np.column_stack([np.ones(N + T, bool), np.arange(N + T) % 2 == 0, np.arange(N + T) % 2 == 1])
    K, _ = references(there, "multiplicative", "scaled")
    clf = classifier(missing="scaled", normalize="multiplicative").fit(
        Views(part(slice(0, N)), present=there[:N]), Y[:N]
    )
    primal, dual = certificate(clf, K, Y[:N], 1.0, 4 / 3)
    assert (primal - dual) / primal == pytest.approx(clf.duality_gap_, abs=1e-7)


def test_prices_by_tail_sums():
    clf = classifier(missing="zero", beta=1e-3, kernel_costs="tail", tol=1e-4).fit(TRAIN, Y[:N])
    tails = []
    for kernel, views in zip(BANK, READS, strict=True):
        s = THERE[:N][:, [NAMES.index(v) for v in views]].all(axis=1)
        tails.append(np.linalg.eigvalsh(kernel(part(np.flatnonzero(s))))[:-2].sum() / s.sum())
    ready = classifier(kernels="precomputed", beta=1e-3, kernel_costs=tails, tol=1e-4).fit(
        references()[0], Y[:N]
    )
    np.testing.assert_allclose(clf.dual_objective_, ready.dual_objective_, rtol=1e-3)
    np.testing.assert_allclose(clf.kernel_weights_, ready.kernel_weights_, atol=0.02)
