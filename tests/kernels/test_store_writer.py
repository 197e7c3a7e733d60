"""Writing kernel stores: what is written is what is read, whatever it came from, and nothing that is half is
taken for whole.
"""

import json
import os
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from raymkl import kernels as k
from raymkl.data.store import KernelStore, is_store
from raymkl.kernels import store_rows
from raymkl.kernels.store_writer import write_store
from tests.data.stores import BLOCK_SIZES, DEPTH, STACK, STACK32, VIEWS, N, sine_kernel, whole


@pytest.fixture
def small(tmp_path):
    """A store of the stack in float32, five rows per file."""
    return write_store(tmp_path / "small", STACK, block_rows=5, progress=False)


# -- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", [np.float32, "float64"])
def test_array_round_trip(tmp_path, block_rows, dtype):
    store = write_store(tmp_path / "k", STACK, block_rows=block_rows, dtype=dtype, progress=False)
    assert (
        store.shape == STACK.shape
        and store.ndim == 3
        and store.dtype == np.dtype(dtype)
        and store.names is None
    )
    assert store.nbytes == STACK.size * store.dtype.itemsize
    height = min(block_rows or N, N)
    assert store.row_ranges == tuple((start, min(start + height, N)) for start in range(0, N, height))
    found = whole(store)
    assert found.dtype == store.dtype
    np.testing.assert_array_equal(found, STACK.astype(dtype))


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
def test_list_of_matrices_round_trip(tmp_path, block_rows, monkeypatch):
    monkeypatch.setattr(store_rows, "PORTION_BYTES", 2 * N * DEPTH * 4)  # several portions per block
    file = np.memmap(tmp_path / "matrix", dtype=np.float64, mode="w+", shape=(N, N))
    file[:] = STACK[:, :, 1]
    matrices = [STACK[:, :, 0].tolist(), file, np.asfortranarray(STACK32[:, :, 2])]
    store = write_store(tmp_path / "k", matrices, block_rows=block_rows, progress=False)
    np.testing.assert_array_equal(whole(store), STACK32)


def test_one_matrix_integers_and_strides(tmp_path):
    gram = np.arange(16).reshape(4, 4) + np.arange(16).reshape(4, 4).T
    np.testing.assert_array_equal(
        whole(write_store(tmp_path / "one", gram, progress=False)), gram[:, :, None]
    )
    reversed_stack = STACK[::-1, ::-1, ::2]
    np.testing.assert_array_equal(
        whole(write_store(tmp_path / "strides", reversed_stack, progress=False)), STACK32[::-1, ::-1, ::2]
    )


BANK = [
    *k.rbf([0.01, 0.3, 20.0], view="a"),
    k.Linear(view="s"),
    k.Polynomial(degree=2, coef0=1.0, view=("a", [0, 2])),
    k.Chi2(gamma=0.5, view="h"),
    k.HistogramIntersection(view="h"),
    k.Laplacian(0.2, view="a"),
    k.RBF(0.1, view="a") * k.Linear(view="h") + 0.5 * k.Linear(view="h"),
    2.0 * k.RBF(0.05, view="s"),
    k.Custom(sine_kernel, view="a"),
    k.RBF(0.02, view="a"),  # of the first family again, out of order
]


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
@pytest.mark.parametrize(
    "block_bytes", [1, 8 * N * 8 * 6, 64 * 2**20], ids=["bands of a block", "bands of blocks", "one band"]
)
def test_kernels_over_views(tmp_path, monkeypatch, block_rows, block_bytes):
    monkeypatch.setattr(store_rows, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(store_rows, "PORTION_BYTES", 100 * len(BANK))
    store = write_store(tmp_path / "k", BANK, VIEWS, block_rows=block_rows, dtype=np.float64, progress=False)
    found = whole(store)
    expected = np.stack([kernel(VIEWS) for kernel in BANK], axis=2)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found, np.swapaxes(found, 0, 1))
    assert store.names == tuple(map(repr, BANK))


