"""Convex localized models: optimum against a conic solver, hard clusters against clusters solved apart, and
the estimator contract.
"""

import pickle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from raymkl import (
    ConvexLocalizedMKLClassifier,
    ConvexLocalizedMKLRegressor,
    MKLClassifier,
    MKLRegressor,
    RayParams,
    load,
)
from raymkl.kernels import RBF, Linear, Polynomial, Precomputed, rbf
from tests.reference import _root, apart, dual_exponent, gram, noisy_problem, normalised

BANK = [*rbf([0.05, 0.5]), Linear()]
X, Y = noisy_problem(70, seed=3)
T, _ = noisy_problem(40, seed=4)
K = gram(BANK, X)


def model(**more):
    return ConvexLocalizedMKLClassifier(
        **{"kernels": BANK, "random_state": 0, "engine": "local", "tol": 1e-5, **more}
    )


def optimum(stack, gates, y, C, p, epsilon=None):
    """Value of the dual with one norm per cluster, by a conic solver. stack (n, n, M), gates (n, l)."""
    a, star, penalty = cp.Variable(len(y)), dual_exponent(p), 0
    for j in range(gates.shape[1]):
        parts = [_root(stack[..., m]) @ cp.multiply(gates[:, j], a) for m in range(stack.shape[2])]
        if p == 2:
            penalty += sum(cp.sum_squares(part) for part in parts)
        else:
            lengths = cp.hstack([cp.norm2(part) for part in parts])
            penalty += cp.square(cp.max(lengths) if np.isinf(star) else cp.pnorm(lengths, star))
    if epsilon is None:
        signed = cp.multiply(y, a)
        value, box = cp.sum(signed), [signed >= 0, signed <= C]
    else:
        value, box = y @ a - epsilon * cp.norm1(a), [cp.abs(a) <= C]
    return cp.Problem(cp.Maximize(value - penalty / 2), [*box, cp.sum(a) == 0]).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(
    ("p", "evenness"),
    [(1, 0.4), (1, "hard"), (4 / 3, 0.4), (4 / 3, 0.8), (4 / 3, "hard"), (2, 0.8), (4, 0.8), (4, "hard")],
)
def test_the_optimum_is_that_of_a_conic_solver(p, evenness):
    clf = model(p=p, evenness=evenness, C=2.0, tol=1e-4).fit(X, Y)
    best = optimum(K, clf.membership(X), Y, 2.0, p)
    assert clf.converged_ and clf.duality_gap_ <= 1e-4
    assert clf.dual_objective_ == pytest.approx(best, rel=2e-4)
    assert clf.kernel_weights_.shape == (3, 3)


@pytest.mark.parametrize(
    "more",
    [
        {"solver": "wrapper"},
        {"theta_step": "cutting_plane"},
        {"theta_step": "cutting_plane", "p": 1},
        {"dtype": "float32"},
    ],
)
def test_every_solver_finds_it(more):
    clf = model(**{"tol": 1e-3, **more}).fit(X, Y)
    best = optimum(K, clf.membership(X), Y, 1.0, more.get("p", 4 / 3))
    assert clf.duality_gap_ <= 1e-3
    assert clf.dual_objective_ == pytest.approx(best, rel=1.5e-3)


def test_the_certificate_and_the_decision_follow_from_public_attributes():
    clf = model(p=4 / 3).fit(X, Y)
    gates, gates_t, a = clf.membership(X), clf.membership(T), np.zeros(len(X))
    a[clf.support_] = clf.dual_coef_[0]
    cross = gram(BANK, T, X)
    f = (
        sum(
            gates_t[:, [j]] * (cross @ clf.kernel_weights_[j]) @ (gates[:, j] * a)[:, None] for j in range(3)
        )[:, 0]
        + clf.intercept_
    )
    np.testing.assert_allclose(clf.decision_function(T), f, atol=1e-8)
    for beta in clf.kernel_weights_:
        assert np.sum(beta**2) == pytest.approx(1.0)  # weight norm p / (2 - p) = 2
    lengths = [
        [beta * np.sqrt((a * g) @ K[..., m] @ (a * g)) for m, beta in enumerate(row)]
        for row, g in zip(clf.kernel_weights_, gates.T, strict=True)
    ]
    on_train = clf.decision_function(X)
    primal = (
        0.5 * sum(np.sum(np.array(row) ** (4 / 3)) ** 1.5 for row in lengths)
        + np.maximum(0, 1 - Y * on_train).sum()
    )
    assert primal == pytest.approx(clf.primal_objective_, rel=1e-6)


