"""The studies in a small form: they run and write what they say; those of sequences go on where they were
stopped.
"""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


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
    summary = tmp_path / "summary.csv"
    assert "# command: python examples/" in summary.read_text()
    table = pd.read_csv(summary, comment="#")
    assert list(table.columns[:2]) == ["n", "method"] and {"seconds", "published"} <= set(table.columns)
    assert len(table) == (6 if name == "tss" else 6 + 5) and table.iloc[:, 2].between(30, 100).all()
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
    tss = importlib.import_module("tss_data")
    rng = np.random.default_rng(0)
    x = "".join(rng.choice(list("ACGT"), 40))
    other = x[::-1].translate(str.maketrans("ACGT", "TGCA"))
    for table in (tss.STACKING, tss.TWIST):
        here, there = tss.profile([x], table), tss.profile([other], table)
        assert here.shape == (1, 40 - tss.SMOOTHED)
        np.testing.assert_allclose(here[0], there[0, ::-1], atol=1e-12)
        values = np.array([table.get(x[i : i + 2], table.get(other[38 - i : 40 - i])) for i in range(39)])
        all_steps = np.array(
            [*table.values(), *(v for pair, v in table.items() if pair not in ("AT", "CG", "GC", "TA"))]
        )
        want = [
            (values[i : i + tss.SMOOTHED].mean() - all_steps.mean()) / all_steps.std()
            for i in range(40 - tss.SMOOTHED)
        ]
        np.testing.assert_allclose(here[0], want, atol=1e-12)


def test_standard_error_of_an_auc(monkeypatch):
    """Near the spread of areas over drawn test sets of two normal classes."""
    from sklearn.metrics import roc_auc_score

    monkeypatch.syspath_prepend(str(EXAMPLES))
    tss = importlib.import_module("tss")
    rng, y = np.random.default_rng(0), np.repeat([1, 0], [60, 90])
    areas = [roc_auc_score(y, rng.normal(size=150) + 1.2 * y) for _ in range(400)]
    assert tss.standard_error(np.mean(areas), 60, 90) == pytest.approx(np.std(areas), rel=0.1)


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
    assert (
        error.loc[1, 1.0] < 0.09 < 0.3 < error.loc[1, np.inf]
        and error.loc[50, 2.0] < error.loc[50, 1.0] - 0.03
    )
    np.testing.assert_allclose(table["bayes"], 0.0401, atol=1e-4)
    np.testing.assert_allclose(table["standard_error"], table["std"] / np.sqrt(2), atol=2e-6)
    assert table.set_index(["relevant", "p"]).loc[(1, np.inf), "published"] == 0.43
    assert (tmp_path / "sparsity_toy.png").stat().st_size > 1000
    # As if it had been killed while it wrote a row; more data sets come behind those that are there.
    runs = tmp_path / "sparsity_toy_runs.csv"
    first = runs.read_text()
    runs.write_text(first[:-5])
    example("sparsity_toy", "--quick", "--sets", 3, "--jobs", 1, "--out", tmp_path)
    assert runs.read_text().startswith(first) and len(rows_of(runs)) == 2 * 3 * 3
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
    sizes = ("--sizes", 60, 90, "--kernels", 3, 6, "--n", 80)
    example("runtime", "--quick", *sizes, "--patience", 1000, "--out", tmp_path)
    table = pd.read_csv(tmp_path / "runtime.csv", comment="#")
    assert list(table.columns) == [
        *("method", "varied", "n", "kernels", "seconds", "gap", "times_slower", "published")
    ]
    chunking = table[table["method"] == "chunking, analytic, p = 4/3"]
    assert (chunking["times_slower"] == 1).all() and (table["times_slower"] > 0).all()
    assert (
        table["method"].nunique() == 9
        and set(table["n"]) == {60, 80, 90}
        and set(table["kernels"]) == {3, 6, 50}
    )
    assert (table["gap"] <= 1e-3).all() and (table["seconds"] > 0).all() and len(table) == 4 * 9
    assert (tmp_path / "runtime.png").stat().st_size > 1000
    example(
        "runtime",
        "--quick",
        "--sizes",
        60,
        90,
        "--kernels",
        3,
        "--n",
        80,
        "--patience",
        1e-9,
        "--out",
        tmp_path,
    )
    again = pd.read_csv(tmp_path / "runtime.csv", comment="#")
    assert len(again) == 2 * 9  # once over rows, once over kernels
    kept = again.merge(table, on=["method", "varied", "n", "kernels"])
    assert len(kept) == 2 * 9 and (kept["seconds_x"] == kept["seconds_y"]).all()  # not measured again
    assert "is not tried on more" in capsys.readouterr().out


