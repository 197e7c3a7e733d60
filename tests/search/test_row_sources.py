"""Searches and regressions over files: y is the name of a column."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raymkl import MKLClassifier, MKLRegressor
from raymkl.kernels import rbf
from raymkl.models import sources
from raymkl.search import MKLSearchCV
from tests.reference import noisy_problem

X, Y = noisy_problem(90, seed=3)
NAMES = [f"f{j}" for j in range(X.shape[1])]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(
        pa.table({**dict(zip(NAMES, X.T, strict=True)), "y": Y, "z": X[:, 0] * 2.0}).drop_columns(["f0"]),
        path,
    )
    return path


def test_a_search_over_a_file_is_the_search_over_its_rows(path, monkeypatch):
    model, grid = MKLClassifier(kernels=rbf([0.05, 0.5]), engine="local"), {"C": [0.1, 10.0], "p": [1.0, 2.0]}
    rows = np.column_stack([X[:, 1:], X[:, 0] * 2.0])
    direct, read = MKLSearchCV(model, grid, cv=3).fit(rows, Y), MKLSearchCV(model, grid, cv=3).fit(path, "y")
    np.testing.assert_allclose(read.cv_results_["mean_test_score"], direct.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(read.predict(path), direct.predict(rows))
    assert list(read.feature_names_in_) == [*NAMES[1:], "z"]
    monkeypatch.setattr(sources.inputs, "MOST_IN_MEMORY", 100)
    with pytest.raises(ValueError, match="into memory"):
        MKLSearchCV(model, grid, cv=3).fit(path, "y")


def test_regression_on_a_column(path):
    direct = MKLRegressor(kernels=rbf([0.05]), engine="local").fit(
        np.column_stack([X[:, 1:], Y]), X[:, 0] * 2.0
    )
    read = MKLRegressor(kernels=rbf([0.05]), engine="local").fit(path, "z")
    np.testing.assert_allclose(read.predict(path), direct.predict(np.column_stack([X[:, 1:], Y])), rtol=1e-9)
    assert read.score(path, "z") == pytest.approx(direct.score(np.column_stack([X[:, 1:], Y]), X[:, 0] * 2.0))
