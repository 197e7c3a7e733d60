"""Importing the numerical packages must not start loading the distributed ones: workers import them alone."""

import subprocess
import sys

import pytest

PROBE = """
import importlib, pkgutil, sys
for name in {names!r}:
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        for part in pkgutil.iter_modules(module.__path__, name + "."):
            importlib.import_module(part.name)
loaded = [name for name in sys.modules if name.startswith("raymkl.kernels") or name.startswith("raymkl.optim")]
forbidden = [
    name
    for name in sys.modules
    if name == "ray" or name.startswith(("ray.", "raymkl.engine", "raymkl.models"))
]
print(len(loaded), ",".join(sorted(forbidden)))
"""


@pytest.mark.parametrize("names", [["raymkl.kernels"], ["raymkl.optim"], ["raymkl.kernels", "raymkl.optim"]], ids="+".join)
def test_numerical_packages_do_not_import_the_distributed_ones(names):
    """All submodules are imported in a fresh interpreter, since this one may have loaded ray already."""
    result = subprocess.run([sys.executable, "-c", PROBE.format(names=names)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    loaded, _, forbidden = result.stdout.strip().partition(" ")
    assert int(loaded) > len(names)  # the submodules were really imported
    assert forbidden == ""


def test_importing_kernels_does_not_compile_anything():
    """Describing a model needs formulas only; numba is loaded by the first loop that runs."""
    code = "import sys, raymkl.kernels; print('numba' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "False", result.stderr
