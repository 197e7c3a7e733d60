"""scikit-learn's own list of what an estimator must do, over several configurations."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from raymkl import MKLClassifier, RayParams
from raymkl.kernels import rbf

BANK = rbf([0.1, 1.0])
CONFIGURATIONS = [
    {},
    {"kernels": None},
    {"solver": "wrapper"},
    {"theta_step": "cutting_plane"},
    {"normalize": "spherical"},
    {"normalize": "multiplicative", "p": 1},
    {"class_weight": "balanced"},
    {"dtype": "float32", "ray_params": RayParams(num_shards=3)},
    {"p": 3},
]
WEIGHTS_ARE_REPETITIONS = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")


def expected_failures(model):
    """One pair of checks compares two fits to 1e-7: of weighted rows, and of the same rows repeated or removed.

    `test_classifier_api` makes the same comparison at a small tolerance. To 1e-7 it holds for small problems in float64 with
    chunking and analytic weights (which are polished beyond the tolerance) and for no other, for the reasons given here.
    """
    if model.kernels is None:
        reason = "the widths come from the distances of all rows, repeated rows (distance 0) and rows of weight 0 included"
    elif model.class_weight == "balanced":
        reason = "class frequencies count rows, not their weights"
    elif model.solver == "wrapper" or model.theta_step == "cutting_plane" or model.p == 1:
        reason = "stops at tol; two paths to the same optimum end up tol apart"
    elif model.dtype == "float32":
        reason = "kernel values are right to 2e-6"
    else:
        return {}
    return dict.fromkeys(WEIGHTS_ARE_REPETITIONS, reason)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [MKLClassifier(**{"kernels": BANK, "engine": "local", **more}) for more in CONFIGURATIONS],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn(estimator, check):
    check(estimator)
