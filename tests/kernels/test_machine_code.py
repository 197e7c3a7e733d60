"""Machine code kept in files: the same results as the formulas, and a way on whatever happens to the files."""

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from raymkl.kernels import code_builder, code_files, compiled, loops, machine_code
from raymkl.kernels.machine_code import Argument, Loop

LOOPS = {name: loop for name, loop in vars(compiled).items() if isinstance(loop, Loop)}


def rng_of(seed=0):
    return np.random.default_rng(seed)


def test_every_loop_runs_as_machine_code_here():
    """On this machine nothing should fall back; the other tests would not notice."""
    for loop in LOOPS.values():
        for dtype in loop.variants:
            assert loop.load(dtype) is not None, (loop, dtype)


# -- arguments that machine code does not take ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda A: np.asfortranarray(A),
        lambda A: np.repeat(A, 2, axis=1)[:, ::2],
        lambda A: A.astype(np.int64),
        lambda A: A.astype(np.float32).astype(np.float16).astype(np.float32)[:, ::-1],
    ],
    ids=["column order", "strided", "integers", "reversed"],
)
def test_other_arrays_go_to_numba(change):
    A = change(np.arange(12.0).reshape(4, 3))
    out = np.empty(4)
    compiled.squared_norms(A, out)
    np.testing.assert_allclose(out, (np.asarray(A, float) ** 2).sum(axis=1))


def test_arrays_in_foreign_byte_order_never_reach_machine_code():
    with pytest.raises(Exception, match="Unsupported array dtype"):
        compiled.squared_norms(np.ones((4, 3), ">f8"), np.empty(4))


def test_read_only_arrays_are_read_and_never_written():
    A, out = np.ones((4, 3)), np.zeros(4)
    A.flags.writeable = out.flags.writeable = False
    with pytest.raises(Exception, match=r"(?i)read-?only|mutable|modify"):
        compiled.squared_norms(A, out)
    assert (out == 0).all()
    compiled.squared_norms(A, fresh := np.empty(4))
    assert (fresh == 3).all()


def test_mixed_dtypes_go_to_numba():
    a, b = np.ones((2, 2), np.float32), np.ones(2, np.float32)
    target = np.empty((2, 2))
    compiled.finish_squared_distances(a, b, b, target, np.arange(2), 0)
    np.testing.assert_array_equal(target, 0)


def test_short_lists_are_converted():
    """Positions and weights of another dtype or with strides are no reason to compile again."""
    stat, out, expected = rng_of().uniform(size=(4, 9)), np.zeros((9, 2)), np.zeros((9, 2))
    loop = Loop("accumulate_powers", "stat:T[2] slots:int64[1] weights:float64[1] exponents:int64[1] inverse_scale:float64 "
                "out:float64[2]= start:int64 stop:int64", trial=compiled.accumulate_powers.trial)  # fmt: skip
    loop(stat, np.arange(4, dtype=np.int32), np.ones(8, np.float32)[::2], np.arange(2), 1, out, np.int64(0), 9)
    compiled.accumulate_powers(stat, np.arange(4), np.ones(4), np.arange(2), 1.0, expected, 0, 9)
    np.testing.assert_array_equal(out, expected)
    assert loop._numba is None


def test_wrong_calls_are_errors_that_say_what_is_wanted():
    stat, table, out = np.ones((4, 8), np.float32), np.zeros((4, compiled.LANES), np.float32), np.zeros((8, 1))
    with pytest.raises(TypeError, match=r"squared_norms takes \['array', 'out'\], got 1"):
        compiled.squared_norms(np.ones((2, 2)))
    with pytest.raises(ValueError, match="groups of 4"):
        compiled.accumulate_table(stat, np.arange(3), np.ones(3), table, 15, 1, out, 0, 8)
    with pytest.raises(ValueError, match="4 slots, 3 weights"):
        compiled.accumulate_table(stat, np.arange(4), np.ones(3), table, 15, 1, out, 0, 8)
    with pytest.raises(TypeError, match="float32, got float64"):
        compiled.accumulate_table(stat.astype(float), np.arange(4), np.ones(4), table, 15, 1, out, 0, 8)
    with pytest.raises(TypeError):
        compiled.accumulate_table(stat, np.arange(4), np.ones(4), table, 15, 1, out, 0, 7.5)
    with pytest.raises(ValueError, match="dtype must be"):
        Argument.parse("x:complex64[1]")


# -- files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place for entries."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "code"))
    return tmp_path / "code"


