"""Messages in pieces: what is joined is what was cut, and no piece is too large to travel with a call."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from raymkl.engine.messages import HeadReply, RoundReply, RoundRequest
from raymkl.engine.pieces import PIECE, REPLY_PIECES, cut, join, pieces_for

RAY_LIMIT = 100 * 1024


def reply_of(rows, rank=5):
    rng = np.random.default_rng(rows)
    grow, shrink, ids, new = (np.arange(rows) for _ in range(4))
    gradients = rng.normal(size=(rows, rank))
    part = HeadReply(3, grow, rng.normal(size=rows), shrink, rng.normal(size=rows), ids, gradients, np.ones(rank), np.ones(2))
    return RoundReply(7, [part], new, {"v": rng.normal(size=(rows, 3)).astype(np.float32)})


@given(rows=st.integers(0, 6000), most=st.integers(2, 12))
def test_a_message_comes_back_or_is_too_large(rows, most):
    reply = reply_of(rows)
    pieces, size = cut(reply, most)
    arrays = [*vars(reply.heads[0]).values(), reply.new_ids, reply.new_rows["v"]]
    content = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    assert content <= size <= content + 5000
    if pieces is None:
        assert size > most * PIECE - 5000
        return
    assert len(pieces) <= most and all(len(piece) <= PIECE < RAY_LIMIT for piece in pieces)
    back = join(pieces)
    assert back.round == 7 and back.heads[0].head == 3
    np.testing.assert_array_equal(back.heads[0].gradients, reply.heads[0].gradients)
    np.testing.assert_array_equal(back.heads[0].grow_residual, reply.heads[0].grow_residual)
    np.testing.assert_array_equal(back.new_rows["v"], reply.new_rows["v"])
    assert back.new_rows["v"].dtype == np.float32


def test_all_kinds_of_rows_travel():
    rows = {
        "sparse": sp.random(50, 30, 0.2, format="csr", random_state=0),
        "columns of a larger array": np.arange(400.0).reshape(20, 20)[:, ::3],
        "strings": np.array(["ACGT", "", "TTTTTT"], dtype=object),
        "none": np.empty((0, 4)),
    }
    ids = np.arange(3)
    back = join(cut(RoundRequest(1, ids, ids, rows), 4)[0])
    np.testing.assert_array_equal(back.rows["sparse"].toarray(), rows["sparse"].toarray())
    for name in list(rows)[1:]:
        np.testing.assert_array_equal(back.rows[name], rows[name])
    assert back.heads == [] and back.drop == []


@pytest.mark.parametrize("size", [0, 10, PIECE - 1, PIECE, 2 * PIECE, 500_000])
def test_a_reply_of_the_same_size_finds_enough_pieces(size):
    assert size / PIECE < pieces_for(size) <= REPLY_PIECES


def test_very_large_replies_are_not_cut():
    assert pieces_for(REPLY_PIECES * PIECE) == 1
    assert pieces_for(10**9) == 1
