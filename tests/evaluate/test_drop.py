"""Scores without views and kernels against smaller banks."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from raymkl import MKLClassifier, Views, evaluate, kernels
from tests.checks import fails
from tests.reference import noisy_problem

X, Y = noisy_problem(72, seed=9)
VIEWS = {"a": X[:, :1], "b": X[:, 1:2], "c": X[:, 2:]}
V = Views(VIEWS)
BANK = [
    kernels.RBF(0.1, view="a"),
    kernels.RBF(0.5, view="b"),
    kernels.RBF(0.2, view="a") * kernels.Linear(view="b"),
    kernels.Linear(view="c"),
]
CV = StratifiedKFold(3, shuffle=True, random_state=0)
WITHOUT = {"a": [1, 3], "b": [0, 3], "c": [0, 1, 2]}


def model(**more):
    return MKLClassifier(
        **{"kernels": BANK, "engine": "local", "tol": 1e-6, "normalize": "multiplicative", **more}
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_without_a_view(wrapped):
    estimator = make_pipeline(FunctionTransformer(lambda Z: Z), model()) if wrapped else model()
    found = evaluate.drop_views(estimator, V, Y, cv=CV, scoring="roc_auc")
    table = found.table().set_index("without")
    base = cross_val_score(model(), V, Y, cv=CV, scoring="roc_auc")
    assert table.index.tolist() == ["", "a", "b", "c"] and table.loc["", "mean"] == pytest.approx(
        base.mean(), abs=1e-9
    )
    for name, keep in WITHOUT.items():
        scores = cross_val_score(model(kernels=[BANK[m] for m in keep]), V, Y, cv=CV, scoring="roc_auc")
        assert table.loc[name, "mean"] == pytest.approx(scores.mean(), abs=1e-9)
        assert table.loc[name, "std"] == pytest.approx(scores.std(ddof=1), abs=1e-9)
        assert table.loc[name, "difference"] == pytest.approx((base - scores).mean(), abs=1e-9)
        assert table.loc[name, "p_value"] == pytest.approx(
            evaluate.corrected_t_test(base - scores, 0.5), nan_ok=True
        )
    assert np.isnan(table.loc["", "p_value"])


def test_without_a_kernel():
    table = evaluate.drop_kernels(model(), VIEWS, Y, cv=CV).table().set_index("without")
    for m, kernel in enumerate(BANK):
        scores = cross_val_score(model(kernels=[k for k in BANK if k is not kernel]), V, Y, cv=CV)
        assert table.loc[repr(kernel), "mean"] == pytest.approx(scores.mean()), m


def test_ready_made_matrices():
    K = np.stack([kernel(VIEWS) for kernel in BANK], axis=2)
    found = evaluate.drop_kernels(
        model(kernels="precomputed", normalize=None), K, Y, cv=CV, scoring="roc_auc"
    ).table()
    for m in range(4):
        rest = np.delete(K, m, axis=2)
        scores = cross_val_score(
            model(kernels="precomputed", normalize=None), rest, Y, cv=CV, scoring="roc_auc"
        )
        assert found["mean"].iloc[1 + m] == pytest.approx(scores.mean(), abs=1e-3)


def test_latex_file_and_picture(tmp_path):
    found = evaluate.drop_views(model(), V, Y, cv=2)
    assert r"\textbf" in found.to_latex()
    found.to_csv(tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv", comment="#")) == 4
    display = found.plot()
    assert type(display).__name__ == "DropDisplay" and len(display.ax_.get_yticklabels()) == 3


def test_errors():
    fails(["one view", "'a'"], lambda: evaluate.drop_views(model(kernels=BANK[:1]), V, Y))
    fails(["all kernels", "'a'"], lambda: evaluate.drop_views(model(kernels=[BANK[0], BANK[2]]), V, Y))
    fails(["one kernel"], lambda: evaluate.drop_kernels(model(kernels=BANK[:1]), V, Y))
    fails(["kernels=None"], lambda: evaluate.drop_kernels(model(kernels=None), X, Y))
    fails(["p must"], lambda: evaluate.drop_views(model(p=0.5), V, Y))
