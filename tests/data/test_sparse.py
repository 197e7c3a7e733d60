"""Sparse matrices are told from everything else, and nobody loads scipy to find out that there are none."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from raymkl.data.views import is_sparse


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
@pytest.mark.parametrize("make", [sp.random, sp.random_array], ids=["matrix", "array"])
def test_every_format_is_sparse(form, make):
    x = sp.random(4, 4, format=form) if make is sp.random else sp.random_array((4, 4), format=form)
    assert is_sparse(x)


@pytest.mark.parametrize(
    "x", [np.eye(3), [[1.0]], None, "csr", {}, 3.0, sp, sp.csr_matrix], ids=lambda x: type(x).__name__
)
def test_nothing_else_is_sparse(x):
    assert not is_sparse(x)


def test_asking_does_not_load_scipy():
    code = (
        "import sys, numpy as np; from raymkl.data.views import is_sparse; print(is_sparse(np.eye(2)), "
        "'scipy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.split() == ["False", "False"], result.stderr


def test_a_module_that_is_still_being_imported_has_no_matrices(monkeypatch):
    """Another thread may be in the middle of importing scipy.sparse."""
    monkeypatch.setitem(sys.modules, "scipy.sparse", type(sys)("scipy.sparse"))
    assert not is_sparse(np.eye(2))
