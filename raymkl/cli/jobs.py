"""What commands are made of: data, kernels and settings of a job; models out of files, and rows for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .options import Mistake, check_writable, ray_session, remember, warn_if_unscaled

DEFAULT_NORMALIZE = "multiplicative"
# An interrupted run loses this much at most.
CHECKPOINT_SECONDS = 10.0


class Job:
    """Data, kernels and settings of `train` and `search`, read and checked in the order that finds mistakes
    soonest.

    stream : whether rows of Parquet and Arrow files may stay there; X is then a `SourceInput`.
    """

    def __init__(self, data: str, out: str, options: dict, stream: bool):
        from ..data.tables import open_columns
        from ..models.preparation import Preparation
        from ..models.sources import SourceInput
        from .kernel_specs import read_bank

        self.data, self.out, self.options = data, out, options
        remember(options["checkpoint"], options["verbose"])
        check_writable(out)
        bank = read_bank(options["kernels"])
        columns = open_columns(data, options["format"])
        columns = columns if stream else columns.loaded()
        self.y = columns.labels(options["target"])
        target = options["target"] or columns.target
        views, text, pairs = bank.arrange(columns, target)
        standardize = options["standardize"] or bool(bank.standardize)
        self.preparation = Preparation.fit(columns, views, text, standardize, target)
        self.X = self.preparation.transform(columns)
        seen = self.X.source.seen() if isinstance(self.X, SourceInput) else self.X
        self.kernels = bank.build(pairs, seen)
        normalize = options["normalize"] or bank.normalize or DEFAULT_NORMALIZE
        self.normalize = None if normalize.lower() == "none" else normalize
        warn_if_unscaled(self.kernels, seen, self.preparation)
        self.engine = "ray" if options["address"] else options["engine"]

    def about_data(self) -> str:
        import numpy as np

        classes, counts = np.unique(self.y, return_counts=True)
        shown = ", ".join(
            f"{label} ({count})" for label, count in list(zip(classes, counts, strict=True))[:8]
        )
        width = sum(self.preparation.widths.values())
        return (
            f"{self.data}: {len(self.y)} rows, {width} features, {len(self.kernels)} kernels; "
            f"classes {shown}{', ...' if len(classes) > 8 else ''}"
        )

    def estimator(self, **params: Any) -> Any:
        from .. import MKLClassifier, RayParams

        return MKLClassifier(
            kernels=self.kernels,
            normalize=self.normalize,
            tol=self.options["tol"],
            loss=self.options["loss"],
            engine=self.engine,
            ray_params=RayParams(
                num_shards=self.options["shards"],
                checkpoint_dir=self.options["checkpoint"],
                checkpoint_every_s=CHECKPOINT_SECONDS,
            ),
            verbose=int(self.options["verbose"]),
            **params,
        )

    def ray(self) -> Any:
        return ray_session(self.engine, self.options["address"])

    def save(self, model: Any) -> dict:
        """Write the model with its preparation; returns its description."""
        from ..models.table_model import TableModel
        from .summaries import describe

        whole = TableModel(model, self.preparation)
        whole.save(self.out)
        return describe(whole, self.out)


def load_model(path: str) -> Any:
    from ..io import load

    if not Path(path).exists():
        raise Mistake(f"{path} does not exist")
    return load(path)


def estimator_in(loaded: Any) -> Any:
    """The estimator inside a `TableModel`."""
    from ..models.table_model import TableModel

    return loaded.model if isinstance(loaded, TableModel) else loaded


def rows_for(loaded: Any, columns: Any) -> Any:
    """What the estimator takes, of the columns of a file; models trained in Python take columns by name or by
    position.
    """
    from ..data.tables import SourceColumns
    from ..models.preparation import Preparation
    from ..models.sources import SourceInput
    from ..models.table_model import TableModel

    if isinstance(loaded, TableModel):
        return loaded.preparation.transform(columns)
    names = [str(name) for name in getattr(loaded, "feature_names_in_", columns.feature_names(None))]
    if any(name not in columns.names for name in names):
        missing = next(name for name in names if name not in columns.names)
        raise Mistake(f"{columns.source} has no column {missing!r}, which the model was trained on")
    if isinstance(columns, SourceColumns):
        return SourceInput(columns.rows)
    if columns.features is not None and len(names) > 1:
        return {name: columns.numbers(name) for name in names}
    return Preparation.fit(columns, {None: names}).transform(columns)


def accuracy_of(loaded: Any, columns: Any, predicted: Any) -> float | None:
    """Share of right predictions where the data have labels, else None."""
    import numpy as np

    target = getattr(getattr(loaded, "preparation", None), "target", None)
    if target is None or target not in columns.names or not hasattr(estimator_in(loaded), "classes_"):
        return None
    try:
        labels = columns.labels(target)
    except ValueError:
        return None  # labels of some rows are missing: nothing to compare with
    same = (
        labels == predicted
        if labels.dtype.kind == predicted.dtype.kind
        else labels.astype(str) == predicted.astype(str)
    )
    return float(np.mean(same))
