"""Processes of sessions: they stand between fits, are replaced when they are lost, and go with the
session.
"""

import gc
import threading

import pytest

from raymkl import MKLClassifier, Session
from tests.engine.faults.faulty_kernel import faulty
from tests.engine.test_session import PARAMS, X80, Y, computed, model, same
from tests.processes import births, strike, wait_for
from tests.processes import own_workers as all_workers


def own_workers(word):
    return sorted(pid for pid, title in all_workers().items() if word in title)


@pytest.mark.ray
def test_actors_stand_between_fits_and_go_with_the_session(ray_cluster):
    with Session("ray", PARAMS) as session:
        model(session).fit(X80, Y)
        before = own_workers("Shard"), own_workers("Coordinator")
        assert (len(before[0]), len(before[1])) == (2, 1)
        model(session).fit(X80[:100], Y[:100])
        assert (own_workers("Shard"), own_workers("Coordinator")) == before
    assert wait_for(lambda: not all_workers(), 60)
    forgotten = Session("ray", PARAMS)
    model(forgotten).fit(X80, Y)
    del forgotten
    gc.collect()
    assert wait_for(lambda: not all_workers(), 60)


@pytest.mark.ray
def test_a_session_that_is_closed_ends_its_fits(ray_cluster, tmp_path):
    """The fit has an error to say, and nothing starts anew."""
    session = Session("ray", PARAMS)
    said = []

    def train():
        try:
            MKLClassifier(kernels=[faulty(tmp_path, 1, what="wait")], engine=session).fit(X80, Y)
        except RuntimeError as error:
            said.append(str(error))

    fit = threading.Thread(target=train)
    fit.start()
    assert wait_for(lambda: (tmp_path / "ready").exists(), 60)
    session.close()
    fit.join(600)
    assert said and "closed" in said[0]
    assert wait_for(lambda: not all_workers(), 60)


@pytest.mark.ray
@pytest.mark.parametrize("who", ["Shard", "Coordinator"])
def test_processes_lost_between_two_fits_are_replaced(ray_cluster, who):
    with Session("ray", PARAMS) as session:
        rows = session.put(X80)
        model(session).fit(rows, Y)
        victim = own_workers(who)[0]
        strike(births([victim]))
        assert wait_for(lambda: victim not in own_workers(who), 60)
        after = model(session).fit(rows, Y)
        assert same(after) and after.shard_failures_ == 0
        assert computed(model(session).fit(rows, Y)) == 0
        assert (len(own_workers("Shard")), len(own_workers("Coordinator"))) == (2, 1)
