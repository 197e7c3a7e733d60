"""Sections of the report that need examples: alignment and the bound, contributions, how good the predictions
are.

Without X the support vectors stand in, where the model holds their features.
"""

from __future__ import annotations

import numpy as np

from ... import diagnostics
from ...data.rows import take
from ...data.views import n_rows
from ...models.base import rows_and_gates
from .facts import Facts
from .markup import code, escape, figure, folded, number, pair, table
from .pictures import alignment_map, bars_of, cloud, curves, map_of

MOST_ALIGNED = 36
ALIGNMENT_ROWS = 500
# All kernels are compared up to this many; of more, this many evenly spaced ones.
MOST_COMPARED = 120
EXAMPLES = 12
MOST_EXAMPLES = 400
# Kernel values that a section may compute: a few seconds.
AFFORDABLE = 1e8
MOST_CURVES = 7
MOST_CLASSES = 30


# -- alignment -------------------------------------------------------------------------------------


def alignment(facts: Facts) -> str:
    if facts.over_matrices and not _square(facts):
        return (
            '<p class="soft">The model was trained on ready-made matrices, which it does not hold. Give '
            "square ones, (n, n, M), as X to "
            "see their alignment.</p>"
        )
    if facts.X is None and facts.n_support < 2:
        return (
            f'<p class="soft">The model holds too few {facts.vectors}; give X to see the alignment of its '
            "kernels.</p>"
        )
    compared = facts.spaced(MOST_COMPARED)
    found = diagnostics.alignment(facts.model, facts.X, facts.y, only=compared, max_rows=ALIGNMENT_ROWS)
    matrix, with_labels = (found, None) if facts.y is None else found
    repeated = diagnostics.redundancy_of_alignment(matrix)
    where = f"the {facts.vectors}" if facts.X is None else "X"
    names = [facts.names[m] for m in compared]
    parts = [
        f"<p>Centred alignment says how alike two kernels are on {where}: 1 is the same up to scale, 0 "
        "nothing in common. "
        f"{number(len(compared))} "
        f"{f'of the {number(facts.n_kernels)} ' if len(compared) < facts.n_kernels else ''}kernels count as "
        f"<b>{repeated.effective_number:.1f}</b> different ones.</p>"
    ]
    shown = np.unique(np.linspace(0, len(compared) - 1, min(len(compared), MOST_ALIGNED)).astype(int))
    less = (
        f" ({len(shown)} of {number(facts.n_kernels)} kernels, evenly spaced in the list, without those "
        "of negligible weight)"
    )
    caption = "Alignment of each pair of kernels" + (less if len(shown) < facts.n_kernels else "")
    parts.append(
        figure(
            caption,
            alignment_map(
                matrix[np.ix_(shown, shown)], [names[k] for k in shown], "alignment of each pair of kernels"
            ),
        )
    )
    if with_labels is not None:
        order = shown[np.argsort(-with_labels[shown], kind="stable")]
        ranked = [names[k] for k in order]
        parts.append(
            figure(
                "Alignment with the labels, largest first",
                bars_of(ranked, [("", with_labels[order])], "alignment of kernels with the labels"),
            )
        )
    parts.append(_redundancy(repeated, names))
    return "".join(parts)


def _square(facts: Facts) -> bool:
    if facts.X is None:
        return False
    if isinstance(facts.model.kernels, str):
        return np.ndim(facts.X) >= 2 and np.shape(facts.X)[0] == np.shape(facts.X)[1]
    return n_rows(facts.X) == facts.n_train


def _redundancy(found: diagnostics.Redundancy, names: list[str]) -> str:
    text = "No two of them are nearly equal (alignment of 0.99 or more)."
    if found.pairs:
        more = f", the closest 10 of {number(len(found.pairs))}" if len(found.pairs) > 10 else ""
        text = f"Nearly equal pairs (alignment of 0.99 or more{more}); one of each could be left out:"
    rows = [[code(names[i]), code(names[j]), value] for i, j, value in found.pairs[:10]]
    pairs = table(["kernel", "kernel", "alignment"], rows) if rows else ""
    order = np.argsort(-found.explained, kind="stable")[:40]
    shares = table(
        ["kernel", "explained by the others"], [[code(names[k]), float(found.explained[k])] for k in order]
    )
    return f"<p>{text}</p>{pairs}{folded('How much of each kernel the others explain', shares)}"


