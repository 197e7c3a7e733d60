"""Pictures: what is drawn is what the model holds, on the axes that were asked for."""

import io
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from raymkl import (
    ClusteredMKLClassifier,
    DirichletProcessMixture,
    MKLClassifier,
    diagnostics,
    evaluate,
    kernels,
    load,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402

from raymkl.plot import (  # noqa: E402
    AlignmentDisplay,
    ClustersDisplay,
    ConvergenceDisplay,
    KernelWeightsDisplay,
    ScalesDisplay,
    SpectraDisplay,
    kernel_names,
    shorten,
    weight_rows,
)
from raymkl.plot.base import PALETTE, Display  # noqa: E402

BANK = [*kernels.rbf([0.01, 0.1, 1.0]), kernels.Linear()]
SVG = "{http://www.w3.org/2000/svg}"


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
    np.testing.assert_allclose(
        [bar.get_width() for bar in display.ax_.patches], binary.kernel_weights_[order]
    )
    assert labels(display.ax_.get_yticklabels()) == [repr(BANK[m]) for m in order]
    unsorted = KernelWeightsDisplay.from_estimator(binary, sort=False, top=2)
    assert len(unsorted.ax_.patches) == 2 and "2 largest of 4" in unsorted.ax_.get_title()
    assert [bar.get_width() for bar in unsorted.ax_.patches] == binary.kernel_weights_[
        np.sort(order[:2])
    ].tolist()


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
    np.testing.assert_allclose(
        on_support.alignment, diagnostics.alignment(BANK, X[binary.support_]), atol=1e-10
    )
    stack = np.stack([kernel(X) for kernel in BANK], axis=-1)
    assert AlignmentDisplay.from_kernels(stack).names == ["matrix 0", "matrix 1", "matrix 2", "matrix 3"]


def test_spectra_are_lines(data, binary):
    X, _ = data
    found = diagnostics.spectra(BANK, X)
    display = found.plot()
    assert isinstance(display, SpectraDisplay) and (display.ax_.get_xscale(), display.ax_.get_yscale()) == (
        "log",
        "log",
    )
    for line, values, decay in zip(display.ax_.lines, found.eigenvalues, found.decay, strict=True):
        np.testing.assert_allclose(line.get_ydata(), values[values > 1e-14 * values[0]])
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, len(line.get_ydata()) + 1))
        assert f"decay {decay:.2g}" in line.get_label()
    on_support = SpectraDisplay.from_estimator(binary)
    np.testing.assert_allclose(
        on_support.eigenvalues, diagnostics.spectra(BANK, X[binary.support_]).eigenvalues, atol=1e-10
    )
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
    assert kernel_names([kernels.Linear(), kernels.Linear(), kernels.RBF()]) == [
        "Linear() #0",
        "Linear() #1",
        "RBF()",
    ]


STRANGE = ["$\\alpha$ <b>", "_first_ & $second", "two\nlines\x07", "price in $"]


