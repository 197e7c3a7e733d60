"""Whether the parts of a model that a file describes are all there and fit together; a file may come from
anybody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import base, given
from ...kernels.pairs.families import NO_GATE
from ..expansion import Expansion
from ..preparation import Preparation
from ..probability.calibration import Calibration
from ..probability.conformal import FoldModels

# Fields of an `Expansion` by their names in a file; those that end with an underscore are attributes of the
# estimator as well.
PARTS = {
    "kernels_": "kernels",
    "dual_coef_": "coefficients",
    "support_": "support",
    "_effective_weights": "weights",
    "_gate_of_entry": "gate_of_entry",
    "_support_rows": "support_rows",
    "_support_gates": "support_gates",
    "_stack_depths": "stack_depths",
    "_n_train": "n_train",
    "_entry_factors": "entry_factors",
}
# Parts that older files lack.
LATER_PARTS = frozenset({"stack_depths", "entry_factors"})


def expansion_of(parts: dict) -> Expansion:
    """The expansion of fields as a file has them, all of which must be there and have shapes that fit
    together; else ValueError.
    """
    missing = [name for name, part in PARTS.items() if part not in parts and part not in LATER_PARTS]
    if missing:
        raise ValueError(f"the model has no {', '.join(missing)}")
    for name, dimensions, kinds in (
        ("support_", 1, "iu"),
        ("dual_coef_", 2, "f"),
        ("_effective_weights", 2, "f"),
    ):
        _check_array(name, parts[PARTS[name]], dimensions, kinds)
    if parts["gate_of_entry"] is None:  # written so when no entry had a gate
        parts["gate_of_entry"] = [NO_GATE] * parts["weights"].shape[1]
    e = Expansion(**parts)
    heads, support = e.coefficients.shape
    gates = 0 if e.support_gates is None else np.shape(e.support_gates)[1]
    matrices = {kernel.statistic().view for kernel in e.kernels if isinstance(kernel, given.Precomputed)}
    fits = {
        "support_": e.support.shape == (support,),
        "rows of support_": support == 0 or (e.support.min() >= 0 and e.support.max() < e.n_train),
        "kernels_": isinstance(e.kernels, list)
        and len(e.kernels) > 0
        and all(isinstance(kernel, base.Kernel) for kernel in e.kernels),
        "_effective_weights": e.weights.shape == (heads, len(e.gate_of_entry)),
        "_gate_of_entry": all(type(g) is int and NO_GATE <= g < gates for g in e.gate_of_entry),
        "_support_gates": e.support_gates is None or np.shape(e.support_gates) == (support, gates),
        "_support_rows": all(rows.shape[0] == support for rows in e.support_rows.values()),
        "_entry_factors": e.entry_factors is None or np.shape(e.entry_factors) == (*e.weights.shape, support),
        "_stack_depths": all(type(depth) is int for depth in e.stack_depths.values())
        and matrices <= e.stack_depths.keys(),
    }
    wrong = [name for name, fine in fits.items() if not fine]
    if wrong or e.weights.shape[1] % len(e.kernels):
        raise ValueError(
            "the parts of the model do not fit together: "
            f"{', '.join(wrong) or 'kernels_ and _effective_weights'}"
        )
    return e


def check_fitted(model: Any) -> None:
    """Raise ValueError unless what predictions need beside the expansion is there, for as many heads."""
    _check_array("intercept_", model.intercept_, 1, "f")
    heads = len(model.expansion_.weights)
    if model.intercept_.shape != (heads,):
        raise ValueError("the parts of the model do not fit together: intercept_")
    if hasattr(model, "classes_") and np.shape(model.classes_) != (2 if heads == 1 else heads,):
        raise ValueError("the parts of the model do not fit together: classes_")
    for name, kind in (("calibration_", Calibration), ("fold_models_", FoldModels)):
        part = getattr(model, name, None)
        if part is not None and not isinstance(part, kind):
            raise ValueError(f"the parts of the model do not fit together: {name}")
        if part is not None:
            part.check(heads)
    if hasattr(model, "fold_models_"):
        beside = model.fold_models_.expansion
        if {*beside.kernels} - {*model.expansion_.kernels} and getattr(model, "kernels", None) is not None:
            raise ValueError("the parts of the model do not fit together: kernels of fold_models_")
        if beside.support_rows.keys() != model.expansion_.support_rows.keys():
            raise ValueError("the parts of the model do not fit together: views of fold_models_")


def _check_array(name: str, array: Any, dimensions: int, kinds: str) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is not an array of {dimensions} dimensions of numbers")


def check_preparation(preparation: Preparation) -> None:
    """Raise ValueError unless a preparation has views of named columns, and numbers to scale them with."""
    for view, names in preparation.views.items():
        if not isinstance(view, str | None) or not all(isinstance(name, str) for name in names):
            raise ValueError("the preparation has a view without a name, or of columns without names")
    for name, width in preparation.widths.items():
        if not isinstance(name, str) or type(width) is not int or width < 0:
            raise ValueError("the preparation has a column whose width is not a number")
    for parts in (preparation.mean, preparation.scale):
        for name, values in parts.items():
            if (
                not isinstance(values, np.ndarray)
                or values.dtype.kind != "f"
                or values.shape != (preparation.widths[name],)
            ):
                raise ValueError(f"the preparation of the column {str(name)[:60]!r} does not have its width")
    if not isinstance(preparation.target, str | None):
        raise ValueError("the preparation has a target that is not a name")
