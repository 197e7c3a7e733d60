"""What all results share: a table, its LaTeX, and a CSV file that says where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

# Libraries whose versions decide about numbers.
NAMED = ("raymkl", "numpy", "scipy", "scikit-learn")
# How LaTeX marks p-values below a level.
MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


class Result:
    """A result of `raymkl.evaluate`.

    facts : by name, what the head of a CSV file says besides versions: sizes, seeds, the worst relative
    duality gap.
    """

    facts: dict[str, Any]

    def table(self) -> pd.DataFrame:
        """The result as a table.

        Returns
        -------
        table : DataFrame
            Its numbers.
        """
        raise TypeError(f"{type(self).__name__} has no table")

    def to_csv(self, path: Any) -> None:
        """Write the table to a CSV file, below lines that begin with `#` and say sizes, seeds, versions and
        the worst gap.

        `pandas.read_csv(path, comment="#")` reads the table back.

        Parameters
        ----------
        path : str or path
            The file to write.
        """
        lines = [
            f"# {type(self).__name__} of raymkl.evaluate",
            *(f"# {name}: {_plain(value)}" for name, value in self.facts.items()),
        ]
        lines.append("# versions: " + ", ".join(f"{name} {_version(name)}" for name in NAMED))
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write("\n".join(lines) + "\n")
            self._csv_table().to_csv(file, index=False)

    def _csv_table(self) -> pd.DataFrame:
        """What a CSV file holds: the table, names of its rows as columns."""
        return self.table()

    def to_latex(self) -> str:
        """The table as a LaTeX `tabular`; numbers with three digits.

        Returns
        -------
        text : str
            The `tabular`, to be pasted into a paper.
        """
        return latex(self.table(), [""] * len(self.table()))


def latex(
    table: pd.DataFrame, marks: Sequence[str], bold: int | None = None, column: str | None = None
) -> str:
    """A `tabular`. marks : of every row, set behind its number in `column`. bold : the row whose number there
    is set in bold.
    """
    numeric = [pd.api.types.is_numeric_dtype(table[name]) for name in table.columns]
    lines = [r"\begin{tabular}{" + "".join("r" if number else "l" for number in numeric) + "}", r"\hline"]
    lines += [" & ".join(escaped(str(name)) for name in table.columns) + r" \\", r"\hline"]
    for position, row in enumerate(table.itertuples(index=False, name=None)):
        cells = []
        for name, value in zip(table.columns, row, strict=True):
            cell = _cell(value)
            if name == column:
                cell = rf"\textbf{{{cell}}}" if position == bold else cell
                cell += f"$^{{{marks[position]}}}$" if marks[position] else ""
            cells.append(cell)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def mark_of(p_value: float) -> str:
    """Stars of a p-value: one below 0.05, two below 0.01, three below 0.001."""
    return next((mark for level, mark in MARKS if p_value < level), "")


def escaped(text: str) -> str:
    """Text that LaTeX sets as it stands here."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "--" if np.isnan(value) else f"{value:.3f}"
    return escaped(str(value))


def _plain(value: Any) -> str:
    """A value in one line."""
    return f"{value:.3g}" if isinstance(value, float | np.floating) else " ".join(str(value).split())


def _version(name: str) -> str:
    if name == "raymkl":
        from .. import __version__

        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def unique_names(names: Sequence[str]) -> list[str]:
    """Names, each once: those that occur before get a number, in brackets since `#` begins a comment in our
    CSV files.
    """
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} [{seen[name]}]")
    return found
