"""Files: a fitted model as an Arrow IPC file, without pickle. Loading runs no code from the file.

Layout (format version 1): one record batch with two columns, `name` (string) and `data` (binary), one row per
array, each in the Arrow tensor or NumPy-header-free form described by the JSON text in the schema's metadata
under `raymkl`:

    {"format": 1, "class": ..., "params": {...}, "attributes": {...}}

Arrays stand there as {"array": name, "dtype": ..., "shape": [...]}, sparse matrices as {"csr": [data,
indices, indptr], "shape": ...}, kernels as {"kernel": class name, "params": {...}}, norms likewise as
{"norm": ...}, splitters of `cv` as {"splitter": ...}, what folds have left (`FoldModels` with an `Expansion`,
`Calibration`) as {"part": class name, "fields": {...}}. The parts of a model's `Expansion` stand among the
attributes, under names of their own (`PARTS`); of the training rows only support vectors are in the file.
Models with a `Custom` kernel hold a function, which is code, and are not saved.

Format version 2 is the same with one more entry, "preparation": the columns, views, means and scales of a
`TableModel` (fields of `table_model.Preparation`), around the model of the other entries. A file says the
oldest version that can read it: models without a preparation are still version 1.

A file may come from anybody. It is opened as plain data (see `plain_arrow`), names in it choose among known
classes alone, arrays take as many bytes as the file holds for them, entries are nested to a limited depth,
and parts that do not fit together are refused. The metadata also hold `raymkl-digest`, a hash of the JSON
text and the arrays: it finds damage, not malice. Old files have none, and to tell them from files whose
digest was hit itself, metadata under any other name are refused.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from . import __version__, norms
from .data.packed import Packer, Unpacker, digest, write_table
from .data.plain_arrow import DAMAGE, open_plain
from .engine.params import RayParams
from .kernels import base, formulas, strings
from .kernels.normalize import TailSum
from .kernels.pairs.families import NO_GATE
from .models.expansion import Expansion
from .models.probability.calibration import Calibration
from .models.probability.conformal import FoldModels
from .models.probability.splits import SPLITTERS, settings_of, storable
from .models.table_model import Preparation, TableModel

FORMAT = 2
PLAIN_FORMAT = 1
ENTRIES = frozenset({"format", "raymkl", "class", "params", "attributes", "preparation"})
# Fields of an `Expansion` by their names in a file; those that end with an underscore are attributes of the
# estimator as well.
PARTS = {
    "kernels_": "kernels",
    "dual_coef_": "coefficients",
    "support_": "support",
    "_effective_weights": "weights",
    "_gate_of_entry": "gate_of_entry",
    "_support_rows": "support_rows",
    "_support_gates": "support_gates",
    "_stack_depths": "stack_depths",
    "_n_train": "n_train",
    "_entry_factors": "entry_factors",
}
# Parts that older files lack.
LATER_PARTS = frozenset({"stack_depths", "entry_factors"})
# Attributes that are written in another way, or that a file does not hold: which rows of which matrix in
# memory were those of training.
ELSEWHERE = ("expansion_", "_training_columns")
# Attributes that had another name when a file was written.
RENAMED = {"_engine_used": "engine_used_"}
# Models that are no expansions over kernels.
MIXTURES = frozenset({"ClusteredMKLClassifier", "DirichletProcessMixture"})
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
        formulas.Precomputed,
        formulas.Absence,
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


def _models() -> dict:
    from .models.classifier import MKLClassifier
    from .models.localized.convex import ConvexLocalizedMKLClassifier, ConvexLocalizedMKLRegressor
    from .models.localized.gated import LocalizedMKLClassifier
    from .models.mixtures.clustered import ClusteredMKLClassifier
    from .models.mixtures.mixture import DirichletProcessMixture
    from .models.one_class import MKLOneClass
    from .models.regressor import MKLRegressor
    from .models.stochastic import StochasticMKLClassifier

    known = (
        MKLClassifier,
        MKLRegressor,
        MKLOneClass,
        ConvexLocalizedMKLClassifier,
        ConvexLocalizedMKLRegressor,
        LocalizedMKLClassifier,
        StochasticMKLClassifier,
        ClusteredMKLClassifier,
        DirichletProcessMixture,
    )
    return {model.__name__: model for model in known}


class _Writer(Packer):
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


class _Reader(Unpacker):
    """The reverse of `_Writer`."""

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
            return _expansion(found) if entry["part"] == "Expansion" else HELD[entry["part"]](**found)
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


# What scikit-learn leaves in an estimator that has callbacks, or is being fitted with them.
NOT_OF_THE_MODEL = frozenset(
    {"_skl_callbacks", "_skl_callbacks_to_teardown", "_callback_fit_ctx", "_parent_callback_ctx"}
)


def save(model: Any, path: Any) -> None:
    """Write a fitted model, or a `TableModel`, to `path`. The file appears whole or not at all."""
    write_table(table_of(model), os.fspath(path))


def table_of(model: Any) -> pa.Table:
    """The content of a model's file. Raises TypeError for a model that holds code."""
    from sklearn.utils.validation import check_is_fitted

    preparation, model = (model.preparation, model.model) if isinstance(model, TableModel) else (None, model)
    check_is_fitted(model)
    write = _Writer()
    no_values = {*model.get_params(deep=False), *NOT_OF_THE_MODEL, *ELSEWHERE}
    values = {name: value for name, value in vars(model).items() if name not in no_values}
    if hasattr(model, "expansion_"):
        values.update(
            {name: getattr(model.expansion_, part) for name, part in PARTS.items() if name not in values}
        )
        if values["_entry_factors"] is None:
            del values["_entry_factors"]  # as before there were such models
    attributes = {name: write(value) for name, value in values.items()}
    params = {**model.get_params(deep=False)}
    if "cv" in params:
        params["cv"] = storable(params["cv"], getattr(model, "folds_", None))
    params = {name: write(value) for name, value in params.items()}
    head = {
        "format": PLAIN_FORMAT,
        "raymkl": __version__,
        "class": type(model).__name__,
        "params": params,
        "attributes": attributes,
    }
    if preparation is not None:
        head.update(
            format=FORMAT, preparation={name: write(value) for name, value in vars(preparation).items()}
        )
    table = pa.table(
        {"name": pa.array(write.names, pa.string()), "data": pa.array(write.data, pa.large_binary())}
    )
    text = json.dumps(head).encode()
    return table.replace_schema_metadata(
        {"raymkl": text, "raymkl-digest": _digest(text, write.names, write.data)}
    )


