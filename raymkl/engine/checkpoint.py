"""Checkpoints: the state of all heads in a file, from which a later run with the same data and parameters goes on.

A checkpoint is an Arrow file `raymkl-<round>.checkpoint` in a directory (a local path, or a URI that `pyarrow.fs` opens), written under
another name and then renamed, so that a file under its final name is complete. The last two are kept; a finished run removes them.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from .arrow_state import pack, unpack
from .messages import Head, Problem

FORMAT = 1
KEPT = 2
_NAME = re.compile(r"raymkl-(\d+)\.checkpoint$")


class Checkpoints:
    """Checkpoints of one run in one directory. identity : what data and parameters are, by name, see `identity_of`."""

    def __init__(self, directory: str, identity: dict[str, str]):
        self.directory, self.identity = str(directory), identity
        try:
            self.files, self.path = fs.FileSystem.from_uri(self.directory)
        except (pa.ArrowInvalid, ValueError):  # not a URI
            import os

            self.files, self.path = fs.LocalFileSystem(), os.path.abspath(self.directory)
        try:
            self.files.create_dir(self.path, recursive=True)
        except OSError as error:
            raise ValueError(f"checkpoint_dir={self.directory!r} cannot be used: {error}") from None

    def names(self) -> list[str]:
        """Paths of complete checkpoints, newest first."""
        found = self.files.get_file_info(fs.FileSelector(self.path))
        numbered = [(int(match.group(1)), info.path) for info in found if (match := _NAME.search(info.path))]
        return [path for _, path in sorted(numbered, reverse=True)]

    def write(self, state: dict) -> None:
        """Write a state, then remove all but the last two checkpoints."""
        head = {"format": FORMAT, "identity": self.identity, "round": int(state["round"])}
        table = pack(state, {"raymkl-checkpoint": json.dumps(head)})
        final = f"{self.path}/raymkl-{int(state['round'])}.checkpoint"
        with self.files.open_output_stream(f"{final}.part") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self.files.move(f"{final}.part", final)
        for path in self.names()[KEPT:]:
            self.files.delete_file(path)

    def read(self) -> dict | None:
        """The newest state that can be read, or None when there is none.

        Raises ValueError when it belongs to other data or parameters; warns about damaged files and passes over them.
        """
        for path in self.names():
            try:
                with self.files.open_input_file(path) as source:
                    table = pa.ipc.open_file(source).read_all()
                head = json.loads(table.schema.metadata[b"raymkl-checkpoint"])
                later = head["format"] > FORMAT
                state = None if later else unpack(table)
            except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
                warnings.warn(f"checkpoint {path} is damaged and not used: {str(error)[:200]}", UserWarning, stacklevel=2)
                continue
            if later:
                raise ValueError(
                    f"checkpoint {path} has format {head['format']}, this version of raymkl reads up to {FORMAT}; update raymkl"
                )
            self._compare(head["identity"], path)
            return state
        return None

    def _compare(self, then: dict, path: str) -> None:
        different = sorted(name for name in {*then, *self.identity} if then.get(name) != self.identity.get(name))
        if different:
            what = "; ".join(f"{name} was {then.get(name)}, is now {self.identity.get(name)}" for name in different)
            raise ValueError(
                f"checkpoint_dir={self.directory!r} holds a checkpoint ({path}) of another run: {what}. "
                "Give another directory, or remove the file to start anew"
            )

    def remove(self) -> None:
        """Remove all checkpoints of the directory, because the run is over."""
        for path in self.names():
            self.files.delete_file(path)


def identity_of(rows: dict, problem: Problem, heads: list[Head]) -> dict[str, str]:
    """What a checkpoint belongs to: a name and a readable value or a hash for all that decides the result."""
    first = heads[0]
    kernels = [repr(kernel) for family in problem.families for kernel in family.kernels]
    return {
        "data": _digest(*(part for view in problem.views for part in _parts(rows[view]))),
        "labels": _digest(*(head.targets for head in heads)),
        "C and sample weights": _digest(*(head.bounds * head.path[0] for head in heads)),
        "path of C": repr(sorted({head.path for head in heads})),
        "kernels": f"{len(kernels)} kernels, {_digest(np.frombuffer(repr(kernels).encode(), np.uint8))}",
        "gates": "none" if problem.gates is None else _digest(problem.gates),
        "norm": repr(sorted({repr(head.norm) for head in heads})),
        "loss": repr(first.loss),
        "solver": f"{first.solver}, {first.theta_step}",
        "normalize": repr(first.normalize),
        "tol": repr(sorted({head.tol for head in heads})),
        "dtype": f"{np.dtype(problem.dtype).name}{', exact' if problem.exact else ''}",
        "problems": str(len(heads)),
    }


def _parts(array: Any) -> list:
    """Arrays whose bytes stand for a view."""
    if hasattr(array, "indptr"):
        return [array.data, array.indices, array.indptr]
    if hasattr(array, "fingerprint"):
        return [np.frombuffer(str(array.fingerprint()).encode(), np.uint8)]
    array = np.asarray(array)
    if array.dtype == object:
        return [np.frombuffer("\0".join(map(str, array.ravel())).encode(), np.uint8)]
    return [array]


def _digest(*arrays: np.ndarray) -> str:
    total = hashlib.blake2b(digest_size=12)
    for array in arrays:
        total.update(repr((array.shape, array.dtype.str)).encode())
        total.update(memoryview(np.ascontiguousarray(array)).cast("B") if array.size else b"")
    return total.hexdigest()
