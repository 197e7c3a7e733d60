"""The page of a served model: what it is, and a form for a row. It refers to nothing outside."""

import html
import json
from typing import Any

import numpy as np

from ..plot import kernel_names, weight_rows
from .inputs import Inputs, has_contributions, inner

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left;
  overflow-wrap: anywhere; }
td.number { font-variant-numeric: tabular-nums; text-align: right; } label { display: block; margin: .3rem 0;
  }
label span { display: inline-block; min-width: 10rem; } input { width: 20rem; max-width: 100%; } #answer {
  margin-top: 1rem; }
.bad { color: #b3261e; }
"""

# Names and answers are put into the page as text, never as HTML.
SCRIPT = """
const about = JSON.parse(document.getElementById("about").textContent);
const form = document.getElementById("row"), out = document.getElementById("answer");
function value(field) {
  const text = form.elements[field.id].value;
  if (field.text) return text;
  const numbers = text.split(/[\\s,;]+/).filter(part => part).map(part => isNaN(Number(part)) ? part :
    Number(part));
  return field.single ? (numbers.length === 1 ? numbers[0] : text) : numbers;
}
function short(number) { return typeof number === "number" ? String(Number(number.toPrecision(6))) :
  String(number); }
function line(table, cells, kind) {
  const row = table.insertRow();
  for (const cell of cells) { const place = document.createElement(kind || "td"); place.textContent = cell;
    row.append(place); }
}
function show(answer) {
  const table = document.createElement("table");
  line(table, ["prediction", short(answer.prediction[0])]);
  if (answer.decision) line(table, ["decision", [answer.decision[0]].flat().map(short).join(", ")]);
  (answer.probability ? answer.probability[0] : []).forEach((p, k) => line(table, ["probability of " +
    answer.classes[k], short(p)]));
  out.replaceChildren(table);
  if (!answer.contributions) return;
  const parts = answer.contributions[0], several = Array.isArray(parts[0]), title =
    document.createElement("h3");
  const kernels = document.createElement("table");
  title.textContent = "Each kernel's part of the decision";
  line(kernels, ["kernel", ...(several ? about.heads : ["part"])], "th");
  about.kernels.forEach((name, m) => line(kernels, [name, ...(several ? parts.map(head => short(head[m])) :
    [short(parts[m])])]));
  out.append(title, kernels);
}
form.addEventListener("submit", async event => {
  event.preventDefault();
  const row = about.named ? Object.fromEntries(about.fields.map(field => [field.name, value(field)])) :
    value(about.fields[0]);
  const body = JSON.stringify({rows: [row], contributions: about.contributions});
  const where = location.pathname.replace(/\\/$/, "") + "/predict";
  try {
    const reply = await fetch(where, {method: "POST", headers: {"Content-Type": "application/json"}, body});
    const text = await reply.text();
    if (!reply.ok) throw new Error(reply.status === 422 ? JSON.parse(text).detail : reply.status + " " +
      text);
    show(JSON.parse(text));
  } catch (error) {
    const words = document.createElement("p");
    words.className = "bad"; words.textContent = error.message; out.replaceChildren(words);
  }
});
"""


def page(model: Any, inputs: Inputs) -> str:
    """HTML about a model: its kernels, weights and columns, and a form for a row."""
    estimator, escape = inner(model), html.escape
    names = kernel_names(getattr(estimator, "kernels_", ()))
    fields = [
        {
            "id": f"f{k}",
            "name": name,
            "text": name in inputs.text,
            "single": width == 1 and inputs.kind == "records",
        }
        for k, (name, width) in enumerate(inputs.widths.items())
    ]
    about = {
        "kernels": names,
        "heads": [str(label) for label in getattr(estimator, "classes_", ())],
        "named": inputs.kind != "arrays",
        "contributions": has_contributions(model),
        "fields": fields,
    }
    weights = (
        _weights(estimator, names)
        if names and hasattr(estimator, "kernel_weights_")
        else "<p>It has no weights of kernels.</p>"
    )
    labels = []
    for field, (name, width) in zip(fields, inputs.widths.items(), strict=True):
        what = (
            "text"
            if field["text"]
            else "a number"
            if field["single"]
            else f"{width or 'several'} numbers, separated by commas"
        )
        labels.append(
            f'<label><span>{escape(name or "the row")}</span> <input name="{field["id"]}" '
            f'placeholder="{what}"></label>'
        )
    # "<" could end the script element.
    data = json.dumps(about).replace("<", "\\u003c")
    title = escape(type(estimator).__name__)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title><link '
        'rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<h2>Kernels</h2>\n{weights}\n<h2>A "
        "row</h2>\n"
        f'<form id="row">{"".join(labels)}<button>Predict</button></form>\n<div id="answer" '
        'aria-live="polite"></div>\n'
        '<script type="application/json" '
        f'id="about">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n'
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
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f'<td class="number">{w:.4g}</td>' for w in column)
        + "</tr>"
        for name, column in zip(names, weights.T, strict=True)
    ]
    return f"<table><tr><th>kernel</th>{head}</tr>{''.join(lines)}</table>"
