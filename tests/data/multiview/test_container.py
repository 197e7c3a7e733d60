"""`Views`: what it holds, rows as NumPy picks them, presence, and that nothing of it can be changed."""

import copy
import pickle

import hypothesis.extra.numpy as npst
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.utils import _safe_indexing, resample

from raymkl import Views
from raymkl.data.views import n_rows, subset

N = 12
ARRAY = np.arange(N * 3, dtype=float).reshape(N, 3)
LETTERS = [chr(97 + i) for i in range(N)]
KINDS = {
    "array": ARRAY,
    "one axis": ARRAY[:, 0],
    "images": np.arange(N * 4, dtype=np.int16).reshape(N, 2, 2),
    "csr": sp.csr_matrix(ARRAY),
    "csr array": sp.csr_array(ARRAY),
    "csc": sp.csc_matrix(ARRAY),
    "coo": sp.coo_matrix(ARRAY),
    "strings": LETTERS,
    "array of strings": np.array(LETTERS),
    "pandas": pd.DataFrame({"x": np.arange(N), "s": LETTERS}),
    "series": pd.Series(LETTERS),
    "polars": pl.DataFrame({"x": np.arange(N), "s": LETTERS}),
    "polars series": pl.Series(LETTERS),
    "arrow": pa.table({"x": np.arange(N), "s": LETTERS}),
    "arrow array": pa.array(LETTERS),
}


def plain(view):
    """A view as nested lists."""
    if sp.issparse(view):
        return view.toarray().tolist()
    if isinstance(view, pa.Table | pa.Array | pa.ChunkedArray):
        return view.to_pylist()
    if isinstance(view, pd.DataFrame):
        return view.to_dict("records")
    if isinstance(view, pl.DataFrame):
        return view.to_dicts()
    return list(view) if isinstance(view, list) else np.asarray(view).tolist()


V = Views(KINDS)


def test_what_there_is():
    assert V.shape == (N, len(KINDS)) and len(V) == N and V.names == tuple(KINDS)
    assert V.present.shape == V.shape and V.present.dtype == bool and V.present.all() and V.is_complete
    assert V.index.tolist() == list(range(N)) and "csr" in V and "nothing" not in V
    assert [name for name, _ in V.items()] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_views_keep_their_containers(kind):
    expected = sp.csr_matrix if kind == "coo" else type(KINDS[kind])
    for part in (V, V[2:5], V[[3, 1]]):
        assert isinstance(part[kind], expected)
    assert plain(V[kind]) == plain(KINDS[kind])
    assert plain(V[[4, 1, 1]][kind]) == plain(subset(KINDS[kind], np.array([4, 1, 1])))


@given(
    rows=st.one_of(
        npst.arrays(bool, N),
        npst.arrays(int, st.integers(0, 20), elements=st.integers(-N, N - 1)),
        st.slices(N),
    )
)
def test_rows_are_picked_as_numpy_picks_them(rows):
    """Also of rows that were picked before, and as scikit-learn asks for them."""
    picked = V[rows]
    numbers = np.arange(N)[rows]
    assert (
        isinstance(picked, Views)
        and picked.shape == (len(numbers), len(KINDS))
        and np.array_equal(picked.index, numbers)
    )
    for kind in ("array", "csr", "strings", "pandas", "polars", "arrow"):
        assert plain(picked[kind]) == plain(subset(KINDS[kind], numbers))
    assert np.array_equal(V[rows, ...].index, numbers) and np.array_equal(V[rows, :]["array"], ARRAY[rows])
    if len(numbers):
        again = np.arange(len(numbers))[::-2]
        assert np.array_equal(picked[again]["array"], ARRAY[rows][again])


def test_one_number_is_one_row():
    assert (
        V[3].shape == (1, len(KINDS)) and V[-1].index.tolist() == [N - 1] and V[[]].shape == (0, len(KINDS))
    )


@pytest.mark.parametrize(
    "rows, kind, word",
    [
        ([N], IndexError, str(N)),
        ([-N - 1], IndexError, "out of bounds"),
        (np.ones(N + 1, bool), IndexError, "boolean"),
        ([0.5], TypeError, "rows are picked"),
        (["a"], TypeError, "rows are picked"),
        (None, TypeError, "rows are picked"),
        (np.zeros((2, 2), int), TypeError, "shape"),
        ((0, "array"), TypeError, r"V\[rows\]"),
        ("nothing", KeyError, "nothing"),
    ],
)
def test_rows_that_cannot_be_picked(rows, kind, word):
    with pytest.raises(kind, match=word):
        V[rows]


def test_scikit_learn_splits_it():
    y = np.arange(N) % 2
    one, other = train_test_split(V, test_size=0.25, random_state=0)
    first, second = train_test_split(ARRAY, test_size=0.25, random_state=0)
    assert np.array_equal(one["array"], first) and np.array_equal(other["array"], second)
    assert len(list(StratifiedKFold(3).split(V, y))) == 3
    assert np.array_equal(_safe_indexing(V, [2, 0])["array"], ARRAY[[2, 0]])
    assert len(resample(V, n_samples=30, random_state=0)) == 30


