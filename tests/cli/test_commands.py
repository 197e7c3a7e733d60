"""The command line as a newcomer meets it: the whole way from a file to predictions, and one clear line for every mistake."""

import json
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file, load_breast_cancer

import raymkl
from raymkl.cli import main
from raymkl.cli.options import ray_session
from raymkl.data import sources
from raymkl.data.tables import SourceColumns
from raymkl.engine.faults.checkpoint import Checkpoints
from raymkl.models.table_model import TableModel

X, Y = load_breast_cancer(return_X_y=True)
X, Y = X[:, :12], Y
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(label=np.where(Y == 1, "benign", "malignant"))
COMMANDS = ("demo", "train", "predict", "search", "info", "report")
TRAIN = ["--target", "label", "--standardize", "--engine", "local"]


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """A directory with data in several formats and a trained model."""
    box = tmp_path_factory.mktemp("cli")
    FRAME[:200].to_csv(box / "train.csv", index=False)
    FRAME[200:300].to_parquet(box / "test.parquet")
    FRAME[:200].assign(x3=FRAME["x3"].where(FRAME.index != 5)).to_csv(box / "bad.csv", index=False)
    FRAME[:200].assign(note="text", place="here").to_csv(box / "text.csv", index=False)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.savez(box / "views.npz", view_size=Z[:200, :6], view_shape=Z[:200, 6:], y=Y[:200])
    dump_svmlight_file(Z[:200], Y[:200], str(box / "d.libsvm"), zero_based=False)
    result = run("train", box / "train.csv", *TRAIN, "--kernels", "rbf:0.01,0.1;poly:2;linear", "--p", "1.33", "--out", box / "m.raymkl")
    assert result.exit_code == 0, result.output
    return box


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


# -- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: raymkl {command}" in " ".join(result.output.split())


def test_the_group_lists_its_commands():
    output = run("--help").output
    assert all(f"  {command} " in output for command in COMMANDS)


def test_help_is_quick_and_loads_nothing_heavy():
    code = "import sys, raymkl.cli; print([m for m in ('ray', 'numba', 'sklearn', 'pandas', 'matplotlib', 'cvxpy') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


# -- from a file to predictions ---------------------------------------------------------------------------------------


def test_train_writes_a_model_that_repeats_the_scaling(box):
    model = raymkl.load(box / "m.raymkl")
    assert isinstance(model, TableModel) and model.preparation.target == "label"
    Z = (X - X[:200].mean(axis=0)) / X[:200].std(axis=0)
    np.testing.assert_allclose(model.decision_function(FRAME[200:300]), model.model.decision_function(Z[200:300]), rtol=1e-9, atol=1e-9)
    assert model.score(FRAME[200:300], FRAME["label"][200:300]) > 0.9


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predict(box, name):
    result = run("predict", box / "m.raymkl", box / "test.parquet", "--out", box / name)
    assert result.exit_code == 0, result.output
    written = pd.read_csv(box / name) if name.endswith("csv") else pd.read_parquet(box / name)
    model = raymkl.load(box / "m.raymkl")
    assert list(written.columns) == ["prediction", "decision"]
    np.testing.assert_array_equal(written["decision"].to_numpy(), model.decision_function(FRAME[200:300]))  # to the bit, also as text
    assert written["prediction"].tolist() == model.predict(FRAME[200:300]).tolist()
    accuracy = np.mean(written["prediction"].to_numpy() == FRAME["label"][200:300].to_numpy())
    assert f"accuracy {accuracy:.4f}" in result.output


def test_predict_to_standard_output_is_csv_alone(box):
    result = run("predict", box / "m.raymkl", box / "test.parquet")
    lines = result.stdout.splitlines()
    assert lines[0] == "prediction,decision" and len(lines) == 101


def test_predict_needs_no_labels(box):
    FRAME[200:210].drop(columns="label").to_csv(box / "unlabelled.csv", index=False)
    result = run("predict", box / "m.raymkl", box / "unlabelled.csv", "--out", box / "u.csv", "--json")
    assert json.loads(result.output) == {"rows": 10, "out": str(box / "u.csv"), "accuracy": None}