def entries(folder):
    """Files of ours, whole or not; numba's own are in folders."""
    return [path for path in folder.iterdir() if path.is_file()]


def fresh():
    """A loop as a new process has it: nothing loaded yet."""
    return Loop("squared_norms", "array:T[2] out:float64[1]=", fastmath=True)


def works(loop):
    A, out = rng_of(5).normal(size=(6, 9)), np.empty(6)
    loop(A, out)
    np.testing.assert_allclose(out, (A**2).sum(axis=1))
    return loop._functions["float64"] is not None


@pytest.fixture
def no_compiler(monkeypatch):
    def build(*arguments):
        raise AssertionError("compiled although an entry was there")

    return lambda: monkeypatch.setattr(code_builder, "build", build)


def test_a_second_process_reads_what_the_first_one_wrote(folder, no_compiler):
    assert works(fresh())
    (entry,) = entries(folder)
    assert entry.name.startswith("loops.squared_norms-float64.")
    no_compiler()
    loop = fresh()
    assert works(loop)
    assert loop._numba is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-7],
        lambda data: data[:-100] + bytes(b ^ 255 for b in data[-100:]),
        lambda data: b"raymkl machine code 0" + data[data.index(b"\n") :],
        lambda data: data.replace(b'"symbol"', b'"symbal"'),
        lambda data: b"raymkl machine code 1\n[]\n",
        lambda data: b"\xff" * 500,
    ],
    ids=["empty", "cut off", "flipped", "older format", "no symbol", "no header", "noise"],
)
def test_damaged_entries_are_replaced(folder, no_compiler, damage):
    assert works(fresh())
    (entry,) = entries(folder)
    entry.write_bytes(damage(entry.read_bytes()))
    assert code_files.read(entry, fresh()._key()) is None
    assert works(fresh())
    assert code_files.read(entry, fresh()._key()) is not None
    assert entries(folder) == [entry]
    no_compiler()
    assert works(fresh())


def test_entries_of_another_source_are_replaced(folder, monkeypatch):
    assert works(fresh())
    (entry,) = entries(folder)
    with monkeypatch.context() as change:
        change.setattr(code_files, "source", lambda module: "another text")
        assert code_files.find("loops.squared_norms-float64", fresh()._key()) is None
        assert works(fresh())
        assert b"another text" in entry.read_bytes()
    assert b"another text" in entry.read_bytes()
    assert works(fresh())
    assert b"another text" not in entry.read_bytes()


def test_other_machines_have_other_entries(folder, monkeypatch):
    assert works(fresh())
    monkeypatch.setattr(code_files, "host", lambda: "f" * 64)
    assert works(fresh())
    assert len(entries(folder)) == 2