def test_it_is_neither_an_array_nor_a_mapping():
    with pytest.raises(TypeError, match="holds the views"):
        np.asarray(V)
    with pytest.raises(TypeError, match="rows and views"):
        list(V)


# -- it cannot be changed --------------------------------------------------------------------------


def test_arrays_are_read_only_and_those_that_came_in_are_not():
    array, sparse = ARRAY.copy(), sp.csr_matrix(ARRAY)
    views = Views({"a": array, "s": sparse})
    for part in (
        views["a"],
        views[2:4]["a"],
        views[[1, 2]]["a"],
        views["s"].data,
        views[2:4]["s"].data,
        views.present,
        views.index,
    ):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 0
    assert np.shares_memory(views["a"], array) and np.shares_memory(views["s"].data, sparse.data)
    assert np.shares_memory(views[3:9]["a"], array)
    array[0, 0], sparse.data[0] = 5.0, 7.0  # its owner goes on


def test_nothing_can_be_put_into_it():
    for name in ("present", "index", "anything", "_views"):
        with pytest.raises(AttributeError):
            setattr(V, name, None)
        with pytest.raises(AttributeError):
            delattr(V, name)
    with pytest.raises(TypeError):
        V["array"] = 0


def test_what_is_done_to_a_view_does_not_come_back():
    views = Views(
        {"text": list(LETTERS), "frame": pd.DataFrame({"x": [1.0] * N}), "pl": pl.DataFrame({"x": [1.0] * N})}
    )
    views["text"].append("more")
    frame = views["frame"]
    frame["y"] = 1
    views["pl"].insert_column(0, pl.Series("y", [1] * N))
    assert views["text"] == LETTERS and list(views["frame"]) == ["x"] and views["pl"].columns == ["x"]


@pytest.mark.parametrize("copied", [lambda v: pickle.loads(pickle.dumps(v)), copy.copy, copy.deepcopy])
def test_copies_are_equal_and_read_only_too(copied):
    mask = np.arange(N * len(KINDS)).reshape(N, -1) % 3 > 0
    part = Views(KINDS, present=mask, index=LETTERS)[[3, 3, 7]]
    back = copied(part)
    assert (
        back.names == part.names
        and np.array_equal(back.present, part.present)
        and back.index.tolist() == ["d", "d", "h"]
    )
    assert all(plain(back[kind]) == plain(part[kind]) for kind in KINDS)
    with pytest.raises(ValueError, match="read-only"):
        back["array"][0] = 0


# -- presence --------------------------------------------------------------------------------------


def holed(kind):
    """A view whose rows 1 and 4 hold nothing, and whose row 2 lacks an entry."""
    gone = [1, 4]
    if kind in ("pandas", "polars", "arrow"):
        columns = {
            "x": [None if i in gone else float(i) for i in range(N)],
            "s": [None if i in [*gone, 2] else c for i, c in enumerate(LETTERS)],
        }
        return {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind](columns)
    if kind in ("strings", "object"):
        values = [None if i in gone else c for i, c in enumerate(LETTERS)]
        return values if kind == "strings" else np.array(values, object)
    array = ARRAY.copy()
    array[gone], array[2, 0] = np.nan, np.nan
    if kind == "vectors":
        return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), 3)})
    if kind == "masked":
        return np.ma.masked_invalid(array)
    return sp.csr_matrix(array) if kind == "sparse" else array


@pytest.mark.parametrize(
    "kind", ["array", "masked", "sparse", "strings", "object", "pandas", "polars", "arrow", "vectors"]
)
def test_rows_of_nothing_are_absent(kind):
    views = Views({"v": holed(kind), "whole": ARRAY.astype(int)}, present="infer")
    assert np.flatnonzero(~views.present[:, 0]).tolist() == [1, 4] and views.present[:, 1].all()


def test_zeros_and_empty_rows_are_something():
    views = Views({"a": np.zeros((3, 2)), "s": sp.csr_matrix((3, 2)), "t": ["", "", ""]}, present="infer")
    assert views.is_complete


@given(
    present=npst.arrays(bool, (N, 2)),
    rows=npst.arrays(int, st.integers(0, 20), elements=st.integers(0, N - 1)),
)
def test_presence_goes_along(present, rows):
    views = Views({"a": ARRAY, "b": LETTERS}, present=present)
    part = views[rows]
    assert np.array_equal(part.present, present[rows]) and np.array_equal(part.has("b"), present[rows, 1])
    both = Views.concat([part, views])
    assert np.array_equal(both.present, np.vstack([present[rows], present])) and len(both) == len(rows) + N
    assert (
        np.array_equal(both["a"], np.vstack([ARRAY[rows], ARRAY]))
        and both["b"] == [LETTERS[i] for i in rows] + LETTERS
    )


