"""Rows of ready-made matrices: all columns, by reference, and numbers that stay with them."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from raymkl import Views
from raymkl.data.rows import from_table, to_table
from raymkl.data.store import PartOfStore, StoreRows
from raymkl.kernels import write_store

N = 9
K = np.random.default_rng(0).normal(size=(N, N, 2))
K = K + K.transpose(1, 0, 2)
ROWS = st.lists(st.integers(0, N - 1), min_size=1, max_size=14)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrices")
    np.save(folder / "map.npy", K)
    return {
        "store": write_store(folder / "store", K, dtype="float64"),
        "map": np.load(folder / "map.npy", mmap_mode="r"),
        "array": K,
    }


@pytest.mark.parametrize("kind", ["array", "map", "store"])
@given(first=ROWS, second=st.lists(st.integers(0, 13), max_size=6))
def test_rows_keep_all_columns_and_their_numbers(store, kind, first, second):
    V = Views({"k": store[kind], "v": np.arange(N)}, matrices=["k"])
    numbers = np.array(first)
    part = V[first]
    if second:
        again = [row % len(first) for row in second]
        part, numbers = part[again], numbers[again]
    rows = part.readable()["k"]
    assert (
        part.shape == (len(numbers), 2)
        and np.array_equal(rows.numbers, numbers)
        and part["k"].shape == (len(numbers), N, 2)
    )
    assert np.array_equal(np.asarray(part["k"]), K[numbers]) and np.array_equal(
        rows.columns(numbers), K[np.ix_(numbers, numbers)]
    )
    back = pickle.loads(pickle.dumps(part)).readable()["k"]
    assert back.identity == rows.identity and np.array_equal(
        back.columns(numbers[:1]), K[numbers][:, numbers[:1]]
    )
    both = Views.concat([part, pickle.loads(pickle.dumps(V))])
    assert np.array_equal(np.asarray(both["k"]), np.concatenate([K[numbers], K])) and both.matrices == ("k",)


def test_no_copy_of_what_came_in_and_none_of_what_stays_behind():
    V = Views({"k": K}, matrices="k")
    assert (
        np.shares_memory(V["k"], K)
        and np.shares_memory(V[2:5]["k"], K)
        and not V["k"].flags.writeable
        and K.flags.writeable
    )
    assert V[[1, 5]].readable()["k"].source.base is K  # by reference
    big = Views({"k": np.zeros((400, 400))}, matrices=["k"])
    assert len(pickle.dumps(big[:4])) < 5 * 400 * 8 < len(pickle.dumps(big))


def test_a_whole_store_stays_a_store(store):
    V = Views({"k": store["store"]}, matrices=["k"])
    assert (
        V["k"] is store["store"]
        and V[::-1]["k"].shape == (N, N, 2)
        and not isinstance(V[::-1]["k"], np.ndarray)
    )
    again = Views({"k": str(store["store"].path)}, matrices=["k"])
    assert len(Views.concat([V, again])) == 2 * N  # the same matrix


@given(numbers=ROWS)
def test_part_of_a_store_is_read_as_a_store(store, numbers):
    """In the place where it lies, also after it has travelled as Arrow."""
    numbers = np.array(numbers)
    part, expected = PartOfStore(store["store"], numbers), K[np.ix_(numbers, numbers)]
    n = len(numbers)
    rows = from_table(to_table({"k": StoreRows(part, n // 2, n)}, ["k"]), ["k"])["k"]
    every = np.arange(n)
    assert part.shape == expected.shape == (n, n, 2) and rows.shape == (n - n // 2, n, 2)
    assert np.array_equal(part.entries(every, every[::-1]), expected[:, ::-1])
    assert np.array_equal(part.row_segments(every[::-1], n // 2, n), expected[::-1, n // 2 :])
    assert np.array_equal(rows.diagonal(), expected[every, every][n // 2 :])
    assert np.array_equal(rows.entries(every[:1], every), expected[:1])


def test_rows_that_are_not_there_are_stood_in_for():
    broken = K.copy()
    broken[[1, 4]], broken[:, [1, 4]] = np.nan, np.nan
    V = Views({"k": broken}, matrices=["k"], present="infer")
    assert np.flatnonzero(~V.present[:, 0]).tolist() == [1, 4]
    rows = V.readable()["k"]
    assert np.isfinite(rows.columns(rows.numbers)).all()


@pytest.mark.parametrize(
    "views, kind, word",
    [
        ({"k": sp.eye(3).tocsr()}, TypeError, "'k' is named in matrices.*csr_matrix"),
        ({"k": np.ones(3)}, TypeError, r"shape \(3,\)"),
        ({"k": np.array([["a"]])}, TypeError, "numbers"),
        ({"k": "/nowhere"}, ValueError, "not the path of a kernel store"),
        ({"other": np.eye(3)}, ValueError, "'k'"),
    ],
)
def test_what_is_no_matrix(views, kind, word):
    with pytest.raises(kind, match=word):
        Views(views, matrices=["k"])


def test_rows_of_two_matrices_do_not_mix():
    with pytest.raises(ValueError, match="'k' holds rows of 2 ready-made matrices"):
        Views.concat([Views({"k": K}, matrices=["k"]), Views({"k": K}, matrices=["k"])])
