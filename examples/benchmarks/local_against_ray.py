"""The local engine against Ray on one machine: what actors cost, and that the answer stays the same.

The local engine (threads in this process) is timed first, then Ray with 1, 2 and 3 shards, each shard with
one CPU or an equal share of them. Ray and compiled code are warmed up before; placing the shards and sending
the rows is part of the time. The last column is the largest difference of decision values on test rows from
the local model, in standard deviations (both models are within the tolerance of the optimum, so small but not
zero). Memory is the peak of all processes together, Ray's own included.

    python examples/benchmarks/local_against_ray.py --data mnist.npz
    python examples/benchmarks/local_against_ray.py --data mnist.npz --memory-per-shard 300     adds a run
    with small caches
    python examples/benchmarks/local_against_ray.py --quick
"""

from charts import bars, plot
from common import (
    MemoryWatch,
    Table,
    apart,
    cpus_for,
    fifty_widths,
    load_digits_for,
    parser,
    ray_cluster,
    timed,
    warm_up,
)

from raymkl import MKLClassifier, RayParams

COLUMNS = {
    "engine": "<26",
    "n": "d",
    "cpus/shard": ".3g",
    "seconds": ".2f",
    "ratio": ".2f",
    "gap": ".1e",
    "rounds": "d",
    "SVs": "d",
    "peak MB": ".0f",
    "apart": ".1e",
}


def options():
    parse = parser(__doc__)
    parse.add_argument("--n", type=int, help="training rows (default: 20000; quick: 1000)")
    parse.add_argument(
        "--shards", type=int, nargs="+", default=[1, 2, 3], help="numbers of shards (default: 1 2 3)"
    )
    parse.add_argument(
        "--memory-per-shard",
        type=int,
        metavar="MB",
        help="add a run with this much memory for each shard's caches",
    )
    args = parse.parse_args()
    args.n = args.n or (1000 if args.quick else 20_000)
    return args


def places(args) -> dict[str, RayParams]:
    """The runs under Ray by name."""
    runs = {
        f"ray, {k} shard{'s' * (k > 1)}": RayParams(num_shards=k, cpus_per_shard=cpus_for(k))
        for k in args.shards
    }
    if args.memory_per_shard:
        k = min(2, max(args.shards))
        budget = args.memory_per_shard * 2**20
        runs[f"ray, {k} x {args.memory_per_shard} MiB"] = RayParams(
            num_shards=k, cpus_per_shard=cpus_for(k), memory_per_shard=budget
        )
    return runs


def measure(X, y, X_test, **place) -> tuple[dict, object]:
    """A row of the table and the decision values on test rows."""
    with MemoryWatch() as memory:
        seconds, clf = timed(
            lambda: MKLClassifier(kernels=fifty_widths(), C=1.0, p=4 / 3, tol=1e-3, **place).fit(X, y)
        )
    row = {
        "n": len(y),
        "seconds": seconds,
        "gap": clf.duality_gap_,
        "rounds": clf.n_iter_,
        "SVs": len(clf.support_),
    }
    return row | {"peak MB": memory.peak_mb}, clf.decision_function(X_test)


def draw(table: Table, time_axes, memory_axes) -> None:
    names = table.column("engine")
    bars(
        time_axes,
        names,
        {"seconds": table.column("seconds")},
        f"seconds to train, n = {table.rows[0]['n']:,}",
    )
    bars(memory_axes, names, {"MB": table.column("peak MB")}, "peak of all processes, MB", ",.0f")


def main():
    args = options()
    digits = load_digits_for(args)
    X, y = digits.subsample(args.n, args.seed)
    X_test, _ = digits.test(2000)
    warm_up(X, y)
    notes = [
        f"data: {digits.name}",
        "ratio: to the local engine; apart: largest difference of decision values, in standard deviations",
    ]
    table = Table(args.out / "local_against_ray.csv", "Local engine against Ray, 50 kernels", COLUMNS, notes)
    local, reference = measure(X, y, X_test, engine="local")
    table.add(engine="local", ratio=1.0, **local)
    with ray_cluster():
        for name, params in places(args).items():
            warm_up(X, y, rows=500, engine="ray", ray_params=params)
            row, values = measure(X, y, X_test, engine="ray", ray_params=params)
            ratio = row["seconds"] / local["seconds"]
            table.add(
                engine=name,
                ratio=ratio,
                apart=apart(values, reference),
                **row,
                **{"cpus/shard": params.cpus_per_shard},
            )
    plot(args.out / "local_against_ray.png", lambda *axes: draw(table, *axes), panels=2)


if __name__ == "__main__":
    main()
