"""The course of a head as its certificates make it, and the small things that it is made of."""

import numpy as np
import pytest

from raymkl.engine.heads.ascent import Ascent, DualBox, Point
from raymkl.engine.heads.state import (
    FUTILE_PROOFS,
    MOST_HELD,
    MOST_PROOFS,
    NARROW_PATIENCE,
    PATIENCE,
    POLISH_ROUNDS,
    STALLED,
    Correction,
    Course,
    Seen,
    State,
    WorkingSet,
)
from raymkl.engine.heads.summary import HeadSummary
from raymkl.optim.certificate import Certificate
from raymkl.optim.losses import EpsilonInsensitive
from raymkl.optim.weights import Follow
from tests.builders import head_of

Y = np.where(np.arange(8) % 2, -1.0, 1.0)
A, THETA = np.arange(8.0), np.ones(3)
TOL = 1e-3


def certificate(gap, dual=1.0):
    return Certificate(dual * (1 + gap), dual, gap, 0.0, gap, 0.0)


def course_of(patience=PATIENCE, **more):
    return Course(head_of(Y, **{"tol": TOL, **more}), patience)


def after_round(course, gap, dual=1.0, **more):
    """One round that shows a gap; the state after it."""
    course.rounds += 1
    course.remember(certificate(gap, dual), A, THETA)
    course.decide(certificate(gap, dual), gap <= TOL, **more)
    return course.state


def proof(course, gap, held=False):
    """A round that believes in a small gap, and its proof; the state after it."""
    assert after_round(course, 0.5 * TOL, held=held) is State.READY and course.asks_for_proof
    course.settle(certificate(gap), A, THETA, held)
    return course.state


# -- states ----------------------------------------------------------------------------------------


def test_work_proof_done():
    course = course_of()
    assert after_round(course, 0.5) is State.WORKING and not course.asks_for_proof
    assert proof(course, 0.9 * TOL) is State.DONE
    assert course.is_over and course.proved.certificate.gap == 0.9 * TOL


def test_a_proof_that_fails_is_followed_by_work():
    course = course_of()
    assert proof(course, 5 * TOL) is State.WORKING
    assert (
        course.best is course.proved and course.best.certificate.gap == 5 * TOL
    )  # not what the round believed
    assert proof(course, 0.5 * TOL) is State.DONE


@pytest.mark.parametrize(
    "gaps, last", [((0.5, 0.2, 0.4), State.GOING_BACK), ((0.5, 0.4, 0.2), State.GIVING_UP)]
)
def test_after_the_last_round_a_head_goes_back_to_its_best_point(gaps, last):
    course = course_of(max_rounds=3)
    assert [after_round(course, gap) for gap in gaps] == [State.WORKING, State.WORKING, last]
    if last is State.GOING_BACK:
        assert not course.asks_for_proof
        assert after_round(course, 0.3) is State.GIVING_UP  # there, whatever it looks like
    course.settle(certificate(0.25), A, THETA)
    assert course.state is State.DONE


def test_a_dual_above_the_ceiling_ends_a_head():
    course = course_of(ceiling=2.0)
    assert after_round(course, 0.5, dual=1.9) is State.WORKING
    assert after_round(course, 0.5, dual=2.1) is State.GIVING_UP


def test_patience_ends():
    course = course_of(patience=5)
    states = [after_round(course, 0.5) for _ in range(7)]
    assert states == [State.WORKING] * 6 + [State.GIVING_UP]
    course.settle(certificate(0.5), A, THETA)
    assert course.state is State.EXHAUSTED and course.is_over


def test_progress_of_a_thousandth_is_none():
    course = course_of(patience=3)
    gaps = 0.5 * 0.9995 ** np.arange(5)
    assert [after_round(course, gap) for gap in gaps][-1] is State.GIVING_UP
    assert course.best.certificate.gap == gaps[-1]  # but it is the best point


def test_steps_that_must_ascend_and_do_not_ask_for_a_proof():
    course = course_of()
    states = [after_round(course, 0.5, ascends=True) for _ in range(STALLED + 2)]
    assert states == [State.WORKING] * (STALLED + 1) + [State.READY]
    course.settle(certificate(0.5), A, THETA)
    assert course.state is State.WORKING
    for _ in range(STALLED + 1):
        state = after_round(course, 0.5, ascends=True)
    assert state is State.READY
    course.settle(certificate(0.45), A, THETA)  # the second proof shows nothing new
    assert course.state is State.EXHAUSTED


@pytest.mark.parametrize("patience, most", [(PATIENCE, FUTILE_PROOFS), (NARROW_PATIENCE, 2)])
def test_proofs_that_show_no_better_gap_end_a_stage(patience, most):
    course = course_of(patience)
    states = [proof(course, 0.1) for _ in range(most + 1)]
    assert states == [State.WORKING] * most + [State.EXHAUSTED]


def test_there_is_an_end_of_proofs():
    course = course_of()
    states = [proof(course, 0.6**k) for k in range(12)]  # each shows a better gap
    assert states[-1] is State.WORKING
    gap = 0.6**12
    for _ in range(MOST_PROOFS - 12):
        gap = max(0.6 * gap, 1.1 * TOL)
        state = proof(course, gap)
        if state is not State.WORKING:
            break
    assert state is State.EXHAUSTED


def test_held_weights_are_released_before_a_head_gives_up():
    course = course_of()
    for k in range(MOST_HELD):
        assert after_round(course, 0.5 * TOL, held=True) is State.READY
        assert not course.settle(certificate(0.5 * 0.6**k), A, THETA, held=True)
    after_round(course, 0.5 * TOL, held=True)
    assert course.settle(certificate(0.01), A, THETA, held=True)
    assert course.state is State.WORKING and course.proofs == 1


