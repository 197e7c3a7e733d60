"""Direct connections: what arrives is what was sent, only those who know the key are listened to, and calls equal those through Ray."""

import functools
import socket
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.engine.faults.policy import FailurePolicy, ShardsLost
from raymkl.engine.params import RayParams
from raymkl.engine.pools import direct, ray_pool
from raymkl.engine.pools.direct import ALIGNED, KEY_BYTES, Connection, Door, Frame, Unreadable, connect
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.pools.ray_pool import RayPool
from raymkl.engine.pools.ray_shards import shard_actors
from raymkl.engine.problem import HeadReply, RoundReply, RoundRequest
from raymkl.engine.rounds.coordinator import Coordinator
from tests.builders import MIXED_BANK as BANK
from tests.builders import head_of, problem_of
from tests.reference import noisy_problem

X, Y = noisy_problem(60, seed=11)

KEY = bytes(range(KEY_BYTES))


@functools.cache
def ends():
    """Two connected ends, which all tests of frames share."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return Connection(one), Connection(listener.accept()[0])


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    for end in ends():
        end.close()


def fresh_ends():
    return ends.__wrapped__()


def carried(message):
    """The message after a journey; large ones need a sender of their own."""
    here, there = ends()
    sender = threading.Thread(target=here.send, args=(Frame(message), 10.0))
    sender.start()
    found = there.receive(10.0)
    sender.join()
    return found


# -- frames -----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(rows=st.integers(0, 30_000), width=st.integers(1, 9))
def test_a_reply_arrives_as_it_was(rows, width):
    rng = np.random.default_rng(rows)
    ids, residual = np.arange(rows), rng.normal(size=rows)
    part = HeadReply(3, ids, residual, ids, residual, ids, rng.normal(size=(rows, width)), np.ones(width), np.ones(2))
    reply = RoundReply(7, [part], ids, {"v": rng.normal(size=(rows, 3)).astype(np.float32)})
    back = carried(reply)
    assert back.round == 7 and back.heads[0].head == 3
    for name, value in vars(part).items():
        np.testing.assert_array_equal(getattr(back.heads[0], name), value)
    found = back.new_rows["v"]
    np.testing.assert_array_equal(found, reply.new_rows["v"])
    assert found.dtype == np.float32 and found.flags.aligned and found.flags.writeable
    assert found.size == 0 or found.ctypes.data % ALIGNED == 0


def test_all_kinds_of_rows_travel():
    rows = {
        "sparse": sp.random(50, 30, 0.2, format="csr", random_state=0),
        "columns of a larger array": np.arange(400.0).reshape(20, 20)[:, ::3],
        "strings": np.array(["ACGT", "", "TTTTTT"], dtype=object),
        "none": np.empty((0, 4)),
    }
    ids = np.arange(3)
    back = carried(RoundRequest(1, ids, ids, rows))
    np.testing.assert_array_equal(back.rows["sparse"].toarray(), rows["sparse"].toarray())
    for name in list(rows)[1:]:
        np.testing.assert_array_equal(back.rows[name], rows[name])


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 40, 5_000])
def test_receiving_goes_on_after_a_time_out(cut):
    here, there = fresh_ends()
    message = {"a": np.arange(2_000.0), "b": [1, 2]}
    (whole,) = Frame(message).parts
    here.end.sendall(whole[:cut])
    for _ in range(2):
        with pytest.raises(TimeoutError):
            there.receive(0.02)
    here.end.sendall(whole[cut:] + whole)
    for _ in range(2):
        back = there.receive(5.0)
        np.testing.assert_array_equal(back["a"], message["a"])
        assert back["b"] == [1, 2]


def test_an_end_that_is_gone_is_noticed():
    here, there = fresh_ends()
    here.end.sendall(Frame("half").parts[0][:20])
    here.close()
    with pytest.raises(ConnectionError, match="the other end is gone"):
        there.receive(5.0)


def test_sending_goes_on_after_a_time_out():
    here, there = fresh_ends()
    message = np.arange(5_000_000)  # more than the system takes at once
    frame, found = Frame(message), []
    for _ in range(2):
        with pytest.raises(TimeoutError):
            here.send(frame, 0.1)
    reader = threading.Thread(target=lambda: found.extend(there.receive(10.0) for _ in range(2)))
    reader.start()
    here.send(frame, 10.0)
    here.send(Frame("next"), 10.0)
    reader.join()
    np.testing.assert_array_equal(found[0], message)
    assert found[1] == "next"


# -- meeting ----------------------------------------------------------------------------------------------------------


def work(method, *arguments):
    """What a door does here instead of a shard."""
    if method == "fail":
        raise ValueError("as it was said")
    if method == "fail oddly":
        raise _Odd("one", "two")
    if method == "unpicklable":
        return threading.Lock()
    return method, arguments


class _Odd(Exception):
    """An exception that pickle cannot bring back."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def asked(connection, method, *arguments, number=1):
    connection.send(Frame((number, method, arguments)), 5.0)
    return connection.receive(5.0)


