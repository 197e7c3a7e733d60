"""Pictures of the report: those of `raymkl.plot`, in colours that follow the reader, with the names as they
are.
"""

import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

import raymkl
from raymkl import MKLClassifier, kernels
from raymkl.inspection.report import pictures
from raymkl.inspection.report.style import CSS
from raymkl.inspection.report.svg import COLORS, PAGE, inline, picture
from raymkl.plot import KernelWeightsDisplay
from tests.inspection.test_report import checked

NAMES = ["<b>&amp;", "$\\alpha$ or $5", "_hidden_name", "price $", "two\nlines\x00", "表 ünïcode", "a://b.c"]
VALUES = np.linspace(1.0, 0.1, len(NAMES))


def svgs(page):
    return re.findall(r"<svg.*?</svg>", page, re.S)


def texts(svg):
    """Words of the text elements of a picture, and its tooltips."""
    root = ElementTree.fromstring(svg)
    return [element.text for element in root.iter("text")], [element.text for element in root.iter("title")]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    views = {"a_<b>&$c$": X[:, :2], "_second": X[:, 2:]}
    return views, np.array(["_low", "$mid$", "<top>"])[np.digitize(X[:, 0] + X[:, 2] ** 2, [0.3, 1.2])]


@pytest.fixture(scope="module")
def model(data):
    X, y = data
    bank = [kernel for view in X for kernel in kernels.rbf([0.1, 1.0], view=view)]
    return MKLClassifier(kernels=bank, engine="local").fit(X, y)


@pytest.fixture(scope="module")
def page(model, data):
    return raymkl.report(model, *data)


def test_the_same_model_gives_the_same_bytes(model, data, monkeypatch, tmp_path):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("first", "second"):
        raymkl.report(model, *data, path=tmp_path / name)
    page = (tmp_path / "first").read_bytes()
    assert page == (tmp_path / "second").read_bytes() and b"2023-11-14 22:13 UTC" in page


def test_settings_of_the_user_change_nothing(model, page):
    import matplotlib

    other = {"font.size": 30.0, "axes.facecolor": "red", "text.usetex": True, "svg.fonttype": "path"}
    with matplotlib.rc_context(other):
        before = dict(matplotlib.rcParams)
        again = raymkl.report(model)
        assert dict(matplotlib.rcParams) == before
    assert svgs(again)[:2] == svgs(page)[:2]