def load(path: Any) -> Any:
    """Read a model written by `save`.

    The file may come from anybody: it is data, nothing in it is run, and reading it takes at most about
    twice the memory of its size. ValueError when it is not a model file, is damaged, or is of a later format.

    Parameters
    ----------
    path : str or path
        A model file.

    Returns
    -------
    model : estimator or TableModel
        The fitted estimator; a `TableModel`, which takes raw tables, when it was trained from a table by the
        command line.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import raymkl
    >>> X, y = np.arange(8.0).reshape(-1, 1), [0, 0, 0, 0, 1, 1, 1, 1]
    >>> clf = raymkl.MKLClassifier(kernels=raymkl.kernels.rbf([0.1]), engine="local").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(f"{folder}/model.raymkl")
    ...     print(raymkl.load(f"{folder}/model.raymkl").predict([[0.0], [7.0]]))
    [0 1]
    """
    try:
        with pa.memory_map(str(path)) as source:
            head, arrays = _parts(source.read_buffer())
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ValueError(f"{path} is not a raymkl model file: {str(error)[:300]}") from None
    if head["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {head['format']}, this version of raymkl reads up to {FORMAT}; update raymkl"
        )
    if head["class"] not in _models():
        raise ValueError(f"{path} holds a {head['class'][:60]}, which this version of raymkl does not know")
    try:
        return _restored(head, _Reader(arrays))
    except DAMAGE as error:
        raise ValueError(f"{path} is damaged or was not written by raymkl: {str(error)[:300]}") from None


