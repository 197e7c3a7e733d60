"""A fitted model behind HTTP, with Ray Serve: `pip install "raymkl[serve]"`.

    serve run raymkl.serve:app model=m.raymkl          or, in Python: ray.serve.run(raymkl.serve.app({"model": "m.raymkl"}))

    POST /predict   {"rows": [...], "contributions": false} -> {"prediction": [...], "decision": [...]}, and "classes" with "probability",
                    "contributions" where the model has them; rows that the model cannot take are a 422 that names column and row
    GET  /          a page about the model, on which a row can be typed
    GET  /health    whether the replica has its model; /docs and /openapi.json are FastAPI's

Requests that come together are answered by one call of the model. All but `app` works without Ray: a body becomes columns
(`Inputs.columns`), columns become answers (`answers`).
"""

import asyncio
import html
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .data.sources import file_system
from .data.views import view_of
from .io import load
from .models.base import rows_and_gates
from .models.reading import is_matrix
from .models.table_model import TableModel
from .plot import kernel_names, weight_rows

__all__ = ["app"]

# What `app` takes besides the model, with its defaults: requests that one call of the model answers, and how long the first waits.
BATCHING = {"max_batch_size": 64, "batch_wait_timeout_s": 0.005}
# Name of the only column of models without names.
ROW = ""


class BadRows(ValueError):
    """Rows or a body that the model cannot take; the text says which column of which row."""


@dataclass(frozen=True)
class Inputs:
    """What a model takes.

    kind : "records" (named columns), "views" (a dict of arrays) or "arrays" (rows without names).
    widths : numbers per row by column or view (`ROW` for arrays); None where any number will do.
    text : those that hold text.
    """

    kind: str
    widths: dict[str, int | None]
    text: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: Any) -> "Inputs":
        """Of a fitted model, from its public attributes. ValueError for models of ready-made kernel matrices."""
        if isinstance(model, TableModel):
            known = model.preparation.widths
            names = model.preparation.feature_names
            return cls("records", {name: known.get(name) for name in names}, frozenset(set(names) - set(known)))
        kernels = list(getattr(model, "kernels_", ()))
        if any(map(is_matrix, kernels)):
            raise ValueError("a model of ready-made kernel matrices cannot be served: it takes kernel values with its training rows")
        read = {key: view_of(key) for kernel in kernels for key in kernel.views}
        texts = [view_of(key) for kernel in kernels for key in kernel.string_views()]
        rows = model.expansion_.support_rows if hasattr(model, "expansion_") else {}
        if hasattr(model, "feature_names_in_"):
            names = [str(name) for name in model.feature_names_in_]
            text = frozenset(names[0] if view is None else str(view) for view in texts)
            # A view of one column that is wider than one is a column of vectors.
            return cls("records", {name: rows[name].shape[1] if name in rows and name not in text else 1 for name in names}, text)
        widths: dict[str, int | None] = {}
        for key, view in read.items():
            if isinstance(view, str):
                widths[view] = rows[key].shape[1]
            elif isinstance(view, tuple) and isinstance(view[0], str):
                widths.setdefault(view[0], None)
            elif isinstance(view, list) and all(isinstance(part, str) for part in view):
                return cls("records", dict.fromkeys((str(part) for one in read.values() for part in _listed(one)), 1))
        if widths:
            return cls("views", widths, frozenset(view for view in texts if isinstance(view, str)))
        text = frozenset([ROW] if texts else [])
        return cls("arrays", {ROW: getattr(model, "n_features_in_", None)}, text)

    def columns(self, rows: Any) -> dict[str, np.ndarray]:
        """The "rows" of a body as columns: (n,) texts or numbers, or (n, width). Raises BadRows.

        rows : list of n records {name: value}, of n arrays for models without names, or a dict of views with n entries each. Columns that
        the model does not know are left out.
        """
        if isinstance(rows, dict) and self.kind != "arrays":
            lists = {name: _known(rows, name, "rows") for name in self.widths}
            wrong = [name for name, values in lists.items() if not isinstance(values, list)]
            if wrong:
                raise BadRows(f"column {wrong[0]!r} must be a list with one entry per row, got {_shown(lists[wrong[0]])}")
            lengths = {name: len(values) for name, values in lists.items()}
            if len(set(lengths.values())) > 1:
                raise BadRows(f"columns have different numbers of rows: {lengths}")
        elif not isinstance(rows, list):
            raise BadRows(f'"rows" must be a list with one {"array" if self.kind == "arrays" else "record"} per row, got {_shown(rows)}')
        elif self.kind == "arrays":
            lists = {ROW: rows}
        else:
            for i, row in enumerate(rows):
                if not isinstance(row, dict):
                    raise BadRows(f"row {i} must be a record with the columns {', '.join(map(repr, self.widths))}, got {_shown(row)}")
            lists = {name: [_known(row, name, f"row {i}") for i, row in enumerate(rows)] for name in self.widths}
        if not next(iter(lists.values())):
            raise BadRows('"rows" is empty; at least one row is needed')
        return {name: self._column(name, values) for name, values in lists.items()}

    def _column(self, name: str, values: list) -> np.ndarray:
        if name in self.text:
            for i, value in enumerate(values):
                if not isinstance(value, str):
                    raise BadRows(f"{_place(i, name)} must be text, got {_shown(value)}")
            return np.array(values, object)
        width = self.widths[name]
        if width == 1 and self.kind == "records":
            return np.array([_number(value, i, name) for i, value in enumerate(values)])
        width = len(values[0]) if width is None and isinstance(values[0], list) else width
        out = []
        for i, value in enumerate(values):
            if not isinstance(value, list):
                raise BadRows(f"{_place(i, name)} must be an array of {width or 'several'} numbers, got {_shown(value)}")
            if len(value) != width:
                raise BadRows(f"{_place(i, name)} has length {len(value)}; the model takes {width} numbers")
            out.append([_number(part, i, name, k) for k, part in enumerate(value)])
        return np.array(out, np.float64).reshape(len(values), -1)

    def container(self, model: Any, columns: dict[str, np.ndarray]) -> Any:
        """X for the model's methods, of columns made by `columns`."""
        if self.kind == "arrays":
            return columns[ROW]
        if self.kind == "views" or isinstance(model, TableModel):
            return columns
        if not hasattr(model, "feature_names_in_"):  # fitted to a table
            import pyarrow as pa

            return pa.table(columns)
        import pandas as pd

        return pd.DataFrame({name: list(array) if array.ndim == 2 else array for name, array in columns.items()})