def test_the_smallest_evenness_is_that_of_hard_clusters():
    hard, limit = model(evenness="hard").fit(X, Y), model(evenness=1 / 3).fit(X, Y)
    np.testing.assert_array_equal(limit.membership(T), hard.membership(T))


@pytest.mark.parametrize("evenness", [0.35, 0.5, 0.9, 1.0])
def test_membership_has_the_evenness_asked_for(evenness):
    clf = model(evenness=evenness, tol=1e-2).fit(X, Y)
    gates = clf.membership(X)
    assert np.mean(gates / gates.max(axis=1, keepdims=True)) == pytest.approx(evenness, abs=1e-6)
    np.testing.assert_allclose(gates.sum(axis=1), 1.0)
    assert clf.tau_ == 0.0 if evenness == 1.0 else clf.tau_ > 0


def test_hard_clusters_are_clusters_solved_apart_with_a_common_bias():
    """Given b, clusters that share no example do not know of each other: each must be optimal for y - b by
    itself.
    """
    clf = model(evenness="hard", p=4 / 3, C=2.0, tol=1e-7).fit(X, Y)
    gates, b = clf.membership(X), clf.intercept_[0]
    assert np.all(np.isin(gates, (0, 1))) and np.isinf(clf.tau_)
    a = np.zeros(len(X))
    a[clf.support_] = clf.dual_coef_[0]
    total = 0.0
    for j in range(3):
        rows = np.flatnonzero(gates[:, j])
        v, y = cp.Variable(len(rows)), Y[rows]
        lengths = cp.hstack([cp.norm2(_root(K[np.ix_(rows, rows)][..., m]) @ v) for m in range(3)])
        signed = cp.multiply(y, v)
        # max over the cluster's own variables with b fixed: sum_i (y_i - b) a_i - 1/2 penalty, no constraint
        # on the sum.
        problem = cp.Problem(
            cp.Maximize(cp.sum(signed) - b * cp.sum(v) - cp.square(cp.pnorm(lengths, 4)) / 2),
            [signed >= 0, signed <= 2.0],
        )
        total += problem.solve(solver=cp.CLARABEL)
        own = K[np.ix_(rows, rows)]
        size = np.sum(np.array([a[rows] @ own[..., m] @ a[rows] for m in range(3)]) ** 2) ** 0.5
        assert Y[rows] @ a[rows] - b * a[rows].sum() - size / 2 == pytest.approx(
            problem.value, rel=1e-4, abs=1e-5
        )
    assert total == pytest.approx(clf.dual_objective_, rel=1e-4)  # the terms with b cancel in the sum


def test_one_cluster_and_even_clusters_are_plain_models():
    plain = MKLClassifier(kernels=BANK, tol=1e-6, engine="local").fit(X, Y).decision_function(T)
    assert apart(model(n_clusters=1, tol=1e-6).fit(X, Y).decision_function(T), plain) < 1e-3
    # Three alike clusters with c_j = 1/3: the penalty is a third of the plain one, and so the problem is the
    # plain one with C / 3.
    even = model(n_clusters=3, evenness=1.0, C=3.0, tol=1e-6).fit(X, Y).decision_function(T)
    assert apart(even, plain) < 1e-3


def test_given_tau_is_used_and_the_gating_kernel_chosen():
    clf = model(tau=0.7, evenness=0.9).fit(X, Y)
    assert clf.tau_ == 0.7
    by_number = model(gating_kernel=1).fit(X, Y)
    by_kernel = model(gating_kernel=BANK[1]).fit(X, Y)
    np.testing.assert_allclose(by_number.membership(T), by_kernel.membership(T), atol=1e-9)
    assert apart(by_number.decision_function(T), by_kernel.decision_function(T)) < 1e-3
    assert np.abs(by_number.membership(T) - clf.membership(T)).max() > 1e-3


def test_another_view_may_decide_about_the_clusters():
    data = {"a": X[:, :3], "b": X[:, 3:]}
    bank = rbf([0.1, 0.5], view="a")
    clf = model(kernels=bank, gating_kernel=RBF(0.3, view="b")).fit(data, Y)
    only = model(kernels=rbf([0.1], view="b"), gating_kernel=RBF(0.3, view="b")).fit(data, Y)
    np.testing.assert_allclose(clf.membership(data), only.membership(data), atol=1e-9)
    assert clf.decision_function({"a": T[:, :3], "b": T[:, 3:]}).shape == (40,)


