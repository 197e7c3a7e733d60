"""Callbacks of a fit: scikit-learn's protocol (`sklearn.callback`, there since 1.9) over the rounds of the
engine.

    setup             before the fit
    on_fit_task_begin, on_fit_task_end    of the fit as a whole (`context.task_name` is "fit") and of every
                                          round within it ("round")
    teardown          after the fit, also after one that failed

A hook hears of a round when its rows of the history are there, so that both hooks of a round are called one
after the other, with `metadata={"rows": rows}`: one dict per problem (class) that took part, as in
`history_`. How many rounds there will be is not known beforehand. A hook that returns True from
`on_fit_task_end` of a round ends the fit: the model is then the best point so far, with its certified gap. An
exception ends the fit and goes to the caller; processes of Ray are gone then, or free again in a session.

Where scikit-learn is older there is no protocol, and estimators have no `set_callbacks`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ...engine.run import Trained, train
from .storage import leave_results, prepare

if TYPE_CHECKING:

    class WithCallbacks:
        """What estimators with callbacks have."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Set callbacks, or none; returns the estimator."""

        def _init_callback_context(self, task_name: str, *, max_subtasks: int | None) -> Any:
            """The context of a whole fit."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Around a method: teardown at its end."""
else:
    try:
        from sklearn.callback import CallbackSupportMixin as WithCallbacks
        from sklearn.callback import with_callbacks
    except ImportError:

        class WithCallbacks:
            """An older scikit-learn has no callbacks."""


Fit = TypeVar("Fit", bound=Callable[..., Any])


def a_run(fit: Fit) -> Fit:
    """Around the `fit` of an estimator: its callbacks hear of it, and a run with a name leaves its
    results.
    """

    @wraps(fit)
    def run(self: Any, X: Any, y: Any = None, *more: Any, **named: Any) -> Any:
        prepare(self)
        if getattr(self, "_skl_callbacks", None):
            _with_callbacks(self, fit, X, y, *more, **named)
        else:
            fit(self, X, y, *more, **named)
        leave_results(self)
        return self

    return run  # type: ignore[return-value]


def _with_callbacks(model: Any, fit: Callable[..., Any], X: Any, y: Any, *more: Any, **named: Any) -> None:
    @with_callbacks
    def observed(model: Any) -> None:
        context = model._init_callback_context("fit", max_subtasks=None)
        weights = named.get("sample_weight", more[0] if more else None)
        metadata = None if weights is None else {"sample_weight": weights}
        context.call_on_fit_task_begin(estimator=model, X=X, y=y, metadata=metadata)
        fit(model, X, y, *more, **named)
        # At the end the estimator itself is the fitted one: nothing has to be put together for those who ask
        # for one.
        context.call_on_fit_task_end(
            estimator=model, X=X, y=y, metadata=metadata, reconstruction_attributes=dict
        )

    observed(model)


def run_of(
    model: Any, rows: dict, problem: Any, heads: Any, report: Any = None, engine: Any = None
) -> Trained:
    """`engine.train` for an estimator, whose callbacks hear of every round.

    engine : another one than the estimator's, or None.
    """
    elsewhere = getattr(model, "_train_elsewhere", None)
    if elsewhere is not None:  # a search has blocks of these rows already
        return elsewhere(rows, problem, heads)
    where = model.engine if engine is None else engine
    return train(rows, problem, heads, where, model.ray_params, report, on_round=listener(model))


def stop_was_asked(model: Any) -> bool:
    """Whether a callback has ended the fit that is under way."""
    return bool(getattr(getattr(model, "_callback_fit_ctx", None), "raymkl_stop", False))


def listener(model: Any) -> Callable[[list[dict]], bool] | None:
    """What the engine, or a model's loop of its own, calls with the rows of every round; whether it is to
    end. None for nobody.
    """
    context = getattr(model, "_callback_fit_ctx", None)
    if context is None:
        return None

    def listen(rows: list[dict]) -> bool:
        metadata = {"rows": rows}
        one = context.subcontext(task_name="round")
        one.call_on_fit_task_begin(estimator=model, metadata=metadata)
        if one.call_on_fit_task_end(estimator=model, metadata=metadata):
            context.raymkl_stop = True
        return stop_was_asked(model)

    return listen
