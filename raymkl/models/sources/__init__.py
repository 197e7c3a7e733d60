"""X that is not in memory: paths and Datasets as inputs of the models.

fit       labels are read (`inputs`), all rows are looked at once, batch by batch (`surveying`); the
          engine gets views of the source
predict   batch by batch, each as a `Batch`, which is a table that knows where it comes from (`predicting`)
"""

from .inputs import Batch, SourceInput, known_labels, labels_of, loaded, source_of
from .predicting import batch_of, batches_to_predict, check_widths, whole_to_predict
from .surveying import known_diagonal, known_largest, rows_of_batch, sample, survey

__all__ = [
    "Batch",
    "SourceInput",
    "batch_of",
    "batches_to_predict",
    "check_widths",
    "known_diagonal",
    "known_labels",
    "known_largest",
    "labels_of",
    "loaded",
    "rows_of_batch",
    "sample",
    "source_of",
    "survey",
    "whole_to_predict",
]