def _listed(view: Any) -> list:
    return view if isinstance(view, list) else [view]


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _place(row: int, name: str, entry: int | None = None) -> str:
    if name == ROW:
        return f"row {row}" if entry is None else f"row {row}, column {entry}"
    return f"row {row}, column {name!r}" + ("" if entry is None else f", entry {entry}")


def _known(record: dict, name: str, where: str) -> Any:
    if name not in record:
        raise BadRows(f"{where}: column {name!r} is missing")
    return record[name]


def _number(value: Any, row: int, name: str, entry: int | None = None) -> float:
    """A finite number of JSON (true and false are none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRows(f"{_place(row, name, entry)} must be a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadRows(f"{_place(row, name, entry)} must be a finite number, got {'NaN' if math.isnan(number) else 'infinity'}")
    return number


def parsed(model: Any, inputs: Inputs, body: bytes) -> tuple[dict[str, np.ndarray], bool]:
    """Columns, and whether contributions are asked for, of the text of a request. Raises BadRows."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRows('the body is not JSON; it must be {"rows": [...]}') from None
    if not isinstance(content, dict) or "rows" not in content:
        raise BadRows(f'the body must be {{"rows": [...]}}, got {_shown(content)}')
    unknown = sorted(set(content) - {"rows", "contributions"})
    if unknown:
        raise BadRows(f'the body has an unknown entry {unknown[0]!r}; it takes "rows" and "contributions"')
    wanted = content.get("contributions", False)
    if not isinstance(wanted, bool):
        raise BadRows(f'"contributions" must be true or false, got {_shown(wanted)}')
    if wanted and not has_contributions(model):
        raise BadRows(f"a {type(_inner(model)).__name__} has no contributions of kernels")
    return inputs.columns(content["rows"]), wanted


