"""The code of the page about evidence runs, one block after the other."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


def test_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert len(blocks) == 4
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert set(names["study"].models) == {"mkl", "average", "single", "palate", "logistic"}
    assert names["test"].p_value == 0.05 and names["study"].table().loc["palate", "difference"] < 0
    assert r"\textbf" in said.getvalue()