def written(display):
    """All words of a picture, as a reader of an SVG file finds them."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        display.figure_.savefig(text, format="svg")
    return [element.text.strip() for element in ElementTree.fromstring(text.getvalue()).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "display",
    [
        KernelWeightsDisplay(np.ones(4), STRANGE),
        KernelWeightsDisplay(np.ones((4, 4)), STRANGE, STRANGE),
        AlignmentDisplay(np.eye(4), STRANGE),
        SpectraDisplay(np.ones((4, 3)), STRANGE),
        ConvergenceDisplay(
            [{"head": h, "seconds": s, "gap": 0.1**s} for h in range(4) for s in range(9)], STRANGE, 1e-3
        ),
        ScalesDisplay(np.ones((4, 4)), STRANGE, STRANGE),
        evaluate.ComparisonDisplay({name: np.array([0.5, 0.7]) for name in STRANGE}),
        evaluate.StabilityDisplay(STRANGE, *np.ones((3, 4, 4)), rows=STRANGE),
    ],
    ids=lambda display: type(display).__name__,
)
def test_names_are_shown_as_they_are(display):
    """No formulas in them, none left out because of an underscore, and no formulas beside the axes either."""
    words = written(display.plot())
    assert {"$\\alpha$ <b>", "_first_ & $second", "two lines\ufffd", "price in $"} <= set(words)
    assert not [word for word in words if "mathdefault" in word]


def test_names_of_differences_are_shown_as_they_are():
    display = evaluate.DropDisplay(STRANGE, np.ones((4, 2)), np.full(4, 0.04)).plot()
    assert {"$\\alpha$ <b>  (p = 0.04)", "_first_ & $second  (p = 0.04)"} <= set(written(display))


def test_powers_of_ten_are_plain_text():
    history = [{"head": 0, "seconds": s, "gap": 10.0**-s} for s in range(10)]
    words = written(ConvergenceDisplay(history).plot())
    assert {"1", "0.01"} <= set(words) and {"10⁻⁴", "10⁻⁸"} <= set(words)
    near = [{"head": 0, "seconds": s, "gap": 3e-3 + 1e-4 * s} for s in range(4)]
    assert [word for word in written(ConvergenceDisplay(near).plot()) if word.startswith("0.003")]


def test_a_display_that_draws_nothing_says_so():
    with pytest.raises(TypeError, match="Display draws nothing"):
        Display().plot()


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


def test_without_matplotlib_the_error_says_what_to_install():
    code = """
import sys
sys.modules["matplotlib"] = None
import raymkl, numpy as np
try:
    raymkl.plot.KernelWeightsDisplay(np.ones(2), ["a", "b"]).plot()
except ImportError as error:
    assert "pip install matplotlib" in str(error), error
else:
    raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_raymkl_loads_no_matplotlib():
    code = "import sys, raymkl, raymkl.plot, raymkl.diagnostics; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


@pytest.fixture(scope="module")
def plane():
    """Three clusters in the plane with two classes."""
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=240)
    X = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])[z] + rng.normal(size=(240, 2))
    return X, np.array(["no", "yes"])[(X[:, 0] > 3.0).astype(int)]


