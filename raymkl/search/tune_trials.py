"""Trials of Ray Tune: thin classes around the service of a search, or around folds that are fitted one by
one.

A checkpoint of a trial is a directory with two files:

    model.raymkl     the model with the trial's setting, fitted to all rows (`raymkl.load` reads it);
                     `model.joblib` for what is not ours
    trial.arrow      where the trial was, as plain arrays and numbers, from which it goes on
"""

from __future__ import annotations

import contextlib
import os
import uuid
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..data.packed import pack, unpack, write_table
from ..data.plain_arrow import DAMAGE, open_plain
from ..io import save
from .service import SearchService

MODEL = "model.raymkl"
STATE = "trial.arrow"


def write_model(model: Any, directory: str) -> None:
    """Write a fitted model: as a file of ours where it can be one, else by joblib."""
    import joblib

    if type(model).__module__.startswith("raymkl."):
        try:
            save(model, os.path.join(directory, MODEL))
            return
        except TypeError:  # it holds a function of the user's
            pass
    joblib.dump(model, os.path.join(directory, MODEL.replace(".raymkl", ".joblib")))


def write_state(state: dict, directory: str) -> None:
    """Write the state of a trial: nested dicts and lists of arrays and numbers."""
    write_table(pack(state, {}), os.path.join(directory, STATE))


def read_state(directory: str) -> dict | None:
    """The state of a trial, or None (with a warning) where it cannot be read: the trial begins anew then."""
    path = os.path.join(directory, STATE)
    try:
        with pa.memory_map(path) as source:
            state = unpack(open_plain(source.read_buffer()).read_all())
        if not isinstance(state, dict):
            raise ValueError("it is not the state of a trial")
        return state
    except DAMAGE as error:
        warnings.warn(
            f"{path} cannot be read, the trial begins anew: {str(error)[:200]}", UserWarning, stacklevel=2
        )
        return None


class Reservation:
    """CPUs that a service works with, set aside in the cluster while it does.

    They hold no process: the service lives on without them.
    """

    def __init__(self, cpus: float):
        self.cpus, self.group = cpus, None

    @property
    def taken(self) -> bool:
        return self.group is not None

    def take(self) -> None:
        """Ask for the CPUs; nobody waits for them, since those who ask are at work already."""
        from ray.util import placement_group

        if self.group is None and self.cpus > 0:
            self.group = placement_group([{"CPU": self.cpus}])

    def release(self) -> None:
        """Give them back."""
        from ray.util import remove_placement_group

        group, self.group = self.group, None
        if group is not None:
            remove_placement_group(group)


class ServiceActor:
    """The actor around `SearchService`."""

    def __init__(
        self,
        estimator: Any,
        data: tuple,
        splits: list,
        scorer: Any,
        sample_weight: Any,
        threads: int,
        place: Any,
        reservation: Reservation,
        idle_s: float,
    ):
        # Models of trials that end early are short of their tolerance, as they should be; their gap says so.
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        self.service = SearchService(
            estimator, *data, splits, scorer, sample_weight, threads, place, reservation, idle_s
        )

    def prepare(self) -> None:
        self.service.prepare()

    def start(self, name: str, setting: dict, state: dict | None) -> None:
        self.service.start(name, setting, state)

    def next_report(self, name: str) -> dict:
        return self.service.next_report(name)

    def state(self, name: str) -> dict:
        return self.service.state(name)

    def model(self, name: str) -> Any:
        return self.service.model(name)

    def stop(self, name: str) -> None:
        self.service.stop(name)

    def active_heads(self) -> int:
        return self.service.active_heads()

    def close(self) -> None:
        self.service.close()


def heads_trial(service: Any) -> type:
    """Trials that fetch their reports from a service."""
    import ray
    from ray import tune as ray_tune

    def ask(method: str, *arguments: Any) -> Any:
        try:
            return ray.get(getattr(service, method).remote(*arguments))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    class HeadsTrial(ray_tune.Trainable):
        """One setting; a step is one report."""

        def setup(self, config: dict) -> None:
            self.name, self.setting, self.state = None, dict(config), None

        def begin(self) -> str:
            """The name under which the service knows this trial; it begins with the first step, when it is
            known what it goes on from.
            """
            if self.name is None:
                # One name per start: an actor that is reused and a new one may both have held the same trial.
                self.name = f"{self.trial_id}-{uuid.uuid4().hex[:8]}"
                ask("start", self.name, self.setting, self.state)
            return self.name

        def step(self) -> dict:
            report = ask("next_report", self.begin())
            # The last one has a checkpoint, whatever the configuration of the run says.
            return {**report, "should_checkpoint": True} if report["done"] else report

        def reset_config(self, new_config: dict) -> bool:
            self.cleanup()
            self.setup(new_config)
            return True

        def cleanup(self) -> None:
            if self.name is not None:
                service.stop.remote(self.name)

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            name = self.begin()
            write_state(ask("state", name), checkpoint_dir)
            write_model(ask("model", name), checkpoint_dir)

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.cleanup()
            self.name, self.state = None, read_state(checkpoint)

        @classmethod
        def raymkl_close(cls) -> None:
            """End the service and its shards."""
            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
                ray.get(service.close.remote(), timeout=30)
            ray.kill(service)

        raymkl_service = service

    return HeadsTrial


def folds_trial(estimator: Any, folds: Any, n_folds: int, scorer: Any) -> type:
    """Trials of estimators whose folds are no heads: a step fits and scores one fold.

    folds : reference to a `FoldByFold`.
    """
    import ray
    from ray import tune as ray_tune

    class FoldsTrial(ray_tune.Trainable):
        """One setting, fold after fold."""

        def setup(self, config: dict) -> None:
            self.model, self.scores, self.gap = clone(estimator).set_params(**config), [], float("nan")

        def reset_config(self, new_config: dict) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict:
            shared, fold = ray.get(folds), len(self.scores)
            if fold < n_folds:  # else it was over when it was saved
                model = shared.fit(clone(self.model), fold)
                self.scores.append(float(shared.score(scorer, model, fold)))
                self.gap = float(np.max(getattr(model, "duality_gap_", np.nan)))
            report = {
                "score": float(np.mean(self.scores)),
                "score_std": float(np.std(self.scores)),
                "gap": self.gap,
            }
            done = len(self.scores) == n_folds
            return {**report, "done": done, **({"should_checkpoint": True} if done else {})}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            write_state({"scores": self.scores, "gap": self.gap}, checkpoint_dir)
            write_model(ray.get(folds).fit_all(clone(self.model)), checkpoint_dir)

        def load_checkpoint(self, checkpoint: Any) -> None:
            state = read_state(checkpoint) or {}
            self.scores, self.gap = (
                [float(score) for score in state.get("scores", ())],
                float(state.get("gap", "nan")),
            )

        @classmethod
        def raymkl_close(cls) -> None:
            """Nothing is shared."""

    return FoldsTrial