def test_info(box):
    told = json.loads(run("info", box / "m.raymkl", "--json").output)
    model = raymkl.load(box / "m.raymkl")
    assert told["kernel_weights"] == model.kernel_weights_.tolist()
    assert told["duality_gap"] == model.duality_gap_ <= 1e-3
    assert told["classes"] == ["benign", "malignant"] and told["target"] == "label" and told["standardized"] is True
    assert told["kernels"] == [repr(kernel) for kernel in model.kernels_]
    assert (told["C"], told["p"], told["n_support"], told["n_rows"]) == (1.0, 1.33, len(model.support_), 200)
    assert told["features"] == [f"x{i}" for i in range(12)] and told["bytes"] < 100_000
    text = run("info", box / "m.raymkl").output
    assert "benign, malignant" in text and "RBF(gamma=0.01)" in text and "duality gap" in text


def test_train_says_what_it_did_in_text_and_in_json(box):
    arguments = [
        "train",
        box / "train.csv",
        *TRAIN,
        "--kernels",
        "rbf:auto;linear",
        "--p",
        "inf",
        "--tol",
        "0.01",
        "--out",
        box / "j.raymkl",
    ]
    told = json.loads(run(*arguments, "--json").stdout)
    assert told["p"] == "inf" and len(told["kernel_weights"]) == 6
    text = run(*arguments).output
    assert "200 rows, 12 features, 6 kernels; classes benign" in text and "raymkl predict" in text


@pytest.mark.parametrize("normalize, expected", [("none", None), ("spherical", "spherical"), (None, "multiplicative")])
def test_normalize(box, normalize, expected):
    more = [] if normalize is None else ["--normalize", normalize]
    told = json.loads(run("train", box / "train.csv", *TRAIN, *more, "--out", box / "n.raymkl", "--json").stdout)
    assert told["normalize"] == expected


