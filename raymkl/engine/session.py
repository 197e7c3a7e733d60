"""A session: shards and a coordinator that stand while several fits use them.

    with Session("ray", RayParams(num_shards=8)) as session:
        rows = session.put(X)
        MKLClassifier(kernels=bank, C=1.0, engine=session).fit(rows, y)
        MKLClassifier(kernels=bank, C=0.1, engine=session).fit(rows, y)      # computes only columns that were
        never seen

Rows that are put stay in the shards with the pair statistics that were computed of them, as far as the memory
budget allows.
"""

from __future__ import annotations

import threading
import weakref
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from ..data.views import n_rows, subset
from .params import RayParams
from .placed import CLOSED, Home, PlacedRows
from .rounds.caches import CachesOfRows, StandingCaches

KINDS = ("local", "ray")


class Session:
    """Where fits run, one after the other or several at once.

    `close()`, the end of a `with` block, the garbage collector and the end of the driver end a session. An
    idle session on Ray holds the CPUs of its shards. `clone` keeps a session; a pickled estimator remembers
    "local" or "ray" alone.

    Parameters
    ----------
    engine : {"local", "ray"}
        Threads of this process, or a coordinator actor and shard actors, started now.
    params : RayParams or None
        Place and memory of the shards (workers). For checkpoints, failures, time-outs and memory the
        `ray_params` of an estimator go first; where shards live is decided here.
    row_bytes : int
        What the rows of a shard will take, in bytes. On Ray a shard reserves so much memory beside
        `memory_per_shard`; a fit that opens a session of its own knows it.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLClassifier, Session, kernels
    >>> X, y = np.arange(20.0).reshape(-1, 1), np.arange(20) // 10
    >>> with Session("local") as session:
    ...     rows = session.put(X)
    ...     for C in (0.1, 1.0):
    ...         clf = MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), C=C, engine=session).fit(rows, y)
    >>> clf.C
    1.0
    """

    def __init__(self, engine: str = "local", params: RayParams | None = None, row_bytes: int = 0):
        if engine not in KINDS:
            raise ValueError(
                f"engine of a Session must be one of {', '.join(map(repr, KINDS))}, got {engine!r}"
            )
        if params is not None and not isinstance(params, RayParams):
            raise ValueError(f"params of a Session must be a RayParams or None, got {params!r}")
        if not isinstance(row_bytes, int | np.integer) or row_bytes < 0:
            raise ValueError(f"row_bytes of a Session must be a whole number >= 0, got {row_bytes!r}")
        self.kind, self.params, self._row_bytes = engine, params or RayParams(), int(row_bytes)
        self._lock = threading.Lock()
        self._homes: weakref.WeakSet[Home] = weakref.WeakSet()
        self._kept: dict[
            int, dict[int, list]
        ] = {}  # caches of shards in this process that stand, by shard and serial number
        self._standing = StandingCaches()
        # the one RaySession, once it has started; a list, so that the finalizer finds it
        self._actors: list = []
        self._end = weakref.finalize(self, _close, self._actors)
        if engine == "ray":
            self.actors()

    def __repr__(self) -> str:
        return f"<Session {self.kind!r}{'' if self.is_open else ', closed'}>"

    def __enter__(self) -> Session:
        self.check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __copy__(self) -> Session:
        return self

    def __deepcopy__(self, memo: dict) -> Session:
        return self

    def __reduce__(self) -> Any:
        return (str, (self.kind,))  # a fitted model holds no handle

    @property
    def is_open(self) -> bool:
        """Whether the session can be used, as it can until it is closed."""
        return self._end.alive

    def check_open(self) -> None:
        """Raise RuntimeError when the session is closed."""
        if not self.is_open:
            raise RuntimeError(CLOSED)

    def close(self) -> None:
        """End all actors and let go of all rows. Nothing happens to a session that is closed already."""
        for home in list(self._homes):
            home.leave()
        self._kept.clear()
        self._end()

    def put(self, X: Any) -> SessionRows:
        """Rows (any container that `fit` takes) that stay in the shards between fits, with their pair
        statistics.

        Estimators with this session as their engine can be fitted to them; any estimator can predict them.

        Parameters
        ----------
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or Dataset
            Rows (examples), in a container that the kernels take.

        Returns
        -------
        rows : SessionRows
            What `fit` and `predict` take in the place of X.
        """
        self.check_open()
        rows = SessionRows(self, X)
        self._homes.add(rows.home)
        return rows

    def local_caches(self, rows: PlacedRows) -> tuple[dict[int, dict[int, list]], CachesOfRows]:
        """Caches of shards in this process, and what is known of those over these rows.

        Parameters
        ----------
        rows : object
            Rows as read for a fit.

        Returns
        -------
        caches : dict
            Cached pair statistics of every shard.
        known : CachesOfRows
            What is known of those over these rows.
        """
        return self._kept, self._standing.of(rows.home.name_of(rows))

    def forget(self, names: list[str]) -> None:
        """Drop the caches over rows of these names, which nobody uses any more.

        Parameters
        ----------
        names : iterable
            Names of rows.
        """
        if self._actors:
            self._actors[0].forget(names)
        for serial in [serial for name in names for serial in self._standing.drop(name)]:
            for kept in self._kept.values():
                kept.pop(serial, None)

    def actors(self) -> Any:
        """Coordinator and shards of a session on Ray.

        Returns
        -------
        actors : object
            Handles of the coordinator and the shards; they are started when first asked for.
        """
        self.check_open()
        with self._lock:
            if not self._actors:
                # Loads Ray, which local sessions go without.
                from .pools.placement import most_shards
                from .pools.ray_session import RaySession, ensure_ray

                ensure_ray()
                there = most_shards(self.params)
                count = self.params.shards_where(there) or there
                params = self.params if self.params.bounds else replace(self.params, num_shards=count)
                self._actors.append(RaySession(count, params, row_bytes=self._row_bytes))
            return self._actors[0]


