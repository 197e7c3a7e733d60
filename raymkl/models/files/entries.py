"""What models are made of besides numbers and arrays, as entries of the JSON text of a model file and back.

The layout stands at the head of `raymkl.io`. Names in a file choose among the classes of the tables here
alone.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from ...data.packed import Packer, Unpacker
from ...engine.params import RayParams
from ...kernels import base, formulas, given, strings
from ...kernels.normalize import TailSum
from ...optim import norms
from ..expansion import Expansion
from ..probability.calibration import Calibration
from ..probability.conformal import FoldModels
from ..probability.splits import SPLITTERS, settings_of
from .checks import expansion_of

# How deeply entries may be nested, e.g. kernels in sums of kernels.
MAX_DEPTH = 200
KERNELS = {
    cls.__name__: cls
    for cls in (
        formulas.Linear,
        formulas.Polynomial,
        formulas.RBF,
        formulas.Laplacian,
        formulas.Chi2,
        formulas.HistogramIntersection,
        given.Precomputed,
        given.Absence,
        strings.Spectrum,
        strings.WeightedDegree,
        base.Sum,
        base.Product,
        base.Scaled,
    )
}
# What models hold besides arrays, kernels and norms.
HELD = {cls.__name__: cls for cls in (Expansion, Calibration, FoldModels)}
NORMS = {
    cls.__name__: cls for cls in (norms.LpNorm, norms.GroupedNorm, norms.QuadraticNorm, norms.ElasticNetNorm)
}


class Writer(Packer):
    """Packs what models are made of besides numbers and arrays, too."""

    def __init__(self) -> None:
        super().__init__("a model file", MAX_DEPTH)

    def name(self, number: int) -> str:
        return f"array{number}"

    @property
    def names(self) -> list[str]:
        return [self.name(number) for number in range(len(self.data))]

    def entry(self, value: Any) -> Any:
        if isinstance(value, base.Kernel):
            if type(value).__name__ not in KERNELS:
                raise TypeError(
                    f"a model with the kernel {value!r} cannot be saved: it holds a function of yours; use "
                    "pickle or joblib"
                )
            return {
                "kernel": type(value).__name__,
                "params": {k: self(v) for k, v in value.get_params(deep=False).items()},
            }
        if isinstance(value, norms.Norm):
            if NORMS.get(type(value).__name__) is not type(value) or not is_dataclass(value):
                raise TypeError(
                    f"a model with the norm {value!r} cannot be saved: it is none of raymkl.norms; use "
                    "pickle or joblib"
                )
            return {
                "norm": type(value).__name__,
                "params": {field.name: self(getattr(value, field.name)) for field in fields(value)},
            }
        if HELD.get(type(value).__name__) is type(value):
            return {
                "part": type(value).__name__,
                "fields": {field.name: self(getattr(value, field.name)) for field in fields(value)},
            }
        if SPLITTERS.get(type(value).__name__) is type(value):
            return {
                "splitter": type(value).__name__,
                "params": {name: self(v) for name, v in settings_of(value).items()},
            }
        if isinstance(value, TailSum):
            return {"tail_sum": value.zeta}
        if isinstance(value, RayParams):
            # Defaults are left out, so that older versions read what they know. A runtime_env is code in
            # disguise, and stays here.
            told = {
                field.name: getattr(value, field.name)
                for field in fields(value)
                if field.name != "runtime_env"
            }
            plain = RayParams()
            return {"ray_params": {k: self(v) for k, v in told.items() if v != getattr(plain, k)}}
        if sp.issparse(value):
            value = value.tocsr()
            return {
                "csr": [self(value.data), self(value.indices), self(value.indptr)],
                "shape": list(value.shape),
            }
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            return {"objects": [self(v) for v in value.ravel().tolist()], "shape": list(value.shape)}
        if isinstance(value, tuple):
            return {"tuple": [self(v) for v in value]}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        return super().entry(value)


class Reader(Unpacker):
    """The reverse of `Writer`."""

    def __init__(self, arrays: dict[str, pa.Buffer]):
        super().__init__(arrays, "a model file", MAX_DEPTH)

    def value(self, entry: dict) -> Any:
        if "objects" in entry:
            out = np.empty(len(entry["objects"]), object)
            out[:] = [self(v) for v in entry["objects"]]
            return out.reshape(entry["shape"])
        if "csr" in entry:
            matrix = sp.csr_matrix(tuple(self(part) for part in entry["csr"]), shape=tuple(entry["shape"]))
            matrix.check_format(full_check=True)  # compiled code follows these indices without looking
            return matrix
        if "kernel" in entry:
            return KERNELS[entry["kernel"]](**{k: self(v) for k, v in entry["params"].items()})
        if "norm" in entry:
            return NORMS[entry["norm"]](**{k: self(v) for k, v in entry["params"].items()})
        if "part" in entry:
            found = {k: self(v) for k, v in entry["fields"].items()}
            return expansion_of(found) if entry["part"] == "Expansion" else HELD[entry["part"]](**found)
        if "splitter" in entry:
            return SPLITTERS[entry["splitter"]](**{k: self(v) for k, v in entry["params"].items()})
        if "tail_sum" in entry:
            return TailSum(entry["tail_sum"])
        if "ray_params" in entry:
            if "runtime_env" in entry["ray_params"]:
                raise ValueError(
                    "a model file does not say what is installed or run on nodes, and this one has a "
                    "runtime_env"
                )
            return RayParams(**{k: self(v) for k, v in entry["ray_params"].items()})
        if "tuple" in entry:
            return tuple(self(v) for v in entry["tuple"])
        if "slice" in entry:
            if not all(part is None or isinstance(part, int | str) for part in entry["slice"]):
                raise ValueError(f"a slice cannot be made of {entry['slice']}")
            return slice(*entry["slice"])
        return super().value(entry)

    def key(self, entry: Any) -> Any:
        value = self(entry)
        return tuple(value) if isinstance(value, list) else value
