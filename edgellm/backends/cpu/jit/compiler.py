"""Numba's side of the kernels: turns a kernel id into object code; runs in a process of its own, so that numba stays out of ours.

As a program: `python -m edgellm.backends.cpu.jit.compiler ISA`, one kernel id a line on stdin, one answer a line on stdout:
`SYMBOL HEX-OBJECT` or `! message`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable
from typing import Any

from edgellm.backends.cpu import kernels
from edgellm.backends.cpu.jit.cache import KernelObject
from edgellm.backends.cpu.jit.linker import ERROR_PATH
from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.system import YIELD_SYMBOL, host_features

LIBC = frozenset({YIELD_SYMBOL, "syscall", "sqrtf", "memcpy", "memset", "memmove"})


def set_target(isa: str) -> None:
    """Fix the processor that Numba compiles for; call before numba is imported.

    Each ISA level gets its own features and none that only this host has, so that what is tested here is what other machines run;
    the highest ones, of 512 bits, get the host itself.
    """
    level = LEVELS[isa]
    if level.processor:
        needs = next((needs for needs in level.needs if needs <= host_features()), frozenset[str]())
        os.environ["NUMBA_CPU_NAME"] = level.processor
        os.environ["NUMBA_CPU_FEATURES"] = (
            ",".join(f"+{feature}" for feature in sorted(needs)) if level.features is None else level.features
        )


def compile_kernel(kernel: str, isa: str) -> KernelObject:
    """Compile `module:variant` for one ISA level of the ladder; the caller has called `set_target`."""
    from numba import cfunc, types

    from edgellm.backends.cpu.simd import load_isa

    _number_symbols(kernel)
    module, _, variant = kernel.partition(":")
    function: Callable[[int, int, int], None] = kernel_module(module).build(variant, load_isa(isa))
    signature = types.void(types.int64, types.int64, types.int64)
    compiled: Any = cfunc(signature, nopython=True, error_model="numpy", boundscheck=False)(function)  # Any: numba has no types
    _refuse_calls(compiled._library._final_module.functions)
    _, kind, (code, _) = compiled._library.serialize_using_object_code()
    assert kind == "object"
    return KernelObject(compiled._wrapper_name, code)


def kernel_module(name: str) -> Any:  # Any: a module
    """The module of that name in whichever folder of kernels/ has it. Raises ModuleNotFoundError."""
    for folder in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        if folder.ispkg and importlib.util.find_spec(f"{folder.name}.{name}"):
            return importlib.import_module(f"{folder.name}.{name}")
    raise ModuleNotFoundError(f"no kernels {name}")


def _number_symbols(kernel: str) -> None:
    """Let the symbols of this kernel's functions be its own: they end in numbers that Numba counts by process, and a process links
    kernels that several have compiled.
    """
    from numba.core.bytecode import FunctionIdentity

    first = int.from_bytes(hashlib.sha256(kernel.encode()).digest()[:5])
    FunctionIdentity._unique_ids = itertools.count(first << 16)


def _refuse_calls(functions: Iterable[Any]) -> None:
    """Only a few C functions may be left to link: LLVM aborts the process on a symbol that it cannot find."""
    left = {function.name for function in functions if function.is_declaration and not function.name.startswith("llvm.")}
    if unknown := left - set(ERROR_PATH) - LIBC:
        raise RuntimeError(f"a kernel can call nothing outside, but this one calls {', '.join(sorted(unknown))}")


def main() -> None:
    isa = sys.argv[1]
    set_target(isa)
    for line in sys.stdin:
        try:
            item = compile_kernel(line.strip(), isa)
            answer = f"{item.symbol} {item.code.hex()}"
        except Exception as fault:  # reported to the parent, which raises it with the kernel's name
            answer = f"! {type(fault).__name__}: {' '.join(str(fault).split())[:2000]}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
