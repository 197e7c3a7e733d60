"""Tables that were made lately: a search or a series of fits makes the table of a bank of kernels once.

A table depends on its kernels, on where the largest statistic lies (to a quarter of an octave) and on the
dtype of the statistics, and on nothing else. Its arrays are read-only, so that fits share them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ..base import Kernel
from .basis import Basis, FormulaBasis
from .tables import NotSmooth, TableBasis, WideTableBasis, end_of

# Tables kept; each takes some 100 KB, those of very wide banks some MB.
MOST_TABLES = 16

_tables: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def table_basis(kernels: Sequence[Kernel], bound: float, dtype: Any, coarse: bool = False) -> Basis:
    """A table of kernels that are functions of one non-negative statistic of the given dtype, up to `bound`.
    coarse : see `TableBasis`.

    Kernels that are no smooth functions of their statistic are evaluated by their formulas.
    """
    wide = np.dtype(dtype) == np.float64
    return kept(("basis", wide, coarse), kernels, bound, lambda: _made(kernels, bound, wide, coarse))


def kept(kind: Hashable, kernels: Sequence[Kernel], bound: float, make: Callable[[], Any]) -> Any:
    """What `make` makes of kernels and a bound, or what it made of equal ones lately.

    kind : tells different things apart.
    """
    key: Hashable = (kind, end_of(bound), tuple(map(_identity, kernels)))
    try:
        hash(key)
    except TypeError:  # a kernel that somebody wrote, with parameters that cannot be compared
        return make()
    with _lock:
        found = _tables.get(key)
        if found is not None:
            _tables.move_to_end(key)
            return found
    made = make()
    with _lock:
        _tables[key] = made
        while len(_tables) > MOST_TABLES:
            _tables.popitem(last=False)
    return made


def _made(kernels: Sequence[Kernel], bound: float, wide: bool, coarse: bool) -> Basis:
    profiles = [kernel.profile for kernel in kernels]
    try:
        return WideTableBasis(profiles, bound) if wide else TableBasis(profiles, bound, coarse)
    except NotSmooth:
        return FormulaBasis(profiles)


def _identity(value: Any) -> Any:
    """All that the values of a kernel can depend on: its type and whatever it holds.

    Other values stand for themselves.
    """
    if not isinstance(value, Kernel):
        return value
    return (type(value), *((name, _identity(part)) for name, part in vars(value).items()))
