"""Fits with every norm over kernels: what they report, recomputed by slow code from the definitions, and the
optimum by a conic solver.
"""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning

from raymkl import MKLClassifier, MKLRegressor, RayParams, kernels, load, norms, search
from raymkl.optim.weights import rule_of
from tests.reference import _root, apart, dual_exponent, dual_point, gram, noisy_problem

BANK = [
    *kernels.rbf([0.02, 0.1, 0.5]),
    kernels.Polynomial(degree=2, coef0=1.0),
    kernels.Linear(),
    kernels.RBF(gamma=50.0),
]
M, N, EPSILON = len(BANK), 90, 0.1
X, Y = noisy_problem(N, seed=3)
X_TEST, _ = noisy_problem(40, seed=4)
TARGET = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.1 * np.random.default_rng(1).normal(size=N)
K = gram(BANK, X)
KINDS = ("width", "width", "width", "product", "product", "noise")
FLAT = K.reshape(-1, M) / np.linalg.norm(K.reshape(-1, M), axis=0)
ALIKE = FLAT.T @ FLAT + 0.1 * np.eye(M)
SIGNS = np.random.default_rng(0).normal(size=(M, M + 2))
EXPONENTS = (1.0, 1.2, 4 / 3, 2.0, 3.0)
GROUPED = {
    f"groups {p:.3g}, {outer:.3g}": norms.GroupedNorm(p, KINDS, outer=outer)
    for p in EXPONENTS
    for outer in EXPONENTS
}
OTHERS = {
    "crossed": norms.GroupedNorm(1.2, (0, 1, 0, 1, 2, 2), outer=3.0),
    "uniform within": norms.GroupedNorm(np.inf, KINDS, outer=1.0),
    "uniform between": norms.GroupedNorm(1.0, KINDS, outer=np.inf),
    "nearly sparse": norms.GroupedNorm(1.003, KINDS, outer=1.002),
    "diagonal": norms.QuadraticNorm(np.diag([1.0, 2.0, 0.5, 1.0, 4.0, 1.0])),
    "alignments": norms.QuadraticNorm(ALIKE),
    "inverse": norms.QuadraticNorm(np.linalg.inv(ALIKE)),
    "chain": norms.QuadraticNorm(2.5 * np.eye(M) - np.eye(M, k=1) - np.eye(M, k=-1)),
    "any signs": norms.QuadraticNorm(SIGNS @ SIGNS.T / M + 0.2 * np.eye(M)),
    **{f"elastic {p:.3g}": norms.ElasticNetNorm(p, 0.6) for p in (1.0, 4 / 3, 3.0, np.inf)},
}
EVERY = {**GROUPED, **OTHERS}
SOME = {
    name: EVERY[name]
    for name in ("groups 2, 1", "groups 1, 3", "groups 1.33, 1.2", "alignments", "any signs", "elastic 1")
}
every = pytest.mark.parametrize("norm", EVERY.values(), ids=EVERY)
some = pytest.mark.parametrize("norm", SOME.values(), ids=SOME)


# -- the problem by its definition -----------------------------------------------------------------


def size(x, p):
    top = x.max()
    return top if np.isinf(p) or top == 0 else top * np.sum((x / top) ** p) ** (1 / p)


def size_cvx(x, p):
    return cp.norm(x, "inf") if np.isinf(p) else cp.sum(x) if p == 1 else cp.pnorm(x, p)


def members(norm):
    return [np.flatnonzero([label == g for label in norm.groups]) for g in dict.fromkeys(norm.groups)]


def above(v, A):
    """min_{z >= v} z'Az by non-negative least squares."""
    L = np.linalg.cholesky(np.linalg.inv(A))
    lengths = nnls(L.T, np.linalg.solve(L, v))[0]
    return 2 * lengths @ v - np.sum((L.T @ lengths) ** 2)


def primal_norm(norm, lengths):
    if isinstance(norm, norms.GroupedNorm):
        return size(np.array([size(lengths[member], norm.p) for member in members(norm)]), norm.outer) ** 2
    if isinstance(norm, norms.QuadraticNorm):
        return above(lengths, np.linalg.inv(norm.E))
    return norm.mix * size(lengths, norm.p) ** 2 + (1 - norm.mix) * lengths @ lengths