def test_more_precise_statistics_begin_with_new_patience():
    course = course_of(patience=2)
    for _ in range(4):
        after_round(course, 0.5)
    course.settle(certificate(0.5), A, THETA)
    assert course.state is State.EXHAUSTED
    course.widen()
    assert (
        course.state is State.WORKING
        and course.proofs == 0
        and course.patience == PATIENCE
        and course.proved is not None
    )
    assert after_round(course, 0.5) is State.WORKING


def test_a_stage_knows_nothing_of_the_last_one():
    course = course_of(max_rounds=5)
    proof(course, 0.5 * TOL)
    course.start_stage()
    assert course.state is State.WORKING and course.best is None and course.proved is None
    assert [after_round(course, 0.5) for _ in range(5)][
        -1
    ] is State.GIVING_UP  # rounds count from its beginning


def test_polishing_ends_at_round_off():
    course = course_of()
    assert not course.polishes(1e-10, polished=1e-9)
    assert all(course.polishes(0.4**k, 1e-9) for k in range(10)) and course.polish_left == POLISH_ROUNDS - 10
    more = [course.polishes(1e-3, 1e-9) for _ in range(5)]
    assert more == [True] * 4 + [False]


def test_best_points_are_copies():
    course, a, theta = course_of(), A.copy(), THETA.copy()
    assert course.remember(certificate(0.5), a, theta) and not course.remember(certificate(0.5), a, theta)
    assert not course.remember(certificate(np.nan), a, theta)
    a[:], theta[:] = -1, -1
    np.testing.assert_array_equal(course.best.a, A)
    np.testing.assert_array_equal(course.best.theta, THETA)


# -- parts -----------------------------------------------------------------------------------------


def summary_of(grow, grow_residual, shrink, shrink_residual, ids=()):
    none = np.empty(0)
    return HeadSummary(
        *map(np.asarray, (grow, grow_residual, shrink, shrink_residual, ids)), none, none, none, none
    )


def test_what_a_round_shows():
    seen = Seen.of(summary_of([0, 1], [0.5, 0.2], [3], [-0.1]))
    assert seen.violation == pytest.approx(0.6) and seen.middle == pytest.approx(0.2) and not seen.stale
    assert Seen.of(summary_of([0], [0.5], [1], [0.7])).violation == 0.0
    one_side = Seen.of(summary_of([0], [0.5], [], []))
    assert one_side.middle == 0.5 and one_side.violation == 0.0  # b lies beyond it


def test_a_proof_corrects_the_rounds_after_it():
    correction = Correction(2)
    np.testing.assert_array_equal(correction.applied(np.array([1.0, 2.0])), [1.0, 2.0])
    correction.proved = np.array([1.5, 2.0])
    np.testing.assert_array_equal(correction.applied(np.array([1.0, 2.25])), [1.5, 2.0])
    np.testing.assert_array_equal(
        correction.applied(np.array([3.0, 3.0])), [3.5, 2.75]
    )  # errors stay as they were
    correction.stretched(2.0)
    np.testing.assert_array_equal(correction.applied(np.array([3.0, 3.0])), [5.0, 2.0])


def test_rows_inside_their_box_stay_and_those_that_left_the_rounds_go():
    rows, head = WorkingSet(8, size=4, new=1), head_of(Y)
    rows.ids, box = np.array([0, 2, 4, 6]), DualBox(head)
    rows.entered[[0, 2, 4, 6]] = [1, 3, 2, 2]
    a = np.array([0.5, 0, 0.5, 0, 0.5, 0, 1.0, 0])  # row 6 is at its bound
    found = rows.next(summary_of([1], [0.5], [3], [-0.5]), a, box, 4, shrinks=False)
    assert set(found) >= {1, 2} and 6 not in found and len(found) <= 4
    assert rows.entered[1] == 4 and rows.entered[2] == 3
    rows.next(summary_of([1], [0.5], [3], [-0.5], ids=[0, 1, 3, 6]), a, box, 5, shrinks=True)
    np.testing.assert_array_equal(rows.ids, [0, 6])


@pytest.mark.parametrize("loss", [None, EpsilonInsensitive(0.1)])
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_stretch_into_a_new_stage_is_the_best_one(loss, factor):
    """Of all multiples of the dual variables in the new box, by a grid: t * value - t^2 / 2 * dual_norm."""
    head = head_of(Y, C=1.0, path=(1.0, factor), loss=loss)
    rng = np.random.default_rng(1)
    a, s = Y * rng.uniform(0.2, 1.0, 8), rng.uniform(0.5, 2.0, 3)
    box, point = DualBox(head), Point.start(head, 3)
    point.a, point.s = a.copy(), s.copy()
    ascent = Ascent(head, box, point, Follow(head.norm, np.ones(3, bool), TOL), np.eye(3), np.zeros(3))
    value, size = ascent.dual_value, head.norm.dual(s)
    t = ascent.best_stretch(1)
    ascent.enter(1, t)
    grid = np.linspace(min(factor, 1.0), factor, 2001) if factor > 1 else np.array([factor])
    best = grid[np.argmax(grid * value - grid**2 / 2 * size)]
    assert t == pytest.approx(best, abs=2e-3)
    np.testing.assert_array_equal(point.a, np.clip(a * t, box.lower, box.upper))
    np.testing.assert_allclose(point.s, s * t**2)
    assert box.stage == 1 and box.bounds_factor == factor and np.all(box.terms.bounds == factor)
