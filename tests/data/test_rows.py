"""Rows as Arrow: nothing is lost on the way there and back, and dense rows are not copied."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from raymkl.data.rows import concatenate, from_arrow, from_table, split_ranges, take, to_arrow, to_table

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(7, 5))
ARRAYS = {
    "float64": DENSE,
    "float32": DENSE.astype(np.float32),
    "int": np.arange(14).reshape(7, 2),
    "fortran": np.asfortranarray(DENSE),
    "slice": RNG.normal(size=(20, 9))[3:10, ::2],
    "stack": RNG.normal(size=(7, 9, 3)),
    "float32 stack": RNG.normal(size=(7, 9, 3)).astype(np.float32),
    "one column": DENSE[:, :1],
    "no rows": DENSE[:0],
    "empty stack": np.empty((0, 9, 3)),
}


def sparse(n=7, width=6, dtype=np.float64, seed=1):
    return sp.random(n, width, density=0.3, format="csr", random_state=seed, dtype=dtype)


@pytest.mark.parametrize("name", ARRAYS)
def test_dense_rows_come_back(name):
    array = ARRAYS[name]
    table = to_table({"v": array}, ["v"])
    assert table.num_rows == len(array)
    back = from_table(table, ["v"])["v"]
    assert back.dtype == array.dtype and back.shape == array.shape
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("part", [slice(None), slice(3, 9), slice(5, 5)], ids=str)
def test_numbers_of_every_kind_go_through_arrow_without_a_copy(code, part):
    array = np.arange(12).astype(code)
    values = to_arrow(array)
    assert values.equals(pa.array(array))
    back = from_arrow(values[part])
    assert back.dtype == array.dtype and not back.flags.writeable
    np.testing.assert_array_equal(back, array[part])
    assert len(back) == 0 or np.shares_memory(back, array)


def test_arrow_arrays_with_other_contents_are_converted():
    np.testing.assert_array_equal(from_arrow(to_arrow(np.array([True, False, True]))), [True, False, True])
    np.testing.assert_array_equal(from_arrow(pa.array([1.0, None, 3.0])), [1.0, np.nan, 3.0])


@pytest.mark.parametrize("name", ["float32", "stack"])
def test_parts_of_a_table_are_those_rows(name):
    """Slices keep the memory of the whole table, and pieces of several are joined."""
    array = ARRAYS[name]
    table = to_table({None: array}, [None])
    np.testing.assert_array_equal(from_table(table.slice(2, 4), [None])[None], array[2:6])
    joined = pa.concat_tables([table.slice(5, 2), table.slice(1, 3)])
    np.testing.assert_array_equal(from_table(joined, [None])[None], np.concatenate([array[5:7], array[1:4]]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dense_rows_are_not_copied(dtype):
    array = np.ascontiguousarray(DENSE, dtype)
    back = from_table(to_table({None: array}, [None]), [None])[None]
    assert np.shares_memory(back, array)
    assert not back.flags.writeable


@pytest.mark.parametrize(
    "matrix",
    [
        sparse(),
        sparse(dtype=np.float32),
        sparse()[:0],
        sparse()[3:],
        sp.csr_matrix((7, 6)),
        sparse().tocsc(),
        sp.csr_array(sparse()),
    ],
    ids=["float64", "float32", "no rows", "slice", "all zero", "csc", "array"],
)
def test_sparse_rows_come_back(matrix):
    back = from_table(to_table({0: matrix}, [0]), [0])[0]
    assert sp.issparse(back) and back.format == "csr"
    assert back.dtype == matrix.dtype and back.shape == matrix.shape
    np.testing.assert_array_equal(back.toarray(), matrix.toarray())


def test_strings_come_back():
    words = np.array(["ACGT", "A", "", "GG", "T", "C", "AA"], dtype=object)
    np.testing.assert_array_equal(from_table(to_table({"s": words}, ["s"]), ["s"])["s"], words)


def test_many_views_keep_their_names_and_order():
    """View keys of any kind: Arrow's columns are named by position."""
    views = ["b", None, ("columns", 1, 2), 0]
    rows = dict(zip(views, (DENSE, sparse(), ARRAYS["stack"], ARRAYS["float32"]), strict=True))
    back = from_table(to_table(rows, views), views)
    assert list(back) == views
    for view, array in rows.items():
        dense = back[view].toarray() if sp.issparse(array) else back[view]
        np.testing.assert_array_equal(dense, array.toarray() if sp.issparse(array) else array)


def test_a_table_in_pieces_is_read_as_one():
    parts = [to_table({"a": DENSE[i : i + 3], "s": sparse()[i : i + 3]}, ["a", "s"]) for i in (0, 3, 6)]
    back = from_table(pa.concat_tables(parts), ["a", "s"])
    np.testing.assert_array_equal(back["a"], DENSE)
    np.testing.assert_array_equal(back["s"].toarray(), sparse().toarray())


def test_a_slice_of_a_table_is_those_rows():
    table = to_table({"a": DENSE, "s": sparse()}, ["a", "s"]).slice(2, 4)
    back = from_table(table, ["a", "s"])
    np.testing.assert_array_equal(back["a"], DENSE[2:6])
    np.testing.assert_array_equal(back["s"].toarray(), sparse()[2:6].toarray())


def test_a_table_survives_arrow_files():
    sink = pa.BufferOutputStream()
    table = to_table({"a": DENSE, "s": sparse()}, ["a", "s"])
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    back = from_table(pa.ipc.open_stream(sink.getvalue()).read_all(), ["a", "s"])
    np.testing.assert_array_equal(back["a"], DENSE)
    np.testing.assert_array_equal(back["s"].toarray(), sparse().toarray())


def test_a_view_without_columns_is_refused():
    with pytest.raises(ValueError, match="no columns"):
        to_table({"a": np.empty((5, 0))}, ["a"])


@pytest.mark.parametrize("n, parts", [(10, 1), (10, 3), (10, 10), (3, 7), (0, 2), (1000003, 17)])
def test_bounds_cover_all_rows_evenly(n, parts):
    bounds = split_ranges(n, parts)
    assert len(bounds) == parts
    assert bounds[0][0] == 0 and bounds[-1][1] == n
    assert all(left[1] == right[0] for left, right in pairwise(bounds))
    sizes = [b - a for a, b in bounds]
    assert min(sizes) >= 0 and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "index", [np.array([3, 0, 3]), slice(2, 5), np.array([], np.int64), np.arange(7) % 2 == 0], ids=str
)
def test_take(index):
    taken = take({"a": DENSE, "s": sparse()}, index)
    np.testing.assert_array_equal(taken["a"], DENSE[index])
    np.testing.assert_array_equal(taken["s"].toarray(), sparse().toarray()[index])


@pytest.mark.parametrize("cuts", [[], [3], [0, 2, 2, 7]], ids=str)
def test_concatenate_undoes_taking_parts(cuts):
    rows = {"a": DENSE, "s": sparse(), "k": ARRAYS["stack"]}
    edges = [0, *cuts, 7]
    joined = concatenate([take(rows, slice(a, b)) for a, b in pairwise(edges)])
    assert joined["s"].format == "csr"
    np.testing.assert_array_equal(joined["a"], DENSE)
    np.testing.assert_array_equal(joined["s"].toarray(), sparse().toarray())
    np.testing.assert_array_equal(joined["k"], ARRAYS["stack"])