@pytest.fixture(scope="module")
def clustered(plane):
    return ClusteredMKLClassifier(
        n_clusters=4, n_features=16, max_iter=3, final_epochs=2, engine="local", random_state=0
    ).fit(*plane)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestClusters:
    def test_ellipses_are_those_of_the_covariances(self, plane):
        mixture = DirichletProcessMixture(n_clusters=6, engine="local", random_state=0).fit(plane[0])
        display = ClustersDisplay.from_estimator(mixture, plane[0], deviations=1.5)
        assert len(display.ax_.lines) == 3 and not display.ax_.images
        for k, line in enumerate(display.ax_.lines):
            off = np.column_stack(line.get_data()) - mixture.means_[k]
            distance = np.einsum("ni,in->n", off, np.linalg.solve(mixture.covariances_[k], off.T))
            np.testing.assert_allclose(distance, 1.5**2)
            assert line.get_label() == f"cluster {k} ({mixture.cluster_weights_[k]:.0%})"
        colors = [to_hex(color).upper() for color in display.ax_.collections[0].get_facecolors()]
        assert colors == [PALETTE[k] for k in mixture.predict(plane[0])]

    def test_regions_are_those_of_predict(self, plane, clustered):
        X, y = plane
        display = ClustersDisplay.from_estimator(clustered, X, y, resolution=40)
        left, right, bottom, top = display.extent
        across, up = np.meshgrid(np.linspace(left, right, 40), np.linspace(bottom, top, 40))
        decided = clustered.predict(np.column_stack([across.ravel(), up.ravel()])).reshape(40, 40)
        shades = display.ax_.images[0].get_array()[:, :, 0]
        assert len(np.unique(shades)) == 2 and np.array_equal(shades == shades.min(), decided == "yes")
        assert {"class no", "class yes"} <= set(labels(display.ax_.get_legend().get_texts()))
        assert (display.ax_.get_xlim(), display.ax_.get_ylim()) == ((left, right), (bottom, top))

    def test_scales_are_a_heat_map(self, plane, clustered):
        display = ScalesDisplay.from_estimator(clustered, ["width", "height"])
        np.testing.assert_allclose(display.ax_.images[0].get_array(), clustered.scales_)
        assert labels(display.ax_.get_xticklabels()) == ["width", "height"]
        assert labels(display.ax_.get_yticklabels())[0] == f"cluster 0 ({clustered.cluster_weights_[0]:.0%})"
        many = ScalesDisplay(np.arange(100.0)[None], [f"c{j}" for j in range(100)]).plot(top=3)
        assert (
            labels(many.ax_.get_xticklabels()) == ["c97", "c98", "c99"]
            and "3 largest of 100" in many.ax_.get_title()
        )

    def test_names_of_a_data_frame(self, plane):
        X, y = pd.DataFrame(plane[0], columns=["east", "north"]), plane[1]
        model = ClusteredMKLClassifier(
            n_clusters=2, n_features=8, max_iter=2, final_epochs=1, engine="local", random_state=0
        ).fit(X, y)
        assert labels(ScalesDisplay.from_estimator(model).ax_.get_xticklabels()) == ["east", "north"]
        display = ClustersDisplay.from_estimator(model, X, y, resolution=10)
        assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("east", "north")

    def test_given_axes_and_many_rows(self, plane, clustered):
        figure, (left, right) = plt.subplots(1, 2)
        display = ClustersDisplay.from_estimator(
            clustered, np.tile(plane[0], (30, 1)), ax=right, resolution=10, legend=False
        )
        assert (
            display.ax_ is right
            and display.figure_ is figure
            and not left.has_data()
            and right.get_legend() is None
        )
        assert len(display.X) == 3_000
        figure.canvas.draw()
        assert ScalesDisplay.from_estimator(clustered, ax=left).ax_ is left

    def test_what_cannot_be_drawn_is_said_in_words(self, plane, clustered, binary):
        X, y = plane
        with pytest.raises(NotFittedError):
            ClustersDisplay.from_estimator(DirichletProcessMixture(), X)
        with pytest.raises(NotFittedError):
            ScalesDisplay.from_estimator(ClusteredMKLClassifier())
        with pytest.raises(ValueError, match="MKLClassifier has no clusters to draw: there is no means_"):
            ClustersDisplay.from_estimator(binary, X)
        mixture = DirichletProcessMixture(n_clusters=2, engine="local", random_state=0).fit(
            np.c_[X, X[:, :1] ** 2]
        )
        with pytest.raises(ValueError, match="must have two columns, this one has 3"):
            ClustersDisplay.from_estimator(mixture, X)
        with pytest.raises(ValueError, match="DirichletProcessMixture has no scales to draw"):
            ScalesDisplay.from_estimator(mixture)
        with pytest.raises(ValueError, match="X must have two columns"):
            ClustersDisplay.from_estimator(clustered, np.c_[X, X])
        with pytest.raises(ValueError, match="y has 3 entries, but X has 240 rows"):
            ClustersDisplay.from_estimator(clustered, X, y[:3])
        with pytest.raises(ValueError, match="feature_names has 1 entries"):
            ScalesDisplay.from_estimator(clustered, ["one"])
        with pytest.raises(ValueError, match="need covariances"):
            ClustersDisplay(np.zeros((2, 2)), np.zeros((3, 2, 2)), np.ones(2)).plot()
        with pytest.raises(ValueError, match="clusters in the plane"):
            ClustersDisplay(np.zeros((2, 3)), np.zeros((2, 3, 3)), np.ones(2)).plot()
        with pytest.raises(ValueError, match="scales have shape"):
            ScalesDisplay(np.ones((2, 2)), ["one"]).plot()
