"""Weights over half-samples against fits of their own."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from raymkl import MKLClassifier, MKLRegressor, Views, evaluate, kernels
from raymkl.evaluate.stability import half_samples
from tests.checks import fails
from tests.reference import noisy_problem

X, Y = noisy_problem(61, seed=8)
V = Views({"a": X[:, :2], "b": X[:, 2:]})
BANK = [
    kernels.RBF(0.1, view="a"),
    kernels.RBF(0.5, view="b"),
    kernels.RBF(0.2, view="a") * kernels.RBF(0.2, view="b"),
]


def model(cls=MKLClassifier, **more):
    return cls(**{"kernels": BANK, "engine": "local", "tol": 1e-6, **more})


@settings(max_examples=50)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=5), st.integers(0, 2**31 - 1))
def test_halves(counts, seed):
    y = np.repeat(np.arange(len(counts)), counts)
    n = len(y)
    if n < 4:
        return
    masks = half_samples(y, 6, True, np.random.RandomState(seed))
    assert masks.shape == (6, n) and not np.any(masks[::2] & masks[1::2]) and np.all(masks[::2] | masks[1::2])
    assert np.all(np.abs(masks.sum(axis=1) - n / 2) <= 0.5)
    for label, count in enumerate(counts):
        assert np.all(np.abs(masks[:, y == label].sum(axis=1) - count / 2) <= 0.5)


@pytest.mark.parametrize("more", [{}, {"normalize": "multiplicative"}, {"p": 1.0}, {"p": 2.0}], ids=str)
def test_weights_of_a_half_are_those_of_its_own_fit(more):
    found = evaluate.stability(model(**more), V, Y, halves=6, random_state=1)
    for mask, weights in zip(found.halves, found.weights, strict=True):
        np.testing.assert_allclose(weights, model(**more).fit(V[mask], Y[mask]).kernel_weights_, atol=1e-3)
    np.testing.assert_allclose(found.weight, model(**more).fit(V, Y).kernel_weights_, atol=1e-3)


def test_the_table():
    found = evaluate.stability(model(), V, Y, halves=8, coverage=0.5, threshold=0.4, random_state=0)
    table = found.table()
    assert table["view"].tolist() == ["a", "b", "a, b"] and table["kernel"].tolist() == [
        repr(kernel) for kernel in BANK
    ]
    np.testing.assert_allclose(table[["low", "high"]], np.quantile(found.weights, [0.25, 0.75], axis=0).T)
    np.testing.assert_allclose(
        table["selected"], (found.weights > 0.4 * found.weights.max(1, keepdims=True)).mean(0)
    )
    np.testing.assert_allclose(table["mean"], found.weights.mean(0))


@pytest.mark.parametrize("shared", [False, True])
def test_several_classes(shared):
    iris, bank = load_iris(), kernels.rbf([0.1, 1.0, 0.1])
    estimator = model(kernels=bank, shared_weights=shared, tol=1e-4)
    found = evaluate.stability(estimator, iris.data, iris.target, halves=2, random_state=0)
    assert found.weights.shape == ((2, 3) if shared else (2, 3, 3))
    table = found.table()
    assert len(table) == (3 if shared else 9) and ("class" in table.columns) != shared
    assert table["kernel"].iloc[2] == "RBF(gamma=0.1) [2]"  # each name once
    assert np.array_equal(
        evaluate.stability(estimator, iris.data, iris.target, halves=2, random_state=0).weights, found.weights
    )


def test_regression_and_pipelines():
    reg = model(MKLRegressor, kernels=kernels.rbf([0.1, 1.0]))
    found = evaluate.stability(reg, X, X[:, 0], halves=2, random_state=0)
    mask = found.halves[1]
    np.testing.assert_allclose(found.weights[1], reg.fit(X[mask], X[mask, 0]).kernel_weights_, atol=1e-3)
    pipe = make_pipeline(StandardScaler(), model(kernels=kernels.rbf([0.1, 1.0])))
    found = evaluate.stability(pipe, X, Y, halves=2, random_state=0)
    mask = found.halves[0]
    np.testing.assert_allclose(found.weights[0], pipe.fit(X[mask], Y[mask])[-1].kernel_weights_)


def test_latex_file_and_picture(tmp_path):
    found = evaluate.stability(model(), V, Y, halves=2, random_state=0)
    assert r"\begin{tabular}{llrrrrr}" in found.to_latex()
    found.to_csv(tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv", comment="#")) == 3
    assert type(found.plot()).__name__ == "StabilityDisplay"


def test_errors():
    stability = evaluate.stability
    fails(["halves"], lambda: stability(model(), V, Y, halves=1))
    fails(["halves", "even"], lambda: stability(model(), V, Y, halves=5))
    fails(["coverage"], lambda: stability(model(), V, Y, coverage=1.0))
    fails(["threshold"], lambda: stability(model(), V, Y, threshold=-0.1))
    fails(["no weights"], lambda: stability(LogisticRegression(), X, Y))
    fails(["class 7", "1 row"], lambda: stability(model(), V, np.r_[Y[:-1], 7]))
