"""Times every product kernel: GB/s of weights for one column beside a streaming read, GMAC/s for many, as a Markdown table.

Run: .venv/bin/python scripts/bench_kernels.py [--isa avx2] [--threads 1 2] [--types Q4_0 Q8_0] [--columns 256] [--repacked]
                                               [--compare COMMIT]
Each kernel's results are compared with its reference first (float64 products of what the codec decodes); a wrong one is not timed.
Kernel and probe alternate; the table has medians, and in brackets the spread of the middle half of the runs.

`--compare` times the kernels of this checkout and of another commit in turn, with one, a few and many columns, and prints those
that have lost more than 5 %, by the median of the ratios and by the shortest runs, also when they are measured again for longer.
Exit code 1 where there are any. With `--all` it prints the others as well. `--repacked`: the kernels for weights with interleaved
rows, as --no-mmap has them in memory.
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

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))  # behind the checkout that a child is told
sys.path.insert(1, str(Path(__file__).resolve().parent))

from children import ROOT, Child, checked_out, environment_of

from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.ops.dense import MATMUL, QUANTISE
from edgellm.backends.cpu.pages import contents, new_page
from edgellm.backends.cpu.traits import BLOCK, ROW_ALIGNMENT, TILE_COLUMNS, TRAITS, q8_row_bytes, scratch_bytes
from edgellm.formats.codecs import CODECS
from edgellm.formats.interleave import UNITS, interleave

HERE = Path(__file__).resolve()
Bytes = npt.NDArray[np.uint8]
Kernel = Callable[[int, int, int], None]
K = 2048  # elements of a row: a 1B model's width
STREAM_BYTES = 256 << 20  # weights read per timing, far past any cache
PREFILL_ROWS = 2048
CHECKED_ROWS = 256  # distinct rows; the rest are copies, whose sums are the same
RUNS = 7
FEW = 8  # columns
LOSS = 0.05  # of a kernel's speed that is told
AGAIN = 3  # times as many runs for one that seems to have lost


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


def zeros(nbytes: int) -> Bytes:
    """Aligned, in the system's huge pages where it has them, as an engine's memory is: small ones differ by up to 10 %."""
    memory = contents(new_page(nbytes))
    memory[:] = 0  # touched
    return memory


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

    def __init__(self, name: str, rows: int, columns: int, kernels: dict[str, Kernel], threads: int, group: int = 0) -> None:
        """`group`: rows that are interleaved."""
        traits, rng = TRAITS[name], np.random.default_rng(0)
        self.kernel = kernels[kernel_of(name, group)]
        distinct = CODECS[name].quantize(rng.standard_normal((CHECKED_ROWS, K), np.float32) * np.float32(0.02))
        self.decoded = CODECS[name].dequantize(distinct).astype(np.float64)
        if group:
            rows -= rows % group
            interleave(name, distinct, group)
        self.weights = zeros(rows * distinct.shape[1]).reshape(rows, -1)
        for first in range(0, rows, CHECKED_ROWS):
            self.weights[first : first + CHECKED_ROWS] = distinct[: rows - first]
        self.values = rng.standard_normal((columns, K), np.float32)
        self.step = np.array([columns, columns], np.int64)
        self.out = zeros(4 * columns * rows).view(np.float32).reshape(columns, rows)
        size = -(-scratch_bytes(name, K) // ROW_ALIGNMENT) * ROW_ALIGNMENT
        self.scratch = zeros(size * threads)
        x: npt.NDArray[np.generic] = self.values
        if traits.quantise:
            x = self._quantised(kernels[traits.quantise])
        self.x = x
        self.records = np.stack(
            [
                MATMUL.record(
                    step=self.step.ctypes.data,
                    weights=self.weights.ctypes.data,
                    row_bytes=self.weights.strides[0],
                    n=rows,
                    k=K,
                    x=x.ctypes.data,
                    x_stride=x.strides[0],
                    out=self.out.ctypes.data,
                    out_stride=self.out.strides[0],
                    scratch=self.scratch.ctypes.data + size * thread,
                )
                for thread in range(threads)
            ]
        )

    def _quantised(self, kernel: Kernel) -> Bytes:
        """The quantised form of the activations; the last `values`, which are checked, become what they stand for."""
        columns, stride = len(self.values), q8_row_bytes(K)
        rows = zeros(-(-columns // TILE_COLUMNS) * TILE_COLUMNS * stride).reshape(-1, stride)[:columns]
        record = QUANTISE.record(
            step=self.step.ctypes.data,
            x=self.values.ctypes.data,
            x_stride=self.values.strides[0],
            k=K,
            out=rows.ctypes.data,
            out_stride=stride,
        )
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
        return float((np.abs(self.out[-len(x) :, :n] - exact[:, :n]) / size[:, :n]).max())

    def checked(self, threads: int) -> float:
        run(self.kernel, self.records, threads)
        return self.error()


def decode(product: Product, probe: Kernel, threads: int) -> tuple[Timing, Timing]:
    """GB/s of the kernel with one column, and of the probe over the same bytes."""
    nbytes = product.weights.nbytes
    read = np.zeros((threads, 32), np.int64)
    read[:, 2:4] = product.weights.ctypes.data, nbytes
    pairs = [
        (nbytes / run(product.kernel, product.records, threads) / 1e9, nbytes / run(probe, read, threads) / 1e9)
        for _ in range(RUNS)
    ]
    return summary([kernel for kernel, _ in pairs]), summary([stream for _, stream in pairs])


def prefill(product: Product, threads: int) -> Timing:
    """GMAC/s."""
    work = product.weights.shape[0] * K * len(product.out) / 1e9
    return summary([work / run(product.kernel, product.records, threads) for _ in range(RUNS)])


def kernel_of(name: str, group: int) -> str:
    return f"matmul_interleaved:{name}" if group else TRAITS[name].matmul


def linked(types: Sequence[str], isa: str, group: int) -> tuple[jit.Linker, dict[str, Kernel]]:
    """The kernels that these types need; they live as long as the linker."""
    linker = jit.Linker()
    ids = {"probe:read", *(kernel for name in types for kernel in (kernel_of(name, group), TRAITS[name].quantise) if kernel)}
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return linker, {kernel: signature(address) for kernel, address in jit.kernel_addresses(ids, isa, linker).items()}


def rows_of(name: str, columns: int) -> int:
    """As many as make a stream of one column, and a prompt's product of many."""
    return PREFILL_ROWS if columns > FEW else STREAM_BYTES // (K // TRAITS[name].block * TRAITS[name].block_bytes)


