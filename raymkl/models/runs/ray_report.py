"""A callback that reports the rounds of a fit to Ray Tune or Ray Train."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from ...io import save

MODEL = "model.raymkl"


class RayReport:
    """Reports a fit from inside a function of Ray Tune or Ray Train: metrics while it runs, metrics and the
    model at its end.

    A report of a round has the numbers of its rows of the history: those of the problem (class) with the
    largest gap, where there are several. The last report has `gap` and `converged` of the model too, and a
    checkpoint with `model.raymkl`, which `raymkl.load` reads. In a Train function with several workers, all
    of them must fit the same way, since Ray waits for a report of each.

    Parameters
    ----------
    every_s : float, default=0
        Least seconds between two reports of rounds; 0 reports every one.
    checkpoint : bool, default=True
        Whether the last report has the model.

    Examples
    --------
    >>> from raymkl import MKLClassifier, RayReport, kernels
    >>> def trial(config):
    ...     model = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), C=config["C"], engine="local")
    ...     model.set_callbacks(RayReport()).fit(X, y)
    >>> found = tune.Tuner(trial, param_space={"C": tune.grid_search([0.1, 1.0])}).fit()    # doctest: +SKIP
    """

    def __init__(self, every_s: float = 0.0, checkpoint: bool = True):
        if not (isinstance(every_s, Real) and not isinstance(every_s, bool) and float(every_s) >= 0):
            raise ValueError(f"every_s must be a number of seconds >= 0, got {every_s!r}")
        if not isinstance(checkpoint, bool | np.bool_):
            raise ValueError(f"checkpoint must be True or False, got {checkpoint!r}")
        self.every_s, self.checkpoint = float(every_s), bool(checkpoint)
        self.reported_at = -np.inf
        self.last: dict[str, Any] = {}
        self.place: Any = None  # what reports, and the class of its checkpoints

    def setup(self, estimator: Any, context: Any) -> None:
        """Before a fit: raises RuntimeError where there is nobody to report to.

        Parameters
        ----------
        estimator : estimator
            What is fitted.
        context : CallbackContext
            Where in the fit, as scikit-learn says it.
        """
        self.place, self.reported_at, self.last = _place(), -np.inf, {}

    def teardown(self, estimator: Any, context: Any) -> None:
        """After a fit, also one that failed.

        Parameters
        ----------
        estimator : estimator
            What is fitted.
        context : CallbackContext
            Where in the fit, as scikit-learn says it.
        """
        self.place = None

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing: rounds are reported at their end.

        Parameters
        ----------
        estimator : estimator
            What is fitted.
        context : CallbackContext
            Where in the fit, as scikit-learn says it.
        """

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None) -> None:
        """Report a round; or the whole fit, with the model.

        Parameters
        ----------
        estimator : estimator
            What is fitted.
        context : CallbackContext
            Where in the fit, as scikit-learn says it.
        metadata : dict
            What the round tells.
        """
        rows = None if metadata is None else metadata.get("rows")
        report, kind = self.place
        if rows:
            self.last = metrics_of(rows)
            if time.monotonic() - self.reported_at >= self.every_s:
                self.reported_at = time.monotonic()
                report(dict(self.last))
            return
        found = {**self.last, "converged": bool(getattr(estimator, "converged_", True))}
        if hasattr(estimator, "duality_gap_"):
            found["gap"] = float(np.max(estimator.duality_gap_))
        if not self.checkpoint:
            report(found)
            return
        with tempfile.TemporaryDirectory() as folder:
            save(estimator, f"{folder}/{MODEL}")
            report(found, checkpoint=kind.from_directory(folder))


def metrics_of(rows: list[dict]) -> dict[str, Any]:
    """Numbers of the rows of a round: those of the row with the largest gap, where there are several."""
    worst = max(rows, key=lambda row: row.get("gap", 0.0))
    numbers = {
        name: value
        for name, value in worst.items()
        if isinstance(value, Real) and not isinstance(value, bool)
    }
    numbers.pop("head", None)
    return {**numbers, "problems": len(rows)}


def _place() -> tuple[Callable[..., None], Any]:
    """What reports, and the class of its checkpoints: of the Tune function or of the Train function that runs
    this.
    """
    from ray import train, tune

    try:
        train.get_context()
        return train.report, train.Checkpoint
    except (RuntimeError, DeprecationWarning):  # the latter inside a function of Tune
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nobody is to be asked for outside, which is what is asked here
        inside = tune.get_context().get_trial_id() is not None
    if not inside:
        where = "a function of ray.tune.Tuner, or of a trainer of Ray Train"
        raise RuntimeError(f"RayReport reports from inside {where}; there is none around this fit")
    return tune.report, tune.Checkpoint
