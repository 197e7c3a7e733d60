"""A million rows from Parquet: the stochastic trainer over landmarks, within a few GB whatever the file is.

Generates rows (classes are sums of a few bumps in a space of some dimensions, spread over all columns, with
noise), writes them to Parquet in portions, trains by `StochasticMKLClassifier(n_landmarks=...)` from the
path, predicts another file the same way, and measures seconds per epoch and the peak of the memory of all
processes. Rows are never in memory together: 1,000,000 x 784 float32 are 3.1 GB by themselves.

    python examples/benchmarks/million_rows.py                          1,000,000 x 784 float32 (3.1 GB of
                                                                        disk)
    python examples/benchmarks/million_rows.py --rows 100000            a tenth of it
    python examples/benchmarks/million_rows.py --quick                  5,000 x 64
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import MemoryWatch, parser, timed

from raymkl import StochasticMKLClassifier, kernels

CLASSES, BUMPS, DIMENSIONS = 10, 3, 12
PORTION = 16_384


def write(path: Path, rows: int, columns: int, seed: int) -> None:
    """Rows with a column `x` of vectors and a column `label`, some thousand at a time."""
    shape = np.random.default_rng(0)
    centres = shape.normal(size=(CLASSES * BUMPS, DIMENSIONS)) * 1.5
    spread = shape.normal(size=(DIMENSIONS, columns)) / np.sqrt(columns)
    random = np.random.default_rng(seed)
    kind = pa.list_(pa.float32(), columns)
    with pq.ParquetWriter(
        path, pa.schema([("x", kind), ("label", pa.int32())]), compression="none", use_dictionary=False
    ) as writer:
        for start in range(0, rows, PORTION):
            n = min(PORTION, rows - start)
            which = random.integers(CLASSES * BUMPS, size=n)
            X = (centres[which] + random.normal(size=(n, DIMENSIONS))) @ spread + 0.02 * random.normal(
                size=(n, columns)
            )
            values = pa.FixedSizeListArray.from_arrays(pa.array(X.astype(np.float32).ravel()), columns)
            writer.write_table(pa.table({"x": values, "label": pa.array((which % CLASSES).astype(np.int32))}))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--columns", type=int, default=784)
    options.add_argument("--landmarks", type=int, default=200)
    options.add_argument("--epochs", type=int, default=2)
    args = options.parse_args()
    if args.quick:
        args.rows, args.columns, args.landmarks = 5_000, 64, 50
    folder = Path(tempfile.mkdtemp(prefix="million_rows"))
    try:
        seconds, _ = timed(lambda: write(folder / "train.parquet", args.rows, args.columns, 1))
        write(folder / "test.parquet", max(args.rows // 100, 1_000), args.columns, 2)
        print(f"{args.rows:,} rows x {args.columns} columns written in {seconds:.0f} s")
        clf = StochasticMKLClassifier(
            kernels=kernels.rbf([0.003, 0.01, 0.03, 0.1, 0.3]),
            C=10.0 / args.rows**0.5,
            n_landmarks=args.landmarks,
            batch_size=64,
            max_iter=args.epochs,
            tol=0.02,
            engine="local",
            random_state=args.seed,
            verbose=1,
        )
        with MemoryWatch() as memory:
            seconds, _ = timed(lambda: clf.fit(str(folder / "train.parquet"), "label"))
        accuracy = clf.score(str(folder / "test.parquet"), "label")
        peak = memory.peak_mb / 1024
        args.out.mkdir(parents=True, exist_ok=True)
        with (args.out / "million_rows.csv").open("w") as file:
            file.write("rows,columns,landmarks,epochs,seconds,peak_gib,gap,accuracy\n")
            row = (args.rows, args.columns, args.landmarks, clf.n_iter_, round(seconds, 1), round(peak, 2))
            file.write(",".join(map(str, (*row, f"{clf.duality_gap_:.4f}", f"{accuracy:.4f}"))) + "\n")
        print(
            f"{seconds:.0f} s, {clf.n_iter_} epochs, gap {clf.duality_gap_:.3f}, accuracy {accuracy:.4f}, "
            f"peak {peak:.2f} GiB"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
