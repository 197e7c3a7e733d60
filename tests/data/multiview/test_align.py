"""Tables joined by key, against joins by hand over Python's dicts."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl import Views

MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
KINDS = st.sampled_from(list(MAKERS))


def table(kind, keys, shift=0, name="who"):
    return MAKERS[kind](
        {name: keys, "x": [hash(key) % 97 + shift for key in keys], "s": [f"{key}!" for key in keys]}
    )


def records(view):
    if isinstance(view, pa.Table):
        return view.to_pylist()
    return view.to_dict("records") if isinstance(view, pd.DataFrame) else view.to_dicts()


@given(
    keys=st.lists(st.lists(st.integers(0, 9).map(str), unique=True, max_size=8), min_size=1, max_size=3),
    kinds=st.lists(KINDS, min_size=3, max_size=3),
    how=st.sampled_from(["outer", "inner"]),
)
def test_rows_are_those_of_a_join(keys, kinds, how):
    tables = {f"t{i}": table(kind, own, i) for i, (own, kind) in enumerate(zip(keys, kinds, strict=False))}
    every = list(dict.fromkeys(key for own in keys for key in own))
    expected = every if how == "outer" else [key for key in keys[0] if all(key in own for own in keys)]
    if not expected:
        with pytest.raises(ValueError, match="0 rows"):
            Views.align(tables, on="who", how=how)
        return
    V = Views.align(tables, on="who", how=how)
    assert V.index.tolist() == expected
    for i, own in enumerate(keys):
        there = [key in own for key in expected]
        assert V.present[:, i].tolist() == there and isinstance(V[f"t{i}"], type(tables[f"t{i}"]))
        for key, has, row in zip(expected, there, records(V[f"t{i}"]), strict=True):
            assert set(row) == {"x", "s"}
            assert (
                row == {"x": hash(key) % 97 + i, "s": f"{key}!"}
                if has
                else row["s"] is None or row["s"] != row["s"]
            )


@pytest.mark.parametrize("kind", MAKERS)
def test_types_stay_also_where_rows_are_missing(kind):
    """A column of whole numbers in which entries are missing would be one of floats in pandas."""
    V = Views.align({"one": table(kind, ["a", "b"]), "two": table(kind, ["c"])}, on="who")
    part = V[[1, 0]]["one"]
    whole = table(kind, ["b", "a"])
    assert part["x"].dtype == whole["x"].dtype if kind != "arrow" else part["x"].type == whole["x"].type
    assert records(V.rows_with("one")) == records(V[:2]["one"]) and len(records(V["one"])) == 3
    back = pickle.loads(pickle.dumps(V[[2, 1, 1]]))
    assert str(records(back["one"])) == str(records(V[[2, 1, 1]]["one"]))
    both = Views.concat([V[1:], V[:1]])
    assert str(records(both["two"])) == str([records(V["two"])[i] for i in (1, 2, 0)])


def test_several_columns_are_one_key():
    one = pd.DataFrame({"site": [1, 1, 2], "who": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
    two = pl.DataFrame({"who": ["a", "a"], "site": [2, 1], "y": [4, 5]})
    V = Views.align({"one": one, "two": two}, on=["site", "who"], how="inner")
    assert (
        V.index.tolist() == [(1, "a"), (2, "a")]
        and V["two"]["y"].to_list() == [5, 4]
        and list(V["one"]) == ["x"]
    )


def test_the_index_of_pandas_is_the_key():
    one = pd.DataFrame({"x": [1, 2]}, index=["a", "b"])
    two = pd.DataFrame({"y": [3, 4]}, index=["b", "c"])
    V = Views.align({"one": one, "two": two})
    assert V.index.tolist() == ["a", "b", "c"] and V.present.tolist() == [
        [True, False],
        [True, True],
        [False, True],
    ]
    assert one.index.tolist() == ["a", "b"] and list(one) == ["x"]


def test_a_table_without_rows_is_absent_everywhere():
    V = Views.align({"one": table("polars", ["a"]), "two": table("arrow", ["a"]).slice(0, 0)}, on="who")
    assert (
        V.present.tolist() == [[True, False]]
        and list(V.readable()) == ["one"]
        and len(pickle.loads(pickle.dumps(V))["two"]) == 1
    )


@pytest.mark.parametrize(
    "tables, options, kind, word",
    [
        ({}, {"on": "who"}, ValueError, "at least one table"),
        ([table("pandas", ["a"])], {"on": "who"}, TypeError, "dict"),
        ({"one": np.eye(2)}, {"on": "who"}, TypeError, "'one' is a ndarray"),
        (
            {"one": table("pandas", ["a"])},
            {"on": "who", "how": "left"},
            ValueError,
            "how must be one of 'outer', 'inner'",
        ),
        ({"one": table("pandas", ["a"])}, {"on": 3}, TypeError, "on must be"),
        (
            {"one": table("pandas", ["a"]), "two": table("arrow", ["a"], name="id")},
            {"on": "who"},
            ValueError,
            "'who' is not a column of.*'two'",
        ),
        (
            {"one": table("polars", ["a", "b", "a"])},
            {"on": "who"},
            ValueError,
            "'one' has the key 'a' twice, in rows 0 and 2",
        ),
        ({"one": table("polars", ["a"])}, {}, TypeError, "index of pandas.*'one' is a polars"),
        (
            {"one": pa.table({"who": ["a", None], "x": [1, 2]})},
            {"on": "who"},
            ValueError,
            "'one' has no key in row 1",
        ),
        (
            {"one": pd.DataFrame({"who": [1.0, np.nan], "x": [1, 2]})},
            {"on": "who"},
            ValueError,
            "'one' has no key in row 1",
        ),
        ({"one": pd.DataFrame({"who": ["a"]})}, {"on": "who"}, ValueError, "'one' has no columns besides"),
        (
            {"one": table("arrow", ["1"]), "two": table("arrow", [1])},
            {"on": "who"},
            ValueError,
            "texts.*'1' of 'one', 1 of 'two'",
        ),
    ],
)
def test_tables_that_cannot_be_joined(tables, options, kind, word):
    with pytest.raises(kind, match=word):
        Views.align(tables, **options)