def test_the_key_follows_source_and_settings(folder, tmp_path, monkeypatch):
    text = os.path.join(tmp_path, "loops_of_mine.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = set()
    for version in ("a = 1", "a = 2"):
        with open(text, "w") as file:
            file.write(version)
        code_files.source.cache_clear()
        keys.add(code_files.source("loops_of_mine"))
    assert "loops_of_mine" not in sys.modules
    for value in ("0", "3"):
        monkeypatch.setenv("NUMBA_OPT", value)
        keys.add(code_files.host.__wrapped__())
    assert len(keys) == 4
    code_files.source.cache_clear()


def test_without_a_place_to_write_code_stays_in_memory(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(code_files, "directories", lambda: [tmp_path / "file" / "code"])
    assert works(fresh())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_next_directory_takes_what_the_first_one_refuses(tmp_path, monkeypatch, no_compiler):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(code_files, "directories", lambda: [tmp_path / "file" / "code", tmp_path / "home"])
    assert works(fresh())
    assert len(list((tmp_path / "home").iterdir())) == 1
    no_compiler()
    assert works(fresh())


def test_entries_go_where_numba_keeps_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    beside, home = code_files.directories()
    assert beside.name == "__pycache__" and beside.parent.samefile(os.path.dirname(loops.__file__))
    assert home == tmp_path / "raymkl"


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    def refuse(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(code_files.os, "replace", refuse)
    assert works(fresh())
    assert entries(folder) == []


# -- code that cannot be used ------------------------------------------------------------------------------------------------


def test_code_that_does_something_else_is_not_used(folder, monkeypatch, caplog):
    """The linked code is tried against numba's before anybody gets it."""
    honest = code_builder.build

    def build(*arguments):
        return (*honest(*arguments)[:2], lambda *values: None)

    monkeypatch.setattr(code_builder, "build", build)
    with caplog.at_level(logging.WARNING, "raymkl"):
        assert not works(fresh())
    assert "squared_norms runs through numba" in caplog.text
    assert entries(folder) == []


@pytest.mark.parametrize("code", [b"", b"not an object file" * 50], ids=["empty", "noise"])
def test_code_that_cannot_be_linked_is_not_used(folder, monkeypatch, code):
    honest = code_builder.build
    monkeypatch.setattr(code_builder, "build", lambda *arguments: (honest(*arguments)[0], code, None))
    assert not works(fresh())
    assert entries(folder) == []


def allocates(array, out):
    """A loop that needs numba's memory manager."""
    total = np.zeros(array.shape[0])
    for i in range(array.shape[0]):
        for d in range(array.shape[1]):
            total[i] += array[i, d] ** 2
    out[:] = total


def test_loops_that_need_numba_at_run_time_stay_with_it(folder, caplog):
    loop = Loop("allocates", "array:T[2] out:float64[1]=", module=__name__)
    with caplog.at_level(logging.WARNING, "raymkl"):
        assert not works(loop)
    assert "refers to" in caplog.text
    assert entries(folder) == []


def test_without_llvmlite_numba_does_the_work(folder, monkeypatch):
    def missing():
        raise ImportError("no llvmlite here")

    monkeypatch.setattr(code_files, "host", missing)
    assert not works(fresh())


def test_threads_that_come_at_once_compile_once(folder, monkeypatch):
    honest, builds = code_builder.build, []

    def build(*arguments):
        builds.append(arguments)
        return honest(*arguments)

    monkeypatch.setattr(code_builder, "build", build)
    loop = fresh()
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda _: works(loop), range(8)))
    assert len(builds) == 1


def test_many_libraries_live_side_by_side(folder):
    """Each keeps its own memory, and goes when its loop goes."""
    alive = [fresh() for _ in range(20)]
    assert all(works(loop) for loop in alive)
    del alive[::2]
    assert all(works(loop) for loop in alive)
    assert machine_code._linker() is machine_code._linker()


# -- a new process ---------------------------------------------------------------------------------------------------------------

SHARD_ROUNDS = """
import hashlib, sys
import numpy as np
from raymkl.engine.shard import Shard

shard = Shard(threads=1, warm=True)
from raymkl.engine.messages import Head, HeadRequest, Problem, RoundRequest
from raymkl.engine.rows import to_table
from raymkl.kernels import rbf
from raymkl.kernels.families import group
from raymkl.optim.losses import Hinge
from raymkl.optim.norms import LpNorm

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 5)).astype(np.float32)
y = np.where(X[:, 0] > 0, 1.0, -1.0)
bank = rbf([0.01, 0.1, 1.0])
problem = Problem([None], group(bank), 80, 3)
if sys.argv[1] == "light":
    problem.light = frozenset(family.statistic for family in problem.families)
shard.load(to_table({None: X}, [None]), 0, problem)
count, sums, _ = shard.moments()[None]
largest = shard.prepare({None: sums / count})
bases = [family.basis(s.bound(size)) for family, s, size in zip(problem.families, shard.statistics, largest)]
shard.open(bases, 80)
shard.add_heads({0: Head(y, np.ones(80), Hinge(), LpNorm(4 / 3))})
ids = np.arange(30)
part = HeadRequest(0, ids, ids, 0.1 * y[:30], 0.1 * y[:30], np.ones(bases[0].rank), np.zeros(1), ids[:5], 10)
reply = shard.advance(RoundRequest(1, ids, ids, {None: X[:30]}, ids, {None: X[:30]}, [part])).heads[0]
kept = np.concatenate([reply.gradients.ravel(), reply.quadratic, reply.losses, reply.grow_residual])
assert np.abs(kept).max() > 0
slow = ("numba", "scipy", "pandas", "pyarrow.compute", "sklearn", "cvxpy", "osqp", "ray")
print(hashlib.sha256(kept.tobytes()).hexdigest(), ",".join(name for name in slow if name in sys.modules))
"""


@pytest.mark.parametrize("kept", ["cached", "light"])
def test_a_new_shard_runs_rounds_without_the_compiler(tmp_path, kept):
    """The first process compiles, the second neither compiles nor loads anything that takes long, and both say the same."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    answers = []
    for _ in range(2):
        result = subprocess.run([sys.executable, "-c", SHARD_ROUNDS, kept], capture_output=True, text=True, timeout=120, env=environment)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        answers.append(result.stdout.rstrip("\n").split(" "))
    (first, _), (second, loaded) = answers
    assert first == second
    assert loaded == ""
