"""Importing the numerical packages must not start loading the distributed ones: workers import them alone."""

import subprocess
import sys

import pytest

from raymkl import kernels

PROBE = """
import importlib, pkgutil, sys
for name in {names!r}:
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        for part in pkgutil.walk_packages(module.__path__, name + "."):
            importlib.import_module(part.name)
loaded = [name for name in sys.modules if name.startswith("raymkl.kernels") or name.startswith("raymkl.optim")]
forbidden = [
    name
    for name in sys.modules
    if name == "ray" or name.startswith(("ray.", "raymkl.engine", "raymkl.models"))
]
print(len(loaded), ",".join(sorted(forbidden)))
"""


@pytest.mark.parametrize(
    "names", [["raymkl.kernels"], ["raymkl.optim"], ["raymkl.kernels", "raymkl.optim"]], ids="+".join
)
def test_numerical_packages_do_not_import_the_distributed_ones(names):
    """All submodules are imported in a fresh interpreter, since this one may have loaded ray already."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE.format(names=names)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    loaded, _, forbidden = result.stdout.strip().partition(" ")
    assert int(loaded) > len(names)  # the submodules were really imported
    assert forbidden == ""


def test_importing_kernels_does_not_load_the_compiler():
    """It comes with the first name that is used."""
    code = "import sys, raymkl.kernels; print('numba' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "False", result.stderr


def modules_after(code):
    """Names of the modules that a fresh interpreter has loaded after running `code`."""
    code += "\nimport sys; print(','.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.strip().split(","))


def test_a_shard_imports_what_it_computes_with_and_no_more():
    """Every shard process loads it."""
    loaded = modules_after(
        "import raymkl.engine.shard.shard, raymkl.kernels.loops.compiled, raymkl.kernels.formulas"
    )
    slow = {"sklearn", "cvxpy", "osqp", "pandas", "pyarrow.compute", "matplotlib", "ray"}
    assert not slow & loaded
    assert (
        not {"raymkl.engine.rounds.coordinator", "raymkl.engine.heads.head", "raymkl.kernels.store_writer"}
        & loaded
    )
    assert not [name for name in loaded if name.startswith("raymkl.models")]


SLOW_TO_LOAD = {
    "ray",
    "cvxpy",
    "osqp",
    "matplotlib",
    "numba",
    "llvmlite",
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "click",
}


def test_importing_the_package_loads_nothing_slow():
    loaded = modules_after("import raymkl; dir(raymkl); raymkl.__version__")
    assert not {*SLOW_TO_LOAD, "numpy"} & loaded
    assert {name for name in loaded if name.startswith("raymkl")} == {"raymkl"}


def test_describing_a_model_loads_what_estimators_need_and_no_more():
    code = (
        "from raymkl import MKLClassifier, RayParams, kernels; MKLClassifier(kernels.rbf([1.0]), "
        "ray_params=RayParams())"
    )
    loaded = modules_after(code)
    assert "raymkl.models.classifier" in loaded
    assert not {"ray", "cvxpy", "osqp", "matplotlib", "click"} & loaded


def test_the_command_line_starts_without_what_it_may_not_need():
    """`raymkl --help` and completion in a shell are waited for."""
    loaded = modules_after("import raymkl.cli")
    assert not {"ray", "cvxpy", "matplotlib", "numba"} & loaded


def test_names_of_kernels_are_loaded_when_they_are_used():
    assert not {"raymkl.kernels.formulas", "raymkl.data.store", "numpy"} & modules_after(
        "import raymkl.kernels"
    )
    loaded = modules_after("from raymkl.kernels import RBF; RBF(gamma=1.0)")
    assert "raymkl.kernels.formulas" in loaded and "raymkl.kernels.store_writer" not in loaded


def test_every_public_name_of_kernels_is_there():
    for name in kernels.__all__:
        assert getattr(kernels, name).__name__ == name
        assert name in dir(kernels)
    with pytest.raises(AttributeError, match="no attribute 'Gaussian'"):
        kernels.Gaussian  # noqa: B018
    with pytest.raises(ImportError):
        from raymkl.kernels import Gaussian  # noqa: F401
