"""What editors and type checkers see of the package: the public names with their types, and nothing that is
not there.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import raymkl
import raymkl.kernels

ROOT = Path(__file__).resolve().parents[2]

# A comment says what the checker must reveal about the line, or which error it must find there.
USE = """
import numpy as np
import raymkl
from raymkl import LocalizedMKLClassifier, MKLClassifier, MKLRegressor, RayParams
from raymkl import baselines, diagnostics, kernels, metrics, norms, plot, search

X, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
bank = kernels.rbf([0.1, 1.0])
model = MKLClassifier(kernels=[*bank, kernels.Linear()], C=2.0, ray_params=RayParams(num_shards=2)).fit(X, y)
raymkl.report(model).upper()
norms.block_norm
diagnostics.alignment(bank, X)
metrics.__name__
reveal_type(bank)  # list[raymkl.kernels.formulas.RBF]
reveal_type(model)  # raymkl.models.classifier.MKLClassifier
reveal_type(model.predict(X))  # numpy.ndarray
reveal_type(model.decision_function(X))  # numpy.ndarray
reveal_type(model.contributions(X))  # numpy.ndarray
reveal_type(model.score(X, y))  # float
reveal_type(MKLRegressor().fit(X, y).predict(X))  # numpy.ndarray
reveal_type(LocalizedMKLClassifier().fit(X, y).predict(X))  # numpy.ndarray
reveal_type(2.0 * kernels.RBF() + kernels.Linear())  # raymkl.kernels.base.Kernel
reveal_type(kernels.RBF()(X))  # numpy.ndarray
reveal_type(kernels.write_store("path", bank, X))  # raymkl.data.store.KernelStore
reveal_type(search.MKLSearchCV(model, {"C": [1.0]}).fit(X, y))  # raymkl.search.grid.MKLSearchCV
reveal_type(baselines.SimpleMKL(bank).fit(X, y))  # raymkl.baselines.simple.SimpleMKL
reveal_type(diagnostics.complexity(bank, X, p=1.0))  # float
reveal_type(diagnostics.spectra(bank, X).eigenvalues)  # numpy.ndarray
reveal_type(plot.KernelWeightsDisplay.from_estimator(model))  # raymkl.plot.weights.KernelWeightsDisplay
reveal_type(raymkl.load("path"))  # Any
RayParams(num_shards="2")  # error: arg-type
MKLClassifier(kernals=bank)  # error: call-arg
raymkl.MKLClasifier  # error: attr-defined
kernels.Gaussian  # error: attr-defined
"""


@pytest.mark.parametrize("module", [raymkl, raymkl.kernels], ids=lambda module: module.__name__)
def test_checkers_are_told_the_names_that_there_are(module):
    """Names are loaded when they are used, which a checker cannot follow; a block for it lists them again."""
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    told = {name.asname: (node.module, name.name) for node in block.body for name in node.names}
    assert set(told) == set(module.__all__) == set(module._HOMES)
    for public, (home, name) in told.items():
        assert public == name
        wanted = module._HOMES[public]
        if wanted is None:  # a module
            assert getattr(module, public).__name__ == f"raymkl.{public}"
        else:
            assert home == wanted.removeprefix("raymkl.").removeprefix(".")


def test_the_package_says_that_it_is_typed():
    assert Path(raymkl.__file__).with_name("py.typed").is_file()


@pytest.mark.slow
def test_public_modules_and_their_use_pass_the_type_checker(tmp_path):
    """One run of mypy over the modules that pyproject.toml lists and over a small program that uses the
    public names.
    """
    pytest.importorskip("mypy", reason="mypy is not installed")
    tomllib = pytest.importorskip("tomllib")
    modules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    program = tmp_path / "use.py"
    program.write_text(USE)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        tmp_path / "cache",
        "--no-pretty",
        *modules,
        program,
    ]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900).stdout
    found = {}
    for place, number, kind, text in re.findall(r"^(\S+?):(\d+): (error|note): (.*)$", output, re.M):
        if kind == "error" or "Revealed" in text:
            found[place if place != str(program) else "", int(number)] = f"{kind}: {text}"
    for number, line in enumerate(USE.splitlines(), start=1):
        code, _, wanted = line.partition("  # ")
        reported = found.pop(("", number), None)
        if wanted.startswith("error: "):
            assert reported is not None and reported.endswith(f"[{wanted[7:]}]"), f"{code}: {reported}"
        elif wanted:
            assert reported is not None and f'"{wanted}' in reported, f"{code}: {reported}"
        else:
            assert reported is None, f"{code}: {reported}"
    assert found == {}, output
