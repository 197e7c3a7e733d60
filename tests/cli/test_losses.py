"""Losses on the command line: the option, what models say of it, and probabilities beside the predictions."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from raymkl import load
from tests.cli.builders import TRAIN, run, run_well

X, Y = load_wine(return_X_y=True)
FRAME = (
    pd.DataFrame(X)
    .set_axis([f"x{i}" for i in range(X.shape[1])], axis=1)
    .assign(label=np.array(["red", "rose", "white"])[Y])
)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_written(tmp_path, classes):
    frame = FRAME[classes > Y]
    frame.to_csv(tmp_path / "data.csv", index=False)
    run_well("train", tmp_path / "data.csv", *TRAIN, "--loss", "logistic", "--out", tmp_path / "m.raymkl")
    told = json.loads(run_well("info", tmp_path / "m.raymkl", "--json").output)
    assert told["loss"] == "logistic" and "loss = logistic" in run_well("info", tmp_path / "m.raymkl").output
    run_well("predict", tmp_path / "m.raymkl", tmp_path / "data.csv", "--out", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv")
    names = [f"probability_{label}" for label in sorted(frame["label"].unique())]
    np.testing.assert_allclose(written[names].sum(axis=1), 1.0)
    assert (
        written[names].to_numpy().argmax(axis=1)
        == np.searchsorted(sorted(frame["label"].unique()), written["prediction"])
    ).all()
    np.testing.assert_allclose(written[names], load(tmp_path / "m.raymkl").predict_proba(frame), atol=1e-12)


def test_no_probabilities_of_other_losses_and_a_search(tmp_path):
    FRAME[Y < 2].to_csv(tmp_path / "data.csv", index=False)
    options = [*TRAIN, "--loss", "squared_hinge", "--C", "0.1,1", "--p", "1.33", "--cv", "3"]
    run_well("search", tmp_path / "data.csv", *options, "--out", tmp_path / "m.raymkl")
    assert load(tmp_path / "m.raymkl").model.loss == "squared_hinge"
    run_well("predict", tmp_path / "m.raymkl", tmp_path / "data.csv", "--out", tmp_path / "p.csv")
    assert not [name for name in pd.read_csv(tmp_path / "p.csv") if name.startswith("probability")]
    wrong = run("train", tmp_path / "data.csv", "--target", "label", "--loss", "huber")
    assert wrong.exit_code == 2 and "squared_hinge" in wrong.output
