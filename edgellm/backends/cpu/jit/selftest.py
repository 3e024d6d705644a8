"""AMX self-test: tiles are used where they give right results, faster than without; asked once for each machine and version.

What processors, systems and virtual machines say of AMX is not always so: instructions may be missing, slow or wrong. So products
of a prompt are made with tiles in another process, which may die of it, compared with those of the ISA level below, bit by bit,
and timed beside them. That process runs `main`, which prints seconds with tiles and without, or what is wrong.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgellm.backends.cpu import abi, system
from edgellm.backends.cpu.jit.build import kernel_addresses
from edgellm.backends.cpu.jit.cache import ObjectCache
from edgellm.backends.cpu.jit.linker import Linker
from edgellm.backends.cpu.jit.sources import sources_digest
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS, q8_row_bytes, scratch_bytes

ISAS, MODULES = ("amx", "avx512vnni"), ("matmul", "quantise")
TYPES = ("Q4_K", {0: 0.001, 2: 0.001}), ("Q6_K", {208: 0.001})  # of blocks and of half blocks; where a superblock's f16 are
ROWS, TOKENS, K, ROUNDS = 512, 256, 2048, 9  # a step of a prompt by some of the rows of a 1B model
SECONDS = 300.0  # to compile the kernels and run them, on a machine that is busy
VERDICT, FASTER = "verdict", "faster"  # the file; how what it says begins where tiles are used
GAIN = 1.1  # at least: after a trial that found 1.07 prompts ran at 0.77 to 0.88


@functools.cache
def passed() -> bool:
    """True if tiles give right results here, faster than the level below."""
    return verdict().startswith(FASTER)


def made() -> bool:
    """True if the verdict is cached; else `passed` takes some seconds."""
    cache = ObjectCache("amx")
    try:
        return _place(cache).is_file()
    finally:
        cache.close()


def verdict() -> str:
    """ "faster (1.63 times as fast)", or why tiles are not used, such as "slower (0.82 times as fast)" or "wrong results"."""
    cache = ObjectCache("amx")
    try:
        kept = _place(cache)
        if kept.is_file():
            return kept.read_text(encoding="utf-8")
        found = _try()
        _keep(kept, found)
        return found
    finally:
        cache.close()


def _place(cache: ObjectCache) -> Path:
    """Where the verdict on kernels of these sources is kept."""
    return cache.folder / ".".join([VERDICT, *(sources_digest(module) for module in MODULES)])


def _keep(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
        for other in path.parent.glob(f"{VERDICT}*"):  # of other sources
            if other != path:
                other.unlink(missing_ok=True)
    except OSError:  # a disk that is full or read-only: tried again at the next start
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
    gain = dots / tiles
    return f"{FASTER if gain >= GAIN else 'hardly faster' if gain > 1 else 'slower'} ({gain:.2f} times as fast)"


class Trial:
    """Products of `TOKENS` rows of activations with `ROWS` rows of weights of each type, by the kernels of an ISA level."""

    def __init__(self, isa: str, linker: Linker) -> None:
        import ctypes

        import numpy as np

        from edgellm.backends.cpu.ops.dense import MATMUL, QUANTISE

        signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        rng, traits = np.random.default_rng(0), [TRAITS[name] for name, _ in TYPES]
        kernels = {kernel for each in traits for kernel in (each.matmul, f"quantise:{each.activation}")}
        addresses = {kernel: signature(address) for kernel, address in kernel_addresses(kernels, isa, linker).items()}
        step, x = np.array([TOKENS, TOKENS], np.int64), rng.standard_normal((TOKENS, K), np.float32)
        self.results = [np.zeros((TOKENS, ROWS), np.float32) for _ in traits]
        self._calls, self._kept = list[tuple[Any, Any]](), [step, x]
        for (name, scales), each, out in zip(TYPES, traits, self.results, strict=True):
            weights = rng.integers(0, 256, (ROWS, K // SUPERBLOCK, each.block_bytes), np.uint8)
            for place, scale in scales.items():
                weights[..., place : place + 2] = np.array([scale], np.float16).view(np.uint8)
            rows, scratch = np.zeros((TOKENS, q8_row_bytes(K)), np.uint8), np.zeros(scratch_bytes(name, K) + 64, np.uint8)
            addresses[f"quantise:{each.activation}"](
                QUANTISE.record(
                    step=step.ctypes.data,
                    x=x.ctypes.data,
                    x_stride=x.strides[0],
                    k=K,
                    out=rows.ctypes.data,
                    out_stride=rows.strides[0],
                ).ctypes.data,
                0,
                1,
            )
            record = MATMUL.record(
                step=step.ctypes.data,
                weights=weights.ctypes.data,
                row_bytes=weights.strides[0],
                n=ROWS,
                k=K,
                x=rows.ctypes.data,
                x_stride=rows.strides[0],
                out=out.ctypes.data,
                out_stride=out.strides[0],
                count=abi.N_TOKENS,
                scratch=scratch.ctypes.data,
            )
            self._calls.append((addresses[each.matmul], record))
            self._kept += [weights, rows, scratch]
        self.run()

    def run(self) -> float:
        """Seconds of all products."""
        import time

        start = time.perf_counter()
        for kernel, record in self._calls:
            kernel(record.ctypes.data, 0, 1)
        return time.perf_counter() - start


def main() -> None:
    if not system.amx_permitted():
        print("not permitted by the system")
        return
    linker = Linker()
    tiles, without = (Trial(isa, linker) for isa in ISAS)
    if any(ours.tobytes() != theirs.tobytes() for ours, theirs in zip(tiles.results, without.results, strict=True)):
        print("wrong results")
        return
    rounds = [(tiles.run(), without.run()) for _ in range(ROUNDS)]
    print(*(min(times) for times in zip(*rounds, strict=True)))
