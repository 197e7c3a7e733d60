"""What a run with a name leaves: `RayParams(name=..., storage_path=...)`.

    <storage_path>/<name>/checkpoints/      while it runs, as in `checkpoint_dir`, unless that is given
                          model.raymkl      at the end: the model, which `raymkl.load` reads
                          history.parquet   the rows of `history_`
                          run.json          versions, sizes, gap, seconds, failures

Files appear whole. A later run of the same name takes their place.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...data.packed import whole_file, write_table
from ...engine.faults.checkpoint import writable_folder
from ...engine.params import RayParams

PACKAGES = ("raymkl", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "ray")
# Public attributes of fitted models that say how it went, by their names in the file.
FACTS = {
    "gap": "duality_gap_",
    "primal": "primal_objective_",
    "dual": "dual_objective_",
    "bound": "lower_bound_",
    "converged": "converged_",
    "iterations": "n_iter_",
    "failures": "shard_failures_",
    "resumed_from": "resumed_from_",
    "engine": "engine_used_",
}


def prepare(model: Any) -> None:
    """Before a fit: raise ValueError if its run has a name and nothing can be written there."""
    params = getattr(model, "ray_params", None)
    if isinstance(params, RayParams) and params.name is not None:
        writable_folder(params.run_directory, "storage_path")


def leave_results(model: Any) -> None:
    """Write the files of a fitted model's run, if the run has a name."""
    from ...io import table_of

    params = getattr(model, "ray_params", None)
    if params is None or params.name is None:
        return
    files, folder = writable_folder(params.run_directory, "storage_path")
    try:
        write_table(table_of(model), f"{folder}/model.raymkl", files)
        saved = "model.raymkl"
    except (
        TypeError
    ) as error:  # it holds a function of the user's: a run that went well does not fail for that
        saved = f"not saved: {error}"
    with whole_file(f"{folder}/history.parquet", files) as sink:
        pq.write_table(_history(model.history_), sink)
    with whole_file(f"{folder}/run.json", files) as sink:
        sink.write(json.dumps({"name": params.name, "model": saved, **_described(model)}, indent=1).encode())


def _history(rows: list[dict]) -> pa.Table:
    """Rows of a history as a table; a row may lack what others have."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([_plain(row.get(name)) for row in rows]) for name in names})


def _described(model: Any) -> dict[str, Any]:
    expansion = getattr(model, "expansion_", None)
    rows = getattr(expansion, "n_train", None) or len(getattr(model, "labels_", ())) or None
    sizes = {
        "rows": rows,
        "features": getattr(model, "n_features_in_", None),
        "kernels": len(model.kernels_) if hasattr(model, "kernels_") else None,
        "classes": len(model.classes_) if hasattr(model, "classes_") else None,
        "support_vectors": len(model.support_) if hasattr(model, "support_") else None,
        "clusters": getattr(model, "n_clusters_", None),
    }
    return {
        "estimator": type(model).__name__,
        "parameters": {name: repr(value) for name, value in model.get_params(deep=False).items()},
        "sizes": {name: _plain(value) for name, value in sizes.items() if value is not None},
        **{
            name: _plain(getattr(model, attribute))
            for name, attribute in FACTS.items()
            if hasattr(model, attribute)
        },
        "seconds": float(model.history_[-1]["seconds"]) if model.history_ else 0.0,
        "rounds": len({row.get("round", place) for place, row in enumerate(model.history_)}),
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _versions() -> dict[str, str]:
    from ... import __version__

    found = {"raymkl": __version__}
    for name in PACKAGES[1:]:
        if name == "ray" and "ray" not in sys.modules:  # not used
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> Any:
    """Something that JSON and Arrow know: JSON has no word for numbers that are not finite."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(inner) for inner in np.asarray(value).tolist()]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
