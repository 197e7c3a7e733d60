"""BEMKL: the equations written out slowly, several classes, probabilities, inputs, errors."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from raymkl import diagnostics, kernels
from raymkl.baselines import BEMKL, base, bemkl, mean_field, row_solvers
from raymkl.kernels import write_store
from tests.checks import fails
from tests.reference import gram, noisy_problem, normalised

BANK = [*kernels.rbf([0.02, 0.1, 0.5]), kernels.Polynomial(degree=2, coef0=1.0), kernels.Linear()]


def slow(K, y, K_new, margin, width, sweeps):
    """One head by loops over rows and kernels.

    K : (n, n, M). y : -1 or 1. K_new : (t, n, M). E[e], E[f], P(y = 1).
    """
    n, _, M = K.shape
    rows_precision = [1.0] * n
    f = [(1 + margin) * label for label in y]
    g = np.array([[(1 + margin) * label for label in y] for _ in range(M)])
    b, e, cov = 0.0, np.ones(M), np.eye(M + 1)
    for _ in range(sweeps):
        inverse = np.diag(rows_precision)
        target = np.zeros(n)
        for m in range(M):
            inverse = inverse + K[..., m] @ K[..., m].T / width**2
            target += K[..., m] @ g[m] / width**2
        spread = np.linalg.inv(inverse)
        a = spread @ target
        rows_precision = [(1 + 0.5) / (1 + (a[i] ** 2 + spread[i, i]) / 2) for i in range(n)]

        second = np.array([[e[k] * e[m] + cov[1 + k, 1 + m] for m in range(M)] for k in range(M)])
        spread_g = np.linalg.inv(np.eye(M) / width**2 + second)
        for i in range(n):
            pull = [K[i, :, m] @ a / width**2 + e[m] * f[i] - (e[m] * b + cov[1 + m, 0]) for m in range(M)]
            g[:, i] = spread_g @ pull

        means = [b, *e]
        inverse = np.diag([(1 + 0.5) / (1 + (means[k] ** 2 + cov[k, k]) / 2) for k in range(M + 1)])
        target = np.zeros(M + 1)
        for i in range(n):
            row = np.array([1.0, *g[:, i]])
            inverse += np.outer(row, row)
            inverse[1:, 1:] += spread_g
            target += row * f[i]
        cov = np.linalg.inv(inverse)
        b, *e = cov @ target
        e = np.array(e)

        for i in range(n):
            mean = b + e @ g[:, i]
            t = margin - y[i] * mean
            f[i] = mean + y[i] * np.exp(norm.logpdf(t) - norm.logsf(t))
    values, chances = [], []
    for row in K_new:
        known = np.array([1.0, *(row[:, m] @ a for m in range(M))])
        mean, deviation = known @ [b, *e], np.sqrt(1 + known @ cov @ known)
        up, down = norm.sf((margin - mean) / deviation), norm.cdf((-margin - mean) / deviation)
        values.append(mean)
        chances.append(up / (up + down))
    return e, np.array(values), np.array(chances)


# -- the model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [None, "multiplicative", "spherical", "trace"])
@pytest.mark.parametrize(
    "margin, width, sweeps", [(1.0, 0.1, 30), (0.0, 0.1, 5), (3.0, 1.0, 30), (0.5, 0.02, 1), (1.0, 5.0, 10)]
)
def test_the_model_of_its_equations(margin, width, sweeps, normalize):
    X, y = noisy_problem(50)
    new, _ = noisy_problem(30, seed=1)
    K, K_new = gram(BANK, X), gram(BANK, new, X)
    if normalize is not None:
        K, K_new = normalised(normalize, K, K_new, np.stack([kernel.diag(new) for kernel in BANK], axis=1))
    e, f, P = slow(K, y, K_new, margin, width, sweeps)
    model = BEMKL(BANK, normalize=normalize, margin=margin, width=width, max_iter=sweeps).fit(X, y)
    np.testing.assert_allclose(model.kernel_weights_, e, atol=1e-6 * np.abs(e).max())
    np.testing.assert_allclose(model.decision_function(new), f, atol=1e-6 * np.abs(f).max())
    np.testing.assert_allclose(model.predict_proba(new)[:, 1], P, atol=1e-6)
    np.testing.assert_array_equal(model.predict(new), np.where(f > 0, 1, -1))
    assert (
        model.n_iter_ == sweeps and model.covariance_.shape == (1, 6, 6) and model.dual_coef_.shape == (1, 50)
    )


def test_three_classes_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    some, others = np.arange(0, 150, 3), np.arange(1, 150, 3)
    bank = kernels.rbf([0.05, 0.5])
    model = BEMKL(bank, max_iter=15).fit(X[some], words[some])
    values, chances = model.decision_function(X[others]), model.predict_proba(X[others])
    assert values.shape == chances.shape == (50, 3) and model.kernel_weights_.shape == (3, 2)
    alone = [
        slow(gram(bank, X[some]), np.where(y[some] == k, 1, -1), gram(bank, X[others], X[some]), 1.0, 0.1, 15)
        for k in range(3)
    ]
    np.testing.assert_allclose(model.kernel_weights_, [e for e, _, _ in alone], atol=1e-6)
    np.testing.assert_allclose(values, np.stack([f for _, f, _ in alone], axis=1), atol=1e-6)
    P = np.stack([P for _, _, P in alone], axis=1)
    np.testing.assert_allclose(chances, P / P.sum(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X[others]), model.classes_[values.argmax(axis=1)])
    assert model.score(X[others], words[others]) > 0.9


def test_tail_sums():
    X, y = noisy_problem(50)
    K = gram(BANK, X)
    tails = [np.sort(np.linalg.eigvalsh(K[..., m]))[:-2].sum() for m in range(len(BANK))]
    e, f, _ = slow(K / tails, y, K / tails, 1.0, 0.1, 10)
    for kind in ("tail", kernels.TailSum(2)):
        model = BEMKL(BANK, normalize=kind, max_iter=10).fit(X, y)
        np.testing.assert_allclose(model.kernel_weights_, e, atol=1e-6 * np.abs(e).max())
        np.testing.assert_allclose(model.decision_function(X), f, atol=1e-6 * np.abs(f).max())


# -- its parts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank, way", [(40, row_solvers.solve_full), (15, row_solvers.solve_factored)])
def test_ways_to_the_weights_of_rows(rank, way):
    rng = np.random.default_rng(0)
    F, q, g = rng.normal(size=(40, rank)), rng.uniform(0.01, 2.0, 40), rng.normal(size=rank)
    solver = row_solvers.row_solver(F @ F.T)
    assert solver.func is way
    mean, variance = solver(q, F @ g)
    inverse = np.linalg.inv(F @ F.T + np.diag(q))
    np.testing.assert_allclose(mean, inverse @ F @ g, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(inverse), rtol=1e-8)


def test_small_diagonals_beside_a_singular_sum():
    """Either way gives the same; where no Cholesky factor exists, that through the factor alone is right."""
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    values = np.r_[np.geomspace(1e-2, 1e4, 28), 0.0, 0.0]
    square, solver = (vectors * values) @ vectors.T, row_solvers.row_solver((vectors * values) @ vectors.T)
    assert solver.func is row_solvers.solve_either
    sums, g = square @ rng.normal(size=30), vectors[:, :28]
    for size in (1.0, 1e-6):
        q = size * rng.uniform(0.5, 2.0, 30)
        one, other = (
            row_solvers.solve_full(square, q, sums),
            row_solvers.solve_factored(g, np.sqrt(values[:28]), q, sums),
        )
        np.testing.assert_allclose(solver(q, sums)[0], other[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-4)
    tiny = solver(np.full(30, 1e-14), sums)
    exact = g @ ((g.T @ sums) / values[:28])
    np.testing.assert_allclose(tiny[0], exact, atol=1e-6 * np.abs(exact).max())
    assert np.isfinite(tiny[1]).all() and (tiny[1] >= 0).all()


def test_kernels_that_are_zero_everywhere():
    q = np.linspace(0.1, 2.0, 20)
    mean, variance = row_solvers.row_solver(np.zeros((20, 20)))(q, np.zeros(20))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 1 / q)


def test_tails_of_the_normal():
    t = np.array([-1e8, -40.0, -3.0, 0.0, 3.0, 30.0])
    np.testing.assert_allclose(
        mean_field.hazard(t), np.exp(norm.logpdf(t) - norm.logsf(t)), rtol=1e-9, atol=1e-300
    )
    np.testing.assert_allclose(mean_field.hazard(np.array([1e5, 1e12])), [1e5, 1e12], rtol=1e-9)


@pytest.mark.parametrize("margin", [0.0, 1.0, 300.0])
def test_probabilities_far_from_the_margin(margin):
    outputs = np.array([-1e6, -50.0, 0.0, 50.0, 1e6])[:, None, None]
    odds = mean_field.log_odds(outputs, np.array([[0.0, 1.0]]), np.zeros((1, 2, 2)), margin)[:, 0]
    assert np.isfinite(odds).all() and (np.diff(odds) > 0).all() and odds[2] == 0
    np.testing.assert_allclose(odds, -odds[::-1])


@pytest.mark.parametrize(
    "width, margin, scale",
    [(1e-6, 1.0, 1.0), (1e3, 1.0, 1.0), (0.1, 1e3, 1.0), (0.1, 1.0, 1e4), (0.1, 1.0, 1e-6)],
)
def test_extremes_stay_finite(width, margin, scale):
    X, y = noisy_problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BEMKL([*kernels.rbf([0.1, 50.0]), kernels.Linear()], width=width, margin=margin).fit(
            scale * X, y
        )
        chances = model.predict_proba(1e3 * scale * X)
    assert np.isfinite(model.kernel_weights_).all() and np.isfinite(model.decision_function(X)).all()
    assert (chances >= 0).all() and np.allclose(chances.sum(axis=1), 1.0)


def test_no_class_fits_a_row():
    """Probabilities of all classes that are very small still sum to one."""
    X = np.repeat(np.arange(4.0), 10)[:, None]
    y = np.repeat(np.arange(4), 10)
    chances = (
        BEMKL([kernels.Linear(), kernels.RBF(0.5)], margin=30.0, max_iter=20)
        .fit(X, y)
        .predict_proba(np.array([[-1e4], [1e4], [9.0]]))
    )
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


# -- inputs ----------------------------------------------------------------------------------------


def test_containers_and_labels(tmp_path, monkeypatch):
    X, y = noisy_problem()
    K = gram(BANK, X)
    words = np.where(y > 0, "yes", "no")
    model = BEMKL(BANK, max_iter=10).fit(X, y)
    f, P = model.decision_function(X), model.predict_proba(X)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = BEMKL(BANK, max_iter=10).fit(frame, words)
    assert named.classes_.tolist() == ["no", "yes"] and list(named.feature_names_in_) == list("abcdef")
    np.testing.assert_array_equal(named.predict(frame) == "yes", model.predict(X) == 1)
    ready = BEMKL("precomputed", max_iter=10).fit(K, y)
    np.testing.assert_allclose(ready.decision_function(K), f, atol=1e-8)
    np.testing.assert_allclose(ready.predict_proba(K), P, atol=1e-8)
    write_store(tmp_path / "k.store", K)
    stored = BEMKL("precomputed", max_iter=10).fit(tmp_path / "k.store", y)
    np.testing.assert_allclose(stored.decision_function(K), f, atol=1e-3)
    for kind in ("multiplicative", "trace"):
        pair = [
            BEMKL(bank, normalize=kind, max_iter=10).fit(rows, y)
            for bank, rows in ((BANK, X), ("precomputed", K))
        ]
        np.testing.assert_allclose(pair[0].predict_proba(X), pair[1].predict_proba(K), atol=1e-7)
    views = {"left": X[:, :3], "right": X[:, 3:]}
    two = BEMKL(
        [kernels.RBF(0.1, view="left"), kernels.Linear(view="right")], normalize="spherical", max_iter=5
    ).fit(views, y)
    assert two.predict_proba(views).shape == (len(X), 2)
    frame.to_parquet(tmp_path / "rows.parquet")
    np.testing.assert_allclose(named.predict_proba(str(tmp_path / "rows.parquet")), P, atol=1e-8)
    monkeypatch.setattr(bemkl, "BLOCK_NUMBERS", 16)  # three rows at a time
    np.testing.assert_allclose(model.predict_proba(X), P, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(X[:1]), P[:1], atol=1e-10)


def test_clone_pickle_and_params():
    X, y = noisy_problem()
    model = clone(BEMKL(BANK, normalize="trace", margin=0.5, width=0.2, max_iter=7)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert model.get_params() == {
        "kernels": BANK,
        "normalize": "trace",
        "margin": 0.5,
        "width": 0.2,
        "max_iter": 7,
    }
    np.testing.assert_array_equal(
        clone(model).fit(X, y).kernel_weights_, model.kernel_weights_
    )  # nothing is random


def test_diagnostics_read_it():
    X, y = noisy_problem()
    model = BEMKL(BANK, normalize="spherical", max_iter=10).fit(X, y)
    np.testing.assert_allclose(
        model.contributions(X).sum(axis=1) + model.intercept_, model.decision_function(X), atol=1e-9
    )
    assert diagnostics.block_norms(model).shape == (5,) and (diagnostics.block_norms(model) >= 0).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_common_checks():
    results = check_estimator(BEMKL(kernels.rbf([0.1, 1.0]), max_iter=30), on_fail=None)
    assert len(results) > 30
    assert [
        (result["check_name"], result["exception"]) for result in results if result["status"] == "failed"
    ] == []


# -- errors ----------------------------------------------------------------------------------------


def test_errors_come_before_any_work(monkeypatch, tmp_path):
    X, y = noisy_problem()

    def never(*arguments):
        raise AssertionError("a matrix was computed")

    monkeypatch.setattr(base, "kernel_matrices", never)
    pd.DataFrame(X, columns=list("abcdef")).to_parquet(tmp_path / "rows.parquet")
    for words, call in (
        *(
            (
                (f"{name} must be", accepted, repr(value)),
                lambda name=name, value=value: BEMKL(BANK, **{name: value}).fit(X, y),
            )
            for name, accepted, values in (
                ("margin", ">= 0", (-1.0, np.nan, np.inf, "wide", None, True)),
                ("width", "> 0", (0.0, -0.1, np.nan, np.inf, "wide", None, [0.1])),
                ("max_iter", ">= 1", (0, -3, 2.5, np.nan, "many", None, True)),
                ("normalize", "'trace'", ("magic", 3, np.ones(2))),
            )
            for value in values
        ),
        (("1 class", "two"), lambda: BEMKL(BANK).fit(X, np.ones(len(X)))),
        (("y", "None"), lambda: BEMKL(BANK).fit(X, None)),
        (("y", "NaN"), lambda: BEMKL(BANK).fit(X, np.where(y > 0, np.nan, 1.0))),
        (("X contains NaN",), lambda: BEMKL(BANK).fit(np.where(X > 2, np.nan, X), y)),
        (("continuous",), lambda: BEMKL(BANK).fit(X, X[:, 0])),
        (("X and y", "70", "69"), lambda: BEMKL(BANK).fit(X, y[:-1])),
        (("kernels", "empty"), lambda: BEMKL([]).fit(X, y)),
        (("kernels", "'magic'"), lambda: BEMKL("magic").fit(X, y)),
        (("(n, n, M)",), lambda: BEMKL("precomputed").fit(X, y)),
        (
            ("spherical", "ready-made"),
            lambda: BEMKL("precomputed", normalize="spherical").fit(gram(BANK, X), y),
        ),
        (("memory", "path"), lambda: BEMKL(BANK).fit(str(tmp_path / "rows.parquet"), y)),
        (
            ("10,000 rows", "20,000 rows", "MKLClassifier"),
            lambda: BEMKL(BANK).fit(np.zeros((20_000, 2)), np.arange(20_000) % 2),
        ),
    ):
        fails(words, call)
    with pytest.raises(NotFittedError):
        BEMKL(BANK).predict_proba(X)
    monkeypatch.setattr(base, "free_memory", lambda: 10_000)
    fails(("5 kernels", "70 rows", "GiB", "MKLClassifier"), lambda: BEMKL(BANK).fit(X, y))


def test_other_errors(tmp_path):
    X, y = noisy_problem()
    fails(("symmetric",), lambda: BEMKL("precomputed").fit(np.triu(np.ones((len(X), len(X))))[..., None], y))
    fails(("no tail",), lambda: BEMKL([kernels.Linear(view=[0])], normalize="tail").fit(X, y))
    model = BEMKL(BANK, max_iter=2).fit(X, y)
    fails(("features",), lambda: model.predict_proba(X[:, :3]))
    fails(("pickle", "MKLClassifier"), lambda: model.save(tmp_path / "m.raymkl"))
    for width in (1e-200, 1e200):
        fails(
            (f"width={width}", "float64"),
            lambda width=width: BEMKL([kernels.Linear()], width=width).fit(X, y),
        )
