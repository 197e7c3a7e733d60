"""Checkpoints: the state of all heads in a file, from which a later run with the same data and parameters
goes on.

A checkpoint is an Arrow file `raymkl-<round>.checkpoint` in a directory (a local path, or a URI that
`pyarrow.fs` opens), written under another name and then renamed, so that a file under its final name is
complete. The last two are kept; a finished run removes them. A file is data: nothing in it is run, and what
was changed in it since it was written is noticed by a digest.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from ...data.packed import digest, pack, unpack, write_table
from ...data.plain_arrow import DAMAGE, open_plain
from ..problem import Head, Problem
from ..programs.program import Program

FORMAT = 1
KEPT = 2
_NAME = re.compile(r"raymkl-(\d+)\.checkpoint$")
# What an interrupted run may have left, see `packed.whole_file`.
_PART = re.compile(r"raymkl-\d+\.checkpoint(\.\d+)?\.part$")


class Checkpoints:
    """Checkpoints of one run in one directory.

    identity : what data and parameters are, by name, see `identity_of`.
    """

    def __init__(self, directory: str, identity: dict[str, str]):
        self.directory, self.identity = str(directory), identity
        self.kept: list[str] = []  # paths that this run has read or written, oldest first
        self.files, self.path = writable_folder(self.directory, "checkpoint_dir")

    def names(self) -> list[str]:
        """Paths of complete checkpoints, newest first."""
        found = self.files.get_file_info(fs.FileSelector(self.path))
        numbered = [
            (int(match.group(1)), info.path)
            for info in found
            if info.is_file and (match := _NAME.search(info.path))
        ]
        return [path for _, path in sorted(numbered, reverse=True)]

    def write(self, state: dict) -> None:
        """Write a state, then remove all checkpoints but this one and the one before."""
        head = json.dumps({"format": FORMAT, "identity": self.identity, "round": int(state["round"])})
        table = pack(state, {"raymkl-checkpoint": head})
        table = table.replace_schema_metadata({**table.schema.metadata, "digest": _digest_of_table(table)})
        final = f"{self.path}/raymkl-{int(state['round'])}.checkpoint"
        write_table(table, final, self.files)
        self.kept = [*(path for path in self.kept if path != final), final][-KEPT:]
        # Damaged ones may have higher numbers; they must not stand in the way of those that are written now.
        for path in self.names():
            if path not in self.kept:
                self.files.delete_file(path)

    def read(self, check: Callable[[dict], None] | None = None) -> dict | None:
        """The newest state that can be read, or None when there is none.

        check : raises for a state that cannot be one of this run. Raises ValueError when the newest state
        belongs to other data or parameters or comes from a later version; warns about damaged files and
        passes over them.
        """
        paths = self.names()
        for path in paths:
            try:
                table, head = self._open(path)
                later = head["format"] > FORMAT
                state = None if later else unpack(table)
                identity = head["identity"]
                mine = identity == self.identity
                if mine and not later and check is not None:
                    check(state)
            except DAMAGE as error:
                warnings.warn(
                    f"checkpoint {path} is damaged and not used: {str(error)[:200]}",
                    UserWarning,
                    stacklevel=3,
                )
                continue
            if later:
                raise ValueError(
                    f"checkpoint {path} has format {head['format']}, this version of raymkl reads up to "
                    f"{FORMAT}; update raymkl"
                )
            if not mine:
                self._refuse(identity, path)
            self.kept = [path]
            return state
        if paths:
            warnings.warn(
                f"no checkpoint in {self.directory!r} can be read, the run starts anew",
                UserWarning,
                stacklevel=3,
            )
        return None

    def _open(self, path: str) -> tuple[pa.Table, dict]:
        """Table and description of a checkpoint, once its digest is right."""
        # In memory as a whole, so that no number in the file decides how much is allocated.
        with self.files.open_input_stream(path) as source:
            reader = open_plain(pa.py_buffer(source.read()))
        if reader.schema.names != ["data"] or reader.schema.types != [pa.large_binary()]:
            raise ValueError("it does not have the columns of a checkpoint")
        table = reader.read_all()
        table.validate(full=True)
        metadata = table.schema.metadata or {}
        if _digest_of_table(table) != metadata[b"digest"].decode():
            raise ValueError("its content is not what was written")
        head = json.loads(metadata[b"raymkl-checkpoint"])
        if type(head["format"]) is not int or not isinstance(head["identity"], dict):
            raise ValueError("its description is not that of a checkpoint")
        return table, head

    def _refuse(self, then: dict, path: str) -> None:
        different = sorted(
            name for name in {*then, *self.identity} if then.get(name) != self.identity.get(name)
        )
        what = "; ".join(
            f"{name} was {then.get(name)}, is now {self.identity.get(name)}" for name in different
        )
        raise ValueError(
            f"checkpoint_dir={self.directory!r} holds a checkpoint ({path}) of another run: {what}. "
            "Give another directory, or remove the file to start anew"
        )

    def remove(self, folder_too: bool = False) -> None:
        """Remove all checkpoints of the directory, because the run is over; and the directory, if nothing
        else is in it and it is ours.
        """
        for info in self.files.get_file_info(fs.FileSelector(self.path)):
            if info.is_file and (_NAME.search(info.path) or _PART.search(info.path)):
                self.files.delete_file(info.path)
        if folder_too and not self.files.get_file_info(fs.FileSelector(self.path)):
            self.files.delete_dir(self.path)


def writable_folder(directory: str, argument: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path there, which is made.

    argument : what it was given as, for the error.
    """
    try:
        if "://" in directory:
            files, path = fs.FileSystem.from_uri(directory)
        else:
            files, path = fs.LocalFileSystem(), os.path.abspath(directory)
        files.create_dir(path, recursive=True)
        # Better to learn now than after the first minutes that nothing can be written here.
        with files.open_output_stream(f"{path}/.raymkl-probe"):
            pass
        files.delete_file(f"{path}/.raymkl-probe")
        return files, path
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{argument}={directory!r} cannot be used: {error}") from None


