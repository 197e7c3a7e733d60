"""Models that take tables: columns by name, scaling as in training, and files that give it all back to the
bit.
"""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import raymkl
from raymkl import MKLClassifier
from raymkl.data import sources
from raymkl.data.tables import Columns, DataError, open_columns
from raymkl.kernels import RBF, Linear
from raymkl.models.preparation import Preparation, PreparedSource
from raymkl.models.table_model import TableModel
from tests.reference import noisy_problem

X, Y = noisy_problem(80, seed=41)
X = X * np.array([1.0, 10.0, 100.0, 0.1, 1.0, 5.0]) + 3.0
NAMES = list("abcdef")
FRAME = pd.DataFrame(X, columns=NAMES)
COLUMNS = Columns("train.csv", {name: X[:, k] for k, name in enumerate(NAMES)})


BANK = [RBF(0.1), Linear()]


def trained(views=None, kernels=BANK, standardize=True, **params):
    preparation = Preparation.fit(COLUMNS, views or {None: NAMES}, standardize=standardize, target="label")
    model = MKLClassifier(kernels=kernels, engine="local", **params).fit(preparation.transform(COLUMNS), Y)
    return TableModel(model, preparation)


def test_standardising_is_that_of_scikit_learn():
    preparation = Preparation.fit(COLUMNS, {None: NAMES}, standardize=True)
    np.testing.assert_allclose(
        preparation.transform(COLUMNS), StandardScaler().fit_transform(X), rtol=1e-12, atol=1e-12
    )


def test_numbers_as_they_are_without_standardising():
    np.testing.assert_array_equal(Preparation.fit(COLUMNS, {None: NAMES}).transform(COLUMNS), X)


def test_constant_columns_stay_finite():
    columns = Columns("t", {"a": np.full(5, 0.1) * 3, "b": np.arange(5.0), "zero": np.zeros(5)})
    prepared = Preparation.fit(columns, {None: ["a", "b", "zero"]}, standardize=True).transform(columns)
    np.testing.assert_allclose(prepared[:, [0, 2]], 0.0, atol=1e-12)


def test_sparse_columns_are_scaled_and_stay_sparse():
    S = sp.random(30, 5, density=0.4, random_state=0, format="csr")
    columns = Columns("t", {"X": S})
    prepared = Preparation.fit(columns, {None: ["X"]}, standardize=True).transform(columns)
    assert sp.issparse(prepared) and prepared.nnz == S.nnz
    np.testing.assert_allclose(prepared.toarray(), S.toarray() / S.toarray().std(axis=0), rtol=1e-10)
    assert not np.allclose(prepared.toarray(), MaxAbsScaler().fit_transform(S).toarray())


def test_a_sparse_file_with_fewer_columns_is_filled_up_and_one_with_more_refused():
    columns = Columns("t", {"X": sp.random(30, 5, density=0.4, random_state=0, format="csr")})
    preparation = Preparation.fit(columns, {None: ["X"]})
    assert preparation.transform(Columns("u", {"X": columns.arrays["X"][:, :3]})).shape == (30, 5)
    with pytest.raises(DataError, match="u: column 'X' has width 10, the model was trained on 5"):
        preparation.transform(Columns("u", {"X": sp.hstack([columns.arrays["X"]] * 2, format="csr")}))


def test_every_container_gives_the_same_predictions():
    model = trained()
    expected = model.model.decision_function(StandardScaler().fit(X).transform(X))
    shuffled = FRAME[NAMES[::-1]].assign(label="?", other=1.0)  # order and other columns do not matter
    for container in (
        COLUMNS,
        FRAME,
        shuffled,
        pa.Table.from_pandas(shuffled),
        {name: X[:, k] for k, name in enumerate(NAMES)},
        X,
    ):
        np.testing.assert_allclose(model.decision_function(container), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(FRAME), np.where(expected > 0, 1, -1))
    assert model.score(FRAME, Y) == np.mean(model.predict(X) == Y)


def test_attributes_of_the_model_can_be_read():
    model = trained()
    assert model.kernel_weights_ is model.model.kernel_weights_ and model.classes_.tolist() == [-1, 1]
    for name in ("nothing_", "nothing", "_private_"):
        with pytest.raises(AttributeError, match=name):
            getattr(model, name)
    assert pickle.loads(pickle.dumps(model)).duality_gap_ == model.duality_gap_


def test_contributions_sum_to_the_decision():
    model = trained()
    np.testing.assert_allclose(
        model.contributions(FRAME).sum(axis=1) + model.intercept_[0],
        model.decision_function(FRAME),
        rtol=1e-9,
        atol=1e-9,
    )


def test_missing_and_bad_columns_are_named():
    model = trained()
    with pytest.raises(DataError, match="X has no column 'c', which the model was trained on"):
        model.predict(FRAME.drop(columns="c"))
    with pytest.raises(DataError, match=r"column 'd' has a missing value \(NaN\) in row 4"):
        model.predict(FRAME.assign(d=FRAME["d"].where(FRAME.index != 4)))
    with pytest.raises(
        DataError, match=r"shape \(80, 5\); the model takes tables with the columns a, b.*\(n, 6\)"
    ):
        model.predict(X[:, :5])


