"""Every bad input is a ValueError or TypeError whose text names the argument and what came."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from raymkl import MKLClassifier, RayParams
from raymkl.kernels import RBF, Chi2, Custom, HistogramIntersection, Linear, rbf
from tests.checks import fails
from tests.reference import gram, noisy_problem

BANK = [RBF(gamma=0.1), Linear()]
X, Y = noisy_problem(40, seed=9)
K = gram(BANK, X)


def fit(X=X, y=Y, sample_weight=None, **more):
    return MKLClassifier(**{"kernels": BANK, "engine": "local", **more}).fit(
        X, y, sample_weight=sample_weight
    )


def changed(array, place, value):
    array = array.astype(float).copy()
    array[place] = value
    return array


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, value",
    [
        ("C", 0),
        ("C", -1.0),
        ("C", np.nan),
        ("C", np.inf),
        ("C", "1"),
        ("C", None),
        ("C", True),
        ("p", 0.5),
        ("p", 0.999),
        ("p", -1),
        ("p", np.nan),
        ("p", "2"),
        ("p", None),
        ("tol", 0),
        ("tol", -1e-3),
        ("tol", np.nan),
        ("tol", "small"),
        ("max_iter", 0),
        ("max_iter", 1.5),
        ("max_iter", "many"),
    ],
)
def test_numbers_out_of_range(name, value):
    fails([name, repr(value)], lambda: fit(**{name: value}))


@pytest.mark.parametrize(
    "name, known",
    [
        ("solver", ["chunking", "wrapper"]),
        ("theta_step", ["auto", "analytic", "cutting_plane"]),
        ("normalize", ["None", "multiplicative", "spherical", "trace"]),
        ("engine", ["auto", "local", "ray"]),
        ("dtype", ["auto", "float32", "float64"]),
    ],
)
@pytest.mark.parametrize("value", ["magic", 3, ["auto"]], ids=str)
def test_unknown_choices_list_the_known_ones(name, known, value):
    words = [name, *known] + (["magic"] if isinstance(value, str) else [])
    fails(words, lambda: fit(**{name: value}))


@pytest.mark.parametrize("p", [2.5, 3, np.inf])
@pytest.mark.parametrize("solver", ["chunking", "wrapper"])
def test_cutting_planes_beyond_two(p, solver):
    fails(["cutting_plane", p], lambda: fit(p=p, theta_step="cutting_plane", solver=solver))


@pytest.mark.parametrize(
    "kernels, words",
    [
        ([], ["kernels", "empty"]),
        ((), ["kernels", "empty"]),
        (5, ["kernels", "int"]),
        (1.5, ["kernels", "float"]),
        ("rbf", ["kernels", "rbf", "precomputed"]),
        ([RBF(), "linear"], ["kernels[1]", "str"]),
        ([None], ["kernels[0]", "NoneType"]),
        ([RBF], ["kernels[0]"]),
        ([rbf([0.1])], ["kernels[0]", "list"]),
        (len, ["kernels"]),
    ],
    ids=str,
)
def test_kernels_of_the_wrong_kind(kernels, words):
    fails(words, lambda: fit(kernels=kernels))


@pytest.mark.parametrize("value", [{"num_shards": 2}, 2, "ray", RayParams], ids=str)
def test_ray_params_of_the_wrong_type(value):
    fails(["ray_params", "RayParams"], lambda: fit(ray_params=value))


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_shards", 0),
        ("num_shards", -1),
        ("num_shards", 1.5),
        ("num_shards", "two"),
        ("cpus_per_shard", 0),
        ("cpus_per_shard", -1),
        ("cpus_per_shard", "one"),
        ("memory_per_shard", 0),
        ("memory_per_shard", -5),
        ("memory_per_shard", "1GB"),
        ("max_shard_failures", -2),
        ("max_preemptions", -2),
        ("max_preemptions", 1.5),
        ("resources", ["disk"]),
        ("resources", {"disk": 0}),
        ("resources", {"disk": 1.5}),
        ("resources", {"disk": "one"}),
        ("label_selector", "a=b"),
        ("label_selector", {"a": 1}),
        ("runtime_env", "numpy"),
        ("placement", "SPREADED"),
        ("max_shard_failures", 0.5),
        ("max_shard_failures", None),
        ("timeout_s", 0),
        ("timeout_s", float("nan")),
        ("timeout_s", None),
        ("checkpoint_every_s", -1),
    ],
)
def test_ray_params_out_of_range(name, value):
    told = next(iter(value.values())) if isinstance(value, dict) else value
    fails([name, repr(told)], lambda: RayParams(**{name: value}))


@pytest.mark.parametrize("name", ["CPU", "memory", "GPU", "TPU", "object_store_memory"])
def test_resources_that_are_no_custom_ones(name):
    fails(["resources", repr(name)], lambda: RayParams(resources={name: 1}))


# -- examples and labels ---------------------------------------------------------------------------


@pytest.mark.parametrize("value, word", [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
def test_missing_and_infinite_features_name_their_column(value, word):
    bad = changed(X, (3, 4), value)
    fails([word, "column 4", "row 3"], lambda: fit(X=bad))
    fails([word, "column 4", "row 3"], lambda: fit(X=sp.csr_matrix(bad)))
    fails([word, "expr"], lambda: fit(X={"expr": bad}, kernels=[Linear(view="expr")]))
    fails([word, "X"], lambda: fit().predict(bad))
    fails([word], lambda: fit(X=changed(K, (1, 2, 0), value), kernels="precomputed"))


def test_missing_values_of_frames_and_tables():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame.loc[5, "d"] = np.nan
    fails(["nan"], lambda: fit(X=frame))
    fails(["nan", "d"], lambda: fit(X=frame, kernels=[Linear(view=["d"])]))
    fails(["nan"], lambda: fit(X=pa.Table.from_pandas(frame)))
    fails(["remark"], lambda: fit(X=frame.assign(remark="fine"), kernels=[Linear(view=["remark"])]))


@pytest.mark.parametrize(
    "y, words",
    [
        (np.where(np.arange(40) == 3, np.nan, 1.0), ["y", "nan"]),
        (np.array([None] + ["a"] * 39, dtype=object), ["y"]),
        (np.ones(40), ["class", "1"]),
        (np.array(["only"] * 40), ["class", "only"]),
        (Y[:39], ["40", "39"]),
        (np.concatenate([Y, [1]]), ["40", "41"]),
        (np.linspace(0, 1, 40), ["label type"]),
        (np.column_stack([Y, Y]), ["y"]),
        (None, ["y", "None"]),
        ([], ["y"]),
    ],
    ids=[
        "nan",
        "None inside",
        "one class",
        "one word",
        "short",
        "long",
        "continuous",
        "two columns",
        "None",
        "empty",
    ],
)
def test_bad_labels(y, words):
    fails(words, lambda: fit(y=y))


@pytest.mark.parametrize(
    "rows, words",
    [
        (np.empty((0, 6)), ["0", "sample"]),
        (np.empty((40, 0)), ["0 feature"]),
        (np.arange(40.0), ["1D", "reshape"]),
        (np.zeros((40, 2, 2)), ["dim"]),
        (pd.DataFrame(X).iloc[:0], ["X", "0 rows"]),
        (pa.table({"a": pa.array([], pa.float64())}), ["X", "0 rows"]),
        ({}, ["X", "empty"]),
        ({"a": X, "b": X[:30]}, ["a", "b", "40", "30"]),
        (X.astype(complex), ["complex"]),
        (np.full((40, 2), "text"), []),
        (5, []),
        (None, []),
    ],
    ids=[
        "no rows",
        "no columns",
        "1-D",
        "3-D",
        "frame",
        "table",
        "empty dict",
        "uneven dict",
        "complex",
        "text",
        "number",
        "None",
    ],
)
def test_bad_rows(rows, words):
    bank = [Linear(view="a"), Linear(view="b")] if isinstance(rows, dict) and rows else BANK
    fails(words, lambda: fit(X=rows, y=Y[: len(rows)] if hasattr(rows, "shape") else Y, kernels=bank))


def test_one_row():
    fails(["class"], lambda: fit(X=X[:1], y=Y[:1]))


@pytest.mark.parametrize(
    "weights, words",
    [
        (changed(np.ones(40), 3, -1.0), ["sample_weight", "negative"]),
        (changed(np.ones(40), 3, np.nan), ["nan"]),
        (np.ones(39), ["sample_weight", "39"]),
        (np.where(Y > 0, 0.0, 1.0), ["class", "1", "weight"]),
        (np.zeros(40), ["weight"]),
        (["heavy"] * 40, []),
    ],
    ids=["negative", "nan", "short", "a class without", "all zero", "text"],
)
def test_bad_sample_weights(weights, words):
    fails(words, lambda: fit(sample_weight=weights))


@pytest.mark.parametrize("class_weight", ["heavy", {-1: 0.0}, {-1: -2.0}, {5: 1.0}, 7], ids=str)
def test_bad_class_weights(class_weight):
    fails(["weight"], lambda: fit(class_weight=class_weight))


@pytest.mark.parametrize(
    "kernel", [Chi2(), HistogramIntersection(), 2.0 * Chi2(), Chi2() * RBF(), Chi2() + Linear()], ids=repr
)
def test_histogram_kernels_refuse_negative_features(kernel):
    fails(["non-negative", "X"], lambda: fit(kernels=[kernel]))
    fails(["non-negative", "X"], lambda: fit(X=sp.csr_matrix(X), kernels=[kernel]))
    model = fit(X=np.abs(X), kernels=[kernel])
    fails(["non-negative"], lambda: model.predict(X))


# -- views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows, view, words",
    [
        ({"expr": X, "image": X}, "text", ["text", "expr", "image"]),
        ({"expr": X, "image": X}, None, ["expr", "image", "view"]),
        (pd.DataFrame(X, columns=list("abcdef")), ["a", "z"], ["z", "b"]),
        (pa.table({"a": X[:, 0]}), "z", ["z", "a"]),
        (X, "expr", ["expr"]),
        (X, [2, 17], ["17", "6"]),
        (sp.csr_matrix(X), 9, ["9", "6"]),
    ],
    ids=["dict", "dict, none named", "frame", "table", "name of an array", "column", "sparse column"],
)
def test_missing_views_are_named(rows, view, words):
    fails(words, lambda: fit(X=rows, kernels=[Linear(view=view)]))


def test_missing_views_at_prediction_are_named():
    model = fit(X={"expr": X, "image": X}, kernels=[Linear(view="expr"), RBF(view="image")])
    fails(["image", "expr"], lambda: model.predict({"expr": X}))
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = fit(X=frame, kernels=[Linear(view=["a", "f"])])
    fails(["f"], lambda: model.predict(frame.drop(columns="f")))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, pd.DataFrame], ids=["dense", "sparse", "frame"])
def test_another_number_of_features_at_prediction(make):
    model = fit(X=make(X))
    fails(["5", "6", "feature"], lambda: model.predict(make(X[:, :5])))


def test_another_number_of_features_in_a_view():
    """Containers without one width of their own: the check must be per view, and before any matrix product
    fails.
    """
    model = fit(X={"a": X, "b": X}, kernels=[Linear(view="a"), RBF(view="b")])
    fails(["5", "6", "b"], lambda: model.predict({"a": X, "b": X[:, :5]}))


def test_predicting_before_fitting():
    with pytest.raises(NotFittedError):
        MKLClassifier(kernels=BANK).predict(X)
    with pytest.raises(NotFittedError):
        MKLClassifier(kernels=BANK).decision_function(X)


def test_a_function_that_misbehaves():
    fails(["Custom", "nan"], lambda: fit(kernels=[Custom(lambda A, B: np.full((len(A), len(B)), np.nan))]))
    fails(["Custom", "shape"], lambda: fit(kernels=[Custom(lambda A, B: np.ones(len(A)))]))
    fails(["definite"], lambda: fit(kernels=[Custom(lambda A, B: -A @ B.T)]))
