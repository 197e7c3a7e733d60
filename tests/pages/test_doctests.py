"""Examples in docstrings run as they are printed.

Every module is looked at, also those that are loaded only when they are used.
"""

import doctest
import importlib
import pkgutil

import pytest

import raymkl

# Running it is all that this one is for.
LEFT_OUT = {"raymkl.cli.__main__"}


def modules():
    found = (part.name for part in pkgutil.walk_packages(raymkl.__path__, "raymkl."))
    return ["raymkl", *(name for name in found if name not in LEFT_OUT)]


def examples():
    """Docstrings with examples, in this process: importing all modules is quick beside running them."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:  # an optional dependency
            if error.name is not None and error.name.startswith("raymkl"):
                raise
            continue
        for test in finder.find(module, name):
            if test.examples:
                yield pytest.param(test, id=test.name)


EXAMPLES = list(examples())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("test", EXAMPLES)
def test_examples_print_what_they_say(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "plot" in test.name:
        pytest.importorskip("matplotlib").use("Agg")
    said = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_the_examples_are_found():
    names = {case.id for case in EXAMPLES}
    assert {"raymkl.diagnostics.alignment", "raymkl.datasets.make_motif_sequences"} <= names and len(
        names
    ) >= 10
