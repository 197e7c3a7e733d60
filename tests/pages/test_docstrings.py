"""numpydoc can take every public docstring apart: parameters, returns, examples; the reference of the site is
made of them.
"""

import importlib.util
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# No docstring; parameters undocumented, unknown or misformatted; returns, examples, summary missing.
NEEDED = {"GL08", "PR01", "PR02", "PR10", "RT01", "EX01", "SS01"}
OF_METHODS = {"GL08", "PR01", "PR02"}


def extension(name):
    """A module of the site's own extensions."""
    place = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


NAMES = [name for names in extension("public_names").listed().values() for name in names]


def lacking(name):
    """Codes of what a docstring, and those of a class's own methods, lack."""
    validate = pytest.importorskip("numpydoc.validate").validate
    thing = validate_object(name)
    wanted = NEEDED - ({"RT01"} if inspect.isclass(thing) else set())
    found = {f"{name} {code}" for code, _ in validate(name)["errors"] if code in wanted}
    if inspect.isclass(thing):
        for method, body in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(body):
                found |= {
                    f"{name}.{method} {code}"
                    for code, _ in validate(f"{name}.{method}")["errors"]
                    if code in OF_METHODS
                }
    return sorted(found)


def validate_object(name):
    from numpydoc.validate import Validator

    return Validator._load_obj(name)


@pytest.mark.parametrize("name", NAMES)
def test_numpydoc_reads_it(name):
    assert lacking(name) == []


def test_the_public_names_are_found():
    assert len(NAMES) >= 45
    assert {
        "raymkl.load",
        "raymkl.kernels.RBF",
        "raymkl.plot.AlignmentDisplay",
        "raymkl.datasets.read_fasta",
    } <= set(NAMES)


def test_docstrings_become_plain_restructured_text():
    """Formulas and tables stay as they are, trailing underscores and bars are what they are, names are
    code.
    """
    converted = extension("plain_docstrings").converted
    text = """Weights of kernels, |theta|_1.

    min_w  1/2 |w|^2

where `kernel_weights_` are (M,), and coef_ too.

| a | b |
|---|---|

Parameters
----------
x : float
    A number.

Examples
--------
>>> a_ | b_
1
"""
    found = "\n".join(converted(text.splitlines()))
    assert "::\n\n    min_w  1/2 |w|^2" in found and "::\n\n    | a | b |\n    |---|---|" in found
    assert r"\|theta\|_1." in found and "``kernel_weights_``" in found and r"coef\_ too" in found
    assert "----------\nx : float\n    A number." in found and ">>> a_ | b_\n1" in found
