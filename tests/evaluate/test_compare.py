"""Comparisons against scikit-learn's nested cross-validation, which fits everything anew."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, scale

from raymkl import MKLClassifier, MKLRegressor, Views, evaluate, kernels
from tests.checks import fails

X, Y3 = load_wine(return_X_y=True)
X, KEEP = scale(X), Y3 < 2
VIEWS, Y = {"acids": X[KEEP, :6], "rest": X[KEEP, 6:]}, Y3[KEEP]
V = Views(VIEWS)
BANK = [
    kernels.RBF(0.05, view="acids"),
    kernels.Linear(view="acids"),
    kernels.RBF(0.02, view="rest"),
    kernels.RBF(1.0, view="rest"),
]
HALF = {
    **VIEWS,
    "rest": VIEWS["rest"] + np.random.default_rng(0).normal(0, 3, VIEWS["rest"].shape),
}  # not too easy
W = Views(HALF)
GRID = {"C": [0.1, 1.0, 10.0], "p": [1.1, 2.0]}
OUTER, INNER = StratifiedKFold(4, shuffle=True, random_state=1), StratifiedKFold(3)


def model(cls=MKLClassifier, **more):
    return cls(**{"kernels": BANK, "engine": "local", "tol": 1e-6, **more})


def nested(estimator, grid, scoring="roc_auc"):
    return cross_val_score(
        GridSearchCV(estimator, grid, cv=INNER, scoring=scoring), W, Y, cv=OUTER, scoring=scoring
    )


@pytest.fixture(scope="module")
def study():
    models = {"mkl": model(), "average": "average", "single": "best_single", "acids": "view:acids"}
    return evaluate.compare(
        models, W, Y, outer=OUTER, inner=INNER, param_grid=GRID, scoring="roc_auc", baseline="average"
    )


@pytest.mark.parametrize(
    "name, estimator, grid",
    [
        ("mkl", model(), GRID),
        ("average", model(p=2.0), {"C": GRID["C"]}),
        ("single", model(), {"C": GRID["C"], "kernels": [[kernel] for kernel in BANK]}),
        ("acids", model(kernels=BANK[:2]), GRID),
    ],
)
def test_scores_are_those_of_nested_cross_validation(study, name, estimator, grid):
    np.testing.assert_allclose(study.by_model()[name], nested(estimator, grid), atol=1e-9)


def test_the_table_of_scores_is_tidy(study):
    scores = study.scores
    assert list(scores.columns) == ["model", "metric", "split", "score", "params", "n_train", "n_test"]
    assert len(scores) == 16 and (scores["n_train"] + scores["n_test"]).eq(len(Y)).all()
    assert all(set(params) == {"C", "p"} for params in scores.loc[scores["model"] == "mkl", "params"])
    assert all(
        set(params) == {"C", "kernels"} for params in scores.loc[scores["model"] == "single", "params"]
    )


def test_the_summary(study):
    table, scores = study.table(), study.by_model()
    ratio = (study.scores["n_test"] / study.scores["n_train"]).mean()
    for name, own in scores.items():
        assert table.loc[name, "mean"] == pytest.approx(own.mean()) and table.loc[
            name, "std"
        ] == pytest.approx(own.std(ddof=1))
        if name != "average":
            assert table.loc[name, "difference"] == pytest.approx((own - scores["average"]).mean())
            assert table.loc[name, "p_value"] == pytest.approx(
                evaluate.corrected_t_test(own - scores["average"], ratio)
            )
    assert np.isnan(table.loc["average", "p_value"])
    np.testing.assert_allclose(table["p_holm"], evaluate.holm(table["p_value"]))
    assert study.table(baseline="mkl").loc["average", "difference"] == pytest.approx(
        -table.loc["mkl", "difference"]
    )


def test_latex_and_csv(study, tmp_path):
    text = study.to_latex()
    best = study.table()["mean"].idxmax()
    assert [line for line in text.splitlines() if r"\textbf" in line and line.startswith(best)]
    study.to_csv(tmp_path / "a.csv")
    head = [line for line in (tmp_path / "a.csv").read_text().splitlines() if line.startswith("#")]
    assert any("worst relative duality gap" in line for line in head) and any(
        "scikit-learn" in line for line in head
    )
    back = pd.read_csv(tmp_path / "a.csv", comment="#")
    np.testing.assert_allclose(back["mean"], study.table()["mean"])
    assert back["model"].tolist() == study.models


def test_names_and_marks_in_latex():
    from raymkl.evaluate.compare import Comparison

    scores = pd.DataFrame(
        [
            {
                "model": name,
                "metric": "m",
                "split": split,
                "score": base + split % 2 / 1000,
                "params": {},
                "n_train": 90,
                "n_test": 10,
            }
            for name, base in (("a_b", 0.5), ("c&d", 0.9))
            for split in range(10)
        ]
    )
    text = Comparison(scores, ["a_b", "c&d"], ["m"], "a_b", {}).to_latex()
    assert r"a\_b" in text and r"c\&d" in text and "$^{***}$" in text


def test_groups_go_to_both_splitters():
    groups = np.random.default_rng(0).integers(0, 9, len(Y))
    found = evaluate.compare(
        {"a": model()},
        W,
        Y,
        outer=GroupKFold(3),
        inner=GroupKFold(3),
        param_grid={"C": [0.1, 10.0]},
        groups=groups,
    )
    wanted = []
    for train, test in GroupKFold(3).split(Y, Y, groups):
        inner = list(GroupKFold(3).split(train, Y[train], groups[train]))
        wanted.append(
            GridSearchCV(model(), {"C": [0.1, 10.0]}, cv=inner)
            .fit(W[train], Y[train])
            .score(W[test], Y[test])
        )
    np.testing.assert_allclose(found.by_model()["a"], wanted)


def test_several_scores_choose_for_themselves():
    scoring = {"auc": "roc_auc", "right": "accuracy"}
    found = evaluate.compare(
        {"a": model()}, HALF, Y, outer=OUTER, inner=INNER, param_grid={"C": [0.01, 1.0]}, scoring=scoring
    )
    for metric, name in scoring.items():
        np.testing.assert_allclose(
            found.by_model(metric)["a"], nested(model(), {"C": [0.01, 1.0]}, name), atol=1e-9
        )
    assert len(found.scores) == 8 and found._csv_table()["metric"].tolist() == ["auc", "right"]
    fails(["metric", "auc", "right"], lambda: found.table(metric="f1"))


def test_others_are_fitted_fold_by_fold_with_the_part_of_the_grid_that_they_know():
    flat = make_pipeline(
        FunctionTransformer(lambda Z: np.hstack([Z["acids"], Z["rest"]])),
        StandardScaler(),
        LogisticRegression(),
    )
    grid = {"C": [0.1, 1.0], "logisticregression__C": [0.001, 1.0]}
    found = evaluate.compare(
        {"mkl": model(), "logistic": flat}, W, Y, outer=OUTER, inner=INNER, param_grid=grid, scoring="roc_auc"
    )
    np.testing.assert_allclose(found.by_model()["mkl"], nested(model(), {"C": [0.1, 1.0]}), atol=1e-9)
    np.testing.assert_allclose(
        found.by_model()["logistic"], nested(flat, {"logisticregression__C": [0.001, 1.0]})
    )
    assert {tuple(p) for p in found.scores.loc[found.scores["model"] == "logistic", "params"]} == {
        ("logisticregression__C",)
    }


def test_words_from_a_pipeline_and_plain_cross_validation():
    pipe = make_pipeline(FunctionTransformer(lambda Z: Z), model())
    found = evaluate.compare(
        {"pipe": pipe, "average": "average", "single": "best_single", "heads": model()},
        W,
        Y,
        outer=OUTER,
        inner=INNER,
    )
    np.testing.assert_allclose(found.by_model()["pipe"], cross_val_score(model(), W, Y, cv=OUTER))
    np.testing.assert_allclose(found.by_model()["heads"], found.by_model()["pipe"])
    np.testing.assert_allclose(found.by_model()["average"], cross_val_score(model(p=2.0), W, Y, cv=OUTER))
    np.testing.assert_allclose(
        found.by_model()["single"], nested(model(), {"kernels": [[kernel] for kernel in BANK]}, None)
    )


def test_several_classes_regressors_and_a_grid_over_kernels():
    bank, iris = kernels.rbf([0.1, 1.0]), load_iris()
    clf = model(kernels=bank)
    found = evaluate.compare({"a": clf}, iris.data, iris.target, outer=KFold(3, shuffle=True, random_state=0))
    np.testing.assert_allclose(
        found.by_model()["a"],
        cross_val_score(clf, iris.data, iris.target, cv=KFold(3, shuffle=True, random_state=0)),
    )
    reg, grid = model(MKLRegressor, kernels=bank), {"C": [0.3, 3.0], "kernels": [bank, bank[:1]]}
    target = iris.data[:, 0]
    found = evaluate.compare({"a": reg}, iris.data[:, 1:], target, outer=KFold(3), inner=3, param_grid=grid)
    wanted = cross_val_score(GridSearchCV(reg, grid, cv=3), iris.data[:, 1:], target, cv=KFold(3))
    np.testing.assert_allclose(found.by_model()["a"], wanted, atol=1e-3)


def test_folds_that_draw_rows_twice_are_fitted_one_by_one():
    random = np.random.default_rng(0)
    splits = [(random.integers(0, len(Y), 80), np.arange(100, len(Y))) for _ in range(2)]
    found = evaluate.compare({"a": model()}, W, Y, outer=splits)
    wanted = [clone(model()).fit(W[train], Y[train]).score(W[test], Y[test]) for train, test in splits]
    np.testing.assert_allclose(found.by_model()["a"], wanted)


def test_nothing_held_out_is_seen():
    """A row that is poisoned changes no model of the splits that hold it out: decision values stay, to the
    bit.
    """
    bad = {name: view.copy() for name, view in HALF.items()}
    for view in bad.values():
        view[17] = view[17] * 40 + 5
    seen: dict = {}

    def scoring(est, Z, y):
        f = est.decision_function(Z)[Z.index != 17]
        seen.setdefault("now", []).append(f)
        return float(np.abs(f).sum())

    found = []
    for data in (HALF, bad):
        models = {"a": model(normalize="multiplicative"), "b": "best_single"}
        found.append(
            evaluate.compare(
                models,
                Views(data),
                Y,
                outer=OUTER,
                inner=INNER,
                param_grid={"C": [0.1, 1.0]},
                scoring=scoring,
            ).scores
        )
    inside = next(split for split, (_, test) in enumerate(OUTER.split(Y, Y)) if 17 in test)
    there = (found[0]["split"] == inside).to_numpy()
    np.testing.assert_allclose(found[0]["score"][there], found[1]["score"][there], rtol=1e-5)
    assert (found[0].loc[there, "params"] == found[1].loc[there, "params"]).all()
    assert np.abs(found[0]["score"] - found[1]["score"])[~there].max() > 1e-2


def test_errors_come_first():
    compare = evaluate.compare
    fails(["models"], lambda: compare({}, V, Y))
    fails(["models"], lambda: compare([model()], V, Y))
    fails(["median", "best_single"], lambda: compare({"a": model(), "b": "median"}, V, Y))
    fails(["estimator"], lambda: compare({"a": "average"}, V, Y))
    fails(["estimator"], lambda: compare({"a": LogisticRegression(), "b": "average"}, V, Y))
    fails(["middle", "acids", "rest"], lambda: compare({"a": model(), "b": "view:middle"}, V, Y))
    fails(["baseline", "'z'"], lambda: compare({"a": model()}, V, Y, baseline="z"))
    fails(["gamma"], lambda: compare({"a": model()}, V, Y, param_grid={"gamma": [1]}))
    fails(["C must"], lambda: compare({"a": model()}, V, Y, param_grid={"C": [-1.0]}))
    fails(["groups"], lambda: compare({"a": model()}, V, Y, groups=[1, 2]))
    fails(["lengths"], lambda: compare({"a": model()}, V, Y[:-1]))
    fails(["kernels=None"], lambda: compare({"a": model(kernels=None), "b": "best_single"}, V, Y))
    fails(["number"], lambda: compare({"a": model()}, V, Y, scoring=lambda *a: "good"))
    fails(["estimator"], lambda: compare({"a": 3}, V, Y))
    fails(["splits"], lambda: compare({"a": model()}, V, Y, outer=[]))
