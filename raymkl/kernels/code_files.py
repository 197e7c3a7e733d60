"""Files that keep the machine code of compiled loops from one process to the next.

An entry is one file: a line that names the format, a line of JSON, and an object file as the compiler wrote it.

    raymkl machine code 1
    {"key": "...", "symbol": "...", "sha256": "..."}
    <object file>

`key` says what the code was made from and for (see `host` and `source`); an entry with another key counts as absent, and so does one
whose object file is not what its checksum says. Entries lie where numba keeps its own: in `NUMBA_CACHE_DIR` if that is set, else in the
`__pycache__` next to this file, else in the user's cache directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

FORMAT = b"raymkl machine code 1"
# Files whose text, besides that of the loops, decides what an entry holds and how it is called.
MAKERS = ("code_builder.py", "compiled.py", "machine_code.py")


@cache
def host() -> str:
    """Digest of all that machine code depends on besides its source: processor, compiler, interpreter and numba's settings."""
    import llvmlite
    import llvmlite.binding as llvm

    settings = {name: value for name, value in os.environ.items() if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR"}
    parts = [
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        llvmlite.__version__,
        version("numba"),
        platform.python_version(),
        sorted(settings.items()),
    ]
    return _digest(json.dumps(parts).encode())


@cache
def source(module: str) -> str:
    """Digest of the text of a module of loops and of the code that compiles and calls them. The module is not imported."""
    files = [Path(find_spec(module).origin), *(Path(__file__).with_name(name) for name in MAKERS)]
    return _digest(b"".join(file.read_bytes() for file in files))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def directories() -> list[Path]:
    """Where entries may lie, in the order in which they are looked for and written."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    places = [Path(__file__).parent / "__pycache__"]
    with contextlib.suppress(RuntimeError):  # a user without a home directory
        places.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raymkl")
    return places


def file_name(label: str) -> str:
    """Name of the entry of a loop. Newer sources replace an entry; machines that share a directory keep their own."""
    return f"{label}.{sys.implementation.cache_tag}.{host()[:12]}.code"


def read(path: Path, key: str) -> tuple[str, bytes] | None:
    """(symbol, object file) of an entry, or None when it is absent, stale or damaged."""
    try:
        form, header, code = path.read_bytes().split(b"\n", 2)
        described = json.loads(header)
        usable = form == FORMAT and described["key"] == key and described["sha256"] == _digest(code)
        return (str(described["symbol"]), code) if usable else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find(label: str, key: str) -> tuple[str, bytes] | None:
    """The first usable entry of a loop."""
    for directory in directories():
        entry = read(directory / file_name(label), key)
        if entry is not None:
            return entry
    return None


def write(label: str, key: str, symbol: str, code: bytes) -> Path | None:
    """Write an entry into the first directory that takes it; None when there is no such directory.

    The entry appears as a whole or not at all: other processes may be reading or writing it now.
    """
    header = json.dumps({"key": key, "symbol": symbol, "sha256": _digest(code)}).encode()
    for directory in directories():
        path, unfinished = directory / file_name(label), None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            handle, unfinished = tempfile.mkstemp(dir=directory, prefix=f".{label}-")
            with os.fdopen(handle, "wb") as file:
                file.write(b"\n".join([FORMAT, header, code]))
            os.chmod(unfinished, 0o644)  # another user of a shared installation may read it
            os.replace(unfinished, path)
            return path
        except OSError:
            if unfinished is not None:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished)
    return None


def remove(path: Path) -> None:
    """Take away an entry that turned out to be of no use."""
    with contextlib.suppress(OSError):
        path.unlink()
