"""The README is short, its first two commands install, run and test, and the examples are listed with their
times.
"""

import re
from pathlib import Path

from tests.pages.test_pages import PAGES, shell_lines

ROOT = Path(__file__).parents[2]
README = PAGES["README.md"]


def test_two_lines_install_and_run():
    run, test = shell_lines(README)[:2]
    assert "install" in run and run.endswith("raymkl demo")
    assert "install" in test and test.endswith("pytest")
    top = README.splitlines()[:40]
    assert run in top and test in top
    assert test in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_it_is_read_in_five_minutes():
    assert len(README.splitlines()) <= 200


def test_pages_of_the_guide_are_linked():
    """From the README every page of the guide and of the fields is one click away."""
    linked = set(re.findall(r"\]\((docs/[\w]+\.md)", README))
    left_out = {f"docs/{name}.md" for name in ("index", "changelog", "contributing")}  # the site's own
    assert {name for name in PAGES if name.startswith("docs/")} - left_out <= linked


def test_examples_are_listed():
    """Every program stands in the table of examples/README.md, with a time; modules that they share are named
    below it.
    """
    folder = ROOT / "examples"
    text = (folder / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w/]+\.py)` \|.*\| ([^|]+) \|$", text, re.M))
    files = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    programs = {name for name, code in files.items() if f"python examples/{name}" in code}
    assert set(rows) == programs and len(programs) > 8
    assert [name for name in files if f"`{name}`" not in text] == []
    assert all(re.search(r"\d|second|minute", time) for time in rows.values())
