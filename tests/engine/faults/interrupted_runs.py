"""Runs that write a checkpoint in every round, and are ended in one of them."""

import os

import numpy as np
import pytest

from raymkl import MKLClassifier, RayParams, kernels
from raymkl.engine import run as train_module
from raymkl.models.runs import callbacks as fits_module
from tests.reference import noisy_problem

X, Y = noisy_problem(60, seed=41)
X_TEST, _ = noisy_problem(30, seed=42)
BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0)]
CLASSES = np.array(["a", "b", "c"])[np.arange(60) % 3]


def params(folder, **more):
    return RayParams(**{"checkpoint_dir": str(folder), "checkpoint_every_s": 1e-9, "num_shards": 2, **more})


def model(folder=None, **more):
    more = {"kernels": BANK, "tol": 1e-6, "C": 3.0, "engine": "local", **more}
    where = more.pop("ray_params", None) or (params(folder) if folder else RayParams(num_shards=2))
    return MKLClassifier(**more, ray_params=where)


def files(folder):
    return sorted(os.listdir(folder))


class Interrupted(Exception):
    pass


def interrupt(monkeypatch, rounds, error=Interrupted, where=fits_module):
    """Runs end with an error when they report the given round; what they write until then stays."""

    def stop(row):
        if row.get("round") == rounds:
            raise error

    original = train_module.train

    def limited(*arguments, **named):
        rows, problem, heads, engine, ray_params, *more = arguments
        return original(rows, problem, heads, engine, ray_params, stop, *more[1:], **named)

    monkeypatch.setattr(where, "train", limited)
    return lambda: monkeypatch.setattr(where, "train", original)


def stopped(monkeypatch, folder, rounds, y=Y, error=Interrupted, **more):
    """Checkpoints of a run that was ended in some round."""
    back = interrupt(monkeypatch, rounds, error)
    with pytest.raises(error):
        model(folder, **more).fit(X, y)
    back()
    assert files(folder)
