"""Row sources: tables that stay where they are (Parquet files, Arrow files, blocks of a `ray.data.Dataset`)
and are read in parts.

| source | over | read by |
|---|---|---|
| ParquetSource | a Parquet file, a directory of them, a list of files | row groups, page by page |
| ArrowSource | an Arrow IPC (Feather) file, a directory of them, a list | record batches, memory-mapped |
| DatasetSource | a `ray.data.Dataset` (see `ray_dataset`) | blocks, fetched one at a time |

A source is small and can be pickled: it holds names, sizes and row counts, never rows. So it travels to the
shards, and each shard reads its own rows. Columns of vectors (fixed-shape tensors of any shape, fixed-size
lists, lists of one length) come out as fixed-size lists.
"""

from .files import ArrowSource, FileSource, ParquetSource
from .opening import is_dataset, open_source
from .paths import file_system
from .source import INDEX_COLUMN, RowSource, cut

__all__ = [
    "INDEX_COLUMN",
    "ArrowSource",
    "FileSource",
    "ParquetSource",
    "RowSource",
    "cut",
    "file_system",
    "is_dataset",
    "open_source",
]
