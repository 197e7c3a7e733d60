"""Files behind a path, a directory, a list or a URI: where they are, and that they belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import fs


@contextmanager
def plain_words(what: str) -> Iterator[None]:
    """What Arrow finds wrong with a file as a ValueError that says `what` first."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{what}: {_first_line(error)}") from None


def file_system(path: Any) -> tuple[fs.FileSystem, str]:
    """File system and path of a path or URI."""
    text = os.fspath(path)
    if "://" in text:
        try:
            return fs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, ValueError) as error:
            raise ValueError(f"{text!r} cannot be opened: {_first_line(error)}") from None
    return fs.LocalFileSystem(), os.path.abspath(text)


def info_of(path: str, missing: str) -> fs.FileInfo:
    """Size and time of a file; FileNotFoundError with the text `missing` when there is none."""
    files, name = file_system(path)
    info = files.get_file_info(name)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(missing)
    return info


def files_of(path: Any, suffixes: tuple[str, ...], kind: str) -> tuple[list[str], str]:
    """Files behind a path, directory or list of files, and what to call all of them."""
    if isinstance(path, list | tuple):
        if not path:
            raise ValueError(f"an empty list of {kind} files; at least one is needed")
        paths = [_absolute(part) for part in path]
        return paths, paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more files"
    text = _absolute(path)
    files, name = file_system(text)
    if files.get_file_info(name).type != fs.FileType.Directory:
        return [text], text
    found = [part for part in listed(files, name) if part.lower().endswith(suffixes)]
    if not found:
        raise ValueError(
            f"the directory {text} holds no {kind} files (names that end in {', '.join(suffixes)})"
        )
    folders = {os.path.dirname(part) for part in found} - {name.rstrip("/")}
    if folders:
        raise ValueError(
            f"{text} has files in the folder {sorted(folders)[0]}; files of one table must lie in one folder "
            "(or be given as a list)"
        )
    prefix = text[: -len(name)] if text.endswith(name) else ""
    return [prefix + part for part in sorted(found)], text


def _absolute(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"files must be given as paths, got a {type(path).__name__}")
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def listed(files: fs.FileSystem, directory: str) -> list[str]:
    """Files below a directory, without hidden ones and the notes of other tools (_SUCCESS)."""
    infos = files.get_file_info(fs.FileSelector(directory, recursive=True))
    return [
        info.path
        for info in infos
        if info.type == fs.FileType.File and not info.base_name.startswith((".", "_"))
    ]


def compare(schema: pa.Schema, other: pa.Schema, path: str, other_path: str) -> None:
    """Raise ValueError unless two files have the same columns of the same types (in any order)."""
    ours, theirs = ({field.name: field.type for field in part} for part in (schema, other))
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            has = [
                f"has no column {name!r}" if kind is None else f"has column {name!r} of type {kind}"
                for kind in (ours.get(name), theirs.get(name))
            ]
            raise ValueError(
                f"files of one table must have the same columns, but {path} {has[0]} and {other_path} "
                f"{has[1]}"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
