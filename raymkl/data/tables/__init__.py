"""Data files: what the command line reads and writes.

| suffix | format | columns |
|---|---|---|
| .csv, .tsv (also .gz) | text with a header line | one per name |
| .parquet, .pq | Parquet | one per name; lists of equal length are columns of vectors |
| .arrow, .feather, .ipc | Arrow IPC file | the same |
| .npz | NumPy arrays | `X` (n, d), or `view_<name>` (n, d) per view; labels `y` |
| .libsvm, .svm, .svmlight (also .gz, .bz2) | label index:value ... | `X` (n, d) sparse; labels `y` |

All of them become a `Columns`: names and arrays with one row per example. Those of Parquet and Arrow files
may stay in the file (`open_columns`), read batch by batch through `data.sources`; the others are read as a
whole.
"""

from .arrow import from_arrow, holds_numbers
from .columns import Columns, DataError, is_numeric
from .files import open_columns, read_columns, write_columns
from .source_columns import Facts, SourceColumns

__all__ = [
    "Columns",
    "DataError",
    "Facts",
    "SourceColumns",
    "from_arrow",
    "holds_numbers",
    "is_numeric",
    "open_columns",
    "read_columns",
    "write_columns",
]
