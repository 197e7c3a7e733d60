"""Polars frames wherever pandas frames do: the same models, the same errors."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import cross_val_score

import raymkl
from raymkl import (
    ClusteredMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    diagnostics,
    kernels,
    plot,
    search,
)
from raymkl.data.tables.columns import Columns
from raymkl.models.table_model import Preparation

RNG = np.random.default_rng(3)
N = 40
A = RNG.normal(size=(N, 4))
Y = np.where(A[:, 0] > 0, "x", "z")
COLUMNS = {
    "u": A[:, 0],
    "v": A[:, 1].astype(np.float32),
    "w": (A[:, 2] * 3).astype(int),
    "flag": A[:, 3] > 0,
    "text": ["".join(RNG.choice(list("ACGT"), 10)) for _ in range(N)],
}
NUMBERS = ["u", "v", "w"]
BANK = [
    kernels.RBF(0.3, view=["u", "v"]),
    kernels.Linear(view="w"),
    kernels.Linear(view=3),
    kernels.RBF(0.1, view=slice(0, 3)),
    kernels.RBF(0.1, view=[True, True, False, False, False]),
    kernels.Spectrum(k=2, view="text"),
    kernels.Spectrum(k=3, view=4),
]
PANDAS, POLARS = pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS)


def local(bank=BANK, cls=MKLClassifier, **more):
    return cls(kernels=bank, engine="local", **more)


def rbf(cls=MKLClassifier, **more):
    return local(kernels.rbf([0.1, 1.0]), cls, **more)


USES = {
    "columns by name, number, range and mask": lambda Z: local().fit(Z, Y).decision_function(Z),
    "folds": lambda Z: cross_val_score(local(), Z, Y, cv=3),
    "heads": lambda Z: (
        search.MKLSearchCV(local(), {"C": [0.1, 1.0]}, cv=3).fit(Z, Y).cv_results_["mean_test_score"]
    ),
    "a bank from data": lambda Z: (
        MKLClassifier(engine="local").fit(Z[NUMBERS], Y).decision_function(Z[NUMBERS])
    ),
    "labels and weights": lambda Z: (
        rbf().fit(Z[NUMBERS], Z["text"] > "C", sample_weight=abs(Z["u"])).decision_function(Z[NUMBERS])
    ),
    "a column of strings": lambda Z: (
        local([kernels.Spectrum(k=2)]).fit(Z["text"], Y).decision_function(Z["text"])
    ),
    "frames in a dict": lambda Z: (
        local([kernels.RBF(0.3, view=("a", "u"))]).fit({"a": Z}, Y).decision_function({"a": Z})
    ),
    "kernels": lambda Z: np.stack([kernel(Z) for kernel in BANK]),
    "alignment": lambda Z: diagnostics.alignment(BANK, Z),
    "one class": lambda Z: rbf(MKLOneClass).fit(Z[NUMBERS]).decision_function(Z[NUMBERS]),
    "gates": lambda Z: (
        rbf(LocalizedMKLClassifier, gating_view=["u"], random_state=0, max_iter=2)
        .fit(Z[NUMBERS], Y)
        .predict(Z[NUMBERS])
    ),
    "clusters": lambda Z: (
        ClusteredMKLClassifier(engine="local", random_state=0).fit(Z[["u", "v"]], Y).membership(Z[["u", "v"]])
    ),
    "report": lambda Z: raymkl.report(local().fit(Z, Y), Z, Y).count("<svg"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore")
def test_polars_as_pandas(use):
    one, other = USES[use](PANDAS), USES[use](POLARS)
    assert np.array_equal(one, other) if np.asarray(one).dtype.kind in "OU" else np.allclose(one, other)


def test_names_of_columns_are_kept():
    model = rbf().fit(POLARS[NUMBERS], Y)
    assert model.feature_names_in_.tolist() == NUMBERS and model.n_features_in_ == 3
    assert np.array_equal(model.predict(POLARS[NUMBERS]), model.predict(PANDAS[NUMBERS]))


def test_columns_of_vectors():
    expected = local([kernels.RBF(0.3)]).fit(A, Y).decision_function(A)
    for frame in (pl.DataFrame({"e": A}), pl.DataFrame({"e": A.tolist()})):
        assert np.allclose(
            local([kernels.RBF(0.3, view="e")]).fit(frame, Y).decision_function(frame), expected
        )


def test_prepared_tables():
    preparation = Preparation.fit(
        Columns("t", {name: A[:, [i]] for i, name in enumerate("abcd")}), {None: list("abcd")}
    )
    tables = [kind({name: A[:, i] for i, name in enumerate("abcd")}) for kind in (pd.DataFrame, pl.DataFrame)]
    assert np.array_equal(*map(preparation.transform, tables))


def test_plot_of_clusters():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    model = ClusteredMKLClassifier(engine="local", random_state=0).fit(POLARS[["u", "v"]], Y)
    assert plot.ClustersDisplay.from_estimator(model, POLARS[["u", "v"]], Y).figure_ is not None


WRONG = {
    "other columns": lambda Z: rbf().fit(Z[NUMBERS], Y).predict(Z[["v", "u"]]),
    "text": lambda Z: rbf().fit(Z, Y),
    "no such column": lambda Z: local([kernels.RBF(view="nope")]).fit(Z, Y),
    "no such text": lambda Z: local([kernels.Spectrum(k=2, view="nope")]).fit(Z, Y),
    "no rows": lambda Z: rbf().fit(Z[NUMBERS][:0], Y[:0]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_the_same(wrong):
    said = []
    for Z in (PANDAS, POLARS):
        with pytest.raises(ValueError) as error:
            WRONG[wrong](Z)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_nulls_are_named():
    frame = pl.DataFrame({"u": [None if i == 3 else i for i in range(N)]})
    with pytest.raises(ValueError, match=r"NaN in column 'u' \(row 3\)"):
        rbf().fit(frame, Y)
