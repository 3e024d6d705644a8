"""The policy for compiled kernels: what is in the cache is linked, what is missing is compiled first, nothing else is needed."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue

from edgellm.backends.base import Progress
from edgellm.backends.cpu import amx_selftest, system
from edgellm.backends.cpu.object_cache import KernelObject, ObjectCache
from edgellm.errors import BackendError, OptionError

# What Numba's C wrapper calls if a kernel raises. Kernels raise nothing, so these are never reached, but they must be linked.
ERROR_PATH = ("numba_gil_ensure", "numba_gil_release", "numba_do_raise", "numba_unpickle", "numba_runtime_build_excinfo_struct",
              "NRT_Free", "PyUnicode_FromString", "PyBytes_FromStringAndSize", "PyErr_WriteUnraisable", "PyErr_Clear",
              "PyErr_SetString", "PyErr_SetNone", "PyExc_StopIteration", "PyExc_SystemError", "PyExc_RuntimeError", "Py_DecRef")


def choose_isa() -> str:
    """The best rung this machine can run, or the one that EDGELLM_ISA forces. Tiles have to pass a trial first."""
    usable = system.usable_isas()
    forced = os.environ.get("EDGELLM_ISA")
    if not forced:
        return usable[-2] if usable[-1] == "amx" and not amx_selftest.passed() else usable[-1]
    if forced not in usable:
        raise OptionError(f"EDGELLM_ISA={forced} is not an instruction set of this machine; choose one of {', '.join(usable)}.")
    return forced


class Linker:
    """Object code linked into this process through LLVM; numba is not needed for it. Code stays valid while this lives."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        nowhere = ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p).value      # LLVM aborts on address 0
        for name in ERROR_PATH:
            llvm.add_symbol(name, nowhere)
        self._llvm = llvm
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._linked: dict[str, int] = {}

    def link(self, kernel: str, item: KernelObject) -> int:
        """The address of the kernel; raises RuntimeError where the object cannot be linked."""
        if kernel not in self._linked:
            self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(item.code))
            self._engine.finalize_object()
            address = self._engine.get_function_address(item.symbol)
            if not address:
                raise RuntimeError(f"no symbol {item.symbol}")
            self._linked[kernel] = address
        return self._linked[kernel]


def kernel_addresses(kernels: Iterable[str], isa: str, linker: Linker, progress: Progress | None = None) -> dict[str, int]:
    """Addresses of all `kernels`, compiled first where the cache has none. Raises BackendError where compiling fails."""
    wanted = sorted(set(kernels))
    cache = ObjectCache(isa)
    try:
        found = {kernel: item for kernel in wanted if (item := cache.read(kernel)) is not None}
        missing = [kernel for kernel in wanted if kernel not in found]
        for done, (kernel, item) in enumerate(_compile(missing, isa), start=1):
            found[kernel] = item
            _store(cache, kernel, item)
            if progress is not None:
                progress("compiling kernels for this machine, once", done, len(missing))
    finally:
        cache.close()
    if missing and cache.note:
        warnings.warn(cache.note, RuntimeWarning, stacklevel=2)
    return {kernel: linker.link(kernel, found[kernel]) for kernel in wanted}


def _store(cache: ObjectCache, kernel: str, item: KernelObject) -> None:
    try:
        cache.write(kernel, item)
    except OSError as fault:
        cache.note = cache.note or f"kernels cannot be kept in {cache.folder} ({fault.strerror}), so each start compiles them"


def _compile(kernels: list[str], isa: str) -> Iterator[tuple[str, KernelObject]]:
    """Compile in worker processes, one per core; in this process where Python cannot be started again (frozen apps)."""
    if not kernels:
        return
    if getattr(sys, "frozen", False) or "python" not in os.path.basename(sys.executable or "").lower():
        from edgellm.backends.cpu import compiler

        compiler.set_target(isa)
        yield from ((kernel, compiler.compile_kernel(kernel, isa)) for kernel in kernels)
        return
    todo: SimpleQueue[str] = SimpleQueue()
    done: SimpleQueue[tuple[str, KernelObject | str]] = SimpleQueue()
    for kernel in kernels:
        todo.put(kernel)
    for _ in range(min(system.usable_cores(), len(kernels), 4)):
        threading.Thread(target=_drive_compiler, args=(isa, todo, done), daemon=True).start()
    for _ in kernels:
        kernel, item = done.get()
        if isinstance(item, str):
            while True:                          # let the other workers run dry
                try:
                    todo.get_nowait()
                except Empty:
                    break
            raise BackendError(f"kernel {kernel} could not be compiled for {isa}: {item}")
        yield kernel, item


def _drive_compiler(isa: str, todo: SimpleQueue[str], done: SimpleQueue[tuple[str, KernelObject | str]]) -> None:
    """Feed one compiler process until nothing is left to do; every kernel taken is answered."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path))
    command = [sys.executable, "-P", "-m", "edgellm.backends.cpu.compiler", isa]       # -P: nothing from the working directory
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=environment)
    assert process.stdin is not None and process.stdout is not None
    with process:
        while True:
            try:
                kernel = todo.get_nowait()
            except Empty:
                process.stdin.close()
                return
            try:
                process.stdin.write(kernel + "\n")
                process.stdin.flush()
                answer = process.stdout.readline().strip()
            except OSError as fault:
                answer = f"! {fault}"
            symbol, _, code = answer.partition(" ")
            if symbol in ("", "!"):
                done.put((kernel, code or "the compiler process ended without an answer"))
            else:
                done.put((kernel, KernelObject(symbol, bytes.fromhex(code))))
