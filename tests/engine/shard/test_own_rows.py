"""Which rows a shard has, and what it has told of them."""

import numpy as np

from raymkl.engine.shard.own_rows import OwnRows

X = np.random.default_rng(0).normal(size=(300, 4)) + 5.0
OWN = slice(100, 400)
GATES = np.arange(1000.0).reshape(500, 2)


def own_rows(gates=None):
    return OwnRows({"x": X, "other": X[:, :1]}, OWN.start, gates)


def test_ids_and_numbers():
    own, ids = own_rows(), np.array([399, 5, 100, 400, 250, 99])
    assert own.n == 300 and own.range == OWN
    np.testing.assert_array_equal(ids[own.has(ids)], [399, 100, 250])
    np.testing.assert_array_equal(own.numbers(ids), [299, 0, 150])
    np.testing.assert_array_equal(own.distinct(np.array([7, 3]), np.array([3, 0])), [0, 3, 7])


def test_gates_are_those_of_own_rows():
    own = own_rows(GATES)
    np.testing.assert_array_equal(own.gates, GATES[OWN])
    own.set_gates(-GATES)
    np.testing.assert_array_equal(own.gates, -GATES[OWN])
    assert own_rows().gates is None


def test_features_are_sent_once_and_only_of_the_views_that_travel():
    own = own_rows()
    ids, rows = own.unsent(np.array([2, 5]), ["x"])
    assert ids.tolist() == [102, 105] and list(rows) == ["x"]
    np.testing.assert_array_equal(rows["x"], X[[2, 5]])
    ids, rows = own.unsent(np.array([2, 5, 8]), ["x"])
    assert ids.tolist() == [108]
    np.testing.assert_array_equal(rows["x"], X[[8]])


def test_moments_are_sums_over_all_portions():
    n, sums, squares = own_rows().moments("x")
    assert n == 300
    np.testing.assert_allclose(sums, X.sum(axis=0))
    np.testing.assert_allclose(squares, (X**2).sum())
