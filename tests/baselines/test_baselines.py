"""SimpleMKL and HessianMKL: the optimum of p = 1 by CVXPY and by our own solver, gaps that are true, inputs,
errors.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from raymkl import MKLClassifier, baselines, diagnostics, kernels
from raymkl.baselines import HessianMKL, SimpleMKL, base
from raymkl.kernels import write_store
from tests.checks import fails
from tests.reference import decision_from, dual_optimum, dual_point, dual_value, gram, noisy_problem

BOTH = pytest.mark.parametrize("Solver", [SimpleMKL, HessianMKL])
BANKS = {
    "mixed": [
        *kernels.rbf([0.02, 0.1, 0.5]),
        kernels.Polynomial(degree=2, coef0=1.0),
        kernels.Linear(),
        kernels.RBF(gamma=50.0),
    ],
    "much alike": kernels.rbf(np.geomspace(0.01, 1.0, 25)),
    "copies": [kernels.RBF(gamma=0.1)] * 3,
    "one": [kernels.Linear()],
    "columns": [kernels.Linear(view=[j]) for j in range(6)],
}
BANK = BANKS["mixed"]


def primal_value(model, K, y, C):
    """Of p = 1, by definition, at the model's weights, dual variables and intercept."""
    a = dual_point(model, len(y))
    lengths = [theta * np.sqrt(max(a @ K[..., m] @ a, 0)) for m, theta in enumerate(model.kernel_weights_)]
    return 0.5 * sum(lengths) ** 2 + C * np.maximum(0, 1 - y * decision_from(model, K)).sum()


# -- the optimum -----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("C", [0.02, 1.0, 50.0])
@pytest.mark.parametrize("name", BANKS)
def test_optimum_and_true_gaps(Solver, name, C):
    X, y = noisy_problem()
    K = gram(BANKS[name], X)
    model = Solver(BANKS[name], C=C, tol=1e-4).fit(X, y)
    best, a = dual_optimum(K, y, C, 1), dual_point(model, len(y))
    primal, dual = primal_value(model, K, y, C), dual_value(a, y, K, 1)
    assert model.converged_ and model.duality_gap_ <= 1e-4
    assert np.isclose(primal, model.primal_objective_, rtol=1e-9) and np.isclose(
        dual, model.dual_objective_, rtol=1e-9
    )
    assert np.isclose(model.duality_gap_, (primal - dual) / abs(primal), atol=1e-9)
    assert -1e-6 * best < primal - best < 1.1e-4 * best and -1e-6 * best < best - dual < 1.1e-4 * best
    assert (y * a).min() >= 0 and (y * a).max() <= C * (1 + 1e-12) and abs(a.sum()) < 1e-9 * C * len(y)
    assert model.kernel_weights_.min() >= 0 and np.isclose(model.kernel_weights_.sum(), 1.0, atol=1e-12)
    assert model.n_svm_ >= 1 and model.n_iter_ <= model.n_svm_


@BOTH
def test_the_model_is_ours(Solver):
    X, y = noisy_problem(n=150, seed=4)
    new, _ = noisy_problem(seed=5)
    ours = MKLClassifier(kernels=BANK, p=1, tol=1e-6, engine="local").fit(X, y)
    model = Solver(BANK, tol=1e-5).fit(X, y)
    f = ours.decision_function(new)
    assert np.abs(model.decision_function(new) - f).max() < 0.03 * f.std()
    np.testing.assert_allclose(model.kernel_weights_, ours.kernel_weights_, atol=0.02)
    np.testing.assert_allclose(
        model.decision_function(new), decision_from(model, gram(BANK, new, X)), atol=1e-9
    )
    np.testing.assert_allclose(
        diagnostics.block_norms(model),
        diagnostics.block_norms(ours),
        atol=0.02 * diagnostics.block_norms(ours).max(),
    )


@BOTH
def test_a_tighter_tolerance_makes_the_svm_more_precise(Solver):
    X, y = noisy_problem()
    gaps = [Solver(BANK, tol=tol).fit(X, y).duality_gap_ for tol in (1e-2, 1e-4, 1e-5)]
    assert gaps[0] <= 1e-2 and gaps[1] <= 1e-4 and gaps[2] <= 1e-5


def test_newton_takes_fewer_svms():
    X, y = noisy_problem(n=150)
    bank = BANKS["much alike"]
    simple, newton = (Solver(bank, C=10.0).fit(X, y) for Solver in (SimpleMKL, HessianMKL))
    assert 5 * newton.n_svm_ < simple.n_svm_


# -- inputs ----------------------------------------------------------------------------------------


