"""The page: checks what was given, puts the sections together, writes the file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...plot.drawing import need_matplotlib
from ..centred import unwrapped
from . import evidence, sections
from .facts import Facts
from .markup import escape
from .style import CSS


def report(model: Any, X: Any = None, y: Any = None, path: Any = None) -> str:
    """A report of a fitted model: one HTML file with pictures, which refers to nothing outside itself.

    It shows the weights of the kernels (per class or cluster as a heat map), the run of the optimisation with
    its certificate, support vectors, how alike the kernels are, what each contributes to single decisions,
    and the settings; with labels also the confusion matrix and ROC curves. It follows the reader's light or
    dark setting and fits narrow screens. Pictures are drawn by matplotlib, with the displays of
    `raymkl.plot`. The same model gives the same page, but for the time at its head, for which the environment
    variable SOURCE_DATE_EPOCH may stand.

    Parameters
    ----------
    model : fitted estimator
        Any, also one read with `raymkl.load`.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
        Examples to show the model on, in any container that `predict` takes. None takes the support vectors.
    y : array-like of shape (n,), or None
        Labels of X.
    path : str, path or None
        File to write.

    Returns
    -------
    html : str
        The page.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import raymkl
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = raymkl.MKLClassifier(kernels=raymkl.kernels.rbf([0.01, 0.1, 1.0]), engine="local").fit(X[::2],
    ...     y[::2])
    >>> page = raymkl.report(clf, X[1::2], y[1::2])
    >>> page.startswith("<!doctype html>"), "confusion matrix" in page
    (True, True)
    """
    from sklearn.utils.validation import check_is_fitted

    model, X = unwrapped(model, X)
    if not hasattr(model, "fit"):
        raise TypeError(f"model must be a fitted raymkl estimator, got {type(model).__name__}")
    if not hasattr(model, "kernel_weights_") and hasattr(model, "lower_bound_"):
        raise TypeError(
            f"{type(model).__name__} has no kernel weights, which a report is about; "
            "raymkl.plot.ClustersDisplay and ScalesDisplay show it"
        )
    check_is_fitted(model, "kernel_weights_")
    need_matplotlib()
    facts = Facts(model, X, _checked_labels(model, X, y))
    chapters = [
        ("summary", "Summary", sections.summary(facts)),
        ("weights", "Kernel weights", sections.weights(facts)),
    ]
    if facts.y is not None:
        chapters.append(("predictions", "Predictions on the examples given", evidence.predictions(facts)))
    chapters += [
        ("contributions", "What each kernel contributes", evidence.contributions(facts)),
        ("convergence", "Convergence", sections.convergence(facts)),
        ("support", facts.vectors.capitalize(), sections.support(facts)),
        ("alignment", "How alike the kernels are", evidence.alignment(facts)),
    ]
    if hasattr(model, "p") and getattr(model, "norm", None) is None:
        chapters.append(("bound", "Which norm the bound asks for", evidence.bound(facts)))
    chapters += [
        ("settings", "Settings", sections.settings(facts)),
        ("environment", "Environment", sections.environment(facts)),
    ]
    page = _page(facts, chapters)
    if path is not None:
        Path(path).write_text(page, encoding="utf-8")
    return page


def _checked_labels(model: Any, X: Any, y: Any) -> np.ndarray | None:
    if y is None:
        return None
    if X is None:
        raise ValueError("y was given without X; labels need the examples they belong to")
    from sklearn.utils import column_or_1d

    from ...data.views import n_rows

    y = column_or_1d(y)
    if len(y) != n_rows(X):
        raise ValueError(f"X and y have different lengths: X has {n_rows(X)} rows, y has {len(y)}")
    classes = getattr(model, "classes_", None)
    if classes is not None and not np.isin(y, classes).any():
        raise ValueError(
            f"y holds none of the classes of the model: {list(classes[:10])}; got "
            f"{np.unique(y)[:10].tolist()}"
        )
    return y


def _moment() -> datetime:
    """Now, or the time that SOURCE_DATE_EPOCH names, for files that are to be equal byte by byte."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(fixed), UTC) if fixed.isdigit() else datetime.now().astimezone()


def _page(facts: Facts, chapters: list[tuple[str, str, str]]) -> str:
    title = f"{facts.kind}: {facts.n_kernels:,} kernels, {facts.n_train:,} rows"
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for name, heading, _ in chapters)
    body = "".join(
        f'<section id="{name}"><h2>{escape(heading)}</h2>{inside}</section>'
        for name, heading, inside in chapters
    )
    when = _moment().strftime("%Y-%m-%d %H:%M %Z")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="raymkl '
        f'{escape(__version__)}">\n<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n'
        f"<body>\n<main>\n<header><h1>{escape(title)}</h1>"
        f'<p class="soft">Report of raymkl {escape(__version__)}, {escape(when)}</p></header>\n'
        f"<nav>{links}</nav>\n{body}\n</main>\n</body>\n</html>\n"
    )
