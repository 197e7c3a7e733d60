"""Which folds may stand beside a fit, and what a file holds of them."""

import numpy as np
import pytest
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from raymkl.models.probability.splits import check_folds_params, partition_of, settings_of, storable

Y = np.repeat([0, 1, 2], 8)


@pytest.mark.parametrize(
    "cv",
    [3, None, StratifiedKFold(4), KFold(4, shuffle=True, random_state=0), PredefinedSplit(np.arange(24) % 3)],
    ids=repr,
)
def test_folds_hold_every_row_out_once(cv):
    splits = partition_of(cv, Y, classifier=True)
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(24))
    assert all(len(np.intersect1d(train, test)) == 0 for train, test in splits)


def test_parts_may_be_masks():
    mask = np.arange(24) % 2 == 0
    splits = partition_of([(mask, ~mask), (~mask, mask)], Y, classifier=True)
    np.testing.assert_array_equal(splits[0][1], np.flatnonzero(~mask))


@pytest.mark.parametrize(
    "cv, words",
    [
        (ShuffleSplit(3, random_state=0), "partition"),
        (TimeSeriesSplit(3), "partition"),
        (9, "class 0 has 8 rows, fewer than the 9 folds"),
        (LeaveOneOut(), "fewer than the 24 folds"),
        (KFold(3), "no example of class 0"),
        ([(np.arange(24), np.arange(12)), (np.arange(24), np.arange(12, 24))], "holds out"),
        ([(np.r_[0:12, 0:12], np.arange(12, 24)), (np.arange(12, 24), np.arange(12))], "class"),
        ([(np.r_[1:24:2, 1], np.arange(0, 24, 2)), (np.arange(0, 24, 2), np.arange(1, 24, 2))], "twice"),
        (GroupKFold(3), "groups"),
    ],
    ids=str,
)
def test_other_folds_are_refused(cv, words):
    with pytest.raises(ValueError, match=words):
        partition_of(cv, Y, classifier=True)


def test_numbers_have_no_classes():
    assert len(partition_of(LeaveOneOut(), np.arange(5.0), classifier=False)) == 5


@pytest.mark.parametrize(
    "name, more",
    [
        ("probability", {"probability": "platt"}),
        ("probability", {"probability": True}),
        ("conformal", {"conformal": 1}),
    ],
)
def test_parameters_are_named(name, more):
    with pytest.raises(ValueError, match=f"{name} must be"):
        check_folds_params(**{"conformal": False, "cv": 5, **more})


@pytest.mark.parametrize("cv", [1, 0, True, "five", 2.5, {"n_splits": 3}], ids=repr)
def test_cv_is_checked_where_it_is_asked_for(cv):
    with pytest.raises(ValueError, match="cv must be"):
        check_folds_params(True, cv)
    check_folds_params(False, cv)


def test_files_hold_splitters_or_the_folds_that_were_made():
    fold = np.arange(6) % 2
    assert storable(4, fold) == 4 and storable(None, None) is None
    kept = StratifiedKFold(3, shuffle=True, random_state=7)
    assert storable(kept, fold) is kept and settings_of(kept) == {
        "n_splits": 3,
        "shuffle": True,
        "random_state": 7,
    }
    for other in (
        KFold(2, shuffle=True, random_state=np.random.RandomState(0)),
        [(np.arange(3), np.arange(3, 6))],
        LeaveOneOut(),
    ):
        np.testing.assert_array_equal(storable(other, fold).test_fold, fold)
    with pytest.raises(TypeError, match="cannot be saved"):
        storable(LeaveOneOut(), None)
