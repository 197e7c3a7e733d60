"""Compiled loops that a process can run without loading numba.

Loading numba and its registries costs a new process several times what linking ready-made code does, and processes that come and go
(shards) want to be ready at once. The first process compiles a loop with numba and keeps the object file (`code_files`); later ones
link it through llvmlite and call it through ctypes, which releases the interpreter lock.

Whatever goes wrong on that way (no llvmlite, a file that cannot be read or linked, code that does not do what numba's does) leads to
numba itself, and so do arguments of another dtype or layout than a loop is declared for: slower to start, the same results.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import index
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)

# Stands for any of `FLOATS` in a declaration, the same one for all arguments that say so.
ANY = "T"
FLOATS = ("float32", "float64")
DTYPES = {name: np.dtype(name) for name in ("int32", "int64", "float32", "float64")}
_NAMES = {DTYPES[name]: name for name in FLOATS}  # `dtype.name` takes longer than a short loop
# Size of every axis of the arrays on which new code is tried.
TRIAL_SIZE = 64


@dataclass(frozen=True)
class Argument:
    """One argument of a loop: dtype name or ANY, number of dimensions (0 for a number), and whether the loop writes to it."""

    name: str
    dtype: str
    dimensions: int
    written: bool

    @classmethod
    def parse(cls, text: str) -> Argument:
        """From `name:dtype` (a number), `name:dtype[dimensions]` or, for an array that is written to, `name:dtype[dimensions]=`."""
        name, _, kind = text.partition(":")
        dtype, _, shape = kind.partition("[")
        if dtype not in (ANY, *DTYPES):
            raise ValueError(f"argument {text!r}: the dtype must be {ANY} or one of {list(DTYPES)}")
        return cls(name, dtype, int(shape.partition("]")[0]) if shape else 0, shape.endswith("="))


class Loop:
    """A compiled loop, called with arrays and numbers like the function it is made from.

    Parameters
    ----------
    name, module : the function, in numba's dialect, and the module it stands in, which is imported only to compile it.
    arguments : what the machine code takes, in the order of the function's parameters (see `Argument.parse`), separated by blanks.
        Arrays are C-contiguous. Other arguments go to numba, except short lists, which are converted.
    fastmath : whether floating-point sums may be reordered.
    trial : values of the number arguments with which new code is tried on arrays of TRIAL_SIZE along every axis.

    Example
    -------
    >>> loop = Loop("squared_norms", "array:T[2] out:float64[1]=", fastmath=True)
    >>> loop(np.ones((3, 2)), out := np.empty(3))
    >>> out
    array([2., 2., 2.])
    """

    def __init__(
        self,
        name: str,
        arguments: str,
        fastmath: bool = False,
        trial: Mapping[str, float] | None = None,
        module: str = "raymkl.kernels.loops",
    ):
        self.name, self.module, self.fastmath, self.trial = name, module, fastmath, trial or {}
        self.arguments = [Argument.parse(text) for text in arguments.split()]
        self.variants = FLOATS if any(argument.dtype == ANY for argument in self.arguments) else FLOATS[:1]
        self._lock = threading.Lock()
        # By the dtype that ANY stands for: the function in machine code, or None when there is none to be had.
        self._functions: dict[str, Callable | None] = {}
        self._numba: Callable | None = None

    def __repr__(self) -> str:
        return f"Loop({self.name})"

    def __call__(self, *arguments: Any) -> None:
        """Run the loop. Arguments that machine code does not take (another dtype, not contiguous, read-only where written) go to numba."""
        if len(arguments) != len(self.arguments):
            raise TypeError(f"{self.name} takes {[argument.name for argument in self.arguments]}, got {len(arguments)} arguments")
        taken = [self._take(declared, value) for declared, value in zip(self.arguments, arguments, strict=True)]
        dtype = self._variant(taken)
        function = None if dtype is None else self.load(dtype)
        if function is None:
            self.numba_function()(*arguments)
            return
        values: list[Any] = []
        for value in taken:  # addresses are good as long as `taken` holds the arrays
            values += [value.ctypes.data, *value.shape] if isinstance(value, np.ndarray) else [value]
        function(*values)

    @staticmethod
    def _take(declared: Argument, value: Any) -> Any:
        """The argument as machine code takes it, or None where it does not."""
        if not declared.dimensions:
            return index(value) if declared.dtype.startswith("int") else float(value)
        # Only plain arrays: subclasses may mean something else by their memory.
        if type(value) is not np.ndarray or value.ndim != declared.dimensions:
            return None
        flags = value.flags
        if flags.c_contiguous and flags.aligned and (declared.dtype == ANY or value.dtype == DTYPES[declared.dtype]):
            return None if declared.written and not flags.writeable else value
        # Lists of positions and weights are short, and a copy in the right form costs less than another compilation.
        short = declared.dimensions == 1 and declared.dtype != ANY and not declared.written
        return np.array(value, declared.dtype) if short and np.can_cast(value.dtype, declared.dtype) else None

    def _variant(self, taken: list) -> str | None:
        """The dtype that ANY stands for (the first of `variants` where nothing does), or None when machine code does not take this."""
        if any(value is None for value in taken):
            return None
        dtypes = {value.dtype for declared, value in zip(self.arguments, taken, strict=True) if declared.dtype == ANY}
        if not dtypes:
            return self.variants[0]
        return _NAMES.get(dtypes.pop()) if len(dtypes) == 1 else None

    def numba_function(self) -> Callable:
        """The loop as numba compiles it."""
        if self._numba is None:
            from .code_builder import numba_function

            self._numba = numba_function(self.module, self.name, self.fastmath)
        return self._numba

    def load(self, dtype: str = FLOATS[0]) -> Callable | None:
        """Have the code for a dtype (what ANY stands for) ready: from its file, else compiled now. None when only numba can run it."""
        if dtype not in self._functions:
            with self._lock:
                if dtype not in self._functions:
                    try:
                        self._functions[dtype] = self._ready_made(dtype) or self._compile(dtype)
                    except Exception as error:  # whatever it is, numba can still do the work
                        reason = (str(error) or repr(error)).splitlines()[0]
                        logger.warning("%s runs through numba, without machine code of its own: %s", self.name, reason)
                        self._functions[dtype] = None
        return self._functions[dtype]

    def _label(self, dtype: str) -> str:
        return f"{self.module.rpartition('.')[2]}.{self.name}-{dtype}"

    def _key(self) -> str:
        from . import code_files

        return f"{code_files.host()} {code_files.source(self.module)}"

    def _ready_made(self, dtype: str) -> Callable | None:
        """The code of an earlier process."""
        from . import code_files

        entry = code_files.find(self._label(dtype), self._key())
        return None if entry is None else self._callable(*entry)

    def _compile(self, dtype: str) -> Callable:
        """Compile, keep, and try out what was kept against what numba has in memory."""
        from . import code_files
        from .code_builder import build

        kinds = [(dtype if argument.dtype == ANY else argument.dtype, argument.dimensions) for argument in self.arguments]
        symbol, code, original = build(self.module, self.name, kinds, self.fastmath)
        path = code_files.write(self._label(dtype), self._key(), symbol, code)
        entry = (symbol, code) if path is None else code_files.read(path, self._key())
        try:
            if entry is None:
                raise RuntimeError(f"{path} does not hold what was written to it")
            function = self._callable(*entry)
            self._try_out(function, original, kinds)
        except Exception:
            if path is not None:
                code_files.remove(path)
            raise
        return function

    def _callable(self, symbol: str, code: bytes) -> Callable:
        kinds: list[Any] = []
        for argument in self.arguments:
            if argument.dimensions:
                kinds += [ctypes.c_void_p, *[ctypes.c_int64] * argument.dimensions]
            else:
                kinds.append(ctypes.c_int64 if argument.dtype.startswith("int") else ctypes.c_double)
        library = link(symbol, code)
        function = ctypes.CFUNCTYPE(None, *kinds)(library[symbol])
        function.library = library  # the code lives as long as this does
        return function

    def _try_out(self, function: Callable, original: Callable, kinds: list[tuple[str, int]]) -> None:
        """Raise RuntimeError unless two functions do the same to the same arrays."""
        outcomes = []
        for tried in (function, original):
            arguments = [
                trial_array(dtype, dimensions) if dimensions else self.trial[argument.name]
                for argument, (dtype, dimensions) in zip(self.arguments, kinds, strict=True)
            ]
            values: list[Any] = []
            for value, (dtype, dimensions) in zip(arguments, kinds, strict=True):
                # numba's own callable wants typed pointers.
                kind = ctypes.POINTER(np.ctypeslib.as_ctypes_type(DTYPES[dtype]))
                values += [ctypes.cast(value.ctypes.data, kind), *value.shape] if dimensions else [value]
            tried(*values)
            outcomes.append([value for value in arguments if isinstance(value, np.ndarray)])
        if not all(np.allclose(mine, numbas, equal_nan=True) for mine, numbas in zip(*outcomes, strict=True)):
            raise RuntimeError("the linked code does not do what it was compiled to do")


def trial_array(dtype: str, dimensions: int) -> np.ndarray:
    """Numbers on which a loop can be tried: positions for lists of integers, bits of positive numbers for tables of integers."""
    shape = (TRIAL_SIZE,) * dimensions
    if dtype.startswith("int") and dimensions == 1:
        return np.arange(TRIAL_SIZE, dtype=dtype)
    numbers = 0.5 + np.arange(np.prod(shape)) % 101 / 101
    if dtype.startswith("int"):
        return numbers.astype(dtype.replace("int", "float")).view(dtype).reshape(shape)
    return numbers.astype(dtype).reshape(shape)


# Names of linked libraries must differ within a process.
_numbers = itertools.count()


@cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


def link(symbol: str, code: bytes) -> Any:
    """Link an object file into this process; the result gives the symbol's address by its name and keeps the code alive."""
    import llvmlite.binding as llvm

    # The C library of this process has the memset and memcpy that compilers put in.
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(symbol)
    return builder.link(_linker(), f"{symbol} {next(_numbers)}")