def _close(actors: list) -> None:
    while actors:
        actors.pop().close()


class SessionRows:
    """Rows that were put into a session. X : the container as it came, which is read, never written.

    `len`, `shape` and indexing are those of the container, for tools that split rows; parts of it are plain
    rows again.
    """

    def __init__(self, session: Session, X: Any):
        if isinstance(X, SessionRows):
            raise ValueError("X was put into a session already; put the rows themselves")
        self.X, self.home = X, Home(session)
        self._names = weakref.finalize(self, _forget, self.home)

    def __repr__(self) -> str:
        return f"<rows of {self.home.session!r}: {type(self.X).__name__}>"

    def __len__(self) -> int:
        return n_rows(self.X)

    @property
    def shape(self) -> tuple:
        return self.X.shape if hasattr(self.X, "shape") else (len(self),)

    def __getitem__(self, index: Any) -> Any:
        index = index[0] if isinstance(index, tuple) else index  # scikit-learn asks arrays for [rows, ...]
        return subset(self.X, np.arange(len(self))[index])

    def holding(self, X: Any) -> SessionRows:
        """The same rows in another container."""
        if X is self.X:
            return self
        other = copy(self)
        other.X = X
        return other

    @property
    def session(self) -> Session:
        return self.home.session

    def check_open(self) -> None:
        """Raise RuntimeError when the session of these rows is closed."""
        check_home(self.home)


def _forget(home: Home) -> None:
    names = home.leave()
    if names and home.session.is_open:
        home.session.forget(names)


def check_home(home: Home) -> None:
    """Raise RuntimeError when the session that rows were put into is closed."""
    if not home.session.is_open:
        raise RuntimeError(
            "X was put into a Session that is closed; give the rows themselves, or put them into an open one"
        )


def session_of(engine: Any, rows: Any) -> Session | None:
    """The session that a fit runs in: that of its engine, or that of its rows; None for a fit of its own.

    rows : as read for the fit; those that were put know their home.
    """
    home = getattr(rows, "home", None)
    if home is not None:
        check_home(home)
    if isinstance(engine, Session):
        engine.check_open()
        if home is not None and home.session is not engine:
            raise ValueError(
                "X was put into another session than the one that engine is; put it into this one"
            )
        return engine
    if home is None:
        return None
    if engine not in ("auto", home.session.kind):
        raise ValueError(
            f"X was put into {home.session!r}, and engine={engine!r} runs elsewhere; give engine=session or "
            "engine='auto'"
        )
    return home.session


def session_and_rows(engine: Any, X: Any) -> tuple[Session | None, Any]:
    """The session of an engine and of rows that may have been put, and the rows themselves."""
    if not isinstance(X, SessionRows):
        return session_of(engine, None), X
    return session_of(engine, X), X.X


def check_engine(engine: Any) -> None:
    """Raise ValueError for what is no engine."""
    if not isinstance(engine, Session) and not (isinstance(engine, str) and engine in ("auto", *KINDS)):
        raise ValueError(f"engine must be one of 'auto', 'local', 'ray', or a Session, got {engine!r}")
    if isinstance(engine, Session):
        engine.check_open()
