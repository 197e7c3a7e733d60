"""Tables joined by key: every key is a row, every table a view; a key that a table does not have is absent
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..views import is_dict, is_frame, is_other_frame, is_table, shown, subset
from .gappy_rows import NOWHERE, GappyRows

HOW = ("outer", "inner")


def aligned(tables: Any, on: Any, how: str) -> tuple[dict[str, Any], np.ndarray, list]:
    """Views by name, presence (n, V) and keys (n,) of joined tables; see `Views.align` for the arguments."""
    if not is_dict(tables):
        raise TypeError(f"tables must be a dict from names to tables, got {type(tables).__name__}")
    if not tables:
        raise ValueError(
            "tables is an empty dict; at least one table is needed, each of which becomes a view"
        )
    if not isinstance(how, str) or how not in HOW:
        raise ValueError(f"how must be one of {', '.join(map(repr, HOW))}; got {how!r}")
    columns = _key_columns(on)
    places: dict[str, dict] = {}
    for name, table in tables.items():
        _check_table(name, table, columns)
        places[name] = _places(name, _keys(name, table, columns))
    _check_kinds(places)
    first, *others = places.values()
    if how == "inner":
        keys = [key for key in first if all(key in other for other in others)]
    else:
        keys = list(dict.fromkeys(key for place in places.values() for key in place))
    if not keys:
        what = "no key is in all tables" if how == "inner" else "all tables are empty"
        raise ValueError(f"aligned tables would have 0 rows: {what} ({', '.join(map(repr, tables))})")
    at = {
        name: np.array([place.get(key, NOWHERE) for key in keys], np.int64) for name, place in places.items()
    }
    views = {name: _rows(_without(table, columns, name), at[name]) for name, table in tables.items()}
    return views, np.column_stack([rows != NOWHERE for rows in at.values()]), keys


def _key_columns(on: Any) -> list[str] | None:
    if on is None:
        return None
    columns = [on] if isinstance(on, str) else on
    if (
        not isinstance(columns, list | tuple)
        or not columns
        or not all(isinstance(name, str) for name in columns)
    ):
        raise TypeError(
            "on must be the name of a key column, a list of such names, or None (the index of pandas); got "
            f"{on!r}"
        )
    return list(columns)


def _check_table(name: Any, table: Any, columns: list[str] | None) -> None:
    if not (is_frame(table) or is_table(table) or is_other_frame(table)):
        raise TypeError(
            f"table {name!r} is a {type(table).__name__}; pandas, polars and Arrow tables can be aligned"
        )
    if columns is None:
        if not is_frame(table):
            raise TypeError(
                f"on=None joins tables by the index of pandas, but table {name!r} is a "
                f"{type(table).__module__.split('.')[0]} table; "
                "name its key column (on=...)"
            )
        return
    names = list(table.column_names if is_table(table) else table.columns)
    for column in columns:
        if names.count(column) != 1:
            what = "is not a column" if column not in names else "is more than one column"
            raise ValueError(f"on={column!r} {what} of table {name!r}, whose columns are {shown(names)}")


def _keys(name: str, table: Any, columns: list[str] | None) -> list:
    """Keys (n,) of a table, as Python's own values; tuples where several columns are one key."""
    if columns is None:
        keys = table.index.tolist()
    else:
        parts = [_values(table[column]) for column in columns]
        keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    for row, key in enumerate(keys):
        if any(part is None or part != part for part in (key if isinstance(key, tuple) else (key,))):
            raise ValueError(f"table {name!r} has no key in row {row}; every row needs one")
    return keys


def _values(column: Any) -> list:
    if hasattr(column, "to_pylist"):
        return column.to_pylist()
    values = column.to_list()
    return [None if type(value).__name__ in ("NAType", "NaTType") else value for value in values]


def _places(name: str, keys: list) -> dict:
    """Where in its table a key is."""
    places = {key: row for row, key in enumerate(keys)}
    if len(places) < len(keys):
        seen: dict = {}
        for row, key in enumerate(keys):
            if key in seen:
                raise ValueError(
                    f"table {name!r} has the key {key!r} twice, in rows {seen[key]} and {row}; a key names "
                    "one row"
                )
            seen[key] = row
    return places


def _check_kinds(places: Mapping[str, dict]) -> None:
    """Raise ValueError for texts beside numbers, of which no two could be equal."""
    first: dict[tuple, tuple] = {}  # which of the parts of a key are texts, and a key of this kind
    for name, key in ((name, next(iter(place))) for name, place in places.items() if place):
        first.setdefault(
            tuple(isinstance(part, str) for part in (key if isinstance(key, tuple) else (key,))), (name, key)
        )
    if len(first) > 1:
        (one, key), (other, its_key), *_ = first.values()
        raise ValueError(
            f"keys are texts in one table and not in another: {key!r} of {one!r}, {its_key!r} of {other!r}; "
            "make them alike"
        )


def _without(table: Any, columns: list[str] | None, name: str) -> Any:
    """The table without its keys."""
    if columns is None:
        rest = table.reset_index(drop=True)
    elif is_frame(table):
        rest = table.drop(columns=columns).reset_index(drop=True)
    elif is_table(table):
        rest = table.drop_columns(columns)
    else:
        rest = table.select([column for column in table.columns if column not in columns])
    if rest.shape[1] == 0:
        raise ValueError(f"table {name!r} has no columns besides its keys; a view needs at least one")
    return rest


def _rows(table: Any, at: np.ndarray) -> Any:
    if (at == NOWHERE).any():
        return GappyRows(table, at)
    found = subset(table, at)
    return found.reset_index(drop=True) if is_frame(found) else found