def _inner(model: Any) -> Any:
    return model.model if isinstance(model, TableModel) else model


def has_contributions(model: Any) -> bool:
    """Whether the decisions of a model are sums of parts of its kernels."""
    return hasattr(_inner(model), "contributions")


def _plain(array: Any) -> list:
    """An array as lists for JSON, which has no infinity and no NaN: they are null."""
    array = np.asarray(array)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        array = np.where(np.isfinite(array), array, None)
    return array.tolist()


def answers(model: Any, inputs: Inputs, requests: Sequence[tuple[dict[str, np.ndarray], bool]]) -> list[dict | BadRows]:
    """One answer per request, of one call of the model for all of their rows.

    requests : pairs of columns and whether contributions are asked for, as `parsed` gives them. Where rows are of the right shape but not
    for these kernels (negative histograms, say), the request that holds them is answered by BadRows and the others are not touched.
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
            rows_and_gates(_inner(model), X)
    except ValueError as error:
        return BadRows(str(error))
    return None


def _answered(model: Any, inputs: Inputs, requests: Sequence[tuple[dict[str, np.ndarray], bool]]) -> list[dict | BadRows]:
    lengths = [len(next(iter(columns.values()))) for columns, _ in requests]
    edges = np.cumsum([0, *lengths])
    for name, width in inputs.widths.items():
        if width is None and name not in inputs.text and len({columns[name].shape[1] for columns, _ in requests}) > 1:
            return [answer for request in requests for answer in answers(model, inputs, [request])]  # cannot stand in one array
    X = inputs.container(model, {name: np.concatenate([columns[name] for columns, _ in requests]) for name in inputs.widths})
    found = {"prediction": _plain(model.predict(X))}
    if hasattr(_inner(model), "decision_function"):
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


# -- the page ---------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; overflow-wrap: anywhere; }
td.number { font-variant-numeric: tabular-nums; text-align: right; } label { display: block; margin: .3rem 0; }
label span { display: inline-block; min-width: 10rem; } input { width: 20rem; max-width: 100%; } #answer { margin-top: 1rem; }
.bad { color: #b3261e; }
"""

# Names and answers are put into the page as text, never as HTML.
SCRIPT = """
const about = JSON.parse(document.getElementById("about").textContent);
const form = document.getElementById("row"), out = document.getElementById("answer");
function value(field) {
  const text = form.elements[field.id].value;
  if (field.text) return text;
  const numbers = text.split(/[\\s,;]+/).filter(part => part).map(part => isNaN(Number(part)) ? part : Number(part));
  return field.single ? (numbers.length === 1 ? numbers[0] : text) : numbers;
}
function line(table, cells, kind) {
  const row = table.insertRow();
  for (const cell of cells) { const place = document.createElement(kind || "td"); place.textContent = cell; row.append(place); }
}
function show(answer) {
  const table = document.createElement("table");
  line(table, ["prediction", String(answer.prediction[0])]);
  if (answer.decision) line(table, ["decision", [answer.decision[0]].flat().join(", ")]);
  (answer.probability ? answer.probability[0] : []).forEach((p, k) => line(table, ["probability of " + answer.classes[k], p]));
  out.replaceChildren(table);
  if (!answer.contributions) return;
  const parts = answer.contributions[0], several = Array.isArray(parts[0]), title = document.createElement("h3");
  const kernels = document.createElement("table");
  title.textContent = "Each kernel's part of the decision";
  line(kernels, ["kernel", ...(several ? about.heads : ["part"])], "th");
  about.kernels.forEach((name, m) => line(kernels, [name, ...(several ? parts.map(head => head[m]) : [parts[m]])]));
  out.append(title, kernels);
}
form.addEventListener("submit", async event => {
  event.preventDefault();
  const row = about.named ? Object.fromEntries(about.fields.map(field => [field.name, value(field)])) : value(about.fields[0]);
  const body = JSON.stringify({rows: [row], contributions: about.contributions});
  const where = location.pathname.replace(/\\/$/, "") + "/predict";
  try {
    const reply = await fetch(where, {method: "POST", headers: {"Content-Type": "application/json"}, body});
    const text = await reply.text();
    if (!reply.ok) throw new Error(reply.status === 422 ? JSON.parse(text).detail : reply.status + " " + text);
    show(JSON.parse(text));
  } catch (error) {
    const words = document.createElement("p");
    words.className = "bad"; words.textContent = error.message; out.replaceChildren(words);
  }
});
"""