@pytest.mark.parametrize(
    "container",
    [
        np.asarray,
        sp.csr_matrix,
        pd.DataFrame,
        np.ndarray.tolist,
        lambda X: pa.table({str(j): X[:, j] for j in range(X.shape[1])}),
    ],
    ids=["ndarray", "sparse", "frame", "list", "table"],
)
def test_kernels_over_containers(tmp_path, container):
    X = VIEWS["a"]
    bank = [k.RBF(0.5), k.Linear()]
    store = write_store(tmp_path / "k", bank, container(X), block_rows=4, progress=False)
    expected = np.stack([kernel(X) for kernel in bank], axis=2)
    np.testing.assert_allclose(whole(store), expected, rtol=1e-6, atol=1e-6)


def test_columns_of_an_array_as_views(tmp_path):
    bank = [k.RBF(0.5, view=[0, 2]), k.Linear(view=1), k.RBF(0.5, view=slice(1, 3))]
    store = write_store(tmp_path / "k", bank, VIEWS["a"], block_rows=6, dtype=np.float64, progress=False)
    np.testing.assert_allclose(
        whole(store), np.stack([kernel(VIEWS["a"]) for kernel in bank], axis=2), rtol=1e-12, atol=1e-13
    )


def test_ready_made_matrices_among_kernels(tmp_path):
    X = {"a": VIEWS["a"], "stack": STACK, "matrix": STACK[:, :, 0]}
    bank = [
        k.Precomputed(view="stack", index=2),
        k.RBF(view="a"),
        k.Precomputed(view="matrix"),
        k.Precomputed(view="stack", index=0),
    ]
    store = write_store(tmp_path / "k", bank, X, block_rows=5, dtype=np.float64, progress=False)
    found = whole(store)
    for position, matrix in ((0, STACK[:, :, 2]), (2, STACK[:, :, 0]), (3, STACK[:, :, 0])):
        np.testing.assert_array_equal(found[:, :, position], matrix)
    np.testing.assert_allclose(found[:, :, 1], bank[1](X), rtol=1e-12)
    with pytest.raises(ValueError, match="index=3"):
        write_store(tmp_path / "no", [k.Precomputed(view="stack", index=3)], X)


def test_far_from_the_origin_rows_of_all_blocks_share_a_center(tmp_path):
    """Blocks that were centred one by one would lose their distances to each other."""
    X = VIEWS["a"] + 1e6 + np.arange(N)[:, None]
    found = whole(
        write_store(tmp_path / "k", [k.RBF(0.3)], X, block_rows=3, dtype=np.float64, progress=False)
    )[:, :, 0]
    direct = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(found, direct, rtol=1e-9)
    np.testing.assert_array_equal(np.diagonal(found), 1.0)


def test_a_function_that_is_not_quite_symmetric_is_stored_symmetric(tmp_path):
    def lopsided(A, B):
        return A @ B.T + 1e-9 * A[:, :1]

    store = write_store(
        tmp_path / "k", [k.Custom(lopsided)], VIEWS["a"], block_rows=4, dtype=np.float64, progress=False
    )
    found = whole(store)
    np.testing.assert_array_equal(found, np.swapaxes(found, 0, 1))
    np.testing.assert_allclose(found[:, :, 0], VIEWS["a"] @ VIEWS["a"].T, atol=1e-7)


