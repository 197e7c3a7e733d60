"""Results of a long study in a CSV file: written after every setting, and read again by the next run, which
skips what is there.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np


def same_settings(folder: Path, study: str, settings: dict) -> None:
    """Keep the settings of a study in its folder; ends the program when the folder holds its results of other
    ones. Several studies may share a folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{study}_settings.json"
    settings = json.loads(json.dumps(settings))
    if not path.exists():
        path.write_text(json.dumps(settings, indent=1) + "\n")
        return
    before = json.loads(path.read_text())
    changed = [
        f"{name} {before.get(name)!r}, now {settings[name]!r}"
        for name in settings
        if before.get(name) != settings[name]
    ]
    if changed:
        raise SystemExit(
            f"{folder} holds results of {study} with other settings ({'; '.join(changed)}); choose another --out or "
            "remove the folder"
        )


class Results:
    """Rows of a study, in memory and in a CSV file.

    Parameters
    ----------
    path : of the file; directories are made. keys : columns that tell settings apart. columns : all others.
    """

    def __init__(self, path: Path, keys: Sequence[str], columns: Sequence[str]):
        self.path, self.keys, self.columns = path, list(keys), [*keys, *columns]
        self.rows: dict[tuple, dict] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with path.open("w", newline="") as file:
                csv.writer(file).writerow(self.columns)
            return
        # A run that was killed may have left half a line, which may look like a whole one: a number that was
        # cut is still a number.
        text = path.read_bytes().decode()
        reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
        if reader.fieldnames != self.columns:
            raise SystemExit(
                f"{path} has other columns than this study; choose another --out or remove the file"
            )
        for line in reader:
            if None not in line and None not in line.values():
                row = {name: _value(value) for name, value in line.items()}
                self.rows[self._key(row)] = row

    def find(self, **key: Any) -> dict | None:
        """The row of a setting, or None when it is still to be done."""
        return self.rows.get(self._key(key))

    def add(self, **row: Any) -> dict:
        """Keep a row and append it to the file."""
        row = {name: row.get(name) for name in self.columns}
        self.rows[self._key(row)] = row
        with self.path.open(
            "r+b"
        ) as file:  # a run that was killed may have left half a line, which must not grow into ours
            data = file.read()
            file.truncate(data.rfind(b"\n") + 1)
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(["" if value is None else value for value in row.values()])
        return row

    def where(self, **same: Any) -> list[dict]:
        """Rows whose columns have the given values."""
        return [row for row in self.rows.values() if all(row[name] == value for name, value in same.items())]

    def _key(self, row: dict) -> tuple:
        return tuple(row[name] for name in self.keys)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def norm(text: str) -> float:
    """A block norm from the command line: 1, 1.5, 4/3, inf."""
    return float(text) if text in ("inf", "Inf") else float(Fraction(text))


def name_of(p: float) -> str:
    """A block norm as people write it."""
    return "inf" if np.isinf(p) else str(Fraction(p).limit_denominator(20))
