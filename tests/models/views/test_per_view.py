"""A transformer per view: fitted to the rows that have it, in the container it came in, with parameters that
searches reach.
"""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from raymkl import MKLClassifier, PerView, Views, kernels

RNG = np.random.default_rng(0)
N = 40
DATA = {"a": 5 * RNG.normal(size=(N, 6)) + 1, "b": RNG.normal(size=(N, 3))}
Y = np.where(DATA["a"][:, 0] + DATA["b"][:, 0] > 1, "yes", "no")
THERE = RNG.random(N) > 0.4
V = Views(DATA, index=[f"p{i}" for i in range(N)])
HOLED = Views({**DATA, "a": np.where(THERE[:, None], DATA["a"], np.nan)}, present={"a": THERE})
BANK = [kernels.RBF(0.1, view="a"), kernels.RBF(0.1, view="b")]


def test_each_view_has_its_own_and_others_pass():
    steps = PerView({"a": make_pipeline(StandardScaler(), SelectKBest(k=2))})
    out = steps.fit(V, Y).transform(V)
    by_hand = make_pipeline(StandardScaler(), SelectKBest(k=2)).fit_transform(DATA["a"], Y)
    assert isinstance(out, Views) and out.names == ("a", "b") and np.array_equal(out["a"], by_hand)
    assert np.array_equal(out["b"], DATA["b"]) and np.array_equal(out.index, V.index)
    assert (
        np.array_equal(steps.fit_transform(V, Y)["a"], by_hand)
        and steps.n_features_in_ == 2
        and steps.views_in_ == ("a", "b")
    )
    assert np.array_equal(
        PerView({"a": StandardScaler()}).fit_transform(DATA)["a"], StandardScaler().fit_transform(DATA["a"])
    )


def test_rows_that_lack_the_view_are_not_seen_and_stay_absent():
    steps = PerView({"a": make_pipeline(StandardScaler(), SelectKBest(k=2))}).fit(HOLED, Y)
    by_hand = make_pipeline(StandardScaler(), SelectKBest(k=2)).fit(DATA["a"][THERE], Y[THERE])
    out = steps.transform(HOLED)
    assert np.array_equal(steps.transformers_["a"][0].mean_, by_hand[0].mean_) and np.array_equal(
        out.present, HOLED.present
    )
    assert (
        np.array_equal(out["a"][THERE], by_hand.transform(DATA["a"][THERE]))
        and np.isnan(out["a"][~THERE]).all()
    )
    assert np.array_equal(out.rows_with("a"), by_hand.transform(DATA["a"][THERE]))
    assert np.isfinite(out.readable()["a"]).all()
    assert np.array_equal(out[THERE]["a"], out["a"][THERE])


@pytest.mark.parametrize(
    "make", [lambda A: A, sp.csr_matrix, lambda A: pd.DataFrame(A), lambda A: pl.DataFrame(A)]
)
def test_a_view_that_no_new_row_has(make):
    """The columns are known, in the kind of container that the transformer makes."""
    steps = PerView({"a": FunctionTransformer()}).fit(Views({**DATA, "a": make(DATA["a"])}))
    nobody = Views({**DATA, "a": make(DATA["a"])}, present={"a": np.zeros(N, bool)})
    out = steps.transform(nobody)
    assert (
        out["a"].shape == (N, 6) and isinstance(out["a"], type(nobody["a"])) and list(out.readable()) == ["b"]
    )
    assert Views.concat([out, steps.transform(Views({**DATA, "a": make(DATA["a"])}))]).shape == (2 * N, 2)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_tables_come_as_tables(kind):
    """Columns by name, categories as texts, sparse output: what a column transformer does."""
    stage = np.array(["i", "ii", "iii"])[np.arange(N) % 3]
    table = kind({"volume": DATA["a"][:, 0], "stage": stage})
    prepare = make_column_transformer(
        (OneHotEncoder(), ["stage"]), (StandardScaler(), ["volume"]), sparse_threshold=1.0
    )
    out = PerView({"ct": prepare}).fit_transform(Views({"ct": table}, present={"ct": THERE}), Y)
    by_hand = clone(prepare).fit_transform(
        pd.DataFrame({"volume": DATA["a"][THERE, 0], "stage": stage[THERE]})
    )
    assert (
        np.allclose(out.rows_with("ct").toarray(), by_hand.toarray())
        and sp.issparse(out["ct"])
        and out["ct"].shape == (N, 4)
    )
    assert abs(out["ct"][np.flatnonzero(~THERE)]).sum() == 0


def test_strings_become_counts():
    texts = ["red fish", "blue fish"] * 20
    out = PerView({"t": CountVectorizer()}).fit_transform(Views({"t": texts}))
    assert sp.issparse(out["t"]) and np.array_equal(
        out["t"].toarray(), CountVectorizer().fit_transform(texts).toarray()
    )


