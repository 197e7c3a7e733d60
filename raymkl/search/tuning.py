"""Ray Tune over heads: trials are light, the work is done by one service that they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.base import clone, is_classifier

from ..engine.params import RayParams
from ..engine.session import session_and_rows
from ..metrics import scorer as scorer_of
from ..models.sources import loaded
from .folds import FoldByFold, Folds, are_masks, splits_of
from .settings import learns_by_heads
from .tune_trials import Reservation, ServiceActor, folds_trial, heads_trial
from .worker import IDLE_S

# A trial only waits for reports; so many CPUs keep the number of its processes reasonable.
CPUS_PER_TRIAL = 0.25


def tune(
    estimator: Any,
    X: Any,
    y: Any,
    param_space: dict,
    cv: Any = 5,
    tune_config: Any = None,
    run_config: Any = None,
    *,
    scoring: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
) -> Any:
    """Search with Ray Tune over one set of kernel blocks.

    Rows are placed once, and one service solves all trials over the same kernel values: a trial costs its
    optimisation steps alone. Each trial reports `score` (mean over the folds so far), `score_std`, `gap` (the
    worst of its folds and classes) and `training_iteration` after every round; a scheduler such as ASHA may
    stop it, which frees its memory at once.

    A trial's checkpoint holds `model.raymkl`, the model with its setting fitted to all rows, which
    `raymkl.load` reads (`model.joblib` where the estimator is not one of ours), and where the trial was, so
    that trials can be paused, resumed and restored. A trial is checkpointed at its end, and as `run_config`
    says; one that ends early has the model after as many rounds.

    Parameters
    ----------
    estimator : estimator
        Such as `MKLClassifier`. Its `engine` and `ray_params` say where the shared kernel blocks live: with
        "ray" in shard actors, otherwise in one process that serves all trials.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
        Rows, as for `fit`.
    y : array-like of shape (n,), or str
        Targets, as for `fit`.
    param_space : dict
        Parameters of the estimator with Tune's distributions, such as `{"C": tune.loguniform(0.01, 100)}`.
    cv, scoring, groups, sample_weight : object
        As for `MKLSearchCV`; a trial has one score.
    tune_config : ray.tune.TuneConfig or None
        Trials, scheduler, search algorithm. None maximises the score, and uses actors again for other trials.
    run_config : ray.tune.RunConfig or None
        Name, storage and checkpoints of the search.

    Returns
    -------
    found : ray.tune.ResultGrid
        `get_best_result()` has setting, score and checkpoint of the best trial.

    Examples
    --------
    >>> from ray import tune  # doctest: +SKIP
    >>> from raymkl import search  # doctest: +SKIP
    >>> space = {"C": tune.loguniform(0.01, 100), "p": tune.uniform(1, 2)}  # doctest: +SKIP
    >>> found = search.tune(model, X, y, space, tune_config=tune.TuneConfig(num_samples=20, metric="score",
    ...     mode="max"))  # doctest: +SKIP
    """
    from ray import tune as ray_tune

    unknown = sorted(name for name in param_space if name.split("__")[0] not in estimator.get_params())
    if unknown:
        raise ValueError(
            f"param_space names {unknown[0]!r}, which {type(estimator).__name__} does not have; "
            f"it has {', '.join(sorted(estimator.get_params()))}"
        )
    kind = trainable(estimator, X, y, cv, scoring=scoring, groups=groups, sample_weight=sample_weight)
    try:
        # Starting a process takes longer than many a trial, so one serves several trials after each other,
        # unless the user says something.
        config = tune_config or ray_tune.TuneConfig(metric="score", mode="max", reuse_actors=True)
        run_config = run_config or ray_tune.RunConfig()
        kept = run_config.checkpoint_config or ray_tune.CheckpointConfig()
        if kept.checkpoint_at_end is None:
            run_config = replace(run_config, checkpoint_config=replace(kept, checkpoint_at_end=True))
        return ray_tune.Tuner(kind, param_space=param_space, tune_config=config, run_config=run_config).fit()
    finally:
        kind.raymkl_close()


def trainable(
    estimator: Any,
    X: Any,
    y: Any,
    cv: Any = 5,
    *,
    scoring: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
) -> type[Any]:
    """A Tune `Trainable` class for people who build their own `Tuner`; see `tune`.

    All trials of the class share one service. It gives back its CPUs and memory when there has been no trial
    for 20 seconds, and ends with the driver: nothing has to be closed (`raymkl_close()` of the class ends it
    at once). A trial's `config` holds parameters of the estimator and nothing else. With the same arguments
    `tune.Tuner.restore(path, trainable=...)` goes on with a search that was cut off.

    Parameters
    ----------
    estimator : estimator
        E.g. `MKLClassifier`; as for `tune`.
    X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
        Rows, as for `fit`.
    y : array-like of shape (n,), or str
        Targets, as for `fit`.
    cv, scoring, groups, sample_weight : object
        As for `MKLSearchCV`; a trial has one score.

    Returns
    -------
    kind : type
        A subclass of `ray.tune.Trainable`.

    Examples
    --------
    >>> from ray import tune  # doctest: +SKIP
    >>> kind = search.trainable(model, X, y, cv=3)  # doctest: +SKIP
    >>> found = tune.Tuner(kind, param_space={"C": tune.grid_search([0.1, 1.0,
    ...     10.0])}).fit()  # doctest: +SKIP
    """
    if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
        raise ValueError(f"scoring must be one name or callable, got {scoring!r}; a trial has one score")
    scorer = scorer_of(scoring, estimator)
    estimator = clone(estimator)
    vars(estimator).pop(
        "_skl_callbacks", None
    )  # callbacks are for a fit of the user's own, not for those of many trials elsewhere
    X, y = loaded(X, y, estimator)
    splits = splits_of(cv, X, y, groups, is_classifier(estimator))
    by_heads = learns_by_heads(estimator) and are_masks(splits)
    if by_heads:
        Folds(clone(estimator), X, y, splits, sample_weight)  # bad input is found here and not in every trial
    from ray import tune as ray_tune

    from ..engine.pools.ray_session import ensure_ray

    ensure_ray()
    if not by_heads:
        import ray

        folds = ray.put(FoldByFold(estimator, X, y, splits, sample_weight))
        return ray_tune.with_resources(folds_trial(estimator, folds, len(splits), scorer), {"CPU": 1})
    service = _start_service(estimator, X, y, splits, scorer, sample_weight)
    return ray_tune.with_resources(heads_trial(service), {"CPU": CPUS_PER_TRIAL})


def _start_service(estimator: Any, X: Any, y: Any, splits: list, scorer: Any, sample_weight: Any) -> Any:
    """The actor that trains all trials. Some CPU is left to the trials, which could not start otherwise."""
    import ray

    session, X = session_and_rows(estimator.engine, X)
    place = None if session is None or session.kind == "local" else session.actors().place
    params = estimator.ray_params or (RayParams() if place is None else place.params)
    there = ray.cluster_resources().get("CPU", 1.0)
    shards = params.shards_where(1) or 1
    threads = max(1, int(params.cpus_per_shard * shards))
    on_shards = place is not None or estimator.engine == "ray"
    if on_shards and threads + CPUS_PER_TRIAL > there:
        raise ValueError(
            f"{shards} shards of {params.cpus_per_shard:g} CPU leave nothing of the {there:g} CPUs of the "
            "Ray cluster to "
            f"the trials, which take {CPUS_PER_TRIAL:g} each; ask for fewer shards in ray_params"
        )
    threads = max(1, min(threads, int(there - CPUS_PER_TRIAL)))
    cpus = 0.0 if on_shards else float(threads) if threads + CPUS_PER_TRIAL <= there else there / 2
    # The reservation is apart from the actor, which outlives it: CPUs are given back while there is no trial.
    reservation = Reservation(cpus)
    reservation.take()
    service = (
        ray.remote(ServiceActor)
        .options(num_cpus=0, max_concurrency=1000, max_restarts=0)
        .remote(
            clone(estimator),
            ray.put((X, y)),
            splits,
            scorer,
            sample_weight,
            threads,
            place,
            reservation,
            IDLE_S,
        )
    )
    if on_shards:  # they take their place before the trials do
        try:
            ray.get(service.prepare.remote(), timeout=params.timeout_s)
        except ray.exceptions.RayTaskError as error:
            ray.kill(service)
            raise error.cause from None
        except Exception:
            ray.kill(service)
            raise
    return service
