"""What a fit leaves behind is what the docstring lists: every attribute is documented, every documented one
comes to be, and shapes and types are as written.
"""

import re

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import raymkl
from raymkl import Views, baselines, kernels, search

# Fits of a few steps are all that is wanted.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(0)
N = 36
X = RNG.normal(size=(N, 3))
TWO = np.where(X[:, 0] > 0, "yes", "no")
THREE = np.arange(N) % 3
NUMBERS = X[:, 0] + 0.1 * RNG.normal(size=N)
BANK = [kernels.RBF(0.5), kernels.Linear()]
HOLED = Views({"a": X, "b": X[:, :2]}, present={"a": np.arange(N) % 4 > 0})
VIEWS = [kernels.RBF(0.5, view="a"), kernels.RBF(0.5, view="b")]


def named():
    """The rows as a table, whose columns have names."""
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X, columns=["a", "b", "c"])


def local(kind, *given, **more):
    return kind(*given, engine="local", **more)


def fits(name):
    """Fitted estimators of a class that together show all of its attributes."""
    kind = getattr(raymkl, name, None) or getattr(baselines, name, None) or getattr(search, name)
    table = named()
    if name == "MKLClassifier":
        yield local(kind, BANK, probability="sigmoid", conformal=True, cv=2).fit(table, TWO)
        yield local(kind, BANK, normalize="tail", probability="sigmoid", cv=2).fit(X, THREE)
        yield local(kind, BANK, multi_class="joint").fit(X, THREE)
        yield local(kind, BANK, shared_weights=True).fit(X, THREE)
        yield local(kind, VIEWS, missing="pattern").fit(HOLED, TWO)
        yield local(kind, VIEWS, missing="pattern").fit(HOLED, THREE)
    elif name == "MKLRegressor":
        yield local(kind, BANK, normalize="tail", conformal=True, cv=2).fit(table, NUMBERS)
        yield local(kind, VIEWS, missing="pattern").fit(HOLED, NUMBERS)
    elif name == "MKLOneClass":
        yield local(kind, BANK, nu=0.2, normalize="tail").fit(table)
    elif name == "ConvexLocalizedMKLRegressor":
        yield local(kind, BANK, n_clusters=2, random_state=0, normalize="tail").fit(table, NUMBERS)
    elif name == "ConvexLocalizedMKLClassifier":
        yield local(kind, BANK, n_clusters=2, random_state=0).fit(table, TWO)
        yield local(kind, BANK, n_clusters=2, random_state=0, normalize="tail").fit(X, THREE)
    elif name == "LocalizedMKLClassifier":
        for gating in ("linear", "kernel"):
            for rows, y in ((table, TWO), (X, THREE)):
                yield local(
                    kind, BANK, gating=gating, max_iter=3, n_init=1, random_state=0, normalize="tail"
                ).fit(rows, y)
    elif name == "ClusteredMKLClassifier":
        yield local(kind, n_clusters=3, n_features=4, max_iter=3, epochs=1, random_state=0).fit(table, THREE)
        yield local(
            kind, n_clusters=3, n_features=4, max_iter=3, epochs=1, random_state=0, inference="gibbs"
        ).fit(X, TWO)
    elif name == "DirichletProcessMixture":
        for inference in ("variational", "gibbs"):
            yield local(kind, n_clusters=3, max_iter=3, random_state=0, inference=inference).fit(table)
    elif name == "StochasticMKLClassifier":
        yield local(kind, BANK, max_iter=3, normalize="tail", random_state=0).fit(table, THREE)
        yield local(kind, BANK, max_iter=3, n_landmarks=5, random_state=0).fit(X, TWO)
    elif name == "BEMKL":
        yield kind(BANK, max_iter=3, normalize="tail").fit(table, TWO)
        yield kind(BANK, max_iter=3).fit(X, THREE)
    elif name in ("SimpleMKL", "HessianMKL"):
        yield kind(BANK, max_iter=3).fit(table, TWO)
    elif name == "MKLSearchCV":
        model = local(raymkl.MKLClassifier, BANK)
        yield kind(model, {"C": [0.1, 1.0]}, cv=2).fit(table, TWO)
        yield kind(model, {"C": [0.1, 1.0]}, cv=2, scoring=["accuracy"], refit="accuracy").fit(X, TWO)
    else:
        assert name == "PerView", name
        yield kind({"a": StandardScaler()}).fit(HOLED)


ESTIMATORS = sorted(
    {
        name
        for module in (raymkl, baselines, search)
        for name in module.__all__
        if hasattr(getattr(module, name), "fit")
    }
)


def fitted(model):
    """Public fitted attributes by name, out of the instance and its properties."""
    names = set(vars(model)) | {
        name for name in dir(type(model)) if isinstance(getattr(type(model), name), property)
    }
    names = (name for name in names if re.fullmatch(r"[A-Za-z]\w*[A-Za-z0-9]_", name))
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def axes(written):
    """Numbers of axes of the shapes in a type, such as {1, 2} of `ndarray of shape (M,) or (rows, M)`."""
    shapes = re.findall(r"\(([^()]*)\)", written)
    return {len([part for part in shape.split(",") if part.strip()]) for shape in shapes}


def fits_type(value, written):
    """Whether a value is of a type as it is written in a docstring."""
    if value is None:
        return "None" in written
    if isinstance(value, np.ndarray):
        return "ndarray of shape" in written and value.ndim in axes(written)
    words = set(re.findall(r"\b[a-z]+\b", re.sub(r" of .*", "", written)))
    of_ours = re.findall(r"\b[A-Z]\w+", written)
    if isinstance(value, bool | int | float | np.generic):
        plain = value.item() if isinstance(value, np.generic) else value
        return type(plain).__name__ in words or (type(plain) is int and "float" in words)
    if isinstance(value, str | list | dict | tuple):
        return type(value).__name__ in words
    return (
        type(value).__name__ in of_ours
        or ("callable" in words and callable(value))
        or ("estimator" in words and hasattr(value, "fit"))
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fitted_attributes_are_those_of_the_docstring(name):
    docscrape = pytest.importorskip("numpydoc.docscrape")
    seen = set()
    for model in fits(name):
        documented = {
            one: entry.type
            for entry in docscrape.NumpyDocString(type(model).__doc__)["Attributes"]
            for one in entry.name.split(", ")
        }
        for attribute, value in fitted(model).items():
            assert attribute in documented, f"{attribute} is not documented"
            assert fits_type(value, documented[attribute]), (
                f"{attribute} is said to be {documented[attribute]!r}, "
                f"and is {type(value).__name__} {getattr(value, 'shape', '')}"
            )
            seen.add(attribute)
    assert set(documented) == seen
