"""Run by test_row_sources.py in a process of its own: a fit from a Parquet file on a cluster with a zero-CPU
head and three nodes.

Prints one line of JSON: who read how many rows, and how far the driver's memory grew.
"""

import json
import os
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).parents[3]))

from raymkl import MKLClassifier, RayParams
from raymkl.data.sources import ParquetSource
from raymkl.kernels import RBF, Linear

N, D = 1200, 20_000


class NotingSource(ParquetSource):
    """Notes in a file which process on which node was handed how many rows of which columns."""

    def stream(self, first, last, columns=None, batch_rows=None):
        for table in super().stream(first, last, columns, batch_rows):
            self.note(table.num_rows, [first, last], columns)
            yield table

    def pick(self, ids, columns=None):
        for part, table in super().pick(ids, columns):
            self.note(table.num_rows, "single", columns)
            yield part, table

    def note(self, rows, what, columns):
        node = ray.get_runtime_context().get_node_id()
        with open(self.log, "a") as file:
            file.write(
                json.dumps(
                    {"pid": os.getpid(), "node": node, "rows": rows, "what": what, "columns": list(columns)}
                )
                + "\n"
            )


def problem():
    """Rows that lie on few directions, so that few of them are support vectors."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(4, D)).astype(np.float32) / np.sqrt(D)
    inner = random.normal(size=(N, 4)).astype(np.float32)
    y = np.where(inner[:, 0] > 0, 1, -1)
    inner[:, 0] += 2.0 * y
    return inner, directions, y


def growth(before):
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def main(folder):
    inner, directions, y = problem()
    path = os.path.join(folder, "rows.parquet")
    kind = pa.schema({"x": pa.list_(pa.float32(), D), "y": pa.int64()})
    with pq.ParquetWriter(path, kind, compression="none", use_dictionary=False) as writer:
        for start in range(0, N, 50):  # this process must not see all rows either
            part = inner[start : start + 50] @ directions
            values = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), D)
            writer.write_table(pa.table([values, pa.array(y[start : start + 50])], schema=kind))
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": 80 * 2**20, "include_dashboard": False},
    )
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        cluster.wait_for_nodes()
        source = NotingSource(path)
        source.log = os.path.join(folder, "reads")
        bank = [RBF(gamma=0.2), Linear()]
        small = MKLClassifier(kernels=bank, engine="local").fit(
            inner[:100] @ directions, y[:100]
        )  # code that a fit loads is loaded
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        model = MKLClassifier(
            kernels=bank, engine="ray", ray_params=RayParams(num_shards=3, timeout_s=300)
        ).fit(source, "y")
        grown = growth(before)
        notes = [json.loads(line) for line in Path(source.log).read_text().splitlines()]
    finally:
        ray.shutdown()
        cluster.shutdown()
    notes = [note for note in notes if "x" in note["columns"]]
    driver = [note for note in notes if note["pid"] == os.getpid()]
    others = [note for note in notes if note["pid"] != os.getpid()]
    sums = {
        pid: sum(note["rows"] for note in others if note["pid"] == pid)
        for pid in {note["pid"] for note in others}
    }
    direct = MKLClassifier(kernels=bank, engine="local").fit(inner @ directions, y)
    test = inner[:50] @ directions
    difference = np.abs(model.decision_function(test) - direct.decision_function(test)).max()
    found = {
        "agreement": float(difference / np.abs(direct.decision_function(test)).max()),
        "converged": bool(model.converged_ and small.converged_),
        "nodes": len({note["node"] for note in others}),
        "shard_rows": list(sums.values()),
        "driver_looked": sum(note["rows"] for note in driver if note["what"] == [0, N]),
        "driver_single": sum(note["rows"] for note in driver if note["what"] == "single"),
        "support": len(model.support_),
        "largest_batch": max(note["rows"] for note in notes),
        "table_bytes": 4 * N * D,
        "driver_growth": grown,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
