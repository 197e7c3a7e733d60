"""The stochastic trainer: against a slow reading of its rule, with certificates recomputed from kernel
matrices.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import raymkl
from raymkl import RayParams, StochasticMKLClassifier
from raymkl.engine.programs import landmarks
from raymkl.engine.programs.dual_averaging import visits
from raymkl.kernels import Laplacian, Linear, Polynomial, rbf
from tests.reference import apart, gram

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

BANK = [*rbf([0.05, 0.5, 5.0]), Polynomial(degree=2, coef0=1.0), Laplacian(gamma=0.3)]
M, N, K, C = len(BANK), 61, 3, 0.1


def three_classes(n, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4))
    return X, np.digitize(X[:, 0] + X[:, 1] ** 2 + 0.2 * random.normal(size=n), [0.3, 1.4])


X, Y = three_classes(N, 1)
T, _ = three_classes(40, 2)
GRAM, GRAM_T = gram(BANK, X), gram(BANK, T, X)
TAILS = np.array([np.sort(np.linalg.eigvalsh(GRAM[..., m]))[:-2].sum() for m in range(M)])


def model(**more):
    return StochasticMKLClassifier(
        **{"kernels": BANK, "C": C, "max_iter": 6, "tol": 1e-9, "random_state": 7, "engine": "local", **more}
    )


def q_of(p):
    return max(2.0, 2 * np.log(M)) if p is None else p / (p - 1)


def slow_run(G, y, weights, p=None, beta=0.0, costs=1.0, batch=1, epochs=6, seed=7):
    """(N, t) by the rule as it is written: theta is never stored, its length comes from the whole matrix."""
    seed = int(np.random.RandomState(seed).randint(2**31 - 1))
    n, q = len(y), q_of(p)
    lost, t, alpha = np.zeros((n, K)), 0, 1 / (C * n)
    for epoch in range(1, epochs + 1):
        ((_, _, order),) = visits(np.arange(n), seed, epoch)
        for start in range(0, n, batch):
            new = lost.copy()
            lengths = np.sqrt(np.maximum(np.einsum("ik,ijm,jk->m", lost, G, lost), 0))
            nu = np.maximum(lengths - t * beta * weights.mean() * costs, 0)
            mu = np.zeros(M)
            if t and nu.any():
                mu = np.where(
                    nu > 0,
                    nu ** (q - 1)
                    / (alpha * t * np.sum(nu**q) ** ((q - 2) / q) * np.maximum(lengths, 1e-300)),
                    0,
                )
            for i in order[start : start + batch]:
                f = np.einsum("jm,jk,m->k", G[i], lost, mu)
                rival = f + 1
                rival[y[i]] = -np.inf
                if rival.max() > f[y[i]]:
                    new[i, y[i]] += weights[i]
                    new[i, rival.argmax()] -= weights[i]
            t += len(order[start : start + batch])
            lost = new
    return lost, t


def dual_point(clf, n=N):
    A = np.zeros((n, len(clf.classes_)))
    A[clf.support_] = clf.dual_coef_.T
    return A


def certificate(clf, G, y, bounds, p, rho=0.0):
    """(primal, dual) of the public arrays of a model, from kernel matrices and definitions."""
    A, q = dual_point(clf, len(y)), q_of(p)
    F = np.einsum("ijm,jk,m->ik", G, A, clf.kernel_weights_)
    s = np.sqrt(np.maximum(np.einsum("ik,ijm,jk->m", A, G, A), 0))
    w, rows = clf.kernel_weights_ * s, np.arange(len(y))
    rival = F + 1
    rival[rows, y] = F[rows, y]
    p = q / (q - 1)
    primal = 0.5 * np.sum(w**p) ** (2 / p) + np.sum(rho * w) + bounds @ (rival.max(axis=1) - F[rows, y])
    return primal, A[rows, y].sum() - 0.5 * np.sum(np.maximum(s - rho, 0) ** q) ** (2 / q)


@pytest.mark.parametrize(
    "more, costs",
    [
        ({"batch_size": 1}, np.ones(M)),
        ({"batch_size": 8, "p": 1.3}, np.ones(M)),
        ({"batch_size": 5, "beta": 0.02}, np.ones(M)),
        ({"batch_size": 1, "beta": 0.01, "kernel_costs": "tail"}, TAILS / N),
        ({"batch_size": 16, "beta": 0.02, "kernel_costs": np.arange(M) * 0.7, "p": 2.0}, np.arange(M) * 0.7),
    ],
)
def test_the_rule_as_it_is_written(more, costs):
    clf = model(**more).fit(X, Y)
    lost, t = slow_run(GRAM, Y, np.ones(N), more.get("p"), more.get("beta", 0.0), costs, more["batch_size"])
    assert np.array_equal(lost, np.round(dual_point(clf) * t / (C * N)))
    np.testing.assert_allclose(dual_point(clf), C * N * lost / t, atol=1e-12)
    rho = more.get("beta", 0.0) * costs * C * N
    primal, dual = certificate(clf, GRAM, Y, np.full(N, C), more.get("p"), rho)
    assert clf.primal_objective_ == pytest.approx(primal, rel=1e-8) and clf.dual_objective_ == pytest.approx(
        dual, rel=1e-8
    )
    assert clf.duality_gap_ == pytest.approx((primal - dual) / primal, rel=1e-6)
    np.testing.assert_allclose(
        clf.decision_function(T), GRAM_T @ clf.kernel_weights_ @ dual_point(clf), atol=1e-9
    )


def test_every_epoch_is_feasible_and_weakly_dual():
    clf = model(max_iter=40, beta=0.02).fit(X, Y)
    A = dual_point(clf)
    assert np.abs(A.sum(axis=1)).max() < 1e-12
    bounds = np.zeros_like(A)
    bounds[np.arange(N), Y] = C
    assert (A - bounds).max() < 1e-12
    assert max(row["dual"] for row in clf.history_) <= min(row["primal"] for row in clf.history_)
    assert [row["epoch"] for row in clf.history_] == list(range(1, 41)) and np.all(
        np.diff([row["seconds"] for row in clf.history_]) > 0
    )
    assert clf.n_iter_ == 40 and not clf.converged_ and clf.history_[-1]["gap"] < 0.3 * clf.history_[3]["gap"]


def test_it_stops_at_the_wanted_gap_and_says_when_it_does_not():
    done = model(max_iter=500, tol=0.1).fit(X, Y)
    assert done.converged_ and done.duality_gap_ <= 0.1 and done.n_iter_ < 500
    with pytest.warns(ConvergenceWarning, match=r"2 epochs with a relative duality gap of \d\.\d+"):
        model(max_iter=2).fit(X, Y)


@pytest.mark.parametrize("n_landmarks", [None, 20])
def test_seeds_bits_and_shards(n_landmarks):
    settings = {"n_landmarks": n_landmarks, "beta": 0.01}
    base = model(**settings).fit(X, Y).decision_function(T)
    assert np.array_equal(model(**settings).fit(X, Y).decision_function(T), base)
    assert not np.array_equal(model(**settings, random_state=8).fit(X, Y).decision_function(T), base)
    for shards in (2, 5):
        f = model(**settings, ray_params=RayParams(num_shards=shards)).fit(X, Y).decision_function(T)
        assert apart(f, base) < 1e-9


def test_all_rows_as_landmarks_are_the_kernels_themselves():
    for more in (
        {"beta": 0.02},
        {"normalize": "spherical"},
        {"normalize": "trace", "C": 5.0},
        {"normalize": "multiplicative"},
    ):
        full, every = model(**more).fit(X, Y), model(n_landmarks=N, **more).fit(X, Y)
        assert apart(every.decision_function(T), full.decision_function(T)) < 1e-5
        assert every.duality_gap_ == pytest.approx(full.duality_gap_, abs=1e-6)
        np.testing.assert_allclose(every.kernel_weights_, full.kernel_weights_, rtol=1e-5, atol=1e-9)


def test_landmarks_are_certified_for_the_approximate_kernels():
    clf = model(n_landmarks=25, beta=0.02, max_iter=20).fit(X, Y)
    Z, coef = X[clf.landmarks_], clf.landmark_coef_
    assert (
        coef.shape == (K, M, 25) and len(np.unique(clf.landmarks_)) == 25 and not hasattr(clf, "dual_coef_")
    )
    np.testing.assert_allclose(
        clf.decision_function(T), np.einsum("ilm,kml->ik", gram(BANK, T, Z), coef), atol=1e-6
    )
    cross, own = gram(BANK, X, Z), gram(BANK, Z)
    near = np.stack(
        [cross[..., m] @ np.linalg.pinv(own[..., m], rcond=1e-10) @ cross[..., m].T for m in range(M)],
        axis=-1,
    )
    same = model(kernels="precomputed", beta=0.02, max_iter=20).fit((near + near.transpose(1, 0, 2)) / 2, Y)
    assert clf.dual_objective_ == pytest.approx(same.dual_objective_, rel=1e-5)
    assert clf.primal_objective_ == pytest.approx(same.primal_objective_, rel=1e-5)


@pytest.mark.parametrize("n_landmarks", [None, 15])
def test_weights_of_rows(n_landmarks):
    weights = np.random.default_rng(0).uniform(0.2, 3.0, N)
    weights[:9] = 0
    settings = {"n_landmarks": n_landmarks, "beta": 0.01}
    clf = model(**settings).fit(X, Y, sample_weight=weights)
    # A row of no weight is a removed one, to the last bit of the order.
    without = model(**settings).fit(X[9:], Y[9:], sample_weight=weights[9:])
    np.testing.assert_allclose(clf.decision_function(T), without.decision_function(T), atol=1e-9)
    if n_landmarks is None:
        rho = 0.01 * C * weights.sum()
        primal, dual = certificate(clf, GRAM, Y, C * weights, None, rho)
        assert clf.duality_gap_ == pytest.approx((primal - dual) / primal, rel=1e-6)
        assert np.all(dual_point(clf)[np.arange(N), Y] <= C * weights + 1e-12)
        lost, t = slow_run(GRAM[9:, 9:], Y[9:], weights[9:], beta=0.01, batch=16)
        np.testing.assert_allclose(dual_point(without, N - 9), C * (N - 9) * lost / t, atol=1e-12)
    heavy = model(**settings, class_weight={0: 4.0}).fit(X, Y)
    same = model(**settings).fit(X, Y, sample_weight=np.where(Y == 0, 4.0, 1.0))
    assert np.array_equal(heavy.decision_function(T), same.decision_function(T))


@pytest.mark.parametrize("n_landmarks", [None, 15])
def test_two_classes_and_files(n_landmarks, tmp_path):
    names = np.array(["no", "yes"])[(Y > 0).astype(int)]
    clf = model(n_landmarks=n_landmarks, normalize="spherical").fit(X, names)
    f = clf.decision_function(T)
    assert (
        f.shape == (40,)
        and np.array_equal(clf.predict(T), np.where(f > 0, "yes", "no"))
        and clf.intercept_.tolist() == [0.0, 0.0]
    )
    np.testing.assert_allclose(clf.contributions(T).sum(axis=1), f, atol=1e-9)
    clf.save(tmp_path / "model.raymkl")
    for again in (raymkl.load(tmp_path / "model.raymkl"), pickle.loads(pickle.dumps(clf))):
        assert np.array_equal(again.decision_function(T), f) and hasattr(again, "dual_coef_") == (
            n_landmarks is None
        )


def test_tail_sums_normalise():
    clf = model(normalize="tail", C=3.0).fit(X, Y)
    ready = model(kernels="precomputed", C=3.0).fit(GRAM / TAILS, Y)
    np.testing.assert_allclose(clf.tail_sums_, TAILS, rtol=1e-8)
    assert clf.duality_gap_ == pytest.approx(ready.duality_gap_, rel=1e-6)
    np.testing.assert_allclose(clf.decision_function(T), ready.decision_function(GRAM_T / TAILS), atol=1e-7)


@pytest.mark.parametrize("normalize", [None, "tail", "trace"])
def test_prices_are_those_of_the_exact_solver(normalize):
    """Costs are tail sums of the kernels as given, whatever they are divided by; a kernel without a tail
    costs nothing.
    """
    bank = [*rbf([0.05, 0.5, 5.0]), *([] if normalize == "tail" else [Linear()])]
    scale = {"tail": 20.0, "trace": 20.0}.get(normalize, 0.1)
    same = {
        "kernels": bank,
        "C": scale,
        "p": 1.5,
        "kernel_costs": "tail",
        "beta": 0.02,
        "normalize": normalize,
        "engine": "local",
    }
    exact = raymkl.MKLClassifier(**same, multi_class="joint", tol=1e-6).fit(X[:, :2], Y)
    clf = StochasticMKLClassifier(**same, max_iter=150, tol=1e-6, random_state=0, batch_size=1).fit(
        X[:, :2], Y
    )
    assert clf.dual_objective_ <= exact.primal_objective_ * (
        1 + 1e-9
    ) and clf.primal_objective_ >= exact.dual_objective_ * (1 - 1e-9)
    assert clf.duality_gap_ < 0.1


@pytest.mark.parametrize("n_landmarks", [None, 20])
def test_containers(n_landmarks):
    base = model(n_landmarks=n_landmarks).fit(X, Y).decision_function(T)
    names = list("abcd")
    frame = (
        model(n_landmarks=n_landmarks)
        .fit(pd.DataFrame(X, columns=names), Y)
        .decision_function(pd.DataFrame(T, columns=names))
    )
    sparse = model(n_landmarks=n_landmarks).fit(sp.csr_matrix(X), Y).decision_function(sp.csr_matrix(T))
    assert apart(frame, base) < 1e-9 and apart(sparse, base) < 1e-6


def parquet(folder, groups=13):
    path = folder / "rows.parquet"
    pq.write_table(
        pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "label": Y}), path, row_group_size=groups
    )
    return path


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("n_landmarks", [None, 20])
def test_rows_of_a_file(n_landmarks, shards, tmp_path):
    base = model(n_landmarks=n_landmarks).fit(X, Y).decision_function(T)
    clf = model(n_landmarks=n_landmarks, ray_params=RayParams(num_shards=shards)).fit(
        parquet(tmp_path), "label"
    )
    assert apart(clf.decision_function(pa.table({f"x{j}": T[:, j] for j in range(4)})), base) < 1e-9


def test_windows_of_a_file(tmp_path, monkeypatch):
    """Rows are read window by window, whatever the shards and the groups of the file are."""
    monkeypatch.setattr("raymkl.models.stochastic.estimator.WINDOW_ROWS", 20)
    monkeypatch.setattr(landmarks, "FEATURE_BYTES", 8 * M * 20 * 7)
    monkeypatch.setattr(landmarks, "SCORED_ROWS", 9)
    found = []
    for shards, groups in ((1, 61), (3, 61), (2, 7)):
        clf = model(n_landmarks=20, batch_size=4, ray_params=RayParams(num_shards=shards)).fit(
            parquet(tmp_path, groups), "label"
        )
        found.append((clf.duality_gap_, clf.landmark_coef_))
    for gap, coef in found[1:]:
        assert gap == pytest.approx(found[0][0], rel=1e-9)
        np.testing.assert_allclose(coef, found[0][1], rtol=1e-6, atol=1e-8)


def test_rows_that_keep_coming():
    clf = model(n_landmarks=20, batch_size=4)
    clf.partial_fit(X[:30], Y[:30], classes=[0, 1, 2])
    first = clf.landmark_coef_.copy()
    clf.partial_fit(X[30:], Y[30:])
    assert (
        clf.classes_.tolist() == [0, 1, 2]
        and np.array_equal(clf.landmarks_, np.unique(clf.landmarks_))
        and clf.landmarks_.max() < 30
    )
    assert not np.array_equal(first, clf.landmark_coef_) and clf.n_iter_ == 2 and np.isnan(clf.duality_gap_)
    # What it says is a lower bound is one, of the problem of all rows.
    Z = X[clf.landmarks_]
    cross, own = gram(BANK, X, Z), gram(BANK, Z)
    near = np.stack(
        [cross[..., m] @ np.linalg.pinv(own[..., m], rcond=1e-10) @ cross[..., m].T for m in range(M)],
        axis=-1,
    )
    best = model(kernels="precomputed", max_iter=60).fit((near + near.transpose(1, 0, 2)) / 2, Y)
    assert clf.dual_objective_ <= best.primal_objective_
    assert np.mean(clf.predict(X) == Y) > 0.55
    fitted = model(n_landmarks=20, max_iter=10, C=0.01).fit(X, Y)
    before = fitted.decision_function(T)
    fitted.partial_fit(*three_classes(20, 3))
    assert np.mean(fitted.predict(X) == Y) > 0.55 and not np.array_equal(fitted.decision_function(T), before)


@pytest.mark.parametrize(
    "more, word",
    [
        ({"p": 1.0}, "p must"),
        ({"p": 3}, "p must"),
        ({"beta": -1.0}, "beta"),
        ({"beta": float("nan")}, "beta"),
        ({"kernel_costs": "head"}, "kernel_costs"),
        ({"kernel_costs": [1.0]}, "kernel_costs"),
        ({"kernel_costs": [-1.0] * M}, "kernel_costs"),
        ({"kernel_costs": [np.nan] * M}, "kernel_costs"),
        ({"n_landmarks": 0}, "n_landmarks"),
        ({"n_landmarks": N + 1}, "n_landmarks"),
        ({"n_landmarks": 2.5}, "n_landmarks"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": 0}, "tol"),
        ({"C": -1}, "C must"),
        ({"normalize": "other"}, "normalize"),
        ({"engine": "gpu"}, "engine"),
    ],
)
def test_bad_parameters(more, word):
    with pytest.raises(ValueError, match=word):
        model(**more).fit(X, Y)


def test_other_bad_input():
    with pytest.raises(ValueError, match="n_landmarks"):
        model(kernels="precomputed", n_landmarks=3).fit(GRAM, Y)
    with pytest.raises(ValueError, match="class"):
        model().fit(X, np.zeros(N))
    with pytest.raises(ValueError, match="kernel 1 has no tail"):
        model(kernels=[*rbf([1.0]), Linear()], normalize="tail").fit(X[:, :2], Y)
    with pytest.raises(ValueError, match="classes"):
        model(n_landmarks=5).partial_fit(X, Y)
    with pytest.raises(ValueError, match="not among the classes"):
        model(n_landmarks=5).partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(AttributeError, match="partial_fit"):
        model().partial_fit(X, Y, classes=[0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not hasattr(model(), "predict_proba")
