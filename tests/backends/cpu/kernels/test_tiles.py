"""The ISA level of the tile unit: its layouts with tiles computed in NumPy, its instructions as LLVM writes them, and the trial."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_isa_levels import KINDS, columns_give_what_each_alone_gives, quantisers
from places import ROOT
from test_matmul_kernels import Kernels, quantise

from edgellm.backends.cpu import findings, jit, system
from edgellm.backends.cpu.jit import selftest
from edgellm.backends.cpu.levels import LEVELS, ladder
from edgellm.backends.cpu.simd import Isa, load_isa
from edgellm.backends.cpu.simd.amx import configuration
from edgellm.backends.cpu.traits import BLOCK, TRAITS

QUICK = ["Q4_K"]
pytestmark = pytest.mark.skipif(not system.is_x86(), reason="tiles of this form are x86's")


@pytest.fixture(scope="module")
def isa() -> Isa:
    """The ISA level below the tile unit's, or the portable one on processors without vectors of 512 bits, with tiles by plain
    arithmetic in the layout that the tile unit wants.
    """
    best = "avx512vnni" if "avx512vnni" in system.usable_isas() else "generic"
    level = replace(LEVELS[best], name="tiles", vector_bytes=64, tile="unit", tile_columns=((16,), (16,)), small_panel_columns=0)
    return Isa(type("Tiles", (load_isa(best).instructions,), {"level": level}))


@pytest.fixture(scope="module")
def kernels(isa: Isa) -> Iterator[Kernels]:
    kept = quantisers(isa)
    yield Kernels(isa.level, ((kernel, function.ctypes) for kernel, function in kept.items()))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in KINDS])
def test_products_of_tiles(kernels: Kernels, isa: Isa, name: str) -> None:
    """Tiles of sixteen columns give what a column alone gives, bit by bit, and both are right."""
    sizes = [(512, 35, 37), (256, 3, 16), (1536, 80, 64), (256, 20, 53)]
    if TRAITS[name].block == BLOCK:  # the last superblock has one block: passes differ in length
        sizes.append((544, 18, 33))
    columns_give_what_each_alone_gives(kernels, isa, name, sizes)


def test_a_tile_of_activations_has_whole_rows(kernels: Kernels) -> None:
    x = np.random.default_rng(1).standard_normal((17, 256), np.float32)
    rows = quantise(kernels, x)
    record = rows[:16].reshape(-1)[: 8 * 768].reshape(8, 768)  # of the only superblock, block by block
    quants = np.stack([block[:512].view(np.int8).reshape(16, 32) for block in record], axis=1)
    d = np.stack([block[512:576].view(np.float32) for block in record], axis=1)
    assert np.abs(quants * d[..., None] - x[:16].reshape(16, 8, 32)).max() <= 0.51 * d.max()


def test_the_trial_finds_wrong_results(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With two ISA levels that every x86 machine has; the upper one is faster."""
    monkeypatch.setattr(system, "amx_permitted", lambda: True)
    monkeypatch.setattr(selftest, "ISAS", ("avx2", "generic") if "avx2" in system.usable_isas() else ("generic", "generic"))
    selftest.main()
    tiles, without = map(float, capsys.readouterr().out.split())
    assert tiles > 0 and without > 0
    run = selftest.Trial.run
    first = list[selftest.Trial]()

    def spoils_the_first(trial: selftest.Trial) -> float:
        seconds = run(trial)
        if trial in first or not first:
            first.append(trial)
            trial.results[1][5, 7] += 1
        return seconds

    monkeypatch.setattr(selftest.Trial, "run", spoils_the_first)
    selftest.main()
    assert capsys.readouterr().out == "wrong results\n"


