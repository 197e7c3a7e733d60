"""Models answer a Dataset with a Dataset: lazily, in the order of the rows, with columns that say what they
are.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from raymkl import ClusteredMKLClassifier, MKLClassifier, MKLRegressor
from raymkl.kernels import rbf
from raymkl.models.dataset_answers import Worker

X, Y = load_iris(return_X_y=True)
NAMES = ["u", "v", "w", "x"]
TABLE = pd.DataFrame(X, columns=NAMES)
WORDS = np.array(["setosa", "versicolor", "virginica"])[Y]
BANK = rbf([0.1, 1.0])


@pytest.fixture(scope="module")
def three():
    return MKLClassifier(kernels=BANK, engine="local").fit(TABLE, WORDS)


@pytest.fixture(scope="module")
def dataset(ray_cluster):
    """More columns than a model wants, in several blocks."""
    return ray_cluster.data.from_pandas(TABLE.assign(other="text")).repartition(5)


def test_predictions_come_in_the_order_of_the_rows(three, dataset):
    answer = three.predict(dataset)
    assert type(answer).__name__ == "Dataset"
    frame = answer.to_pandas()
    assert frame.columns.tolist() == ["prediction"]
    np.testing.assert_array_equal(frame["prediction"], three.predict(TABLE))


def test_decisions_have_the_names_of_their_classes(three, dataset):
    frame = three.decision_function(dataset).to_pandas()
    assert frame.columns.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(frame.to_numpy(float), three.decision_function(TABLE))


def test_contributions_probabilities_and_regression(ray_cluster, dataset):
    two = MKLClassifier(kernels=BANK, loss="logistic", engine="local").fit(X[:100], Y[:100])
    plain = ray_cluster.data.from_numpy(X[:100])
    np.testing.assert_allclose(
        two.decision_function(plain).to_pandas()["decision"].to_numpy(float), two.decision_function(X[:100])
    )
    rows = two.contributions(plain).take_all()
    np.testing.assert_allclose([row["contributions"] for row in rows], two.contributions(X[:100]))
    clustered = ClusteredMKLClassifier(
        n_clusters=2, n_features=8, tol=1.0, engine="local", random_state=0
    ).fit(TABLE, WORDS)
    np.testing.assert_allclose(
        clustered.predict_proba(dataset).to_pandas().to_numpy(float), clustered.predict_proba(TABLE)
    )
    regressor = MKLRegressor(kernels=BANK, engine="local").fit(TABLE[["u", "v", "w"]], X[:, 3])
    np.testing.assert_allclose(
        regressor.predict(dataset).to_pandas()["prediction"].to_numpy(float),
        regressor.predict(TABLE[["u", "v", "w"]]),
    )


def test_sets_and_intervals(dataset):
    model = MKLClassifier(kernels=BANK, probability="sigmoid", conformal=True, cv=2, engine="local").fit(
        TABLE, WORDS
    )
    frame = model.predict_set(dataset, coverage=0.7).to_pandas()
    assert frame.columns.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_array_equal(frame.to_numpy(bool), model.predict_set(TABLE, coverage=0.7))
    regressor = MKLRegressor(kernels=BANK, conformal=True, cv=2, engine="local").fit(
        TABLE[["u", "v", "w"]], X[:, 3]
    )
    frame = regressor.predict_interval(dataset, 0.8).to_pandas()
    assert frame.columns.tolist() == ["low", "high"]
    np.testing.assert_allclose(frame.to_numpy(float), regressor.predict_interval(TABLE[["u", "v", "w"]], 0.8))


def test_scores_of_a_dataset_are_numbers(three, ray_cluster):
    assert three.score(ray_cluster.data.from_pandas(TABLE.assign(label=WORDS)), "label") == three.score(
        TABLE, WORDS
    )


def test_what_is_wrong_is_said_at_once(three, ray_cluster):
    with pytest.raises(ValueError, match="no column 'w'"):
        three.predict(ray_cluster.data.from_pandas(TABLE.drop(columns="w")))
    with pytest.raises(NotFittedError):
        MKLClassifier(kernels=BANK).predict(ray_cluster.data.from_pandas(TABLE))


def test_a_worker_has_no_answer_for_no_rows(three, ray_cluster):
    import pyarrow as pa

    worker = Worker([ray_cluster.put(three)], "predict")
    table = pa.Table.from_pandas(TABLE, preserve_index=False)
    assert worker(table[:0]) == {}
    np.testing.assert_array_equal(worker(table)["prediction"], three.predict(TABLE))
