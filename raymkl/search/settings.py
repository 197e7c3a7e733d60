"""Settings of a search: which of them can be heads over one set of kernel blocks, and in what order they are
solved.

Settings that differ only in C are stages of one path; settings that differ in another parameter of a head (p,
say) are heads of their own; settings that differ in anything else need blocks of their own.
"""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Real
from typing import Any

from sklearn.base import clone

from ..kernels.base import Kernel
from ..kernels.normalize import TailSum
from ..models.base import BaseMKL
from ..optim.norms import Norm


def knows_heads(estimator: Any) -> bool:
    """Whether this kind of estimator can state its folds as heads."""
    return isinstance(estimator, BaseMKL) and estimator._can_fold


def learns_by_heads(estimator: Any, setting: dict | None = None) -> bool:
    """Whether folds with a setting can be heads: nothing but weights and constants may be learned from the
    rows.

    kernels=None is a bank made from the training rows, and so one of its own for every fold.
    """
    return knows_heads(estimator) and {"kernels": estimator.kernels, **(setting or {})}["kernels"] is not None


def key_of(value: Any) -> Hashable:
    """Something to tell values of a parameter apart; what is neither plain, a kernel nor a collection is told
    apart as an object.
    """
    if isinstance(value, str | bool | type(None) | Kernel | Norm | TailSum):
        return value
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(map(key_of, value))
    if isinstance(value, dict):
        return tuple((key_of(k), key_of(v)) for k, v in value.items())
    return id(value)


def wide_norm(estimator: Any, setting: dict) -> bool:
    """Weights that are not bounded (p > 2) ask for more precise statistics, see
    models.description; such settings
    have blocks of their own.
    """
    norm, p = (
        setting.get("norm", getattr(estimator, "norm", None)),
        setting.get("p", getattr(estimator, "p", 2.0)),
    )
    if norm is not None:
        return isinstance(norm, Norm) and not norm.bounded
    return isinstance(p, Real) and bool(p > 2)


def blocks_key(estimator: Any, setting: dict) -> Hashable:
    """Settings with the same key can share one set of kernel blocks (all, where there are none to share)."""
    if not knows_heads(estimator):
        return ()
    other = tuple(
        (name, key_of(value)) for name, value in sorted(setting.items()) if name not in estimator._head_params
    )
    return other, wide_norm(estimator, setting)


def blocks_of(estimator: Any, settings: list[dict]) -> list[list[int]]:
    """Positions of the settings that can share one set of kernel blocks."""
    found: dict[Hashable, list[int]] = {}
    for position, setting in enumerate(settings):
        found.setdefault(blocks_key(estimator, setting), []).append(position)
    return list(found.values())


def template_of(estimator: Any, setting: dict) -> Any:
    """The estimator with those parameters of a setting that decide about its blocks."""
    common = {name: value for name, value in setting.items() if name not in estimator._head_params}
    if wide_norm(estimator, setting):
        common.update(
            {
                name: setting.get(name, getattr(estimator, name))
                for name in ("p", "norm")
                if hasattr(estimator, name)
            }
        )
    return clone(estimator).set_params(**clone(common, safe=False))


def of_heads(estimator: Any, setting: dict) -> dict:
    """The part of a setting that heads over the same blocks can differ in."""
    return {name: value for name, value in setting.items() if name in estimator._head_params}


def paths_of(
    settings: list[dict], positions: list[int], default: float, beta: float = 0.0
) -> list[list[int]]:
    """The given settings grouped so that only C differs, in the order of ascending C. default, beta : C and
    beta where a setting has none.

    Prices of kernels grow with C, so that the norm would be another one at every stage: such settings are
    paths of their own.
    """
    found: dict[Hashable, list[int]] = {}
    for position in positions:
        setting = settings[position]
        priced = bool(setting.get("beta", beta))
        other = [(name, key_of(value)) for name, value in sorted(setting.items()) if name != "C" or priced]
        found.setdefault(tuple(other), []).append(position)
    return [
        sorted(path, key=lambda position: settings[position].get("C", default)) for path in found.values()
    ]
