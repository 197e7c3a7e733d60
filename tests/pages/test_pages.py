"""README and the pages of docs/ are true: their Python blocks run, their commands work, what they print is
what they say, and what they name exists."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import raymkl

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
ALL = "\n".join(PAGES.values())
# Written when the site is built.
BUILT = {"docs/api.rst", "docs/gallery/index.rst"} | {
    f"docs/_static/drawn/{name}.png" for name in ("families", "rounds", "heads", "gates")
}
# Folders and files at the top of the project that the text may name.
TOPS = ("raymkl", "tests", "examples", "cluster_configs", "docs", ".ci")
PATH = re.compile(
    rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, TOPS))})/[\w./-]*\w/?|(?<![\w/.-])(?:{'|'.join(map(re.escape, TOPS))})/(?!\w)"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def fenced(text: str, kind: str) -> list[tuple[int, str]]:
    """(line of its first line, text) of all fenced blocks of a kind."""
    found = re.finditer(rf"^```{kind}\n(.*?)^```$", text, re.S | re.M)
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in found]


def shell_lines(text: str) -> list[str]:
    """Commands of the bash blocks, without comments."""
    lines = [line for _, block in fenced(text, "bash") for line in block.splitlines()]
    return [re.split(r"\s+#", line)[0] for line in lines if line.strip() and not line.startswith("#")]


def printed(text: str) -> dict[int, str]:
    """What Python blocks print, by the line of the fence that ends them: blocks of text that follow on a lone
    "prints".
    """
    found = re.finditer(r"^```\n\nprints:?\n\n```text\n(.*?)^```$", text, re.S | re.M)
    return {text.count("\n", 0, match.start()) + 1: match.group(1) for match in found}


def cases():
    """Pages with code; those that use Ray are marked."""
    for name, text in PAGES.items():
        code = "".join(block for _, block in fenced(text, "python"))
        if code:
            uses_ray = re.search(r"^\s*(import ray|from ray)\b|engine=\"ray\"|Session\(\"ray\"", code, re.M)
            yield pytest.param(name, id=name, marks=[pytest.mark.ray] if uses_ray else [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_python_blocks_run_and_commands_work(name, request, tmp_path, monkeypatch):
    """In the order of the page and in one namespace; commands come after the blocks above them, which make
    their files.
    """
    if request.node.get_closest_marker("ray"):
        request.getfixturevalue("ray_cluster")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray Tune writes there
    monkeypatch.setenv("MPLBACKEND", "agg")
    text, names = PAGES[name], {"__name__": "__main__"}
    expected, all_said = printed(text), ""
    parts = [(line, "python", block) for line, block in fenced(text, "python")] + [
        (line, "bash", block) for line, block in fenced(text, "bash")
    ]
    for line, kind, block in sorted(parts):
        if kind == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                # Empty lines before the block: a traceback then has the line of the page.
                exec(compile("\n" * (line - 1) + block, str(ROOT / name), "exec"), names)
            all_said += said.getvalue()
            promised = expected.pop(line + block.count("\n"), None)
            if promised is not None:
                assert_same_output(said.getvalue(), promised)
        else:
            for command in (command for command in block.splitlines() if command.startswith("raymkl ")):
                run_command(re.split(r"\s+#", command)[0])
    assert not expected, f"output without a block that prints it: {expected}"
    if name == "docs/probability.md":
        assert_probabilities_are_good(all_said)
    for _, block in fenced(text, "yaml"):
        if "kernels:" in block:
            assert_yaml_is_read(block)


def assert_same_output(said: str, promised: str) -> None:
    """The same words, and numbers that differ by no more than another processor could make them."""
    assert NUMBER.sub("#", said).split() == NUMBER.sub("#", promised).split(), said
    for ours, theirs in zip(NUMBER.findall(said), NUMBER.findall(promised), strict=True):
        if "e-" in theirs:  # a gap: any one below the tolerance is as true
            assert float(ours) <= 1e-3
        else:
            np.testing.assert_allclose(float(ours), float(theirs), rtol=0.05, atol=0.02, err_msg=said)


def assert_probabilities_are_good(said: str) -> None:
    """The page has four blocks; log loss, sizes of the sets and both coverages are what they print."""
    assert len(fenced(PAGES["docs/probability.md"], "python")) == 4
    loss, _, of_sets, of_intervals = said.splitlines()
    assert float(loss) < 0.2 and 0.9 < float(of_sets) <= 1.0 and 0.85 < float(of_intervals) <= 1.0


def run_command(command: str) -> None:
    from click.testing import CliRunner

    from raymkl.cli import main

    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, f"{command}\n{result.output}"


def assert_yaml_is_read(text: str) -> None:
    """A bank of kernels for the table of the page about the command line."""
    Path("bank.yaml").write_text(text, encoding="utf-8")
    run_command("raymkl train train.csv --target label --kernels bank.yaml --out yaml.raymkl")
    model = raymkl.load("yaml.raymkl").model
    assert {kernel.view for kernel in model.kernels_} >= {"shape", "texture"}
    assert model.normalize == "multiplicative" and len(model.kernels_) == 13


def test_the_pages_are_found():
    assert {"README.md", "docs/index.md", "docs/start.md", "docs/command_line.md", "docs/studies.md"} <= set(
        PAGES
    ) and len(PAGES) > 20
    code = [case.values[0] for case in cases()]
    assert len(code) >= 14 and sum(map(len, (printed(PAGES[name]) for name in code))) >= 8


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    """To files, and to headings of pages; pages are looked up by the names that GitHub and the site give to
    headings.
    """
    here, missing = (ROOT / name).parent, []
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[name]):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, heading = target.partition("#")
        page = (here / path).resolve().relative_to(ROOT).as_posix() if path else name
        if page in BUILT:
            continue
        if not (ROOT / page).exists() or (
            heading and heading not in headings((ROOT / page).read_text(encoding="utf-8"))
        ):
            missing.append(target)
    assert missing == []


def headings(text: str) -> set[str]:
    return {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.M)
    }


def test_files_that_are_named_exist():
    named = set(PATH.findall(ALL)) - {"docs/_build"}
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_names_that_are_quoted_exist():
    """`raymkl.module.name` can be reached, and `raymkl` has every attribute that stands there."""
    missing = []
    for name in sorted(set(re.findall(r"\braymkl(?:\.[A-Za-z_]\w*)+", ALL))):
        parts, thing = name.split(".")[1:], raymkl
        for position, part in enumerate(parts):
            try:
                thing = (
                    getattr(thing, part)
                    if hasattr(thing, part)
                    else import_module(".".join(["raymkl", *parts[: position + 1]]))
                )
            except ImportError:
                missing.append(name)
                break
    assert missing == []


def test_parameters_that_are_quoted_exist():
    """Rows of the table of parameters, and the fields of RayParams."""
    known = set(inspect.signature(raymkl.MKLClassifier).parameters) | set(
        inspect.signature(raymkl.MKLClassifier.fit).parameters
    )
    table = PAGES["docs/choosing.md"].split("| parameter | values |")[1].split("\n\n")[0]
    quoted = {
        name for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    assert len(quoted) > 12 and quoted <= known
    fields = (
        PAGES["docs/on_a_cluster.md"].split("| field of `RayParams` | what it says |")[1].split("\n\n")[0]
    )
    used = {name for call in re.findall(r"RayParams\(([^)]*)\)", ALL) for name in re.findall(r"(\w+)=", call)}
    used |= {
        name for row in re.findall(r"^\| (`[^|]*) \|", fields, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    assert len(used) > 8 and used <= set(inspect.signature(raymkl.RayParams).parameters)


def test_every_public_name_is_mentioned():
    words = set(re.findall(r"\w+", ALL))
    assert [name for name in raymkl.__all__ if name not in words] == []
    kernel_classes = [name for name in raymkl.kernels.__all__ if name not in ("Kernel", "KernelStore")]
    assert [name for name in kernel_classes if name not in words] == []
    assert [name for name in raymkl.search.__all__ if name not in words] == []


def test_options_that_are_quoted_exist():
    """Every --option in the page about the command line is one of a command."""
    from raymkl.cli import main

    known = {text for command in main.commands.values() for option in command.params for text in option.opts}
    quoted = set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", PAGES["docs/command_line.md"])) - {"--help"}
    assert len(quoted) > 8 and quoted <= known


def test_studies_are_up_to_date():
    """The page is what `python docs/make_studies.py` writes, and every file of results says when and by what
    it was made.
    """
    place = importlib.util.spec_from_file_location("make_studies", ROOT / "docs" / "make_studies.py")
    studies = importlib.util.module_from_spec(place)
    sys.modules["make_studies"] = studies
    place.loader.exec_module(studies)
    assert studies.page() == PAGES["docs/studies.md"]
    files = sorted((ROOT / "examples" / "results").rglob("*.csv"))
    assert len(files) >= 8 and {path.parent.name for path in files} == {"results"}
    for path in files:
        head = path.read_text(encoding="utf-8")
        assert re.search(r"^# date: 20\d\d-\d\d-\d\d", head[:400], re.M) and re.search(
            r"^# command: python examples/", head, re.M
        )
        assert f"examples/results/{path.name}" in PAGES["docs/studies.md"]
