"""Docstrings are written to be read as they are; here they become reStructuredText.

Formulas (indented paragraphs) and tables (lines with bars) are shown as they stand, `names` as code, and a
trailing underscore, a bar or a star is what it is. Examples (>>>) are left alone. numpydoc takes the rest
apart.
"""

from __future__ import annotations

import re

CODE = re.compile(r"(``.+?``|:\w+:`[^`]+`|`[^`]+`)")


def inline(text: str) -> str:
    """A line of prose: code spans as literals, no character that would mean something else."""
    parts = CODE.split(text)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            part = re.sub(r"([*|\\])", r"\\\1", part)
            parts[i] = re.sub(r"(?<=\w)_(?!\w)", r"\_", part)
        elif not part.startswith((":", "``")):
            parts[i] = f"`{part}`"
        if i % 2 and re.match(r"\w", parts[i + 1]):
            parts[i] += "\\ "  # a literal must not touch a letter
    return "".join(parts)


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def blocks(lines: list[str]) -> list[list[str]]:
    """Runs of lines without an empty one; every run ends with its empty lines."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip() and found[-1] and not found[-1][-1].strip():
            found.append([])
        found[-1].append(line)
    return found


def converted(lines: list[str]) -> list[str]:
    """The docstring as reStructuredText that numpydoc can read."""
    out: list[str] = []
    before, literal = 0, None  # indentation of the prose above; of the formula that is being copied
    for block in blocks(lines):
        first = block[0]
        if literal is not None and indent(first) >= literal and not first.lstrip().startswith(">>>"):
            out += block
            continue
        literal = None
        if first.lstrip().startswith(">>>"):
            out += block
        elif all(line.lstrip().startswith("|") for line in block if line.strip()):
            pad = " " * indent(first)
            out += [f"{pad}::", "", *(f"    {line}" if line.strip() else line for line in block)]
        elif out and indent(first) > before:
            literal = indent(first)
            out += [" " * before + "::", "", *block]
        else:
            code = next((i for i, line in enumerate(block) if line.lstrip().startswith(">>>")), len(block))
            out += [line if set(line.strip()) <= {"-"} else inline(line) for line in block[:code]] + block[
                code:
            ]
            before = next((indent(line) for line in reversed(block) if line.strip()), before)
    return out


def process(app, what, name, thing, options, lines):
    lines[:] = converted(lines)


def setup(app):
    app.connect("autodoc-process-docstring", process, priority=100)  # numpydoc comes after it
    return {"parallel_read_safe": True}
