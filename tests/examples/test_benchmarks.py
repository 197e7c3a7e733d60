"""The benchmarks in their quick form: they run on generated digits, and write the table and the picture that
they say.
"""

import csv
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Runs a benchmark in this process: quick(name, *arguments) -> rows of its table."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("RAYMKL_MNIST", raising=False)

    def run(name, *arguments, table=None):
        monkeypatch.setattr(
            sys, "argv", [f"{name}.py", "--quick", "--out", str(tmp_path), *map(str, arguments)]
        )
        importlib.import_module(name).main()
        return written_by(tmp_path, table or name)

    yield run
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)  # names that others may use, too


def written_by(folder, name):
    """Rows of a table, once there is a picture beside it."""
    assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG" and (
        folder / f"{name}.png"
    ).stat().st_size > 5000
    text = (folder / f"{name}.csv").read_text()
    assert "# data: " in text and "cores" in text  # the data and the machine
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def positive(rows, *columns):
    return all(float(row[column]) > 0 for row in rows for column in columns)


@pytest.fixture
def two_files(tmp_path):
    """Data sets as users have them: one with labels of any kind and a constant column, one with a test
    part.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(5.0, 3.0, (240, 6))
    X[:, 5] = 7.0
    y = np.array(["ant", "bee", "cow", "dog"])[np.digitize(X[:, 0], [3.0, 5.0, 7.0])]
    np.savez(tmp_path / "animals.npz", X=X.astype(np.float32), y=y)
    np.savez(
        tmp_path / "halves.npz", X=X[:160, :3], y=X[:160, 0] > 5, X_test=X[160:, :3], y_test=X[160:, 0] > 5
    )
    return tmp_path / "animals.npz", tmp_path / "halves.npz"


def test_against_libsvm(quick, capsys):
    rows = quick("against_libsvm", "--only", "rows", "--sizes", 200, 300, table="against_libsvm_local")
    assert "generated digits" in capsys.readouterr().out
    assert [row["n"] for row in rows] == ["200", "300"]
    assert positive(rows, "seconds", "libsvm s", "predict s", "libsvm predict s")
    assert all(float(row["gap"]) <= 1e-3 and float(row["accuracy"]) > 0.8 for row in rows)


def test_against_libsvm_alone(quick):
    (row,) = quick(
        "against_libsvm", "--only", "rows", "--sizes", 200, "--no-libsvm", table="against_libsvm_local"
    )
    assert float(row["seconds"]) > 0 and row["libsvm s"] == row["ratio"] == ""


def test_against_libsvm_over_dimensions(quick):
    """Without data: bundled and generated sets."""
    rows = quick("against_libsvm", "--only", "dimensions", table="against_libsvm_dimensions_local")
    assert {"breast cancer", "digits", "wine", "generated, 4", "generated, 64"} <= {
        row["data"] for row in rows
    }
    assert [int(row["columns"]) for row in rows] == sorted(int(row["columns"]) for row in rows)
    assert positive(rows, "seconds", "libsvm s", "ratio", "rounds", "SVs") and all(
        float(row["gap"]) <= 1e-3 for row in rows
    )


def test_against_libsvm_with_data_of_all_kinds(quick, two_files, tmp_path):
    """Tables of one's own and a file of digits in one call: each goes into the table it belongs to."""
    rng = np.random.default_rng(0)
    images, digits = rng.integers(0, 256, (300, 16)).astype(np.uint8), rng.integers(0, 10, 300)
    np.savez(tmp_path / "digits.npz", X_train=images, y_train=digits, X_test=images[:50], y_test=digits[:50])
    files = (*two_files, tmp_path / "digits.npz")
    halves, animals = quick(
        "against_libsvm", "--sizes", 300, "--data", *files, table="against_libsvm_dimensions_local"
    )
    assert (animals["data"], animals["rows"], animals["columns"], animals["accuracy"]) == (
        "animals",
        "240",
        "6",
        "",
    )
    assert (halves["data"], halves["rows"], halves["columns"]) == ("halves", "160", "3") and float(
        halves["accuracy"]
    ) > 0.9
    (row,) = written_by(tmp_path, "against_libsvm_local")
    assert row["n"] == "300"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"rows": np.ones((4, 2))}, "needs arrays X and y, holds rows"),
        ({"X": np.ones((4, 2)), "y": np.arange(3)}, r"n labels, got \(4, 2\) and \(3,\)"),
        ({"X": np.ones((4, 2)), "y": np.zeros(4)}, "one class"),
        ({"X": np.full((4, 2), np.nan), "y": np.arange(4)}, "missing"),
        (
            {"X": np.ones((4, 2)), "y": np.arange(4), "X_test": np.ones((2, 3)), "y_test": np.arange(2)},
            "X_test must be",
        ),
        (None, "not an .npz file"),
    ],
)
@pytest.mark.parametrize("name", ["against_libsvm", "certificates"])
def test_data_that_cannot_be_used_are_named(quick, tmp_path, name, arrays, message):
    path = tmp_path / "mine.npz"
    if arrays is None:
        path.write_bytes(b"nothing")
    else:
        np.savez(path, **arrays)
    with pytest.raises(SystemExit, match=f"mine.npz.*{message}"):
        quick(name, "--data", path)


def test_certificates(quick, capsys):
    rows = quick("certificates", "--max-iter", 10)
    assert len(rows) > 15 and {"norms", "far from the origin", "strings", "regression"} <= {
        row["setting"] for row in rows
    }
    assert all(row["holds"] == "True" for row in rows if row["dtype"] == "float64")
    assert f"of {len(rows)} certificates do not hold" in capsys.readouterr().out


def test_certificates_of_own_data(quick, two_files):
    rows = quick("certificates", "--only", "^norms|classes$", "--max-iter", 10, "--data", *two_files)
    assert [(row["data"], row["setting"]) for row in rows] == [
        ("animals", "norms"),
        ("animals", "several classes"),
        ("halves", "norms"),
    ]
    with pytest.raises(SystemExit, match="no setting"):
        quick("certificates", "--only", "nothing")


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


@pytest.mark.ray
def test_local_against_ray(tmp_path):
    """In a process of its own, since it starts a Ray of its own."""
    pytest.importorskip("matplotlib")
    environment = {name: value for name, value in os.environ.items() if name != "RAYMKL_MNIST"}
    command = [
        sys.executable,
        BENCHMARKS / "local_against_ray.py",
        "--quick",
        "--n",
        "200",
        "--shards",
        "2",
        "--out",
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr
    local, ray = written_by(tmp_path, "local_against_ray")
    assert local["engine"] == "local" and ray["engine"] == "ray, 2 shards" and float(ray["apart"]) < 0.01


def test_million_rows(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["million_rows.py", "--quick", "--out", str(tmp_path)])
    try:
        importlib.import_module("million_rows").main()
    finally:
        for path in BENCHMARKS.glob("*.py"):
            sys.modules.pop(path.stem, None)
    with (tmp_path / "million_rows.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (
        row["rows"] == "5000"
        and float(row["peak_gib"]) > 0
        and float(row["accuracy"]) > 0.6
        and 0 < float(row["gap"]) < 1
    )
    assert "5,000 rows x 64 columns" in capsys.readouterr().out