def test_calls_are_answered():
    connection = connect(Door("127.0.0.1", KEY, work).address, KEY)
    assert asked(connection, "echo", 1, "b", number=5) == (5, True, ("echo", (1, "b")))
    number, fine, error = asked(connection, "fail", number=6)
    assert (number, fine, str(error)) == (6, False, "as it was said") and isinstance(error, ValueError)
    assert "in work" in error.__notes__[0]  # where it happened
    for method, words in (("fail oddly", "one and two"), ("unpicklable", "pickle")):
        number, fine, error = asked(connection, method)
        assert (number, fine) == (1, False) and words in str(error) and isinstance(error, RuntimeError | TypeError)
    assert asked(connection, "echo")[1]  # and it goes on


def test_what_cannot_be_read_is_answered():
    connection = connect(Door("127.0.0.1", KEY, work).address, KEY)
    connection.send(Frame(None, dumps=lambda *_, **__: b"cno_such\nmodule\n."), 5.0)
    number, fine, error = connection.receive(5.0)
    assert number is None and not fine and isinstance(error, Unreadable) and "no_such" in str(error)
    assert asked(connection, "echo")[1]


def test_a_door_is_open_to_one_who_knows_the_key_and_closes_behind_him():
    door = Door("127.0.0.1", KEY, work)
    assert connect(door.address, bytes(KEY_BYTES)) is None
    connection = connect(door.address, KEY)
    assert asked(connection, "echo")[1]
    assert connect(door.address, KEY) is None
    connection.close()


def test_proofs_cannot_be_sent_back():
    """Who knows no key but repeats all that he hears is not let in."""
    door = Door("127.0.0.1", KEY, work)
    with socket.create_connection(door.address) as mirror:
        mirror.settimeout(5.0)
        mirror.sendall(direct._exactly(mirror, KEY_BYTES))
        mirror.sendall(direct._exactly(mirror, KEY_BYTES))
        assert mirror.recv(1) == b""
    assert asked(connect(door.address, KEY), "echo")[1]


class _Trap:
    def __reduce__(self):
        return SPRUNG.append, (1,)


SPRUNG: list = []


def test_nothing_of_a_stranger_is_unpickled():
    door = Door("127.0.0.1", KEY, work)
    with socket.create_connection(door.address) as stranger:
        stranger.settimeout(5.0)
        stranger.sendall(Frame(_Trap()).parts[0])
        with pytest.raises(ConnectionError):
            for _ in range(3):
                direct._exactly(stranger, KEY_BYTES)
    assert asked(connect(door.address, KEY), "echo")[1] and SPRUNG == []


