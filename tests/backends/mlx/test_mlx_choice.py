"""Which back end a model goes to, without MLX being there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tiny_models import tiny_model
from tiny_projectors import seeing

import edgellm
from edgellm.backends import find
from edgellm.backends.base import BackendNeed
from edgellm.backends.mlx import device, groups
from edgellm.loading import backend_choice
from edgellm.loading.backend_choice import by_size
from edgellm.loading.encoder_memory import memory_of


def a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("is_apple_silicon", True), ("has_metal", True), ("working_set", 1 << 30)):
        monkeypatch.setattr(device, name, lambda value=value: value)


def test_mlx_that_is_missing_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "mlx" else found(name, *rest))
    with pytest.raises(edgellm.EdgeError, match=r"pip install \"edgellm\[mlx\]\""):
        edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="mlx")


def test_a_back_end_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(edgellm.EdgeError, match="auto, cpu, mlx"):
        edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="cuda")


def test_auto_goes_by_the_working_set() -> None:
    needed = BackendNeed(weights=3 << 30, kv=1 << 30, work=0)
    assert by_size(needed, 4 << 30).backend.name == "mlx"
    place = by_size(needed, (4 << 30) - 1)
    assert place.backend.name == "cpu" and "working set" in place.note and "\n" not in place.note


def test_a_mac_without_mlx_runs_on_the_cpu_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_apple_silicon", lambda: True)
    monkeypatch.setattr(device, "has_metal", lambda: False)
    with edgellm.load(tiny_model(tmp_path / "m.gguf")) as model:
        assert model.backend == "cpu" and "on the CPU" in model.info.place


def test_a_mac_with_room_runs_on_mlx_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    a_mac(monkeypatch)
    with edgellm.load(tiny_model(tmp_path / "m.gguf")) as model:
        assert model.backend == "mlx" and "through MLX" in model.info.place
    monkeypatch.setattr(device, "working_set", lambda: 1 << 20)
    with edgellm.load(tiny_model(tmp_path / "m.gguf")) as model:
        assert model.backend == "cpu" and "does not fit" in model.info.place


def test_an_image_encoder_counts_as_it_runs_on_mlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working set that the model fits without its projector."""
    pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    a_mac(monkeypatch)
    limits, by_size = list[int](), backend_choice.by_size
    monkeypatch.setattr(backend_choice, "by_size", lambda needed, limit: limits.append(needed.total) or by_size(needed, limit))
    seeing(tmp_path, "qwen3vl_merger", mmproj="none").close()
    with seeing(tmp_path, "qwen3vl_merger") as model:
        assert model.backend == "mlx"
    blind, whole = limits
    assert whole - blind >= memory_of(tmp_path / "mmproj.gguf", backend=find("mlx")) > 1 << 20
    monkeypatch.setattr(device, "working_set", lambda: whole - 1)
    with seeing(tmp_path, "qwen3vl_merger") as model:
        assert model.backend == "cpu" and "does not fit" in model.info.place


def test_forms_of_keys_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend_choice.kv_types("mlx", None) == ("f16",) and backend_choice.kv_types("auto", None) == ("f16", "q8_0")
    with pytest.raises(edgellm.EdgeError, match=r"q5_0.*give f16"):
        backend_choice.kv_types("mlx", "q5_0")
    a_mac(monkeypatch)
    with edgellm.load(tiny_model(tmp_path / "m.gguf"), kv_type="q4_0") as model:
        assert model.backend == "mlx" and model.info.kv_type == "q4_0"


def test_a_mac_runs_what_mlx_cannot_read_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Q4_0 in the place of a type that MLX lacks."""
    pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    path = tiny_model(tmp_path / "m.gguf", quant="Q4_0")
    a_mac(monkeypatch)
    monkeypatch.delitem(groups.TRAITS, "Q4_0")
    with edgellm.load(path) as model:
        assert model.backend == "cpu" and "uses Q4_0, which the MLX" in model.info.place and "use backend" not in model.info.place
    with pytest.raises(edgellm.EdgeError, match=r"m\.gguf: blk.*use the back end cpu"):
        edgellm.load(path, backend="mlx")


def test_a_mac_runs_what_mlx_has_no_fast_products_for_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    path = tiny_model(tmp_path / "m.gguf", quant="IQ2_XS")
    a_mac(monkeypatch)
    with edgellm.load(path) as model:
        assert model.backend == "cpu" and "IQ2_XS, for which MLX has no fast products" in model.info.place
    with edgellm.load(path, backend="mlx") as model:
        assert model.backend == "mlx"


def test_a_mac_keeps_keys_that_mlx_cannot_round_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.backends.mlx import backend

    a_mac(monkeypatch)
    monkeypatch.setattr(backend, "BLOCK", 48)
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "deepseek2"), kv_type="q8_0") as model:
        assert model.backend == "cpu" and "rotates 48 numbers" in model.info.place
