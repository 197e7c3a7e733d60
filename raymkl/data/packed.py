"""Nested dicts, lists, numbers and arrays as one Arrow table: the arrays as rows of bytes, the rest as JSON in the metadata."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from .plain_arrow import plain_array

# How deeply a value may be nested.
MAX_DEPTH = 64


def pack(value: Any, metadata: dict[str, str]) -> pa.Table:
    """A table from which `unpack` gets the value back. Keys of dicts may be whole numbers or strings."""
    arrays: list[bytes] = []

    def describe(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            arrays.append(np.ascontiguousarray(part).tobytes())
            return {"array": len(arrays) - 1, "dtype": part.dtype.str, "shape": list(part.shape)}
        if isinstance(part, np.generic):
            return describe(part.item())
        if isinstance(part, dict):
            return {"dict": [[key, describe(inner)] for key, inner in part.items()]}
        if isinstance(part, list | tuple):
            return [describe(inner) for inner in part]
        if isinstance(part, float) and not np.isfinite(part):
            return {"float": repr(part)}
        if part is None or isinstance(part, bool | int | float | str):
            return part
        raise TypeError(f"cannot pack a {type(part).__name__}")

    text = json.dumps(describe(value))
    return pa.table({"data": pa.array(arrays, pa.large_binary())}).replace_schema_metadata({**metadata, "value": text})


def unpack(table: pa.Table) -> Any:
    """The value that was packed. Raises one of `plain_arrow.DAMAGE` for a table that does not hold one."""
    arrays = dict(enumerate(table["data"]))  # each is taken once, so that a table cannot grow by naming one again and again

    def restore(part: Any, depth: int = 1) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError(f"values are nested more than {MAX_DEPTH} deep")
        if isinstance(part, list):
            return [restore(inner, depth + 1) for inner in part]
        if not isinstance(part, dict):
            return part
        if "array" in part:
            return plain_array(arrays.pop(part["array"]).as_buffer(), part["dtype"], part["shape"])
        if "float" in part:
            return float(part["float"])
        return {key: restore(inner, depth + 1) for key, inner in part["dict"]}

    return restore(json.loads(table.schema.metadata[b"value"]))
