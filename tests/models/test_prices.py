"""beta and kernel_costs: prices of kernels, solved exactly and certified.

min_{w,b}  1/2 ||w||_{2,p}^2 + sum_m rho_m ||w_m|| + sum_i C_i loss_i,    rho_m = beta * sum_i C_i * r_m
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

import raymkl
from raymkl import MKLClassifier, MKLRegressor, kernels, search
from tests.models.description.test_tails import slow_tails

random = np.random.default_rng(3)
N = 60
X = random.standard_normal((N, 4))
Y = np.where(X[:, 0] + 0.6 * random.standard_normal(N) > 0, 1, -1)
BANK = [*kernels.rbf([0.05, 0.3, 2.0, 20.0]), kernels.Polynomial(degree=2, coef0=1.0)]
M = len(BANK)
K = np.stack([kernel(X) for kernel in BANK], axis=-1)
NEW = random.standard_normal((20, 4))


def conic_optimum(y, bounds, p, rho):
    import cvxpy as cp

    a, lengths = cp.Variable(len(y)), []
    for m in range(M):
        values, vectors = np.linalg.eigh(K[..., m])
        keep = values > 1e-10 * values.max()
        lengths.append(cp.norm((vectors[:, keep] * np.sqrt(values[keep])).T @ a))
    size = cp.pnorm(cp.pos(cp.hstack(lengths) - rho), p / (p - 1))
    box = [cp.multiply(y, a) >= 0, cp.multiply(y, a) <= bounds, cp.sum(a) == 0]
    problem = cp.Problem(cp.Maximize(y @ a - cp.square(size) / 2), box)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return problem.solve(solver=cp.CLARABEL)


def certificates(model, targets, bounds, p, rho):
    """Recomputed from public arrays: per head (primal, dual, whether idle kernels have weight zero).

    targets : (H, n).
    """
    weights = np.broadcast_to(np.atleast_2d(model.kernel_weights_), (len(targets), M))
    for coefficients, theta, b, y in zip(model.dual_coef_, weights, model.intercept_, targets, strict=True):
        a = np.zeros(len(y))
        a[model.support_] = coefficients
        assert np.all(y * a >= 0) and np.all(y * a <= bounds) and abs(a.sum()) < 1e-9 * bounds.sum()
        s = np.maximum(np.einsum("i,ijm,j->m", a, K, a), 0)
        lengths, nu, q = theta * np.sqrt(s), np.maximum(np.sqrt(s) - rho, 0), p / (p - 1)
        f = K @ theta @ a + b
        primal = 0.5 * np.sum(lengths**p) ** (2 / p) + rho @ lengths + bounds @ np.maximum(1 - y * f, 0)
        yield (
            primal,
            y @ a - 0.5 * np.sum(nu**q) ** (2 / q),
            np.all(theta[np.sqrt(s) <= rho * (1 - 1e-9)] == 0),
        )


@pytest.mark.parametrize("p", [1.1, 4 / 3, 2, 3])
@pytest.mark.parametrize("solver", ["chunking", "wrapper"])
def test_two_classes_reach_the_optimum(p, solver):
    used = []
    for beta in (0.005, 0.03, 0.1, 0.3, 3.0):
        rho = np.full(M, beta * 0.7 * N)
        model = MKLClassifier(BANK, C=0.7, p=p, beta=beta, tol=1e-5, solver=solver, engine="local").fit(X, Y)
        best = conic_optimum(Y, np.full(N, 0.7), p, rho)
        ((primal, dual, idle),) = certificates(model, [Y], np.full(N, 0.7), p, rho)
        assert model.converged_ and idle
        true = (primal - dual) / primal
        assert true < model.duality_gap_ + 1e-8
        if (
            solver == "chunking" or beta < 3
        ):  # without kernels any b between two ends is optimal; that of the certificate need not be the best
            assert abs(true - model.duality_gap_) < 1e-8
        assert dual - 1e-5 * best <= best <= primal + 1e-5 * best and model.duality_gap_ <= 1e-5
        used.append(np.count_nonzero(model.kernel_weights_))
    assert used == sorted(used, reverse=True) and used[0] >= 4 and used[-1] == 0


@pytest.mark.parametrize("costs", [None, "tail", np.arange(M) * 0.5, [0.0, 0.0, 1.0, 1.0, 1.0]])
def test_costs_and_weights_of_rows(costs):
    weight = np.r_[np.zeros(6), random.uniform(0.2, 2.0, N - 6)]
    r = (
        np.ones(M)
        if costs is None
        else slow_tails(K[6:, 6:]) / (N - 6)
        if isinstance(costs, str)
        else np.asarray(costs)
    )
    rho = 0.05 * 0.5 * weight.sum() * r
    for p in (4 / 3, 3):
        model = MKLClassifier(BANK, C=0.5, p=p, beta=0.05, kernel_costs=costs, tol=1e-5, engine="local").fit(
            X, Y, sample_weight=weight
        )
        ((primal, dual, idle),) = certificates(model, [Y], 0.5 * weight, p, rho)
        assert (
            idle and model.duality_gap_ <= 1e-5 and abs((primal - dual) / primal - model.duality_gap_) < 1e-8
        )
        assert abs(dual / conic_optimum(Y, 0.5 * weight, p, rho) - 1) < 1e-4


@pytest.mark.parametrize("dtype, shards", [("float64", None), ("float32", None), ("float64", 3)])
def test_one_against_the_rest(dtype, shards, tmp_path):
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    params = None if shards is None else raymkl.RayParams(num_shards=shards)
    model = MKLClassifier(BANK, beta=0.05, tol=1e-4, dtype=dtype, engine="local", ray_params=params).fit(X, y)
    targets = [np.where(y == label, 1, -1) for label in range(3)]
    for h, (primal, dual, _) in enumerate(
        certificates(model, targets, np.ones(N), 4 / 3, np.full(M, 0.05 * N))
    ):
        assert abs((primal - dual) / primal - model.duality_gap_[h]) < 1e-5 and model.duality_gap_[h] <= 1e-4
        assert abs(dual / conic_optimum(targets[h], np.ones(N), 4 / 3, np.full(M, 0.05 * N)) - 1) < 3e-4
    model.save(tmp_path / "model")
    again = raymkl.load(tmp_path / "model")
    assert again.beta == 0.05 and np.array_equal(again.decision_function(NEW), model.decision_function(NEW))


def test_shared_weights_pay_once():
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    for p in (4 / 3, 3):
        model = MKLClassifier(BANK, p=p, beta=0.05, tol=1e-3, shared_weights=True, engine="local").fit(X, y)
        A = np.zeros((3, N))
        A[:, model.support_] = model.dual_coef_
        s, theta, rho = (
            np.einsum("hi,ijm,hj->m", A, K, A, optimize=True),
            model.kernel_weights_,
            np.full(M, 0.05 * N),
        )
        targets = np.stack([np.where(y == label, 1, -1) for label in range(3)])
        F, q = np.einsum("ijm,m,hj->hi", K, theta, A, optimize=True) + model.intercept_[:, None], p / (p - 1)
        lengths = theta * np.sqrt(s)
        primal = 0.5 * np.sum(lengths**p) ** (2 / p) + rho @ lengths + np.maximum(1 - targets * F, 0).sum()
        dual = np.sum(targets * A) - 0.5 * np.sum(np.maximum(np.sqrt(s) - rho, 0) ** q) ** (2 / q)
        assert abs((primal - dual) / primal - model.duality_gap_) < 1e-8 and model.duality_gap_ <= 1e-3


def test_a_price_that_nobody_pays():
    model = MKLClassifier(BANK, beta=100.0, engine="local").fit(X, Y)
    fewer = min(np.sum(Y > 0), np.sum(Y < 0))
    assert (
        model.converged_
        and abs(model.duality_gap_) < 1e-12
        and model.primal_objective_ == pytest.approx(2 * fewer)
    )
    assert np.array_equal(model.kernel_weights_, np.zeros(M))
    assert np.ptp(model.decision_function(NEW)) == 0 and np.array_equal(
        model.contributions(NEW), np.zeros((20, M))
    )


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "squared"])
def test_other_losses_are_certified(loss):
    plain = MKLClassifier(BANK, loss=loss, tol=1e-4, engine="local").fit(X, Y)
    for beta in (0.01, 0.1, 10.0):
        model = MKLClassifier(BANK, loss=loss, beta=beta, tol=1e-4, engine="local").fit(X, Y)
        assert (
            model.converged_
            and model.duality_gap_ <= 1e-4
            and model.primal_objective_ > plain.primal_objective_
        )
    assert not model.kernel_weights_.any()


def test_regression():
    y = X[:, 0] + 0.1 * random.standard_normal(N)
    for loss in ("epsilon_insensitive", "huber", "quantile"):
        counts = []
        for beta in (0.0, 0.02, 10.0):
            model = MKLRegressor(BANK, C=2.0, beta=beta, loss=loss, tol=1e-4, engine="local").fit(X, y)
            assert model.converged_ and model.duality_gap_ <= 1e-4
            counts.append(np.count_nonzero(model.kernel_weights_))
        assert counts[0] == M and counts[2] == 0
        assert np.ptp(model.predict(NEW)) == 0


def test_beta_zero_is_plain():
    a, b = (
        MKLClassifier(BANK, engine="local").fit(X, Y),
        MKLClassifier(BANK, kernel_costs="tail", engine="local").fit(X, Y),
    )
    assert np.array_equal(a.decision_function(NEW), b.decision_function(NEW))


def test_warm_start():
    model = MKLClassifier(BANK, beta=0.05, tol=1e-6, warm_start=True, engine="local").fit(X, Y)
    first = model.decision_function(NEW)
    for beta in (10.0, 0.05):  # from a model, to none, and back
        model.set_params(beta=beta).fit(X, Y)
        assert model.converged_
    np.testing.assert_allclose(model.decision_function(NEW), first, atol=1e-3)


def test_search():
    model = MKLClassifier(BANK, beta=0.2, tol=1e-4, engine="local")
    grid = {"C": [0.1, 1.0, 5.0], "beta": [0.0, 0.01, 0.1], "kernel_costs": [None, "tail"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = search.MKLSearchCV(model, grid, cv=KFold(3)).fit(X, Y)
    theirs = GridSearchCV(model, grid, cv=KFold(3)).fit(X, Y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=0.04
    )
    ours = search.MKLSearchCV(model, {"C": [0.1, 1.0, 5.0]}, cv=KFold(3)).fit(X, Y)
    theirs = GridSearchCV(model, {"C": [0.1, 1.0, 5.0]}, cv=KFold(3)).fit(X, Y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=0.02
    )


@pytest.mark.parametrize(
    "word, more",
    [
        ("beta", {"beta": -1.0}),
        ("beta", {"beta": np.nan}),
        ("beta", {"beta": "much"}),
        ("beta", {"p": 1}),
        ("beta", {"p": np.inf}),
        ("beta", {"norm": raymkl.norms.ElasticNetNorm(1.0, 0.5)}),
        ("cutting_plane", {"theta_step": "cutting_plane"}),
        ("kernel_costs", {"kernel_costs": "head"}),
        ("kernel_costs", {"kernel_costs": [1.0, 2.0]}),
        ("kernel_costs", {"kernel_costs": [-1.0] * M}),
        ("kernel_costs", {"kernel_costs": [np.nan] * M}),
        ("kernel_costs", {"kernel_costs": 3.0}),
        ("kernel_costs", {"kernel_costs": [None] * M}),
    ],
)
def test_clear_errors(word, more):
    for model, y in ((MKLClassifier(BANK, engine="local"), Y), (MKLRegressor(BANK, engine="local"), X[:, 0])):
        with pytest.raises(ValueError, match=word):
            clone(model).set_params(**{"beta": 0.1, **more}).fit(X, y)