def table(options: argparse.Namespace) -> bool:
    """Print the table; whether all kernels were right."""
    linker, kernels = linked(options.types, options.isa, options.group)
    rows = f"{options.group} interleaved rows" if options.group else "rows"
    print(f"{system.host_cpu()}, {options.isa}, {rows} of {K}; prefill with {options.columns} columns\n")
    print("| type | error | threads | decode GB/s | streaming read GB/s | ratio | prefill GMAC/s |\n|---|--:|--:|--:|--:|--:|--:|")
    right = True
    for name in options.types:
        one, many = (
            Product(name, rows_of(name, columns), columns, kernels, max(options.threads), options.group)
            for columns in (1, options.columns)
        )
        error = max(one.checked(1), many.checked(1))
        if not error < TRAITS[name].ceiling:
            right = False
            print(f"| {name} | **{error:.1e}**, above {TRAITS[name].ceiling} | | | | | |")
            continue
        for threads in options.threads:
            kernel, stream = decode(one, kernels["probe:read"], threads)
            print(
                f"| {name} | {error:.0e} | {threads} | {kernel} | {stream} | {kernel.median / stream.median:.2f} |"
                f" {prefill(many, threads)} |",
                flush=True,
            )
    del linker
    return right


def child(isa: str, most: int, group: int) -> None:
    """Answers lines of type, columns and threads with seconds; with 0 for a type that this checkout does not have."""
    assert Path(jit.__file__).is_relative_to(Path.cwd()), f"{jit.__file__} is not of the checkout {Path.cwd()}"
    last, product, linker = "", None, None
    for line in sys.stdin:
        name, columns, threads = line.split()
        if name not in TRAITS:
            print(0.0, flush=True)
            continue
        if f"{name} {columns}" != last:
            linker, kernels = linked([name], isa, group)
            product = Product(name, rows_of(name, int(columns)), int(columns), kernels, most, group)
            last = f"{name} {columns}"
        assert product is not None and linker is not None
        print(run(product.kernel, product.records, int(threads)), flush=True)


