"""The AArch64 kernels' machine code, compiled here and read: the instructions meant for them, no spills, nothing scalar."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from places import ROOT

SCRIPT = ROOT / "scripts" / "arm_assembly.py"
TYPES = ["Q4_0", "Q8_0", "Q4_K", "Q6_K"]
ON_THE_PAGE = {"cortex-a76": ["Q4_1", "Q2_K", "Q6_K"], "cortex-a72": ["Q8_0", "Q2_K"]}  # some of the types in the page's tables
MOST_PER_WEIGHT = 0.45  # instructions, of a loop over one column on cores with dotprod


@pytest.fixture(scope="module")
def assembly() -> ModuleType:
    spec = importlib.util.spec_from_file_location("arm_assembly", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["arm_assembly"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kernels(assembly: ModuleType) -> dict[str, dict[str, Any]]:
    """By processor and type; each takes seconds."""
    types = {cpu: sorted({*TYPES, *ON_THE_PAGE.get(cpu, ())}) for cpu in assembly.CPUS}
    return {cpu: {kernel.name: kernel for kernel in assembly.kernels(cpu, names)} for cpu, names in types.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpu", "decode", "prefill"),
    [
        ("cortex-a72", "smull smull2 smlal smlal2", "smull smull2 smlal smlal2"),
        ("cortex-a76", "sdot", "sdot"),
        ("apple-m2", "sdot", "smmla"),
    ],
)
def test_inner_loops(kernels: dict[str, dict[str, Any]], cpu: str, decode: str, prefill: str) -> None:
    for kernel in (kernels[cpu][name] for name in TYPES):
        for loop, instructions in ((kernel.decode, decode), (kernel.prefill, prefill)):
            assert sum(loop.counts[name] for name in instructions.split()) >= 16, (kernel.name, loop.counts)
            assert loop.scalar_products == 0, (kernel.name, loop.lines)
            assert loop.spills == 0, (kernel.name, loop.spills)
            assert "bl" not in loop.counts and "blr" not in loop.counts
        assert kernel.per_weight <= MOST_PER_WEIGHT or cpu == "cortex-a72", (kernel.name, kernel.per_weight)


@pytest.mark.slow
def test_the_page_for_owners_has_these_figures(assembly: ModuleType, kernels: dict[str, dict[str, Any]]) -> None:
    """Within 5 %: another version of LLVM may count a little differently."""
    page = (SCRIPT.parent.parent / "docs" / "raspberry-pi.md").read_text(encoding="utf-8").splitlines()
    for place, (cpu, names) in enumerate(ON_THE_PAGE.items()):
        for kernel in (kernels[cpu][name] for name in names):
            said = [line for line in page if line.startswith(f"| {kernel.name} |")][place]
            page_has, script_says = (
                [float(cell.strip(" %")) for cell in line.split("|")[2:-1]] for line in (said, assembly.row(kernel, cpu))
            )
            assert page_has == pytest.approx(script_says, rel=0.05), (cpu, kernel.name)


def test_loops_are_found_by_their_labels(assembly: ModuleType) -> None:
    text = (
        "f:\n\tmov x0, x1\n.LBB0_1:\n\tadd x2, x2, #1\n.LBB0_2:\n\tsdot v0.4s, v1.16b, v2.16b\n\tstr q0, [sp, #16]\n"
        "\tmul x1, x2, x3\n\tmul v1.4s, v2.4s, v3.4s\n\tb.ne .LBB0_2\n\tcbz x2, .LBB0_1\n\tret\n"
    )
    (loop,) = assembly.inner_loops(text)
    assert loop.products == 16 and loop.spills == 1 and len(loop.lines) == 5