def test_a_shard_is_not_spoken_to_before_it_has_proved_itself():
    """A stranger who has taken the place of a shard gets no message."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = []
        waiting = threading.Thread(target=lambda: found.append(connect(listener.getsockname(), KEY)))
        waiting.start()
        end, _ = listener.accept()
        end.sendall(bytes(2 * KEY_BYTES))
        waiting.join(10)
        assert found == [None]


def test_no_way_is_no_connection(monkeypatch):
    monkeypatch.setattr(direct, "GREETING_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        assert connect(address, KEY) is None
    assert connect(address, KEY) is None  # and now nobody is there


@pytest.mark.parametrize(("value", "encrypted"), [("1", True), ("true", True), ("0", False), (None, False)])
def test_clusters_that_encrypt_their_traffic_have_no_connections(monkeypatch, value, encrypted):
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    if value is not None:
        monkeypatch.setenv("RAY_USE_TLS", value)
    assert (direct.wanted() is None) == encrypted
    assert encrypted or direct.wanted() != direct.wanted()


# -- a pool -----------------------------------------------------------------------------------------------------------

PARAMS = RayParams(num_shards=2, cpus_per_shard=0.5, timeout_s=20.0)


@pytest.fixture
def place(ray_cluster):
    with shard_actors({None: X}, problem_of(BANK, len(X)), PARAMS) as found:
        yield found


def trained(pool, policy=None):
    coordinator = Coordinator(pool, problem_of(BANK, len(X)), policy=policy)
    coordinator.load()
    ((result,),) = coordinator.run([head_of(Y)])
    return result, coordinator


def test_both_ways_and_the_local_pool_give_the_same_bits(place, monkeypatch):
    pools = [RayPool(place, PARAMS) for _ in range(3)]
    pools[1].key = None
    results = []
    for pool in pools:
        if pool is pools[2]:
            monkeypatch.setattr(ray_pool, "MOST_DIRECT_BYTES", 0)
        results.append(trained(pool)[0])
        assert (pool.connections == [None, None]) == (pool is pools[1])
        assert (pool.calls > 5) == (pool is pools[0])
        pool.close()
    results.append(trained(LocalPool({None: X}, problem_of(BANK, len(X)), 2))[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result.a, results[0].a)
        np.testing.assert_array_equal(result.theta, results[0].theta)


def test_where_one_shard_cannot_be_reached_all_are_called_through_ray(place, monkeypatch):
    tried = []
    monkeypatch.setattr(direct, "connect", lambda address, key: tried.append(address))
    pool = RayPool(place, PARAMS)
    assert trained(pool)[0].converged
    assert len(tried) == 1 and pool.key is None and pool.calls == 0


def test_functions_and_errors_travel(place):
    pool = RayPool(place, PARAMS)
    pool.load([0, 1])
    offset = 10

    def where(shard, more):
        if more < 0:
            raise KeyError("never less than nothing")
        return shard.first + offset + more

    firsts = [first for first, _ in pool.bounds]
    assert pool.call_all("apply", where, 1) == [first + 11 for first in firsts]
    with pytest.raises(KeyError, match="never less than nothing"):
        pool.call_all("apply", where, -1)
    assert pool.call_some([(1, "apply", (where, 2))]) == [firsts[1] + 12]
    pool.close()


def test_answers_to_calls_that_were_given_up_are_passed_over(place):
    pool = RayPool(place, PARAMS)
    pool.load([0, 1])
    pool.connections[0].send(Frame((0, "ping", ())), 5.0)
    assert pool.call_all("fetch", np.empty(0, np.int64))[0][None].shape == (0, X.shape[1])


def test_a_shard_that_is_still_busy_is_waited_for(place):
    """Neither a call that takes long nor one that does not fit into the system's buffers is a reason to give up a shard."""
    params = RayParams(num_shards=2, cpus_per_shard=0.5, timeout_s=1.5)  # long enough for a ping on a busy machine
    pool = RayPool(place, params)
    pool.params = PARAMS  # to start
    pool.load([0, 1])
    pool.params = params

    def slow(shard, *_):
        import time

        time.sleep(2.5)
        return shard.first

    firsts = [first for first, _ in pool.bounds]
    pool.connections[0].send(pool._frame("apply", (slow,)), 5.0)  # given up by nobody's fault
    pool.calls += 1
    assert pool.call_all("apply", slow, np.zeros(2_000_000)) == firsts


def test_a_connection_that_ends_is_a_loss_and_the_next_shard_is_called_through_ray(place):
    pool, policy = RayPool(place, PARAMS), FailurePolicy(3)
    coordinator = Coordinator(pool, problem_of(BANK, len(X)), policy=policy)
    coordinator.load()
    expected = trained(LocalPool({None: X}, problem_of(BANK, len(X)), 2))[0]
    cut = []
    original = pool.call_all

    def call_all(method, *arguments):
        if method == "advance" and coordinator.round == 2 and not cut:
            cut.append(pool.connections[1])
            pool.connections[1].end.shutdown(socket.SHUT_RDWR)
        return original(method, *arguments)

    pool.call_all = call_all
    ((result,),) = coordinator.run([head_of(Y)])
    assert cut and policy.total == 1 and "its connection ended" in policy.take_news()[0]
    assert pool.connections[1] is None and pool.key is None
    np.testing.assert_allclose(result.a, expected.a, atol=1e-9)
    pool.close()


def test_a_shard_that_died_is_told_by_what_ray_knows(place, ray_cluster):
    pool = RayPool(place, PARAMS)
    pool.load([0, 1])
    ray_cluster.kill(pool.actors[1])
    with pytest.raises(ShardsLost) as caught:
        for _ in range(100):
            pool.call_all("fetch", np.empty(0, np.int64))
    assert list(caught.value.lost) == [1] and "Actor" in caught.value.lost[1]
