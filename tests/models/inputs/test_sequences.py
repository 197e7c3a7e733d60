"""Models over sequences: the same answers from every container and engine, and equal to those from the kernel
matrices.
"""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import raymkl
from raymkl import MKLClassifier, RayParams
from raymkl.datasets import make_motif_sequences
from raymkl.kernels import RBF, Linear, Spectrum, WeightedDegree
from tests.reference import apart, dual_optimum, gram, normalised

BANK = [
    *(WeightedDegree(d) for d in (1, 2, 3, 5, 9)),
    WeightedDegree(4, shift=2),
    WeightedDegree(2, shift=2),
    Spectrum(2),
    Spectrum(6),
]


def problem(n=90, length=40, seed=0, unknown=0.0):
    sequences, labels = make_motif_sequences(n, length, noise=0.3, flip=0.05, random_state=seed)
    rng = np.random.default_rng(seed)
    if unknown:
        sequences = [
            "".join("N" if rng.random() < unknown else letter for letter in sequence)
            for sequence in sequences
        ]
    return sequences, labels


def fitted(X, y, kernels=BANK, **more):
    return MKLClassifier(
        **{"kernels": kernels, "normalize": "spherical", "engine": "local", "tol": 1e-5, **more}
    ).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["spherical", "multiplicative", None])
