"""Ray Tune over heads: trials are light, the work is done by one service that they share."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from ..engine.params import RayParams
from ..engine.session import session_and_rows
from ..metrics import scorer as scorer_of
from ..models.sources import loaded
from .folds import FoldByFold, Folds, are_masks, splits_of
from .settings import learns_by_heads

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
    """Search with Ray Tune; returns Tune's `ResultGrid`.

    Rows are placed once. The folds (and classes) of every trial are heads of one service, so that a trial costs its optimisation
    steps and no kernel block. Each trial reports `score` (mean over the folds so far), `score_std`, `gap` (the worst of its heads)
    and `training_iteration` after every round; a scheduler such as ASHA may stop it, which frees its heads at once.

    Parameters
    ----------
    estimator : e.g. `MKLClassifier`; its `engine` and `ray_params` say where the shared blocks live ("ray": in shard actors,
        otherwise in the service's process).
    X, y : as for `fit`.
    param_space : parameters of the estimator with Tune's distributions, e.g. `{"C": tune.loguniform(0.01, 100)}`.
    cv, scoring, groups, sample_weight : as for `MKLSearchCV`.
    tune_config, run_config : of Ray Tune. Without a `tune_config` the score is maximised.

    Examples
    --------
    >>> from ray import tune                                                                    # doctest: +SKIP
    >>> from raymkl import search                                                               # doctest: +SKIP
    >>> space = {"C": tune.loguniform(0.01, 100), "p": tune.uniform(1, 2)}                      # doctest: +SKIP
    >>> found = search.tune(model, X, y, space, tune_config=tune.TuneConfig(num_samples=20, metric="score", mode="max"))  # doctest: +SKIP
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
        # Starting a process takes longer than many a trial, so one serves several trials after each other.
        config = replace(tune_config or ray_tune.TuneConfig(metric="score", mode="max"), reuse_actors=True)
        more = {} if run_config is None else {"run_config": run_config}
        return ray_tune.Tuner(kind, param_space=param_space, tune_config=config, **more).fit()
    finally:
        kind.raymkl_close()


def trainable(
    estimator: Any, X: Any, y: Any, cv: Any = 5, *, scoring: Any = None, groups: Any = None, sample_weight: Any = None
) -> type[Any]:
    """A Tune `Trainable` class for people who build their own `Tuner`; see `tune`.

    All trials of the class share one service, which lives until `raymkl_close()` of the class is called or the driver ends. A trial's
    `config` holds parameters of the estimator and nothing else.

    Examples
    --------
    >>> from ray import tune                                                                    # doctest: +SKIP
    >>> kind = search.trainable(model, X, y, cv=3)                                              # doctest: +SKIP
    >>> found = tune.Tuner(kind, param_space={"C": tune.grid_search([0.1, 1.0, 10.0])}).fit()   # doctest: +SKIP
    >>> kind.raymkl_close()                                                                     # doctest: +SKIP
    """
    if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
        raise ValueError(f"scoring must be one name or callable, got {scoring!r}; a trial has one score")
    scorer = scorer_of(scoring, estimator)
    X, y = loaded(X, y, estimator)
    splits = splits_of(cv, X, y, groups, is_classifier(estimator))
    by_heads = learns_by_heads(estimator) and are_masks(splits)
    if by_heads:
        Folds(clone(estimator), X, y, splits, sample_weight)  # bad input is found here and not in every trial
    from ray import tune as ray_tune

    from ..engine.pools.ray_session import ensure_ray

    ensure_ray()
    if not by_heads:
        return ray_tune.with_resources(_fold_by_fold(estimator, X, y, splits, scorer, sample_weight), {"CPU": 1})
    service = _start_service(estimator, X, y, splits, scorer, sample_weight)
    return ray_tune.with_resources(_shared(service), {"CPU": CPUS_PER_TRIAL})


def _start_service(estimator: Any, X: Any, y: Any, splits: list, scorer: Any, sample_weight: Any) -> Any:
    """The actor that trains all trials. Some CPU is left to the trials, which could not start otherwise."""
    import ray

    from .service import SearchService

    session, X = session_and_rows(estimator.engine, X)
    place = None if session is None or session.kind == "local" else session.actors().place
    params = estimator.ray_params or (RayParams() if place is None else place.params)
    there = ray.cluster_resources().get("CPU", 1.0)
    shards = params.shards_where(1) or 1
    threads = max(1, int(params.cpus_per_shard * shards))
    on_shards = place is not None or estimator.engine == "ray"
    if on_shards and threads + CPUS_PER_TRIAL > there:
        raise ValueError(
            f"{shards} shards of {params.cpus_per_shard:g} CPU leave nothing of the {there:g} CPUs of the Ray cluster to "
            f"the trials, which take {CPUS_PER_TRIAL:g} each; ask for fewer shards in ray_params"
        )
    threads = max(1, min(threads, int(there - CPUS_PER_TRIAL)))
    cpus = 0.0 if on_shards else float(threads) if threads + CPUS_PER_TRIAL <= there else there / 2
    service = (
        ray.remote(_ServiceActor)
        .options(num_cpus=cpus, max_concurrency=1000, max_restarts=0)
        .remote(SearchService, clone(estimator), ray.put((X, y)), splits, scorer, sample_weight, threads, place)
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


class _ServiceActor:
    """The actor around `SearchService`."""

    def __init__(self, kind: type, estimator: Any, data: tuple, splits: list, scorer: Any, sample_weight: Any, threads: int, place: Any):
        self.service = kind(estimator, *data, splits, scorer, sample_weight, threads, place)

    def prepare(self) -> None:
        self.service.prepare()

    def start(self, name: str, setting: dict) -> None:
        self.service.start(name, setting)

    def next_report(self, name: str) -> dict:
        return self.service.next_report(name)

    def stop(self, name: str) -> None:
        self.service.stop(name)

    def active_heads(self) -> int:
        return self.service.active_heads()

    def close(self) -> None:
        self.service.close()


def _shared(service: Any) -> type:
    """Trials that fetch their reports from the service."""
    from ray import tune as ray_tune

    class HeadsTrial(ray_tune.Trainable):
        """One setting; a step is one report."""

        def setup(self, config: dict) -> None:
            import ray

            # One name per start: an actor that is reused and a new one may both have held the same trial.
            self.name = f"{self.trial_id}-{uuid.uuid4().hex[:8]}"
            ray.get(service.start.remote(self.name, dict(config)))

        def step(self) -> dict:
            import ray

            try:
                return ray.get(service.next_report.remote(self.name))
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None

        def reset_config(self, new_config: dict) -> bool:
            service.stop.remote(self.name)
            self.setup(new_config)
            return True

        def cleanup(self) -> None:
            service.stop.remote(self.name)

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            return None

        def load_checkpoint(self, checkpoint: Any) -> None:
            return None

        @classmethod
        def raymkl_close(cls) -> None:
            """End the service and its shards."""
            import ray

            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
                ray.get(service.close.remote(), timeout=30)
            ray.kill(service)

        raymkl_service = service

    return HeadsTrial


def _fold_by_fold(estimator: Any, X: Any, y: Any, splits: list, scorer: Any, sample_weight: Any) -> type:
    """Trials of estimators whose folds are no heads: a step fits and scores one fold."""
    import ray
    from ray import tune as ray_tune

    folds = ray.put(FoldByFold(estimator, X, y, splits, sample_weight))

    class FoldsTrial(ray_tune.Trainable):
        """One setting, fold after fold."""

        def setup(self, config: dict) -> None:
            self.model, self.scores = clone(estimator).set_params(**config), []

        def reset_config(self, new_config: dict) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict:
            shared, fold = ray.get(folds), len(self.scores)
            model = shared.fit(clone(self.model), fold)
            self.scores.append(float(shared.score(scorer, model, fold)))
            gap = float(np.max(getattr(model, "duality_gap_", np.nan)))
            done = len(self.scores) == len(splits)
            return {"score": float(np.mean(self.scores)), "score_std": float(np.std(self.scores)), "gap": gap, "done": done}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            return None

        def load_checkpoint(self, checkpoint: Any) -> None:
            return None

        @classmethod
        def raymkl_close(cls) -> None:
            """Nothing is shared."""

    return FoldsTrial