def test_configurations() -> None:
    """Palette 1; bytes of a row and rows of sums, activations and weights, as LDTILECFG has them."""
    for depth in (16, 32):
        data = configuration(depth)
        assert len(data) == 64 and data[0] == 1 and not any(data[1:16])
        assert np.frombuffer(data[16:32], np.uint16).tolist() == [64] * 4 + [depth] * 2 + [64] * 2
        assert list(data[48:56]) == [16] * 6 + [depth // 4] * 2


WRITTEN = """
import sys
sys.path[:0] = sys.argv[3:]
from own_isa_levels import compiled
from edgellm.backends.cpu.jit.compiler import kernel_module
from edgellm.backends.cpu.simd import load_isa
module, variant = sys.argv[1:3]
print(compiled(kernel_module(module).build(variant, load_isa("amx")), link=False)._library.get_asm_str())
"""


def run_as_amx(program: str, *arguments: str) -> str:
    """The output of a program that compiles for a processor with AMX, which need not be this one."""
    environment = dict(
        os.environ, NUMBA_CPU_NAME="sapphirerapids", NUMBA_CPU_FEATURES="+avx512vnni,+amx-tile,+amx-int8", PYTHONPATH=str(ROOT)
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("Q4_0", "tdpbssd"),
        pytest.param("Q4_K", "tdpbsud", marks=pytest.mark.slow),
        pytest.param("Q6_K", "tdpbssd", marks=pytest.mark.slow),
    ],
)
def test_instructions(name: str, instruction: str) -> None:
    """The instructions that LLVM emits."""
    written = run_as_amx(WRITTEN, "matmul", name, *sys.path)
    lines = [line.split() for line in written.splitlines() if line.startswith("\t") and not line.startswith("\t.")]
    used = [words[0] for words in lines]
    scales = 2 if name == "Q6_K" else 1
    for each, least in (
        ("ldtilecfg", 1),
        ("tilerelease", 1),
        ("tilezero", scales),
        ("tileloadd", 2 * scales),
        ("tilestored", scales),
        (instruction, scales),
    ):
        assert used.count(each) >= least, each
    products = [" ".join(words[1:]) for words in lines if words[0] == instruction]
    four = [f"%tmm{6 + i // 2}, %tmm{4 + i % 2}, %tmm{i}" for i in range(4)]  # weights, activations, sums
    assert any(products[i : i + 4] == four for i in range(len(products)))


def test_amx_is_used_after_a_trial_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EDGELLM_ISA", raising=False)
    monkeypatch.setattr(system, "usable_isas", lambda: tuple(level.name for level in ladder("x86")))
    for verdict, isa, said in (
        ("faster (1.63 times as fast)", "amx", "amx; a trial of it was faster (1.63 times as fast)"),
        ("slower (0.82 times as fast)", "avx512vnni", "but a trial of it was slower (0.82 times as fast)"),
        ("hardly faster (1.07 times as fast)", "avx512vnni", "hardly faster (1.07 times as fast)"),
        ("ended with signal 4", "avx512vnni", "but a trial of it was ended with signal 4"),
    ):
        monkeypatch.setattr(selftest, "verdict", lambda verdict=verdict: verdict)
        selftest.passed.cache_clear()
        assert jit.choose_isa() == isa
        assert findings._instructions().value.endswith(said)
    selftest.passed.cache_clear()
    monkeypatch.setenv("EDGELLM_ISA", "amx")
    assert jit.choose_isa() == "amx"


def test_a_trial_is_announced_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGELLM_CACHE", str(tmp_path))
    monkeypatch.delenv("EDGELLM_ISA", raising=False)
    monkeypatch.setattr(system, "usable_isas", lambda: tuple(level.name for level in ladder("x86")))
    monkeypatch.setattr(selftest, "_try", lambda: "slower")
    told = list[str]()
    for _ in range(2):
        selftest.passed.cache_clear()
        assert jit.choose_isa(lambda what, done, of: told.append(what)) == "avx512vnni"
    selftest.passed.cache_clear()
    assert told == ["testing this processor's AMX, once"]


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("print(0.001, 0.004)", "faster (4.00 times as fast)"),
        ("print(0.004, 0.001)", "slower (0.25 times as fast)"),
        ("print(0.004, 0.0043)", "hardly faster (1.07 times as fast)"),
        ("print(0.004, 0.0045)", "faster (1.12 times as fast)"),
        ("print('wrong results')", "wrong results"),
        ("import os; os.kill(os.getpid(), 4)", "ended with signal 4"),
        ("raise SystemExit(3)", "ended with status 3"),
        ("raise OSError('no space é')", "ended with status 1: OSError: no space é"),
        ("", "ended without an answer"),
    ],
)
def test_verdicts(program: str, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever becomes of the other process, this one goes on; a verdict is found once and kept."""
    monkeypatch.setenv("EDGELLM_CACHE", str(tmp_path))
    trials: list[int] = []
    really = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        trials.append(1)
        return really([sys.executable, "-c", program], **options)

    monkeypatch.setattr(selftest.subprocess, "run", run)
    assert selftest.verdict() == verdict and selftest.verdict() == verdict
    assert len(trials) == 1
    monkeypatch.setattr(selftest, "sources_digest", lambda module: "changed")
    assert selftest.verdict() == verdict and len(trials) == 2, "kernels of other sources"
    assert len(list(tmp_path.rglob("verdict*"))) == 1


def test_the_program_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(system, "amx_permitted", lambda: False)
    selftest.main()
    assert capsys.readouterr().out == "not permitted by the system\n"