@pytest.mark.parametrize("unknown", [0.0, 0.05], ids=["known letters", "unknown letters"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_on_strings_is_training_on_their_matrices(normalize, unknown, dtype):
    """With unknown letters every example has its own gates, without them gates are factors: both must give
    the optimum.
    """
    X, y = problem(44, unknown=unknown)
    K = gram(BANK, X)
    K = K if normalize is None else normalised(normalize, K)[0]
    tol = 1e-4 if dtype == "float32" else 1e-6
    clf = fitted(X, y, normalize=normalize, tol=tol, dtype=dtype, C=0.5)
    best = dual_optimum(K, y, np.full(len(y), 0.5), clf.p)
    assert clf.duality_gap_ <= tol
    assert abs(clf.dual_objective_ - best) <= 2 * tol * abs(best)


@pytest.mark.parametrize("unknown", [0.0, 0.05])
def test_decision_values_follow_from_the_matrices(unknown):
    X, y = problem(120, unknown=unknown)
    X, y, Z = X[:80], y[:80], X[80:]
    clf = fitted(X, y)
    _, K = normalised(
        "spherical", gram(BANK, X), gram(BANK, Z, X), np.stack([kernel.diag(Z) for kernel in BANK], axis=1)
    )
    want = K[:, clf.support_] @ clf.kernel_weights_ @ clf.dual_coef_[0] + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(Z), want, rtol=1e-9, atol=1e-9)
    one = np.concatenate([clf.decision_function([z]) for z in Z[:3]])
    np.testing.assert_allclose(one, want[:3], rtol=1e-9, atol=1e-9)


def test_motifs_are_learned():
    X, y = make_motif_sequences(400, 40, noise=0.05, random_state=3)
    assert fitted(X[:200], y[:200], tol=1e-3).score(X[200:], y[200:]) > 0.9


def test_all_containers_agree():
    X, y = problem()
    plain = fitted(X, y).decision_function(X)
    views = [type(kernel)(**{**kernel.get_params(), "view": "sequence"}) for kernel in BANK]
    frame = pd.DataFrame({"sequence": X})
    for Z in (
        np.array(X),
        np.array(X, object),
        pd.Series(X),
        pa.array(X),
        pa.chunked_array([X[:30], X[30:]]),
        [x.encode() for x in X],
    ):
        np.testing.assert_array_equal(fitted(Z, y).decision_function(Z), plain)
    for Z in (frame, pa.Table.from_pandas(frame), {"sequence": X}, {"sequence": pa.array(X)}):
        np.testing.assert_array_equal(fitted(Z, y, views).decision_function(Z), plain)


def test_sequences_beside_vectors():
    X, y = problem()
    rng = np.random.default_rng(0)
    table = {"seq": X, "x": rng.normal(size=(len(y), 3)) + y[:, None]}
    bank = [
        Spectrum(3, view="seq"),
        WeightedDegree(3, view="seq"),
        RBF(0.5, view="x"),
        Spectrum(2, view="seq") * RBF(0.1, view="x"),
    ]
    clf = fitted(table, y, bank)
    K = normalised("spherical", gram(bank, table))[0]
    best = dual_optimum(K, y, np.ones(len(y)), clf.p)
    assert abs(clf.dual_objective_ - best) <= 1e-4 * abs(best)


def test_products_of_string_kernels_train():
    X, y = problem(60)
    bank = [
        WeightedDegree(3) * WeightedDegree(3),
        WeightedDegree(3),
        WeightedDegree(2),
        Spectrum(2) * Spectrum(2),
        Spectrum(2),
    ]
    clf = fitted(X, y, bank, dtype="float32", tol=1e-4)
    best = dual_optimum(normalised("spherical", gram(bank, X))[0], y, np.ones(len(y)), clf.p)
    assert abs(clf.dual_objective_ - best) <= 3e-4 * abs(best)


def test_sequences_of_any_length_with_spectra():
    X, y = problem(80)
    rng = np.random.default_rng(1)
    X = [x[: rng.integers(20, 40)] for x in X]
    X[7] = "ACGT" * 3000  # so long that padding all others would be a waste
    bank = [Spectrum(k) for k in (1, 3, 12)]
    clf = fitted(X, y, bank)
    K = normalised("spherical", gram(bank, X))[0]
    best = dual_optimum(K, y, np.ones(len(y)), clf.p)
    assert abs(clf.dual_objective_ - best) <= 1e-4 * abs(best)
    assert np.isfinite(clf.decision_function(["ACG", "T" * 50_000])).all()


@pytest.mark.slow
def test_working_sets_smaller_than_the_data_and_evicted_columns(monkeypatch):
    """Blocks are put together from earlier ones, and columns that left the cache come back."""
    import raymkl.engine.plan as plan

    X, y = problem(700, seed=5)
    want = fitted(X, y, tol=1e-4, dtype="float32")
    monkeypatch.setattr(plan, "STRING_WORKING_SET", 96)
    small = fitted(
        X, y, tol=1e-4, dtype="float32", ray_params=RayParams(num_shards=3, memory_per_shard=3_000_000)
    )
    assert small.history_[-1]["cache_capacity"] < 700
    assert abs(small.dual_objective_ - want.dual_objective_) <= 2e-4 * want.dual_objective_
    assert apart(small.decision_function(X), want.decision_function(X)) < 0.05


def test_several_classes():
    X, y = problem(150)
    y = y + (np.arange(150) % 3 == 0)
    clf = fitted(X, y, tol=1e-3)
    assert clf.decision_function(X).shape == (150, 4)
    assert (clf.duality_gap_ <= 1e-3).all()


@pytest.mark.parametrize("ragged", [False, True])
def test_save_and_load(tmp_path, ragged):
    X, y = problem()
    X = [x[: len(x) - (i % 7) * 3 * ragged] for i, x in enumerate(X)]
    X[0] += "ACGT" * (2000 * ragged)
    clf = fitted(X, y, [Spectrum(3, alphabet="ACGT"), Spectrum(2)] if ragged else BANK)
    clf.save(tmp_path / "model")
    again = raymkl.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    assert again.kernels_ == clf.kernels_
    assert clone(clf).fit(X, y).n_iter_ == clf.n_iter_


def test_refit_forgets_the_number_of_features():
    X, y = problem(40)
    clf = MKLClassifier(kernels=[Spectrum(2, view="s")], engine="local").fit(pd.DataFrame({"s": X}), y)
    assert clf.n_features_in_ == 1
    with pytest.raises(ValueError, match="plain list"):
        clf.decision_function(X)
    clf.set_params(kernels=[Spectrum(2)]).fit(X, y)
    assert not hasattr(clf, "n_features_in_")


@pytest.mark.parametrize(
    ("kernels", "X", "word"),
    [
        ([WeightedDegree(3)], ["ACGT", "ACG", "ACGA", "TCGA"], "length"),
        ([WeightedDegree(9)], ["ACGT", "ACGG", "ACGA", "TCGA"], "degree"),
        ([Spectrum(3)], np.ones((4, 3)), "string"),
        ([Spectrum(3)], ["ACGT", "", "ACGA", "TCGA"], "row 1"),
        ([Linear()], ["ACGT", "ACGG", "ACGA", "TCGA"], "strings"),
        ([Linear(), Spectrum(2)], ["ACGT", "ACGG", "ACGA", "TCGA"], "not numbers"),
        ([Spectrum(2), Linear()], ["ACGT", "ACGG", "ACGA", "TCGA"], "strings"),
        ([Spectrum(2, view="a")], pd.DataFrame({"b": ["ACGT", "ACGG", "ACGA", "TCGA"]}), "'a'"),
    ],
)
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_errors_come_before_any_work(kernels, X, word, engine):
    with pytest.raises(ValueError, match=word):
        MKLClassifier(kernels=kernels, engine=engine).fit(X, [1, -1, 1, -1])


def test_new_sequences_must_have_the_length_of_the_training():
    X, y = problem(40)
    clf = fitted(X, y, [WeightedDegree(3)])
    with pytest.raises(ValueError, match="length"):
        clf.decision_function([x[:-1] for x in X])


def test_ray_gives_the_model_of_the_local_engine(ray_session):
    X, y = problem(160, unknown=0.01)
    X = {"seq": pa.array(X), "other": [x[: 10 + i % 20] for i, x in enumerate(X)]}
    bank = [type(kernel)(**{**kernel.get_params(), "view": "seq"}) for kernel in BANK] + [
        Spectrum(3, view="other")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        local = fitted(X, y, bank, ray_params=RayParams(num_shards=2))
        remote = fitted(X, y, bank, engine=ray_session)
    np.testing.assert_allclose(remote.kernel_weights_, local.kernel_weights_, atol=1e-6)
    assert apart(remote.decision_function(X), local.decision_function(X)) < 1e-5
