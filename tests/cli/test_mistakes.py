"""One clear line for every mistake, and an exit code that says whose it is."""

import subprocess
import sys

import pytest

import raymkl
import raymkl.cli
from tests.cli.builders import TRAIN, run


@pytest.mark.parametrize(
    "line, words",
    [
        ("train nowhere.csv --target label --kernels linear --out x", ["nowhere.csv does not exist"]),
        ("train train.csv --target nope --kernels linear --out x", ["train.csv", "no column 'nope'"]),
        (
            "train train.csv --target label --kernels magic:3 --out x",
            ["unknown kernel 'magic'", "known: rbf"],
        ),
        ("train bad.csv --target label --kernels linear --out x", ["bad.csv", "'x3'", "NaN", "row 5"]),
        (
            "train text.csv --target label --kernels linear --out x",
            ["text.csv", "'note', 'place'", "no numbers"],
        ),
        ("train train.csv --kernels linear --out x", ["--target"]),
        ("train train.csv --target x1 --kernels linear --out x", ["label", "no numbers"]),
        ("train train.csv --target label --kernels bank.yml --out x", ["bank.yml does not exist"]),
        ("train train.csv --target label --C 0 --out x", ["C must be a finite number > 0"]),
        ("train train.csv --target label --p 0.5 --out x", ["p must be"]),
        ("train train.csv --target label --normalize loud --out x", ["normalize must be one of", "'loud'"]),
        ("train train.csv --target label --standardize --kernels chi2 --out x", ["non-negative"]),
        ("train train.csv --target label --out nowhere/x", ["nowhere/x", "does not exist"]),
        ("train train.csv --target label --out .", ["is a directory"]),
        ("search train.csv --target label --C 1,b --out x", ["--C", "'1,b' is not a list of numbers"]),
        ("search train.csv --target label --scoring nonsense --out x", ["nonsense"]),
        ("info train.csv", ["train.csv is not a raymkl model file"]),
        ("info nothing.raymkl", ["nothing.raymkl does not exist"]),
        ("predict m.raymkl nowhere.csv", ["nowhere.csv does not exist"]),
        ("predict m.raymkl views.npz", ["views.npz has no column 'x0'"]),
        ("predict m.raymkl bad.csv", ["'x3'", "row 5"]),
        ("predict m.raymkl test.parquet --out p.xlsx", ["p.xlsx"]),
        ("report m.raymkl --data test.parquet --target nope --out r.html", ["nope"]),
        ("train --nonsense", ["--nonsense"]),
    ],
)
def test_mistakes_end_with_one_clear_line_and_exit_code_2(box, monkeypatch, line, words):
    monkeypatch.chdir(box)
    result = run(*line.split())
    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ") and all(word in last for word in words), last
    assert "Traceback" not in result.output and not (box / "x").exists()


def test_a_failure_is_exit_code_1_and_verbose_shows_where(box, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("a shard was lost")

    monkeypatch.setattr(raymkl.MKLClassifier, "fit", fail)
    arguments = ["train", box / "train.csv", *TRAIN, "--out", box / "x"]
    result = run(*arguments)
    assert result.exit_code == 1 and result.stderr.splitlines()[-1] == "Error: RuntimeError: a shard was lost"
    assert "Traceback" not in result.output
    assert "Traceback" in run(*arguments, "--verbose").stderr


def test_warnings_are_single_lines(box):
    result = run(
        "train",
        box / "train.csv",
        "--target",
        "label",
        "--kernels",
        "rbf:1e-6",
        "--engine",
        "local",
        "--out",
        box / "w.raymkl",
    )
    lines = [line for line in result.stderr.splitlines() if line]
    assert (
        len(lines) == 1
        and lines[0].startswith("Warning: columns differ by orders of magnitude (x3 is ")
        and "--standardize" in lines[0]
    )


@pytest.mark.parametrize(
    "asked, written, words",
    [(False, False, "--checkpoint DIR"), (True, True, "The checkpoint is in"), (True, False, "No")],
)
def test_an_interrupt_says_where_the_checkpoint_is(box, tmp_path, monkeypatch, asked, written, words):
    def interrupted(*args, **kwargs):
        if written:
            (tmp_path / "state").write_text("state")
        raise KeyboardInterrupt

    monkeypatch.setattr(raymkl.MKLClassifier, "fit", interrupted)
    monkeypatch.setattr(raymkl.cli.jobs.Job, "estimator", lambda self, **params: raymkl.MKLClassifier())
    result = run(
        "train", box / "train.csv", *TRAIN, "--out", box / "x", *(["--checkpoint", tmp_path] if asked else [])
    )
    assert result.exit_code == 130 and words in result.stderr and (str(tmp_path) in result.stderr) is asked


def test_ctrl_c_of_a_real_process(box):
    """The signal arrives during the fit; with Ray loaded, too, whose exit handlers must not change the exit
    code.
    """
    code = (
        "import os, signal, sys, types, raymkl, raymkl.cli\n"
        "raymkl.MKLClassifier.fit = lambda *args: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.modules['ray'] = types.ModuleType('ray')\n"
        f"sys.argv = ['raymkl', 'train', {str(box / 'train.csv')!r}, '--target', 'label', '--standardize', "
        f"'--out', {str(box / 'x')!r}]\n"
        "raymkl.cli.main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 130 and "Interrupted" in result.stderr and "Traceback" not in result.stderr, (
        result.stderr
    )
    assert "200 rows" in result.stdout  # what was said before is not lost
