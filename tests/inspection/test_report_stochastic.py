"""Reports of the stochastic trainer: over support vectors and over landmarks, after a fit, a stream and a
file.
"""

import re

import numpy as np
import pytest

import raymkl
from raymkl import StochasticMKLClassifier, diagnostics, kernels, load
from raymkl.inspection.report.facts import Facts
from raymkl.models.base import rows_and_gates
from raymkl.plot import KernelWeightsDisplay
from tests.inspection.test_report import SECTIONS, checked

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
BANK = [*kernels.rbf([0.05, 0.5, 5.0]), kernels.Linear()]
random = np.random.default_rng(3)
X = random.normal(size=(120, 3))
THREE = np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.4])]
TWO = np.where(X[:, 0] + X[:, 1] ** 2 > 0.8, "yes", "no")


def model(**more):
    return StochasticMKLClassifier(
        **{"kernels": BANK, "C": 0.1, "max_iter": 4, "random_state": 0, "engine": "local", **more}
    )


def tiles(page):
    """What the tiles of the summary say, by their names."""
    return {
        name: value
        for value, name in re.findall(
            r'<div class="tile[^"]*"><b class="[^"]*">([^<]*)</b><span>([^<]*)</span>', page
        )
    }


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("n_landmarks", [None, 15])
def test_after_a_fit_and_out_of_a_file(n_landmarks, y, tmp_path):
    clf = model(n_landmarks=n_landmarks, normalize="multiplicative").fit(X, y)
    clf.save(tmp_path / "model.raymkl")
    for examples in ((), (X,), (X, y)):
        page = raymkl.report(clf, *examples)
        found = checked(page)
        assert set(SECTIONS) <= set(found.ids) and ("predictions" in found.ids) == (len(examples) == 2)
        shown = tiles(page)
        assert (
            shown["epochs"] == "4"
            and shown["converged"] == "no"
            and float(shown["block norm p"]) == pytest.approx(1.564, abs=1e-3)
        )
        named = {"landmarks", "support vectors"} & set(shown)
        assert named == {"support vectors" if n_landmarks is None else "landmarks"}
        assert ("sum over 15 landmarks" in found.text) == (n_landmarks is not None)
        assert ("Size of the dual variables" in found.text) == (n_landmarks is None)
        again = raymkl.report(load(tmp_path / "model.raymkl"), *examples)
        assert tiles(again) == shown


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("fitted", [False, True], ids=["stream", "after a fit"])
def test_rows_that_keep_coming(fitted, y, tmp_path):
    clf = model(n_landmarks=15)
    if fitted:
        clf.fit(X[:60], y[:60])
    clf.partial_fit(X[60:], y[60:], classes=np.unique(y))
    clf.save(tmp_path / "model.raymkl")
    for now in (clf, load(tmp_path / "model.raymkl")):
        page = raymkl.report(now, X, y)
        text = checked(page).text
        assert f"at least {float(f'{now.dual_objective_:.4g}'):g}" in text and "holds no history" in text
        assert "converged" not in tiles(page) and tiles(page)["training rows"] == ("120" if fitted else "60")


@pytest.mark.parametrize("n_landmarks", [None, 15])
def test_two_classes_have_one_decision_value(n_landmarks):
    clf = model(n_landmarks=n_landmarks, normalize="spherical").fit(X, TWO)
    parts, values = Facts(clf, X).contributions(*rows_and_gates(clf, X))
    assert parts.shape == (len(X), 1, len(BANK))
    np.testing.assert_allclose(values[:, 0], clf.decision_function(X), atol=1e-9)
    np.testing.assert_allclose(parts[:, 0], clf.contributions(X), atol=1e-9)


@pytest.mark.parametrize("normalize", [None, "multiplicative", "spherical", "trace"])
def test_lengths_of_all_rows_as_landmarks_are_those_of_the_kernels(normalize):
    same = {"normalize": normalize, "beta": 0.01, "C": 0.3}
    full, every = model(**same).fit(X, THREE), model(n_landmarks=len(X), **same).fit(X, THREE)
    lengths = diagnostics.block_norms(full)
    assert lengths.max() > 0
    np.testing.assert_allclose(diagnostics.block_norms(every), lengths, rtol=1e-4, atol=1e-6 * lengths.max())


def test_pictures_of_landmarks():
    pytest.importorskip("matplotlib").use("Agg")
    clf = model(n_landmarks=15).fit(X, THREE)
    assert KernelWeightsDisplay.from_estimator(clf).plot().ax_ is not None