def test_remainder_and_words():
    assert PerView({"a": StandardScaler()}, remainder="drop").fit_transform(V).names == ("a",)
    out = PerView({"b": "drop"}).fit(V)
    assert out.transform(V).names == ("a",) and out.transform(Views({"a": DATA["a"]})).names == ("a",)
    assert PerView({"a": "passthrough"}, remainder="drop").fit_transform(V).names == ("a",)
    assert np.array_equal(PerView({}).fit_transform(V)["a"], DATA["a"])


def test_parameters_by_view():
    scaler = StandardScaler()
    steps = PerView({"a": scaler, "b": "passthrough"})
    assert steps.get_params()["a__with_mean"] is True and set(steps.get_params(deep=False)) == {
        "transformers",
        "remainder",
    }
    other = clone(steps).set_params(a__with_mean=False, b=StandardScaler(), remainder="drop")
    assert (
        other.transformers["a"].with_mean is False and scaler.with_mean is True and other.remainder == "drop"
    )
    assert isinstance(other.transformers["b"], StandardScaler) and steps.transformers["b"] == "passthrough"
    with pytest.raises(ValueError, match="nothing"):
        steps.set_params(nothing=1)
    assert "StandardScaler" in repr(steps) and "PerView" in steps._repr_html_()


def test_in_a_pipeline_and_a_search():
    model = make_pipeline(PerView({"a": SelectKBest(k=1)}), MKLClassifier(BANK, engine="local"))
    found = GridSearchCV(model, {"perview__a__k": [1, 6], "mklclassifier__C": [1.0]}, cv=2).fit(V, Y)
    assert found.cv_results_["param_perview__a__k"].tolist() == [1, 6] and found.best_score_ > 0.5
    assert found.best_estimator_[0].transformers_["a"].k == found.best_params_["perview__a__k"]
    half = N // 2
    chosen = SelectKBest(k=1).fit(DATA["a"][:half], Y[:half])
    parts = [{"a": chosen.transform(DATA["a"][s]), "b": DATA["b"][s]} for s in (slice(half), slice(half, N))]
    by_hand = MKLClassifier(BANK, engine="local").fit(parts[0], Y[:half]).decision_function(parts[1])
    assert np.array_equal(model.fit(V[:half], Y[:half]).decision_function(V[half:]), by_hand)


def test_output_as_tables():
    steps = PerView({"a": StandardScaler()}).set_output(transform="pandas")
    assert isinstance(steps.fit_transform(V)["a"], pd.DataFrame)


class Forgetful(StandardScaler):
    def transform(self, X, copy=None):
        return super().transform(X, copy)[:3]


@pytest.mark.parametrize(
    "steps, X, kind, word",
    [
        (PerView({"c": StandardScaler()}), V, ValueError, "'c'"),
        (PerView([("a", StandardScaler())]), V, TypeError, "dict"),
        (PerView({"a": StandardScaler}), V, TypeError, r"transformers\['a'\]"),
        (PerView({"a": "pass"}), V, TypeError, "passthrough"),
        (PerView({"a": StandardScaler()}, remainder="keep"), V, ValueError, "remainder"),
        (PerView({"a": FunctionTransformer(lambda Z: Z[:5])}), V, ValueError, "'a' made 5 rows of 40"),
        (PerView({"a": StandardScaler()}), DATA["a"], TypeError, "ndarray"),
        (
            PerView({"a": StandardScaler()}),
            Views({"a": np.eye(3)}, matrices=["a"]),
            ValueError,
            "ready-made matrix",
        ),
        (PerView({"remainder": StandardScaler()}), Views({"remainder": np.eye(3)}), ValueError, "rename"),
        (PerView({"a__b": StandardScaler()}), Views({"a__b": np.eye(3)}), ValueError, "rename"),
        (PerView({"a": "drop", "b": "drop"}), V, ValueError, "no view is left"),
        (
            PerView({"a": StandardScaler()}),
            Views(DATA, present={"a": np.zeros(N, bool)}),
            ValueError,
            "no row of X has view 'a'",
        ),
    ],
)
def test_what_cannot_be_fitted(steps, X, kind, word):
    with pytest.raises(kind, match=word):
        steps.fit(X)


def test_what_cannot_be_transformed():
    with pytest.raises(ValueError, match="different lengths"):
        PerView({"a": StandardScaler()}).fit(V, Y[:3])
    steps = PerView({"a": StandardScaler()}).fit(V)
    with pytest.raises(ValueError, match="no view 'b'"):
        steps.transform({"a": DATA["a"]})
    fitted = PerView({"a": StandardScaler()}).fit(V)
    fitted.transformers_["a"] = Forgetful().fit(DATA["a"])
    with pytest.raises(ValueError, match="'a' made 3 rows of 40"):
        fitted.transform(V)
