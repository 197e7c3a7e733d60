"""Data files: every format gives the same columns, and what is wrong with a file is said by name."""

import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyarrow import feather, parquet
from sklearn.datasets import dump_svmlight_file

from raymkl.data import sources
from raymkl.data.tables import (
    DataError,
    SourceColumns,
    from_arrow,
    holds_numbers,
    is_numeric,
    open_columns,
    read_columns,
    write_columns,
)

FRAME = pd.DataFrame(
    {
        "a": [1.5, -2.0, 3.25],
        "b": [1, 2, 3],
        "flag": [True, False, True],
        "word": ["x", "y, z", 'quo"te'],
        "label": ["no", "yes", "no"],
    }
)


def written(path, frame=FRAME):
    """The frame in the format of the path."""
    kind = path.suffix
    if kind in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    elif kind == ".parquet":
        frame.to_parquet(path)
    else:
        feather.write_feather(pa.Table.from_pandas(frame), str(path), compression="uncompressed")
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "feather"])
def test_formats_of_tables_agree(ending, tmp_path):
    columns = read_columns(written(tmp_path / f"t.{ending}"))
    assert list(columns.arrays) == list(FRAME.columns) and columns.n_rows == 3
    np.testing.assert_array_equal(columns.numbers("a"), [[1.5], [-2.0], [3.25]])
    np.testing.assert_array_equal(columns.numbers("b"), [[1.0], [2.0], [3.0]])
    np.testing.assert_array_equal(columns.numbers("flag"), [[1.0], [0.0], [1.0]])
    assert columns.text("word").tolist() == ["x", "y, z", 'quo"te']
    assert columns.labels("label").tolist() == ["no", "yes", "no"]
    assert columns.feature_names("label") == ["a", "b", "flag", "word"]
    assert columns.text_columns(columns.feature_names("label")) == ["word"]


def test_an_index_of_pandas_is_no_feature(tmp_path):
    frame = FRAME.set_index(pd.Index([7, 1, 3]))
    assert "__index_level_0__" in pa.Table.from_pandas(frame).column_names
    assert list(read_columns(written(tmp_path / "t.parquet", frame)).arrays) == list(FRAME.columns)


def test_compressed_csv(tmp_path):
    with gzip.open(tmp_path / "t.csv.gz", "wt") as sink:
        sink.write("a,label\n1,x\n2,y\n")
    np.testing.assert_array_equal(read_columns(tmp_path / "t.csv.gz").numbers("a"), [[1.0], [2.0]])


def test_a_column_whose_later_rows_are_of_another_kind(tmp_path):
    """Whole numbers for more than a megabyte, then a fraction, then a word."""
    (tmp_path / "t.csv").write_text("a,b\n" + "12345,7\n" * 200_000 + "1.5,word\n")
    columns = read_columns(tmp_path / "t.csv")
    assert columns.numbers("a")[-1, 0] == 1.5 and columns.text("b")[-1] == "word"