def dual_norm_cvx(norm, v):
    """As an expression and constraints; v : expression (M,)."""
    if isinstance(norm, norms.GroupedNorm):
        inside = [size_cvx(v[member], dual_exponent(norm.p)) for member in members(norm)]
        return cp.square(size_cvx(cp.hstack(inside), dual_exponent(norm.outer))), []
    if isinstance(norm, norms.QuadraticNorm):
        z = cp.Variable(M)
        return cp.sum_squares(np.linalg.cholesky(norm.E).T @ z), [z >= v]
    one, two = cp.Variable(M, nonneg=True), cp.Variable(M, nonneg=True)
    return cp.square(size_cvx(one, dual_exponent(norm.p))) / norm.mix + cp.sum_squares(two) / (
        1 - norm.mix
    ), [one + two >= v]


def dual_norm(norm, v):
    if isinstance(norm, norms.GroupedNorm):
        return (
            size(
                np.array([size(v[member], dual_exponent(norm.p)) for member in members(norm)]),
                dual_exponent(norm.outer),
            )
            ** 2
        )
    if isinstance(norm, norms.QuadraticNorm):
        return above(v, norm.E)
    value, more = dual_norm_cvx(norm, cp.Constant(v))
    return cp.Problem(cp.Minimize(value), more).solve(solver=cp.CLARABEL)


def optimum(norm, y, C, regression):
    """Value of the dual by a conic solver."""
    a = cp.Variable(N)
    penalty, more = dual_norm_cvx(norm, cp.hstack([cp.norm2(_root(K[..., m]) @ a) for m in range(M)]))
    term = y @ a - EPSILON * cp.norm1(a) if regression else y @ a
    box = [cp.abs(a) <= C] if regression else [cp.multiply(y, a) >= 0, cp.multiply(y, a) <= C]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cp.Problem(cp.Maximize(term - penalty / 2), [*box, *more, cp.sum(a) == 0]).solve(
            solver=cp.CLARABEL
        )


def heads_of(model):
    """(labels or targets, row of dual_coef_) of every head."""
    if isinstance(model, MKLRegressor):
        return [TARGET]
    return [
        np.where(LABELS[len(model.classes_)] == label, 1.0, -1.0)
        for label in (model.classes_[1:] if len(model.classes_) == 2 else model.classes_)
    ]


LABELS = {2: Y, 3: np.digitize(TARGET, [-0.5, 0.5])}


def recomputed(model, norm):
    """Primal and dual of all heads together, from public arrays; breaches of the constraints are errors."""
    theta, s, value, loss = model.kernel_weights_, np.zeros(M), 0.0, 0.0
    for head, y in enumerate(heads_of(model)):
        a = dual_point(model, N, head)
        f = (K @ theta) @ a + model.intercept_[head]
        s += np.maximum([a @ K[..., m] @ a for m in range(M)], 0.0)
        if isinstance(model, MKLRegressor):
            value += y @ a - EPSILON * np.abs(a).sum()
            loss += model.C * np.maximum(np.abs(y - f) - EPSILON, 0.0).sum()
            assert np.abs(a).max() <= model.C * (1 + 1e-12)
        else:
            value += y @ a
            loss += model.C * np.maximum(1 - y * f, 0.0).sum()
            assert (y * a).min() >= 0 and (y * a).max() <= model.C * (1 + 1e-12)
        assert abs(a.sum()) <= 1e-9 * np.abs(a).sum()
    assert theta.min() >= 0
    return primal_norm(norm, theta * np.sqrt(s)) / 2 + loss, value - dual_norm(norm, np.sqrt(s)) / 2


def holds(model, norm, X=X):
    """Fit; the certificate is within the tolerance and true."""
    y = TARGET if isinstance(model, MKLRegressor) else LABELS[3] if model.shared_weights else Y
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(norm=norm, kernels=BANK, engine="local").fit(X, y)
    primal, dual = recomputed(model, norm)
    slack = (0.1 * model.tol + 1e-7) * abs(primal)
    assert model.duality_gap_ <= model.tol and model.converged_
    assert model.primal_objective_ == pytest.approx(primal, rel=0, abs=slack)
    assert model.dual_objective_ == pytest.approx(dual, rel=0, abs=slack)
    return model


# -- certificates ----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_classifiers(norm, C):
    holds(MKLClassifier(C=C, tol=1e-4), norm)


