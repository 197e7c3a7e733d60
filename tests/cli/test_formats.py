"""Data files of all formats: arrays and sparse rows that are read as a whole, Parquet and Arrow tables that
stay where they are.
"""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raymkl
from raymkl.data import sources
from raymkl.data.tables import SourceColumns
from raymkl.engine.faults.checkpoint import Checkpoints
from tests.cli.builders import FRAME, TRAIN, X, Y, run

# -- files that are read as a whole ----------------------------------------------------------------


def test_views_of_an_npz_file(box):
    result = run(
        "train",
        box / "views.npz",
        "--kernels",
        "rbf:auto;linear@all",
        "--engine",
        "local",
        "--out",
        box / "v.raymkl",
        "--json",
    )
    told = json.loads(result.stdout)
    assert len(told["kernel_weights"]) == 11 and set(told["views"]) == {"size", "shape", "all"}
    assert run("predict", box / "v.raymkl", box / "views.npz", "--out", box / "v.csv").exit_code == 0
    assert (
        run(
            "search",
            box / "views.npz",
            "--C",
            "1",
            "--p",
            "2",
            "--cv",
            "2",
            "--engine",
            "local",
            "--out",
            box / "v.raymkl",
        ).exit_code
        == 0
    )


def test_sparse_data(box):
    result = run(
        "train",
        box / "d.libsvm",
        "--kernels",
        "rbf:auto;linear",
        "--engine",
        "local",
        "--out",
        box / "s.raymkl",
    )
    assert result.exit_code == 0, result.output
    result = run("predict", box / "s.raymkl", box / "d.libsvm", "--out", box / "s.csv")
    assert set(pd.read_csv(box / "s.csv")["prediction"]) == {0, 1}


# -- files that stay where they are ----------------------------------------------------------------


@pytest.fixture
def streaming(monkeypatch):
    """Batches are small, and reading a table as a whole is an error.

    Collects how many rows were read at once.
    """
    sizes = []

    def stream(self, *arguments, whole=sources.RowSource.stream):
        for table in whole(self, *arguments):
            sizes.append(table.num_rows)
            yield table

    monkeypatch.setattr(sources.source, "MOST_BATCH_ROWS", 31)
    monkeypatch.setattr(sources.RowSource, "stream", stream)
    monkeypatch.setattr(SourceColumns, "loaded", lambda self: pytest.fail("all rows were read at once"))
    return sizes