@pytest.mark.parametrize(
    "views, kernels",
    [(None, BANK), ({"first": ["a", "b"], "all": NAMES}, [RBF(0.5, view="first"), Linear(view="all")])],
    ids=["one view", "two views"],
)
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.filterwarnings("ignore:the columns of .* differ")
def test_files_give_everything_back_to_the_bit(views, kernels, standardize, tmp_path):
    model = trained(views, kernels, standardize)
    model.save(tmp_path / "m.raymkl")
    again = raymkl.load(tmp_path / "m.raymkl")
    assert isinstance(again, TableModel) and again.preparation.target == "label"
    assert (
        again.preparation.views == model.preparation.views
        and again.preparation.widths == model.preparation.widths
    )
    for record in ("mean", "scale"):
        ours, theirs = getattr(model.preparation, record), getattr(again.preparation, record)
        assert list(ours) == list(theirs)
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    fresh = noisy_problem(30, seed=42)[0] * 7.0
    np.testing.assert_array_equal(again.decision_function(fresh), model.decision_function(fresh))
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))


def test_columns_of_text_come_back(tmp_path):
    words = np.array(["ACGTAC", "GGGTTA", "ACGTTT", "GGGAAA"] * 5, object)
    columns = Columns("t", {"seq": words, "size": np.arange(20.0)})
    preparation = Preparation.fit(columns, {"seq": ["seq"], "all": ["size"]}, text=["seq"], standardize=True)
    bank = [raymkl.kernels.Spectrum(2, view="seq"), Linear(view="all")]
    y = np.arange(20) % 2
    model = TableModel(
        MKLClassifier(kernels=bank, engine="local").fit(preparation.transform(columns), y), preparation
    )
    assert model.score(columns, y) == 1.0
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(
        raymkl.load(tmp_path / "m").decision_function(columns), model.decision_function(columns)
    )
    with pytest.raises(DataError, match="column 'seq' holds numbers"):
        model.predict(Columns("u", {"seq": np.arange(20.0), "size": np.arange(20.0)}))


# -- tables in files -------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The frame as a Parquet file, read in batches of 13 rows."""
    monkeypatch.setattr(sources.source, "MOST_BATCH_ROWS", 13)
    parquet.write_table(
        pa.Table.from_pandas(FRAME.assign(label=Y)), tmp_path / "t.parquet", row_group_size=30
    )
    return tmp_path / "t.parquet"


@pytest.mark.parametrize(
    "views", [{None: NAMES}, {"first": ["a", "b"], "all": NAMES}], ids=["one view", "two views"]
)
@pytest.mark.parametrize("standardize", [True, False])
def test_a_prepared_source_is_the_prepared_array(stored, views, standardize):
    columns = open_columns(stored)
    preparation = Preparation.fit(columns, views, standardize=standardize, target="label")
    whole = Preparation.fit(columns.loaded(), views, standardize=standardize, target="label")
    assert preparation.views == whole.views and preparation.widths == whole.widths
    expected = whole.transform(columns.loaded())
    source = preparation.transform(columns).source
    again = pickle.loads(pickle.dumps(source))
    assert (
        isinstance(source, PreparedSource)
        and source.n_rows == len(X)
        and again.fingerprint() == source.fingerprint()
    )
    seen = source.seen()
    for view in views:
        array, stand_in = (expected, seen) if view is None else (expected[view], seen[view])
        name = "X" if view is None else view
        read = again.read(5, 70, [name])[name].combine_chunks()
        np.testing.assert_allclose(
            read.flatten().to_numpy().reshape(65, -1), array[5:70], rtol=1e-9, atol=1e-9
        )
        assert stand_in.shape == array.shape and stand_in.dtype == array.dtype
        np.testing.assert_allclose(stand_in[np.array([3, 77])], array[[3, 77]], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(stand_in.min(axis=0), array.min(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(stand_in.max(axis=0), array.max(axis=0), rtol=1e-9, atol=1e-9)


def test_another_preparation_is_another_run(stored):
    columns = open_columns(stored)
    prints = {
        PreparedSource(columns, Preparation.fit(columns, views, standardize=scaled)).fingerprint()
        for views in ({None: NAMES}, {None: NAMES[::-1]}, {"v": NAMES})
        for scaled in (True, False)
    }
    assert len(prints) == 6


def test_models_take_paths(stored):
    model = trained()
    np.testing.assert_allclose(
        model.decision_function(stored), model.decision_function(FRAME), rtol=1e-9, atol=1e-9
    )
    assert model.score(str(stored), Y) == model.score(FRAME, Y)
    parquet.write_table(pa.Table.from_pandas(FRAME.drop(columns="c")), stored)
    with pytest.raises(DataError, match=r"t\.parquet has no column 'c', which the model was trained on"):
        model.predict(stored)


def test_numbers_too_large_to_standardize_are_named(stored):
    large = FRAME.assign(c=FRAME["c"].where(FRAME.index != 4, 1e200))
    parquet.write_table(pa.Table.from_pandas(large), stored)
    columns = open_columns(stored)
    for form in (columns, columns.loaded()):
        with (
            pytest.raises(DataError, match="column 'c' has numbers too large to standardize"),
            np.errstate(over="ignore"),
        ):
            Preparation.fit(form, {None: NAMES}, standardize=True)
