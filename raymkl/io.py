"""Files: a fitted model as an Arrow IPC file, without pickle. Loading runs no code from the file.

Layout (format version 1): one record batch with two columns, `name` (string) and `data` (binary), one row per array, each in the
Arrow tensor or NumPy-header-free form described by the JSON text in the schema's metadata under `raymkl`:

    {"format": 1, "class": ..., "params": {...}, "attributes": {...}}

Arrays stand there as {"array": name, "dtype": ..., "shape": [...]}, sparse matrices as {"csr": [data, indices, indptr], "shape": ...},
kernels as {"kernel": class name, "params": {...}}. Of the training rows only
support vectors are in the file. Models with a `Custom` kernel hold a function, which is code, and are not saved.

Format version 2 is the same with one more entry, "preparation": the columns, views, means and scales of a `TableModel` (fields of
`table_model.Preparation`), around the model of the other entries. A file says the oldest version that can read it: models without a
preparation are still version 1.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from . import __version__
from .engine.params import RayParams
from .kernels import base, formulas, strings
from .table_model import Preparation, TableModel

FORMAT = 2
PLAIN_FORMAT = 1
KERNELS = {
    cls.__name__: cls
    for cls in (
        formulas.Linear,
        formulas.Polynomial,
        formulas.RBF,
        formulas.Laplacian,
        formulas.Chi2,
        formulas.HistogramIntersection,
        formulas.Precomputed,
        strings.Spectrum,
        strings.WeightedDegree,
        base.Sum,
        base.Product,
        base.Scaled,
    )
}


def _models() -> dict:
    from .models.classifier import MKLClassifier
    from .models.localized_convex import ConvexLocalizedMKLClassifier, ConvexLocalizedMKLRegressor
    from .models.localized_gated import LocalizedMKLClassifier
    from .models.regressor import MKLRegressor

    known = (MKLClassifier, MKLRegressor, ConvexLocalizedMKLClassifier, ConvexLocalizedMKLRegressor, LocalizedMKLClassifier)
    return {model.__name__: model for model in known}


class _Writer:
    """Turns values into JSON, and arrays into rows of the file."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.data: list[bytes] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, base.Kernel):
            if type(value).__name__ not in KERNELS:
                raise TypeError(f"a model with the kernel {value!r} cannot be saved: it holds a function of yours; use pickle or joblib")
            return {"kernel": type(value).__name__, "params": {k: self(v) for k, v in value.get_params(deep=False).items()}}
        if isinstance(value, RayParams):
            return {"ray_params": {k: self(v) for k, v in vars(value).items()}}
        if sp.issparse(value):
            value = value.tocsr()
            return {"csr": [self(value.data), self(value.indices), self(value.indptr)], "shape": list(value.shape)}
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            return self(value.item())
        if isinstance(value, dict):
            return {"dict": [[self(k), self(v)] for k, v in value.items()]}
        if isinstance(value, tuple):
            return {"tuple": [self(v) for v in value]}
        if isinstance(value, list):
            return [self(v) for v in value]
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, float) and not np.isfinite(value):
            return {"float": repr(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"cannot save a {type(value).__name__} ({value!r}) in a model file")

    def _array(self, value: np.ndarray) -> dict:
        if value.dtype.kind == "O":
            return {"objects": [self(v) for v in value.ravel().tolist()], "shape": list(value.shape)}
        self.names.append(f"array{len(self.names)}")
        self.data.append(np.ascontiguousarray(value).tobytes())
        return {"array": self.names[-1], "dtype": value.dtype.str, "shape": list(value.shape)}


class _Reader:
    """The reverse of `_Writer`."""

    def __init__(self, arrays: dict[str, bytes]):
        self.arrays = arrays

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(v) for v in value]
        if not isinstance(value, dict):
            return value
        if "array" in value:
            dtype = np.dtype(value["dtype"])
            return np.frombuffer(self.arrays[value["array"]], dtype).reshape(value["shape"]).copy()
        if "objects" in value:
            out = np.empty(len(value["objects"]), object)
            out[:] = [self(v) for v in value["objects"]]
            return out.reshape(value["shape"])
        if "csr" in value:
            return sp.csr_matrix(tuple(self(part) for part in value["csr"]), shape=tuple(value["shape"]))
        if "kernel" in value:
            return KERNELS[value["kernel"]](**{k: self(v) for k, v in value["params"].items()})
        if "ray_params" in value:
            return RayParams(**{k: self(v) for k, v in value["ray_params"].items()})
        if "dict" in value:
            return {_key(self(k)): self(v) for k, v in value["dict"]}
        if "tuple" in value:
            return tuple(self(v) for v in value["tuple"])
        if "slice" in value:
            return slice(*value["slice"])
        if "float" in value:
            return float(value["float"])
        raise ValueError(f"unknown entry in a model file: {sorted(value)}")


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def save(model: Any, path: Any) -> None:
    """Write a fitted model, or a `TableModel`, to `path`. The file appears whole or not at all."""
    from sklearn.utils.validation import check_is_fitted

    preparation, model = (model.preparation, model.model) if isinstance(model, TableModel) else (None, model)
    check_is_fitted(model)
    write = _Writer()
    attributes = {name: write(value) for name, value in vars(model).items() if name not in model.get_params(deep=False)}
    params = {name: write(value) for name, value in model.get_params(deep=False).items()}
    head = {"format": PLAIN_FORMAT, "raymkl": __version__, "class": type(model).__name__, "params": params, "attributes": attributes}
    if preparation is not None:
        head.update(format=FORMAT, preparation={name: write(value) for name, value in vars(preparation).items()})
    table = pa.table({"name": pa.array(write.names, pa.string()), "data": pa.array(write.data, pa.large_binary())})
    table = table.replace_schema_metadata({"raymkl": json.dumps(head)})
    unfinished = f"{path}.{os.getpid()}.unfinished"
    try:
        with pa.OSFile(unfinished, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)


def load(path: Any) -> Any:
    """Read a model written by `save` (a `TableModel` when it was trained from a table).

    Raises ValueError when the file is not one, or is of a later format.
    """
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            head = json.loads(table.schema.metadata[b"raymkl"])
            arrays = dict(zip(table["name"].to_pylist(), table["data"].to_pylist(), strict=True))
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, KeyError, TypeError, json.JSONDecodeError, OSError) as error:
        raise ValueError(f"{path} is not a raymkl model file: {error}") from None
    if head["format"] > FORMAT:
        raise ValueError(f"{path} has format {head['format']}, this version of raymkl reads up to {FORMAT}; update raymkl")
    if head["class"] not in _models():
        raise ValueError(f"{path} holds a {head['class']}, which this version of raymkl does not know")
    read = _Reader(arrays)
    try:
        model = _models()[head["class"]](**{name: read(value) for name, value in head["params"].items()})
        for name, value in head["attributes"].items():
            setattr(model, name, read(value))
        if "preparation" in head:
            return TableModel(model, Preparation(**{name: read(value) for name, value in head["preparation"].items()}))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged or was not written by raymkl: {error}") from None
    return model