def page(model: Any, inputs: Inputs) -> str:
    """HTML about a model: its kernels, weights and columns, and a form for a row. It refers to nothing outside."""
    inner, escape = _inner(model), html.escape
    names = kernel_names(getattr(inner, "kernels_", ()))
    fields = [
        {"id": f"f{k}", "name": name, "text": name in inputs.text, "single": width == 1 and inputs.kind == "records"}
        for k, (name, width) in enumerate(inputs.widths.items())
    ]
    about = {
        "kernels": names,
        "heads": [str(label) for label in getattr(inner, "classes_", ())],
        "named": inputs.kind != "arrays",
        "contributions": has_contributions(model),
        "fields": fields,
    }
    weights = _weights(inner, names) if names and hasattr(inner, "kernel_weights_") else "<p>It has no weights of kernels.</p>"
    labels = []
    for field, (name, width) in zip(fields, inputs.widths.items(), strict=True):
        what = "text" if field["text"] else "a number" if field["single"] else f"{width or 'several'} numbers, separated by commas"
        labels.append(f'<label><span>{escape(name or "the row")}</span> <input name="{field["id"]}" placeholder="{what}"></label>')
    # "<" could end the script element.
    data = json.dumps(about).replace("<", "\\u003c")
    title = escape(type(inner).__name__)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<h2>Kernels</h2>\n{weights}\n<h2>A row</h2>\n"
        f'<form id="row">{"".join(labels)}<button>Predict</button></form>\n<div id="answer" aria-live="polite"></div>\n'
        f'<script type="application/json" id="about">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n'
    )


def _weights(model: Any, names: list[str]) -> str:
    """A table of kernels with a column per set of weights."""
    if hasattr(model, "dual_coef_"):
        weights, sets = weight_rows(model)
    else:  # every kernel has coefficients of its own
        weights = np.atleast_2d(model.kernel_weights_)
        sets = [""] if len(weights) == 1 else [f"set {k}" for k in range(len(weights))]
    head = "".join(f"<th>{html.escape(f'weight {name}'.strip())}</th>" for name in sets)
    lines = [
        f"<tr><td>{html.escape(name)}</td>" + "".join(f'<td class="number">{w:.4g}</td>' for w in column) + "</tr>"
        for name, column in zip(names, weights.T, strict=True)
    ]
    return f"<table><tr><th>kernel</th>{head}</tr>{''.join(lines)}</table>"


# -- Serve ------------------------------------------------------------------------------------------------------------


def opened(path: str) -> Any:
    """The model of a path or of a URI that `pyarrow.fs` opens."""
    files, place = file_system(path)
    if files.type_name == "local":
        return load(place)
    with tempfile.TemporaryDirectory() as folder, files.open_input_stream(place, compression=None) as stream:
        copy = Path(folder) / "model.raymkl"
        copy.write_bytes(stream.read())
        return load(copy)


