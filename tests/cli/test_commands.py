"""The command line as a newcomer meets it: help, and the whole way from a file to predictions."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import raymkl
from raymkl.models.table_model import TableModel
from tests.cli.builders import FRAME, TRAIN, X, run

COMMANDS = ("demo", "train", "predict", "search", "info", "report")


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: raymkl {command}" in " ".join(result.output.split())


def test_the_group_lists_its_commands():
    output = run("--help").output
    assert all(f"  {command} " in output for command in COMMANDS)


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys, raymkl.cli; print([m for m in ('ray', 'numba', 'sklearn', 'pandas', 'matplotlib', "
        "'cvxpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


# -- from a file to predictions --------------------------------------------------------------------


def test_train_writes_a_model_that_repeats_the_scaling(box):
    model = raymkl.load(box / "m.raymkl")
    assert isinstance(model, TableModel) and model.preparation.target == "label"
    Z = (X - X[:200].mean(axis=0)) / X[:200].std(axis=0)
    np.testing.assert_allclose(
        model.decision_function(FRAME[200:300]),
        model.model.decision_function(Z[200:300]),
        rtol=1e-9,
        atol=1e-9,
    )
    assert model.score(FRAME[200:300], FRAME["label"][200:300]) > 0.9


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predict(box, name):
    result = run("predict", box / "m.raymkl", box / "test.parquet", "--out", box / name)
    assert result.exit_code == 0, result.output
    written = pd.read_csv(box / name) if name.endswith("csv") else pd.read_parquet(box / name)
    model = raymkl.load(box / "m.raymkl")
    assert list(written.columns) == ["prediction", "decision"]
    np.testing.assert_array_equal(
        written["decision"].to_numpy(), model.decision_function(FRAME[200:300])
    )  # to the bit, also as text
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
    assert (
        told["classes"] == ["benign", "malignant"]
        and told["target"] == "label"
        and told["standardized"] is True
    )
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


@pytest.mark.parametrize(
    "normalize, expected", [("none", None), ("spherical", "spherical"), (None, "multiplicative")]
)
def test_normalize(box, normalize, expected):
    more = [] if normalize is None else ["--normalize", normalize]
    told = json.loads(
        run("train", box / "train.csv", *TRAIN, *more, "--out", box / "n.raymkl", "--json").stdout
    )
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
        reference = raymkl.MKLClassifier(
            model.kernels_, C=row["C"], p=row["p"], normalize="multiplicative", tol=1e-5, engine="local"
        )
        scores = cross_val_score(reference, train, FRAME["label"][:200].to_numpy().astype(str), cv=3)
        assert row["mean"] == pytest.approx(
            scores.mean(), abs=1 / 200 + 1e-9
        )  # one row may lie on the boundary
    assert told["best_params"] == {"C": model.model.C, "p": model.model.p}
    text = run(
        "search", box / "train.csv", *TRAIN, "--C", "1", "--p", "2", "--cv", "2", "--out", box / "best.raymkl"
    ).output
    assert "<- best" in text and "1 settings x 2 folds" in text


def test_report(box):
    result = run("report", box / "m.raymkl", "--data", box / "test.parquet", "--out", box / "r.html")
    assert result.exit_code == 0, result.output
    page = (box / "r.html").read_text()
    assert "<svg" in page or "data:image" in page
    assert run("report", box / "m.raymkl", "--out", box / "bare.html").exit_code == 0


def test_a_yaml_file(box):
    (box / "bank.yaml").write_text(
        "views: {size: [x0, x2, x3], rest: ['x1', 'x[4-9]']}\nkernels: [rbf: auto]\nstandardize: true\n"
    )
    told = json.loads(
        run(
            "train",
            box / "train.csv",
            "--target",
            "label",
            "--kernels",
            box / "bank.yaml",
            "--out",
            box / "y.raymkl",
            "--json",
        ).stdout
    )
    assert told["standardized"] is True and len(told["kernels"]) == 10
    assert told["views"] == {"size": ["x0", "x2", "x3"], "rest": ["x1", *(f"x{i}" for i in range(4, 10))]}


def test_three_classes_have_a_decision_value_each(box):
    FRAME[:150].assign(label=np.array(["a", "b", "c"])[np.arange(150) % 3]).to_csv(
        box / "three.csv", index=False
    )
    assert (
        run(
            "train", box / "three.csv", *TRAIN, "--kernels", "rbf:0.1", "--out", box / "three.raymkl"
        ).exit_code
        == 0
    )
    run("predict", box / "three.raymkl", box / "three.csv", "--out", box / "three_p.csv")
    assert list(pd.read_csv(box / "three_p.csv").columns) == [
        "prediction",
        "decision_a",
        "decision_b",
        "decision_c",
    ]
    assert len(json.loads(run("info", box / "three.raymkl", "--json").output)["duality_gap"]) == 3


@pytest.mark.filterwarnings("ignore:the columns of")
def test_a_model_trained_in_python(box):
    raymkl.MKLClassifier(raymkl.kernels.rbf([1e-6]), engine="local").fit(
        FRAME[:50].drop(columns="label"), FRAME["label"][:50]
    ).save(box / "py")
    result = run("predict", box / "py", box / "test.parquet", "--out", box / "py.csv")
    assert result.exit_code == 0, result.output


def test_of_many_kernels_the_largest_are_listed():
    from raymkl.cli.summaries import MOST_LINES, weight_lines

    weights = np.random.default_rng(0).random(300)
    lines = weight_lines({"kernel_weights": weights, "kernels": [f"kernel {m}" for m in range(300)]})
    assert [line.rsplit(" ", 1)[1] for line in lines[:-1]] == [
        str(m) for m in np.argsort(-weights)[:MOST_LINES]
    ]
    assert f"{300 - MOST_LINES} more" in lines[-1] and lines[0].count("#") == 30
    few = {"kernel_weights": weights[:MOST_LINES], "kernels": [""] * MOST_LINES}
    assert len(weight_lines(few)) == MOST_LINES
