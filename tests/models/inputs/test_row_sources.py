"""Models from paths and Datasets are the models from the same rows in memory, and the driver never holds all
rows.
"""

import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raymkl
from raymkl import (
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLRegressor,
    RayParams,
)
from raymkl.data import sources
from raymkl.data.sources import ParquetSource
from raymkl.kernels import (
    RBF,
    Chi2,
    Custom,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Spectrum,
    WeightedDegree,
    rbf,
)
from raymkl.models import sources as row_sources
from tests.reference import apart, noisy_problem

N = 120
X, Y = noisy_problem(N, seed=31)
X_TEST, Y_TEST = noisy_problem(50, seed=32)
NAMES = [f"f{j}" for j in range(X.shape[1])]
LABELS = np.where(Y > 0, "yes", "no")
BANK = [*rbf([0.05, 0.5]), Linear(), Polynomial(degree=2, coef0=1.0), Laplacian(gamma=0.2)]


def columns(array, labels=None):
    table = {name: array[:, j] for j, name in enumerate(NAMES)}
    return pa.table(table if labels is None else {**table, "label": labels})


def vectors(array):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).ravel()), array.shape[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(columns(X, LABELS), folder / "train.parquet", row_group_size=17)
    pq.write_table(
        columns(X_TEST, np.where(Y_TEST > 0, "yes", "no")), folder / "test.parquet", row_group_size=11
    )
    (folder / "parts").mkdir()
    for part in range(3):
        pq.write_table(columns(X, LABELS).slice(40 * part, 40), folder / "parts" / f"{part}.parquet")
    wide = pa.table({"left": vectors(X[:, :2]), "right": vectors(X[:, 2:]), "label": Y})
    with pa.OSFile(str(folder / "train.arrow"), "wb") as sink, pa.ipc.new_file(sink, wide.schema) as writer:
        writer.write_table(wide, max_chunksize=13)
    return folder


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Every pass takes several batches."""
    monkeypatch.setattr(sources.source, "MOST_BATCH_ROWS", 23)


def model(kind=MKLClassifier, shards=3, **more):
    return kind(
        **{
            "kernels": BANK,
            "tol": 1e-6,
            "engine": "local",
            "ray_params": RayParams(num_shards=shards),
            **more,
        }
    )


def same(first, second, first_X, second_X):
    """Equal to the last bits: the shards compute with the same numbers."""
    np.testing.assert_array_equal(first.support_, second.support_)
    np.testing.assert_allclose(second.dual_coef_, first.dual_coef_, rtol=1e-12)
    np.testing.assert_array_equal(second.kernel_weights_, first.kernel_weights_)
    assert apart(second.decision_function(second_X), first.decision_function(first_X)) < 1e-12


# -- the same model --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"normalize": "spherical"},
        {"normalize": "multiplicative"},
        {"dtype": "float32"},
        {"kernels": None},
    ],
)
def test_parquet(folder, more):
    direct = model(**more).fit(X, LABELS)
    read = model(**more).fit(str(folder / "train.parquet"), "label")
    same(direct, read, X_TEST, folder / "test.parquet")
    same(direct, read, X_TEST, columns(X_TEST))
    assert read.classes_.tolist() == ["no", "yes"] and read.n_features_in_ == X.shape[1]
    assert read.score(folder / "test.parquet", "label") == direct.score(
        X_TEST, np.where(Y_TEST > 0, "yes", "no")
    )
    np.testing.assert_array_equal(read.predict(folder / "test.parquet"), direct.predict(X_TEST))


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("form", ["parts", "train.parquet"])
def test_directories_labels_in_memory_and_any_number_of_shards(folder, form, shards):
    source = (
        folder / form
        if form == "train.parquet"
        else ParquetSource([folder / "parts" / f"{part}.parquet" for part in range(3)])
    )
    kernels = [RBF(gamma=0.2, view=NAMES[:3]), Linear(view=NAMES[3])]
    direct = model(shards=shards, kernels=kernels).fit(columns(X), Y)
    same(
        direct, model(shards=shards, kernels=kernels).fit(source, Y), columns(X_TEST), folder / "test.parquet"
    )
    weights = np.linspace(0.5, 2.0, N)
    direct = model(shards=shards).fit(X, Y, sample_weight=weights)
    labelled = model(shards=shards).fit(folder / "parts", "label", sample_weight=weights)
    same(direct, labelled, X_TEST, columns(X_TEST))


def test_columns_of_vectors(folder):
    kernels = [RBF(gamma=0.2, view="left"), Linear(view="right"), RBF(gamma=0.1)]
    direct = model(
        kernels=[RBF(gamma=0.2, view=[0, 1]), Linear(view=list(range(2, X.shape[1]))), RBF(gamma=0.1)]
    ).fit(X, Y)
    read = model(kernels=kernels).fit(folder / "train.arrow", "label")
    assert read.n_features_in_ == X.shape[1] and list(read.feature_names_in_) == ["left", "right"]
    same(direct, read, X, folder / "train.arrow")


def test_strings(tmp_path):
    random = np.random.default_rng(5)
    dna = ["".join(random.choice(list("ACGT"), 12)) for _ in range(N)]
    # One of them is long, so that padding would waste memory, and it is not in the first batch.
    free = ["".join(random.choice(list("ACGT"), 200 if i == 77 else random.integers(3, 9))) for i in range(N)]
    y = np.array([text.count("A") > 3 for text in dna], int)
    table = pa.table({"dna": dna, "free": pa.array(free).dictionary_encode(), "y": y})
    pq.write_table(table, tmp_path / "strings.parquet", row_group_size=29)
    kernels = [
        WeightedDegree(degree=3, view="dna"),
        WeightedDegree(degree=1, view="dna"),
        Spectrum(k=2, view="free"),
    ]
    for normalize in (None, "spherical"):
        direct = model(kernels=kernels, normalize=normalize).fit(table.drop_columns(["y"]), y)
        read = model(kernels=kernels, normalize=normalize).fit(tmp_path / "strings.parquet", "y")
        same(direct, read, table, tmp_path / "strings.parquet")


def test_large_values_are_computed_in_double_precision_as_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("raymkl.models.description.problem.SMALL_PROBLEM", 0)
    kernels = [RBF(gamma=1e-4), Linear(), Custom(lambda A, B: A @ B.T)]
    pq.write_table(columns(30 * X, LABELS), tmp_path / "large.parquet")
    direct, read = (model(kernels=kernels, tol=1e-3) for _ in range(2))
    _, rows, _ = read._read(
        row_sources.SourceInput(ParquetSource(tmp_path / "large.parquet"), "label"), reset=True
    )
    heads = direct._heads(LABELS, np.unique(LABELS), np.ones(N))
    found, expected = (
        m._describe(r, kernels, heads)[0].wide
        for m, r in ((read, rows), (direct, direct._read(30 * X, reset=True)[1]))
    )
    assert len(expected) == 2 and found == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, more",
    [
        (
            ConvexLocalizedMKLClassifier,
            {"n_clusters": 2, "normalize": "spherical", "kernels": rbf([0.1, 1.0])},
        ),
        (
            ConvexLocalizedMKLClassifier,
            {"n_clusters": 2, "gating_kernel": RBF(gamma=0.3), "kernels": rbf([0.1, 1.0])},
        ),
        (LocalizedMKLClassifier, {"kernels": [RBF(gamma=0.3), Linear()], "tol": 1e-3}),
    ],
    ids=["clusters", "gating kernel", "gates"],
)
def test_localized_models(folder, kind, more):
    direct = model(kind, random_state=0, **more).fit(X, LABELS)
    read = model(kind, random_state=0, **more).fit(folder / "train.parquet", "label")
    assert apart(read.decision_function(folder / "test.parquet"), direct.decision_function(X_TEST)) < 1e-9


def test_regression(folder):
    y = X[:, 0] + 0.1 * X[:, 1] ** 2
    pq.write_table(columns(X), folder / "features.parquet", row_group_size=50)
    direct, read = (model(MKLRegressor).fit(data, y) for data in (X, folder / "features.parquet"))
    np.testing.assert_allclose(read.predict(folder / "features.parquet"), direct.predict(X), rtol=1e-10)


def test_what_is_kept(folder, tmp_path):
    """Rows of support vectors and nothing else; the model needs no file any more."""
    fitted = model(kernels=[RBF(gamma=0.01)], C=0.5).fit(folder / "train.parquet", "label")
    assert len(fitted.support_) < N
    np.testing.assert_array_equal(fitted.expansion_.support_rows[None], X[fitted.support_])
    assert b"parquet" not in pickle.dumps(fitted)
    fitted.save(tmp_path / "model")
    loaded = raymkl.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.decision_function(folder / "test.parquet"), fitted.decision_function(folder / "test.parquet")
    )
    assert loaded.contributions(folder / "test.parquet").shape == (50, 1)
    fitted.fit(columns(X), Y)
    assert not hasattr(fitted, "feature_names_in_")


def test_checkpoints(folder, tmp_path):
    path, params = (
        tmp_path / "rows.parquet",
        RayParams(num_shards=2, checkpoint_dir=str(tmp_path / "state"), checkpoint_every_s=1e-9),
    )
    pq.write_table(columns(X, LABELS), path)

    class Stop(Exception):
        pass

    def stopping(self, state, write=raymkl.engine.faults.checkpoint.Checkpoints.write):
        write(self, state)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raymkl.engine.faults.checkpoint.Checkpoints.write", stopping)
        with pytest.raises(Stop):
            model(ray_params=params, C=100.0).fit(path, "label")
    resumed = model(ray_params=params, C=100.0).fit(path, "label")
    assert resumed.resumed_from_ is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raymkl.engine.faults.checkpoint.Checkpoints.write", stopping)
        with pytest.raises(Stop):
            model(ray_params=params, C=100.0).fit(path, "label")
    pq.write_table(columns(X + 1e-9, LABELS), path)
    with pytest.raises(ValueError, match="another run: data was"):
        model(ray_params=params, C=100.0).fit(path, "label")


def test_unscaled_columns_are_named(tmp_path):
    apart_columns = X * np.array([1e6] + [1.0] * (X.shape[1] - 1))
    pq.write_table(columns(apart_columns, LABELS), tmp_path / "rows.parquet")
    with pytest.warns(UserWarning, match="column 'f0' is"):
        model(kernels=[RBF(gamma=1e-9)], tol=1e-2).fit(tmp_path / "rows.parquet", "label")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model().fit(columns(X), LABELS)


# -- errors ----------------------------------------------------------------------------------------


def broken(tmp_path, name, row, value):
    table = columns(X, LABELS)
    at = table.column_names.index(name)
    values = table.column(at).to_pylist()
    values[row] = value
    path = tmp_path / f"{name}-{value}.parquet"
    pq.write_table(table.set_column(at, name, pa.array(values)), path, row_group_size=10)
    return path


def test_errors_name_the_column_and_the_row(tmp_path, folder):
    for value, word in ((np.nan, "NaN"), (None, "NaN"), (np.inf, "infinity")):
        path = broken(tmp_path, "f2", 87, value)
        with pytest.raises(ValueError, match=rf"X contains {word}.* in column 'f2' \(row 87\)"):
            model().fit(path, "label")
        with pytest.raises(ValueError, match=rf"X contains {word}.* in column 'f2' \(row 87\)"):
            model().fit(folder / "train.parquet", "label").predict(path)
    bad = X.copy()
    bad[93, 1] = np.nan
    pq.write_table(pa.table({"v": vectors(bad), "label": LABELS}), tmp_path / "vectors.parquet")
    with pytest.raises(ValueError, match=r"view 'v' of X contains NaN in column 'v' \(entry 1\) \(row 93\)"):
        model(kernels=[RBF(view="v")]).fit(tmp_path / "vectors.parquet", "label")
    with pytest.raises(ValueError, match=r"y='label'.* no label in row 61"):
        model().fit(broken(tmp_path, "label", 61, None), "label")
    strings = pa.table({"s": [*["AC"] * 99, "", "A"], "t": [*["AC"] * 99, "A", "A"], "y": [0, 1] * 50 + [0]})
    pq.write_table(strings, tmp_path / "strings.parquet")
    with pytest.raises(ValueError, match="empty string in row 99"):
        model(kernels=[Spectrum(k=1, view="s")]).fit(tmp_path / "strings.parquet", "y")
    with pytest.raises(ValueError, match="row 0 has length 2 and row 99 has length 1"):
        model(kernels=[WeightedDegree(degree=1, view="t")]).fit(tmp_path / "strings.parquet", "y")


def test_other_errors(folder, tmp_path):
    path = folder / "train.parquet"
    with pytest.raises(FileNotFoundError, match=r"missing\.parquet"):
        model().fit("missing.parquet", "label")
    with pytest.raises(ValueError, match=r"y='class' is not a column of .*'f0'"):
        model().fit(path, "class")
    with pytest.raises(ValueError, match=r"X has 120 rows, y has 50"):
        model(kernels=[RBF(view="f0")]).fit(path, Y_TEST)
    with pytest.raises(ValueError, match="not numbers: column 'label' holds string"):
        model().fit(path, Y)
    with pytest.raises(ValueError, match=r"view \['g'\] is not in X, whose columns are \['f0'"):
        model(kernels=[RBF(view="g")]).fit(path, "label")
    with pytest.raises(ValueError, match="non-negative"):
        model(kernels=[Chi2()]).fit(path, "label")
    with pytest.raises(ValueError, match="kernel store"):
        model(kernels=[Precomputed(view="f0", index=0)]).fit(path, "label")
    with pytest.raises(ValueError, match=r"y='label'.*X is a ndarray"):
        model().fit(X, "label")
    with pytest.raises(ValueError, match="type fixed_size_list"):
        model().fit(folder / "train.arrow", "left")
    pq.write_table(pa.table({"label": LABELS}), tmp_path / "labels.parquet")
    with pytest.raises(ValueError, match="no column besides the label"):
        model().fit(tmp_path / "labels.parquet", "label")
    fitted = model().fit(path, "label")
    with pytest.raises(ValueError, match="has no column 'f0', which the model was fitted to"):
        fitted.predict(tmp_path / "labels.parquet")
    pq.write_table(pa.table({name: vectors(X[:5, :2]) for name in NAMES}), tmp_path / "wider.parquet")
    with pytest.raises(
        ValueError, match=rf"X has {2 * len(NAMES)} features, but the model was fitted to {len(NAMES)}"
    ):
        fitted.predict(tmp_path / "wider.parquet")


def test_what_is_too_large_for_memory_is_refused(folder, monkeypatch):
    fitted = model().fit(folder / "train.parquet", "label")
    monkeypatch.setattr(row_sources.inputs, "MOST_IN_MEMORY", 1000)
    assert fitted.predict(folder / "test.parquet").shape == (50,)  # streamed
    with pytest.raises(ValueError, match=r"50 rows.*at most"):
        fitted.contributions(folder / "test.parquet")


def test_inputs_of_searches_are_read_into_memory(folder, monkeypatch):
    table, labels = row_sources.loaded(folder / "train.parquet", "label", model())
    assert table.equals(columns(X)) and labels.tolist() == LABELS.tolist()
    assert row_sources.loaded(X, Y, model())[0] is X
    assert row_sources.loaded("store", Y, model(kernels="precomputed"))[0] == "store"
    monkeypatch.setattr(row_sources.inputs, "MOST_IN_MEMORY", 1000)
    with pytest.raises(ValueError, match="into memory"):
        row_sources.loaded(folder / "train.parquet", "label", model())


# -- who reads what --------------------------------------------------------------------------------


class CountingSource(ParquetSource):
    """Notes in a file which process was handed how many rows, and how many at once."""

    def stream(self, first, last, columns=None, batch_rows=None):
        for table in super().stream(first, last, columns, batch_rows):
            self._note(table.num_rows, (first, last))
            yield table

    def pick(self, ids, columns=None):
        for part, table in super().pick(ids, columns):
            self._note(table.num_rows, "single")
            yield part, table

    def _note(self, rows, what):
        with open(self.log, "a") as file:
            file.write(json.dumps([os.getpid(), rows, what]) + "\n")


def test_each_shard_reads_its_rows_and_the_driver_looks_once(folder, tmp_path):
    source = CountingSource(folder / "train.parquet")
    source.log = str(tmp_path / "reads")
    data = row_sources.SourceInput(source, "label")
    fitted = model(kernels=[RBF(gamma=0.01)], C=0.5).fit(data, LABELS)
    notes = [json.loads(line) for line in Path(source.log).read_text().splitlines()]
    assert max(rows for _, rows, _ in notes) <= 23
    totals = {}
    for _, rows, what in notes:
        totals[str(what)] = totals.get(str(what), 0) + rows
    looked = totals.pop(f"[0, {N}]")
    assert looked == N  # once
    assert totals.pop("single") == len(fitted.support_)
    assert totals == {"[0, 40]": 40, "[40, 80]": 40, "[80, 120]": 40}


def test_datasets(ray_cluster):
    import ray.data

    train = ray.data.from_arrow([columns(X, LABELS).slice(first, 50) for first in range(0, N, 50)])
    direct = model().fit(X, LABELS)
    for engine in ("local", "ray"):
        params = RayParams(num_shards=2, cpus_per_shard=0.5)
        read = model(engine=engine, ray_params=params).fit(train, "label")
        np.testing.assert_allclose(read.dual_objective_, direct.dual_objective_, rtol=1e-6)
        assert apart(read.decision_function(columns(X_TEST)), direct.decision_function(X_TEST)) < 1e-3
    assert b"ObjectRef" not in pickle.dumps(read)
    test = ray.data.from_arrow(columns(X_TEST, np.where(Y_TEST > 0, "yes", "no")))
    assert read.score(test, "label") == direct.score(X_TEST, np.where(Y_TEST > 0, "yes", "no"))


def test_an_error_while_a_shard_reads_comes_back(ray_session, folder):
    driver = os.getpid()

    class SeenHereAlone(ParquetSource):
        def stream(self, *arguments):
            if os.getpid() != driver:
                raise FileNotFoundError("there is no file here")
            return super().stream(*arguments)

    with pytest.raises(FileNotFoundError, match="no file here"):
        model(engine=ray_session, kernels=[RBF(view=NAMES)]).fit(
            SeenHereAlone(folder / "train.parquet"), LABELS
        )


CLUSTER = Path(__file__).with_name("cluster_of_sources.py")


@pytest.mark.cluster
def test_on_several_nodes_the_driver_holds_a_fraction_of_the_rows(tmp_path):
    """A head without CPUs and three nodes; a table of 96 MB; see the script for what is measured."""
    result = subprocess.run(
        [sys.executable, str(CLUSTER), str(tmp_path)], capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert found["agreement"] < 1e-3 and found["converged"]
    assert found["nodes"] == 3
    # Every shard read its own third, in a process of its own; nobody else read features but the driver, in
    # batches.
    assert sorted(found["shard_rows"]) == [400, 400, 400]
    assert found["driver_looked"] == 1200 and found["driver_single"] == found["support"] < 300
    assert found["largest_batch"] <= 300
    assert found["driver_growth"] < 0.6 * found["table_bytes"], found
