"""`Views`: named views over the same rows, of which any row may lack some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..views import is_dict, n_rows, view_name
from .align import aligned
from .columns import described, given, held, rows_at, stacked
from .gappy_rows import NOWHERE, GappyRows
from .matrix_rows import MatrixRows
from .presence import presence_of


class Views:
    """Named views over the same n rows, of which any row may lack some.

    It cannot be changed, and scikit-learn splits it as it splits an array.

    Every view keeps the container that it came in, with its types: an array (n, ...), a sparse matrix, a
    table of pandas, polars or Arrow, a list or column of strings, or rows of a ready-made matrix. Kernels say
    by `view=` which one they read, as for a dict.

    What stands in absent rows is never read, whatever it is. Those who read rows get them by three
    methods: `present` and `has` say which rows have a view, and `readable` gives a plain dict in which an
    absent row is a copy of the first row that is there, so that every number in it is one of a row that has
    the view, and whatever holds for all of these holds for all of it.

    Parameters
    ----------
    views : dict
        From names to views of n rows each.
    present : array-like of shape (n, V), dict, "infer" or None
        Which rows have which views: a mask with True where a row has a view, or a dict of masks (n,) for some
        of the views. None: every row has every view. "infer": a row of nothing but NaN or None is absent.
    matrices : iterable of str
        Names of views that are ready-made kernel matrices, (n, n) or (n, n, M): an array, a memory map, a
        kernel store or its path. Their rows know their columns: `fit` takes those of its own rows and
        `predict` those of the training rows, by number, when both stem from the same matrix. Matrices of new
        examples, (n, n_train) or (n, n_support), bring their columns in that order.
    index : array-like of shape (n,), or None
        Names of the rows; None numbers them.

    Attributes
    ----------
    names : tuple of str
        The V names of the views.
    shape : tuple of int
        (n, V); `len` is n.
    present : ndarray of shape (n, V)
        bool, which rows have which views.
    index : ndarray of shape (n,)
        Names of the rows.
    matrices : tuple of str
        The views that are ready-made matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLClassifier, Views, kernels
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> V = Views({"image": rng.normal(size=(60, 5)), "text": ["ab" * (1 + i % 2) for i in range(60)]})
    >>> V.shape, V[10:20].shape, V["image"].shape
    ((60, 2), (10, 2), (60, 5))
    >>> clf = MKLClassifier(kernels=[kernels.RBF(0.1, view="image"), kernels.Spectrum(k=2, view="text")],
    ...     engine="local")
    >>> cross_val_score(clf, V, V["image"][:, 0] > 0, cv=3).shape
    (3,)
    """

    # How the rooms below, which do not know this class, tell it from other containers (see
    # `data.views.is_views`).
    holds_named_views = True
    __slots__ = ("_index", "_present", "_views")
    _views: dict[str, Any]
    _present: np.ndarray
    _index: np.ndarray

    def __init__(
        self,
        views: Mapping[str, Any],
        *,
        present: Any = None,
        matrices: Sequence[str] = (),
        index: Any = None,
    ):
        if isinstance(views, Views):
            raise TypeError("views is a Views already; give a dict of views, such as dict(V.items())")
        if not is_dict(views):
            raise TypeError(f"views must be a dict from names to views, got {type(views).__name__}")
        if not views:
            raise ValueError("views is an empty dict; at least one view is needed")
        wrong = [name for name in views if not isinstance(name, str)]
        if wrong:
            raise TypeError(f"names of views must be str, got {wrong[0]!r}, a {type(wrong[0]).__name__}")
        matrices = (matrices,) if isinstance(matrices, str) else tuple(matrices)
        unknown = [name for name in matrices if name not in views]
        if unknown:
            raise ValueError(
                f"matrices names the view {unknown[0]!r}, which is not there; the views are {list(views)}"
            )
        kept = {
            name: MatrixRows.of_matrix(view, name) if name in matrices else held(view, name)
            for name, view in views.items()
        }
        lengths = {name: n_rows(view) for name, view in kept.items()}
        n = next(iter(lengths.values()))
        if len(set(lengths.values())) > 1:
            raise ValueError(f"views have different numbers of rows: {lengths}")
        self._set(kept, presence_of(present, kept, n), _names_of_rows(index, n))

    def _set(self, views: dict, present: np.ndarray, index: np.ndarray) -> None:
        for array in (present, index):
            array.flags.writeable = False
        for name, value in (("_views", views), ("_present", present), ("_index", index)):
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls, views: dict, present: np.ndarray, index: np.ndarray) -> Views:
        """A container of parts that are checked and held already."""
        made = cls.__new__(cls)
        made._set(views, present, index)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Views cannot be changed; make a new one (setting {name!r})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Views cannot be changed; make a new one (deleting {name!r})")

    def __getstate__(self) -> tuple:
        return dict(self._views), self._present, self._index

    def __setstate__(self, state: tuple) -> None:
        views, present, index = state
        self._set({name: held(view, name) for name, view in views.items()}, present, index)

    # -- what there is -----------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """(V,) names of the views."""
        return tuple(self._views)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, V): rows and views."""
        return self._present.shape[0], self._present.shape[1]

    @property
    def present(self) -> np.ndarray:
        """(n, V) bool, read-only: which rows have which views."""
        return self._present

    @property
    def index(self) -> np.ndarray:
        """(n,) names of the rows, read-only."""
        return self._index

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the views that are ready-made matrices."""
        return tuple(name for name, view in self._views.items() if isinstance(view, MatrixRows))

    def __len__(self) -> int:
        return len(self._present)

    def __contains__(self, name: object) -> bool:
        return name in self._views

    def __iter__(self) -> Iterator:
        raise TypeError("a Views has rows and views; go over V.names, V.items() or range(len(V))")

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and views, in order; views as `V[name]` gives them.

        Yields
        ------
        name : str
            Of a view.
        view : object
            The view, as `V[name]` gives it.
        """
        return ((name, self[name]) for name in self.names)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(
            f"a Views holds the views {list(self.names)} and is not one array; take one of its views, such "
            f"as V[{self.names[0]!r}]"
        )

    def __repr__(self) -> str:
        lines = [f"Views of {len(self)} rows, {len(self.names)} views"]
        wide = max(map(len, self.names))
        for position, (name, view) in enumerate(self._views.items()):
            absent = int((~self._present[:, position]).sum())
            lines.append(f"  {name:<{wide}}  {described(view)}" + (f", {absent} absent" if absent else ""))
        return "\n".join(lines)

    # -- rows --------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """V["name"] is a view, in its own container, read-only; V[rows] is a `Views` of rows as NumPy picks
        them.
        """
        if isinstance(key, str):
            if key not in self._views:
                raise KeyError(f"view {key!r} is not there; the views are {list(self.names)}")
            return given(self._views[key])
        if isinstance(key, tuple):
            if len(key) != 2 or not (key[1] is Ellipsis or key[1] == slice(None)):
                raise TypeError(f"rows are picked by V[rows] and views by V[name], got V[{key!r}]")
            key = key[0]
        picked = self._numbers(key)
        views = {name: rows_at(view, picked) for name, view in self._views.items()}
        return Views._of(views, self._present[picked], self._index[picked])

    def _numbers(self, rows: Any) -> np.ndarray:
        """Row numbers (k,) of what NumPy takes for rows."""
        if rows is None or rows is Ellipsis:
            raise TypeError(
                f"rows are picked by a slice, a mask, a number or a list of numbers, got {rows!r}"
            )
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            rows = rows.astype(np.intp) if rows.size == 0 and rows.dtype.kind == "f" else rows
            if rows.dtype.kind not in "iub" or rows.ndim > 1:
                raise TypeError(
                    f"rows are picked by a slice, a mask or row numbers (k,), got {rows.dtype} of shape "
                    f"{rows.shape}"
                )
        return np.atleast_1d(np.arange(len(self))[rows])

    @staticmethod
    def concat(parts: Sequence[Views]) -> Views:
        """Rows of several containers below each other.

        Parameters
        ----------
        parts : list of Views
            They have the same views, of the same kinds. Rows of a ready-made matrix stem from the same one.

        Returns
        -------
        views : Views
            All rows, with the presence and the index of the parts.

        Examples
        --------
        >>> from raymkl import Views
        >>> V = Views({"a": [[1.0], [2.0], [3.0]], "b": ["x", "y", "z"]})
        >>> Views.concat([V[2:], V[:1]]).index.tolist()
        [2, 0]
        """
        parts = list(parts)
        if not parts:
            raise ValueError("concat needs at least one Views, got an empty list")
        for part in parts:
            if not isinstance(part, Views):
                raise TypeError(f"concat takes a list of Views, got a {type(part).__name__} in it")
            if set(part.names) != set(parts[0].names):
                raise ValueError(
                    f"concat needs the same views in all parts, got {list(parts[0].names)} and "
                    f"{list(part.names)}"
                )
        names = parts[0].names
        views = {name: stacked([part._views[name] for part in parts], name) for name in names}
        present = np.concatenate(
            [part._present[:, [part.names.index(name) for name in names]] for part in parts]
        )
        indices = [part._index for part in parts]
        if len({index.dtype.kind for index in indices}) > 1:
            indices = [index.astype(object) for index in indices]  # numbers stay numbers beside texts
        return Views._of(views, present, np.concatenate(indices))

    @staticmethod
    def align(tables: Mapping[str, Any], on: str | Sequence[str] | None = None, how: str = "outer") -> Views:
        """Tables joined by key: every key is a row, every table a view; a key that a table lacks is absent
        there.

        Parameters
        ----------
        tables : dict
            From names to tables of pandas, polars or Arrow, which may be of different kinds and in different
            orders.
        on : str, list of str, or None
            Name of the key column, or of several that are the key together. None takes the index of pandas.
            Keys leave the views and become `index`. A key that is in one table twice is an error.
        how : {"outer", "inner"}
            "outer" has a row for every key, in order of first appearance; "inner" for keys of all tables, in
            the order of the first.

        Returns
        -------
        views : Views
            Columns keep their types; absent rows look like missing entries.

        Examples
        --------
        >>> import pandas as pd, pyarrow as pa
        >>> from raymkl import Views
        >>> rna = pd.DataFrame({"patient": ["a", "b"], "gene": [0.1, 0.2]})
        >>> ct = pa.table({"patient": ["c", "b"], "volume": [3, 4]})
        >>> V = Views.align({"rna": rna, "ct": ct}, on="patient")
        >>> V.index.tolist(), V.present.tolist()
        (['a', 'b', 'c'], [[True, False], [True, True], [False, True]])
        """
        views, present, keys = aligned(tables, on, how)
        return Views(views, present=present, index=keys)

    # -- for those who read rows -------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether every row has every view."""
        return bool(self._present.all())

    def has(self, view: Any = None) -> np.ndarray:
        """Which rows have what a kernel with this `view` reads (also some columns of it).

        Parameters
        ----------
        view : str, tuple or list
            As a kernel's `view`.

        Returns
        -------
        present : ndarray of shape (n,)
            bool, read-only.
        """
        return self._present[:, self.names.index(view_name(self._views, view))]

    def rows_with(self, name: str) -> Any:
        """The view `name` of those rows alone that have it, in its own container.

        Parameters
        ----------
        name : str
            Of a view.

        Returns
        -------
        rows : ndarray, DataFrame, list or sparse matrix
            The rows that have the view, in their order.
        """
        return given(rows_at(self._views[name], np.flatnonzero(self.has(name))))

    def with_views(self, names: Sequence[str], replaced: Mapping[str, Any]) -> Views:
        """The same rows with some of the views.

        Parameters
        ----------
        names : iterable of str
            Views of the result.
        replaced : mapping
            What came of `rows_with` of some of them, row for row; where no row has the view, any row of its
            kind.

        Returns
        -------
        views : Views
            With the same presence and index.
        """
        views = {}
        for name in names:
            there = self.has(name)
            if name not in replaced:
                views[name] = self._views[name]
            elif there.all():
                views[name] = held(replaced[name], name)
            else:
                views[name] = GappyRows(
                    held(replaced[name], name), np.where(there, np.cumsum(there) - 1, NOWHERE)
                )
        return Views._of(views, self._present[:, [self.names.index(name) for name in names]], self._index)

    def readable(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Views by name as readers take them: an absent row is a copy of the first row that has the view.

        Views that no row has are left out: there is nothing in them that may be read. Ready-made matrices are
        `MatrixRows`.

        Parameters
        ----------
        names : iterable of str, or None
            Views that are wanted, None for all; of others nothing is copied.

        Returns
        -------
        views : dict
            Containers by name.
        """
        found = {}
        for name in self.names if names is None else names:
            there, view = self.has(name), self._views[name]
            if there.all():
                found[name] = view
            elif there.any():
                found[name] = rows_at(view, np.where(there, np.arange(len(self)), np.argmax(there)))
        return found


def _names_of_rows(index: Any, n: int) -> np.ndarray:
    """index as an array (n,) of its own."""
    if index is None:
        return np.arange(n)
    if isinstance(index, list | tuple) and any(isinstance(name, tuple | list) for name in index):
        names = np.empty(len(index), object)
        names[:] = [tuple(name) if isinstance(name, list) else name for name in index]
    else:
        names = np.array(index)
        if (
            names.dtype.kind in "US"
            and isinstance(index, list | tuple)
            and not all(isinstance(name, str | bytes) for name in index)
        ):
            names = np.array(index, object)  # numbers stay numbers beside texts
    if names.shape != (n,):
        raise ValueError(f"index must name each of the {n} rows, got shape {names.shape}")
    return names