@BOTH
def test_containers_and_labels(Solver, tmp_path):
    X, y = noisy_problem()
    K = gram(BANK, X)
    words = np.where(y > 0, "yes", "no")
    model = Solver(BANK).fit(X, y)
    named = Solver(BANK).fit(pd.DataFrame(X, columns=list("abcdef")), words)
    assert named.classes_.tolist() == ["no", "yes"] and list(named.feature_names_in_) == list("abcdef")
    np.testing.assert_array_equal(
        named.predict(pd.DataFrame(X, columns=list("abcdef"))) == "yes", model.predict(X) == 1
    )
    assert model.score(X, y) > 0.8
    ready = Solver("precomputed").fit(K, y)
    np.testing.assert_allclose(ready.decision_function(K), model.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(
        ready.decision_function(K[:, ready.support_]), model.decision_function(X), atol=1e-6
    )
    write_store(tmp_path / "k.store", K)
    stored = Solver("precomputed").fit(tmp_path / "k.store", y)
    assert np.isclose(stored.dual_objective_, model.dual_objective_, rtol=1e-4)
    views = {"left": X[:, :3], "right": X[:, 3:]}
    two = Solver([kernels.RBF(0.1, view="left"), kernels.Linear(view="right")]).fit(views, y)
    assert two.decision_function(views).shape == (len(X),)
    assert Solver().fit(X, y).kernel_weights_.shape == (
        6,
    )  # the bank that our own classifier takes by itself


@BOTH
def test_clone_pickle_and_params(Solver):
    X, y = noisy_problem()
    model = clone(Solver(BANK, C=2.0, tol=1e-2)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert set(model.get_params()) == {"kernels", "C", "tol", "max_iter"} and model.C == 2.0


@pytest.mark.slow
@BOTH
@pytest.mark.filterwarnings("ignore")
def test_common_checks(Solver):
    results = check_estimator(Solver(kernels.rbf([0.1, 1.0])), on_fail=None)
    assert len(results) > 30
    assert [
        (result["check_name"], result["exception"]) for result in results if result["status"] == "failed"
    ] == []


# -- stopping short, and errors --------------------------------------------------------------------


@BOTH
def test_stopping_short_is_a_warning_with_the_gap(Solver):
    X, y = noisy_problem()
    with pytest.warns(ConvergenceWarning, match="relative duality gap of"):
        model = Solver(BANKS["much alike"], C=10.0, tol=1e-4, max_iter=1).fit(X, y)
    assert not model.converged_ and model.duality_gap_ > 1e-4 and model.n_iter_ == 1
    K = gram(BANKS["much alike"], X)
    assert np.isclose(primal_value(model, K, y, 10.0), model.primal_objective_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        hopeless = Solver(BANK, C=100.0, tol=1e-13, max_iter=60).fit(
            X, y
        )  # LIBSVM has single-precision kernels
    assert not hopeless.converged_ and hopeless.duality_gap_ < 1e-3


@BOTH
def test_errors_come_before_any_work(Solver, monkeypatch, tmp_path):
    X, y = noisy_problem()

    def never(*arguments):
        raise AssertionError("a matrix was computed")

    monkeypatch.setattr(base, "kernel_matrices", never)
    pd.DataFrame(X, columns=list("abcdef")).to_parquet(tmp_path / "rows.parquet")
    for words, call in (
        (("3 classes", "MKLClassifier"), lambda: Solver(BANK).fit(X, np.arange(len(X)) % 3)),
        (("1 class", "two"), lambda: Solver(BANK).fit(X, np.ones(len(X)))),
        (("y", "None"), lambda: Solver(BANK).fit(X, None)),
        (("y", "NaN"), lambda: Solver(BANK).fit(X, np.where(y > 0, np.nan, 1.0))),
        (("X and y", "70", "69"), lambda: Solver(BANK).fit(X, y[:-1])),
        (("C must be", "0"), lambda: Solver(BANK, C=0).fit(X, y)),
        (("C must be", "inf"), lambda: Solver(BANK, C=np.inf).fit(X, y)),
        (("tol must be", "-1"), lambda: Solver(BANK, tol=-1).fit(X, y)),
        (("tol must be", "'small'"), lambda: Solver(BANK, tol="small").fit(X, y)),
        (("max_iter", "0.5"), lambda: Solver(BANK, max_iter=0.5).fit(X, y)),
        (("kernels", "empty"), lambda: Solver([]).fit(X, y)),
        (("kernels[1]", "int"), lambda: Solver([kernels.Linear(), 3]).fit(X, y)),
        (("kernels", "'magic'"), lambda: Solver("magic").fit(X, y)),
        (("(n, n, M)",), lambda: Solver("precomputed").fit(X, y)),
        (("memory", "path"), lambda: Solver(BANK).fit(str(tmp_path / "rows.parquet"), y)),
    ):
        fails(words, call)
    fails(("symmetric",), lambda: Solver("precomputed").fit(np.triu(np.ones((len(X), len(X))))[..., None], y))
    with pytest.raises(NotFittedError):
        Solver(BANK).predict(X)
    monkeypatch.setattr(base, "free_memory", lambda: 10_000)
    fails(("6 kernels", "70 rows", "GiB", "MKLClassifier"), lambda: Solver(BANK).fit(X, y))


def test_no_file_format(tmp_path):
    X, y = noisy_problem()
    fails(("pickle", "MKLClassifier"), lambda: SimpleMKL(BANK).fit(X, y).save(tmp_path / "m.raymkl"))


def test_names_are_loaded_when_they_are_used():
    assert dir(baselines) == ["BEMKL", "HessianMKL", "SimpleMKL"]
    with pytest.raises(AttributeError, match="no attribute 'EasyMKL'"):
        baselines.EasyMKL  # noqa: B018
