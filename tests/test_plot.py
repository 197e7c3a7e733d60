"""Pictures: what is drawn is what the model holds, on the axes that were asked for."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from raymkl import MKLClassifier, diagnostics, kernels, load

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from raymkl.plot import (  # noqa: E402
    AlignmentDisplay,
    ConvergenceDisplay,
    KernelWeightsDisplay,
    SpectraDisplay,
    kernel_names,
    shorten,
    weight_rows,
)

BANK = [*kernels.rbf([0.01, 0.1, 1.0]), kernels.Linear()]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


@pytest.fixture(scope="module")
def binary(data):
    X, y = data
    return MKLClassifier(kernels=BANK, engine="local").fit(X, y == 1)


@pytest.fixture(scope="module")
def many(data):
    X, y = data
    return MKLClassifier(kernels=BANK, engine="local").fit(X, np.array(["a", "b", "c"])[y])


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def test_bars_have_the_lengths_of_the_weights(binary):
    display = KernelWeightsDisplay.from_estimator(binary)
    order = np.argsort(-binary.kernel_weights_, kind="stable")
    np.testing.assert_allclose([bar.get_width() for bar in display.ax_.patches], binary.kernel_weights_[order])
    assert labels(display.ax_.get_yticklabels()) == [repr(BANK[m]) for m in order]
    unsorted = KernelWeightsDisplay.from_estimator(binary, sort=False, top=2)
    assert len(unsorted.ax_.patches) == 2 and "2 largest of 4" in unsorted.ax_.get_title()
    assert [bar.get_width() for bar in unsorted.ax_.patches] == binary.kernel_weights_[np.sort(order[:2])].tolist()


def test_weights_of_several_classes_are_a_heat_map(many):
    display = KernelWeightsDisplay.from_estimator(many, sort=False)
    np.testing.assert_allclose(display.ax_.images[0].get_array(), many.kernel_weights_)
    assert labels(display.ax_.get_yticklabels()) == ["a", "b", "c"]
    assert labels(display.ax_.get_xticklabels()) == kernel_names(BANK)
    assert display.ax_.images[0].get_cmap().name == "cividis"


def test_weights_of_clusters_and_of_classes_with_clusters(binary, many):
    class Localized:
        def __init__(self, model, weights):
            self.kernel_weights_, self.dual_coef_, self.kernels_ = weights, model.dual_coef_, model.kernels_
            self.classes_ = model.classes_

    rng = np.random.default_rng(0)
    assert weight_rows(Localized(binary, rng.random((2, 4))))[1] == ["cluster 0", "cluster 1"]
    flat, names = weight_rows(Localized(many, rng.random((3, 2, 4))))
    assert flat.shape == (6, 4) and names[:3] == ["a, cluster 0", "a, cluster 1", "b, cluster 0"]
    assert weight_rows(Localized(binary, rng.random((1, 2, 4))))[0].shape == (2, 4)


def test_convergence_shows_the_history(binary, many):
    display = ConvergenceDisplay.from_estimator(binary)
    line = display.ax_.lines[0]
    np.testing.assert_allclose(line.get_ydata(), [row["gap"] for row in binary.history_])
    np.testing.assert_allclose(line.get_xdata(), [row["seconds"] for row in binary.history_])
    assert display.ax_.get_yscale() == "log"
    several = ConvergenceDisplay.from_estimator(many, kind="objectives", x="round")
    assert len(several.ax_.lines) == 6
    own = [row for row in many.history_ if row["head"] == 2]
    np.testing.assert_allclose(several.ax_.lines[5].get_ydata(), [row["dual"] for row in own])
    assert "c: dual" in labels(several.ax_.get_legend().get_texts())


def test_alignment_matrix_and_labels(data, binary):
    X, y = data
    matrix, target = diagnostics.alignment(BANK, X, y)
    display = AlignmentDisplay.from_kernels(BANK, X, y)
    np.testing.assert_allclose(display.ax_.images[0].get_array()[:4, :4], matrix)
    np.testing.assert_allclose(display.ax_.images[0].get_array()[4, :4], target)
    assert labels(display.ax_.get_xticklabels())[-1] == "labels"
    on_support = AlignmentDisplay.from_estimator(binary)
    np.testing.assert_allclose(on_support.alignment, diagnostics.alignment(BANK, X[binary.support_]), atol=1e-10)
    stack = np.stack([kernel(X) for kernel in BANK], axis=-1)
    assert AlignmentDisplay.from_kernels(stack).names == ["matrix 0", "matrix 1", "matrix 2", "matrix 3"]


def test_spectra_are_lines(data, binary):
    X, _ = data
    found = diagnostics.spectra(BANK, X)
    display = found.plot()
    assert isinstance(display, SpectraDisplay) and (display.ax_.get_xscale(), display.ax_.get_yscale()) == ("log", "log")
    for line, values, decay in zip(display.ax_.lines, found.eigenvalues, found.decay, strict=True):
        np.testing.assert_allclose(line.get_ydata(), values[values > 1e-14 * values[0]])
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(line.get_ydata()) + 1))
        assert f"decay {decay:.2g}" in line.get_label()
    on_support = SpectraDisplay.from_estimator(binary)
    np.testing.assert_allclose(on_support.eigenvalues, diagnostics.spectra(BANK, X[binary.support_]).eigenvalues, atol=1e-10)
    some = SpectraDisplay.from_kernels(kernels.rbf(np.geomspace(0.01, 10, 30)), X, top=5)
    assert len(some.ax_.lines) == 5 and "5 of 30" in some.ax_.get_title()


@pytest.mark.parametrize("draw", [KernelWeightsDisplay, ConvergenceDisplay, AlignmentDisplay, SpectraDisplay])
def test_given_axes_are_used_and_loaded_models_work(draw, many, tmp_path):
    many.save(tmp_path / "m.raymkl")
    figure, (left, right) = plt.subplots(1, 2)
    display = draw.from_estimator(load(tmp_path / "m.raymkl"), ax=right)
    assert display.ax_ is right and display.figure_ is figure and not left.has_data()
    again = display.plot()
    assert again is display and display.ax_ is not right


def test_many_kernels(data):
    X, y = data
    model = MKLClassifier(kernels=kernels.rbf(np.geomspace(1e-3, 10, 200)), engine="local").fit(X, y == 1)
    display = KernelWeightsDisplay.from_estimator(model)
    assert len(display.ax_.patches) == 30 and "30 largest of 200" in display.ax_.get_title()
    display.figure_.canvas.draw()
    AlignmentDisplay.from_estimator(model).figure_.canvas.draw()


def test_names():
    assert shorten("x" * 100, 20) == "x" * 13 + "…" + "x" * 6
    assert kernel_names([kernels.Linear(), kernels.Linear(), kernels.RBF()]) == ["Linear() #0", "Linear() #1", "RBF()"]


def test_errors(binary):
    with pytest.raises(NotFittedError):
        KernelWeightsDisplay.from_estimator(MKLClassifier())
    with pytest.raises(ValueError, match="kind must be"):
        ConvergenceDisplay.from_estimator(binary, kind="loss")
    with pytest.raises(ValueError, match="names has 1"):
        KernelWeightsDisplay(np.ones(2), ["one"]).plot()
    with pytest.raises(ValueError, match="alignment has shape"):
        AlignmentDisplay(np.ones((2, 2)), ["one"]).plot()
    with pytest.raises(ValueError, match="of 2 kernels, but there are 1 names"):
        SpectraDisplay(np.ones((2, 5)), ["one"]).plot()


def test_without_matplotlib_the_error_names_the_extra():
    code = """
import sys
sys.modules["matplotlib"] = None
import raymkl, numpy as np
try:
    raymkl.plot.KernelWeightsDisplay(np.ones(2), ["a", "b"]).plot()
except ImportError as error:
    assert "raymkl[plot]" in str(error), error
else:
    raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_raymkl_loads_no_matplotlib():
    code = "import sys, raymkl, raymkl.plot, raymkl.diagnostics; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
