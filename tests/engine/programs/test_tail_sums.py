"""Leading eigenvalues by products over shards, against all eigenvalues."""

import numpy as np
import pytest

from raymkl import kernels
from raymkl.data.rows import split_ranges
from raymkl.engine.problem import Problem
from raymkl.engine.programs import tail_sums as programme
from raymkl.engine.shard.shard import Shard
from raymkl.kernels.pairs.families import group


class Shards:
    """Shards in this process that note the largest thing that they were given or gave back."""

    def __init__(self, rows, kernels, parts):
        n = len(rows)
        problem = Problem([None], group(kernels), n, len(kernels))
        self.shards, self.largest = [Shard() for _ in range(parts)], 0
        for shard, (first, last) in zip(self.shards, split_ranges(n, parts), strict=True):
            shard.load({None: rows[first:last]}, first, problem)

    def apply(self, work, *arguments):
        answers = [shard.apply(work, *arguments) for shard in self.shards]
        self.largest = max(
            self.largest, *(part.size for part in (*arguments, *answers) if isinstance(part, np.ndarray))
        )
        return answers


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(programme, "LANDMARKS", 50)
    monkeypatch.setattr(programme, "COLUMNS", 100)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("zeta", [1, 2, 6])
def test_tails_of_rows(parts, zeta):
    X = np.random.default_rng(0).standard_normal((500, 3))
    bank = [*kernels.rbf([1e-4, 0.01, 1.0, 1e3]), kernels.Linear(), kernels.Polynomial(degree=3, coef0=1.0)]
    used = np.arange(0, 500, 1 + (parts == 3))
    shards = Shards(X, bank, parts)
    tails, traces = programme.tails_of_rows(shards, bank, used, zeta)
    for m, kernel in enumerate(bank):
        values = np.linalg.eigvalsh(kernel(X[used]))
        assert traces[m] == pytest.approx(values.sum())
        assert tails[m] == pytest.approx(values[: len(used) - zeta].sum(), rel=0.01, abs=1e-9 * traces[m])
    assert shards.largest < len(used) ** 2 / 2  # nobody held a matrix


def test_zeta_zero_is_the_trace():
    X = np.random.default_rng(0).standard_normal((30, 3))
    tails, traces = programme.tails_of_rows(
        Shards(X, [kernels.Linear()], 2), [kernels.Linear()], np.arange(30), 0
    )
    assert tails[0] == traces[0] == pytest.approx((X * X).sum())
