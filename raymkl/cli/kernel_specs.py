"""Kernels in writing: the short form of the command line, and YAML files.

Short form: kernels are separated by semicolons, each `name:values@view`.

    rbf:0.01,0.1,1;poly:2;linear          three Gaussian widths, a quadratic kernel, the linear one
    rbf:auto                              five widths around the median distance of the data
    rbf:auto@expression;linear@age,bmi    kernels of a view: of a column, of several, or of a view with a name
    spectrum:3,4@sequence                 string kernels of a column of text

A kernel without a view looks at all columns of numbers, or at every view in turn when the data have views.
`@all` is all columns together. A YAML file says the same at length:

    views:
      shape: [x0, x1, "radius*"]          # columns, or patterns of column names
      texture: [x2, x3]
    kernels:
      - rbf: auto
      - poly: [2, 3]
        coef0: 0.5
        view: texture
      - linear@shape                      # the short form
    normalize: multiplicative
    standardize: true
"""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.tables import Columns, DataError
from ..models.table_model import ALL

AUTO = "auto"


@dataclass(frozen=True)
class Family:
    """A kernel of the short form: its class in `raymkl.kernels`, what its values are, and what they are when
    left out.
    """

    class_name: str
    parameter: str | None = None
    default: Any = None
    whole: bool = False
    auto: bool = False
    text: bool = False
    fixed: tuple = ()


KNOWN = {
    "rbf": Family("RBF", "gamma", AUTO, auto=True),
    "laplacian": Family("Laplacian", "gamma", AUTO, auto=True),
    "chi2": Family("Chi2", "gamma", AUTO, auto=True),
    "poly": Family("Polynomial", "degree", 2, whole=True, fixed=(("coef0", 1.0),)),
    "linear": Family("Linear"),
    "intersection": Family("HistogramIntersection"),
    "spectrum": Family("Spectrum", "k", 3, whole=True, text=True),
    "wd": Family("WeightedDegree", "degree", 5, whole=True, text=True),
}
KEYS = ("views", "kernels", "normalize", "standardize")


@dataclass(frozen=True)
class KernelSpec:
    """One entry: name, values of its parameter (numbers, "auto", or none), view as written, other
    parameters.
    """

    name: str
    values: tuple = ()
    view: str | tuple | None = None
    others: dict = field(default_factory=dict)

    @property
    def family(self) -> Family:
        return KNOWN[self.name]

    def kernels(self, view: Any, rows: Any) -> list:
        """Kernel objects over one view; `rows` (n, d) are what "auto" looks at."""
        from .. import kernels
        from ..kernels.defaults import widths_around

        cls = getattr(kernels, self.family.class_name)
        if self.family.parameter is None:
            return [cls(view=view, **self.others)]
        values = self.values
        if values == (AUTO,):
            values = tuple(widths_around(rows, cls().statistic()))
        return [
            cls(**{**dict(self.family.fixed), self.family.parameter: value, **self.others}, view=view)
            for value in values
        ]


