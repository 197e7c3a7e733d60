"""The benchmarks in their quick form: they run on generated digits, and write the table and the picture that they say."""

import csv
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "examples" / "benchmarks"


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Runs a benchmark in this process: quick(name, *arguments) -> rows of its table."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("RAYMKL_MNIST", raising=False)

    def run(name, *arguments, table=None):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", "--quick", "--out", str(tmp_path), *map(str, arguments)])
        importlib.import_module(name).main()
        return written_by(tmp_path, table or name)

    yield run
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)  # names that others may use, too


def written_by(folder, name):
    """Rows of a table, once there is a picture beside it."""
    assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG" and (folder / f"{name}.png").stat().st_size > 5000
    text = (folder / f"{name}.csv").read_text()
    assert "generated" in text and "cores" in text  # the data and the machine
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def positive(rows, *columns):
    return all(float(row[column]) > 0 for row in rows for column in columns)


def test_against_libsvm(quick):
    rows = quick("against_libsvm", "--sizes", 200, 300, table="against_libsvm_local")
    assert [row["n"] for row in rows] == ["200", "300"]
    assert positive(rows, "seconds", "libsvm s", "predict s", "libsvm predict s")
    assert all(float(row["gap"]) <= 1e-3 and float(row["accuracy"]) > 0.8 for row in rows)


def test_against_libsvm_alone(quick):
    (row,) = quick("against_libsvm", "--sizes", 200, "--no-libsvm", table="against_libsvm_local")
    assert float(row["seconds"]) > 0 and row["libsvm s"] == row["ratio"] == ""


def test_against_the_number_of_kernels(quick):
    rows = quick("against_kernels")
    assert len({row["problem"] for row in rows}) == 2 and len({row["kernels"] for row in rows}) > 1
    assert all(float(row["gap"]) <= 1e-3 for row in rows)


def test_against_the_number_of_rows(quick, capsys):
    rows = quick("against_n")
    assert {row["method"].split(",")[0] for row in rows} == {"raymkl", "LIBSVM"} and positive(rows, "seconds")
    assert "n^" in capsys.readouterr().out


def test_families(quick):
    bank, stack = quick("families", "--n", 200, "--test", 100)
    assert bank["make s"] == "" and float(stack["make s"]) > 0
    assert float(stack["apart"]) < 0.01


def test_against_mklpy_says_when_it_is_not_there(quick, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "MKLpy", None)
    with pytest.raises(SystemExit) as end:
        quick("against_mklpy")
    assert end.value.code == 0 and "pip install MKLpy" in capsys.readouterr().out


def test_against_mklpy(quick):
    pytest.importorskip("MKLpy", reason="MKLpy is not installed")
    rows = quick("against_mklpy", "--n", 100, "--test", 100)
    assert [row["method"].split()[0] for row in rows] == ["raymkl", "raymkl", "MKLpy", "MKLpy", "raymkl"]


def test_local_against_ray(tmp_path):
    """In a process of its own, since it starts a Ray of its own."""
    pytest.importorskip("matplotlib")
    environment = {name: value for name, value in os.environ.items() if name != "RAYMKL_MNIST"}
    command = [sys.executable, BENCHMARKS / "local_against_ray.py", "--quick", "--n", "200", "--shards", "2", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    local, ray = written_by(tmp_path, "local_against_ray")
    assert local["engine"] == "local" and ray["engine"] == "ray, 2 shards" and float(ray["apart"]) < 0.01