@every
def test_classifiers_in_single_precision(norm):
    holds(MKLClassifier(C=1.0, dtype="float32"), norm)


@every
def test_regressors(norm):
    holds(MKLRegressor(C=1.0, epsilon=EPSILON, tol=1e-4), norm)


@every
def test_wrappers(norm):
    holds(MKLClassifier(C=1.0, solver="wrapper"), norm)


@pytest.mark.parametrize("norm", [norm for norm in GROUPED.values() if 1 in (norm.p, norm.outer)], ids=str)
def test_analytic_steps_of_sparse_norms(norm):
    holds(MKLClassifier(C=1.0, theta_step="analytic"), norm)


@some
def test_shared_weights(norm):
    holds(MKLClassifier(C=1.0, shared_weights=True), norm)


@some
@pytest.mark.parametrize("regression", [False, True], ids=["classifier", "regressor"])
def test_the_optimum_lies_in_the_certificate(norm, regression):
    C = 0.3
    model = MKLRegressor(C=C, epsilon=EPSILON, tol=1e-4) if regression else MKLClassifier(C=C, tol=1e-4)
    holds(model, norm)
    best = optimum(norm, TARGET if regression else Y, C, regression)
    assert model.dual_objective_ <= best * (1 + 1e-5) and best <= model.primal_objective_ * (1 + 1e-5)


@some
def test_two_shards_find_the_same_model(norm):
    one = holds(MKLClassifier(C=1.0, tol=1e-6), norm)
    two = holds(MKLClassifier(C=1.0, tol=1e-6, ray_params=RayParams(num_shards=2)), norm)
    assert apart(two.decision_function(X_TEST), one.decision_function(X_TEST)) < 1e-3


# -- what norms do ---------------------------------------------------------------------------------


def test_whole_groups_have_no_weight():
    weights = holds(MKLClassifier(C=0.1), norms.GroupedNorm(2.0, KINDS, outer=1.0)).kernel_weights_
    present = [np.count_nonzero(weights[np.array(KINDS) == kind]) for kind in ("width", "product", "noise")]
    assert (
        0 in present
        and set(present) <= {0, 1, 2, 3}
        and all(
            count in (0, KINDS.count(kind))
            for count, kind in zip(present, ("width", "product", "noise"), strict=True)
        )
    )


def test_a_sparse_norm_within_groups_keeps_every_group():
    weights = holds(MKLClassifier(C=0.1), norms.GroupedNorm(1.0, KINDS, outer=2.0)).kernel_weights_
    assert all(np.any(weights[np.array(KINDS) == kind] > 0) for kind in KINDS) and np.any(weights == 0)


@pytest.mark.parametrize(
    "one, other",
    [
        ({"norm": norms.GroupedNorm(4 / 3, [0] * M, outer=3.0)}, {"p": 4 / 3}),
        ({"norm": norms.GroupedNorm(3.0, range(M), outer=4 / 3)}, {"p": 4 / 3}),
        ({"norm": norms.LpNorm(3.0)}, {"p": 3.0}),
        (
            {"norm": norms.QuadraticNorm(np.diag([1.0, 2.0, 0.5, 1.0, 4.0, 1.0]))},
            {
                "p": 2,
                "kernels": [
                    s * kernel for s, kernel in zip((1.0, 2.0, 0.5, 1.0, 4.0, 1.0), BANK, strict=True)
                ],
            },
        ),
    ],
    ids=["one group", "single kernels", "block norm", "diagonal"],
)
def test_norms_that_are_others(one, other):
    f, g = (
        MKLClassifier(**{"kernels": BANK, "engine": "local", "tol": 1e-6, **more}).fit(X, Y)
        for more in (one, other)
    )
    assert apart(f.decision_function(X_TEST), g.decision_function(X_TEST)) < 1e-6


@some
def test_a_warm_start_goes_on(norm):
    model = MKLClassifier(kernels=BANK, C=1.0, norm=norm, warm_start=True, engine="local").fit(X, Y)
    first, before = model.n_iter_, model.decision_function(X_TEST)
    assert model.fit(X, Y).n_iter_ <= first and apart(model.decision_function(X_TEST), before) < 0.05