def test_the_report_draws_without_pyplot():
    code = """
import sys, numpy as np, raymkl
X = np.random.default_rng(0).normal(size=(40, 2))
model = raymkl.MKLClassifier(kernels=raymkl.kernels.rbf([0.1, 1.0]), engine="local").fit(X, X[:, 0] > 0)
assert "matplotlib" not in sys.modules
raymkl.report(model)
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_report_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        raymkl.report(model)


def test_colours_follow_the_reader(page):
    """Every colour is that of the text around or a variable that has a value for light and for dark."""
    light, dark = CSS.split("@media (prefers-color-scheme: dark)")
    found = set()
    for svg in svgs(page):
        for name, value in re.findall(r"\b(fill|stroke|color|background)[:=]\"?([^;\"]+)", svg):
            assert value in {"none", "currentColor"} or value.startswith("var(--"), (name, value)
            found.add(value)
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb\(|font-family|<image", svg)
    variables = {value[4:-1] for value in found if value.startswith("var(")}
    assert {"--s0", "--soft", "--grid", "--heat", "--on-heat"} <= variables
    assert all(f"{name}:" in light and f"{name}:" in dark for name in variables)
    assert variables <= {value[4:-1] for value in COLORS.values() if value.startswith("var(")}


def test_every_picture_fits_and_has_a_name(page):
    found = svgs(page)
    labels = [re.search(r'aria-label="([^"]+)"', svg).group(1) for svg in found]
    assert len(found) == 13 and len(set(labels)) == 13
    for svg in found:
        head = svg[: svg.index(">")]
        width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', head).groups())
        assert 'role="img"' in head and "min-width" not in head and " width=" not in head
        assert 60 < width < 700 and height > 20
        assert not re.search(r'\bid="|href=|url\(', svg)
    assert "svg { display: block; width: 100%; height: auto;" in CSS


def test_names_of_users_are_shown_as_they_are(page):
    checked(page)
    words = [word for svg in svgs(page) for word in texts(svg)[0]]
    for kernel in ("RBF(gamma=0.1, view='a_<b>&$c$')", "RBF(gamma=0.1, view='_second')"):
        assert words.count(kernel) >= 4
    assert {"_low", "$mid$", "<top>"} <= {word.strip() for word in words}
    legends = [word.strip() for word in words if "AUC" in word]
    assert {word.split(",")[0] for word in legends} == {"mean of 3 classes", "_low", "$mid$", "<top>"}
    assert "mathdefault" not in page and "tspan" not in page


@pytest.mark.parametrize(
    "draw",
    [
        lambda: pictures.largest_weights(VALUES, NAMES, 30, "weights"),
        lambda: pictures.bars_of(NAMES, [("", VALUES)], "bars"),
        lambda: pictures.map_of(VALUES[:, None], NAMES, ["one"], "cells"),
        lambda: pictures.curves([(name, [0.0, 1.0], [0.0, 1.0]) for name in NAMES], ("x", "y"), "lines"),
    ],
    ids=["weights", "bars", "cells", "legend"],
)
def test_any_name_can_be_drawn(draw):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = draw()
    assert "://" not in svg
    words = {word.strip() for word in texts(svg)[0]}
    shown = {"two\nlines\x00": "two lines\ufffd"}
    assert {shown.get(name, name) for name in NAMES} <= words


def test_hints_say_values_and_whole_names():
    long = "RBF(gamma=0.1, view='" + "x" * 100 + "')"
    bars = pictures.bars_of(
        [long, "b"], [("one", np.array([1.0, 2.0])), ("two", np.array([3.0, 0.5]))], "bars"
    )
    words, hints = texts(bars)
    assert hints == [f"{long}, one: 1", "b, one: 2", f"{long}, two: 3", "b, two: 0.5"]
    assert long not in words and "4" in words and "2.5" in words and {"one", "two"} <= set(words)
    cells = pictures.map_of(np.array([[1.0, -2.0], [0.0, 0.5]]), ["r", "s"], ["c", "d"], "cells")
    words, hints = texts(cells)
    assert hints == ["r / c: 1", "r / d: -2", "s / c: 0", "s / d: 0.5"]
    assert {"1.00", "-2.00", "0", "0.50"} <= set(words)
    fills = re.findall(r"fill:var\((--heat|--below)\)(?:;fill-opacity:([\d.]+))?", cells)
    assert [name for name, _ in fills] == ["--heat", "--below", "--heat", "--heat"]
    np.testing.assert_allclose([float(share or 1) for _, share in fills], [0.525, 1.0, 0.05, 0.2875])


def test_many_kernels_are_those_with_the_largest_weights():
    weights = np.random.default_rng(0).random(400)
    names = [f"kernel {m}" for m in range(400)]
    words, hints = texts(pictures.largest_weights(weights, names, 30, "weights"))
    largest = np.argsort(-weights)[:30]
    assert [hint.split(":")[0] for hint in hints] == [names[m] for m in largest]
    assert {names[m] for m in largest} <= set(words) and names[int(weights.argmin())] not in words


def test_the_displays_of_users_keep_their_own_colours():
    """The page has its own style; it is not left behind on the class."""
    pictures.largest_weights(VALUES, NAMES, 30, "weights")
    assert KernelWeightsDisplay.style is not PAGE


def test_lines_keep_their_ends_and_few_points():
    assert pictures.thin(range(10)) == list(range(10)) and pictures.thin([]) == []
    few = pictures.thin(range(100_000), 300)
    assert len(few) == 300 and few[0] == 0 and few[-1] == 99_999


def test_nearly_equal_objectives_have_readable_numbers():
    rows = [{"head": 0, "seconds": k, "primal": 54.5 + 1e-9 / (k + 1), "dual": 54.5} for k in range(5)]
    words, _ = texts(pictures.run_of(rows, [""], "objectives", "objectives", None))
    assert max(map(len, words)) <= len("objective")


def test_what_is_not_seen_is_left_out():
    svg = picture(lambda ax: ax.set_axis_off(), "nothing", 100, 50)
    assert re.fullmatch(r"<svg [^>]*></svg>", svg) and 'aria-label="nothing"' in svg
    with pytest.raises(ElementTree.ParseError):
        inline("<svg", "broken")