def test_multiclass_table(example, tmp_path):
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    np.savez(tmp_path / "wine.npz", X=X[::2], y=y[::2])
    example(
        "multiclass_table",
        "--data",
        tmp_path / "wine.npz",
        "--quick",
        "--splits",
        2,
        "--out",
        tmp_path,
        "--methods",
        "LMC",
        "GMNP",
    )
    table = pd.read_csv(tmp_path / "summary.csv", comment="#").set_index("method")
    assert list(table.columns) == ["data", "mean", "std", "p_value", "splits", "published"]
    assert list(table["published"]) == [97.87, 97.69] and (table["splits"] == 2).all()
    assert (table["mean"] > 80).all() and (table["p_value"] == 1).any()
    before = (tmp_path / "splits.csv").read_bytes()
    assert len(rows_of(tmp_path / "splits.csv")) == 4
    # What is there is not measured again, and other settings do not come among it.
    example(
        "multiclass_table",
        "--data",
        tmp_path / "wine.npz",
        "--quick",
        "--splits",
        3,
        "--out",
        tmp_path,
        "--methods",
        "LMC",
        "GMNP",
    )
    after = (tmp_path / "splits.csv").read_bytes()
    assert after.startswith(before) and len(rows_of(tmp_path / "splits.csv")) == 6
    with pytest.raises(SystemExit, match="other settings"):
        example("multiclass_table", "--data", tmp_path / "wine.npz", "--splits", 2, "--out", tmp_path)
    with pytest.raises(SystemExit, match="not a data set"):
        example("multiclass_table", "--data", tmp_path / "summary.csv", "--out", tmp_path)