def speed(before: Child, now: Child, test: str, runs: int) -> float | None:
    """How much faster a kernel is now: the median of the ratios, or that of the shortest runs where this is nearer to 1; None where
    one of them has no such kernel.
    """
    pairs = [(before.ask(test), now.ask(test)) for _ in range(runs + 1)][1:]  # the first one warms up
    if not all(seconds for pair in pairs for seconds in pair):
        return None
    found = [statistics.median(a / b for a, b in pairs), min(a for a, _ in pairs) / min(b for _, b in pairs)]
    return min(found, key=lambda ratio: abs(ratio - 1))


def compare(options: argparse.Namespace) -> bool:
    """Print the kernels that are slower than in a commit; whether there are none."""
    compared = lost = 0
    command = [
        sys.executable,
        str(HERE),
        "--isa",
        options.isa,
        "--threads",
        *map(str, options.threads),
        *(["--repacked"] if options.group else []),
    ]
    with checked_out(options.compare) as tree:
        before, now = (
            Child(name, [*command, "--child"], environment_of(folder), folder)
            for name, folder in ((options.compare, tree), ("this checkout", ROOT))
        )
        for test in (
            f"{name} {columns} {threads}"
            for name in options.types
            for columns in (1, FEW, options.columns)
            for threads in options.threads
        ):
            ratio = speed(before, now, test, RUNS)
            if ratio is not None and ratio < 1 - LOSS:
                ratio = speed(before, now, test, RUNS * AGAIN)
            if ratio is None:
                continue
            compared, lost = compared + 1, lost + (ratio < 1 - LOSS)
            if options.all or ratio < 1 - LOSS:
                name, columns, threads = test.split()
                print(f"{name}, {columns} columns, {threads} threads: {ratio:.2f} of the speed at {options.compare}", flush=True)
        before.close()
        now.close()
    print(f"{compared} kernels compared, {lost} lost more than {LOSS:.0%}")
    return not lost


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--isa", choices=system.usable_isas(), default=system.usable_isas()[-1])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, system.usable_cores()}))
    parser.add_argument("--types", nargs="+", choices=list(TRAITS), default=list(TRAITS), metavar="TYPE")
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--repacked", action="store_true", help="weights with interleaved rows, as --no-mmap has them")
    parser.add_argument("--compare", metavar="COMMIT", help="print the kernels that are slower than there, as git names it")
    parser.add_argument("--all", action="store_true", help="with --compare: print all kernels")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.group = 0
    if options.repacked:
        options.group = LEVELS[options.isa].interleaved_rows
        if not options.group:
            some = " and ".join(name for name, level in LEVELS.items() if level.interleaved_rows)
            parser.error(f"--repacked: {options.isa} has no kernels for interleaved rows; {some} have.")
        options.types = [name for name in options.types if name in UNITS]
    if options.child:
        child(options.isa, max(options.threads), options.group)
    else:
        sys.exit(not (compare(options) if options.compare else table(options)))


if __name__ == "__main__":
    main()
