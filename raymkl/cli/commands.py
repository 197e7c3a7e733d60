"""The command line: `raymkl demo | train | predict | search | info | report`.

Exit codes: 0; 2 for a mistake in what was asked or in the data (one line that says which); 1 for a failure;
130 when interrupted.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from .jobs import Job, accuracy_of, estimator_in, load_model, rows_for
from .options import (
    Commands,
    NumberList,
    check_writable,
    data_options,
    fit_options,
    format_option,
    json_option,
    ray_session,
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="raymkl")
def main() -> None:
    """Multiple kernel learning, exact and certified, from a laptop to a Ray cluster.

    Begin with: raymkl demo
    """


@main.command(epilog="Example: raymkl demo --out shown")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="raymkl-demo",
    show_default=True,
    help="Directory for model and report.",
)
@click.option(
    "--engine", type=click.Choice(["ray", "local"]), default="ray", show_default=True, help="Where to train."
)
@click.option(
    "--p",
    "p",
    type=float,
    default=4 / 3,
    help="Block norm over kernels: 1 sparse, 2 plain sum.  [default: 4/3]",
)
def demo(out: str, engine: str, p: float) -> None:
    """Handwritten digits from five views: trains through Ray, compares, writes a model and a report.

    No network needed.
    """
    from .demo import run_demo

    with ray_session(engine, num_cpus=2):
        run_demo(Path(out), engine, p, click.echo)
    click.echo(f"\nwritten: {out}/model.raymkl and {out}/report.html (open it in a browser)")
    click.echo(f"next:    raymkl info {out}/model.raymkl")
    click.echo("         raymkl train YOUR.csv --target LABEL --standardize --out my.raymkl")


@main.command(
    epilog="Example: raymkl train train.csv --target label --kernels 'rbf:auto;poly:2;linear' --standardize "
    "--out m.raymkl"
)
@click.argument("data", type=click.Path())
@data_options
@click.option("--C", "C", type=float, default=1.0, show_default=True, help="Weight of the loss.")
@click.option(
    "--p",
    "p",
    type=float,
    default=4 / 3,
    help="Block norm: 1 selects few kernels, 2 is the plain sum.  [default: 4/3]",
)
@fit_options
@click.option(
    "--out", type=click.Path(), default="model.raymkl", show_default=True, help="File for the model."
)
@json_option
def train(data: str, C: float, p: float, out: str, as_json: bool, **options: Any) -> None:
    """Learn a classifier and the weights of its kernels from DATA (CSV, Parquet, Arrow, .npz or LIBSVM).

    Rows of Parquet and Arrow files are streamed (--standardize and rbf:auto too): every shard reads its own,
    no process holds all of them but the only shard of a local run. Other formats are read into memory first.
    """
    job = Job(data, out, options, stream=True)
    say = (lambda text: None) if as_json else click.echo
    say(job.about_data())
    started = time.perf_counter()
    with job.ray():
        model = job.estimator(C=C, p=p).fit(job.X, job.y)
    seconds = time.perf_counter() - started
    told = job.save(model)
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    _say_model(told, seconds)
    click.echo(
        f"next: raymkl predict {out} NEW_DATA --out predictions.csv   or   raymkl report {out} --out "
        "report.html"
    )


@main.command(
    epilog="Example: raymkl search train.csv --target label --standardize --C 0.1,1,10 --p 1,1.33,2 --cv 5 "
    "--out best.raymkl"
)
@click.argument("data", type=click.Path())
@data_options
@click.option(
    "--C", "C", type=NumberList(), default="0.1,1,10", show_default=True, help="Values of C to try."
)
@click.option(
    "--p", "p", type=NumberList(), default="1,1.33,2", show_default=True, help="Values of p to try."
)
@click.option(
    "--cv", type=click.IntRange(min=2), default=5, show_default=True, help="Folds of the cross-validation."
)
@click.option(
    "--scoring",
    help="A scikit-learn scorer, such as accuracy, balanced_accuracy or roc_auc.  [default: accuracy]",
)
@fit_options
@click.option(
    "--out", type=click.Path(), default="best.raymkl", show_default=True, help="File for the best model."
)
@json_option
def search(
    data: str, C: list, p: list, cv: int, scoring: str | None, out: str, as_json: bool, **options: Any
) -> None:
    """Choose C and p by cross-validation, all folds and settings over one set of kernels, and train the best
    on all rows.

    All rows are read into memory, whatever the format.
    """
    from ..search import MKLSearchCV

    job = Job(data, out, options, stream=False)
    if not as_json:
        click.echo(job.about_data())
        click.echo(f"{len(C) * len(p)} settings x {cv} folds")
    started = time.perf_counter()
    with job.ray():
        found = MKLSearchCV(job.estimator(), {"C": C, "p": p}, cv=cv, scoring=scoring, refit=True).fit(
            job.X, job.y
        )
    seconds = time.perf_counter() - started
    told = job.save(found.best_estimator_)
    results = _results(found.cv_results_)
    if as_json:
        summary = {
            "best_params": found.best_params_,
            "best_score": float(found.best_score_),
            "results": results,
            "model": told,
        }
        from .summaries import plain

        click.echo(json.dumps(plain(summary), indent=2))
        return
    click.echo(f"{'C':>10} {'p':>8} {'score':>8} {'+-':>7}")
    for row in results:
        mark = "  <- best" if row is results[0] else ""
        click.echo(f"{row['C']:>10g} {row['p']:>8.4g} {row['mean']:>8.4f} {row['std']:>7.4f}{mark}")
    _say_model(told, seconds)


@main.command(epilog="Example: raymkl predict m.raymkl test.parquet --out predictions.csv")
@click.argument("model", type=click.Path())
@click.argument("data", type=click.Path())
@click.option(
    "--out",
    type=click.Path(),
    default="-",
    show_default=True,
    help="CSV, Parquet or Arrow file by its ending; - prints CSV.",
)
@format_option
@json_option
def predict(model: str, data: str, out: str, format: str | None, as_json: bool) -> None:
    """Label the rows of DATA with a trained MODEL: a column `prediction`, decision values, and probabilities
    if it has any.
    """
    from ..data.tables import open_columns, write_columns
    from .summaries import plain

    check_writable(out)
    loaded = load_model(model)
    columns = open_columns(data, format)
    X = rows_for(loaded, columns)
    fitted = estimator_in(loaded)
    predicted = fitted.predict(X)
    written = {"prediction": predicted}
    if hasattr(fitted, "decision_function"):
        values = fitted.decision_function(X)
        if values.ndim == 1:
            written["decision"] = values
        else:
            written.update({f"decision_{label}": values[:, k] for k, label in enumerate(fitted.classes_)})
    if hasattr(fitted, "predict_proba"):
        written.update(
            {
                f"probability_{label}": column
                for label, column in zip(fitted.classes_, fitted.predict_proba(X).T, strict=True)
            }
        )
    write_columns(written, out)
    accuracy = accuracy_of(loaded, columns, predicted)
    if as_json and out != "-":
        click.echo(json.dumps(plain({"rows": len(predicted), "out": out, "accuracy": accuracy})))
    elif out != "-":
        click.echo(f"{len(predicted)} predictions written to {out}")
    if accuracy is not None and not as_json:
        click.echo(f"accuracy {accuracy:.4f} against the labels in {data}", err=out == "-")


@main.command(epilog="Example: raymkl info m.raymkl --json")
@click.argument("model", type=click.Path())
@json_option
def info(model: str, as_json: bool) -> None:
    """Kernels, weights, duality gap and settings of a MODEL file."""
    from .summaries import describe, lines_of

    told = describe(load_model(model), model)
    click.echo(json.dumps(told, indent=2) if as_json else "\n".join(lines_of(told)))


@main.command(epilog="Example: raymkl report m.raymkl --data test.csv --target label --out report.html")
@click.argument("model", type=click.Path())
@click.option(
    "--data", type=click.Path(), help="Data to explain predictions of; with labels, confusion and ROC too."
)
@click.option("--target", metavar="COLUMN", help="Column of labels in the data.  [default: the model's]")
@format_option
@click.option("--out", type=click.Path(), default="report.html", show_default=True, help="HTML file.")
def report(model: str, data: str | None, target: str | None, format: str | None, out: str) -> None:
    """One HTML file with pictures of a MODEL: weights, convergence, support vectors, and how it does on
    data.
    """
    from .. import report as write_report
    from ..data.tables import read_columns

    check_writable(out)
    loaded = load_model(model)
    X = y = None
    if data is not None:
        columns = read_columns(data, format)
        X = rows_for(loaded, columns)
        name = target or getattr(getattr(loaded, "preparation", None), "target", None) or columns.target
        y = columns.labels(name) if target is not None or name in columns.names else None
    write_report(estimator_in(loaded), X, y, path=out)
    click.echo(f"report written to {out}")


def _say_model(told: dict, seconds: float) -> None:
    from .summaries import lines_of

    click.echo(f"trained in {seconds:.1f} s")
    click.echo("\n".join(lines_of(told)))


def _results(cv_results: dict) -> list[dict]:
    """Settings and scores, best first."""
    rows = [
        {**params, "mean": float(mean), "std": float(std)}
        for params, mean, std in zip(
            cv_results["params"], cv_results["mean_test_score"], cv_results["std_test_score"], strict=True
        )
    ]
    order = sorted(range(len(rows)), key=lambda i: (int(cv_results["rank_test_score"][i]), i))
    return [rows[i] for i in order]