@pytest.mark.slow
def test_clustered(example, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    study, sets = importlib.import_module("clustered"), importlib.import_module("clustered_data")
    monkeypatch.setattr(study, "SYNTHETIC_REPEATS", 2)
    X, y, _ = sets.figure1(400, 0)
    np.savez(tmp_path / "svmguide1.npz", X=X[:200], y=y[:200], X_test=X[200:], y_test=y[200:])
    pd.DataFrame(X, columns=["u", "v"]).assign(label=y).to_parquet(tmp_path / "other.parquet")
    out = tmp_path / "out"
    call = (
        "clustered",
        "--data",
        tmp_path / "svmguide1.npz",
        tmp_path / "other.parquet",
        "--quick",
        "--repeats",
        2,
        "--out",
        out,
    )
    example(*call)
    table = pd.read_csv(out / "accuracy.csv", comment="#").set_index(["data", "method"])
    assert list(table.columns) == [
        "mean",
        "std",
        "seconds",
        "clusters",
        "p_value",
        "published",
        "published_seconds",
    ]
    assert set(table.loc["svmguide1"].index) == {*study.METHODS, "BaNK"} and set(
        table.loc["other"].index
    ) == set(study.METHODS)
    assert (table.loc["svmguide1", "CIK"][["published", "published_seconds"]] == [96.14, 291]).all()
    assert table["mean"].drop(("svmguide1", "BaNK")).between(80, 100).all() and np.isnan(
        table.loc[("svmguide1", "BaNK"), "mean"]
    )
    assert table.loc[("other", "random features"), "clusters"] == 1 and np.isnan(
        table.loc[("other", "CIK"), "p_value"]
    )
    groups = pd.read_csv(out / "clusters.csv", comment="#").set_index(["data", "method"])
    assert len(groups) == 6 and (groups["nmi"].notna() == [True, True, False, False, False, False]).all()
    assert groups.loc[("synthetic", "DPM"), "published_nmi"] == 0.57 and (groups["clusters"] >= 2).all()
    assert all((out / picture).stat().st_size > 1000 for picture in ("regions.png", "scales.png"))
    # As if it had been killed while it wrote a row: that run is done again, and no other one.
    runs = out / "runs.csv"
    first, text = rows_of(runs), runs.read_text()
    assert len(first) == 2 * 2 * len(study.METHODS)
    runs.write_text(text[: len(text) - 8])
    example(*call)
    again = rows_of(runs)
    assert [row["seconds"] for row in again[:-1]] == [row["seconds"] for row in first[:-1]]
    assert [row["accuracy"] for row in again] == [row["accuracy"] for row in first]
    assert "CIK" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other settings"):
        example(*call, "--seed", "5")


@pytest.mark.slow
def test_clustered_chooses_C_on_training_rows(example, tmp_path, monkeypatch):
    """Once where all repeats have the same training rows."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    study, sets = importlib.import_module("clustered"), importlib.import_module("clustered_data")
    settings = study.Settings(
        features=16, iterations=2, final_epochs=1, ufo_epochs=3, synthetic_rows=100, C=(0.25, 4.0), folds=2
    )
    monkeypatch.setattr(study, "FULL", settings)
    for name in ("regions", "scales"):
        monkeypatch.setattr(study, name, lambda *arguments: None)
    X, y, _ = sets.figure1(160, 0)
    np.savez(tmp_path / "split.npz", X=X, y=y)
    np.savez(tmp_path / "official.npz", X=X[:120], y=y[:120], X_test=X[120:], y_test=y[120:])
    files = (tmp_path / "split.npz", tmp_path / "official.npz")
    example("clustered", "--data", *files, "--repeats", 2, "--methods", "CIK", "SVC", "--out", tmp_path)
    chosen = [(row["data"], row["method"], row["repeat"]) for row in rows_of(tmp_path / "chosen_C.csv")]
    assert sorted(chosen) == sorted(
        [("split", m, r) for m in ("CIK", "SVC") for r in "01"]
        + [("official", m, "0") for m in ("CIK", "SVC")]
    )
    assert all(float(row["C"]) in (0.25, 4.0) for row in rows_of(tmp_path / "runs.csv"))


def test_clustered_data(monkeypatch, tmp_path):
    """Categories become columns, nothing of the test rows is in the scale, and sets without a file are
    generated.
    """
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sets = importlib.import_module("clustered_data")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "phishing.npz", X=rng.integers(-1, 2, (100, 4)), y=np.arange(100) % 2)
    data = sets.load(tmp_path / "phishing.npz")
    assert data.X.shape == (100, 12) and (data.X.reshape(100, 3, 4).sum(axis=1) == 1).all()
    X, y, T, t = data.split(3, 50, 15)
    assert (len(X), len(y), len(T), len(t)) == (50, 50, 15, 15) and not data.official
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1)
    (tmp_path / "COD_RNA.parquet").write_text("no table")
    with pytest.raises(SystemExit, match="not a data set"):
        sets.load(tmp_path / "COD_RNA.parquet")
    assert [data.X.shape for data in sets.generated(0)] == [(2000, 2), (2000, 12)]
    monkeypatch.setattr(sets, "FOLDERS", (tmp_path,))
    assert sets.found("phishing") == tmp_path / "phishing.npz" and sets.found("pendigits") is None


def test_measures_of_clusters(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sets = importlib.import_module("clustered_data")
    X = np.array([[0.0], [1.0], [2.0], [7.0], [8.0]])
    clusters, true = np.array([4, 4, 4, 9, 9]), np.array([0, 0, 1, 1, 1])
    assert sets.dunn(X, clusters) == 5 / 2 and sets.purity(true, clusters) == 4 / 5
    found = sets.measures(X, clusters, true)
    assert (
        found["clusters"] == 2
        and found["rand"] == 6 / 10
        and 0 < found["nmi"] < 1
        and found["davies_bouldin"] > 0
    )
    one = sets.measures(X, np.zeros(5, int))
    assert one == {"davies_bouldin": None, "dunn": None, "clusters": 1}
    repeated = np.repeat(X, 2, axis=0)
    assert sets.dunn(repeated, np.arange(10) % 2) == 0.0


def test_localized_table(example, tmp_path):
    """Goes on where it was stopped, and the table has what was published beside it."""
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    np.savez(tmp_path / "sonar.npz", X=X + y[:, None], y=y)
    call = ("localized_table", "--data", tmp_path / "sonar.npz", "--quick", "--rows", 60, "--out", tmp_path)
    example(*call)
    table = pd.read_csv(tmp_path / "localized_table.csv", comment="#").set_index("method")
    assert (
        list(table["published"]) == [65.29, 72.71, 80.29, 79.57, 73.86, 77.14] and (table["mean"] > 60).all()
    )
    assert table["support"].between(1, 100).all() and list(table["against"].dropna()) == [
        "MKL K_P K_G",
        "SVM K_L",
    ]
    assert (
        (tmp_path / "localized_table.csv")
        .read_text()
        .splitlines()[4]
        .startswith("# command: python examples/localized_table.py")
    )
    runs = tmp_path / "localized_table_runs.csv"
    first = runs.read_text()
    assert len(rows_of(runs)) == 6 * 2 * 10
    runs.write_text(first[:-10])
    example(*call)
    assert runs.read_text().splitlines()[:-1] == first.splitlines()[:-1] and len(rows_of(runs)) == 6 * 2 * 10
    with pytest.raises(SystemExit, match="other settings"):
        example(*call, "--seed", 1)
    np.savez(tmp_path / "three.npz", X=X, y=np.arange(60) % 3)
    with pytest.raises(SystemExit, match="3 classes"):
        example("localized_table", "--data", tmp_path / "three.npz", "--out", tmp_path / "other")


def test_paired_f_test(monkeypatch):
    """Against the formula, written out; the same accuracies everywhere cannot be tested."""
    from scipy.stats import f

    monkeypatch.syspath_prepend(str(EXAMPLES))
    study = importlib.import_module("localized_table")
    a, b = np.random.default_rng(0).normal(size=(2, 5, 2))
    squares = [
        ((x - y) ** 2, (u - v) ** 2, ((x - y) - (u - v)) ** 2 / 2)
        for (x, u), (y, v) in zip(a, b, strict=True)
    ]
    statistic = sum(p + q for p, q, _ in squares) / (2 * sum(s for *_, s in squares))
    assert study.paired_f_test(a, b) == pytest.approx(1 - f.cdf(statistic, 10, 5))
    assert study.paired_f_test(a, a) is None


def test_protein_fold(example, tmp_path):
    rng = np.random.default_rng(0)
    fold = np.repeat(np.arange(4), 100)
    views = {f"view_{k}": rng.normal(size=(400, 3)) + (fold[:, None] == k) for k in range(3)}
    np.savez(tmp_path / "proteins.npz", y=fold, **views)
    example("protein_fold", "--data", tmp_path / "proteins.npz", "--quick", "--out", tmp_path)
    table = pd.read_csv(tmp_path / "protein_fold.csv", comment="#").set_index("method")
    assert (
        list(table.index) == ["UNIF", "MKL, q=1", "MKL, q=1.2", "MKL, q=2"]
        and table["mean"].between(30, 100).all()
    )
    assert table.loc["MKL, q=1.2", "published"] == 74.2 and (table["splits"] == 2).all()
    with pytest.raises(SystemExit, match="not a data set"):
        example("protein_fold", "--data", tmp_path / "protein_fold.csv", "--out", tmp_path)
