"""Times rows by one column, in the caches of one core, in turns with the `ggml_vec_dot` functions of llama-cpp-python.

Run: .venv/bin/python scripts/bench_dot.py --peer PYTHON [--isa avx2] [--types Q4_0 Q8_0] [--rounds 20]
PYTHON is an interpreter that has llama-cpp-python built for this machine. Both sides run in compiled loops, so that calls cost
neither of them anything; prints nanoseconds for 256 weights, the shortest of all rounds, and how many times as fast edgellm is.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

sys.path.insert(0, str(Path(__file__).resolve().parent))  # PYTHONSAFEPATH leaves it out

from bench_kernels import K, Product, linked

from edgellm.backends.cpu import system
from edgellm.backends.cpu.traits import SUPERBLOCK, TRAITS

WEIGHT_BYTES = 1 << 18  # in a second-level cache
TIMES = 20  # calls in a measurement
TYPES = {  # by the form of activations that the peer multiplies them with
    "q8_0": ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "MXFP4", "NVFP4", "Q1_0"),
    "q8_1": ("Q4_1", "Q5_1"),
    "q8_K": (
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "IQ4_XS",
        "IQ1_S",
        "IQ1_M",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ2_S",
        "IQ3_XXS",
        "IQ3_S",
        "TQ1_0",
        "TQ2_0",
    ),
}
FORMS = {name: form for form, names in TYPES.items() for name in names}
Run = Callable[[], float]


def library(python: str) -> ctypes.CDLL:
    """The CPU back end of the llama-cpp-python that an interpreter has."""
    found = subprocess.run(
        [python, "-c", "import importlib.util; print(importlib.util.find_spec('llama_cpp').origin)"],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(found.stdout.strip()).parent / "lib"
    ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
    cpu.ggml_cpu_init()
    return cpu


def timed(loop: Any, *arguments: int) -> Run:
    """Seconds of one call, of `TIMES` in a loop that Numba compiles."""
    loop(*arguments, 1)

    def run() -> float:
        start = time.perf_counter()
        loop(*arguments, TIMES)
        return (time.perf_counter() - start) / TIMES

    return run


def ours(product: Product) -> Run:
    kernel = product.kernel

    @njit
    def loop(record: int, times: int) -> None:
        for _ in range(times):
            kernel(record, 0, 1)

    return timed(loop, product.records.ctypes.data)


def theirs(cpu: ctypes.CDLL, name: str, product: Product) -> Run:
    form = FORMS[name]
    x = np.zeros(4 * K, np.uint8)
    pointer, size = ctypes.c_int64, ctypes.c_int64
    getattr(cpu, f"quantize_row_{form}")(ctypes.c_void_p(product.values.ctypes.data), ctypes.c_void_p(x.ctypes.data), size(K))
    dot = getattr(cpu, f"ggml_vec_dot_{name.lower().replace('_k', '_K')}_{form}")
    dot.argtypes, dot.restype = [ctypes.c_int, pointer, size, pointer, size, pointer, size, ctypes.c_int], None
    rows, row_bytes = product.weights.shape
    out = np.zeros(rows, np.float32)

    @njit
    def loop(weights: int, activations: int, sums: int, times: int) -> None:
        for _ in range(times):
            for row in range(rows):
                dot(K, sums + 4 * row, 0, weights + row * row_bytes, 0, activations, 0, 1)

    run = timed(loop, product.weights.ctypes.data, x.ctypes.data, out.ctypes.data)
    exact = product.values.astype(np.float64) @ product.decoded.T
    n = min(rows, exact.shape[1])
    assert np.abs(out[:n] - exact[0, :n]).max() < 0.05 * np.abs(exact).max(), f"{name}: the peer computes something else"
    run.kept = x, out  # type: ignore[attr-defined]  # as long as the function
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument("--isa", default=system.usable_isas()[-1], choices=system.usable_isas())
    parser.add_argument("--types", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    cpu = library(options.peer)
    linker, kernels = linked(options.types, options.isa)
    print(f"{system.host_cpu()}, {options.isa}, rows of {K}, {WEIGHT_BYTES >> 10} KiB of weights\n")
    print("| type | edgellm ns | llama.cpp ns | times as fast |\n|---|--:|--:|--:|")
    for name in options.types:
        row_bytes = K // TRAITS[name].block * TRAITS[name].block_bytes
        product = Product(name, WEIGHT_BYTES // row_bytes // 8 * 8, 1, kernels, 1)
        assert product.checked(1) < TRAITS[name].ceiling, f"{name}: wrong results"
        mine, peer = ours(product), theirs(cpu, name, product)
        pairs = [(mine(), peer()) for _ in range(options.rounds)]
        parts = product.weights.shape[0] * K / SUPERBLOCK
        a, b = (min(each) / parts * 1e9 for each in zip(*pairs, strict=True))
        print(f"| {name} | {a:.2f} | {b:.2f} | {b / a:.2f} |", flush=True)
    del linker


if __name__ == "__main__":
    main()
