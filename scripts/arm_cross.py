"""AArch64 kernels compiled on another machine: their assembly to look at, their objects for a cache under emulation.

    python scripts/arm_cross.py KEY FOLDER ISA KERNEL...

fills FOLDER, a base of kernel caches, with the objects of KEY (what `object_cache.cache_key` says on the machine to be). Under
emulation a kernel takes 20 s to compile, here one; the instructions are the same, which `scripts/arm_tests` checks on a few.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
TRIPLE = "aarch64-unknown-linux-gnu"


def pretend(isa: str, cpu: str | None = None) -> None:
    """Let numba, and our kernels' sources, take this process for one on an AArch64 machine. Call before numba is imported.

    `cpu`: LLVM's name of another processor than the ISA level is compiled for, to see what would be scheduled for it.
    """
    assert "numba" not in sys.modules
    platform.machine = lambda: "aarch64"
    import llvmlite.binding as llvm

    from edgellm.backends.cpu.jit import compiler

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: TRIPLE
    compiler.set_target(isa)
    if cpu is not None:
        os.environ["NUMBA_CPU_NAME"] = cpu


def compiled(kernel: str, isa: str) -> tuple[str, Any]:
    """Assembly of one kernel, and its object (a KernelObject); after `pretend`."""
    import llvmlite.binding as llvm
    from numba.core import ccallback

    from edgellm.backends.cpu.jit import compiler

    texts: list[str] = []
    plain = ccallback.CFunc.compile

    def compile_and_print(self: Any) -> None:
        plain(self)
        texts.append(self._library.get_asm_str())

    ccallback.CFunc.compile = compile_and_print
    try:
        item = compiler.compile_kernel(kernel, isa)
    finally:
        ccallback.CFunc.compile = plain
    assert llvm.get_process_triple() == TRIPLE
    return texts[-1], item


def main() -> None:
    key, folder, isa, *kernels = sys.argv[1:]
    pretend(isa)
    from edgellm.backends.cpu.jit import cache as object_cache
    from edgellm.backends.cpu.jit import compiler

    object_cache.cache_key = lambda _: key  # type: ignore[assignment]  # that of the other machine
    cache = object_cache.ObjectCache(isa, Path(folder))
    for kernel in kernels:
        if cache.read(kernel) is None:
            cache.write(kernel, compiler.compile_kernel(kernel, isa))


if __name__ == "__main__":
    main()
