"""A pool that loses shards by schedule: the engine's own shards in this process, without a cluster and
without waiting.

What travels is pickled, as it is between processes: a shard never shares an array with the coordinator.
"""

import pickle
from collections import Counter
from dataclasses import dataclass

import numpy as np

from raymkl.data.rows import split_ranges, take
from raymkl.engine.faults.policy import ShardsLost
from raymkl.engine.shard.shard import Shard


@dataclass(frozen=True)
class Fault:
    """Lose `shards` at the `number`-th call of a method (1 is the first), before the work or after it, when
    only the answer is missing.

    began : False for shards that go while they are being started.
    """

    method: str
    number: int
    shards: tuple[int, ...] = (0,)
    worked: bool = False
    began: bool = True


def travelled(value):
    return pickle.loads(pickle.dumps(value))


class LossyPool:
    """The methods of the Ray pool.

    seen : calls so far by method. deaths : (method, shard) of shards that were lost.
    """

    def __init__(self, rows, problem, num_shards, faults=()):
        self.rows, self.problem = rows, problem
        self.ranges = split_ranges(problem.n_rows, num_shards)
        self.shards = [Shard() for _ in self.ranges]
        self.alive = [True] * num_shards
        self.faults = list(faults)
        self.generation = 0
        self.seen = Counter()
        self.deaths = []
        self.coordinator = None

    @property
    def members(self):
        return tuple(map(id, self.shards))

    def load(self, shards):
        self.call_some(
            [
                (s, "load", (take(self.rows, slice(*self.ranges[s])), self.ranges[s][0], self.problem))
                for s in shards
            ]
        )

    def replace(self, shards):
        assert not any(self.alive[s] for s in shards), "a shard that is alive was replaced"
        self.generation += 1
        for s in shards:
            self.shards[s], self.alive[s] = Shard(), True
        self.load(shards)

    def call_all(self, method, *arguments):
        return self.call_some([(s, method, arguments) for s in range(len(self.ranges))])

    def call_some(self, calls):
        method = calls[0][1]
        self.seen[method] += 1
        now = [fault for fault in self.faults if (fault.method, fault.number) == (method, self.seen[method])]
        asked = {s for s, _, _ in calls}
        before = {s for fault in now if not fault.worked for s in fault.shards} & asked
        after = {s for fault in now if fault.worked for s in fault.shards} & asked
        for s in before:
            self._lose(s, method)
        results = [
            travelled(getattr(self.shards[s], m)(*travelled(arguments))) if self.alive[s] else None
            for s, m, arguments in calls
        ]
        for s in after - before:
            self._lose(s, method)
        lost = {
            s: f"lost by schedule in {method} number {self.seen[method]}"
            for s in sorted(asked)
            if not self.alive[s]
        }
        if lost:
            raise ShardsLost(
                lost, unstarted={s for fault in now if not fault.began for s in fault.shards} & set(lost)
            )
        if method == "advance":
            self._check_shards(calls)
        return results

    def _lose(self, s, method):
        if self.alive[s]:
            self.alive[s] = False
            self.deaths.append((method, s))

    def _check_shards(self, calls):
        """After a round every shard has the coordinator's dual variables to the last bit, and the gradients
        that belong to them.
        """
        parts = [{part.head: part for part in arguments[0].heads} for _, _, arguments in calls]
        for h in parts[0]:
            head = self.coordinator.roster.at_work[h]
            solver, pending = head.solver, head.step.ids
            told = max((part[h].columns for part in parts), key=len)
            if len(told) != len(pending):
                # a portion of a warm start, more is to come (or every shard is new and knows all of it)
                continue
            for shard in self.shards:
                np.testing.assert_array_equal(shard.heads[h].a, solver.a[shard.own.range])
                assert shard.heads[h].bounds_factor == solver.bounds_factor
