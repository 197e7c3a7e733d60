"""Who has what, what is told about it, and who refuses rows that lack something."""

import numpy as np
import pytest

from raymkl import (
    ClusteredMKLClassifier,
    ConvexLocalizedMKLClassifier,
    ConvexLocalizedMKLRegressor,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    StochasticMKLClassifier,
    Views,
    diagnostics,
    kernels,
    norms,
    report,
)
from raymkl.kernels import RBF, Absence, Linear
from raymkl.models.missing.presence import Presence, names_read

RNG = np.random.default_rng(0)
N = 40
DATA = {"b": RNG.normal(size=(N, 3)), "a": RNG.normal(size=(N, 2)), "unread": RNG.normal(size=(N, 2))}
Y = np.where(DATA["a"][:, 0] + DATA["b"][:, 0] > 0, 1, 0)
THERE = np.ones((N, 3), bool)
THERE[:12, 0] = THERE[20:31, 1] = False
THERE[5:, 2] = False
BANK = [
    Linear(view="a"),
    RBF(0.3, view="b"),
    RBF(0.1, view=("b", [0, 2])),
    RBF(0.1, view="a") * Linear(view="b"),
]
V = Views(DATA, present=THERE)


def model(cls=MKLClassifier, **more):
    return cls(**{"kernels": BANK, "engine": "local", **more})


def test_names_and_patterns_in_the_order_of_the_container():
    presence = Presence.of(V, BANK, N)
    assert presence.names == ["b", "a"] and not presence.complete
    assert [names_read(kernel, presence.names) for kernel in BANK] == [["a"], ["b"], ["b"], ["a", "b"]]
    np.testing.assert_array_equal(presence.has(["a", "b"]), THERE[:, :2].all(axis=1))
    np.testing.assert_allclose(presence.stretch, np.sqrt(2 / THERE[:, :2].sum(axis=1)))
    assert presence.patterns.tolist() == [[True, True], [False, True], [True, False]]
    assert presence.clusters(presence.patterns).sum(axis=0).tolist() == [40, 17, 12, 11]


def test_what_a_model_tells():
    clf = model(missing="neutral").fit(V, Y)
    assert list(clf.view_names_) == ["b", "a"] and clf.present_.tolist() == [28 / 40, 29 / 40]
    assert clf.kernels_[-1] == Absence(of=("b", "a")) and clf.kernel_weights_.shape == (5,)
    assert not hasattr(clf, "patterns_") and hasattr(model(missing="pattern").fit(V, Y), "patterns_")
    assert list(model().fit({"b": DATA["b"], "a": DATA["a"]}, Y).view_names_) == ["b", "a"]


def test_the_kernel_of_absence():
    kernel = Absence(of=["b", "a"])
    a = 1.0 - THERE[:, :2]
    np.testing.assert_array_equal(kernel(V), a @ a.T)
    np.testing.assert_array_equal(kernel(V[:3], V), (a @ a.T)[:3])
    np.testing.assert_array_equal(kernel.diag(V), a.sum(axis=1))
    assert not kernel({"b": DATA["b"], "a": DATA["a"]}).any()
    with pytest.raises(ValueError, match="names of views"):
        Absence(of="b")


