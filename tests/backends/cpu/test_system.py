"""The operating system's side, with other platforms faked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edgellm import folders
from edgellm.backends.cpu import system


def test_this_machine_has_cores_and_a_lowest_isa_level() -> None:
    assert 1 <= system.usable_cores() <= (os.cpu_count() or 1)
    assert system.usable_isas()[0] == "generic"


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", None),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("nonsense", None),
        ("", None),
        ("100000 0", None),
    ],
)
def test_cgroup_v2_quota(tmp_path: Path, text: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert system._cgroup_quota(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("400000", 4), ("50000", 1)])
def test_cgroup_v1_quota(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert list(system._quotas(tmp_path, tmp_path / "none")) == ([] if cores is None else [cores])


def test_every_quota_on_the_way_to_the_root_holds(tmp_path: Path) -> None:
    (tmp_path / "user/session").mkdir(parents=True)
    (tmp_path / "user/cpu.max").write_text("300000 100000")
    (tmp_path / "user/session/cpu.max").write_text("max 100000")
    (tmp_path / "own").write_text("0::/user/session\n")
    assert list(system._quotas(tmp_path, tmp_path / "own")) == [3]
    (tmp_path / "own").write_text("0::/../../elsewhere\n")
    assert list(system._quotas(tmp_path, tmp_path / "own")) == []


def test_siblings_of_a_core_count_once(tmp_path: Path) -> None:
    for cpu, (package, core) in enumerate([(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0)]):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
    assert [system._distinct_cores(cpus, tmp_path) for cpus in ({0, 1, 2, 3, 4, 5}, {0, 3}, {1, 2}, {7})] == [3, 1, 2, None]


@pytest.mark.parametrize(
    ("cpu", "x86", "generation"),
    [("znver5", True, 5), ("znver12", True, 12), ("sapphirerapids", True, 0), ("znver5", False, 0), ("znver", True, 0)],
)
def test_generations_of_zen(monkeypatch: pytest.MonkeyPatch, cpu: str, x86: bool, generation: int) -> None:
    monkeypatch.setattr(system, "host_cpu", lambda: cpu)
    monkeypatch.setattr(system, "is_x86", lambda: x86)
    assert system.zen() == generation


def test_affinity_limits_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    monkeypatch.setattr(system, "_physical_cores", lambda: 8)
    monkeypatch.setattr(system, "_quotas", lambda: iter(()))
    assert system.usable_cores() == 1


def test_apple_counts_performance_cores_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    monkeypatch.setattr(system, "_performance_cores", lambda: 4)
    assert system.usable_cores() == 4


def test_windows_without_affinity_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(system, "_physical_cores", lambda: 8)
    assert system.usable_cores() == 8


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/edgellm"),
        ("linux", {"EDGELLM_CACHE": "/mine"}, "/mine"),
        ("darwin", {"HOME": "/Users/u"}, "/Users/u/Library/Caches/edgellm"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/edgellm/Cache"),
    ],
)
def test_cache_folder_of_each_platform(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("EDGELLM_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert folders.user_cache() == Path(expected)


def test_other_processors_have_the_generic_isa_level_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert system.usable_isas() == ("generic",)


def test_old_x86_has_the_generic_isa_level_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(system, "host_features", lambda: frozenset({"sse2", "avx"}))
    assert system.usable_isas() == ("generic",)


def test_private_folders(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o700)
    assert folders.is_private(folder)
    folder.chmod(0o770)
    assert not folders.is_private(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    assert not folders.is_private(tmp_path / "link")
    assert not folders.is_private(tmp_path / "absent")


def test_core_classes(tmp_path: Path) -> None:
    assert system.core_classes(tmp_path) == {}
    for kind, cpus in (("core", "0-3,8"), ("atom", "4-7")):
        (tmp_path / f"cpu_{kind}").mkdir()
        (tmp_path / f"cpu_{kind}/cpus").write_text(f"{cpus}\n")
    assert system.core_classes(tmp_path) == {"Intel's core": 5, "Intel's atom": 4}
    for index, capacity in enumerate((446, 1024, 446, 446, 1024, 446)):
        (tmp_path / f"system/cpu/cpu{index}").mkdir(parents=True)
        (tmp_path / f"system/cpu/cpu{index}/cpu_capacity").write_text(f"{capacity}\n")
    assert list(system.core_classes(tmp_path).items()) == [("capacity 1024", 2), ("capacity 446", 4)]
    assert system._listed("") == system._listed("a-b") == 0
