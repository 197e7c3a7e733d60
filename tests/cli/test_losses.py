"""Losses on the command line: the option, what models say of it, and probabilities beside the predictions."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_wine

from raymkl import load
from raymkl.cli import main

X, Y = load_wine(return_X_y=True)
FRAME = pd.DataFrame(X).set_axis([f"x{i}" for i in range(X.shape[1])], axis=1).assign(label=np.array(["red", "rose", "white"])[Y])


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_written(tmp_path, classes):
    frame = FRAME[classes > Y]
    frame.to_csv(tmp_path / "data.csv", index=False)
    options = ["--target", "label", "--standardize", "--engine", "local", "--loss", "logistic"]
    run("train", tmp_path / "data.csv", *options, "--out", tmp_path / "m.raymkl")
    told = json.loads(run("info", tmp_path / "m.raymkl", "--json").output)
    assert told["loss"] == "logistic" and "loss = logistic" in run("info", tmp_path / "m.raymkl").output
    run("predict", tmp_path / "m.raymkl", tmp_path / "data.csv", "--out", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv")
    names = [f"probability_{label}" for label in sorted(frame["label"].unique())]
    np.testing.assert_allclose(written[names].sum(axis=1), 1.0)
    assert (written[names].to_numpy().argmax(axis=1) == np.searchsorted(sorted(frame["label"].unique()), written["prediction"])).all()
    np.testing.assert_allclose(written[names], load(tmp_path / "m.raymkl").predict_proba(frame), atol=1e-12)


def test_no_probabilities_of_other_losses_and_a_search(tmp_path):
    FRAME[Y < 2].to_csv(tmp_path / "data.csv", index=False)
    options = [
        "--target",
        "label",
        "--standardize",
        "--engine",
        "local",
        "--loss",
        "squared_hinge",
        "--C",
        "0.1,1",
        "--p",
        "1.33",
        "--cv",
        "3",
    ]
    run("search", tmp_path / "data.csv", *options, "--out", tmp_path / "m.raymkl")
    assert load(tmp_path / "m.raymkl").model.loss == "squared_hinge"
    run("predict", tmp_path / "m.raymkl", tmp_path / "data.csv", "--out", tmp_path / "p.csv")
    assert not [name for name in pd.read_csv(tmp_path / "p.csv") if name.startswith("probability")]
    wrong = CliRunner().invoke(main, ["train", str(tmp_path / "data.csv"), "--target", "label", "--loss", "huber"])
    assert wrong.exit_code == 2 and "squared_hinge" in wrong.output
