"""Pieces of HTML: escaped text, numbers to be read, tables, figures with captions."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np


def escape(value: Any) -> str:
    """Text for HTML; addresses in it are broken up, so that the file never looks as if it referred to one."""
    return html.escape(str(value), quote=True).replace("://", ":&#47;&#47;")


def number(value: Any) -> str:
    """A number to be read: four significant digits, thousands separated; a dash where there is none."""
    value = float("nan") if value is None else float(value)
    if not np.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "—"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.4g}"


def figure(caption: str, *parts: str) -> str:
    """A picture, or several, with a caption above."""
    return f"<figure><figcaption>{caption}</figcaption>{''.join(parts)}</figure>"


def pair(*parts: str) -> str:
    """Figures side by side where the screen is wide enough."""
    return f'<div class="pair">{"".join(parts)}</div>'


def folded(summary: str, inside: str) -> str:
    """Something that is seen when its summary is clicked."""
    return f"<details><summary>{summary}</summary>{inside}</details>"


class Markup(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def code(text: Any) -> Markup:
    """A name as it stands in code."""
    return Markup(f"<code>{escape(text)}</code>")


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; numbers stand to the right. Cells of type `Markup` are HTML already."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float | np.number) and not isinstance(value, bool)

    def cell(value: Any) -> str:
        if is_number(value):
            return f'<td class="number">{number(value)}</td>'
        return f"<td>{value if isinstance(value, Markup) else escape(value)}</td>"

    top = "".join(
        f"<th{' class=' + chr(34) + 'number' + chr(34) if right else ''}>{escape(name)}</th>"
        for name, right in zip(
            heads, [all(is_number(row[k]) for row in rows) for k in range(len(heads))], strict=True
        )
    )
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
