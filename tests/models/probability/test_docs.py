"""The page about probabilities is true: its blocks run, one after the other."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "probability.md"


def test_the_blocks_of_the_page_run(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out.split("\n")
    assert len(blocks) == 4 and float(said[0]) < 0.2
    assert 0.9 < float(said[2]) <= 1.0 and 0.85 < float(said[3]) <= 1.0