@pytest.mark.parametrize("kind", ["multiplicative", "trace", "spherical"])
def test_kernels_are_normalised_before_they_are_gated(kind):
    clf = model(normalize=kind, C=5.0).fit(X, Y)
    diagonal = np.stack([kernel.diag(T) for kernel in BANK], axis=1)
    train, cross = normalised(kind, K, gram(BANK, T, X), diagonal)
    ready = model(kernels="precomputed", C=5.0).fit(train, Y)
    np.testing.assert_allclose(clf.membership(T), ready.membership(cross), atol=1e-7)
    assert clf.dual_objective_ == pytest.approx(ready.dual_objective_, rel=1e-4)
    assert apart(clf.decision_function(T), ready.decision_function(cross)) < 1e-2


def test_containers_and_precomputed_give_one_model(tmp_path):
    expected = model(tol=1e-6).fit(X, Y).decision_function(T)
    ready = model(kernels="precomputed", tol=1e-6).fit(K, Y)
    assert apart(ready.decision_function(gram(BANK, T, X)), expected) < 1e-3
    assert (
        apart(model(tol=1e-6).fit(sp.csr_matrix(X), Y).decision_function(sp.csr_matrix(T)), expected) < 1e-3
    )
    with pytest.raises(ValueError, match="all 70 training rows"):
        ready.membership(gram(BANK, T, X[ready.support_]))


def test_more_classes_share_the_clusters():
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])]
    clf = model(p=4 / 3).fit(X, y)
    assert clf.kernel_weights_.shape == (3, 3, 3) and clf.duality_gap_.shape == (3,)
    assert clf.decision_function(T).shape == (40, 3) and set(clf.predict(T)) <= {"a", "b", "c"}
    for c, label in enumerate(clf.classes_):
        best = optimum(K, clf.membership(X), np.where(y == label, 1, -1), 1.0, 4 / 3)
        assert clf.dual_objective_[c] == pytest.approx(best, rel=1e-4)
    parts = clf.contributions(T)
    np.testing.assert_allclose(parts.sum(axis=2) + clf.intercept_, clf.decision_function(T), atol=1e-8)


@pytest.mark.parametrize("shards", [2, 5])
def test_shards_do_not_matter(shards):
    one = model(tol=1e-6).fit(X, Y)
    many = model(tol=1e-6, ray_params=RayParams(num_shards=shards)).fit(X, Y)
    np.testing.assert_allclose(many.membership(T), one.membership(T), atol=1e-9)
    assert apart(many.decision_function(T), one.decision_function(T)) < 1e-3


def test_ray_gives_the_local_model(ray_session):
    local, remote = (
        model(tol=1e-6, engine=e, normalize="multiplicative").fit(X, Y) for e in ("local", ray_session)
    )
    np.testing.assert_allclose(remote.membership(T), local.membership(T), atol=1e-9)
    assert apart(remote.decision_function(T), local.decision_function(T)) < 1e-3
    assert remote.engine_used_ == "ray"


@pytest.mark.parametrize(
    "more", [{}, {"evenness": "hard"}, {"normalize": "spherical"}, {"gating_kernel": Polynomial(2)}]
)
def test_save_load_pickle_clone(tmp_path, more):
    clf = model(**more).fit(X, Y)
    clf.save(tmp_path / "model.arrow")
    for copy in (load(tmp_path / "model.arrow"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(copy.membership(T), clf.membership(T))
        np.testing.assert_array_equal(copy.decision_function(T), clf.decision_function(T))
    assert clone(clf).get_params().keys() == clf.get_params().keys()
    again = clone(clf).fit(X, Y)
    np.testing.assert_array_equal(again.dual_coef_, clf.dual_coef_)


def test_zero_weights_take_no_part_in_the_clusters():
    weights = np.ones(len(X))
    weights[:20] = 0.0
    weighted = model(tol=1e-6).fit(X, Y, sample_weight=weights)
    assert weighted.landmarks_.min() == 20
    alone = model(tol=1e-6).fit(X[20:], Y[20:])
    np.testing.assert_allclose(weighted.membership(T), alone.membership(T), atol=1e-9)
    assert apart(weighted.decision_function(T), alone.decision_function(T)) < 1e-3


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": -3}, "n_clusters"),
        ({"n_clusters": True}, "n_clusters"),
        ({"n_clusters": 71}, "n_clusters"),
        ({"n_clusters": 2.5}, "n_clusters"),
        ({"evenness": 0.1}, "evenness"),
        ({"evenness": 0.333}, "evenness"),
        ({"evenness": 1.01}, "evenness"),
        ({"evenness": "soft"}, "evenness"),
        ({"evenness": None}, "evenness"),
        ({"evenness": True}, "evenness"),
        ({"evenness": np.nan}, "evenness"),
        ({"evenness": 0.0, "n_clusters": 1}, "evenness"),
        ({"tau": -1.0}, "tau"),
        ({"tau": np.nan}, "tau"),
        ({"n_init": 0}, "n_init"),
        ({"gating_kernel": 3}, "gating_kernel"),
        ({"gating_kernel": "mean"}, "gating_kernel"),
        ({"gating_kernel": 1.5}, "gating_kernel"),
        ({"gating_kernel": None}, "gating_kernel"),
        ({"gating_kernel": np.eye(3)}, "gating_kernel"),
        ({"gating_kernel": Linear(view="nowhere")}, "nowhere"),
    ],
)
def test_bad_input_is_named(params, word):
    with pytest.raises(ValueError, match=word):
        model(**params).fit(X, Y)


