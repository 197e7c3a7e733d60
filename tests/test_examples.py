"""The studies in a small form: they run and write what they say; those of sequences go on where they were stopped."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    """Runs an example in this process: example(name, *arguments)."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delenv("RAYMKL_TSS", raising=False)
    monkeypatch.delenv("RAYMKL_SPLICE", raising=False)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        importlib.import_module(name).main()

    return run


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


STUDIES = {
    "tss": ("--n", "60", "--p", "4/3"),
    "splice": ("--sizes", "30", "--splits", "2", "--large", "200"),
}
PICTURES = {"tss": ("auc.png", "weights.png", "positions.png"), "splice": ("auc.png", "positions.png")}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_study_runs_and_goes_on_where_it_was_stopped(example, name, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    call = (name, "--demo", *STUDIES[name], "--out", tmp_path)
    example(*call)
    results = tmp_path / "results.csv"
    first = rows_of(results)
    assert len(first) == (6 if name == "tss" else 2 * 6 + 5)
    assert all(0.3 < float(row["auc"]) <= 1 for row in first)
    assert all((tmp_path / picture).stat().st_size > 1000 for picture in PICTURES[name])
    # As if it had been killed while it wrote a row: that row is done again, and no other one.
    text = results.read_text()
    results.write_text(text[: len(text) - 25])
    example(*call)
    again = rows_of(results)
    same = [key for key in first[0] if key != "seconds"]
    assert [row["seconds"] for row in again[:-1]] == [row["seconds"] for row in first[:-1]]
    for row, other in zip(first, again, strict=True):
        assert [row[key] for key in same[:2]] == [other[key] for key in same[:2]]
        assert float(row["auc"]) == pytest.approx(float(other["auc"]), abs=1e-6)
    assert "made-up sequences" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other settings"):
        example(*call, "--seed", "5")


@pytest.mark.parametrize("name", STUDIES)
def test_without_data_a_study_says_what_it_needs(example, name, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        example(name, "--out", tmp_path)
    assert end.value.code == 2
    assert "--data" in (said := capsys.readouterr().err) and "--demo" in said
    with pytest.raises(SystemExit, match="nothing_here"):
        example(name, "--data", tmp_path / "nothing_here.parquet", "--out", tmp_path)


def test_profiles_of_dinucleotides(monkeypatch):
    """Both strands have the same energies and angles, and a profile is the plain average of its steps."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    tss = importlib.import_module("tss")
    rng = np.random.default_rng(0)
    x = "".join(rng.choice(list("ACGT"), 40))
    other = x[::-1].translate(str.maketrans("ACGT", "TGCA"))
    for table in (tss.STACKING, tss.TWIST):
        here, there = tss.profile([x], table), tss.profile([other], table)
        assert here.shape == (1, 40 - tss.SMOOTHED)
        np.testing.assert_allclose(here[0], there[0, ::-1], atol=1e-12)
        values = np.array([table.get(x[i : i + 2], table.get(other[38 - i : 40 - i])) for i in range(39)])
        all_steps = np.array([*table.values(), *(v for pair, v in table.items() if pair not in ("AT", "CG", "GC", "TA"))])
        want = [(values[i : i + tss.SMOOTHED].mean() - all_steps.mean()) / all_steps.std() for i in range(40 - tss.SMOOTHED)]
        np.testing.assert_allclose(here[0], want, atol=1e-12)


@pytest.mark.slow
def test_sparsity_toy(example, tmp_path, monkeypatch):
    """Two data sets at the ends: one relevant kernel wants p = 1, all of them a large p."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    toy = importlib.import_module("sparsity_toy")
    monkeypatch.setattr(toy, "RELEVANT", (1, 50))
    monkeypatch.setattr(toy, "QUICK_NORMS", (1.0, 2.0, np.inf))
    example("sparsity_toy", "--quick", "--sets", 2, "--jobs", 1, "--out", tmp_path)
    table = pd.read_csv(tmp_path / "sparsity_toy.csv", comment="#")
    assert list(table.columns[:5]) == ["relevant", "p", "error", "std", "bayes"]
    error = table.pivot(index="relevant", columns="p", values="error")
    assert list(error.columns) == [1.0, 2.0, np.inf]
    assert error.loc[1, 1.0] < 0.09 < 0.3 < error.loc[1, np.inf] and error.loc[50, 2.0] < error.loc[50, 1.0] - 0.03
    np.testing.assert_allclose(table["bayes"], 0.0401, atol=1e-4)
    assert (tmp_path / "sparsity_toy.png").stat().st_size > 1000
    for wrong in (("--sets", 1), ("--jobs", 0)):
        with pytest.raises(SystemExit):
            example("sparsity_toy", *wrong, "--out", tmp_path)


def test_sparsity_toy_data(monkeypatch):
    """Two Gaussians at the distance that is said, whatever the number of relevant features."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    toy = importlib.import_module("sparsity_toy")
    for relevant in toy.RELEVANT:
        mu = toy.hypothesis(relevant)
        assert np.isclose(np.linalg.norm(mu), 1.75) and np.count_nonzero(mu) == relevant
        X, y = toy.draw(20_000, relevant, np.random.default_rng(relevant))
        assert y.sum() == 0
        np.testing.assert_allclose((X * y[:, None]).mean(axis=0), mu, atol=0.04)
        assert abs(np.mean(np.sign(X @ mu) != y) - 0.0401) < 0.006


@pytest.mark.slow
def test_runtime(example, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.delenv("RAYMKL_MNIST", raising=False)
    example("runtime", "--quick", "--sizes", 60, 90, "--kernels", 3, 6, "--n", 80, "--out", tmp_path)
    table = pd.read_csv(tmp_path / "runtime.csv", comment="#")
    assert list(table.columns) == ["method", "n", "kernels", "seconds", "gap"]
    assert table["method"].nunique() == 9 and set(table["n"]) == {60, 80, 90} and set(table["kernels"]) == {3, 6, 50}
    assert (table["gap"] <= 1e-3).all() and (table["seconds"] > 0).all() and len(table) == 4 * 9
    assert (tmp_path / "runtime.png").stat().st_size > 1000
    example("runtime", "--quick", "--sizes", 60, 90, "--kernels", 3, "--n", 80, "--patience", 1e-9, "--out", tmp_path)
    assert len(pd.read_csv(tmp_path / "runtime.csv", comment="#")) == 2 * 9  # once over rows, once over kernels
    assert "is not tried on more" in capsys.readouterr().out


def test_multiclass_table(example, tmp_path):
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    np.savez(tmp_path / "wine.npz", X=X[::2], y=y[::2])
    example("multiclass_table", "--data", tmp_path / "wine.npz", "--quick", "--splits", 2, "--out", tmp_path, "--methods", "LMC", "GMNP")
    table = pd.read_csv(tmp_path / "summary.csv", comment="#").set_index("method")
    assert list(table.columns) == ["data", "mean", "std", "p_value", "published"] and list(table["published"]) == [97.87, 97.69]
    assert (table["mean"] > 80).all() and (table["p_value"] == 1).any()
    assert len(rows_of(tmp_path / "splits.csv")) == 4
    with pytest.raises(SystemExit, match="not a data set"):
        example("multiclass_table", "--data", tmp_path / "summary.csv", "--out", tmp_path)
