"""Compiling a loop to an object file with numba. Imported only where no usable file is at hand (see `machine_code`).

A loop over arrays becomes a C function over addresses, sizes and numbers:

    loop(A: float32[2], out: float64[1], start: int64)   ->   void entry(float *A, int64 n0, int64 n1, double *out, int64 n, int64 start)

The loop is inlined into the entry before anything is compiled, so that one function remains that calls nothing of numba's run-time
library; `build` refuses code of which that is not true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
from numba import cfunc, njit, types
from numba.extending import intrinsic


class NotAlone(RuntimeError):
    """Compiled code needs something that only numba provides."""


@intrinsic
def _array_at(typing_context, address, shape):
    """The C-ordered array of the given shape at an address. (`carray` would bring a call that may fail.)"""
    array_type = types.Array(address.dtype, len(shape), "C")
    signature = array_type(address, shape)

    def generate(context, builder, signature, arguments):
        from numba.core import cgutils
        from numba.np.arrayobj import populate_array

        address, sizes = arguments[0], cgutils.unpack_tuple(builder, arguments[1], array_type.ndim)
        item_size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
        strides = [item_size]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        array = context.make_array(array_type)(context, builder)
        return populate_array(array, address, tuple(sizes), tuple(strides), item_size, meminfo=None)._getvalue()

    return signature, generate


def numba_function(module: str, name: str, fastmath: bool) -> Callable:
    """The loop as numba compiles it by itself, for arrays of any type and layout."""
    loop = getattr(import_module(module), name)
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(loop)
    except RuntimeError:  # nowhere to write to
        return njit(**options)(loop)


def build(module: str, name: str, arguments: Sequence[tuple[str, int]], fastmath: bool) -> tuple[str, bytes, Any]:
    """Compile a loop; returns (symbol, object file, the same function as a ctypes callable of numba's).

    arguments : (dtype name, number of dimensions) of each, 0 for a number. Raises NotAlone when numba would be needed to run it.
    """
    parameters, values, signature = [], [], []
    for position, (dtype, dimensions) in enumerate(arguments):
        sizes = [f"n{position}_{axis}" for axis in range(dimensions)]
        parameters += [f"v{position}", *sizes]
        values.append(f"array_at(v{position}, ({', '.join(sizes)},))" if dimensions else f"v{position}")
        kind = getattr(types, dtype)
        signature += [types.CPointer(kind), *[types.int64] * dimensions] if dimensions else [kind]
    scope = {"array_at": _array_at, "loop": njit(inline="always")(getattr(import_module(module), name))}
    exec(f"def entry({', '.join(parameters)}):\n    loop({', '.join(values)})\n", scope)
    compiled = cfunc(types.void(*signature), fastmath=fastmath, error_model="numpy")(scope["entry"])
    assembly = llvm.parse_assembly(compiled.inspect_llvm())
    _check_alone(assembly)
    return compiled.native_name, _target_machine().emit_object(assembly), compiled.ctypes


def _check_alone(module: Any) -> None:
    """Raise NotAlone if code refers to anything outside itself besides what the compiler expands on the spot."""
    outside = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    outside += [v.name for v in module.global_variables if v.is_declaration]
    if outside:
        raise NotAlone(f"the compiled code refers to {outside}")


def _target_machine() -> Any:
    """This machine, with the options under which numba compiles for it."""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )
