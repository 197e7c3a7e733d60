"""The shard as an actor: its process loads no more than it needs, and works on one call at a time."""

import subprocess
import sys
import threading

import pytest

from raymkl.engine.params import RayParams
from raymkl.engine.pools.actors import ShardActor
from raymkl.engine.pools.ray_pool import RayPool
from raymkl.engine.pools.ray_shards import shard_actors
from tests.builders import MIXED_BANK as BANK
from tests.builders import problem_of
from tests.reference import noisy_problem

X, _ = noisy_problem(60, seed=11)


def test_threads_come_with_the_rows():
    actor = ShardActor()
    assert actor.threads.threads == 1
    actor.load({None: X}, 0, problem_of(BANK, len(X)), threads=3)
    assert actor.threads.threads == 3
    actor.threads.close()


def test_one_call_at_a_time():
    """Over the connection and through Ray, calls come in threads of their own."""
    actor = ShardActor()
    actor.load({None: X}, 0, problem_of(BANK, len(X)))
    begun, go_on, order = threading.Event(), threading.Event(), []

    def slow(shard):
        begun.set()
        go_on.wait(10)
        order.append("slow")

    def quick(shard):
        order.append("quick")

    workers = [threading.Thread(target=actor.call, args=("apply", work)) for work in (slow, quick)]
    workers[0].start()
    begun.wait(10)
    workers[1].start()
    workers[1].join(0.05)
    go_on.set()
    for worker in workers:
        worker.join(10)
    assert order == ["slow", "quick"]


# -- the process ------------------------------------------------------------------------------------------------------


def test_loading_the_actor_loads_what_a_shard_needs():
    code = "import raymkl.engine.pools.actors, sys; print({'ray', 'numba', 'scipy', 'pydantic'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "set()", result.stderr


LEFT_OUT = """
import sys, ray
from raymkl.engine.pools.actors import leave_out_pydantic
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

    problem = problem_of(BANK, len(X))
    params = RayParams(num_shards=2, cpus_per_shard=0.5)
    with shard_actors({None: X}, problem, params) as place:
        pool = RayPool(place, params)
        pool.load([0, 1])
        assert pool.call_all("apply", modules_of) == [[], []]