def test_a_kernel_of_vectors_cannot_cluster_matrices_or_strings():
    with pytest.raises(
        ValueError, match=r"gating_kernel=RBF.* needs vectors, but X holds ready-made matrices"
    ):
        model(kernels="precomputed", gating_kernel=RBF(1.0)).fit(K, Y)
    text = np.array(["acgt"] * 70, object)
    with pytest.raises(
        ValueError, match=r"gating_kernel=RBF.*view 's' of X has entries that are not numbers"
    ):
        model(kernels=rbf([1.0], view="x"), gating_kernel=RBF(1.0, view="s")).fit({"x": X, "s": text}, Y)
    with pytest.raises(ValueError, match="different numbers of rows"):
        model(kernels=rbf([1.0], view="x"), gating_kernel=RBF(1.0, view="s")).fit({"x": X, "s": X[:50]}, Y)


def test_rows_without_weight_are_no_examples_to_cluster():
    weights = np.where(np.arange(70) < 4, 1.0, 0.0)
    assert len(set(Y[:4])) == 2
    with pytest.raises(ValueError, match="n_clusters=5 is more than the 4 examples"):
        model(n_clusters=5).fit(X, Y, sample_weight=weights)
    assert np.all(
        model(n_clusters=4, evenness="hard").fit(X, Y, sample_weight=weights).membership(X[:4]).sum(axis=0)
        == 1
    )


def test_no_cluster_is_left_empty():
    """Two places and five clusters: clusters that no row would choose are given one."""
    same = np.repeat(X[:2], 10, axis=0)
    clf = model(tol=1e-3, n_clusters=5, evenness="hard").fit(same, np.tile([1, -1], 10))
    assert clf.kernel_weights_.shape == (5, 3) and np.isfinite(clf.decision_function(T)).all()
    np.testing.assert_array_equal(clf.membership(T).sum(axis=1), np.ones(40))


# -- regression ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "evenness"), [(1, 0.5), (4 / 3, 0.5), (2, 0.5), (4 / 3, "hard")])
def test_regression_optimum_is_that_of_a_conic_solver(p, evenness):
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 3.0
    reg = ConvexLocalizedMKLRegressor(
        kernels=BANK, p=p, evenness=evenness, C=2.0, epsilon=0.2, tol=1e-4, random_state=0, engine="local"
    ).fit(X, y)
    best = optimum(K, reg.membership(X), y, 2.0, p, epsilon=0.2)
    assert reg.duality_gap_ <= 1e-4
    assert reg.dual_objective_ == pytest.approx(best, rel=3e-4)
    assert reg.predict(T).shape == (40,)


def test_regression_with_one_cluster_is_plain(tmp_path):
    y = np.sin(2 * X[:, 0]) + 10.0
    reg = ConvexLocalizedMKLRegressor(kernels=BANK, n_clusters=1, tol=1e-6, engine="local").fit(X, y)
    plain = MKLRegressor(kernels=BANK, tol=1e-6, engine="local").fit(X, y)
    np.testing.assert_allclose(reg.predict(T), plain.predict(T), atol=1e-3)
    reg.save(tmp_path / "model.arrow")
    np.testing.assert_array_equal(load(tmp_path / "model.arrow").predict(T), reg.predict(T))


def test_precomputed_kernel_objects_cluster_as_well():
    bank = [Precomputed(view="k", index=0), Precomputed(view="k", index=2)]
    clf = model(kernels=bank).fit({"k": K}, Y)
    cross = gram(BANK, T, X)
    ready = model(kernels="precomputed").fit(K[..., [0, 2]], Y)
    np.testing.assert_allclose(clf.membership({"k": cross}), ready.membership(cross[..., [0, 2]]), atol=1e-9)
    assert apart(clf.decision_function({"k": cross}), ready.decision_function(cross[..., [0, 2]])) < 1e-3
