"""AMX self-test: tiles are used where they give right results, faster than without; asked once for each machine and version.

What processors, systems and virtual machines say of AMX is not always so: instructions may be missing, slow or wrong. So tiles are
multiplied in another process, which may die of it, compared with NumPy, and timed beside dot products. That process runs `main`,
which prints seconds with tiles and with dot products, or what is wrong.
"""
from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgellm.backends.cpu import system
from edgellm.backends.cpu.jit.build import kernel_addresses
from edgellm.backends.cpu.jit.cache import ObjectCache
from edgellm.backends.cpu.jit.linker import Linker
from edgellm.backends.cpu.traits import BLOCK, TILE_COLUMNS

TIMES, ROUNDS = 500, 5
SECONDS = 120.0                                  # to compile two small kernels and run them, on a machine that is busy
VERDICT = "verdict"
KERNELS = TILES, DOTS = "amx_selftest:tiles", "amx_selftest:dots"
CASES = ((BLOCK, False), (BLOCK, True), (BLOCK // 2, False), (BLOCK // 2, True))     # quants of a product; whether they are signed
SUMS = 4 * 16 * TILE_COLUMNS                     # bytes of the sums of one


@functools.cache
def passed() -> bool:
    """Whether tiles are right here, and faster than what is there without them."""
    return verdict() == "faster"


def verdict() -> str:
    """"faster", or why tiles are not used: "slower", "wrong results", "ended with signal 4" and the like."""
    cache = ObjectCache("amx")
    try:
        kept = cache.folder / VERDICT
        if kept.is_file():
            return kept.read_text(encoding="utf-8")
        found = _try()
        _keep(kept, found)
        return found
    finally:
        cache.close()


def _keep(path: Path, text: str) -> None:
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError:                              # a disk that is full or read-only: tried again at the next start
        fresh.unlink(missing_ok=True)


def _try() -> str:
    if getattr(sys, "frozen", False) or "python" not in os.path.basename(sys.executable or "").lower():
        return "not made, because this program cannot start Python again"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path or os.getcwd() for path in sys.path))
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"not finished ({type(fault).__name__})"
    if ended.returncode < 0:
        return f"ended with signal {-ended.returncode}"
    if ended.returncode:
        return ": ".join([f"ended with status {ended.returncode}", *ended.stderr.splitlines()[-1:]])
    words = ended.stdout.split()
    try:
        tiles, dots = float(words[0]), float(words[1])
    except (IndexError, ValueError):
        return " ".join(words[:8]) or "ended without an answer"
    return "faster" if tiles < dots else "slower"


def exact(x: Any, w: Any) -> list[Any]:
    """The sums of each case: i8 activations (16, 32) and bytes of weights (8, 16, 4), fours of quants of sixteen rows."""
    import numpy as np

    found = []
    for depth, signed in CASES:
        weights = (w.view(np.int8) if signed else w)[: depth // 4].astype(np.int32)
        found.append(np.einsum("cgk,grk->cr", x[:, :depth].reshape(16, -1, 4).astype(np.int32), weights))
    return found


def main() -> None:
    import ctypes
    import time

    import numpy as np

    if not system.amx_permitted():
        print("not permitted by the system")
        return
    linker, signature = Linker(), ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    addresses = kernel_addresses(KERNELS, "amx", linker)
    rng, out = np.random.default_rng(0), np.zeros((len(CASES), 2, 16, 16), np.int32)
    x, w = rng.integers(-127, 128, (16, 32), np.int8), rng.integers(0, 256, (8, 16, 4), np.uint8)
    record = np.array([0, x.ctypes.data, w.ctypes.data, out.ctypes.data, 1], np.int64)

    def seconds(kernel: str) -> float:
        start = time.perf_counter()
        signature(addresses[kernel])(record.ctypes.data, 0, 1)
        return time.perf_counter() - start

    seconds(TILES)
    if not all((got == sums).all() for sums, got in zip(exact(x, w), out, strict=True)):
        print("wrong results")
        return
    record[4] = TIMES
    pairs = [(seconds(TILES), seconds(DOTS)) for _ in range(ROUNDS)]
    print(*(min(times) for times in zip(*pairs, strict=True)))
