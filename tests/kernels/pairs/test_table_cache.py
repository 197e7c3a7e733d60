"""Tables that were made lately are the tables that would be made again."""

import pickle
import threading

import numpy as np
import pytest

from raymkl.kernels import RBF, Laplacian, rbf
from raymkl.kernels.pairs import table_cache
from raymkl.kernels.pairs.basis import FormulaBasis
from raymkl.kernels.pairs.table_cache import MOST_TABLES, table_basis
from raymkl.kernels.pairs.tables import TableBasis, WideTableBasis

DTYPES = pytest.mark.parametrize("dtype, kind", [(np.float32, TableBasis), (np.float64, WideTableBasis)])


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    monkeypatch.setattr(table_cache, "_tables", type(table_cache._tables)())


class Tent(RBF):
    """max(0, 0.9 - t): no polynomial."""

    def profile(self, t):
        return np.maximum(0.9 - t, 0.0)


class WithArray(RBF):
    """A kernel that somebody wrote, with something that cannot be hashed."""

    def __init__(self, gamma=1.0):
        super().__init__(gamma)
        self.factors = np.array([0.5, 0.5])

    def profile(self, t):
        return self.factors.sum() * super().profile(t)


@DTYPES
def test_equal_kernels_and_bounds_share_a_table(dtype, kind):
    made = table_basis(rbf([1.0, 0.1]), 10.0, dtype)
    assert type(made) is kind and table_basis(rbf([1.0, 0.1]), 10.01, dtype) is made
    fresh = kind([kernel.profile for kernel in rbf([1.0, 0.1])], 10.0)
    np.testing.assert_array_equal(made.table, fresh.table)
    np.testing.assert_array_equal(made.coefficients, fresh.coefficients)


@DTYPES
def test_other_kernels_bounds_and_dtypes_have_other_tables(dtype, kind):
    kernel = RBF(1.0)
    kernel.profile = lambda t: np.exp(-3.0 * t)  # nothing that the parameters tell
    banks = [
        rbf([1.0]),
        rbf([2.0]),
        rbf([1.0, 2.0]),
        rbf([2.0, 1.0]),
        [2 * RBF(1.0)],
        [RBF(1.0) * RBF(2.0)],
        [kernel],
    ]
    tables = [table_basis(bank, 10.0, dtype) for bank in banks] + [table_basis(rbf([1.0]), 100.0, dtype)]
    assert len(set(map(id, tables))) == len(tables)
    stat = np.linspace(0, 10, 50, dtype=dtype)[None]
    for bank, basis in zip([*banks, banks[0]], tables, strict=True):
        for member, line in zip(bank, basis.coefficients, strict=True):
            np.testing.assert_allclose(
                basis.matrix(stat, line), member.profile(stat.astype(np.float64)), rtol=0, atol=5e-6
            )
    other = np.float64 if dtype is np.float32 else np.float32
    assert type(table_basis(rbf([1.0]), 10.0, other)) is not kind


def test_kernels_that_change_have_another_table():
    kernel = RBF(1.0)
    first = table_basis([kernel], 10.0, np.float64)
    kernel.set_params(gamma=2.0)
    assert table_basis([kernel], 10.0, np.float64) is not first


def test_equal_numbers_of_another_kind_of_kernel_are_another_table():
    assert table_basis([RBF(1.0)], 10.0, np.float64) is not table_basis([Laplacian(1.0)], 10.0, np.float64)


def test_what_cannot_be_compared_is_made_anew():
    first, second = (table_basis([WithArray()], 10.0, np.float64) for _ in range(2))
    assert first is not second
    np.testing.assert_array_equal(first.table, second.table)


def test_only_the_last_few_are_kept():
    first = table_basis(rbf([1.0]), 10.0, np.float32)
    for number in range(MOST_TABLES - 1):
        table_basis(rbf([2.0 + number]), 10.0, np.float32)
    assert table_basis(rbf([1.0]), 10.0, np.float32) is first  # which makes it the newest
    table_basis(rbf([100.0]), 10.0, np.float32)
    assert table_basis(rbf([1.0]), 10.0, np.float32) is first
    for number in range(MOST_TABLES):
        table_basis(rbf([200.0 + number]), 10.0, np.float32)
    assert len(table_cache._tables) == MOST_TABLES and table_basis(rbf([1.0]), 10.0, np.float32) is not first


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_that_are_not_smooth_go_by_their_formulas(dtype):
    assert type(table_basis([Tent()], 10.0, dtype)) is FormulaBasis


def test_threads_get_the_tables_they_ask_for():
    found, start = {}, threading.Barrier(8)

    def ask(number):
        start.wait()
        found[number] = [
            table_basis(rbf([1.0 + (number + turn) % 3]), 10.0, np.float64).table for turn in range(30)
        ]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, tables in found.items():
        for turn, given in enumerate(tables):
            np.testing.assert_array_equal(
                given, table_basis(rbf([1.0 + (number + turn) % 3]), 10.0, np.float64).table
            )


@DTYPES
def test_tables_travel(dtype, kind):
    basis = table_basis(rbf([1.0, 0.1]), 10.0, dtype)
    stat = np.linspace(0, 10, 50, dtype=dtype)[None]
    there = pickle.loads(pickle.dumps(basis))
    np.testing.assert_array_equal(
        there.matrix(stat, basis.coefficients[0]), basis.matrix(stat, basis.coefficients[0])
    )