def test_search_is_that_of_scikit_learn(box):
    result = run(
        "search", box / "train.csv", *TRAIN, "--kernels", "rbf:0.01;linear", "--C", "0.01,1", "--p", "1.33,2", "--cv", "3", "--tol", "1e-5",
        "--out", box / "best.raymkl", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert len(told["results"]) == 4 and told["results"][0]["mean"] == told["best_score"]
    from sklearn.model_selection import cross_val_score

    model = raymkl.load(box / "best.raymkl")
    train = model.preparation.transform(FRAME[:200])
    for row in told["results"]:
        reference = raymkl.MKLClassifier(model.kernels_, C=row["C"], p=row["p"], normalize="multiplicative", tol=1e-5, engine="local")
        scores = cross_val_score(reference, train, FRAME["label"][:200].to_numpy().astype(str), cv=3)
        assert row["mean"] == pytest.approx(scores.mean(), abs=1 / 200 + 1e-9)  # one row may lie on the boundary
    assert told["best_params"] == {"C": model.model.C, "p": model.model.p}
    text = run("search", box / "train.csv", *TRAIN, "--C", "1", "--p", "2", "--cv", "2", "--out", box / "best.raymkl").output
    assert "<- best" in text and "1 settings x 2 folds" in text


def test_report(box):
    result = run("report", box / "m.raymkl", "--data", box / "test.parquet", "--out", box / "r.html")
    assert result.exit_code == 0, result.output
    page = (box / "r.html").read_text()
    assert "<svg" in page or "data:image" in page
    assert run("report", box / "m.raymkl", "--out", box / "bare.html").exit_code == 0


def test_views_of_an_npz_file(box):
    result = run("train", box / "views.npz", "--kernels", "rbf:auto;linear@all", "--engine", "local", "--out", box / "v.raymkl", "--json")
    told = json.loads(result.stdout)
    assert len(told["kernel_weights"]) == 11 and set(told["views"]) == {"size", "shape", "all"}
    assert run("predict", box / "v.raymkl", box / "views.npz", "--out", box / "v.csv").exit_code == 0
    assert (
        run("search", box / "views.npz", "--C", "1", "--p", "2", "--cv", "2", "--engine", "local", "--out", box / "v.raymkl").exit_code == 0
    )


def test_sparse_data(box):
    result = run("train", box / "d.libsvm", "--kernels", "rbf:auto;linear", "--engine", "local", "--out", box / "s.raymkl")
    assert result.exit_code == 0, result.output
    result = run("predict", box / "s.raymkl", box / "d.libsvm", "--out", box / "s.csv")
    assert set(pd.read_csv(box / "s.csv")["prediction"]) == {0, 1}


def test_a_yaml_file(box):
    (box / "bank.yaml").write_text("views: {size: [x0, x2, x3], rest: ['x1', 'x[4-9]']}\nkernels: [rbf: auto]\nstandardize: true\n")
    told = json.loads(
        run("train", box / "train.csv", "--target", "label", "--kernels", box / "bank.yaml", "--out", box / "y.raymkl", "--json").stdout
    )
    assert told["standardized"] is True and len(told["kernels"]) == 10
    assert told["views"] == {"size": ["x0", "x2", "x3"], "rest": ["x1", *(f"x{i}" for i in range(4, 10))]}


def test_three_classes_have_a_decision_value_each(box):
    FRAME[:150].assign(label=np.array(["a", "b", "c"])[np.arange(150) % 3]).to_csv(box / "three.csv", index=False)
    assert run("train", box / "three.csv", *TRAIN, "--kernels", "rbf:0.1", "--out", box / "three.raymkl").exit_code == 0
    run("predict", box / "three.raymkl", box / "three.csv", "--out", box / "three_p.csv")
    assert list(pd.read_csv(box / "three_p.csv").columns) == ["prediction", "decision_a", "decision_b", "decision_c"]
    assert len(json.loads(run("info", box / "three.raymkl", "--json").output)["duality_gap"]) == 3


@pytest.mark.filterwarnings("ignore:the columns of")
def test_a_model_trained_in_python(box):
    raymkl.MKLClassifier(raymkl.kernels.rbf([1e-6]), engine="local").fit(FRAME[:50].drop(columns="label"), FRAME["label"][:50]).save(
        box / "py"
    )
    result = run("predict", box / "py", box / "test.parquet", "--out", box / "py.csv")
    assert result.exit_code == 0, result.output


# -- mistakes and failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, words",
    [
        ("train nowhere.csv --target label --kernels linear --out x", ["nowhere.csv does not exist"]),
        ("train train.csv --target nope --kernels linear --out x", ["train.csv", "no column 'nope'"]),
        ("train train.csv --target label --kernels magic:3 --out x", ["unknown kernel 'magic'", "known: rbf"]),
        ("train bad.csv --target label --kernels linear --out x", ["bad.csv", "'x3'", "NaN", "row 5"]),
        ("train text.csv --target label --kernels linear --out x", ["text.csv", "'note', 'place'", "no numbers"]),
        ("train train.csv --kernels linear --out x", ["--target"]),
        ("train train.csv --target x1 --kernels linear --out x", ["label", "no numbers"]),
        ("train train.csv --target label --kernels bank.yml --out x", ["bank.yml does not exist"]),
        ("train train.csv --target label --C 0 --out x", ["C must be a finite number > 0"]),
        ("train train.csv --target label --p 0.5 --out x", ["p must be"]),
        ("train train.csv --target label --normalize loud --out x", ["normalize must be one of", "'loud'"]),
        ("train train.csv --target label --standardize --kernels chi2 --out x", ["non-negative"]),
        ("train train.csv --target label --out nowhere/x", ["nowhere/x", "does not exist"]),
        ("train train.csv --target label --out .", ["is a directory"]),
        ("search train.csv --target label --C 1,b --out x", ["--C", "'1,b' is not a list of numbers"]),
        ("search train.csv --target label --scoring nonsense --out x", ["nonsense"]),
        ("info train.csv", ["train.csv is not a raymkl model file"]),
        ("info nothing.raymkl", ["nothing.raymkl does not exist"]),
        ("predict m.raymkl nowhere.csv", ["nowhere.csv does not exist"]),
        ("predict m.raymkl views.npz", ["views.npz has no column 'x0'"]),
        ("predict m.raymkl bad.csv", ["'x3'", "row 5"]),
        ("predict m.raymkl test.parquet --out p.xlsx", ["p.xlsx"]),
        ("report m.raymkl --data test.parquet --target nope --out r.html", ["nope"]),
        ("train --nonsense", ["--nonsense"]),
    ],
)
def test_mistakes_end_with_one_clear_line_and_exit_code_2(box, monkeypatch, line, words):
    monkeypatch.chdir(box)
    result = run(*line.split())
    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ") and all(word in last for word in words), last
    assert "Traceback" not in result.output and not (box / "x").exists()


