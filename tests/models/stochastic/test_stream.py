"""The stochastic trainer where rows keep coming: bad parts leave the model as it was, and what an earlier fit
left is gone.
"""

import numpy as np
import pytest

from raymkl import StochasticMKLClassifier, load
from raymkl.engine.programs.dual_averaging import Task, norm
from raymkl.engine.programs.landmarks import State
from raymkl.kernels import Linear, rbf
from raymkl.models.stochastic.stream import Stream, all_classes, labels_among, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
random = np.random.default_rng(0)
X = random.normal(size=(90, 4))
Y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.4])
T = random.normal(size=(20, 4))


def model(**more):
    settings = {
        "kernels": [*rbf([0.05, 0.5]), Linear()],
        "C": 0.1,
        "max_iter": 3,
        "n_landmarks": 12,
        "random_state": 0,
        "engine": "local",
    }
    return StochasticMKLClassifier(**{**settings, **more})


def test_classes():
    assert all_classes(["b", "a", "b"], None).tolist() == ["a", "b"]
    known = np.array([0, 1, 2])
    assert all_classes(None, known) is known and all_classes([2, 1, 0], known).tolist() == [0, 1, 2]
    for classes, before, word in (
        (None, None, "must be given"),
        ([0, 1], known, "not those of the calls before"),
        ([0.0, np.nan], None, "NaN"),
        ([3], None, "two classes"),
        ([], None, "two classes"),
    ):
        with pytest.raises(ValueError, match=word):
            all_classes(classes, before)


def test_labels():
    with pytest.warns(match="column-vector"):
        assert labels_among([[1], [0]], 2, np.array([0, 1])).tolist() == [1, 0]
    with pytest.raises(ValueError, match="different lengths"):
        labels_among([0, 1], 3, np.array([0, 1]))
    with pytest.raises(ValueError, match="label 7, which is not among"):
        labels_among([0, 7], 2, np.array([0, 1]))


def test_weights():
    y = np.array([0, 1, 1])
    assert weights_of([1.0, 2.0, 0.0], {1: 3.0}, y).tolist() == [1.0, 6.0, 0.0]
    for sample_weight, class_weight, word in (
        (None, {0: -1.0}, "class_weight"),
        (None, {0: np.nan}, "class_weight"),
        (None, {0: 0.0, 1: 0.0}, "no row"),
        (np.zeros(3), None, "non-zero"),
        ([1.0, 1.0, -1.0], None, "[Nn]egative"),
        (None, "balanced", "class_weight"),
    ):
        with pytest.raises(ValueError, match=word):
            weights_of(sample_weight, class_weight, y)


def test_what_is_kept_and_its_dual_value():
    theta = random.normal(size=(2, 3, 4))
    stream = Stream(State(theta, 5.0, 9, 12.0), 3, np.ones(2))
    again = Stream.of(stream.kept)
    assert (
        again.state.theta is not theta
        and np.array_equal(again.state.theta, theta)
        and again.kept[1:5] == stream.kept[1:5]
    )
    task = Task(Y, np.ones(90), 3, 0.4, 3.0, np.array([0.1, 0.01]), 1, 1, 0.1, 3)
    lengths = 0.4 * np.sqrt((theta**2).sum(axis=(1, 2)))
    rho = 0.4 * 12.0 * task.prices
    assert stream.dual(task) == pytest.approx(
        0.4 * 5.0 - 0.5 * norm(np.maximum(lengths - rho, 0), 3.0) ** 2, rel=1e-12
    )


@pytest.mark.parametrize(
    "part, word",
    [
        ({"y": Y + 5}, "not among"),
        ({"y": Y, "classes": [0, 1, 2, 3]}, "calls before"),
        ({"y": Y, "sample_weight": np.zeros(90)}, "non-zero"),
        ({"y": Y[:9]}, "lengths"),
    ],
)
def test_a_bad_part_leaves_the_model(part, word):
    clf = model().partial_fit(X, Y, classes=[0, 1, 2])
    before = clf.decision_function(T)
    with pytest.raises(ValueError, match=word):
        clf.partial_fit(X, **part)
    assert (
        np.array_equal(clf.decision_function(T), before)
        and clf.classes_.tolist() == [0, 1, 2]
        and clf.n_iter_ == 1
    )


def test_nothing_of_a_fit_without_landmarks_is_left():
    clf = model(n_landmarks=None, normalize="tail").fit(X, Y)
    clf.set_params(n_landmarks=12, normalize=None).partial_fit(X, Y, classes=[0, 1, 2])
    assert not hasattr(clf, "dual_coef_") and not hasattr(clf, "tail_sums_") and clf.history_ == []
    fresh = model().partial_fit(X, Y, classes=[0, 1, 2])
    assert np.array_equal(clf.decision_function(T), fresh.decision_function(T))


def test_it_goes_on_out_of_a_file(tmp_path):
    clf = model(beta=0.01, normalize="multiplicative").fit(X[:60], Y[:60])
    clf.save(tmp_path / "model.raymkl")
    again = load(tmp_path / "model.raymkl")
    for one in (clf, again):
        one.partial_fit(X[60:], Y[60:])
    assert (
        np.array_equal(clf.decision_function(T), again.decision_function(T))
        and clf.dual_objective_ == again.dual_objective_
    )