def _checked(args: Any) -> tuple[str, int, float]:
    """Address of the model and settings of batches. What can be seen to be wrong from here is an error."""
    if not isinstance(args, dict):
        raise TypeError(f'app takes a dict such as {{"model": "m.raymkl"}}, got {type(args).__name__}')
    unknown = sorted(set(args) - {"model", *BATCHING}, key=str)
    if unknown:
        raise ValueError(f"app has no argument {unknown[0]!r}; it takes model, {', '.join(BATCHING)}")
    if not isinstance(args.get("model"), str | os.PathLike) or not os.fspath(args["model"]):
        raise ValueError(f"model must be the path or URI of a model file, got {args.get('model')!r}")
    settings = {}
    for name, default in BATCHING.items():
        try:
            settings[name] = type(default)(args.get(name, default))  # `serve run` hands over texts
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number, got {args[name]!r}") from None
    if settings["max_batch_size"] < 1 or not 0 <= settings["batch_wait_timeout_s"] < math.inf:
        raise ValueError(f"max_batch_size must be at least 1 and batch_wait_timeout_s at least 0, got {settings}")
    path = os.fspath(args["model"])
    files, place = file_system(path)
    local = files.type_name == "local"
    path = place if local else path  # replicas have another working directory
    if not local or os.path.isdir(os.path.dirname(place)):  # else a directory of other machines
        try:
            Inputs.of(opened(path))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no model file {path}") from None
        except OSError:  # storage that this machine may not read; a replica may
            if local:
                raise
    return path, int(settings["max_batch_size"]), float(settings["batch_wait_timeout_s"])


def app(args: dict[str, Any]) -> Any:
    """An application of Ray Serve that answers for the model of a file.

    The head of `raymkl/serve.py` says what it answers. A missing or damaged file is an error here, or, in a directory or
    storage that only other machines see, when a replica starts.

    Parameters
    ----------
    args : dict
        "model": path of a model file, or a URI that `pyarrow.fs` opens (s3://bucket/m.raymkl); all replicas must reach it.
        "max_batch_size" and "batch_wait_timeout_s": requests that are answered together at most (64), and for how many
        seconds the first of them waits for others (0.005).

    Returns
    -------
    application : ray.serve.Application
        What `ray.serve.run` takes.

    Examples
    --------
    >>> from ray import serve  # doctest: +SKIP
    >>> serve.run(raymkl.serve.app({"model": "m.raymkl"}))  # doctest: +SKIP
    """
    path, most, wait = _checked(args)
    try:
        from fastapi import FastAPI, HTTPException, Request
        from fastapi.responses import HTMLResponse
        from ray import serve
    except ImportError as error:
        raise ImportError('serving needs ray[serve], which is not installed; run: pip install "raymkl[serve]"') from error

    api = FastAPI(title="raymkl", description="Predictions of a multiple kernel learning model.")
    rows = {"description": "records of named columns, arrays, or a dict of views", "anyOf": [{"type": "array"}, {"type": "object"}]}
    schema = {"type": "object", "required": ["rows"], "properties": {"rows": rows, "contributions": {"type": "boolean", "default": False}}}
    described = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    bad: dict[int | str, dict[str, Any]] = {422: {"description": "rows that the model cannot take; detail names column and row"}}

    @serve.ingress(api)
    class Served:
        def __init__(self) -> None:
            self.model = opened(path)
            self.inputs = Inputs.of(self.model)
            self.page = page(self.model, self.inputs)

        @serve.batch(max_batch_size=most, batch_wait_timeout_s=wait)
        async def together(self, requests: list) -> list:
            # In a thread, so that checks of health are answered meanwhile.
            return await asyncio.to_thread(answers, self.model, self.inputs, requests)

        @api.post("/predict", openapi_extra=described, responses=bad)
        async def predict(self, request: Request) -> dict:
            try:
                answer = await self.together(parsed(self.model, self.inputs, await request.body()))
            except BadRows as error:
                raise HTTPException(422, str(error)) from None
            if isinstance(answer, BadRows):
                raise HTTPException(422, str(answer))
            return answer

        @api.get("/", response_class=HTMLResponse)
        async def about(self) -> str:
            return self.page

        @api.get("/health")
        async def health(self) -> dict:
            self.check_health()
            return {"status": "ok", "model": type(_inner(self.model)).__name__}

        def check_health(self) -> None:
            """Serve asks every replica, and replaces one that raises. A replica without a model did not start."""
            if not self.page:
                raise RuntimeError("the replica has no model")

    deployment: Any = serve.deployment(name="raymkl")(Served)
    return deployment.bind()
