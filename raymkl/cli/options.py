"""What the commands share: options, lists of numbers, errors in one line, and a Ray session that ends with
the command.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

CHECKPOINT = "raymkl.checkpoint"
VERBOSE = "raymkl.verbose"
INTERRUPTED = 130


class Mistake(click.ClickException):
    """Something the user can put right: one line, exit code 2."""

    exit_code = 2


class Failure(click.ClickException):
    """Something that went wrong on the way: one line, exit code 1."""

    exit_code = 1


class Commands(click.Group):
    """A group whose commands end with one clear line instead of a traceback; `--verbose` shows both."""

    def main(self, args: Any = None, *rest: Any, **extra: Any) -> Any:
        try:
            return super().main(args, *rest, **extra)
        except SystemExit as leaving:
            if args is None and leaving.code == INTERRUPTED and "ray" in sys.modules:
                # The session is closed by now, but Ray's own exit handlers may crash after an interrupt,
                # which would hide the exit code.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(INTERRUPTED)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.filterwarnings(
                "ignore", "the columns of .* differ by orders of magnitude"
            )  # said with names by `warn_if_unscaled`
            warnings.showwarning = _one_line
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
                raise
            except KeyboardInterrupt:
                click.echo(f"\nInterrupted. {_about_checkpoint(ctx.meta.get(CHECKPOINT))}", err=True)
                ctx.exit(INTERRUPTED)
            except Exception as error:
                if ctx.meta.get(VERBOSE):
                    traceback.print_exc()
                kind = (
                    Mistake
                    if isinstance(error, ValueError | TypeError | FileNotFoundError | PermissionError)
                    else Failure
                )
                raise kind(_message(error)) from None


def _message(error: Exception) -> str:
    """One line of an error."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError | TypeError) and text else f"{type(error).__name__}: {text}"


def _one_line(
    message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    click.echo(f"Warning: {' '.join(str(message).split())}", err=True)


def _about_checkpoint(directory: str | None) -> str:
    if directory is None:
        return "Nothing was written; --checkpoint DIR keeps the state of long runs."
    if "://" in directory or (Path(directory).is_dir() and any(Path(directory).iterdir())):
        return f"The checkpoint is in {directory}; the same command continues from it."
    return f"No checkpoint had been written to {directory} yet."


# -- options ---------------------------------------------------------------------------------------


class NumberList(click.ParamType):
    """Numbers separated by commas, such as 0.1,1,10; inf is a number."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[float]:
        if isinstance(value, list):
            return value
        try:
            return [float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers separated by commas", param, ctx)


def stacked(*options: Callable) -> Callable:
    """Several options as one decorator, in the order of `--help`."""

    def decorate(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


FORMATS = ["csv", "tsv", "parquet", "arrow", "npz", "libsvm"]
format_option = click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of the data, where the file's ending does not say it.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
data_options = stacked(
    click.option(
        "--target", metavar="COLUMN", help="Column of labels.  [default: y for .npz and LIBSVM files]"
    ),
    click.option(
        "--kernels",
        default="rbf:auto;linear",
        show_default=True,
        help="Short form (name:values@view; ...) or a YAML file. Names: rbf, laplacian, chi2, poly, linear, "
        "intersection, spectrum, wd.",
    ),
    click.option(
        "--standardize",
        is_flag=True,
        help="Shift and scale every column to mean 0 and deviation 1; kept with the model.",
    ),
    format_option,
)
fit_options = stacked(
    click.option(
        "--loss",
        type=click.Choice(["hinge", "squared_hinge", "logistic", "squared"]),
        default="hinge",
        show_default=True,
        help="What an error costs; logistic gives probabilities.",
    ),
    click.option("--tol", type=float, default=1e-3, show_default=True, help="Relative duality gap to reach."),
    click.option(
        "--normalize",
        help="Of the kernels: none, multiplicative, spherical, trace or tail.  [default: multiplicative]",
    ),
    click.option(
        "--engine",
        type=click.Choice(["auto", "local", "ray"]),
        default="auto",
        show_default=True,
        help="Where to train.",
    ),
    click.option(
        "--shards",
        type=click.IntRange(min=1),
        help="Shards to split the rows into.  [default: as many as CPUs]",
    ),
    click.option(
        "--address",
        help="Ray cluster: auto, head:6379, or local for a new one on this machine; implies --engine ray.",
    ),
    click.option(
        "--checkpoint", metavar="DIR", help="Directory (or URI) for the state of a run, to continue from."
    ),
    click.option("--verbose", is_flag=True, help="Progress, and tracebacks of errors."),
)


def remember(checkpoint: str | None = None, verbose: bool = False) -> None:
    """Tell the group what an interrupted or failed command should say."""
    meta = click.get_current_context().meta
    meta[CHECKPOINT], meta[VERBOSE] = checkpoint, verbose


def check_writable(path: str | None) -> None:
    """Raise Mistake when a file could not be written there: better now than after the training."""
    if path in (None, "-"):
        return
    parent = Path(path).parent
    if not parent.is_dir():
        raise Mistake(f"cannot write {path}: the directory {parent} does not exist")
    if Path(path).is_dir():
        raise Mistake(f"cannot write {path}: it is a directory")
    if not os.access(parent, os.W_OK):
        raise Mistake(f"cannot write {path}: no permission to write in {parent}")


def warn_if_unscaled(kernels: list, X: Any, preparation: Any) -> None:
    """Say, with the names of columns, that their scales differ too much for the kernels that depend on
    them.
    """
    from ..kernels.defaults import SCALE_DEPENDENT, scales_apart

    statistics = [kernel.statistic() for kernel in kernels]
    for view in dict.fromkeys(
        statistic.view for statistic in statistics if isinstance(statistic, SCALE_DEPENDENT)
    ):
        apart = scales_apart(X if view is None else X[view])
        if apart is not None:
            names, (wide, narrow, ratio) = preparation.columns_of(view), apart
            click.echo(
                f"Warning: columns differ by orders of magnitude ({names[wide]} is {ratio:,.0f} times as "
                f"wide as {names[narrow]}), "
                "so kernels hardly see the narrow ones; add --standardize",
                err=True,
            )


# -- Ray -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ray_session(engine: str, address: str | None = None, num_cpus: int | None = None) -> Iterator[None]:
    """Connect to Ray, or start it on this machine, when `engine` is "ray"; what was started ends with the
    block.

    Without an address (or RAY_ADDRESS) that is the cluster that runs on this machine, if there is one; with
    `num_cpus` always a new one.
    """
    if engine != "ray":
        yield
        return
    import ray

    if ray.is_initialized():
        yield
        return
    elsewhere = address or os.environ.get("RAY_ADDRESS")
    options: dict = {"log_to_driver": False, "logging_level": "ERROR"}
    if elsewhere:
        options["address"] = elsewhere
    elif num_cpus is not None:
        options.update(address="local", num_cpus=num_cpus)
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {elsewhere}" if elsewhere else "Ray on this machine"
        raise Failure(f"cannot use {where}: {' '.join(str(error).split())[:300]}") from None
    try:
        yield
    finally:
        ray.shutdown()
