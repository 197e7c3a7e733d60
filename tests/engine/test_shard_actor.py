"""The shard as an actor: its process loads no more than it needs, and pieces change nothing in what it answers."""

import subprocess
import sys

import numpy as np
import pytest

from raymkl.engine.messages import HeadRequest, RoundRequest
from raymkl.engine.params import RayParams
from raymkl.engine.pieces import REQUEST_PIECES, cut, join
from raymkl.engine.ray_pool import RayPool, _in_pieces, _whole, shard_actors
from raymkl.engine.shard import Shard
from raymkl.engine.shard_actor import ShardActor
from tests.engine.test_shards import BANK, X, head_of, opened, problem_of


def requests(rank_sums, rounds=3):
    """Some rounds that change dual variables of a few rows."""
    for number in range(1, rounds + 1):
        columns = np.arange(number, 60, 9)
        values = np.full(len(columns), 0.1 * number)
        part = HeadRequest(0, columns, columns, values, values, rank_sums, np.zeros(2), np.arange(0, 60, 2), 5)
        yield RoundRequest(number, columns, columns, {None: X[columns]}, [part])


@pytest.mark.parametrize("returns", [1, 2, 5])
@pytest.mark.parametrize("packed", [True, False])
def test_a_round_in_pieces_is_the_same_round(returns, packed):
    plain, actor = Shard(), ShardActor()
    for shard in (plain, actor):
        shard.load({None: X}, 0, problem_of(BANK))
    spread = opened(plain, [head_of()])
    opened(actor, [head_of()])
    for request in requests(spread.sum(axis=0)):
        expected = plain.advance(request)
        values = actor.advance_in_pieces(returns, *(cut(request, REQUEST_PIECES)[0] if packed else [request]))
        assert returns == 1 or len(values) == returns
        reply, size = _whole(values if returns > 1 else [values])
        assert size == pytest.approx(cut(expected, 0)[1], rel=0.2)
        np.testing.assert_array_equal(reply.heads[0].gradients, expected.heads[0].gradients)
        np.testing.assert_array_equal(reply.heads[0].grow, expected.heads[0].grow)
        np.testing.assert_array_equal(reply.new_rows[None], expected.new_rows[None])


def test_a_reply_that_outgrows_its_pieces_comes_whole():
    actor = ShardActor()
    rows = np.random.default_rng(0).normal(size=(3000, 40))
    actor.load({None: rows}, 0, problem_of(BANK, n=3000))
    spread = opened(actor, [head_of(np.where(rows[:, 0] > 0, 1.0, -1.0))], capacity=10)
    nothing = np.empty(0, np.int64)
    part = HeadRequest(0, nothing, nothing, np.empty(0), np.empty(0), spread.sum(axis=0), np.zeros(1), nothing, 1500, spaced=True)
    values = actor.advance_in_pieces(3, RoundRequest(1, nothing, nothing, {}, [part]))
    reply, size = values[0]
    assert values[1:] == [None, None] and size > reply.new_rows[None].nbytes > 300_000
    assert len(reply.new_ids) > 1000


def test_threads_come_with_the_rows():
    actor = ShardActor()
    assert actor.threads.threads == 1
    actor.load({None: X}, 0, problem_of(BANK), threads=3)
    assert actor.threads.threads == 3
    actor.threads.close()


# -- the process ------------------------------------------------------------------------------------------------------


def test_loading_the_actor_loads_what_a_shard_needs():
    code = "import raymkl.engine.shard_actor, sys; print({'ray', 'numba', 'scipy', 'pydantic'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "set()", result.stderr


LEFT_OUT = """
import sys, ray
from raymkl.engine.shard_actor import leave_out_pydantic
leave_out_pydantic()
compat = sys.modules.get("ray._common.pydantic_compat")
import pydantic  # whoever wants it still finds it
print(compat is None or not compat.PYDANTIC_INSTALLED, pydantic.BaseModel.__name__)
leave_out_pydantic()
import pydantic.fields
"""


def test_ray_does_without_pydantic_and_code_of_the_user_does_not():
    pytest.importorskip("pydantic")
    result = subprocess.run([sys.executable, "-c", LEFT_OUT], capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == ["True", "BaseModel"], result.stderr
    assert result.returncode == 0, result.stderr


def test_a_process_that_has_pydantic_already_is_left_alone():
    pytest.importorskip("pydantic")
    code = "import pydantic, ray\n" + LEFT_OUT.replace("not compat.PYDANTIC_INSTALLED", "compat.PYDANTIC_INSTALLED")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == ["True", "BaseModel"], result.stderr


def test_processes_of_shards_start_without_what_they_do_not_need(ray_cluster):
    def modules_of(shard):  # not a function of this module, whose import would load them
        return sorted(name for name in sys.modules if name in {"pydantic", "numba", "scipy"})

    problem = problem_of(BANK)
    params = RayParams(num_shards=2, cpus_per_shard=0.5)
    with shard_actors({None: X}, problem, params) as place:
        pool = RayPool(place, params)
        pool.load([0, 1])
        assert pool.call_all("apply", modules_of) == [[], []]


def test_the_pool_learns_how_many_pieces_replies_need(ray_cluster):
    """Small replies come in one value, larger ones in as many as they need from the second round on, and the answers are the same."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(4000, 3))
    problem, params = problem_of(BANK, n=4000), RayParams(num_shards=2, cpus_per_shard=0.5)
    head = head_of(np.where(rows[:, 0] > 0, 1.0, -1.0))
    nothing = np.empty(0, np.int64)
    plain = Shard()
    plain.load({None: rows}, 0, problem)
    spread = opened(plain, [head], capacity=10)
    with shard_actors({None: rows}, problem, params) as place:
        pool = RayPool(place, params)
        pool.load([0, 1])
        pool.call_all("prepare", {})
        pool.call_all("open", plain.bases, 10)
        pool.call_all("add_heads", {0: head})
        counts = []
        for number, wanted in enumerate([10, 4000, 4000, 10], start=1):
            watch = np.arange(wanted)
            part = HeadRequest(0, nothing, nothing, np.empty(0), np.empty(0), spread.sum(axis=0), np.zeros(1), watch, 2)
            counts.append(pool.reply_pieces)
            replies = pool.call_all("advance", RoundRequest(number, nothing, nothing, {}, [part]))
            ids = np.concatenate([reply.heads[0].ids for reply in replies])
            assert set(watch) <= set(ids.tolist()) and [reply.round for reply in replies] == [number] * 2
        assert counts[:2] == [1, 1] and 1 < counts[2] <= 8 and pool.reply_pieces == 1
        assert replies[0].heads[0].gradients.shape[1] == spread.shape[1]


def test_requests_that_are_too_large_for_pieces_go_through_the_object_store(ray_cluster):
    ids = np.arange(5)
    small = _in_pieces(RoundRequest(1, ids, ids, {None: np.zeros((5, 100))}))
    assert all(isinstance(piece, bytes) for piece in small) and join(small).rows[None].shape == (5, 100)
    (reference,) = _in_pieces(RoundRequest(1, ids, ids, {None: np.zeros((5, 100_000))}))
    assert ray_cluster.get(reference).rows[None].shape == (5, 100_000)
