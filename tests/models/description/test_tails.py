"""normalize="tail": every kernel is divided by what its largest eigenvalues leave of its trace, over the rows
of positive weight.
"""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold

import raymkl
from raymkl import MKLClassifier, MKLOneClass, MKLRegressor, diagnostics, kernels, search
from raymkl.engine.programs import tail_sums as programme
from raymkl.models.description import tails as tails_module
from raymkl.models.description.tails import tail_sums


def slow_tails(K, zeta=2):
    """K (n, n, M), by all eigenvalues."""
    return np.array(
        [np.sort(np.linalg.eigvalsh(K[..., m]))[: len(K) - zeta].sum() for m in range(K.shape[2])]
    )


def data(n=70, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 4))
    return X, np.where(X[:, 0] + 0.5 * random.standard_normal(n) > 0, 1, -1)


BANK = [*kernels.rbf([0.05, 0.5, 5.0]), kernels.Polynomial(degree=2, coef0=1.0)]
X, Y = data()
K = np.stack([kernel(X) for kernel in BANK], axis=-1)


@pytest.mark.parametrize(
    "kind, zeta", [("tail", 2), (kernels.TailSum(zeta=5), 5), (kernels.TailSum(zeta=0), 0)]
)
def test_two_classes_are_solved_over_divided_kernels(kind, zeta):
    want = slow_tails(K, zeta)
    model = MKLClassifier(BANK, C=30.0, normalize=kind, tol=1e-5, engine="local").fit(X, Y)
    np.testing.assert_allclose(model.tail_sums_, want, rtol=1e-8)
    ready = MKLClassifier("precomputed", C=30.0, tol=1e-5, engine="local").fit(K / want, Y)
    assert abs(model.dual_objective_ / ready.dual_objective_ - 1) < 1e-4
    np.testing.assert_allclose(model.decision_function(X), ready.decision_function(K / want), atol=2e-2)
    a = np.zeros(len(X))
    a[model.support_] = model.dual_coef_[0]
    f = (K / want) @ model.kernel_weights_ @ a + model.intercept_
    np.testing.assert_allclose(f, model.decision_function(X), atol=1e-6)


def test_rows_of_weight_zero_do_not_count():
    weight = np.r_[np.zeros(10), np.ones(60)]
    model = MKLClassifier(BANK, C=30.0, normalize="tail", engine="local").fit(X, Y, sample_weight=weight)
    np.testing.assert_allclose(model.tail_sums_, slow_tails(K[10:, 10:]), rtol=1e-8)


@pytest.mark.parametrize(
    "model",
    [MKLRegressor(BANK), MKLOneClass(BANK), MKLClassifier(BANK), raymkl.ConvexLocalizedMKLClassifier(BANK)],
)
def test_all_estimators_take_it(model, tmp_path):
    model.set_params(normalize=kernels.TailSum(3), engine="local")
    y = (
        np.arange(len(X)) % 3
        if isinstance(model, MKLClassifier)
        else X[:, 0]
        if isinstance(model, MKLRegressor)
        else Y
    )
    model.fit(X, y)
    np.testing.assert_allclose(model.tail_sums_, slow_tails(K, 3), rtol=1e-8)
    model.save(tmp_path / "model")
    again = raymkl.load(tmp_path / "model")
    assert again.normalize == kernels.TailSum(zeta=3) and np.array_equal(again.tail_sums_, model.tail_sums_)
    assert np.array_equal(
        again.decision_function(X) if hasattr(model, "decision_function") else again.predict(X),
        model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X),
    )
    model.set_params(normalize=None).fit(X, y)
    assert not hasattr(model, "tail_sums_")


def test_containers_and_ready_made_matrices():
    base = MKLClassifier(BANK, C=30.0, normalize="tail", tol=1e-5, engine="local").fit(X, Y)
    ready = MKLClassifier("precomputed", C=30.0, normalize="tail", tol=1e-5, engine="local").fit(K, Y)
    np.testing.assert_allclose(ready.tail_sums_, base.tail_sums_, rtol=1e-8)
    np.testing.assert_allclose(ready.decision_function(K), base.decision_function(X), atol=1e-2)


def test_in_a_search_tails_are_those_of_the_fold():
    grid = {"C": [3.0, 100.0], "p": [1.2, 2.0]}
    model = MKLClassifier(BANK, normalize="tail", tol=1e-5, engine="local")
    ours, theirs = (
        search.MKLSearchCV(model, grid, cv=KFold(3)).fit(X, Y),
        GridSearchCV(model, grid, cv=KFold(3)).fit(X, Y),
    )
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=0.03
    )
    kinds = {"normalize": [None, "tail", kernels.TailSum(1)]}
    ours, theirs = (
        search.MKLSearchCV(model, kinds, cv=KFold(3)).fit(X, Y),
        GridSearchCV(model, kinds, cv=KFold(3)).fit(X, Y),
    )
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=0.03
    )