def test_a_failure_is_exit_code_1_and_verbose_shows_where(box, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("a shard was lost")

    monkeypatch.setattr(raymkl.MKLClassifier, "fit", fail)
    arguments = ["train", box / "train.csv", *TRAIN, "--out", box / "x"]
    result = run(*arguments)
    assert result.exit_code == 1 and result.stderr.splitlines()[-1] == "Error: RuntimeError: a shard was lost"
    assert "Traceback" not in result.output
    assert "Traceback" in run(*arguments, "--verbose").stderr


def test_warnings_are_single_lines(box):
    result = run("train", box / "train.csv", "--target", "label", "--kernels", "rbf:1e-6", "--engine", "local", "--out", box / "w.raymkl")
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1 and lines[0].startswith("Warning: columns differ by orders of magnitude (x3 is ") and "--standardize" in lines[0]


@pytest.mark.parametrize(
    "asked, written, words", [(False, False, "--checkpoint DIR"), (True, True, "The checkpoint is in"), (True, False, "No")]
)
def test_an_interrupt_says_where_the_checkpoint_is(box, tmp_path, monkeypatch, asked, written, words):
    import raymkl.cli

    def interrupted(*args, **kwargs):
        if written:
            (tmp_path / "state").write_text("state")
        raise KeyboardInterrupt

    monkeypatch.setattr(raymkl.MKLClassifier, "fit", interrupted)
    monkeypatch.setattr(raymkl.cli.commands._Job, "estimator", lambda self, **params: raymkl.MKLClassifier())
    result = run("train", box / "train.csv", *TRAIN, "--out", box / "x", *(["--checkpoint", tmp_path] if asked else []))
    assert result.exit_code == 130 and words in result.stderr and (str(tmp_path) in result.stderr) is asked


def test_ctrl_c_of_a_real_process(box):
    """The signal arrives during the fit; with Ray loaded, too, whose exit handlers must not change the exit code."""
    code = (
        "import os, signal, sys, types, raymkl, raymkl.cli\n"
        "raymkl.MKLClassifier.fit = lambda *args: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.modules['ray'] = types.ModuleType('ray')\n"
        f"sys.argv = ['raymkl', 'train', {str(box / 'train.csv')!r}, '--target', 'label', '--standardize', '--out', {str(box / 'x')!r}]\n"
        "raymkl.cli.main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 130 and "Interrupted" in result.stderr and "Traceback" not in result.stderr, result.stderr
    assert "200 rows" in result.stdout  # what was said before is not lost


# -- Ray --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake_ray(monkeypatch):
    """A Ray that only takes notes."""
    fake = types.ModuleType("ray")
    fake.calls = []
    fake.is_initialized = lambda: False
    fake.init = lambda **options: fake.calls.append(options)
    fake.shutdown = lambda: fake.calls.append("shutdown")
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (("ray",), {"include_dashboard": False}),
        (("ray", "head:6379"), {"address": "head:6379"}),
        (("ray", None, 2), {"address": "local", "num_cpus": 2, "include_dashboard": False}),
    ],
)
def test_a_ray_session_ends_with_its_block_whatever_happens(fake_ray, arguments, expected):
    with pytest.raises(RuntimeError, match="inside"), ray_session(*arguments):
        raise RuntimeError("inside")
    assert fake_ray.calls == [{"log_to_driver": False, "logging_level": "ERROR", **expected}, "shutdown"]


def test_a_ray_session_of_somebody_else_is_left_alone(fake_ray, monkeypatch):
    with ray_session("local"):
        pass
    fake_ray.is_initialized = lambda: True
    with ray_session("ray"):
        pass
    assert fake_ray.calls == []
    fake_ray.is_initialized = lambda: False
    monkeypatch.setenv("RAY_ADDRESS", "job:6379")  # as in a submitted job
    with ray_session("ray", num_cpus=2):
        pass
    assert fake_ray.calls[0]["address"] == "job:6379" and "num_cpus" not in fake_ray.calls[0]


def test_a_cluster_that_cannot_be_reached_is_a_failure(fake_ray, box):
    def refuse(**options):
        raise ConnectionError("Could not connect to the cluster")

    fake_ray.init = refuse
    result = run("train", box / "train.csv", *TRAIN, "--address", "nowhere:1", "--out", box / "x")
    assert result.exit_code == 1
    assert result.stderr.strip().splitlines()[-1] == "Error: cannot use the Ray cluster at nowhere:1: Could not connect to the cluster"


