"""The policy for compiled kernels: what is in the cache is linked, what is missing is compiled first, nothing else is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue

from edgellm.backends.base import Progress
from edgellm.backends.cpu import system
from edgellm.backends.cpu.jit.cache import KernelObject, ObjectCache
from edgellm.backends.cpu.jit.linker import Linker
from edgellm.errors import BackendError

LONGEST = 900  # seconds to wait for one kernel: the largest takes some 5 here, a minute under emulation
WHERE = "set EDGELLM_CACHE to a folder that can be written"


def kernel_addresses(kernels: Iterable[str], isa: str, linker: Linker, progress: Progress | None = None) -> dict[str, int]:
    """Addresses of all `kernels`, compiled first where the cache has none. Raises BackendError where compiling fails."""
    wanted = sorted(set(kernels))
    cache, said = ObjectCache(isa), ""
    try:
        found = {kernel: item for kernel in wanted if (item := cache.read(kernel)) is not None}
        missing = [kernel for kernel in wanted if kernel not in found]
        if missing and (said := cache.note):  # before it compiles, which takes a minute
            warnings.warn(f"{said}; {WHERE}", RuntimeWarning, stacklevel=2)
        for done, (kernel, item) in enumerate(_compile(missing, isa), start=1):
            found[kernel] = item
            _store(cache, kernel, item)
            if progress is not None:
                progress(f"compiling kernels for this machine{'' if cache.note else ', once'}", done, len(missing))
    finally:
        cache.close()
    if missing and cache.note != said:
        warnings.warn(f"{cache.note}; {WHERE}", RuntimeWarning, stacklevel=2)
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
        from edgellm.backends.cpu.jit import compiler

        compiler.set_target(isa)
        yield from ((kernel, compiler.compile_kernel(kernel, isa)) for kernel in kernels)
        return
    todo: SimpleQueue[str] = SimpleQueue()
    done: SimpleQueue[tuple[str, KernelObject | str]] = SimpleQueue()
    for kernel in kernels:
        todo.put(kernel)
    for _ in range(min(system.usable_cores(), len(kernels), 4)):
        threading.Thread(target=_drive_compiler, args=(isa, todo, done), daemon=True).start()
    try:
        for _ in kernels:
            try:
                kernel, item = done.get(timeout=LONGEST)
            except Empty:
                raise BackendError(f"no kernel was compiled for {isa} in {LONGEST // 60} minutes; try again") from None
            if isinstance(item, str):
                raise BackendError(f"kernel {kernel} could not be compiled for {isa}: {item}")
            yield kernel, item
    finally:  # after an error, and after Ctrl-C: let the workers run dry
        with suppress(Empty):
            while True:
                todo.get_nowait()


def _drive_compiler(isa: str, todo: SimpleQueue[str], done: SimpleQueue[tuple[str, KernelObject | str]]) -> None:
    """Feed one compiler process until nothing is left to do. Each kernel gets an answer, also if the process fails."""
    process: subprocess.Popen[str] | None = None
    with suppress(Empty, BrokenPipeError), ExitStack() as running:  # Ctrl-C in a terminal ends the compiler as well
        while True:
            kernel = todo.get_nowait()
            item: KernelObject | str
            try:
                process = process or running.enter_context(_start_compiler(isa))
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(kernel + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                symbol, _, code = answer.strip().partition(" ")
                if not answer.endswith("\n"):
                    item = "the compiler process ended without an answer"
                else:
                    item = code if symbol == "!" else KernelObject(symbol, bytes.fromhex(code))
            except (OSError, ValueError) as fault:
                item = f"the compiler process failed ({fault})"
            done.put((kernel, item))


def _start_compiler(isa: str) -> subprocess.Popen[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path))
    command = [sys.executable, "-P", "-m", "edgellm.backends.cpu.jit.compiler", isa]  # -P: nothing from the working directory
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