@dataclass(frozen=True)
class BankSpec:
    """A list of kernels in writing; `normalize` and `standardize` are None where nothing was said."""

    entries: tuple[KernelSpec, ...]
    views: dict[str, list[str]] = field(default_factory=dict)
    normalize: str | None = None
    standardize: bool | None = None

    def arrange(
        self, columns: Columns, target: str | None
    ) -> tuple[dict[str | None, list[str]], list[str], list[tuple]]:
        """(views for `Preparation`, columns of text, [(entry, view)]) for a table.

        Text that no kernel asks for is an error that names the columns.
        """
        names = columns.feature_names(target)
        text = columns.text_columns(names)
        numbers = [name for name in names if name not in text]
        declared = {view: _expand(view, patterns, names, columns) for view, patterns in self.views.items()}
        if not declared and columns.features is not None and len(numbers) > 1:
            declared = {name: [name] for name in numbers}  # a file that has views
        used: dict[str, list[str]] = {}
        pairs: list[tuple] = []
        for entry in self.entries:
            for view, members in self._views_of(entry, declared, numbers, text, columns):
                used[view] = members
                pairs.append((entry, view))
        read = {name for members in used.values() for name in members}
        unread = [name for name in text if name not in read]
        if unread:
            raise DataError(
                f"{columns.source}: column{'s' if len(unread) > 1 else ''} "
                f"{', '.join(map(repr, unread[:12]))} "
                f"{'hold' if len(unread) > 1 else 'holds'} no numbers; drop "
                f"{'them' if len(unread) > 1 else 'it'}, turn "
                f"{'them' if len(unread) > 1 else 'it'} into numbers, or ask for a string kernel "
                f"(spectrum:3@{unread[0]})"
            )
        if list(used) == [ALL] and ALL not in declared:
            return {None: used[ALL]}, [], [(entry, None) for entry, _ in pairs]
        return dict(used), [name for name in text if name in read], pairs

    def _views_of(
        self, entry: KernelSpec, declared: dict, numbers: list[str], text: list[str], columns: Columns
    ) -> list[tuple]:
        """[(view, its columns)] that an entry looks at."""
        source = columns.source
        if entry.view is None and entry.family.text:
            if len(text) != 1:
                raise DataError(
                    f"{source} has {len(text)} columns of text; say which one: {entry.name}:3@COLUMN"
                )
            return [(text[0], text)]
        if entry.view is None and declared:
            return list(declared.items())
        if entry.view is None or (entry.view == ALL and ALL not in declared):
            if not numbers:
                raise DataError(f"{source} has no columns of numbers for the kernel {entry.name}")
            return [(ALL, numbers)]
        if isinstance(entry.view, str) and entry.view in declared:
            view, members = entry.view, declared[entry.view]
        else:
            members = [entry.view] if isinstance(entry.view, str) else list(entry.view)
            view = ",".join(members)
        unknown = [name for name in members if name not in columns.names]
        if unknown:
            views = f"; views: {', '.join(declared)}" if declared else ""
            shown = ", ".join([*numbers, *text][:12])
            raise DataError(
                f"{source} has no view or column {unknown[0]!r} (kernel {entry.name}@{view}){views}; "
                f"columns: {shown}"
            )
        wrong = [name for name in members if (name in text) != entry.family.text]
        if wrong:
            kind = "holds numbers; this kernel needs text" if entry.family.text else "holds no numbers"
            raise DataError(f"{source}: column {wrong[0]!r} {kind} (kernel {entry.name}@{view})")
        if entry.family.text and len(members) > 1:
            raise DataError(
                f"{source}: a string kernel reads one column, {entry.name}@{view} names {len(members)}"
            )
        return [(view, members)]

    @staticmethod
    def build(pairs: list[tuple], X: Any) -> list:
        """Kernel objects for the pairs (entry, view) that `arrange` gave; X is what the model will see."""
        return [
            kernel for entry, view in pairs for kernel in entry.kernels(view, X if view is None else X[view])
        ]


def _expand(view: str, patterns: Any, names: list[str], columns: Columns) -> list[str]:
    """Columns that match the patterns of a view, in the order of the patterns."""
    found: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        pattern = str(pattern)
        matches = [pattern] if pattern in columns.names else fnmatch.filter(names, pattern)
        if not matches:
            raise DataError(f"view {view!r}: {columns.source} has no column {pattern!r}")
        found += [name for name in matches if name not in found]
    return found


# -- parsing ---------------------------------------------------------------------------------------


def read_bank(text: str) -> BankSpec:
    """The bank that `--kernels` describes: the path of a YAML file, or the short form.

    >>> read_bank("rbf:0.1,1;linear@age,bmi").entries[1].view
    ('age', 'bmi')
    """
    if text.lower().endswith((".yaml", ".yml")):
        return _read_yaml(text)
    entries = tuple(_parse_entry(part) for part in text.split(";") if part.strip())
    if not entries:
        raise DataError(f"--kernels {text!r} names no kernel; known: {', '.join(_known())}")
    return BankSpec(entries)


def _parse_entry(text: str) -> KernelSpec:
    head, at, view = text.strip().partition("@")
    name, colon, values = head.partition(":")
    members = [member.strip() for member in view.split(",")]
    if at and not all(members):
        raise DataError(f"kernel {text.strip()!r}: a view is missing after @")
    written = [value.strip() for value in values.split(",")] if colon else []
    return _entry(
        name,
        written,
        None if not at else members[0] if len(members) == 1 else tuple(members),
        {},
        text.strip(),
    )