def _parts(data: pa.Buffer) -> tuple[dict, dict[str, pa.Buffer]]:
    """The JSON text of a file, decoded, and its arrays by name as windows into the file."""
    reader = open_plain(data)
    if reader.schema.names != ["name", "data"] or reader.schema.types != [pa.string(), pa.large_binary()]:
        raise ValueError("it does not have the columns of a model")
    metadata = reader.schema.metadata or {}
    if not {b"raymkl"} <= metadata.keys() <= {b"raymkl", b"raymkl-digest"}:
        raise ValueError(f"its metadata are {str(sorted(metadata))[:200]}, not those of a model")
    text = metadata[b"raymkl"]
    table = reader.read_all()
    table.validate(full=True)
    if table["name"].null_count or table["data"].null_count:
        raise ValueError("an array has no name or no data")
    names, arrays = table["name"].to_pylist(), [part.as_buffer() for part in table["data"]]
    if len(set(names)) < len(names):
        raise ValueError("two arrays have the same name")
    if b"raymkl-digest" in metadata and metadata[b"raymkl-digest"] != _digest(text, names, arrays):
        raise ValueError(
            "its content is not what was written (the hash differs), so it was damaged or changed"
        )
    head = json.loads(text)
    if not isinstance(head, dict) or type(head["format"]) is not int or not isinstance(head["class"], str):
        raise ValueError("its description is not that of a model")
    return head, dict(zip(names, arrays, strict=True))


def _digest(text: bytes, names: list[str], arrays: list) -> bytes:
    parts = [
        part
        for name, data in zip(names, arrays, strict=True)
        for part in (f"{name} {len(memoryview(data))} ", data)
    ]
    return digest(text, *parts, size=16).encode()


def _restored(head: dict, read: _Reader) -> Any:
    """The model that a file describes. Raises one of DAMAGE when it does not describe one."""
    if head["format"] < PLAIN_FORMAT or not ENTRIES.issuperset(head):
        raise ValueError(f"its entries are {sorted(head)}, of format {head['format']}")
    mixture = head["class"] in MIXTURES  # their arrays are public attributes, and there is no expansion
    model = _models()[head["class"]](**{name: read(value) for name, value in head["params"].items()})
    parts = {}
    for name, value in head["attributes"].items():
        if (
            not name.isidentifier()
            or hasattr(type(model), name)
            or not (name.startswith("_") or name.endswith("_"))
        ):
            raise ValueError(f"{name[:60]!r} is not an attribute of a fitted model")
        found = read(value)
        if name in PARTS and not mixture:
            parts[PARTS[name]] = found
        if mixture or name not in PARTS or name.endswith("_"):
            setattr(model, RENAMED.get(name, name), found)
    if mixture:
        from .models.mixtures.base import check_restored

        check_restored(model)
        return model
    model.expansion_ = _expansion(parts)
    if (
        model.expansion_.entry_factors is not None
    ):  # coefficients that kernels share are no dual variables then
        vars(model).pop("dual_coef_", None)
    _check_fitted(model)
    if "preparation" not in head:
        return model
    preparation = Preparation(**{name: read(value) for name, value in head["preparation"].items()})
    _check_preparation(preparation)
    return TableModel(model, preparation)


