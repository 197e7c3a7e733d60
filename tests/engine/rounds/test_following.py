"""Heads that come after another one: they wait for its result, begin from it, and learn what they would learn
alone.
"""

import numpy as np
import pytest

from raymkl.engine.rounds.admission import following
from tests.engine.rounds.test_heads import N, Run, Y, assert_same_solution, head_of, train

FOLDS = [np.arange(N) % 3 != fold for fold in range(3)]


def beside(after, **more):
    """A head of all rows and three folds, which come after it or do not."""
    heads = [head_of(**more), *(head_of(mask, watch=np.flatnonzero(~mask), **more) for mask in FOLDS)]
    for head in heads[1:]:
        head.after = 0 if after else None
    return heads


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"normalize": "multiplicative"},
        {"p": 1.0},
        {"p": 3.0},
        {"solver": "wrapper"},
        {"theta_step": "cutting_plane"},
    ],
    ids=str,
)
def test_they_learn_what_they_would_learn_alone(more):
    (ours, history), (alone, _) = train(beside(True, **more)), train(beside(False, **more))
    for one, other in zip(ours, alone, strict=True):
        assert_same_solution(
            one[0], other[0], atol=3e-3
        )  # what the tolerance leaves to rules that end elsewhere
    done = max(row["round"] for row in history if row["head"] == 0)
    assert min(row["round"] for row in history if row["head"] > 0) > done


def test_several_shards_and_little_room_change_nothing():
    """Folds then come in one by one."""
    whole, _ = train(beside(True))
    parts, history = train(beside(True), shards=3, budget=80_000)
    assert (
        max(sum(row["round"] == number for row in history) for number in {row["round"] for row in history})
        < 4
    )
    for one, other in zip(parts, whole, strict=True):
        assert_same_solution(one[0], other[0])
        assert one[0].f is None or np.abs(one[0].f - other[0].f).max() < 1e-4


def test_heads_that_share_weights_come_after_a_group():
    targets = [np.where(np.arange(N) % 3 == k, 1.0, -1.0) * Y for k in range(2)]
    heads = [head_of(targets=t, group=0) for t in targets] + [
        head_of(FOLDS[0], targets=t, group=1) for t in targets
    ]
    alone, _ = train(heads)
    for place, head in enumerate(heads[2:]):
        head.after = place
    ours, _ = train(heads)
    for one, other in zip(ours, alone, strict=True):
        assert_same_solution(one[0], other[0], atol=3e-3)


def test_a_path_is_waited_for_as_far_as_its_first_stage():
    heads = [head_of(path=(0.1, 1.0)), head_of(FOLDS[0], path=(0.1, 1.0))]
    heads[1].after = 0
    with Run() as coordinator:
        seen = []
        for rows in coordinator.rounds(heads):
            seen += [(row["head"], row["stage"]) for row in rows]
        results = coordinator.outcome(heads)
    assert [len(stages) for stages in results] == [2, 2] and seen.index((1, 0)) > seen.index((0, 0))
    alone, _ = train([head_of(FOLDS[0])])
    assert_same_solution(results[1][1], alone[0][0], atol=1e-4)


@pytest.mark.parametrize(
    "size, takes_variables", [(N, False), (N // 3, True)], ids=["all rows at once", "some rows at a time"]
)
def test_what_is_taken_over(size, takes_variables):
    with Run() as coordinator:
        coordinator.begin(1)
        shared = coordinator.shared
        shared.plan = type(shared.plan)(**{**vars(shared.plan), "working_set": size})
        found, _ = train([head_of()])
        follower = head_of(FOLDS[0])
        assert following(shared, follower, {0: found[0]}) is follower  # it comes after nobody
        follower.after = 0
        assert following(shared, follower, {0: []}) is follower
        a, theta = following(shared, follower, {0: found[0]}).start
        np.testing.assert_array_equal(theta, found[0][0].theta)
        assert bool(a.any()) == takes_variables
        follower.start = (np.ones(N), np.ones(3))  # of a run that is resumed
        assert following(shared, follower, {0: found[0]}) is follower
