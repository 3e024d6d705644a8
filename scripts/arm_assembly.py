"""The inner loops of the AArch64 kernels as a table: instructions per weight, and what a Raspberry Pi 5 should make of them.

Run: .venv/bin/python scripts/arm_assembly.py [--cpu cortex-a76] [--types Q4_0 Q4_K] [--show Q6_K]

Nothing is run or emulated: kernels are compiled on this machine for the others, and their assembly is counted. Decode: one column,
two rows at a time; prefill: a tile of rows and columns. "spills" counts the stack accesses of a loop. Predicted share: four cores
at 2.4 GHz, each through with three instructions a cycle (a Cortex-A76 decodes four; SUSTAINED is our assumption, not measured on a
board), against the 11.5 GB/s that programs get from the memory of a Raspberry Pi 5. Above 100 % memory is what a kernel waits for.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edgellm.backends.cpu.traits import TRAITS

ROOT = Path(__file__).resolve().parent.parent
CPUS = {"cortex-a72": "neon", "cortex-a76": "dotprod", "apple-m2": "i8mm"}  # processor -> ISA level
TYPES = [name for name, traits in TRAITS.items() if traits.quantise]
PRODUCTS = {"sdot": 16, "smmla": 32, "smull": 8, "smull2": 8, "smlal": 8, "smlal2": 8}  # instruction -> products it makes
CORES, CLOCK, SUSTAINED, MEMORY = 4, 2.4e9, 3.0, 11.5e9
UNIT, DECODE_ROWS, TILE_ROWS = 256, 2, 8


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop of a kernel: its instructions, one a line."""

    lines: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.lines)

    @property
    def products(self) -> int:
        """Multiplications of two quants that a turn makes."""
        return sum(PRODUCTS.get(name, 0) * n for name, n in self.counts.items())

    @property
    def spills(self) -> int:
        return sum(1 for line in self.lines if re.search(r"\bsp\b", line))

    @property
    def branches(self) -> int:
        return sum(n for name, n in self.counts.items() if name in ("b", "cbz", "cbnz", "tbz", "tbnz") or name[:2] == "b.")

    @property
    def scalar_products(self) -> int:
        """Multiplications of single numbers, which a kernel has where it has not become one of vectors."""
        names = ("mul", "madd", "msub", "smull", "smaddl", "umull", "fmadd", "fmul")
        return sum(line.split()[0] in names and not re.search(r"\bv\d", line) for line in self.lines)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Both loops of a type's kernel on one processor."""

    name: str
    decode: Loop
    prefill: Loop

    @property
    def per_weight(self) -> float:
        return len(self.decode.lines) / (UNIT * DECODE_ROWS)

    @property
    def per_product(self) -> float:
        """Instructions per 16 products of the tile: one at best with sdot."""
        return len(self.prefill.lines) * 16 / self.prefill.products

    @property
    def bytes_per_second(self) -> float:
        """Of weights, on four cores with all data in the caches."""
        traits = TRAITS[self.name]
        return CORES * CLOCK * SUSTAINED / self.per_weight * traits.block_bytes / traits.block


def inner_loops(assembly: str) -> list[Loop]:
    """The loops in which no other loop begins and ends."""
    code: list[str] = []
    labels: dict[str, int] = {}
    for line in assembly.splitlines():
        if label := re.match(r"([.\w$]+):", line):
            labels[label[1]] = len(code)
        elif line.startswith("\t") and not line.strip().startswith((".", "//")):
            code.append(line.strip().partition("//")[0].strip())
    ends = {
        (labels[target[1]], i)
        for i, line in enumerate(code)
        if (target := re.match(r"(?:b|b\.\w+|cbn?z|tbn?z)\b.*?(\.LBB\w+)$", line)) and labels.get(target[1], i + 1) <= i
    }
    inner = [
        (first, last)
        for first, last in sorted(ends)
        if not any((a, z) != (first, last) and first <= a and z <= last for a, z in ends)
    ]
    return [Loop(tuple(code[first : last + 1])) for first, last in inner]


def kernel_of(name: str, assembly: str) -> Kernel:
    """The loop of one column asks for the memory of two rows ahead; that of tiles is the largest of those in one piece."""
    traits = TRAITS[name]
    ahead = -(-UNIT // traits.block * traits.block_bytes * DECODE_ROWS // 64)
    loops = [loop for loop in inner_loops(assembly) if loop.products]
    decode = [loop for loop in loops if loop.counts["prfm"] == ahead]
    prefill = [loop for loop in loops if loop.products % (TILE_ROWS * 32) == 0 and not loop.counts["prfm"] and loop.branches == 1]
    assert len(decode) == 1 and prefill, f"{name}: the loops are not what they were"
    return Kernel(name, decode[0], max(prefill, key=lambda loop: loop.products))


def compile_all(cpu: str, types: list[str]) -> dict[str, str]:
    """Assembly by type, from a process of its own: it has to pretend to be another machine."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import arm_cross; arm_cross.pretend(sys.argv[2])\n"
        "for name in sys.argv[3:]: print('KERNEL ' + name + chr(10) + arm_cross.compiled('matmul:' + name, sys.argv[2])[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "scripts"), CPUS[cpu], *types], capture_output=True, text=True, check=True
    )
    parts = re.split(r"^KERNEL (\w+)\n", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def kernels(cpu: str, types: list[str] | None = None) -> list[Kernel]:
    return [kernel_of(name, text) for name, text in compile_all(cpu, types or TYPES).items()]


def row(kernel: Kernel, cpu: str) -> str:
    """A line of the table."""
    predicted = f" {kernel.bytes_per_second / MEMORY:.0%} |" if cpu == "cortex-a76" else ""
    return (
        f"| {kernel.name} | {kernel.per_weight:.3f} | {kernel.decode.spills} |{predicted} {kernel.per_product:.2f} |"
        f" {kernel.prefill.spills} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cpu", nargs="+", choices=CPUS, default=list(CPUS))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES, metavar="TYPE")
    parser.add_argument("--show", choices=TYPES, help="print the loops of this type instead")
    options = parser.parse_args()
    for cpu in options.cpu:
        if options.show:
            kernel = kernels(cpu, [options.show])[0]
            print(f"# {cpu}, decode\n", *kernel.decode.lines, f"\n# {cpu}, prefill\n", *kernel.prefill.lines, sep="\n")
            continue
        share = " share of 11.5 GB/s |" if cpu == "cortex-a76" else ""
        print(f"\n{cpu} (`{CPUS[cpu]}`)\n")
        print(f"| type | decode: instructions per weight | spills |{share} prefill: per 16 products | spills |")
        print("|---|--:|--:|" + ("--:|" if share else "") + "--:|--:|")
        for kernel in kernels(cpu, options.types):
            print(row(kernel, cpu))


if __name__ == "__main__":
    main()