def test_default_blocks_have_the_intended_size(tmp_path, monkeypatch):
    monkeypatch.setattr(store_rows, "BLOCK_BYTES", 4 * N * N * DEPTH // 2)
    assert write_store(tmp_path / "k", STACK, progress=False).row_ranges == ((0, 11), (11, 22), (22, 23))
    monkeypatch.setattr(store_rows, "BLOCK_BYTES", 1)
    assert len(write_store(tmp_path / "tiny", STACK, progress=False).row_ranges) == N


def test_files_are_plain_arrow(small):
    """As the module's docstring says, without any help of raymkl."""
    assert sorted(os.listdir(small.path)) == [
        *(f"rows-{s:06d}-{min(s + 5, N):06d}.arrow" for s in range(0, N, 5)),
        "store.json",
    ]
    for start, stop in small.row_ranges:
        file = str(small.path / f"rows-{start:06d}-{stop:06d}.arrow")
        column = pa.ipc.open_file(file).read_all()["kernels"]
        assert column.type == pa.fixed_shape_tensor(pa.float32(), [N, DEPTH])
        assert column.num_chunks == 1
        np.testing.assert_array_equal(column.chunk(0).to_numpy_ndarray(), STACK32[start:stop])
    description = json.loads((small.path / "store.json").read_text())
    assert (description["format"], description["n_rows"], description["n_kernels"], description["dtype"]) == (
        1,
        N,
        DEPTH,
        "float32",
    )


# -- progress and half-written stores --------------------------------------------------------------


def test_progress_is_called_after_every_block(tmp_path):
    calls = []
    write_store(
        tmp_path / "k", STACK, block_rows=10, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(10, N), (20, N), (N, N)]


@pytest.mark.parametrize(
    "progress, terminal, shown", [(None, True, True), (None, False, False), (False, True, False)]
)
def test_progress_line(tmp_path, monkeypatch, capsys, progress, terminal, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    write_store(tmp_path / "k", STACK, block_rows=10, progress=progress)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (f"k: {N} of {N} rows (100%)\n" in captured.err) == shown
    assert shown or captured.err == ""


def test_progress_of_another_kind_is_refused(tmp_path):
    with pytest.raises(TypeError, match="progress"):
        write_store(tmp_path / "k", STACK, progress="yes")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_half_a_store_is_not_visible(tmp_path, error):
    seen = []

    def stop_midway(done, total):
        seen.append(is_store(tmp_path / "k") or (tmp_path / "k").exists())
        if done >= 10:
            raise error("enough")

    with pytest.raises(error, match="enough"):
        write_store(tmp_path / "k", STACK, block_rows=5, progress=stop_midway)
    assert seen == [False, False]
    assert list(tmp_path.iterdir()) == []
    assert not is_store(tmp_path / "k")
    with pytest.raises(FileNotFoundError, match="no kernel store"):
        KernelStore(tmp_path / "k")
    write_store(tmp_path / "k", STACK, progress=False)  # the path is free for another attempt


def test_overwriting_is_refused(small, tmp_path):
    with pytest.raises(FileExistsError, match="already a kernel store"):
        write_store(small.path, STACK)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("...")
    with pytest.raises(FileExistsError, match="other files"):
        write_store(tmp_path / "other", STACK)
    (tmp_path / "file").write_text("...")
    with pytest.raises(FileExistsError, match="is a file"):
        write_store(tmp_path / "file", STACK)
    np.testing.assert_array_equal(whole(small), STACK32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other", "small"]


def test_a_store_that_appears_meanwhile_is_not_overwritten(tmp_path):
    def somebody_else(done, total):
        if not (tmp_path / "k").exists():
            write_store(tmp_path / "k", STACK[:3, :3], progress=False)

    with pytest.raises(FileExistsError, match="already a kernel store"):
        write_store(tmp_path / "k", STACK, progress=somebody_else)
    assert KernelStore(tmp_path / "k").shape == (3, 3, DEPTH)
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def test_empty_directories_and_new_parents_are_welcome(tmp_path):
    (tmp_path / "empty").mkdir()
    assert is_store(write_store(tmp_path / "empty", STACK, progress=False).path)
    assert is_store(write_store(tmp_path / "new" / "parents" / "k", STACK, progress=False).path)


def test_is_store(small, tmp_path):
    assert is_store(small.path) and is_store(str(small.path))
    for other in (tmp_path, tmp_path / "nothing", "", "\0", "x" * 10_000, None, 3, STACK, small):
        assert is_store(other) is False


# -- what cannot be written ------------------------------------------------------------------------


def with_value(value, place, array=STACK):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    "given, X, error, message",
    [
        (STACK[:5], None, ValueError, r"\(5, 23, 3\)"),
        (STACK[0, 0], None, ValueError, r"\(n, n, M\)"),
        (STACK[:, :, :0], None, ValueError, r"\(23, 23, 0\)"),
        (np.zeros((0, 0, 1)), None, ValueError, r"\(0, 0, 1\)"),
        ([], None, ValueError, "empty"),
        ([STACK[:, :, 0], STACK[:4, :4, 0]], None, ValueError, r"matrix 1 has shape \(4, 4\)"),
        ([STACK], None, ValueError, "matrix 0 has shape"),
        ([1.0, 2.0], None, ValueError, "matrix 0 has shape"),
        (STACK * 1j, None, ValueError, "complex"),
        (
            [STACK[:, :, 0], STACK[:, :, 0].astype(object)],
            None,
            ValueError,
            "matrix 1 must hold real numbers",
        ),
        (sp.eye(4), None, TypeError, "sparse"),
        ([sp.csr_matrix(np.eye(4))], None, TypeError, "sparse"),
        (STACK, VIEWS, ValueError, "X is only for kernels"),
        ([k.RBF()], None, ValueError, "need examples"),
        (k.RBF(), VIEWS["a"], TypeError, "as a list"),
        ([k.RBF(), STACK[:, :, 0]], VIEWS["a"], TypeError, "not both"),
        ([k.RBF(view="z")], VIEWS, ValueError, "view 'z' is not in X"),
        ([k.RBF()], np.zeros((0, 3)), ValueError, "0 rows"),
        ([k.Chi2()], VIEWS["a"], ValueError, "non-negative"),
        ([k.RBF(view="a")], {"a": VIEWS["a"], "b": VIEWS["a"][:3]}, ValueError, "different numbers of rows"),
    ],
)
def test_unusable_input_is_refused(tmp_path, given, X, error, message):
    with pytest.raises(error, match=message):
        write_store(tmp_path / "k", given, X, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"block_rows": 0},
        {"block_rows": 2.5},
        {"block_rows": True},
        {"dtype": np.int32},
        {"dtype": np.float16},
    ],
)
def test_unusable_options_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        write_store(tmp_path / "k", STACK, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value, word", [(np.nan, "NaN"), (np.inf, "infinite"), (-1e300, "too large for float32")]
)
@pytest.mark.parametrize("form", ["stack", "list", "precomputed"])
def test_values_that_are_not_finite_are_named(tmp_path, recwarn, value, word, form):
    stack = with_value(value, (13, 4, 2))
    given = {
        "stack": stack,
        "list": list(np.moveaxis(stack, 2, 0)),
        "precomputed": [k.Precomputed(index=m) for m in range(DEPTH)],
    }[form]
    with pytest.raises(ValueError, match=rf"kernel 2.* is .*{word}.* at row 13, column 4") as caught:
        write_store(
            tmp_path / "k", given, stack if form == "precomputed" else None, block_rows=4, progress=False
        )
    assert ("Precomputed(index=2)" in str(caught.value)) == (form == "precomputed")
    assert list(tmp_path.iterdir()) == [] and len(recwarn) == 0


