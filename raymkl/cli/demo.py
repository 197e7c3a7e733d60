"""The demo: handwritten digits seen in five ways, one of them worthless, learned through Ray (scikit-learn's
bundled data, no network).

| view      | what                                                       | features |
|---|---|---|
| pixels    | the 8 x 8 image                                            | 64 |
| coarse    | the image at half the resolution                           | 16 |
| profiles  | ink per row and per column                                 | 16 |
| gradients | histograms of eight edge directions in 4 x 4 cells         | 128 |
| noise     | random numbers, so that a weight can show what it is worth | 8 |
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TRAINING_ROWS = 600
NOISE_FEATURES = 8
DIRECTIONS = 8


@dataclass
class DemoProblem:
    """Views (dict of (n, d) arrays) and digits (n,) to learn from and to test on, and the kernels to learn
    over.
    """

    train: dict[str, np.ndarray]
    y_train: np.ndarray
    test: dict[str, np.ndarray]
    y_test: np.ndarray
    kernels: list


def digit_views(images: np.ndarray) -> dict[str, np.ndarray]:
    """Views of images (n, 8, 8) with ink between 0 and 1."""
    n = len(images)
    noise = np.random.default_rng(0).normal(size=(n, NOISE_FEATURES))
    return {
        "pixels": images.reshape(n, 64),
        "coarse": images.reshape(n, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(n, 16),
        "profiles": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
        "gradients": edge_histograms(images),
        "noise": noise,
    }


def edge_histograms(images: np.ndarray) -> np.ndarray:
    """Edge strength by direction in 4 x 4 cells: (n, 8, 8) -> (n, 128)."""
    down, right = np.gradient(images, axis=(1, 2))
    direction = (
        np.floor((np.arctan2(down, right) + np.pi) / (2 * np.pi) * DIRECTIONS).astype(int) % DIRECTIONS
    )
    strength = np.where(direction[..., None] == np.arange(DIRECTIONS), np.hypot(down, right)[..., None], 0.0)
    return strength.reshape(len(images), 4, 2, 4, 2, DIRECTIONS).sum(axis=(2, 4)).reshape(len(images), -1)


def demo_problem() -> DemoProblem:
    """Digits, split; three Gaussian widths per view and a chi-squared kernel on the edge histograms."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from .. import kernels
    from ..kernels.defaults import widths_around

    images, digits = load_digits(return_X_y=True)
    views = digit_views(images.reshape(-1, 8, 8) / 16.0)
    learn, check = train_test_split(
        np.arange(len(digits)), train_size=TRAINING_ROWS, random_state=0, stratify=digits
    )
    train = {name: array[learn] for name, array in views.items()}
    bank: list = []
    for name, array in train.items():
        bank += kernels.rbf(widths_around(array)[1:4], view=name)
    bank.append(
        kernels.Chi2(gamma=widths_around(train["gradients"], kernels.Chi2().statistic())[2], view="gradients")
    )
    test = {name: array[check] for name, array in views.items()}
    return DemoProblem(train, digits[learn], test, digits[check], bank)


def run_demo(out: Path, engine: str, p: float, say: Callable[[str], Any]) -> dict:
    """Train, compare, write `model.raymkl` and `report.html` into the directory `out`; returns the numbers
    that were said.
    """
    from .. import report
    from ..models.classifier import MKLClassifier
    from .summaries import weight_lines

    problem = demo_problem()
    train, test, y_train, y_test, bank = (
        problem.train,
        problem.test,
        problem.y_train,
        problem.y_test,
        problem.kernels,
    )
    say(
        f"digits: {len(y_train)} images to learn from, {len(y_test)} to test on; {len(bank)} kernels over "
        f"{len(train)} views"
    )
    settings = {"C": 1.0, "normalize": "multiplicative"}
    started = time.perf_counter()
    model = MKLClassifier(kernels=bank, p=p, engine=engine, **settings).fit(train, y_train)
    seconds = time.perf_counter() - started
    uniform = MKLClassifier(kernels=bank, p=2, engine="local", **settings).fit(train, y_train)
    # The best single kernel is chosen on the test images themselves: the comparison favours it.
    alone = [
        MKLClassifier(kernels=[kernel], engine="local", **settings).fit(train, y_train).score(test, y_test)
        for kernel in bank
    ]
    best = int(np.argmax(alone))
    told = {
        "accuracy": model.score(test, y_test),
        "accuracy_uniform": uniform.score(test, y_test),
        "accuracy_single": alone[best],
        "duality_gap": float(np.max(model.duality_gap_)),
        "seconds": seconds,
    }
    where = "through Ray" if engine == "ray" else "in this process"
    say(
        f"trained {where} in {seconds:.1f} s: {len(model.classes_)} classes, {model.n_iter_} rounds, "
        f"{len(model.support_)} support vectors"
    )
    say("")
    say(
        "                     accuracy   duality gap (certified, "
        f"relative{', worst class' if len(model.classes_) > 2 else ''})"
    )
    say(f"learned weights        {told['accuracy']:.4f}   {told['duality_gap']:.1e}")
    say(f"uniform sum            {told['accuracy_uniform']:.4f}   {np.max(uniform.duality_gap_):.1e}")
    say(f"best single kernel     {told['accuracy_single']:.4f}   {bank[best]!r}")
    say("")
    say(f"weights (block norm p = {p:.3g}, mean over the classes)")
    for line in weight_lines({"kernel_weights": model.kernel_weights_, "kernels": [*map(repr, bank)]}):
        say(line)
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "model.raymkl")
    report(model, test, y_test, path=out / "report.html")
    return told
