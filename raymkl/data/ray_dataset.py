"""The rows of a `ray.data.Dataset` as a row source: references to its blocks, which are fetched one at a time
by whoever needs them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data

from .packed import digest
from .sources import RowSource, cut

# Blocks of lost nodes are computed again, which takes a while.
BLOCK_SECONDS = 600.0


class DatasetSource(RowSource):
    """Rows of a Dataset, in its order. It is executed once, when the source is made; its blocks stay in the
    object store.

    >>> source = DatasetSource(ray.data.range(1000))               # doctest: +SKIP
    >>> source.n_rows, source.column_names                         # doctest: +SKIP
    (1000, ['id'])
    """

    kind = "Dataset"

    def __init__(self, dataset: Any):
        executed = _materialised(dataset)
        references = executed.to_arrow_refs()
        counts = _get([_count.remote(reference) for reference in references])
        if sum(counts) != executed.count():
            raise ValueError(
                f"the Dataset has {executed.count()} rows, but its blocks have {sum(counts)}; write it to "
                "Parquet files"
            )
        self.blocks = [reference for reference, count in zip(references, counts, strict=True) if count]
        self.counts = np.array([count for count in counts if count], np.int64)
        self._complete(_arrow(_get(self.blocks[0])).schema if self.blocks else pa.schema([]))

    def __str__(self) -> str:
        return "the Dataset"

    def __repr__(self) -> str:
        return (
            f"DatasetSource({self.n_rows} rows in {len(self.blocks)} blocks, {len(self.column_names)} "
            "columns)"
        )

    def fingerprint(self) -> str:
        """Hashes of all blocks, each computed where Ray finds room: references are other ones in every
        run.
        """
        digests = [_digest.remote(block) for block in self.blocks]
        return json.dumps([self.kind, [_get(digest) for digest in digests], self.counts.tolist()])

    def _tables(self, portions, columns, batch_rows):
        for portion in portions:
            table = _arrow(_get(self.blocks[portion]))
            missing = [name for name in columns if name not in table.column_names]
            if missing:
                raise ValueError(
                    f"block {portion} of the Dataset has no column {missing[0]!r}; all blocks must have the "
                    "same columns"
                )
            yield from cut(table.select(columns), batch_rows)


def _materialised(dataset: Any) -> Any:
    """The executed Dataset, its rows in the order in which they were made."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        return dataset.materialize()
    finally:
        options.preserve_order = before


def _get(reference: Any) -> Any:
    return ray.get(reference, timeout=BLOCK_SECONDS)


def _arrow(block: Any) -> pa.Table:
    """A block as a table: `to_arrow_refs` may leave single blocks of another kind as they are."""
    return block if isinstance(block, pa.Table) else pa.Table.from_pandas(block, preserve_index=False)


@ray.remote(num_cpus=0)
def _count(block: Any) -> int:
    return len(block)


@ray.remote(num_cpus=0)
def _digest(block: Any) -> str:
    table = _arrow(block).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return digest(sink.getvalue())