def bound(facts: Facts) -> str:
    if facts.over_matrices or facts.n_support**2 * facts.n_kernels > AFFORDABLE:
        return (
            '<p class="soft">Not computed here for a model over ready-made matrices or of this size; '
            "<code>raymkl.diagnostics.bound_factor</code> does it.</p>"
        )
    found = diagnostics.bound_factor(facts.model)
    factors, best, near = (
        np.asarray(found.factor).reshape(-1, len(found.p)),
        np.atleast_1d(found.best_p).ravel(),
        np.asarray(found.near_best).reshape(-1, 2),
    )
    middle = np.median(factors, axis=0)
    which = int(np.argsort(best)[len(best) // 2])
    over = "" if len(best) == 1 else f" (median of {len(best)})"
    inside = found.p <= 4.0
    return (
        "<p>The part of the generalisation bound of lp-norm MKL that depends on p, with this model in place "
        "of the best one. It is "
        f"smallest at p = <b>{number(best[which])}</b>{over} and within 1 % of that from "
        f"{number(near[which, 0])} to "
        f"{number(near[which, 1])}; the model was trained with p = {number(facts.p)}.</p>"
        + figure(
            f"Bound factor{over}",
            curves([("factor", found.p[inside], middle[inside])], ("p", "factor"), "bound factor against p"),
        )
    )


# -- contributions ---------------------------------------------------------------------------------


def contributions(facts: Facts) -> str:
    model, expansion = facts.model, facts.model.expansion_
    if facts.X is None and facts.over_matrices:
        return '<p class="soft">Give X to see what each kernel contributes to the decisions about it.</p>'
    if facts.X is None:
        rows, gates = expansion.support_rows, expansion.support_gates
    else:
        rows, gates = rows_and_gates(model, facts.X)
    n = next(iter(rows.values())).shape[0]
    if n == 0:
        return f'<p class="soft">The model holds no {facts.vectors}.</p>'
    affordable = int(AFFORDABLE / max(facts.n_support * facts.n_kernels, 1))
    chosen = np.unique(
        np.linspace(0, n - 1, min(n, max(EXAMPLES, min(affordable, MOST_EXAMPLES)))).astype(int)
    )
    parts, values = facts.contributions(take(rows, chosen), None if gates is None else gates[chosen])
    mean = np.abs(parts).mean(axis=(0, 1))
    order = np.argsort(-mean, kind="stable")[:30]
    where = "X" if facts.X is not None else f"the {facts.vectors}"
    sample = "rows of X" if facts.X is not None else facts.vectors
    result = figure(
        f"Mean size of each kernel's part in the decision values, over {number(len(chosen))} {sample}",
        bars_of([facts.names[m] for m in order], [("", mean[order])], "mean contributions of kernels"),
    )
    some = np.unique(np.linspace(0, len(chosen) - 1, min(len(chosen), EXAMPLES)).astype(int))
    head = values[some].argmax(axis=1) if values.shape[1] > 1 else np.zeros(len(some), int)
    names = [_example_name(facts, int(chosen[k]), values[k], where) for k in some]
    columns = np.sort(order)
    meaning = "for the class that is predicted" if values.shape[1] > 1 else _direction(facts)
    return result + figure(
        f"Part of each kernel in single decisions (blue speaks {meaning}, orange against). The parts of all "
        "kernels and the intercept add "
        "up to the decision value f.",
        map_of(
            parts[some, head][:, columns],
            names,
            [facts.names[m] for m in columns],
            "contributions of kernels to single decisions",
            longest=44,
        ),
    )


def _direction(facts: Facts) -> str:
    return f"for {escape(facts.classes[1])}" if len(facts.classes) == 2 else "for a larger value"


def _example_name(facts: Facts, row: int, values: np.ndarray, where: str) -> str:
    h = int(values.argmax())
    said = f"f = {values[h]:.2f}"
    if facts.classes:
        label = facts.classes[h] if len(values) > 1 else facts.classes[int(values[0] > 0)]
        said = f"{label}, {said}"
    kind = "row" if where == "X" else facts.vector
    if facts.y is not None and facts.classes:
        said += f" (is {facts.y[row]})"
    return f"{kind} {row}: {said}"


# -- predictions -----------------------------------------------------------------------------------


def predictions(facts: Facts) -> str:
    predicted = np.asarray(facts.model.predict(facts.X))
    truth = np.asarray(facts.y)
    if facts.regression:
        return _regression(truth.astype(np.float64), predicted)
    from sklearn.metrics import confusion_matrix

    labels = np.unique(np.concatenate([truth, predicted]))
    matrix = confusion_matrix(truth, predicted, labels=labels)
    kept = np.arange(len(labels))
    if len(labels) > MOST_CLASSES:
        wrong = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * np.diagonal(matrix)
        kept = np.sort(np.argsort(-wrong, kind="stable")[:MOST_CLASSES])
    inner = matrix[np.ix_(kept, kept)]
    rate = inner / np.maximum(matrix.sum(axis=1)[kept, None], 1)
    names = [str(labels[k]) for k in kept]
    hits, there, said = np.diagonal(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    numbers = [
        ["accuracy", float(np.mean(predicted == truth))],
        ["balanced accuracy", float(np.mean(hits[there > 0] / there[there > 0]))],
        ["F1, mean over classes", float(np.mean(2.0 * hits / np.maximum(there + said, 1)))],
        ["examples", len(truth)],
    ]
    count_names = [
        f"{name} ({number(total)})" for name, total in zip(names, matrix.sum(axis=1)[kept], strict=True)
    ]
    what = f"; the {len(kept)} classes with most mistakes" if len(kept) < len(labels) else ""
    confusion = figure(
        "Share of each class (rows, with their number of examples) that is predicted as each class "
        f"(columns){what}",
        map_of(rate, count_names, names, "confusion matrix", largest=1.0),
    )
    counts = ""
    if len(kept) <= MOST_CLASSES:
        rows = [[name, *map(int, line)] for name, line in zip(names, inner, strict=True)]
        counts = folded("Confusion matrix as counts", table(["is / predicted", *names], rows))
    roc = _roc(facts, truth)
    drawn = pair(confusion, roc) if len(kept) <= 12 else confusion + roc
    return table(["measure", "value"], numbers) + drawn + counts


def _roc(facts: Facts, truth: np.ndarray) -> str:
    from sklearn.metrics import auc, roc_curve

    values = facts.decision
    labels = facts.classes or [-1, 1]
    problems = [(str(labels[-1]), truth == labels[-1], values[:, 0])] if values.shape[1] == 1 else []
    if values.shape[1] == len(labels):
        problems = [(str(label), truth == label, values[:, h]) for h, label in enumerate(labels)]
    found = []
    for name, positive, scores in problems:
        if 0 < positive.sum() < len(positive):
            false_rate, true_rate, _ = roc_curve(positive, scores)
            found.append((name, false_rate, true_rate, auc(false_rate, true_rate)))
    if not found:
        return '<p class="soft">No ROC curve: the labels given hold one class only.</p>'
    found.sort(key=lambda entry: entry[3])
    lines = [(f"{name}, AUC {area:.4f}", x, y) for name, x, y, area in found[:MOST_CURVES]]
    if len(found) > 1:
        grid = np.linspace(0.0, 1.0, 201)
        mean = np.mean([np.interp(grid, x, y) for _, x, y, _ in found], axis=0)
        lines.insert(
            0, (f"mean of {len(found)} classes, AUC {np.mean([entry[3] for entry in found]):.4f}", grid, mean)
        )
    which = (
        f" of the {len(lines) - 1} classes with the smallest area, and their mean over all"
        if len(found) > MOST_CURVES
        else ""
    )
    title = (
        f"ROC curve{which}"
        if len(lines) > 1
        else f"ROC curve of {escape(found[0][0])}, area {found[0][3]:.4f}"
    )
    return figure(
        title,
        curves(lines, ("false positive rate", "true positive rate"), "ROC curves", unit=True),
    )


def _regression(truth: np.ndarray, predicted: np.ndarray) -> str:
    rest = truth - predicted
    spread = float(np.sum((truth - truth.mean()) ** 2))
    numbers = [
        ["R squared", 1.0 - float(np.sum(rest**2)) / spread if spread > 0 else float("nan")],
        ["root mean squared error", float(np.sqrt(np.mean(rest**2)))],
        ["mean absolute error", float(np.mean(np.abs(rest)))],
        ["examples", len(truth)],
    ]
    return table(["measure", "value"], numbers) + figure(
        "Predicted against true values",
        cloud(truth, predicted, ("true", "predicted"), "predicted against true values"),
    )