def test_clear_errors():
    for zeta in (-1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="zeta"):
            kernels.TailSum(zeta=zeta)
    with pytest.raises(ValueError, match="zeta"):
        MKLClassifier(BANK, normalize=kernels.TailSum(len(X)), engine="local").fit(X, Y)
    with pytest.raises(ValueError, match="zeta"):
        diagnostics.tail_sums(BANK, X, zeta=-1)
    with pytest.raises(ValueError, match="kernel 1 has no tail"):
        MKLClassifier([kernels.RBF(gamma=1.0), kernels.Linear()], normalize="tail", engine="local").fit(
            X[:, :2], Y
        )
    with pytest.raises(ValueError, match="normalize"):
        MKLClassifier(BANK, normalize="tails", engine="local").fit(X, Y)


@pytest.mark.parametrize("shards", [1, 3])
def test_over_shards(monkeypatch, shards):
    """Products over shards find what all eigenvalues say, for dense, sparse, string and ready-made
    kernels.
    """
    from scipy.sparse import csr_matrix

    monkeypatch.setattr(tails_module, "EXACT_ROWS", 20)
    monkeypatch.setattr(programme, "LANDMARKS", 60)
    monkeypatch.setattr(programme, "COLUMNS", 64)
    A, _ = data(300, 1)
    words = np.array(["".join(np.random.default_rng(i).choice(list("ACGT"), 12)) for i in range(300)])
    bank = [
        *kernels.rbf([1e-3, 0.1, 30.0]),
        kernels.Linear(),
        kernels.Linear(view="s"),
        kernels.Spectrum(2, view="w"),
    ]
    bank += [kernels.Precomputed(view="K", index=m) for m in range(2)]
    stack = np.stack([kernels.RBF(gamma=g)(A) for g in (0.02, 1.0)], axis=-1)
    rows = {"x": A, "s": csr_matrix(A), "w": words, "K": stack}
    bank[:4] = [*kernels.rbf([1e-3, 0.1, 30.0], view="x"), kernels.Linear(view="x")]
    model = MKLClassifier(bank, engine="local")
    _, read, bank = model._read(rows, reset=True)
    used = np.arange(300) % 7 != 0
    full = np.stack([*(kernel(rows) for kernel in bank[:6]), stack[..., 0], stack[..., 1]], axis=-1)
    want = slow_tails(full[np.ix_(used, used)])
    got = tail_sums(read, bank, used, 2, "local", raymkl.RayParams(num_shards=shards))
    np.testing.assert_allclose(got, want, rtol=1e-2)
    both = tail_sums(read, bank, np.stack([used, ~used]), 2, "local", raymkl.RayParams(num_shards=shards))
    np.testing.assert_allclose(both[1], slow_tails(full[np.ix_(~used, ~used)]), rtol=1e-6)


def test_very_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(tails_module, "EXACT_ROWS", 20)
    monkeypatch.setattr(programme, "LANDMARKS", 60)
    monkeypatch.setattr(programme, "MOST_ROWS", 300)
    A, _ = data(900, 2)
    want = slow_tails(np.stack([kernel(A) for kernel in BANK], axis=-1))
    got = tail_sums({None: A}, BANK, np.ones(900, bool), 2, "local")
    np.testing.assert_allclose(got, want, rtol=0.1)


def test_a_kernel_without_a_tail_over_shards(monkeypatch):
    monkeypatch.setattr(tails_module, "EXACT_ROWS", 20)
    monkeypatch.setattr(programme, "LANDMARKS", 30)
    with pytest.raises(ValueError, match="kernel 1 has no tail"):
        tail_sums(
            {None: X[:, :2]}, [kernels.RBF(gamma=1.0), kernels.Linear()], np.ones(len(X), bool), 2, "local"
        )


def test_diagnostics():
    np.testing.assert_allclose(diagnostics.tail_sums(BANK, X, zeta=5), slow_tails(K, 5), rtol=1e-8)
    np.testing.assert_allclose(diagnostics.tail_sums(K), slow_tails(K), rtol=1e-8)
    assert abs(diagnostics.tail_sums([kernels.Linear()], X[:, :2])[0]) < 1e-9
    model = MKLClassifier(BANK, normalize="tail", engine="local").fit(X, Y)
    seen = diagnostics.spectra(model, X).eigenvalues * len(X)
    np.testing.assert_allclose(seen[:, 2:].sum(axis=1), 1.0, rtol=1e-6)
    assert np.isfinite(diagnostics.complexity(model, X))


def test_the_value_object():
    assert repr(kernels.TailSum()) == "TailSum(zeta=2)" and kernels.TailSum(2) == kernels.TailSum(np.int64(2))
    assert len({kernels.TailSum(1), kernels.TailSum(1), kernels.TailSum(3)}) == 2
