"""A table, options that train on it, and a command line that runs in this process."""

import numpy as np
import pandas as pd
from click.testing import CliRunner
from sklearn.datasets import load_breast_cancer

from raymkl.cli import main

X, Y = load_breast_cancer(return_X_y=True)
X = X[:, :12]
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(
    label=np.where(Y == 1, "benign", "malignant")
)
TRAIN = ["--target", "label", "--standardize", "--engine", "local"]


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_well(*arguments):
    """The same, and it must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result
