"""Solvers that others published, for comparison: `SimpleMKL`, `HessianMKL` and `BEMKL`.

The first two solve the problem of `MKLClassifier(p=1)` for two classes, in the same scale, and report the
same certificate, so that objectives, gaps and times can be compared directly; they train an SVM with LIBSVM
at every step. `BEMKL` is a Bayesian model by mean field, of two or more classes, with probabilities. All keep
all kernel matrices in memory; use `MKLClassifier` for work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bemkl import BEMKL as BEMKL
    from .hessian import HessianMKL as HessianMKL
    from .simple import SimpleMKL as SimpleMKL

_HOMES = {
    "BEMKL": "raymkl.baselines.bemkl",
    "HessianMKL": "raymkl.baselines.hessian",
    "SimpleMKL": "raymkl.baselines.simple",
}

__all__ = ["BEMKL", "HessianMKL", "SimpleMKL"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'raymkl.baselines' has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return list(__all__)
