"""Contributions of positions and piece lengths: against loops written from the definitions, and against the
model's contributions.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raymkl
from raymkl import (
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLRegressor,
    StochasticMKLClassifier,
    diagnostics,
)
from raymkl.datasets import make_motif_sequences
from raymkl.diagnostics import positional_importance
from raymkl.kernels import RBF, Linear, Spectrum, WeightedDegree

BANK = [
    WeightedDegree(1),
    WeightedDegree(5),
    WeightedDegree(3, shift=2),
    Spectrum(2),
    Spectrum(4),
    WeightedDegree(2, shift=2),
]


def problem(n=60, length=24, seed=0, unknown=0.03):
    X, y = make_motif_sequences(n, length, motifs=["GATTACA"], noise=0.2, flip=0.05, random_state=seed)
    rng = np.random.default_rng(seed)
    X = ["".join("N" if rng.random() < unknown else letter for letter in x) for x in X]
    X[1] = X[1].lower()
    return X, y


def fitted(X, y, kernels=BANK, model=MKLClassifier, **more):
    return model(
        **{"kernels": kernels, "normalize": "spherical", "engine": "local", "tol": 1e-3, **more}
    ).fit(X, y)


def same(x, z, i, j, d):
    x, z = x[i : i + d].upper(), z[j : j + d].upper()
    return len(x) == len(z) == d and x == z and set(x) <= set("ACGT")


def naive(kernel, x, z, length):
    """(longest piece, length): what one pair of sequences brings to each position of x, straight from the
    definition of the kernel.
    """
    if isinstance(kernel, Spectrum):
        out = np.zeros((kernel.k, length))
        for i in range(len(x)):
            out[kernel.k - 1, i] = sum(same(x, z, i, j, kernel.k) for j in range(len(z)))
        return out
    D = kernel.degree
    out = np.zeros((D, length))
    for d in range(1, D + 1):
        beta = 2 * (D - d + 1) / (D * (D + 1))
        for i in range(length - d + 1):
            for s in range(kernel.shift + 1):
                if i + s + d <= length:
                    out[d - 1, i + s] += beta / (2 * (s + 1)) * same(x, z, i + s, i, d)
                    out[d - 1, i] += beta / (2 * (s + 1)) * same(x, z, i, i + s, d)
    return out


@pytest.mark.parametrize("normalize", [None, "spherical", "multiplicative"])
def test_values_are_those_of_naive_loops(normalize):
    X, y = problem(30)
    clf = fitted(X, y, normalize=normalize)
    Z = X[:4]
    support = [X[j] for j in clf.support_]
    found = positional_importance(clf, Z)
    assert found.kernels == list(range(len(BANK))) and found.views == [None] * len(BANK)
    parts = clf.contributions(Z)
    for m, kernel in enumerate(BANK):
        gate = np.ones(len(Z)) if normalize != "spherical" else 1 / np.sqrt(kernel.diag(Z))
        own = np.ones(len(support)) if normalize != "spherical" else 1 / np.sqrt(kernel.diag(support))
        want = np.stack(
            [
                sum(
                    a * g * naive(kernel, z, x, 24)
                    for a, g, x in zip(clf.dual_coef_[0], own, support, strict=True)
                )
                for z in Z
            ]
        )
        want *= gate[:, None, None]
        if normalize == "multiplicative":  # one factor, learned from the training rows
            K = kernel(X)
            want /= np.diag(K).mean() - K.mean()
        np.testing.assert_allclose(found.values[m], clf.kernel_weights_[m] * want, atol=1e-9)
        np.testing.assert_allclose(found.values[m].sum(axis=(1, 2)), parts[:, m], atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.integers(5, 80),
    degree=st.integers(1, 5),
    shift=st.integers(0, 6),
    k=st.integers(1, 6),
    unknown=st.sampled_from([0.0, 0.2, 0.9]),
)
def test_sums_are_contributions(seed, length, degree, shift, k, unknown):
    rng = np.random.default_rng(seed)
    letters, odds = list("ACGTN"), [(1 - unknown) / 4] * 4 + [unknown]
    X = ["".join(rng.choice(letters, length, p=odds)) for _ in range(25)]
    y = np.where(np.arange(25) % 2 == 0, 1, -1)
    clf = fitted(
        X[:20],
        y[:20],
        [WeightedDegree(degree, shift=shift), Spectrum(k)],
        normalize=None,
        tol=1e-2,
        max_iter=50,
    )
    sums = np.stack([array.sum(axis=(1, 2)) for array in positional_importance(clf, X).values], axis=1)
    want = clf.contributions(X)
    np.testing.assert_allclose(sums, want, atol=1e-10 * max(1.0, np.abs(clf.dual_coef_).sum() * length))


def three_classes(y):
    return np.where(np.arange(len(y)) % 3 == 0, 2, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda X, y: fitted(X, three_classes(y)),
        lambda X, y: fitted(X, y.astype(float), model=MKLRegressor),
        lambda X, y: fitted(
            X, y, model=ConvexLocalizedMKLClassifier, n_clusters=2, evenness=0.7, random_state=0
        ),
        lambda X, y: fitted(
            X,
            three_classes(y),
            model=ConvexLocalizedMKLClassifier,
            n_clusters=2,
            evenness="hard",
            random_state=0,
        ),
        lambda X, y: fitted(
            X, y, BANK[:3], LocalizedMKLClassifier, gating="kernel", n_init=1, max_iter=3, random_state=0
        ),
        lambda X, y: fitted(
            X,
            three_classes(y),
            BANK[:3],
            LocalizedMKLClassifier,
            gating="kernel",
            n_init=1,
            max_iter=2,
            random_state=0,
        ),
    ],
    ids=[
        "three classes",
        "regression",
        "clusters",
        "hard clusters, three classes",
        "gates",
        "gates, three classes",
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_model_is_explained(make):
    X, y = problem(50)
    model = make(X, y)
    found = positional_importance(model, X[:20])
    sums = np.stack([array.sum(axis=(-1, -2)) for array in found.values], axis=-1)
    np.testing.assert_allclose(sums, model.contributions(X[:20]), atol=1e-9)


def test_averages_spread_and_totals():
    X, y = problem(90)  # enough examples for two threads
    clf = fitted(X, y)
    each, mean = positional_importance(clf, X), positional_importance(clf, X, average=True)
    for one, other in zip(each.values, mean.values, strict=True):
        np.testing.assert_allclose(one.mean(axis=0), other, atol=1e-12)
    total = each.total()
    assert total.shape == (90, 5, 24)
    np.testing.assert_allclose(total.sum(axis=(1, 2)) + clf.intercept_, clf.decision_function(X), atol=1e-9)
    spread = positional_importance(clf, X, spread=True).total()
    np.testing.assert_allclose(spread.sum(axis=2), total.sum(axis=2), atol=1e-9)
    want = np.zeros(24)
    for i in range(24 - 2):  # pieces of three letters
        want[i : i + 3] += total[0, 2, i] / 3
    np.testing.assert_allclose(spread[0, 2], want, atol=1e-10)
    np.testing.assert_array_equal(
        positional_importance(clf, X[:3], only=[4, 1]).values[1], positional_importance(clf, X[:3]).values[1]
    )
    with_one = np.concatenate([positional_importance(clf, [x]).total() for x in X[:3]])
    np.testing.assert_allclose(with_one, total[:3], atol=1e-12)


def test_sums_and_multiples_of_string_kernels():
    X, y = problem()
    bank = [
        2.5 * WeightedDegree(3),
        WeightedDegree(2) + 0.5 * (Spectrum(3) + WeightedDegree(4, shift=1)),
        Spectrum(2) * Spectrum(3),
    ]
    clf = fitted(X, y, bank)
    found = positional_importance(clf, X)
    assert found.kernels == [0, 1]  # a product has no part that belongs to one position
    for m, array in zip(found.kernels, found.values, strict=True):
        np.testing.assert_allclose(array.sum(axis=(1, 2)), clf.contributions(X)[:, m], atol=1e-9)


def test_views_and_other_kernels():
    X, y = problem()
    rng = np.random.default_rng(0)
    table = {
        "left": [x[:10] for x in X],
        "right": [x[10:] for x in X],
        "x": rng.normal(size=(len(y), 2)) + y[:, None],
    }
    bank = [
        Linear(view="x"),
        WeightedDegree(3, view="left"),
        Spectrum(2, view="right"),
        RBF(1.0, view="x"),
        Spectrum(3, view="left"),
    ]
    clf = fitted(table, y, bank)
    found = positional_importance(clf, table)
    assert found.kernels == [1, 2, 4] and found.views == ["left", "right", "left"]
    assert found.total("left").shape == (60, 3, 10) and found.total("right").shape == (60, 2, 14)
    parts = clf.contributions(table)
    np.testing.assert_allclose(found.total("left").sum(axis=(1, 2)), parts[:, 1] + parts[:, 4], atol=1e-9)
    np.testing.assert_allclose(found.total("right").sum(axis=(1, 2)), parts[:, 2], atol=1e-9)
    with pytest.raises(ValueError, match="several views, 'left', 'right'"):
        found.total()
    with pytest.raises(ValueError, match="'x' is not read"):
        found.total("x")


def test_sequences_of_different_lengths_and_containers(tmp_path):
    rng = np.random.default_rng(1)
    X = [
        "".join(rng.choice(list("ACGT"), rng.integers(2, 200 if i == 7 else 12))) for i in range(40)
    ]  # so different that they are sparse
    y = np.where(np.arange(40) % 2 == 0, 1, -1)
    clf = fitted(pd.DataFrame({"s": X}), y, [Spectrum(3, view="s")], normalize=None)
    clf.save(tmp_path / "model")
    again = raymkl.load(tmp_path / "model")
    frame = pd.DataFrame({"s": X[:20]})
    found = positional_importance(again, frame).total()
    np.testing.assert_allclose(found.sum(axis=(1, 2)), clf.contributions(frame)[:, 0], atol=1e-9)
    np.testing.assert_allclose(
        positional_importance(clf, frame, average=True).total(), found.mean(axis=0), atol=1e-12
    )
    for x, row in zip(X[:20], found, strict=True):
        assert not row[2, max(len(x) - 2, 0) :].any()  # no piece starts beyond the end


def test_a_planted_motif_is_seen():
    X, y = make_motif_sequences(300, 30, motifs=["GATTACA"], noise=0.0, jitter=0, random_state=0)
    clf = fitted(X, y, [WeightedDegree(4), Spectrum(3)])
    picture = positional_importance(
        clf, [x for x, label in zip(X, y, strict=True) if label == 1], average=True, spread=True
    )
    profile = picture.total().sum(axis=0)
    assert set(np.argsort(-profile)[:5]) <= set(range(11, 18))  # GATTACA stands at 11 to 17
    assert profile[11:18].sum() > 5 * np.abs(profile[:8]).sum()


def test_bad_arguments():
    X, y = problem()
    clf = fitted(X, y, [WeightedDegree(3), Spectrum(2) * Spectrum(3)])
    for wrong, message in (
        ([5], "only must be numbers of kernels from 0 to 1"),
        ([1], "only names kernel 1"),
        ("all", "only must be numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            positional_importance(clf, X, only=wrong)
    with pytest.raises(TypeError, match="average must be True or False"):
        positional_importance(clf, X, average=3)
    with pytest.raises(TypeError, match="model must be a fitted model"):
        positional_importance([Spectrum(2)], X)
    with pytest.raises(ValueError, match="length 10 and the model was fitted to length 24"):
        positional_importance(clf, [x[:10] for x in X])
    vectors = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="no weighted-degree or spectrum kernel"):
        diagnostics.positional_importance(fitted(vectors, y[:20], [RBF(1.0)]), vectors)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_landmarks", [None, 20])
def test_stochastic_models(n_landmarks):
    """Landmarks have coefficients for every kernel, and two classes one decision value."""
    X, y = problem()
    for labels in (y, y + (np.arange(len(y)) % 2)):
        clf = fitted(
            X, labels, BANK, StochasticMKLClassifier, max_iter=3, n_landmarks=n_landmarks, random_state=0
        )
        parts = clf.contributions(X)
        for m, values in enumerate(positional_importance(clf, X).values):
            np.testing.assert_allclose(values.sum(axis=(-2, -1)), parts[..., m], atol=1e-9)
