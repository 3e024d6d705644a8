"""AArch64 and small boards with all of them faked: features, ISA levels, thermal readings, contexts that fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.backends.cpu import arm, system
from edgellm.backends.cpu.levels import LEVELS
from edgellm.bench import doctor, thermal
from edgellm.catalogue.machine import Memory
from edgellm.errors import NotEnoughMemory
from edgellm.loading import context as contexts
from edgellm.loading import estimate

PI4, PI5, M2 = {16: 0x8FB, 26: 0}, {16: 0x119FFB, 26: 0}, {16: 0x119FFB, 26: 1 << 13 | 1 << 14}


@pytest.mark.parametrize(
    ("words", "isa_levels"),
    [
        (PI4, ("generic", "neon")),
        (PI5, ("generic", "neon", "dotprod")),
        (M2, ("generic", "neon", "dotprod", "i8mm")),
        ({16: 0, 26: 0}, ("generic", "neon")),
    ],
)
def test_isa_levels_by_the_auxiliary_vector(
    words: dict[int, int], isa_levels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    features = arm.from_hwcaps(words) | {"neon"}
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(system, "host_features", lambda: features)
    assert system.usable_isas() == isa_levels
    assert all(LEVELS[isa_level].processor.startswith("cortex") for isa_level in isa_levels[1:])


def test_cpuinfo_counts_what_all_cores_have(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    big, little = "Features\t: fp asimd atomics asimdhp asimddp i8mm\n", "Features\t: fp asimd atomics asimddp\n"
    info.write_text(f"processor\t: 0\n{big}\nprocessor\t: 1\n{little}")
    assert arm.from_cpuinfo(info) == {"neon", "lse", "dotprod"}
    info.write_bytes(b"\xff\xfe")
    assert arm.from_cpuinfo(info) == arm.from_cpuinfo(tmp_path / "none") == frozenset()


def test_sysctl_and_windows() -> None:
    m1 = {b"hw.optional.arm.FEAT_DotProd", b"hw.optional.arm.FEAT_LSE", b"hw.optional.neon_fp16"}
    assert arm.from_sysctl(m1.__contains__) == {"dotprod", "lse", "fullfp16"}
    assert arm.from_processor_features({19, 34, 43}.__contains__) == {"neon", "lse", "dotprod"}
    assert arm.from_processor_features({19, 34, 43, 66, 68}.__contains__) == {"neon", "lse", "dotprod", "i8mm", "bf16"}


def board(root: Path, **zones: tuple[str, str]) -> Path:
    for name, (kind, temperature) in zones.items():
        (root / name).mkdir(parents=True)
        (root / name / "type").write_text(f"{kind}\n")
        (root / name / "temp").write_text(f"{temperature}\n")
    return root


@pytest.mark.parametrize(
    ("bits", "said"), [("0", ""), ("50005", "too weak: .*right now"), ("50000", "at times.*since it was"), ("nonsense", "")]
)
def test_a_boards_temperature(tmp_path: Path, bits: str, said: str) -> None:
    zones = board(tmp_path / "zones", thermal_zone0=("cpu-thermal", "61234"), thermal_zone1=("off", "-274000"))
    (tmp_path / "throttled").write_text(bits)
    found = thermal.thermal(zones, tmp_path / "throttled")
    assert found is not None and found.warmest == pytest.approx(61.234) and found.sensor == "cpu-thermal"
    assert (found.advice == "") == (said == "")
    if said:
        assert re.search(said, found.advice)


def test_a_hot_board_and_one_without_sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = thermal.thermal(board(tmp_path / "hot", thermal_zone0=("cpu-thermal", "83000")), tmp_path / "none")
    assert hot is not None and "fan" in hot.advice
    assert thermal.thermal(tmp_path / "nothing", tmp_path / "none") is None
    monkeypatch.setattr(doctor, "thermal", lambda: hot)
    shown = {finding.what: finding for finding in doctor.examine(timing=False)}
    assert shown["temperature"].value == "83 °C (cpu-thermal)" and "fan" in shown["temperature"].advice
    monkeypatch.setattr(doctor, "thermal", lambda: None)
    assert "temperature" not in {finding.what for finding in doctor.examine(timing=False)}


def test_contexts_to_try() -> None:
    assert contexts.candidates(None, 4, 20000) == [20000, 16384, 8192, 4096, 2048, 1024, 512]
    assert contexts.candidates(None, 4, 10**6)[:2] == [131072, 65536]
    assert contexts.choices(None, 4, 6000, ("f16", "q8_0"))[:4] == [(6000, "f16"), (4096, "f16"), (4096, "q8_0"), (2048, "f16")]
    assert contexts.candidates(None, 4, 1000) == [1000] and contexts.candidates(4096, 4, 131072) == [4096]
    assert contexts.candidates(None, 1500, 4096) == [4096, 2048]


def test_a_small_board_gets_a_context_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0", tokenizer="bpe", context=4096)
    with edgellm.load(path) as model:
        assert model.info.context == 4096
        whole = model.info.kv_bytes
    full = estimate.BASE_BYTES + whole
    tries: list[int] = []

    def check(needed: estimate.Need, context: int, path: str) -> None:
        tries.append(context)
        plain(needed, context, path, free=Memory(int((needed.total if context <= 1024 else needed.total - 1) / 0.9) + 1))

    plain = estimate.check
    monkeypatch.setattr(estimate, "is_ample", lambda gguf, kv, copied: False)
    monkeypatch.setattr(estimate, "check", check)
    with edgellm.load(path) as model:
        assert model.info.context == 1024 and model.info.kv_type == "f16" and model.info.kv_bytes < whole < full
    assert tries == [4096, 4096, 2048, 2048, 1024]  # halves first, then bytes
    monkeypatch.setattr(estimate, "check", plain)
    monkeypatch.setattr(estimate, "memory", lambda: Memory(50 << 20))
    with pytest.raises(NotEnoughMemory, match="context of 512"):  # none fits: refused, nothing is swapped
        edgellm.load(path)
    with pytest.raises(NotEnoughMemory, match="context of 2048"):  # asked for: taken as it is, or refused
        edgellm.load(path, context=2048)
