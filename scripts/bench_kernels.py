"""Times every product kernel: GB/s of weights for one column beside a streaming read, GMAC/s for many, as a Markdown table.

Run: .venv/bin/python scripts/bench_kernels.py [--isa avx2] [--threads 1 2] [--types Q4_0 Q8_0] [--columns 256]
Each kernel's results are compared with its reference first (float64 products of what the codec decodes); a wrong one is not timed.
Kernel and probe alternate; the table has medians, and in brackets the spread of the middle half of the runs.
"""
from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.traits import BLOCK, ROW_ALIGNMENT, TRAITS, q8_row_bytes, scratch_bytes
from edgellm.backends.cpu.words import MATMUL, QUANTISE
from edgellm.formats.codecs import CODECS

Bytes = npt.NDArray[np.uint8]
Kernel = Callable[[int, int, int], None]
K = 2048                                         # elements of a row: a 1B model's width
STREAM_BYTES = 256 << 20                         # weights read per timing, far past any cache
PREFILL_ROWS = 2048
CHECKED_ROWS = 256                               # distinct rows; the rest are copies, whose sums are the same
RUNS = 7


@dataclass(frozen=True, slots=True)
class Timing:
    """Median of some runs and the distance between their quartiles, in the unit of the values."""

    median: float
    spread: float

    def __str__(self) -> str:
        return f"{self.median:.1f} (±{self.spread / 2:.1f})"


def summary(values: Sequence[float]) -> Timing:
    low, middle, high = statistics.quantiles(values, n=4)
    return Timing(middle, high - low)


def aligned(nbytes: int) -> Bytes:
    block = np.zeros(nbytes + ROW_ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ROW_ALIGNMENT
    return block[start : start + nbytes]


def run(kernel: Kernel, records: npt.NDArray[np.int64], threads: int) -> float:
    """Seconds of one call shared by `threads` threads, each with a record of its own."""
    workers = [threading.Thread(target=kernel, args=(records[i].ctypes.data, i, threads)) for i in range(1, threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    kernel(records.ctypes.data, 0, threads)
    for worker in workers:
        worker.join()
    return time.perf_counter() - start


class Product:
    """out = x W' of one type: repeated random weights, and everything its record points to."""

    def __init__(self, name: str, rows: int, columns: int, kernels: dict[str, Kernel], threads: int) -> None:
        traits, rng = TRAITS[name], np.random.default_rng(0)
        self.kernel = kernels[traits.matmul]
        distinct = CODECS[name].quantize(rng.standard_normal((CHECKED_ROWS, K), np.float32) * np.float32(0.02))
        self.decoded = CODECS[name].dequantize(distinct).astype(np.float64)
        self.weights = np.tile(distinct, (-(-rows // CHECKED_ROWS), 1))[:rows]
        self.values = rng.standard_normal((columns, K), np.float32)
        self.step = np.array([columns, columns], np.int64)
        self.out = np.zeros((columns, rows), np.float32)
        size = -(-scratch_bytes(name, K) // ROW_ALIGNMENT) * ROW_ALIGNMENT
        self.scratch = aligned(size * threads)
        x: npt.NDArray[np.generic] = self.values
        if traits.quantise:
            x = self._quantised(kernels[traits.quantise])
        self.x = x
        self.records = np.stack([MATMUL.record(
            step=self.step.ctypes.data, weights=self.weights.ctypes.data, row_bytes=self.weights.strides[0], n=rows, k=K,
            x=x.ctypes.data, x_stride=x.strides[0], out=self.out.ctypes.data, out_stride=self.out.strides[0],
            scratch=self.scratch.ctypes.data + size * thread) for thread in range(threads)])

    def _quantised(self, kernel: Kernel) -> Bytes:
        """The quantised form of the activations; the last `values`, which are checked, become what they stand for."""
        columns, stride = len(self.values), q8_row_bytes(K)
        rows = aligned(columns * stride).reshape(columns, stride)
        record = QUANTISE.record(step=self.step.ctypes.data, x=self.values.ctypes.data, x_stride=self.values.strides[0], k=K,
                                 out=rows.ctypes.data, out_stride=stride)
        kernel(record.ctypes.data, 0, 1)
        checked = self.values[-4:].reshape(-1, K // BLOCK, BLOCK)
        d = np.abs(checked).max(axis=-1, keepdims=True) / np.float32(127)
        self.values[-4:] = (np.rint(checked * (1 / d)) * d).reshape(-1, K)
        return rows

    def error(self) -> float:
        """Largest error relative to sum(|w| |x|), after a call."""
        x = self.values[-4:].astype(np.float64)
        exact, size = x @ self.decoded.T, np.abs(x) @ np.abs(self.decoded).T
        n = min(CHECKED_ROWS, self.out.shape[1])
        return float((np.abs(self.out[-len(x):, :n] - exact[:, :n]) / size[:, :n]).max())

    def checked(self, threads: int) -> float:
        run(self.kernel, self.records, threads)
        return self.error()


def decode(product: Product, probe: Kernel, threads: int) -> tuple[Timing, Timing]:
    """GB/s of the kernel with one column, and of the probe over the same bytes."""
    nbytes = product.weights.nbytes
    read = np.zeros((threads, 32), np.int64)
    read[:, 2:4] = product.weights.ctypes.data, nbytes
    pairs = [(nbytes / run(product.kernel, product.records, threads) / 1e9, nbytes / run(probe, read, threads) / 1e9)
             for _ in range(RUNS)]
    return summary([kernel for kernel, _ in pairs]), summary([stream for _, stream in pairs])


def prefill(product: Product, threads: int) -> Timing:
    """GMAC/s."""
    work = product.weights.shape[0] * K * len(product.out) / 1e9
    return summary([work / run(product.kernel, product.records, threads) for _ in range(RUNS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--isa", choices=system.usable_isas(), default=system.usable_isas()[-1])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, system.usable_cores()}))
    parser.add_argument("--types", nargs="+", choices=list(TRAITS), default=list(TRAITS), metavar="TYPE")
    parser.add_argument("--columns", type=int, default=256)
    options = parser.parse_args()
    linker = jit.Linker()
    chosen = [TRAITS[name] for name in options.types]
    ids = {"probe:read", *(kernel for traits in chosen for kernel in (traits.matmul, traits.quantise) if kernel)}
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    addresses = jit.kernel_addresses(ids, options.isa, linker)
    kernels: dict[str, Kernel] = {kernel: signature(address) for kernel, address in addresses.items()}
    print(f"{system.host_cpu()}, {options.isa}, rows of {K}; prefill with {options.columns} columns\n")
    print("| type | error | threads | decode GB/s | streaming read GB/s | ratio | prefill GMAC/s |\n|---|--:|--:|--:|--:|--:|--:|")
    failed = False
    for name in options.types:
        row_bytes = K // TRAITS[name].block * TRAITS[name].block_bytes
        one = Product(name, STREAM_BYTES // row_bytes, 1, kernels, max(options.threads))
        many = Product(name, PREFILL_ROWS, options.columns, kernels, max(options.threads))
        error = max(one.checked(1), many.checked(1))
        if not error < TRAITS[name].ceiling:
            failed = True
            print(f"| {name} | **{error:.1e}**, above {TRAITS[name].ceiling} | | | | | |")
            continue
        for threads in options.threads:
            kernel, stream = decode(one, kernels["probe:read"], threads)
            print(f"| {name} | {error:.0e} | {threads} | {kernel} | {stream} | {kernel.median / stream.median:.2f} |"
                  f" {prefill(many, threads)} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
