"""Kernels in writing: what the short form and YAML mean, and what is said about mistakes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.cli.kernel_specs import BankSpec, read_bank
from raymkl.data.tables import Columns, DataError
from raymkl.kernels import (
    RBF,
    Chi2,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Spectrum,
    WeightedDegree,
)
from raymkl.models.table_model import Preparation

RNG = np.random.default_rng(0)
PLAIN = Columns(
    "t.csv",
    {**{name: RNG.random(20) for name in ("x0", "x1", "size")}, "label": np.array(["a", "b"] * 10, object)},
)
WITH_TEXT = Columns("t.csv", {**PLAIN.arrays, "seq": np.array(["ACGT"] * 20, object)})
VIEWS = Columns(
    "t.npz",
    {"left": RNG.random((20, 2)), "right": RNG.random((20, 3)), "y": np.arange(20) % 2},
    "y",
    ["left", "right"],
)


def kernels_of(text, columns=PLAIN, target="label"):
    views, words, pairs = read_bank(text).arrange(columns, target)
    preparation = Preparation.fit(columns, views, words)
    return BankSpec.build(pairs, preparation.transform(columns)), views


@pytest.mark.parametrize(
    "text, expected",
    [
        ("rbf:0.01,0.1,1;poly:2;linear", [RBF(0.01), RBF(0.1), RBF(1.0), Polynomial(2, coef0=1.0), Linear()]),
        (" rbf : 1e-3 ; LINEAR ;", [RBF(0.001), Linear()]),
        ("poly:2,3", [Polynomial(2, coef0=1.0), Polynomial(3, coef0=1.0)]),
        ("poly", [Polynomial(2, coef0=1.0)]),
        ("laplacian:0.5;chi2:2;intersection", [Laplacian(0.5), Chi2(2.0), HistogramIntersection()]),
        ("linear@x1", [Linear(view="x1")]),
        ("rbf:1@x0,size;linear", [RBF(1.0, view="x0,size"), Linear(view="all")]),
        ("linear@all", [Linear()]),
    ],
)
def test_short_form(text, expected):
    assert kernels_of(text)[0] == expected


def test_views_of_the_short_form():
    _, views = kernels_of("rbf:1@x0,size;linear;linear@x1")
    assert views == {"x0,size": ["x0", "size"], "all": ["x0", "x1", "size"], "x1": ["x1"]}
    assert kernels_of("linear")[1] == {None: ["x0", "x1", "size"]}


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_numbers_come_through_unchanged(gammas):
    assert [kernel.gamma for kernel in kernels_of("rbf:" + ",".join(map(repr, gammas)))[0]] == gammas


@pytest.mark.parametrize("name, kind", [("rbf", RBF), ("laplacian", Laplacian), ("chi2", Chi2)])
@pytest.mark.parametrize("form", ["{}", "{}:auto", "{}:AUTO"])
def test_auto_is_a_bank_around_the_median_distance(name, kind, form):
    kernels, _ = kernels_of(form.format(name))
    assert len(kernels) == 5 and all(isinstance(kernel, kind) for kernel in kernels)
    X = np.column_stack([PLAIN.arrays[column] for column in ("x0", "x1", "size")])
    values = kernels[2](X)[~np.eye(20, dtype=bool)]
    assert np.median(values) == pytest.approx(
        np.exp(-1), rel=1e-3
    )  # the middle one is 1/e at the median distance


def test_auto_looks_at_its_view():
    wide = Columns("t", {"a": RNG.random(30), "b": 100 * RNG.random(30), "label": np.arange(30) % 2})
    kernels, _ = kernels_of("rbf:auto@a;rbf:auto@b", wide)
    assert (
        1e3 < kernels[0].gamma / kernels[5].gamma < 1e5
    )  # a hundred times the distance, a ten thousandth of gamma


def test_kernels_without_a_view_look_at_every_view_of_a_file_that_has_some():
    kernels, views = kernels_of("rbf:1;linear@left;linear@all", VIEWS, None)
    assert kernels == [RBF(1.0, view="left"), RBF(1.0, view="right"), Linear(view="left"), Linear(view="all")]
    assert views == {"left": ["left"], "right": ["right"], "all": ["left", "right"]}


def test_string_kernels():
    kernels, views = kernels_of("spectrum:3,4@seq;wd:5@seq;linear", WITH_TEXT)
    assert kernels == [
        Spectrum(3, view="seq"),
        Spectrum(4, view="seq"),
        WeightedDegree(5, view="seq"),
        Linear(view="all"),
    ]
    assert views == {"seq": ["seq"], "all": ["x0", "x1", "size"]}
    assert kernels_of("wd:5", WITH_TEXT)[0] == [
        WeightedDegree(5, view="seq")
    ]  # there is only one column of text


def test_yaml(tmp_path):
    (tmp_path / "bank.yaml").write_text(
        """
