"""Views: every accepted container gives the array that was put into it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from raymkl.data.views import is_frame, is_table, n_rows, select, view_key
from raymkl.kernels import Custom, Linear

X = np.random.default_rng(0).normal(size=(6, 4))
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])
TABLE = pa.table({name: X[:, i] for i, name in enumerate("abcd")})
MASK = np.array([True, False, False, True])


def linear(columns):
    return X[:, columns] @ X[:, columns].T


# What a view of an array with four columns means, as a list of column indices.
ARRAY_VIEWS = [
    (None, [0, 1, 2, 3]),
    (2, [2]),
    (-1, [3]),
    ([0, 2], [0, 2]),
    ([3, 0], [3, 0]),
    ((1, 2), [1, 2]),
    (np.array([1, 3]), [1, 3]),
    (slice(1, 3), [1, 2]),
    (slice(None, None, 2), [0, 2]),
    (MASK, [0, 3]),
    (MASK.tolist(), [0, 3]),
]


@pytest.mark.parametrize("view, columns", ARRAY_VIEWS, ids=lambda value: str(value))
@pytest.mark.parametrize(
    "container", [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array], ids=lambda c: c.__name__
)
def test_columns_of_arrays(container, view, columns):
    chosen = select(container(X), view)
    if sp.issparse(chosen):
        assert chosen.format == "csr"
        chosen = chosen.toarray()
    np.testing.assert_array_equal(chosen, X[:, columns])
    # The kernel goes through a hashable key of the view and must arrive at the same columns.
    np.testing.assert_allclose(Linear(view=view)(container(X)), linear(columns), atol=1e-12)


@pytest.mark.parametrize(
    "view, columns",
    [
        (None, [0, 1, 2, 3]),
        ("b", [1]),
        (["d", "a"], [3, 0]),
        (("a", "b"), [0, 1]),
        (2, [2]),
        ([0, 1], [0, 1]),
    ],
    ids=str,
)
def test_columns_of_frames(view, columns):
    np.testing.assert_array_equal(select(FRAME, view), X[:, columns])
    np.testing.assert_allclose(Linear(view=view)(FRAME), linear(columns), atol=1e-12)


def test_names_of_a_frame_come_before_positions():
    frame = pd.DataFrame(X, columns=[3, 2, 1, 0])
    np.testing.assert_array_equal(select(frame, 0), X[:, [3]])


def test_frame_column_of_vectors():
    frame = pd.DataFrame({"vector": list(X), "other": np.arange(6.0)})
    np.testing.assert_array_equal(select(frame, "vector"), X)


def test_boolean_mask_of_a_frame_selects_the_same_columns_as_of_an_array():
    """True and False must not be taken for the positions 1 and 0."""
    np.testing.assert_allclose(Linear(view=MASK)(FRAME), linear([0, 3]), atol=1e-12)


@pytest.mark.parametrize("view, columns", [(None, [0, 1, 2, 3]), ("c", [2]), (["d", "b"], [3, 1])], ids=str)
def test_numeric_columns_of_tables(view, columns):
    np.testing.assert_array_equal(select(TABLE, view), X[:, columns])
    np.testing.assert_allclose(Linear(view=view)(TABLE), linear(columns), atol=1e-12)


def vector_columns():
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    return {"list": lists, "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(X)}


@pytest.mark.parametrize("kind", ["list", "tensor"])
def test_vector_columns_of_tables(kind):
    table = pa.table({"v": vector_columns()[kind], "number": np.arange(6)})
    np.testing.assert_array_equal(select(table, "v"), X)
    np.testing.assert_array_equal(select(table), np.column_stack([X, np.arange(6)]))
    # Slices and chunks share buffers with the whole column and must not read beyond their rows.
    np.testing.assert_array_equal(select(table.slice(2, 3), "v"), X[2:5])
    np.testing.assert_array_equal(
        select(pa.concat_tables([table.slice(4, 2), table]), "v"), np.vstack([X[4:], X])
    )


def test_null_vectors_of_a_table_do_not_change_the_width():
    """Arrow drops null lists when it flattens: their numbers would land in other rows."""
    column = pa.array([[1.0, 2.0], None, [3.0, 4.0], None], pa.list_(pa.float64(), 2))
    try:
        chosen = select(pa.table({"v": column}), "v")
    except ValueError:
        return
    np.testing.assert_array_equal(chosen, [[1, 2], [np.nan, np.nan], [3, 4], [np.nan, np.nan]])


@pytest.mark.parametrize("kind", ["list", "tensor"])
def test_a_table_without_rows(kind):
    assert select(pa.table({"v": vector_columns()[kind]}).slice(0, 0), "v").shape == (0, 4)


VIEWS = {"dense": X, "sparse": sp.csc_matrix(X), "frame": FRAME, "table": TABLE, "one": X[:, 0], 7: X[:, :2]}


@pytest.mark.parametrize(
    "view, columns",
    [
        ("dense", [0, 1, 2, 3]),
        ("sparse", [0, 1, 2, 3]),
        ("frame", [0, 1, 2, 3]),
        ("table", [0, 1, 2, 3]),
        ("one", [0]),
        (7, [0, 1]),
        (("dense", [1, 2]), [1, 2]),
        (("dense", slice(0, 2)), [0, 1]),
        (("dense", MASK), [0, 3]),
        (("sparse", [3, 1]), [3, 1]),
        (("frame", ["a", "c"]), [0, 2]),
        (("table", ["b"]), [1]),
        (("dense", 1), [1]),
        (("frame", "b"), [1]),
    ],
    ids=str,
)
def test_dict_of_views(view, columns):
    chosen = select(VIEWS, view)
    np.testing.assert_array_equal(chosen.toarray() if sp.issparse(chosen) else chosen, X[:, columns])
    np.testing.assert_allclose(Linear(view=view)(VIEWS), linear(columns), atol=1e-12)


def test_single_view_needs_no_name():
    np.testing.assert_array_equal(select({"only": X}), X)


@pytest.mark.parametrize(
    "container, view, words",
    [
        (VIEWS, "audio", ["audio", "dense", "sparse", "frame"]),
        (VIEWS, None, ["view=", "dense", "sparse", "frame"]),
        (VIEWS, ("audio", [0]), ["audio", "dense"]),
        (VIEWS, ("frame", ["z"]), ["'z'", "'a'", "'d'"]),
        (FRAME, "z", ["'z'", "'a'", "'d'"]),
        (FRAME, ["a", "z"], ["'z'", "'a'", "'d'"]),
        (TABLE, ["z"], ["'z'", "'a'", "'d'"]),
        (X, "z", ["'z'", "4 columns"]),
        (X, 4, ["4", "4 columns"]),
        (X, [0, -5], ["-5", "4 columns"]),
        (X, [True, False], ["True", "4 columns"]),
        (X[:, 0], 0, ["0", "(6,)"]),
    ],
    ids=lambda value: str(value) if isinstance(value, str | list | tuple | int | None) else "X",
)
def test_errors_name_the_view_and_what_is_there(container, view, words):
    for call in (lambda: select(container, view), lambda: Linear(view=view)(container)):
        with pytest.raises(ValueError) as error:
            call()
        assert all(word in str(error.value) for word in words), str(error.value)


def test_long_lists_of_columns_are_cut():
    with pytest.raises(ValueError, match="100 in all") as error:
        select(pd.DataFrame(np.zeros((2, 100))), "z")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("kind", ["coo", "lil"])
def test_columns_of_other_sparse_formats(kind):
    np.testing.assert_array_equal(select(sp.csr_matrix(X).asformat(kind), [0, 2]).toarray(), X[:, [0, 2]])


def test_shapes_that_are_not_tables_pass_through():
    stack = np.zeros((3, 5, 2))
    assert select(stack).shape == (3, 5, 2)
    words = select(np.array(["one", "three"], dtype=object))
    lengths = Custom(lambda A, B: np.array([[len(a) * len(b) for b in B[:, 0]] for a in A[:, 0]]))
    np.testing.assert_array_equal(lengths(words), [[9, 15], [15, 25]])


def test_number_of_rows():
    assert [n_rows(part) for part in (X, X.tolist(), sp.csr_matrix(X), FRAME, TABLE, VIEWS)] == [6] * 6
    with pytest.raises(ValueError, match=r"different numbers of rows.*'a': 6.*'b': 5"):
        n_rows({"a": X, "b": X[:5]})
    with pytest.raises(ValueError, match="empty"):
        n_rows({})
    with pytest.raises(ValueError, match="scalar"):
        n_rows(np.array(1.0))


def test_containers_are_recognised():
    assert is_frame(FRAME) and not is_frame(TABLE) and not is_frame(X)
    assert is_table(TABLE) and not is_table(FRAME) and not is_table(X)


@pytest.mark.parametrize(
    "view, same", [([0, 1], np.array([0, 1])), (slice(1, 3), slice(1, 3)), (("a", [0]), ("a", np.array([0])))]
)
def test_keys_are_hashable_and_equal_for_equal_views(view, same):
    assert view_key(view) == view_key(same) and hash(view_key(view)) == hash(view_key(same))


@pytest.mark.parametrize(
    "one, other", [([0, 1], [False, True]), (slice(0, 1), [0, 1]), ("a", ["b"]), ([0, 1], [1, 0])], ids=str
)
def test_keys_differ_for_views_that_select_differently(one, other):
    """Kernels with equal keys share one statistic, so a mask must not look like column numbers."""
    assert view_key(one) != view_key(other)