def _expansion(parts: dict) -> Expansion:
    """The expansion of fields as a file has them, all of which must be there and have shapes that fit
    together; else ValueError.
    """
    missing = [name for name, part in PARTS.items() if part not in parts and part not in LATER_PARTS]
    if missing:
        raise ValueError(f"the model has no {', '.join(missing)}")
    for name, dimensions, kinds in (
        ("support_", 1, "iu"),
        ("dual_coef_", 2, "f"),
        ("_effective_weights", 2, "f"),
    ):
        _check_array(name, parts[PARTS[name]], dimensions, kinds)
    if parts["gate_of_entry"] is None:  # written so when no entry had a gate
        parts["gate_of_entry"] = [NO_GATE] * parts["weights"].shape[1]
    e = Expansion(**parts)
    heads, support = e.coefficients.shape
    gates = 0 if e.support_gates is None else np.shape(e.support_gates)[1]
    matrices = {kernel.statistic().view for kernel in e.kernels if isinstance(kernel, formulas.Precomputed)}
    fits = {
        "support_": e.support.shape == (support,),
        "rows of support_": support == 0 or (e.support.min() >= 0 and e.support.max() < e.n_train),
        "kernels_": isinstance(e.kernels, list)
        and len(e.kernels) > 0
        and all(isinstance(kernel, base.Kernel) for kernel in e.kernels),
        "_effective_weights": e.weights.shape == (heads, len(e.gate_of_entry)),
        "_gate_of_entry": all(type(g) is int and NO_GATE <= g < gates for g in e.gate_of_entry),
        "_support_gates": e.support_gates is None or np.shape(e.support_gates) == (support, gates),
        "_support_rows": all(rows.shape[0] == support for rows in e.support_rows.values()),
        "_entry_factors": e.entry_factors is None or np.shape(e.entry_factors) == (*e.weights.shape, support),
        "_stack_depths": all(type(depth) is int for depth in e.stack_depths.values())
        and matrices <= e.stack_depths.keys(),
    }
    wrong = [name for name, fine in fits.items() if not fine]
    if wrong or e.weights.shape[1] % len(e.kernels):
        raise ValueError(
            "the parts of the model do not fit together: "
            f"{', '.join(wrong) or 'kernels_ and _effective_weights'}"
        )
    return e


def _check_fitted(model: Any) -> None:
    """Raise ValueError unless what predictions need beside the expansion is there, for as many heads."""
    _check_array("intercept_", model.intercept_, 1, "f")
    heads = len(model.expansion_.weights)
    if model.intercept_.shape != (heads,):
        raise ValueError("the parts of the model do not fit together: intercept_")
    if hasattr(model, "classes_") and np.shape(model.classes_) != (2 if heads == 1 else heads,):
        raise ValueError("the parts of the model do not fit together: classes_")
    for name, kind in (("calibration_", Calibration), ("fold_models_", FoldModels)):
        part = getattr(model, name, None)
        if part is not None and not isinstance(part, kind):
            raise ValueError(f"the parts of the model do not fit together: {name}")
        if part is not None:
            part.check(heads)
    if hasattr(model, "fold_models_"):
        beside = model.fold_models_.expansion
        if {*beside.kernels} - {*model.expansion_.kernels} and getattr(model, "kernels", None) is not None:
            raise ValueError("the parts of the model do not fit together: kernels of fold_models_")
        if beside.support_rows.keys() != model.expansion_.support_rows.keys():
            raise ValueError("the parts of the model do not fit together: views of fold_models_")


def _check_array(name: str, array: Any, dimensions: int, kinds: str) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is not an array of {dimensions} dimensions of numbers")


def _check_preparation(preparation: Preparation) -> None:
    """Raise ValueError unless a preparation has views of named columns, and numbers to scale them with."""
    for view, names in preparation.views.items():
        if not isinstance(view, str | None) or not all(isinstance(name, str) for name in names):
            raise ValueError("the preparation has a view without a name, or of columns without names")
    for name, width in preparation.widths.items():
        if not isinstance(name, str) or type(width) is not int or width < 0:
            raise ValueError("the preparation has a column whose width is not a number")
    for parts in (preparation.mean, preparation.scale):
        for name, values in parts.items():
            if (
                not isinstance(values, np.ndarray)
                or values.dtype.kind != "f"
                or values.shape != (preparation.widths[name],)
            ):
                raise ValueError(f"the preparation of the column {str(name)[:60]!r} does not have its width")
    if not isinstance(preparation.target, str | None):
        raise ValueError("the preparation has a target that is not a name")
