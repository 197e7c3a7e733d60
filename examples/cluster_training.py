"""A training run for a cluster: splits the rows over Ray shards, prints weights, accuracy and the gap, and
keeps the model.

    python examples/cluster_training.py --shards 2                       on the cluster that is running here,
                                                                         or a new local one
    python examples/submit_job.py examples/cluster_training.py           as a job on a cluster elsewhere

With --checkpoint (a directory that all nodes see, or s3://...) a run that was interrupted goes on where it
was.
"""

import argparse

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from raymkl import MKLClassifier, RayParams, kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shards", type=int, default=None, help="shards to split the rows into (default: as many as CPUs)"
    )
    parser.add_argument("--checkpoint", default=None, help="directory or URI for the state of the run")
    parser.add_argument("--out", default="model.raymkl", help="file for the model")
    options = parser.parse_args()

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    bank = [*kernels.rbf([0.001, 0.01, 0.1, 1.0]), kernels.Linear()]
    where = RayParams(num_shards=options.shards, checkpoint_dir=options.checkpoint)
    clf = MKLClassifier(kernels=bank, normalize="multiplicative", engine="ray", ray_params=where).fit(X, y)
    for kernel, weight in zip(bank, clf.kernel_weights_, strict=True):
        print(f"{weight:.3f}  {kernel}")
    print(
        f"accuracy {clf.score(X_test, y_test):.3f}, duality gap {clf.duality_gap_:.1e}, {len(clf.support_)} "
        "support vectors"
    )
    clf.save(options.out)
    print(f"the model is in {options.out}")


if __name__ == "__main__":
    main()