def clear(directory: str) -> None:
    """Remove all checkpoints of a directory, and the directory if nothing else is in it."""
    Checkpoints(directory, {}).remove(folder_too=True)


def identity_of(rows: dict, problem: Problem, heads: list[Head] | Program) -> dict[str, str]:
    """What a checkpoint belongs to: a name and a readable value or a hash for all that decides the result."""
    if isinstance(heads, Program):
        return heads.identity(_data_digest(rows, problem))
    first = heads[0]
    kernels = [repr(kernel) for family in problem.families for kernel in family.kernels]
    return {
        "data": _data_digest(rows, problem),
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
        "shared weights": repr(sorted({-1 if head.group is None else head.group for head in heads})),
        "held-out rows": _digest(*(head.watch for head in heads if head.watch is not None)),
        "entries left out": _digest(*(~head.entries for head in heads if head.entries is not None)),
        "max_iter": repr(sorted({head.max_rounds for head in heads})),
    }


def _data_digest(rows: dict, problem: Problem) -> str:
    return _digest(*(part for view in problem.views for part in _parts(rows[view])))


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
    return digest(*(part for array in arrays for part in (repr((array.shape, array.dtype.str)), array)))


def _digest_of_table(table: pa.Table) -> str:
    """Digest of the arrays and of all metadata but the digest itself."""
    metadata = table.schema.metadata or {}
    described = [
        part
        for key in sorted(metadata)
        if key != b"digest"
        for part in (repr((key, len(metadata[key]))), metadata[key])
    ]
    buffers = [cell.as_buffer() for cell in table["data"]]
    return digest(*described, *(part for data in buffers for part in (repr(data.size), data)), size=16)