@pytest.mark.parametrize(
    "container", [np.asarray, sp.csr_matrix, lambda X: X.astype(object)], ids=["dense", "sparse", "objects"]
)
def test_examples_that_are_not_finite_are_named(tmp_path, container):
    X = {"a": VIEWS["a"], "b": container(with_value(np.nan, (6, 2), VIEWS["a"]))}
    with pytest.raises(ValueError, match="view 'b' of X contains NaN or infinity in row 6"):
        write_store(tmp_path / "k", [k.RBF(view="a"), k.RBF(view="b")], X, progress=False)


def test_a_kernel_that_overflows_is_named(tmp_path):
    bank = [k.Linear(), k.Polynomial(degree=30)]
    X = with_value(50.0, (7, 0), 0.1 * VIEWS["a"])
    with pytest.raises(
        ValueError, match=r"kernel 1, Polynomial\(degree=30\), is infinite.* at row 7, column 7"
    ):
        write_store(tmp_path / "k", bank, X, progress=False)
    assert np.isfinite(whole(write_store(tmp_path / "k", bank, X, dtype=np.float64, progress=False))).all()


def test_a_function_that_fails_says_where(tmp_path, monkeypatch):
    monkeypatch.setattr(store_rows, "BLOCK_BYTES", 1)

    def fails_for_large(A, B):
        return np.where(np.maximum(A, B.T) > 19, np.nan, A * B.T)

    with pytest.raises(ValueError, match=r"rows 0:5 against columns 20:23: Custom\(fails_for_large\)"):
        write_store(
            tmp_path / "k", [k.Custom(fails_for_large)], np.arange(float(N)), block_rows=5, progress=False
        )


def test_text_reaches_a_function_of_the_user(tmp_path):
    words = np.array(["a", "bb", "cc", "a"], dtype=object)

    def same(A, B):
        return (A == B.T).astype(float)

    found = whole(write_store(tmp_path / "k", [k.Custom(same)], words, block_rows=3, progress=False))
    np.testing.assert_array_equal(found[:, :, 0], words[:, None] == words[None])