# -- demo -------------------------------------------------------------------------------------------------------------


def test_demo_through_ray(ray_cluster, tmp_path):
    result = run("demo", "--out", tmp_path / "shown")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "shown").iterdir()) == ["model.raymkl", "report.html"]
    model = raymkl.load(tmp_path / "shown" / "model.raymkl")
    assert np.max(model.duality_gap_) <= 1e-3 and model.kernel_weights_.shape == (10, 16)
    for words in ("accuracy", "duality gap", "uniform sum", "best single kernel", "weights", "next:"):
        assert words in result.output
    lines = {line.split("  ")[0]: line for line in result.output.splitlines()}
    accuracy = {name: float(lines[name].split()[len(name.split())]) for name in ("learned weights", "uniform sum", "best single kernel")}
    assert accuracy["learned weights"] >= max(accuracy.values()) - 0.005 and accuracy["learned weights"] > 0.97
    weights = model.kernel_weights_.mean(axis=0)
    by_view = {view: max(w for w, k in zip(weights, model.kernels_, strict=True) if k.view == view) for view in ("pixels", "noise")}
    assert by_view["noise"] < by_view["pixels"]
    assert ray_cluster.is_initialized()  # it was not the demo that started Ray


# -- files that stay where they are -----------------------------------------------------------------------------------


@pytest.fixture
def streaming(monkeypatch):
    """Batches are small, and reading a table as a whole is an error. Collects how many rows were read at once."""
    sizes = []

    def stream(self, *arguments, whole=sources.RowSource.stream):
        for table in whole(self, *arguments):
            sizes.append(table.num_rows)
            yield table

    monkeypatch.setattr(sources, "MOST_BATCH_ROWS", 31)
    monkeypatch.setattr(sources.RowSource, "stream", stream)
    monkeypatch.setattr(SourceColumns, "loaded", lambda self: pytest.fail("all rows were read at once"))
    return sizes


KERNELS = "rbf:auto;poly:2@x1,x2;linear@x3"


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("more", [["--standardize"], ["--normalize", "spherical"]], ids=["standardized", "as they are"])
def test_tables_in_files_are_streamed(tmp_path, streaming, ending, more):
    """The model, and what it predicts, is that of the same rows in memory."""
    frame = FRAME if "--standardize" in more else FRAME.assign(**{f"x{i}": X[:, i] / X[:, i].max() for i in range(12)})
    path, out = tmp_path / f"train.{ending}", tmp_path / "streamed"
    frame[:200].to_csv(tmp_path / "train.csv", index=False)
    frame[:200].to_parquet(path, row_group_size=70) if ending == "parquet" else frame[:200].to_feather(path, chunksize=70)
    options = ["--target", "label", "--engine", "local", "--shards", "2", "--kernels", KERNELS, "--tol", "1e-6", *more]
    for data, model in ((path, out), (tmp_path / "train.csv", tmp_path / "whole")):
        result = run("train", data, *options, "--out", model)
        assert result.exit_code == 0, result.output
        assert "200 rows, 12 features, 7 kernels; classes benign (" in result.output
    assert 0 < max(streaming) <= 31
    streamed, whole = raymkl.load(out), raymkl.load(tmp_path / "whole")
    assert streamed.preparation.views == whole.preparation.views and streamed.n_features_in_ == whole.n_features_in_
    assert not hasattr(streamed.model, "feature_names_in_")
    np.testing.assert_allclose(streamed.kernel_weights_, whole.kernel_weights_, rtol=1e-4, atol=1e-6)
    expected = whole.decision_function(frame[200:300])
    np.testing.assert_allclose(streamed.decision_function(frame[200:300]), expected, rtol=1e-4, atol=1e-4)
    frame[200:300].to_parquet(tmp_path / "test.parquet", row_group_size=40)
    assert run("predict", out, tmp_path / "test.parquet", "--out", tmp_path / "p.csv").exit_code == 0
    predicted = pd.read_csv(tmp_path / "p.csv")["decision"]
    np.testing.assert_allclose(predicted, streamed.decision_function(frame[200:300]), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(streamed.predict(tmp_path / "test.parquet"), streamed.predict(frame[200:300]))


def test_a_streamed_run_goes_on_from_its_checkpoint(tmp_path, streaming, monkeypatch):
    FRAME[:200].to_parquet(tmp_path / "t.parquet", row_group_size=70)
    command = ["train", tmp_path / "t.parquet", *TRAIN, "--checkpoint", tmp_path / "state", "--out", tmp_path / "m"]
    monkeypatch.setattr("raymkl.cli.commands.CHECKPOINT_SECONDS", 1e-9)
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
        "hole": (rows.assign(x3=rows["x3"].where(rows.index != 105)), r"column 'x3' has a missing value (NaN) in row 105"),
        "endless": (rows.assign(x3=rows["x3"].where(rows.index != 105, np.inf)), r"column 'x3' has an infinite value in row 105"),
        "text": (rows.assign(note="words"), "column 'note' holds no numbers"),
        "label": (rows.assign(label=rows["label"].where(rows.index != 77)), "'label' has no label in row 77"),
        "large": (rows.assign(x3=rows["x3"].where(rows.index != 105, 1e160)), "too large"),
    }
    for name, (frame, message) in cases.items():
        path = tmp_path / f"{name}.parquet"
        frame.to_parquet(path, row_group_size=60)
        for more in ([], ["--standardize"]):
            result = run("train", path, "--target", "label", "--engine", "local", *more, "--out", tmp_path / "m")
            assert result.exit_code == 2 and message in result.output, result.output
            assert len(result.output.splitlines()) <= 3 and "Traceback" not in result.output


