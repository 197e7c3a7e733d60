"""numpydoc can take every public docstring apart: parameters with their types, returns, examples; the
reference of the site is made of them.
"""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# No docstring; parameters undocumented, unknown or misformatted; returns, examples, summary missing.
NEEDED = {"GL08", "PR01", "PR02", "PR10", "RT01", "EX01", "SS01"}
# What a type is made of, besides shapes and words in quotes.
TYPE_WORD = re.compile(
    r"or|of|None|int|float|bool|str|list|dict|tuple|type|dtype|ndarray|array-like|sparse|matrix|path|callable|object"
    r"|fitted|estimator|splitter|iterable|mapping|[a-z.]*[A-Z]\w+"
)
NOT_WORDS = (
    r'"[^"]*"|\{[^}]*\}|`[^`]*`'  # words to choose from, names of ours
    r"|of shape \([^()]*\)(?:(?:, | or )\([^()]*\))*"
    r"|, default=\S+"
    r"|(?:in [\[(][^\])]*[\])]|(?:>=?|<=?) \S+)"  # a range
)


def extension(name):
    """A module of the site's own extensions."""
    place = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


NAMES = [name for names in extension("public_names").listed().values() for name in names]


def load(name):
    """A public thing by its full name (numpydoc would take a module of the same name)."""
    module, _, leaf = name.rpartition(".")
    return getattr(importlib.import_module(module), leaf)


def lacking(name):
    """Codes of what a docstring lacks."""
    wanted = NEEDED - ({"RT01"} if inspect.isclass(load(name)) else set())
    doc = pytest.importorskip("numpydoc.docscrape").get_doc_object(load(name))
    return [
        code for code, _ in pytest.importorskip("numpydoc.validate").validate(doc)["errors"] if code in wanted
    ]


def members(name):
    """Public methods and properties of a class, inherited ones of ours too: name, thing, docstring."""
    kind = load(name)
    for member in dir(kind) if inspect.isclass(kind) else ():
        thing = getattr(kind, member)
        home = getattr(body(thing), "__module__", None) or ""
        if not member.startswith("_") and inspect.isfunction(body(thing)) and home.startswith("raymkl"):
            yield member, thing, inspect.getdoc(thing) or ""


def body(thing):
    """The function behind a method, class method or property."""
    return getattr(thing, "fget", None) or getattr(thing, "__func__", thing)


def sections(docstring):
    return pytest.importorskip("numpydoc.docscrape").NumpyDocString(docstring)


def unsaid(thing, docstring):
    """Whether a method has no docstring, one with other parameters, or one that does not say what it
    returns. Properties need a docstring.
    """
    doc, signature = sections(docstring), inspect.signature(body(thing))
    said = {one.strip("*") for entry in doc["Parameters"] for one in entry.name.split(", ")}
    silent = signature.return_annotation in ("None", inspect.Signature.empty) or isinstance(thing, property)
    return (
        not docstring
        or said != set(signature.parameters) - {"self", "cls"}
        or not (silent or doc["Returns"] or doc["Yields"])
    )


def is_type(text):
    """Whether a text is a type, such as `ndarray of shape (n, M), or None`, and no sentence."""
    words = re.sub(NOT_WORDS, "", text).replace(",", " ").split()
    return bool(text) and all(map(TYPE_WORD.fullmatch, words))


def mistyped(docstring):
    """Entries of a docstring whose name is no name, whose type is no type, or that say nothing."""
    doc = sections(docstring)
    for section in ("Parameters", "Attributes", "Returns", "Yields"):
        for entry in doc[section]:
            named = all(re.fullmatch(r"\*{0,2}[A-Za-z_]\w*", one) for one in entry.name.split(", "))
            if not (named and is_type(entry.type) and "".join(entry.desc).strip()):
                yield f"{section}: {entry.name} : {entry.type}"


@pytest.mark.parametrize("name", NAMES)
def test_numpydoc_reads_it(name):
    assert lacking(name) == []


@pytest.mark.parametrize("name", NAMES)
def test_methods_say_what_they_take_and_return(name):
    assert [member for member, found, docstring in members(name) if unsaid(found, docstring)] == []


@pytest.mark.parametrize("name", NAMES)
def test_entries_have_a_name_a_type_and_a_text(name):
    assert list(mistyped(inspect.getdoc(load(name)))) == []
    assert {
        member: wrong for member, _, docstring in members(name) if (wrong := [*mistyped(docstring)])
    } == {}


def test_sentences_are_no_types():
    assert is_type("ndarray of shape (n,), (n, M) or (1 + R, M), or None") and is_type('{"outer", "inner"}')
    assert is_type("float in (0, 1]") and is_type("raymkl.Views or dict") and is_type("int >= 1")
    for sentence in (
        "(n,) labels or None.",
        "names of the rows",
        "float; NaN for one split",
        "",
        "as for fit",
    ):
        assert not is_type(sentence)
    entry = "Words.\n\nParameters\n----------\n{}\n    Text.\n"
    assert list(mistyped(entry.format("a (2,), b : int"))) and not list(mistyped(entry.format("a, b : int")))


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

where `kernel_weights_` and `coef_`s are (M,), and coef_ too.

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
    assert (
        r"\|theta\|_1." in found
        and "``kernel_weights_`` and ``coef_``\\ s are" in found
        and r"coef\_ too" in found
    )
    assert "----------\nx : float\n    A number." in found and ">>> a_ | b_\n1" in found
