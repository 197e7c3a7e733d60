"""Random search with early stopping: C, p and the normalisation of kernels, by Ray Tune over one set of
kernel blocks.

Trials are light: all of them, with all their folds, are trained by one service that computes each kernel
block once. ASHA stops the settings that fall behind. Compares the best setting found with the default one on
rows that the search has not seen. Writes into --out: trials.csv (one line per trial), trials.png (scores over
C and p), best.json and the fitted model, model.raymkl.

    python examples/tune_search.py                      breast cancer data that come with scikit-learn; under
                                                        two minutes on two cores
    python examples/tune_search.py --data file.npz      arrays X and y instead
    python examples/tune_search.py --trials 50 --folds 5
"""

import argparse
import json
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import machine, ray_cluster, timed
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from raymkl import MKLClassifier, kernels, search


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data",
        metavar="FILE.npz",
        help="arrays X (n, d) and y (n,) (default: scikit-learn's breast cancer data)",
    )
    parse.add_argument("--trials", type=int, default=16, help="settings to try (default: %(default)s)")
    parse.add_argument("--folds", type=int, default=3, help="of the cross-validation (default: %(default)s)")
    parse.add_argument(
        "--scoring",
        default="macro_auc",
        help="a name of scikit-learn or raymkl.metrics (default: %(default)s)",
    )
    parse.add_argument("--seed", type=int, default=0, help="of the random search (default: %(default)s)")
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("tune_search"),
        help="results go here (default: %(default)s)",
    )
    return parse.parse_args()


def load(path: str | None) -> tuple[str, np.ndarray, np.ndarray]:
    if path is None:
        from sklearn.datasets import load_breast_cancer

        return "breast cancer (scikit-learn)", *load_breast_cancer(return_X_y=True)
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in ("X", "y") if name not in file]
        if missing:
            raise SystemExit(f"{path} has no array {', '.join(missing)}; it holds {', '.join(file.files)}")
        return path, file["X"], file["y"]


def draw(frame, axes) -> None:
    scores = frame["score"].to_numpy()
    points = axes.scatter(
        frame["config/C"],
        frame["config/p"],
        c=scores,
        s=20 + 12 * frame["training_iteration"],
        cmap="viridis",
    )
    axes.figure.colorbar(points, ax=axes, label="score")
    best = int(np.argmax(scores))
    axes.scatter(
        frame["config/C"].iloc[best],
        frame["config/p"].iloc[best],
        marker="*",
        s=300,
        facecolors="none",
        edgecolors="red",
    )
    axes.set(xscale="log", xlabel="C", ylabel="p", title="Trials (size: reports before the end; star: best)")
    axes.grid(alpha=0.3)


def main():
    args = options()
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    name, X, y = load(args.data)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    bank = [
        *kernels.rbf((np.geomspace(0.03, 30.0, 8) / X.shape[1]).tolist()),
        kernels.Linear(),
        kernels.Polynomial(degree=2, coef0=1.0),
    ]
    model = MKLClassifier(kernels=bank, normalize="multiplicative", tol=1e-3)
    space = {
        "C": tune.loguniform(0.01, 1000.0),
        "p": tune.uniform(1.0, 2.0),
        "normalize": tune.choice([None, "multiplicative"]),
    }
    print(
        f"{name}: {len(y)} rows to search on, {len(y_test)} to test; {len(bank)} kernels, {args.trials} "
        f"trials of {args.folds} folds"
    )
    print(*machine(), sep="\n")
    config = tune.TuneConfig(
        num_samples=args.trials, metric="score", mode="max", scheduler=ASHAScheduler(grace_period=3)
    )
    args.out.mkdir(parents=True, exist_ok=True)
    run = tune.RunConfig(name="tune", storage_path=str(args.out.resolve()), verbose=0)
    np.random.seed(args.seed)  # Tune's random search draws from here
    with ray_cluster():
        seconds, found = timed(
            lambda: search.tune(
                model, X, y, space, cv=args.folds, tune_config=config, run_config=run, scoring=args.scoring
            )
        )
    frame = found.get_dataframe()
    best = found.get_best_result()
    print(
        f"{len(frame)} trials in {seconds:.1f} s, {found.num_errors} failed; reports per trial: "
        f"{frame['training_iteration'].tolist()}"
    )
    print(f"best setting       {best.config}   cross-validated {args.scoring} {best.metrics['score']:.4f}")
    frame.to_csv(args.out / "trials.csv", index=False)
    (args.out / "best.json").write_text(
        json.dumps({"config": best.config, "score": best.metrics["score"]}, indent=1)
    )
    for label, setting in (("default setting", {}), ("best setting", best.config)):
        clf = MKLClassifier(**{**model.get_params(), "engine": "local", **setting}).fit(X, y)
        print(f"test accuracy      {clf.score(X_test, y_test):.4f}   {label}")
    clf.save(args.out / "model.raymkl")
    print(f"# wrote {args.out / 'trials.csv'}, best.json and model.raymkl")
    plot(args.out / "trials.png", lambda axes: draw(frame, axes), width=7.0)


if __name__ == "__main__":
    main()
