"""Files: a fitted model as an Arrow IPC file, without pickle. Loading runs no code from the file.

Layout (format version 1): one record batch with two columns, `name` (string) and `data` (binary), one row per
array, each in the Arrow tensor or NumPy-header-free form described by the JSON text in the schema's metadata
under `raymkl`:

    {"format": 1, "class": ..., "params": {...}, "attributes": {...}}

Arrays stand there as {"array": name, "dtype": ..., "shape": [...]}, sparse matrices as {"csr": [data,
indices, indptr], "shape": ...}, kernels as {"kernel": class name, "params": {...}}, norms likewise as
{"norm": ...}, splitters of `cv` as {"splitter": ...}, what folds have left (`FoldModels` with an `Expansion`,
`Calibration`) as {"part": class name, "fields": {...}}. The parts of a model's `Expansion` stand among the
attributes, under names of their own (`models.files.checks.PARTS`); of the training rows only support vectors
are in the file. Models with a `Custom` kernel hold a function, which is code, and are not saved.

Format version 2 is the same with one more entry, "preparation": the columns, views, means and scales of a
`TableModel` (fields of `preparation.Preparation`), around the model of the other entries. A file says the
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
from typing import Any

import pyarrow as pa

from . import __version__
from .data.packed import digest, write_table
from .data.plain_arrow import DAMAGE, open_plain
from .models.files.checks import PARTS, check_fitted, check_preparation, expansion_of
from .models.files.entries import Reader, Writer
from .models.preparation import Preparation
from .models.probability.splits import storable
from .models.table_model import TableModel

FORMAT = 2
PLAIN_FORMAT = 1
ENTRIES = frozenset({"format", "raymkl", "class", "params", "attributes", "preparation"})
# Attributes that are written in another way, or that a file does not hold: which rows of which matrix in
# memory were those of training.
ELSEWHERE = ("expansion_", "_training_columns")
# Attributes that had another name when a file was written.
RENAMED = {"_engine_used": "engine_used_"}
# Models that are no expansions over kernels.
MIXTURES = frozenset({"ClusteredMKLClassifier", "DirichletProcessMixture"})


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
    if type(model).__name__ not in _models():
        raise TypeError(
            f"model: {type(model).__name__} has no file format (pickle it); files hold {', '.join(_models())}"
        )
    check_is_fitted(model)
    write = Writer()
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
        return _restored(head, Reader(arrays))
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


def _restored(head: dict, read: Reader) -> Any:
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
    model.expansion_ = expansion_of(parts)
    if (
        model.expansion_.entry_factors is not None
    ):  # coefficients that kernels share are no dual variables then
        vars(model).pop("dual_coef_", None)
    check_fitted(model)
    if "preparation" not in head:
        return model
    preparation = Preparation(**{name: read(value) for name, value in head["preparation"].items()})
    check_preparation(preparation)
    return TableModel(model, preparation)