@given(present=npst.arrays(bool, (N, 2)))
def test_readers_meet_rows_that_are_there_alone(present):
    poisoned = np.where(present[:, [0]], ARRAY, np.nan)
    views = Views(
        {"a": poisoned, "b": [c if there else 1e9 for c, there in zip(LETTERS, present[:, 1], strict=True)]},
        present=present,
    )
    readable = views.readable()
    assert set(readable) == {name for name, there in zip("ab", present.T, strict=True) if there.any()}
    if "a" in readable:
        assert np.isfinite(readable["a"]).all() and np.array_equal(
            readable["a"][present[:, 0]], ARRAY[present[:, 0]]
        )
        assert np.array_equal(views.rows_with("a"), ARRAY[present[:, 0]])
    if "b" in readable:
        assert all(isinstance(value, str) for value in readable["b"]) and n_rows(readable["b"]) == N


def test_presence_by_mask_and_by_dict():
    some = np.arange(N) > 3
    assert np.array_equal(
        Views({"a": ARRAY, "b": LETTERS}, present={"b": some.tolist()}).present,
        np.column_stack([some | True, some]),
    )
    mask = np.column_stack([some, ~some])
    views = Views({"a": ARRAY, "b": LETTERS}, present=mask.astype(int))
    assert np.array_equal(views.present, mask)
    mask[:] = False
    assert views.present.any()  # a copy of its own
    assert views.has(("a", [0, 1])).tolist() == some.tolist()


@pytest.mark.parametrize(
    "present, word",
    [
        (np.ones((N, 3), bool), r"present must have the shape \(12, 2\)"),
        (np.ones(N, bool), "present must have the shape"),
        ({"c": np.ones(N, bool)}, "'c'"),
        ({"a": np.ones(3, bool)}, r"present\['a'\]"),
        (np.full((N, 2), 0.5), "True"),
        ("guess", "infer"),
    ],
)
def test_presence_that_makes_no_sense(present, word):
    with pytest.raises(ValueError, match=word):
        Views({"a": ARRAY, "b": LETTERS}, present=present)


# -- putting together ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_concat_of_every_kind(kind):
    one = Views({"v": KINDS[kind]}, index=LETTERS)
    both = Views.concat([one[4:], one[:2]])
    assert (
        plain(both["v"]) == plain(subset(KINDS[kind], np.r_[4:N, 0:2]))
        and both.index.tolist() == LETTERS[4:] + LETTERS[:2]
    )
    assert plain(Views.concat([both])["v"]) == plain(both["v"])


def test_concat_puts_views_by_name_and_keeps_numbers_as_names():
    one, other = (
        Views({"a": ARRAY, "b": LETTERS})[:2],
        Views({"b": LETTERS, "a": -ARRAY}, index=LETTERS, present={"b": np.zeros(N, bool)})[:2],
    )
    both = Views.concat([one, other])
    assert (
        both.names == ("a", "b")
        and both.index.tolist() == [0, 1, "a", "b"]
        and both.present[:, 1].tolist() == [True, True, False, False]
    )


@pytest.mark.parametrize(
    "other, kind, word",
    [
        (Views({"b": ARRAY}), ValueError, "b"),
        (Views({"a": ARRAY[:, :2]}), ValueError, "'a' has other columns"),
        (Views({"a": sp.csr_matrix(ARRAY)}), TypeError, "'a' is array in one part and sparse csr"),
        (ARRAY, TypeError, "ndarray"),
    ],
)
def test_what_cannot_be_put_together(other, kind, word):
    with pytest.raises(kind, match=word):
        Views.concat([Views({"a": ARRAY}), other])
    with pytest.raises(ValueError, match="empty list"):
        Views.concat([])


@pytest.mark.parametrize(
    "views, kind, word",
    [
        ({}, ValueError, "at least one view"),
        (ARRAY, TypeError, "dict"),
        ({"a": ARRAY, "b": ARRAY[:3]}, ValueError, "numbers of rows.*'b': 3"),
        ({1: ARRAY}, TypeError, "str"),
        ({"a": 3.0}, TypeError, "'a'"),
        ({"a": np.array(3.0)}, TypeError, "'a'"),
        ({"a": {"b": 1}}, TypeError, "'a' is a dict"),
        (V, TypeError, "already"),
    ],
)
def test_what_are_no_views(views, kind, word):
    with pytest.raises(kind, match=word):
        Views(views)


def test_names_of_rows():
    assert Views({"a": ARRAY}, index=[("x", i) for i in range(N)])[[1]].index[0] == ("x", 1)
    assert Views({"a": ARRAY}, index=[0, *LETTERS[1:]]).index.tolist() == [0, *LETTERS[1:]]
    with pytest.raises(ValueError, match="index must name"):
        Views({"a": ARRAY}, index=LETTERS[:3])


def test_repr_says_widths_and_absences():
    text = repr(Views({"first": ARRAY, "second": LETTERS}, present={"second": np.arange(N) > 4}))
    assert (
        "12 rows, 2 views" in text
        and "array (12, 3) float64" in text
        and "5 absent" in text
        and text.count("absent") == 1
    )