def test_columns_of_arrow():
    table = pa.table(
        {
            "decimal": pa.array([decimal.Decimal("1.5"), None]),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.float32(), 2)),
            "lists": pa.array([[1.0, 2.0], [3.0, 4.0]]),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8.0).reshape(2, 4)),
            "ragged": pa.array([[1], [2, 3]]),
            "category": pa.array(["u", "v"]).dictionary_encode(),
            "empty": pa.nulls(2),
        }
    )
    columns = from_arrow(table, "t")
    np.testing.assert_array_equal(columns.arrays["decimal"], [1.5, np.nan])
    np.testing.assert_array_equal(columns.arrays["fixed"], [[1, 2], [np.nan, np.nan]])
    np.testing.assert_array_equal(columns.numbers("lists"), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(columns.numbers("tensor"), np.arange(8.0).reshape(2, 4))
    assert columns.text_columns(list(columns.arrays)) == ["ragged", "category"]
    for name, message in (
        ("fixed", "column 0 of 'fixed'.*NaN.*row 1"),
        ("empty", "'empty'.*row 0"),
        ("ragged", "'ragged' does not hold"),
    ):
        with pytest.raises(DataError, match=message):
            columns.numbers(name)


def test_npz_with_one_array(tmp_path):
    X, y = np.arange(6, dtype=np.uint8).reshape(3, 2), np.array([1.0, -1.0, 1.0])
    np.savez(tmp_path / "d.npz", X=X, y=y, X_test=X[:1], speaker=[4, 5, 6], names=["a", "b"])
    columns = read_columns(tmp_path / "d.npz")
    assert columns.feature_names(None) == ["X"] and columns.target == "y"
    np.testing.assert_array_equal(columns.numbers("X"), X.astype(float))
    labels = columns.labels(None)
    assert labels.tolist() == [1, -1, 1] and labels.dtype.kind == "i"
    assert columns.labels("speaker").tolist() == [4, 5, 6]  # any array of the right length may be the target


def test_npz_with_views(tmp_path):
    np.savez(tmp_path / "d.npz", view_left=np.ones((3, 2)), view_right=np.zeros((3, 4)), y=[0, 1, 0])
    columns = read_columns(tmp_path / "d.npz")
    assert columns.feature_names(None) == ["left", "right"]
    assert columns.numbers("right").shape == (3, 4)


def test_npz_without_features_or_of_different_lengths(tmp_path):
    np.savez(tmp_path / "none.npz", z=np.ones(3))
    with pytest.raises(DataError, match=r"none.npz needs an array X or arrays view_<name>; it holds z"):
        read_columns(tmp_path / "none.npz")
    np.savez(tmp_path / "lengths.npz", view_a=np.ones((3, 1)), view_b=np.ones((2, 1)))
    with pytest.raises(DataError, match="different numbers of rows"):
        read_columns(tmp_path / "lengths.npz")
    np.savez(tmp_path / "objects.npz", X=np.array([{}, []], dtype=object))
    with pytest.raises(DataError, match=r"objects\.npz cannot be read as npz"):  # objects would be pickles
        read_columns(tmp_path / "objects.npz")


@pytest.mark.parametrize("name, given", [("d.libsvm", None), ("d.svm", None), ("plain", "libsvm")])
def test_libsvm(name, given, tmp_path):
    X = sp.random(5, 7, density=0.5, random_state=0, format="csr")
    dump_svmlight_file(X, [1, -1, 1, -1, 1], str(tmp_path / name), zero_based=False)
    columns = read_columns(tmp_path / name, given)
    read = columns.numbers("X")
    assert sp.issparse(read)
    np.testing.assert_allclose(read.toarray(), X.toarray()[:, : read.shape[1]], rtol=1e-12)
    assert columns.labels(None).tolist() == [1, -1, 1, -1, 1]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("nothing.csv", None, "nothing.csv does not exist"),
        ("t.xyz", b"a", r"t.xyz: the format does not follow.*\.csv.*--format"),
        ("t.parquet", b"no parquet", "t.parquet cannot be read as parquet"),
        ("t.arrow", b"no arrow", "t.arrow cannot be read as arrow"),
        ("t.npz", b"no zip", "t.npz cannot be read as npz"),
        ("t.libsvm", b"no numbers here", "t.libsvm cannot be read as libsvm"),
        ("t.csv", b"a,b\n", "t.csv has no rows"),
        ("t.csv", b"", "t.csv cannot be read as csv"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "t.csv cannot be read as csv.*3"),
        ("t.csv", b"a,a\n1,2\n", "several columns of the name 'a'"),
    ],
)
def test_files_that_cannot_be_read(name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_columns(tmp_path / name)


def test_a_directory_is_no_data_file(tmp_path):
    with pytest.raises(DataError, match="is a directory"):
        read_columns(tmp_path)


@pytest.mark.parametrize("hole", ["", "NaN", "NA"])
def test_missing_values_are_named(hole, tmp_path):
    (tmp_path / "t.csv").write_text(f"x1,x2,label\n1,2,a\n3,{hole},b\n")
    with pytest.raises(DataError, match=r"t.csv: column 'x2' has a missing value \(NaN\) in row 1"):
        read_columns(tmp_path / "t.csv").numbers("x2")


def test_infinity_is_named():
    with pytest.raises(DataError, match="column 'a' has an infinite value in row 0"):
        from_arrow(pa.table({"a": [np.inf, 1.0]}), "t").numbers("a")


def test_labels_that_are_none(tmp_path):
    columns = read_columns(written(tmp_path / "t.csv"))
    with pytest.raises(DataError, match=r"no column 'nope' \(the target\); columns: a, b, flag, word, label"):
        columns.labels("nope")
    with pytest.raises(DataError, match=r"which column holds the labels \(--target NAME\)"):
        columns.labels(None)
    (tmp_path / "holes.csv").write_text("a,label,n\n1,x,1\n2,,\n")
    for name in ("label", "n"):
        with pytest.raises(DataError, match=f"target column '{name}' has no label in row 1"):
            read_columns(tmp_path / "holes.csv").labels(name)
    with pytest.raises(DataError, match="'v' holds vectors"):
        from_arrow(pa.table({"v": [[1.0, 2.0]]}), "t").labels("v")


@settings(max_examples=30, deadline=None)
@given(
    numbers=hnp.arrays(
        np.float64, st.integers(1, 8), elements=st.floats(allow_nan=False, allow_infinity=False)
    ),
    ending=st.sampled_from(["csv", "parquet", "arrow"]),
)
def test_numbers_survive_writing_and_reading(numbers, ending, tmp_path_factory):
    """To the last bit, also as text."""
    path = tmp_path_factory.mktemp("written") / f"p.{ending}"
    words = np.array([f"w,{k}" for k in range(len(numbers))])
    write_columns({"prediction": words, "decision": numbers}, str(path))
    again = read_columns(path)
    np.testing.assert_array_equal(again.numbers("decision")[:, 0], numbers)
    assert again.text("prediction").tolist() == words.tolist()


def test_standard_output(capsys):
    write_columns({"prediction": np.array(["a", "b"]), "decision": np.array([0.5, -1.0])}, "-")
    assert capsys.readouterr().out == "prediction,decision\na,0.5\nb,-1.0\n"


def test_unknown_ending_to_write(tmp_path):
    with pytest.raises(DataError, match=r"p.xlsx: predictions are written as \.csv, \.parquet or \.arrow"):
        write_columns({"a": np.ones(2)}, str(tmp_path / "p.xlsx"))


# -- columns that stay in their file ---------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columns_that_stay_in_their_file_say_the_same(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(sources.source, "MOST_BATCH_ROWS", 2)
    columns = open_columns(written(tmp_path / f"t.{ending}"))
    whole = columns.loaded()
    assert isinstance(columns, SourceColumns) and not isinstance(whole, SourceColumns)
    assert columns.names == whole.names and columns.n_rows == whole.n_rows == 3
    assert columns.text_columns(columns.names) == whole.text_columns(whole.names) == ["word", "label"]
    for name in ("a", "b", "flag"):
        np.testing.assert_array_equal(columns.numbers(name), whole.numbers(name))
        assert columns.width(name) == 1
    assert columns.labels("label").tolist() == whole.labels("label").tolist()
    assert [part.n_rows for part in columns.batches(["a"])] == [2, 1]
    for call in (columns.numbers, columns.text):
        with pytest.raises(DataError, match="no column 'z'; columns: a, b, flag, word, label"):
            call("z")
    with pytest.raises(DataError, match="'word' does not hold numbers"):
        columns.numbers("word")


def test_kinds_of_columns_are_those_of_their_arrays():
    for array in (
        pa.array([1, 2]),
        pa.array([1.5, None]),
        pa.array([True, None]),
        pa.array([decimal.Decimal("1.5")]),
        pa.nulls(2),
        pa.array([1, 1]).dictionary_encode(),
        pa.array(["u"]).dictionary_encode(),
        pa.array(["u"]),
        pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
        pa.array([["u", "v"]], pa.list_(pa.string(), 2)),
        pa.array([pd.Timestamp("2020")]),
    ):
        assert holds_numbers(array.type) == is_numeric(from_arrow(pa.table({"x": array}), "t").arrays["x"]), (
            array.type
        )


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(2)), elements=st.floats(-1e6, 1e6)),
    st.integers(1, 9),
)
@settings(max_examples=30, deadline=None)
def test_facts_of_a_column_do_not_depend_on_the_batches(tmp_path_factory, values, rows):
    path = tmp_path_factory.mktemp("facts") / "t.parquet"
    parquet.write_table(
        pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 2), "a": values[:, 0]}),
        path,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources.source, "MOST_BATCH_ROWS", rows)
        facts = open_columns(path).facts(["v", "a"])
    size = np.abs(values).max(initial=1.0)
    np.testing.assert_allclose(facts["v"].mean, values.mean(axis=0), atol=1e-12 * size)
    np.testing.assert_allclose(facts["v"].deviation, values.std(axis=0), atol=1e-9 * size)
    np.testing.assert_array_equal(facts["v"].low, values.min(axis=0))
    np.testing.assert_array_equal(facts["v"].high, values.max(axis=0))
    assert facts["a"].mean.shape == (1,) and abs(facts["a"].mean[0] - facts["v"].mean[0]) <= 1e-12 * size


def test_errors_of_batches_count_rows_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sources.source, "MOST_BATCH_ROWS", 2)
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, np.nan, 5.0], "s": ["x", "y", "z", "w", None]})
    columns = open_columns(written(tmp_path / "t.parquet", frame))
    with pytest.raises(DataError, match=r"t.parquet: column 'a' has a missing value \(NaN\) in row 3"):
        columns.facts(["a"])
    with pytest.raises(DataError, match="'s' has no text in row 4"):
        [part.text("s") for part in columns.batches(["s"])]
