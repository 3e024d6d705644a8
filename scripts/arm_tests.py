"""Runs tests under emulation of AArch64 processors: python scripts/arm_tests.py FOLDER [--cpu cortex-a76] [TEST...]

FOLDER is one that scripts/arm_root has made. Kernels are compiled on this machine first, which takes a twentieth of the time; two
small ones are compiled under emulation as well, and their instructions have to be the same byte by byte.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.extend(
    str(Path(__file__).resolve().parent.parent / "tests" / folder) for folder in ("helpers", "models", "backends/cpu/kernels")
)

from own_isa_levels import KINDS
from test_matmul_kernels import COMMON, FLOATS, RARE

from edgellm.backends.cpu.traits import TRAITS

ROOT = Path(__file__).resolve().parent.parent
CPUS = {"cortex-a72": "neon", "cortex-a76": "dotprod", "max": "i8mm"}
COMPARED = ("executor:walk", "quantise:q8")
OTHERS = {
    "quantise": ["q8", "q8_by_block"],
    "probe": ["read"],
    "executor": ["start", "walk", "wait"],
    "norm": ["rms_norm", "layer_norm"],
    "attention": ["f16", "f32", "q8_0", "q4_0", "f32_softcap", "f16_softcap"],
    "attention_partial": ["merge", "merge_rotated"],
    "kv_store": ["f16", "f32", "q8_0", "q4_0"],
    "select": ["rows"],
    "rope": ["norm", "neox"],
    "elementwise": ["add", "mul", "silu", "gelu", "gelu_erf", "scale", "softcap", "glu_silu", "glu_gelu", "glu_sigmoid"],
    "columns": ["copy"],
    "conv": ["causal"],
    "delta_net": ["wide"],
    "ssm_scan": ["columns"],
    "topk": ["softmax"],
    "expert_rows": ["f32"],
    "experts": ["buckets", "rows", "sum"],
    "heads": ["q8", "products", "join"],
    "token_shift": ["rows"],
    "wkv6": ["narrow"],
    "wkv7": ["narrow"],
}
WHOLE = "cortex-a76"  # runs everything, the others what their ISA levels differ in
MATMUL_ONLY = "max"  # its ISA level differs from the one below in products of weights alone
COMPARE = """
import sys
from llvmlite import binding
from edgellm.backends.cpu.jit import cache as object_cache
from edgellm.backends.cpu.jit import compiler
isa = sys.argv[1]
def instructions(code):     # names of functions are counted up in each process, and so differ
    return [section.data() for section in binding.ObjectFileRef.from_data(code).sections() if section.name() == b".text"]
compiler.set_target(isa)
cache = object_cache.ObjectCache(isa)
for kernel in sys.argv[2:]:
    here, there = (instructions(code) for code in (compiler.compile_kernel(kernel, isa).code, cache.read(kernel).code))
    assert here and here == there, kernel + " differs from the cross-compiled one"
"""


def tests(cpu: str) -> list[list[str]]:
    """Arguments of pytest, one list for each run: what depends on the processor, on its own ISA level; all of it on one."""
    isa_level, left_out = CPUS[cpu], sorted(set(COMMON) - set(types(cpu)))
    products = [
        ["tests/backends/cpu/kernels/test_matmul_kernels.py", "-k", " and not ".join([isa_level, *left_out])],
        ["tests/backends/cpu/simd/test_simd.py", "-k", f"{isa_level} or ladder or told_apart"],
    ]
    if cpu == MATMUL_ONLY:
        return products
    keys = ["tests/memory/test_streaming.py", "-k", "quantised_keys"]
    if cpu != WHOLE:
        return [*products, keys, ["tests/backends/cpu/test_conformance.py", "-k", "our_own"]]
    return [
        *products,
        ["tests/formats/test_codecs.py", "tests/memory/test_ring.py", "tests/backends/cpu/test_arm.py"],
        keys,
        ["tests/backends/cpu/test_conformance.py", "-k", "logits_equal_gold or our_own or greedy"],
    ]


def emulated(folder: Path, cpu: str, *arguments: str, kept: bool = False) -> subprocess.CompletedProcess[str]:
    """A program on that processor. `kept`: what it says is for the caller to print."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT), EDGELLM_CACHE=str(folder / f"cache-{cpu}"))
    return subprocess.run(
        [str(folder / f"python-{cpu}"), *arguments],
        env=environment,
        cwd=ROOT,
        text=True,
        check=False,
        stdout=subprocess.PIPE if kept else None,
        stderr=subprocess.STDOUT if kept else None,
    )


def types(cpu: str) -> list[str]:
    return COMMON if cpu == WHOLE else [*KINDS, *FLOATS]


def kernels(cpu: str, whole: bool) -> list[str]:
    """The kernels of these tests; without any, those of all tests."""
    others = {"quantise": OTHERS["quantise"]} if cpu == MATMUL_ONLY and not whole else OTHERS
    names = [*COMMON, *RARE] if whole else types(cpu)
    return [
        *(kernel for name in names for kernel in (TRAITS[name].matmul, TRAITS[name].embed)),
        *(f"{module}:{variant}" for module, variants in others.items() for variant in variants),
    ]


def prepare(folder: Path, cpu: str, whole: bool) -> bool:
    """Kernels of the processor's own ISA level to its cache."""
    isa_level, answer = CPUS[cpu], folder / f"key-{cpu}"
    code = f"from edgellm.backends.cpu.jit import cache as o; open({str(answer)!r}, 'w').write(o.cache_key({isa_level!r}))"
    if emulated(folder, cpu, "-c", code).returncode:
        return False
    cache = folder / f"cache-{cpu}" / "kernels"
    command, wanted = [sys.executable, str(ROOT / "scripts" / "arm_cross.py")], kernels(cpu, whole)
    return (
        subprocess.run([*command, answer.read_text(), str(cache), isa_level, *wanted], check=False).returncode == 0
        and not emulated(folder, cpu, "-c", COMPARE, isa_level, *(set(COMPARED) & set(wanted))).returncode
    )


def suite(folder: Path, cpu: str, arguments: list[str]) -> str:
    """The failures on a processor. The emulator keeps one core busy, so several of them run beside each other."""
    if not prepare(folder, cpu, bool(arguments)):
        return f"kernels for {cpu} could not be made"
    for run in [arguments] if arguments else tests(cpu):
        done = emulated(folder, cpu, "-m", "pytest", "-q", "-p", "no:cacheprovider", *run, kept=True)
        print(f"--- {cpu}: {' '.join(run)}\n{done.stdout}", end="", flush=True)
        if done.returncode:
            return f"{cpu}: {' '.join(run)} ended with {done.returncode}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cpu", nargs="+", choices=CPUS, default=list(CPUS))
    parser.add_argument("tests", nargs="*", help="arguments of pytest instead of the usual ones")
    options = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:
        faults = pool.map(lambda cpu: suite(options.folder.resolve(), cpu, options.tests), options.cpu)
        sys.exit("\n".join(filter(None, faults)) or None)


if __name__ == "__main__":
    main()
