"""The README is true: its Python blocks run, its commands work, what it prints is what it says, and what it names exists."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import raymkl

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Folders and files at the top of the project that the text may name.
TOPS = ("raymkl", "tests", "examples", "cluster_configs", ".ci")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, TOPS))})/[\w./-]*\w/?|(?<![\w/.-])(?:{'|'.join(map(re.escape, TOPS))})/(?!\w)")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def fenced(kind: str) -> list[tuple[int, str]]:
    """(line of its first line, text) of all fenced blocks of a kind."""
    found = re.finditer(rf"^```{kind}\n(.*?)^```$", README, re.S | re.M)
    return [(README.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in found]


def shell_lines() -> list[str]:
    """Commands of the bash blocks, without comments."""
    lines = [line for _, block in fenced("bash") for line in block.splitlines()]
    return [re.split(r"\s+#", line)[0] for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture
def in_a_new_place(tmp_path, monkeypatch):
    """An empty working directory, which is home too (Ray Tune writes there), and plots without a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_python_blocks_run_and_commands_work(ray_cluster, in_a_new_place):
    """In the order of the README and in one namespace; commands come after the blocks above them, which make their files."""
    names: dict = {"__name__": "__main__"}
    parts = [(line, "python", text) for line, text in fenced("python")] + [(line, "bash", text) for line, text in fenced("bash")]
    expected = dict(fenced("text"))
    ran = {"python": 0, "bash": 0}
    for line, kind, text in sorted(parts):
        if kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                # Blank lines before the block: a traceback then has the line of the README.
                exec(compile("\n" * (line - 1) + text, str(ROOT / "README.md"), "exec"), names)
            after = line + text.count("\n") + 4  # the fence, an empty line, "prints", an empty line and the fence of what is printed
            if after in expected or after + 1 in expected:
                assert_same_output(said.getvalue(), expected.pop(after, None) or expected.pop(after + 1))
            ran["python"] += 1
        else:
            for command in (command for command in text.splitlines() if command.startswith("raymkl ")):
                run_command(re.split(r"\s+#", command)[0])
                ran["bash"] += 1
    assert not expected, f"output without a block that prints it: {expected}"
    assert ran["python"] >= 12 and ran["bash"] >= 5
    assert_yaml_is_read()
    assert Path("report.html").stat().st_size > 20_000 and Path("predictions.csv").exists() and Path("best.raymkl").exists()


def assert_same_output(said: str, promised: str) -> None:
    """The same words, and numbers that differ by no more than another processor could make them."""
    assert NUMBER.sub("#", said).split() == NUMBER.sub("#", promised).split(), said
    for ours, theirs in zip(NUMBER.findall(said), NUMBER.findall(promised), strict=True):
        if "e-" in theirs:  # a gap: any one below the tolerance is as true
            assert float(ours) <= 1e-3
        else:
            np.testing.assert_allclose(float(ours), float(theirs), rtol=0.05, atol=0.02, err_msg=said)


def run_command(command: str) -> None:
    from click.testing import CliRunner

    from raymkl.cli import main

    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, f"{command}\n{result.output}"


def assert_yaml_is_read() -> None:
    """The YAML block is a bank of kernels for the table of the example."""
    ((_, text),) = fenced("yaml")
    Path("bank.yaml").write_text(text, encoding="utf-8")
    run_command("raymkl train train.csv --target label --kernels bank.yaml --out yaml.raymkl")
    model = raymkl.load("yaml.raymkl").model
    assert {kernel.view for kernel in model.kernels_} >= {"shape", "texture"}
    assert model.normalize == "multiplicative" and len(model.kernels_) == 13


def test_two_lines_install_and_run():
    lines = shell_lines()
    run, test = lines[0], lines[1]
    assert "install" in run and run.endswith("raymkl demo")
    assert "install" in test and test.endswith("pytest")
    # The first of their kind are those two: people copy what comes first.
    assert next(line for line in lines if "raymkl demo" in line) == run
    assert next(line for line in lines if "pytest" in line) == test
    assert test in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_files_that_are_named_exist():
    named = set(PATH.findall(README)) | {target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target}
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_headings_that_are_linked_exist():
    headings = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", README, re.M)}
    links = re.findall(r"\]\(#([^)]+)\)", README)
    assert links and set(links) <= headings


def test_names_that_are_quoted_exist():
    """`raymkl.module.name` can be reached, and `raymkl` has every attribute that stands there."""
    dotted = set(re.findall(r"\braymkl(?:\.[A-Za-z_]\w*)+", README))
    missing = []
    for name in sorted(dotted):
        parts, thing = name.split(".")[1:], raymkl
        for position, part in enumerate(parts):
            try:
                thing = getattr(thing, part) if hasattr(thing, part) else import_module(".".join(["raymkl", *parts[: position + 1]]))
            except ImportError:
                missing.append(name)
                break
    assert missing == []


def test_parameters_that_are_quoted_exist():
    """Rows of the table of parameters, the fields of RayParams and fitted attributes."""
    import inspect

    known = set(inspect.signature(raymkl.MKLClassifier).parameters) | set(inspect.signature(raymkl.MKLClassifier.fit).parameters)
    table = README.split("| parameter | values |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.M)
    quoted = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert quoted and quoted <= known
    used = {name for call in re.findall(r"RayParams\(([^)]*)\)", README) for name in re.findall(r"(\w+)=", call)}
    assert used and used <= set(inspect.signature(raymkl.RayParams).parameters)


def test_every_public_name_is_mentioned():
    words = set(re.findall(r"\w+", README))
    assert [name for name in raymkl.__all__ if name not in words] == []
    kernel_classes = [name for name in raymkl.kernels.__all__ if name not in ("Kernel", "KernelStore", "Product", "Scaled", "Sum")]
    assert [name for name in kernel_classes if name not in words] == []
    from raymkl import search

    assert [name for name in search.__all__ if name not in words] == []


def test_options_that_are_quoted_exist():
    """Every --option in the text is one of a command."""
    from raymkl.cli import main

    known = {text for command in main.commands.values() for option in command.params for text in option.opts}
    quoted = set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", README)) - {"--help", "--check", "--generate"}  # of click, ruff and Ray
    assert quoted and quoted <= known


def test_examples_are_listed():
    """Every program stands in the table of examples/README.md, with a time; modules that they share are named below it."""
    folder = ROOT / "examples"
    text = (folder / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w/]+\.py)` \|.*\| ([^|]+) \|$", text, re.M))
    files = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    programs = {name for name, code in files.items() if f"python examples/{name}" in code}
    assert set(rows) == programs and len(programs) > 8
    assert [name for name in files if f"`{name}`" not in text] == []
    assert all(re.search(r"\d|second|minute", time) for time in rows.values())