def test_unscaled_columns_of_streamed_tables_are_named(tmp_path, streaming):
    FRAME[:200].to_parquet(tmp_path / "t.parquet")
    result = run("train", tmp_path / "t.parquet", "--target", "label", "--engine", "local", "--tol", "0.1", "--out", tmp_path / "m")
    assert "times as wide as x" in result.output and "add --standardize" in result.output


def test_strings_and_vectors_of_streamed_tables(tmp_path, streaming):
    words = ["".join("ACGT"[(i * k) % 4] for k in range(2 + i % 5, 12)) for i in range(120)]
    table = pa.table({"seq": words, "v": X[:120, :2].tolist(), "size": np.arange(120, dtype=np.float32), "y": Y[:120]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50)
    kernels = "spectrum:2@seq;linear@v;rbf:auto@size"
    result = run("train", tmp_path / "t.parquet", "--target", "y", "--engine", "local", "--kernels", kernels, "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    model = raymkl.load(tmp_path / "m")
    assert model.preparation.widths == {"v": 2, "size": 1}
    np.testing.assert_allclose(model.decision_function(tmp_path / "t.parquet"), model.decision_function(table), rtol=1e-9, atol=1e-9)
    assert model.contributions(tmp_path / "t.parquet").shape == model.contributions(table).shape
    holes = table.set_column(0, "seq", pa.array([None if i == 90 else word for i, word in enumerate(words)]))
    pq.write_table(holes, tmp_path / "holes.parquet")
    assert "column 'seq' has no text in row 90" in run("predict", tmp_path / "m", tmp_path / "holes.parquet").output


def test_models_made_in_python_predict_from_streamed_tables(tmp_path, streaming):
    names = [f"x{i}" for i in range(6)]
    model = raymkl.MKLClassifier(engine="local").fit(FRAME[names][:200] / X[:200, :6].max(axis=0), Y[:200])
    model.save(tmp_path / "m")
    scaled = (FRAME[names][200:300] / X[:200, :6].max(axis=0)).assign(other="text")
    scaled.to_parquet(tmp_path / "t.parquet")
    assert run("predict", tmp_path / "m", tmp_path / "t.parquet", "--out", tmp_path / "p.csv").exit_code == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["decision"], model.decision_function(scaled[names]), rtol=1e-9)
    scaled.drop(columns="x4").to_parquet(tmp_path / "t.parquet")
    assert "has no column 'x4', which the model was trained on" in run("predict", tmp_path / "m", tmp_path / "t.parquet").output


def test_a_search_reads_all_rows(tmp_path):
    FRAME[:120].to_parquet(tmp_path / "t.parquet")
    result = run("search", tmp_path / "t.parquet", *TRAIN, "--C", "1", "--p", "1", "--cv", "2", "--out", tmp_path / "best")
    assert result.exit_code == 0, result.output
    assert raymkl.load(tmp_path / "best").score(tmp_path / "t.parquet", FRAME["label"][:120]) > 0.9
