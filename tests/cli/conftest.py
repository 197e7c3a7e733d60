"""A directory with data in several formats and a trained model, for all tests of the command line."""

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from tests.cli.builders import FRAME, TRAIN, X, Y, run_well


@pytest.fixture(scope="session")
def box(tmp_path_factory):
    """Data in several formats and a trained model. Tests may add files of their own."""
    box = tmp_path_factory.mktemp("cli")
    FRAME[:200].to_csv(box / "train.csv", index=False)
    FRAME[200:300].to_parquet(box / "test.parquet")
    FRAME[:200].assign(x3=FRAME["x3"].where(FRAME.index != 5)).to_csv(box / "bad.csv", index=False)
    FRAME[:200].assign(note="text", place="here").to_csv(box / "text.csv", index=False)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.savez(box / "views.npz", view_size=Z[:200, :6], view_shape=Z[:200, 6:], y=Y[:200])
    dump_svmlight_file(Z[:200], Y[:200], str(box / "d.libsvm"), zero_based=False)
    run_well(
        "train",
        box / "train.csv",
        *TRAIN,
        "--kernels",
        "rbf:0.01,0.1;poly:2;linear",
        "--p",
        "1.33",
        "--out",
        box / "m.raymkl",
    )
    return box