@every
def test_every_rule_knows_every_norm(norm):
    used = np.arange(M) != 2
    for solver, step, shared in (
        ("chunking", "auto", False),
        ("chunking", "analytic", False),
        ("wrapper", "auto", False),
        ("chunking", "auto", True),
    ):
        rule = rule_of(norm, used, 1e-3, norm.start(M), solver, step, shared)
        s, theta = np.where(used, np.arange(1.0, M + 1), 0.0), np.where(used, norm.start(M), 0.0)
        for found in (
            rule.before_step(theta, s, np.zeros(M)),
            rule.after_step(theta, s, 1.0, 0.1),
            rule.new_stage(theta, s),
        ):
            assert np.isfinite(found).all() and np.all(found >= 0)


# -- files, searches, errors -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["groups 1.33, 1", "alignments", "elastic 1", "crossed"])
def test_files_and_pickles(name, tmp_path):
    model = MKLClassifier(kernels=BANK, norm=EVERY[name], engine="local").fit(X, Y)
    model.save(tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.decision_function(X_TEST), model.decision_function(X_TEST))
        assert again.norm == model.norm and repr(again.norm) == repr(model.norm)
        again.fit(X, Y)
    assert clone(model).norm == model.norm


def test_labels_of_any_kind_survive_a_file(tmp_path):
    groups = (("a", 1), None, 2.5, True, "x", np.inf)
    model = MKLClassifier(kernels=BANK, norm=norms.GroupedNorm(1.5, groups, outer=1.2), engine="local").fit(
        X, Y
    )
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").norm == model.norm


def test_a_norm_of_ones_own_is_not_saved(tmp_path):
    class Mine(norms.LpNorm):
        pass

    model = MKLClassifier(kernels=BANK, norm=Mine(1.5), engine="local").fit(X, Y)
    with pytest.raises(TypeError, match="norm"):
        model.save(tmp_path / "model")


def test_a_search_over_norms_is_that_of_single_fits():
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    grid = {"norm": [None, *SOME.values()], "C": [0.1, 1.0]}
    model = MKLClassifier(kernels=BANK, tol=1e-5, engine="local")
    ours, theirs = (
        kind(model, grid, cv=StratifiedKFold(3), scoring="roc_auc").fit(X, Y)
        for kind in (search.MKLSearchCV, GridSearchCV)
    )
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=2e-3
    )
    assert ours.best_estimator_.norm == ours.best_params_["norm"]


def test_a_norm_that_does_not_fit_fails_alone_in_a_search():
    grid = {"norm": [None, norms.GroupedNorm(1.0, [0, 1], outer=2.0)]}
    with pytest.warns(FitFailedWarning, match="groups"):
        found = search.MKLSearchCV(MKLClassifier(kernels=BANK, engine="local"), grid, cv=2).fit(X, Y)
    assert np.isfinite(found.cv_results_["mean_test_score"]).tolist() == [True, False]


@pytest.mark.parametrize(
    "more, word",
    [
        ({"norm": "l1"}, "norm"),
        ({"norm": 1.5}, "norm"),
        ({"norm": norms.GroupedNorm}, "norm"),
        ({"norm": norms.GroupedNorm(2.0, [0, 1, 1])}, "groups"),
        ({"norm": norms.QuadraticNorm(np.eye(3))}, "shape"),
        ({"norm": norms.QuadraticNorm(np.eye(M)), "theta_step": "cutting_plane"}, "cutting_plane"),
        ({"norm": norms.GroupedNorm(1.2, KINDS, outer=1.0), "theta_step": "cutting_plane"}, "cutting_plane"),
        ({"norm": norms.ElasticNetNorm(1.0, 0.5), "theta_step": "cutting_plane"}, "cutting_plane"),
    ],
)
@pytest.mark.parametrize("kind", [MKLClassifier, MKLRegressor])
def test_what_is_refused_before_any_work(kind, more, word, monkeypatch):
    monkeypatch.setattr("raymkl.models.runs.callbacks.train", None)
    with pytest.raises((ValueError, TypeError), match=word):
        kind(kernels=BANK, engine="local", **more).fit(X, Y)


def test_cutting_planes_where_groups_have_balls_of_their_own():
    holds(MKLClassifier(C=1.0, theta_step="cutting_plane"), norms.GroupedNorm(4 / 3, KINDS, outer=2.0))