views:
  coords: ["x*"]
  size: [size]
kernels:
  - rbf: [1e-3, 0.1]
    view: coords
  - poly: 3
    coef0: 0.5
    gamma: 1e-2
    view: [x0, size]
  - linear@size
  - linear
normalize: spherical
standardize: true
"""
    )
    bank = read_bank(str(tmp_path / "bank.yaml"))
    assert bank.normalize == "spherical" and bank.standardize is True
    kernels, views = kernels_of(str(tmp_path / "bank.yaml"))
    assert kernels == [
        RBF(0.001, view="coords"),
        RBF(0.1, view="coords"),
        Polynomial(3, gamma=0.01, coef0=0.5, view="x0,size"),
        Linear(view="size"),
        Linear(view="coords"),
        Linear(view="size"),
    ]
    assert views["coords"] == ["x0", "x1"]


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "magic:3",
            "unknown kernel 'magic' in 'magic:3'; known: rbf, laplacian, chi2, poly, linear, intersection, "
            "spectrum, wd",
        ),
        ("", "names no kernel"),
        (" ; ", "names no kernel"),
        ("rbf:abc", "'rbf:abc': 'abc' is not a number; values are numbers or auto"),
        ("rbf:1,auto", "auto stands alone"),
        ("rbf:1,", "'' is not a number"),
        ("rbf:-1", "'rbf:-1': RBF: gamma must be a positive"),
        ("poly:auto", "'auto' is not a number; values are numbers, separated"),
        ("poly:2.5", "'2.5' is not a whole number"),
        ("linear:3", "linear takes no values"),
        ("linear@", "a view is missing after @"),
        ("linear@a,", "a view is missing after @"),
        ("bank.yaml", "bank.yaml does not exist"),
    ],
)
def test_mistakes_in_the_short_form(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        read_bank(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text, columns, message",
    [
        (
            "linear@nope",
            PLAIN,
            "t.csv has no view or column 'nope' (kernel linear@nope); columns: x0, x1, size",
        ),
        ("linear@nope", VIEWS, "views: left, right"),
        ("linear", WITH_TEXT, "column 'seq' holds no numbers"),
        ("linear@seq", WITH_TEXT, "column 'seq' holds no numbers (kernel linear@seq)"),
        ("spectrum:3@x0", WITH_TEXT, "column 'x0' holds numbers; this kernel needs text"),
        ("spectrum:3", PLAIN, "has 0 columns of text; say which one"),
    ],
)
def test_mistakes_that_the_data_show(text, columns, message):
    with pytest.raises(DataError) as caught:
        read_bank(text).arrange(columns, columns.target or "label")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content, message",
    [
        ("kernels: [", "is not YAML"),
        ("views: {}", "needs a list under the key 'kernels'"),
        ("kernels: []", "needs a list under the key 'kernels'"),
        ("kernels: [linear]\nkernel: 1", "unknown key 'kernel'"),
        ("kernels: [{magic: 3}]", "unknown kernel 'magic'"),
        ("kernels: [3]", "a kernel is a word or a mapping"),
        ("kernels: [{rbf: 1, width: 2}]", "rbf has no parameter 'width'; known: gamma, view"),
        ("kernels: [{rbf: [-1]}]", "gamma must be a positive"),
        ("kernels: [linear]\nviews: [a]", "'views' takes names with lists of columns"),
        ("kernels: [linear]\nviews: {a: []}", "'views' takes names with lists of columns"),
        ("kernels: [linear]\nstandardize: often", "'standardize' is true or false"),
        ("kernels: [linear]\nnormalize: [1]", "'normalize' is a word"),
    ],
)
def test_mistakes_in_yaml(content, message, tmp_path):
    (tmp_path / "bank.yml").write_text(content)
    with pytest.raises(DataError) as caught:
        read_bank(str(tmp_path / "bank.yml"))
    assert message in str(caught.value)


def test_a_pattern_that_matches_nothing(tmp_path):
    (tmp_path / "bank.yml").write_text("views: {v: ['z*']}\nkernels: [linear]")
    with pytest.raises(DataError, match=r"view 'v': t.csv has no column 'z\*'"):
        read_bank(str(tmp_path / "bank.yml")).arrange(PLAIN, "label")