KERNELS = "rbf:auto;poly:2@x1,x2;linear@x3"


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "more", [["--standardize"], ["--normalize", "spherical"]], ids=["standardized", "as they are"]
)
def test_tables_in_files_are_streamed(tmp_path, streaming, ending, more):
    """The model, and what it predicts, is that of the same rows in memory."""
    frame = (
        FRAME
        if "--standardize" in more
        else FRAME.assign(**{f"x{i}": X[:, i] / X[:, i].max() for i in range(12)})
    )
    path, out = tmp_path / f"train.{ending}", tmp_path / "streamed"
    frame[:200].to_csv(tmp_path / "train.csv", index=False)
    frame[:200].to_parquet(path, row_group_size=70) if ending == "parquet" else frame[:200].to_feather(
        path, chunksize=70
    )
    options = [
        "--target",
        "label",
        "--engine",
        "local",
        "--shards",
        "2",
        "--kernels",
        KERNELS,
        "--tol",
        "1e-6",
        *more,
    ]
    for data, model in ((path, out), (tmp_path / "train.csv", tmp_path / "whole")):
        result = run("train", data, *options, "--out", model)
        assert result.exit_code == 0, result.output
        assert "200 rows, 12 features, 7 kernels; classes benign (" in result.output
    assert 0 < max(streaming) <= 31
    streamed, whole = raymkl.load(out), raymkl.load(tmp_path / "whole")
    assert (
        streamed.preparation.views == whole.preparation.views
        and streamed.n_features_in_ == whole.n_features_in_
    )
    assert not hasattr(streamed.model, "feature_names_in_")
    np.testing.assert_allclose(streamed.kernel_weights_, whole.kernel_weights_, rtol=1e-4, atol=1e-6)
    expected = whole.decision_function(frame[200:300])
    np.testing.assert_allclose(streamed.decision_function(frame[200:300]), expected, rtol=1e-4, atol=1e-4)
    frame[200:300].to_parquet(tmp_path / "test.parquet", row_group_size=40)
    assert run("predict", out, tmp_path / "test.parquet", "--out", tmp_path / "p.csv").exit_code == 0
    predicted = pd.read_csv(tmp_path / "p.csv")["decision"]
    np.testing.assert_allclose(predicted, streamed.decision_function(frame[200:300]), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(
        streamed.predict(tmp_path / "test.parquet"), streamed.predict(frame[200:300])
    )


def test_a_streamed_run_goes_on_from_its_checkpoint(tmp_path, streaming, monkeypatch):
    FRAME[:200].to_parquet(tmp_path / "t.parquet", row_group_size=70)
    command = [
        "train",
        tmp_path / "t.parquet",
        *TRAIN,
        "--checkpoint",
        tmp_path / "state",
        "--out",
        tmp_path / "m",
    ]
    monkeypatch.setattr("raymkl.cli.jobs.CHECKPOINT_SECONDS", 1e-9)
    write = Checkpoints.write

    def stopping(self, state):
        write(self, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "write", stopping)
    assert run(*command).exit_code == 130
    monkeypatch.setattr(Checkpoints, "write", write)
    assert run(*command).exit_code == 0
    assert raymkl.load(tmp_path / "m").resumed_from_ is not None


def test_mistakes_in_streamed_tables_are_one_line(tmp_path, streaming):
    rows = FRAME[:200]
    cases = {
        "hole": (
            rows.assign(x3=rows["x3"].where(rows.index != 105)),
            r"column 'x3' has a missing value (NaN) in row 105",
        ),
        "endless": (
            rows.assign(x3=rows["x3"].where(rows.index != 105, np.inf)),
            r"column 'x3' has an infinite value in row 105",
        ),
        "text": (rows.assign(note="words"), "column 'note' holds no numbers"),
        "label": (rows.assign(label=rows["label"].where(rows.index != 77)), "'label' has no label in row 77"),
        "large": (rows.assign(x3=rows["x3"].where(rows.index != 105, 1e160)), "too large"),
    }
    for name, (frame, message) in cases.items():
        path = tmp_path / f"{name}.parquet"
        frame.to_parquet(path, row_group_size=60)
        for more in ([], ["--standardize"]):
            result = run(
                "train", path, "--target", "label", "--engine", "local", *more, "--out", tmp_path / "m"
            )
            assert result.exit_code == 2 and message in result.output, result.output
            assert len(result.output.splitlines()) <= 3 and "Traceback" not in result.output


def test_unscaled_columns_of_streamed_tables_are_named(tmp_path, streaming):
    FRAME[:200].to_parquet(tmp_path / "t.parquet")
    result = run(
        "train",
        tmp_path / "t.parquet",
        "--target",
        "label",
        "--engine",
        "local",
        "--tol",
        "0.1",
        "--out",
        tmp_path / "m",
    )
    assert "times as wide as x" in result.output and "add --standardize" in result.output


def test_strings_and_vectors_of_streamed_tables(tmp_path, streaming):
    words = ["".join("ACGT"[(i * k) % 4] for k in range(2 + i % 5, 12)) for i in range(120)]
    table = pa.table(
        {"seq": words, "v": X[:120, :2].tolist(), "size": np.arange(120, dtype=np.float32), "y": Y[:120]}
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50)
    kernels = "spectrum:2@seq;linear@v;rbf:auto@size"
    result = run(
        "train",
        tmp_path / "t.parquet",
        "--target",
        "y",
        "--engine",
        "local",
        "--kernels",
        kernels,
        "--out",
        tmp_path / "m",
    )
    assert result.exit_code == 0, result.output
    model = raymkl.load(tmp_path / "m")
    assert model.preparation.widths == {"v": 2, "size": 1}
    np.testing.assert_allclose(
        model.decision_function(tmp_path / "t.parquet"), model.decision_function(table), rtol=1e-9, atol=1e-9
    )
    assert model.contributions(tmp_path / "t.parquet").shape == model.contributions(table).shape
    holes = table.set_column(0, "seq", pa.array([None if i == 90 else word for i, word in enumerate(words)]))
    pq.write_table(holes, tmp_path / "holes.parquet")
    assert (
        "column 'seq' has no text in row 90"
        in run("predict", tmp_path / "m", tmp_path / "holes.parquet").output
    )


def test_models_made_in_python_predict_from_streamed_tables(tmp_path, streaming):
    names = [f"x{i}" for i in range(6)]
    model = raymkl.MKLClassifier(engine="local").fit(FRAME[names][:200] / X[:200, :6].max(axis=0), Y[:200])
    model.save(tmp_path / "m")
    scaled = (FRAME[names][200:300] / X[:200, :6].max(axis=0)).assign(other="text")
    scaled.to_parquet(tmp_path / "t.parquet")
    assert run("predict", tmp_path / "m", tmp_path / "t.parquet", "--out", tmp_path / "p.csv").exit_code == 0
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "p.csv")["decision"], model.decision_function(scaled[names]), rtol=1e-9
    )
    scaled.drop(columns="x4").to_parquet(tmp_path / "t.parquet")
    assert (
        "has no column 'x4', which the model was trained on"
        in run("predict", tmp_path / "m", tmp_path / "t.parquet").output
    )


def test_a_search_reads_all_rows(tmp_path):
    FRAME[:120].to_parquet(tmp_path / "t.parquet")
    result = run(
        "search",
        tmp_path / "t.parquet",
        *TRAIN,
        "--C",
        "1",
        "--p",
        "1",
        "--cv",
        "2",
        "--out",
        tmp_path / "best",
    )
    assert result.exit_code == 0, result.output
    assert raymkl.load(tmp_path / "best").score(tmp_path / "t.parquet", FRAME["label"][:120]) > 0.9
