"""What a served model answers: one call of the model for the rows of several requests.

Nothing here needs Ray.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..models.base import rows_and_gates
from ..models.table_model import TableModel
from .inputs import BadRows, Inputs, inner


def _plain(array: Any) -> list:
    """An array as lists for JSON, which has no infinity and no NaN: they are null."""
    array = np.asarray(array)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        array = np.where(np.isfinite(array), array, None)
    return array.tolist()


def answers(
    model: Any, inputs: Inputs, requests: Sequence[tuple[dict[str, np.ndarray], bool]]
) -> list[dict | BadRows]:
    """One answer per request, of one call of the model for all of their rows.

    requests : pairs of columns and whether contributions are asked for, as `parsed` gives them. Where rows
    are of the right shape but not for these kernels (negative histograms, say), the request that holds them
    is answered by BadRows and the others are not touched.
    """
    try:
        return _answered(model, inputs, requests)
    except ValueError:
        faults = [_fault(model, inputs, columns) for columns, _ in requests]
        if not any(faults):  # not the rows: a fault of ours
            raise
        good = [request for request, fault in zip(requests, faults, strict=True) if fault is None]
        rest = iter(_answered(model, inputs, good) if good else [])
        return [next(rest) if fault is None else fault for fault in faults]


def _fault(model: Any, inputs: Inputs, columns: dict[str, np.ndarray]) -> BadRows | None:
    """What the model says to rows when it only reads them."""
    try:
        X = inputs.container(model, columns)
        X = model.preparation.transform(X) if isinstance(model, TableModel) else X
        if hasattr(model, "expansion_"):
            rows_and_gates(inner(model), X)
    except ValueError as error:
        return BadRows(str(error))
    return None


def _answered(
    model: Any, inputs: Inputs, requests: Sequence[tuple[dict[str, np.ndarray], bool]]
) -> list[dict | BadRows]:
    lengths = [len(next(iter(columns.values()))) for columns, _ in requests]
    edges = np.cumsum([0, *lengths])
    for name, width in inputs.widths.items():
        if (
            width is None
            and name not in inputs.text
            and len({columns[name].shape[1] for columns, _ in requests}) > 1
        ):
            return [
                answer for request in requests for answer in answers(model, inputs, [request])
            ]  # cannot stand in one array
    X = inputs.container(
        model, {name: np.concatenate([columns[name] for columns, _ in requests]) for name in inputs.widths}
    )
    found = {"prediction": _plain(model.predict(X))}
    if hasattr(inner(model), "decision_function"):
        found["decision"] = _plain(model.decision_function(X))
    if hasattr(model, "predict_proba"):
        found["probability"] = _plain(model.predict_proba(X))
    result: list[dict | BadRows] = []
    parts = _plain(model.contributions(X)) if any(wanted for _, wanted in requests) else []
    for (_, wanted), start, stop in zip(requests, edges[:-1], edges[1:], strict=True):
        answer = {name: values[start:stop] for name, values in found.items()}
        if "probability" in answer:
            answer["classes"] = _plain(model.classes_)
        if wanted:
            answer["contributions"] = parts[start:stop]
        result.append(answer)
    return result
