"""Row sources hand out exactly the rows of the tables behind them, in parts, and read no more than they
must.
"""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.data import sources
from raymkl.data.lazy_rows import SourceView, ViewKind, fetch
from raymkl.data.rows import from_block, take, to_block
from raymkl.data.sources import ArrowSource, ParquetSource, open_source
from raymkl.engine.faults.checkpoint import identity_of
from raymkl.engine.problem import Head, Problem
from raymkl.kernels.formulas import RBF
from raymkl.kernels.pairs.families import group
from raymkl.optim.losses import Hinge
from raymkl.optim.norms import LpNorm

N, D = 53, 4
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N, D)).astype(np.float32)


def vectors(array):
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


TABLE = pa.table(
    {
        "a": RNG.normal(size=N),
        "b": pa.array(np.arange(N), pa.int32()),
        "text": [f"row {i}" for i in range(N)],
        "v": vectors(VECTORS),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(VECTORS.reshape(N, 2, 2)),
        "list": pa.array(VECTORS.tolist(), pa.list_(pa.float32())),
    }
)
# What comes out: all vectors are fixed-size lists.
PLAIN = TABLE.set_column(4, "tensor", TABLE["v"]).set_column(5, "list", TABLE["v"])


def write_arrow(table, path, rows, **options):
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table, max_chunksize=rows)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same table in every form, by name."""
    folder = tmp_path_factory.mktemp("tables")
    pq.write_table(TABLE, folder / "one.parquet", row_group_size=N)
    pq.write_table(TABLE, folder / "groups.parquet", row_group_size=7)
    write_arrow(TABLE, folder / "batches.arrow", 9)
    write_arrow(TABLE, folder / "packed.arrow", 9, compression="zstd")
    (folder / "parquet").mkdir()
    (folder / "arrow").mkdir()
    for number, (first, last) in enumerate([(0, 20), (20, 20), (20, 31), (31, N)]):
        pq.write_table(
            TABLE.slice(first, last - first), folder / "parquet" / f"part-{number}.parquet", row_group_size=6
        )
        write_arrow(TABLE.slice(first, last - first), folder / "arrow" / f"part-{number}.arrow", 5)
    (folder / "parquet" / "_SUCCESS").touch()
    return {path.name: path for path in folder.iterdir()}


FORMS = ["one.parquet", "groups.parquet", "parquet", "batches.arrow", "packed.arrow", "arrow"]


@pytest.mark.parametrize("form", FORMS)
def test_any_part_of_any_form(files, form):
    source = open_source(files[form])
    assert source.n_rows == N and source.column_names == TABLE.column_names
    assert type(source) is (ParquetSource if "parquet" in form else ArrowSource)

    @given(
        st.integers(0, N),
        st.integers(0, N),
        st.integers(1, N),
        st.lists(st.sampled_from(TABLE.column_names), min_size=1, unique=True),
    )
    @settings(max_examples=25, deadline=None)
    def check(first, last, batch_rows, columns):
        first, last = sorted((first, last))
        parts = list(source.stream(first, last, columns, batch_rows))
        assert all(0 < part.num_rows <= batch_rows for part in parts)
        expected = PLAIN.select(columns).slice(first, last - first)
        assert source.read(first, last, columns).equals(expected.cast(expected.schema))
        if parts:
            assert pa.concat_tables(parts).equals(expected)

    check()


@pytest.mark.parametrize("form", FORMS)
def test_single_rows_of_any_form(files, form):
    source = open_source(files[form])

    @given(st.sets(st.integers(0, N - 1)))
    @settings(max_examples=25, deadline=None)
    def check(chosen):
        ids = np.array(sorted(chosen), int)
        assert source.take(ids, ["b", "list"])["b"].to_pylist() == ids.tolist()

    check()


def test_only_the_row_groups_that_are_needed_are_read(files, monkeypatch):
    source, asked = ParquetSource(files["groups.parquet"]), []

    def spy(file, *args, row_groups, **more):
        asked.append(row_groups)
        return original(file, *args, row_groups=row_groups, **more)

    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    source.read(15, 27, ["a"])
    assert asked == [[2, 3]]
    asked.clear()
    source.take(np.array([0, 1, 51, 52]), ["a"])
    assert asked == [[0], [7]]


def test_batches_follow_the_size_of_rows(files, monkeypatch):
    source = ParquetSource(files["one.parquet"])
    monkeypatch.setattr(sources.source, "BATCH_BYTES", 160)
    assert [part.num_rows for part in source.iterate(["v"])] == [10] * 5 + [3]  # 16 bytes a row
    assert [part.num_rows for part in source.iterate(["a"])] == [20, 20, 13]
    assert source.row_bytes(["text"]) >= 6  # measured


@pytest.mark.parametrize("form", ["parquet", "batches.arrow"])
def test_a_source_is_small_and_travels(files, form):
    source = open_source(files[form])
    data = pickle.dumps(source)
    assert len(data) < 4000
    assert pickle.loads(data).read(3, 40).equals(source.read(3, 40))
    assert pickle.loads(data).fingerprint() == source.fingerprint()


def test_columns_in_another_order_and_indices_of_pandas(tmp_path):
    pq.write_table(TABLE.select(["a", "b"]), tmp_path / "0.parquet")
    pq.write_table(TABLE.select(["b", "a"]), tmp_path / "1.parquet")
    assert ParquetSource(tmp_path).read(N, 2 * N, ["a", "b"]).equals(TABLE.select(["a", "b"]))
    pq.write_table(
        TABLE.select(["a"]).append_column("__index_level_0__", TABLE["b"]), tmp_path / "index.parquet"
    )
    assert ParquetSource(tmp_path / "index.parquet").column_names == ["a"]
    several = ParquetSource([tmp_path / "1.parquet", tmp_path / "0.parquet"])
    assert several.n_rows == 2 * N and several.column_names == ["b", "a"]


# -- views -----------------------------------------------------------------------------------------


def views_of(source):
    return {
        "v": SourceView(source, ViewKind("v", ("v",), np.dtype(np.float32), D)),
        None: SourceView(source, ViewKind(None, ("a", "b"), np.dtype(np.float64), 2)),
    }


DENSE = {"v": VECTORS, None: np.stack([TABLE["a"].to_numpy(), TABLE["b"].to_numpy()], axis=1)}


@given(st.integers(0, N), st.integers(0, N))
@settings(max_examples=20, deadline=None)
def test_views_become_the_arrays_that_they_stand_for(files, first, last):
    first, last = sorted((first, last))
    part = take(views_of(open_source(files["groups.parquet"])), slice(first, last))
    block = to_block(part, ["v", None])
    assert len(pickle.dumps(block)) < 4000  # where the rows are, not the rows
    rows = from_block(pickle.loads(pickle.dumps(block)), ["v", None])
    for key, array in DENSE.items():
        assert part[key].shape == array[first:last].shape and rows[key].dtype == array.dtype
        np.testing.assert_array_equal(rows[key], array[first:last])


def test_single_rows_of_views(files):
    views = views_of(open_source(files["batches.arrow"]))
    ids = np.array([40, 3, 3, 17])
    for key, array in fetch(views, ids).items():
        np.testing.assert_array_equal(array, DENSE[key][ids])
    np.testing.assert_array_equal(views["v"][10:30][np.array([0, 19])], VECTORS[[10, 29]])
    assert views["v"].astype(np.float64)[np.array([1])].dtype == np.float64


def test_a_checkpoint_knows_other_files(files, tmp_path):
    head = Head(np.ones(N), np.ones(N), Hinge(), LpNorm(1.0))
    problem = Problem(["v", None], group([RBF(view="v"), RBF()]), N, 2)
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path)
    before = identity_of(views_of(ParquetSource(path)), problem, [head])
    assert identity_of(views_of(ParquetSource(path)), problem, [head]) == before
    pq.write_table(TABLE, path, row_group_size=10)
    changed = identity_of(views_of(ParquetSource(path)), problem, [head])
    assert {name for name in before if changed[name] != before[name]} == {"data"}


# -- Datasets --------------------------------------------------------------------------------------


def test_datasets(ray_cluster, files):
    import ray.data

    from raymkl.data.ray_dataset import DatasetSource

    blocks = [TABLE.select(["a", "b", "v"]).slice(first, 20) for first in (0, 20, 40)]
    source = open_source(ray.data.from_arrow(blocks))
    assert type(source) is DatasetSource and source.n_rows == N and list(source.counts) == [20, 20, 13]
    assert source.read(15, 45).equals(PLAIN.select(["a", "b", "v"]).slice(15, 30))
    assert source.take(np.array([0, 39, 52]), ["b"])["b"].to_pylist() == [0, 39, 52]
    assert source.fingerprint() == open_source(ray.data.from_arrow(blocks)).fingerprint()
    assert source.fingerprint() != open_source(ray.data.from_arrow(blocks[::-1])).fingerprint()

    @ray.remote(num_cpus=0.5)
    def elsewhere(source):
        return source.read(15, 45)

    assert ray.get(elsewhere.remote(source)).equals(source.read(15, 45))
    # Tensors in Ray's own format, blocks of pandas, and a Dataset that must be executed first.
    images = ray.data.from_numpy(VECTORS.reshape(N, 2, 2)).map_batches(
        lambda batch: batch, batch_format="pandas"
    )
    assert (
        open_source(images).read(0, N)["data"].combine_chunks().flatten().to_numpy().reshape(N, D).tolist()
        == VECTORS.tolist()
    )


# -- errors ----------------------------------------------------------------------------------------


def test_files_that_cannot_be_used(files, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or directory"):
        open_source(tmp_path / "missing.parquet")
    with pytest.raises(FileNotFoundError, match=r"other\.parquet"):
        ParquetSource([files["one.parquet"], tmp_path / "other.parquet"])
    with pytest.raises(ValueError, match=r"holds no Parquet files.*\.parquet"):
        open_source(tmp_path)
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"neither a Parquet file nor an Arrow.*b'a,b"):
        open_source(str(tmp_path / "text.csv"))
    with pytest.raises(ValueError, match="not a Parquet file"):
        ParquetSource(tmp_path / "text.csv")
    with pytest.raises(ValueError, match="not an Arrow IPC file"):
        ArrowSource(files["one.parquet"])
    with pytest.raises(ValueError, match="empty list"):
        ParquetSource([])
    with pytest.raises(TypeError, match="paths, got a int"):
        ParquetSource([3])
    (tmp_path / "nested" / "year=2020").mkdir(parents=True)
    pq.write_table(TABLE, tmp_path / "nested" / "year=2020" / "x.parquet")
    with pytest.raises(ValueError, match="year=2020"):
        open_source(tmp_path / "nested")
    assert open_source([1, 2]) is None and open_source(np.ones(3)) is None


@pytest.mark.parametrize("form", ["one.parquet", "batches.arrow"])
@pytest.mark.parametrize("kept", [0.05, 0.5, 0.98])
def test_cut_files(files, tmp_path, form, kept):
    data = files[form].read_bytes()
    path = tmp_path / form
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ValueError, match=r"cannot|can be read|damaged"):
        open_source(path).read(0, N)


def test_tables_without_rows_and_of_different_columns(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="0 rows"):
        open_source(tmp_path / "empty.parquet")
    (tmp_path / "mixed").mkdir()
    pq.write_table(TABLE.select(["a"]), tmp_path / "mixed" / "0.parquet")
    pq.write_table(TABLE.select(["a", "b"]), tmp_path / "mixed" / "1.parquet")
    with pytest.raises(
        ValueError, match=r"0\.parquet has no column 'b' and .*1\.parquet has column 'b' of type int32"
    ):
        open_source(tmp_path / "mixed")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "mixed" / "1.parquet")
    with pytest.raises(ValueError, match=r"'a' of type double and .*'a' of type string"):
        open_source(tmp_path / "mixed")


def test_lists_of_varying_length_name_the_row(tmp_path):
    ragged = [[1.0, 2.0]] * 30 + [[1.0]] + [[1.0, 2.0]] * 3
    pq.write_table(pa.table({"v": ragged}), tmp_path / "ragged.parquet", row_group_size=8)
    with pytest.raises(ValueError, match=r"column 'v'.*varying length: 2 in row 0, 1 in row 30"):
        open_source(tmp_path / "ragged.parquet").read(20, 34)


def test_rows_and_columns_that_are_not_there(files):
    source = open_source(files["one.parquet"])
    with pytest.raises(ValueError, match=r"no column 'z'.*'text'"):
        source.read(0, 1, ["z"])
    with pytest.raises(ValueError, match="rows 50 to 60"):
        source.read(50, 60)
    with pytest.raises(ValueError, match="rows 3 to 60"):
        source.take(np.array([3, 60]))


def test_a_file_that_changed_since(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path)
    source = open_source(path)
    pq.write_table(TABLE.slice(0, 20), path)
    with pytest.raises(ValueError, match="has changed since"):
        source.read(0, 10)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="all nodes must see"):
        source.read(0, 10)