@pytest.mark.parametrize("missing", ["neutral", "pattern"])
def test_reports_and_diagnostics(missing, tmp_path):
    clf = model(missing=missing, normalize="spherical").fit(V, Y)
    for examples in ((), (V, Y)):
        report(clf, *examples, path=tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        assert (
            ("all rows" in text and "rows with b, a" in text) if missing == "pattern" else "Absence" in text
        )
    whole = THERE[:, :2].all(axis=1)
    expected = diagnostics.alignment(BANK, {name: array[whole] for name, array in DATA.items()})
    np.testing.assert_allclose(diagnostics.alignment(BANK, V), expected)
    assert diagnostics.block_norms(clf).shape == clf.kernel_weights_.shape


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: model().fit(V, Y), ["'b' in 12", "'a' in 11", "missing", "'neutral'"]),
        (
            lambda: model().fit(Views({v: DATA[v][12:20] for v in ("a", "b")}), Y[12:20]).predict(V),
            ["40 rows", "missing"],
        ),
        (lambda: model(missing="mean").fit(V, Y), ["'mean'", "'neutral'", "'pattern'"]),
        (lambda: model(missing=None).fit(V, Y), ["missing", "None"]),
        (lambda: model(missing="zero").fit(_without(row=7), Y), ["row 7"]),
        (lambda: model(missing="zero").fit(_without(view="a"), Y), ["'a'"]),
        (lambda: model(missing="pattern", norm=norms.LpNorm(2.0)).fit(V, Y), ["norm", "pattern"]),
        (lambda: model(missing="pattern", beta=0.1).fit(V, Y), ["beta", "pattern"]),
        (lambda: model(missing="neutral", kernel_costs=[1.0] * 4, beta=0.1).fit(V, Y), ["kernel_costs", "5"]),
        (
            lambda: model(missing="zero").fit(Views({**DATA, "a": _with_nan()}, present=THERE), Y),
            ["NaN", "'a'", "row 3"],
        ),
    ],
)
def test_errors_say_what_is_wrong(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert [word for word in words if word not in str(error.value)] == []


def _without(row=None, view=None):
    there = np.ones((N, 3), bool)
    if row is not None:
        there[row, :2] = False
    if view is not None:
        there[:, list(DATA).index(view)] = False
    return Views(DATA, present=there)


def _with_nan():
    array = DATA["a"].copy()
    array[3, 1], array[25] = np.nan, np.nan
    return array


def test_rows_of_weight_zero_are_no_training_rows():
    """Held out, in the words of a search: they may lack everything."""
    weights = np.ones(N)
    weights[7] = 0.0
    clf = model(missing="zero").fit(_without(row=7), Y, sample_weight=weights)
    np.testing.assert_array_equal(clf.decision_function(_without(row=7))[7], clf.intercept_[0])


@pytest.mark.parametrize(
    "cls",
    [
        LocalizedMKLClassifier,
        ConvexLocalizedMKLClassifier,
        ConvexLocalizedMKLRegressor,
        MKLOneClass,
        StochasticMKLClassifier,
    ],
)
def test_other_models_refuse_in_words(cls):
    with pytest.raises(ValueError, match="all views"):
        model(cls).fit(V, Y)


def test_clustered_models_refuse_in_words():
    with pytest.raises(ValueError, match="lack"):
        ClusteredMKLClassifier(engine="local").fit(Views({"a": DATA["a"]}, present=THERE[:, [1]]), Y)


def test_views_that_nobody_reads_may_be_absent():
    assert (
        model().fit(Views(DATA, present=np.column_stack([np.ones((N, 2), bool), THERE[:, 2]])), Y).converged_
    )
    assert model(MKLRegressor, missing="scaled").fit(V, DATA["a"][:, 0]).converged_
    assert kernels.Absence is Absence


def test_a_model_of_one_array_meets_views():
    """One view stands for the array, and new rows may lack it."""
    clf = MKLClassifier(kernels.rbf([0.1, 1.0]), missing="zero", engine="local").fit(DATA["a"], Y)
    f = clf.decision_function(Views({"a": DATA["a"]}, present=THERE[:, [1]]))
    np.testing.assert_array_equal(
        f, np.where(THERE[:, 1], clf.decision_function(DATA["a"]), clf.intercept_[0])
    )
    assert list(clf.view_names_) == ["X"]


@pytest.mark.parametrize("kind", [None, "spherical", "multiplicative"])
def test_neutral_from_a_file(kind, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": DATA["a"][:, 0], "z": DATA["a"][:, 1], "y": Y}), tmp_path / "rows.parquet")
    bank = [Linear(), *kernels.rbf([0.1, 1.0])]
    here = MKLClassifier(bank, missing="neutral", engine="local", normalize=kind, tol=1e-5).fit(DATA["a"], Y)
    there = MKLClassifier(bank, missing="neutral", engine="local", normalize=kind, tol=1e-5).fit(
        str(tmp_path / "rows.parquet"), "y"
    )
    np.testing.assert_allclose(
        there.decision_function(str(tmp_path / "rows.parquet")), here.decision_function(DATA["a"]), atol=1e-3
    )
