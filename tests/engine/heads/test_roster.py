"""Who works, who waits and who has gone, without any shards."""

import numpy as np

from raymkl.engine.heads.roster import HeadAtWork, Roster
from tests import builders

Y = np.array([1.0, -1.0, 1.0])


def head_of(group=None):
    return builders.head_of(Y, group=group)


def let_work(roster, room):
    """Numbers of the heads that come in."""
    numbers = [h for h, _ in roster.call_up(room)]
    roster.at_work.update({h: HeadAtWork(None, np.ones(1), np.ones(1)) for h in numbers})
    return numbers


def test_heads_wait_until_there_is_room():
    roster = Roster()
    assert roster.add([head_of(), head_of(), head_of()]) == [0, 1, 2] and roster.n_heads == 3
    assert let_work(roster, 2) == [0, 1] and let_work(roster, 2) == []
    assert roster.drop([0]) == [0] and roster.n_heads == 2
    assert let_work(roster, 2) == [2]


def test_heads_that_share_weights_come_in_together():
    roster = Roster()
    roster.add([head_of(group=7), head_of(), head_of(group=7)])
    assert let_work(roster, 1) == [0, 2]  # more than there is room for, but alone
    assert let_work(roster, 2) == []
    roster.drop([0, 2])
    assert let_work(roster, 1) == [1]


def test_numbers_go_on_and_finished_heads_do_not_wait():
    roster = Roster()
    assert roster.add([head_of(), head_of()], finished={0}) == [0, 1]
    assert roster.add([head_of()]) == [2]
    assert let_work(roster, 5) == [1, 2]


def test_shards_are_told_once_of_heads_that_were_at_work():
    roster = Roster()
    roster.add([head_of(), head_of()])
    let_work(roster, 1)
    assert roster.drop([1, 0, 0]) == [0]  # the other one has never worked
    assert roster.n_heads == 0
    assert roster.take_dropped() == [0] and roster.take_dropped() == []


def test_heads_wait_for_the_one_that_they_come_after():
    roster = Roster()
    roster.add([head_of()])  # so that numbers are not places
    let_work(roster, 1)
    first, other, follower = head_of(), head_of(), head_of()
    follower.after = 0
    assert roster.add([first, follower, other]) == [1, 2, 3]
    assert let_work(roster, 9) == [1, 3]  # others need not wait
    assert [head.after for _, head in roster.waiting[0]] == [1] and follower.after == 0
    assert roster.call_up(9) == [] and roster.n_heads == 4
    assert [h for h, _ in roster.call_up(9, begun={1})] == [2]


def test_nobody_waits_for_a_head_that_is_gone():
    roster = Roster()
    follower = head_of()
    follower.after = 0
    roster.add([head_of(), follower])
    let_work(roster, 9)
    roster.drop([0])
    assert let_work(roster, 9) == [1]
    roster, alone = Roster(), head_of()
    alone.after = 0
    roster.add([alone])
    assert let_work(roster, 9) == [0]  # it would wait for itself