def _entry(name: str, values: list, view: Any, others: dict, said: str) -> KernelSpec:
    """A checked entry; `said` is how it was written."""
    name = name.strip().lower()
    if name not in _known():
        raise DataError(f"unknown kernel {name!r} in {said!r}; known: {', '.join(_known())}")
    family = KNOWN[name]
    if family.parameter is None:
        if values:
            raise DataError(f"kernel {said!r}: {name} takes no values")
        numbers: tuple = ()
    else:
        numbers = tuple(_value(value, family, said) for value in values or [family.default])
    if AUTO in numbers and len(numbers) > 1:
        raise DataError(f"kernel {said!r}: auto stands alone, it is a bank of its own")
    spec = KernelSpec(name, numbers, view, others)
    if numbers != (AUTO,):
        try:
            spec.kernels(None, None)  # parameters out of range are found before any data are read
        except (TypeError, ValueError) as error:
            raise DataError(f"kernel {said!r}: {error}") from None
    return spec


def _value(value: Any, family: Family, said: str) -> Any:
    if isinstance(value, str) and value.strip().lower() == AUTO and family.auto:
        return AUTO
    try:
        number = float(value)
    except (TypeError, ValueError):
        accepted = "numbers or auto" if family.auto else "numbers"
        raise DataError(
            f"kernel {said!r}: {value!r} is not a number; values are {accepted}, separated by commas"
        ) from None
    if family.whole and number != int(number):
        raise DataError(f"kernel {said!r}: {value!r} is not a whole number")
    return int(number) if family.whole else number


def _known() -> list[str]:
    from .. import kernels

    return [name for name, family in KNOWN.items() if hasattr(kernels, family.class_name)]


def _read_yaml(path: str) -> BankSpec:
    import yaml

    if not Path(path).is_file():
        raise DataError(f"--kernels: {path} does not exist")
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    content = {"kernels": content} if isinstance(content, list) else content
    if (
        not isinstance(content, Mapping)
        or not isinstance(content.get("kernels"), list)
        or not content["kernels"]
    ):
        raise DataError(f"{path} needs a list under the key 'kernels'")
    strange = [key for key in content if key not in KEYS]
    if strange:
        raise DataError(f"{path}: unknown key {strange[0]!r}; known: {', '.join(KEYS)}")
    views = content.get("views") or {}
    if not isinstance(views, Mapping) or not all(
        isinstance(members, str | list) and members for members in views.values()
    ):
        raise DataError(f"{path}: 'views' takes names with lists of columns, such as shape: [x0, x1]")
    normalize, standardize = content.get("normalize"), content.get("standardize")
    if standardize is not None and not isinstance(standardize, bool):
        raise DataError(f"{path}: 'standardize' is true or false, got {standardize!r}")
    if normalize is not None and not isinstance(normalize, str):
        raise DataError(f"{path}: 'normalize' is a word, got {normalize!r}")
    entries = tuple(_yaml_entry(entry, path) for entry in content["kernels"])
    return BankSpec(entries, {str(view): members for view, members in views.items()}, normalize, standardize)


def _yaml_entry(entry: Any, path: str) -> KernelSpec:
    if isinstance(entry, str):
        return _parse_entry(entry)
    if not isinstance(entry, Mapping):
        raise DataError(f"{path}: a kernel is a word or a mapping such as 'rbf: [0.1, 1]', got {entry!r}")
    others = {str(key): value for key, value in entry.items()}
    view = others.pop("view", None)
    view = tuple(map(str, view)) if isinstance(view, list) else view if view is None else str(view)
    named = [key for key in others if key.lower() in KNOWN]
    unnamed = list(others)[:1] or ["?"]
    name = named[0] if named else str(unnamed[0])
    values = others.pop(name, None)
    values = [] if values is None else values if isinstance(values, list) else [values]
    said = f"{path}: {dict(entry)}"
    if name.lower() in _known():
        from .. import kernels

        accepted = list(inspect.signature(getattr(kernels, KNOWN[name.lower()].class_name)).parameters)
        strange = [key for key in others if key not in accepted]
        if strange:
            raise DataError(
                f"kernel {said!r}: {name} has no parameter {strange[0]!r}; known: {', '.join(accepted)}"
            )
        others = {key: _number_of(value) for key, value in others.items()}
    return _entry(name, values, view, others, said)


def _number_of(value: Any) -> Any:
    """YAML reads 1e-3 (without a point) as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
