"""Keys and values in quants on MLX: rows as the CPU back end has them, close logits, saved and resumed, in rings that wrap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.errors import BackendError
from edgellm.memory.kv_types import BLOCK, QUANTISED, kv_row_bytes

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

from edgellm.backends.mlx.kv_quants import decode, encode, rotated  # noqa: E402

IDS = [1, 5, 9, 20, 33, 7, 2, 60, 41, 12, 3, 88]
Floats = npt.NDArray[np.float32]


def values(dim: int, rows: int = 50) -> Floats:
    return np.random.default_rng(dim).standard_normal((1, 2, rows, dim)).astype(np.float32)


@pytest.mark.parametrize("dim", [20, 32, 40, 64, 80])
def test_rotating_twice_gives_the_input(dim: int) -> None:
    x = mx.array(values(dim))
    once = rotated(x)
    assert np.allclose(np.array(rotated(once)), values(dim), atol=1e-5)
    assert np.allclose((once * once).sum(axis=-1), (x * x).sum(axis=-1), rtol=1e-5) and (dim < 8 or not np.allclose(once, x))


@pytest.mark.parametrize("kv_type", QUANTISED)
@pytest.mark.parametrize("dim", [20, 32, 40, 64, 80])
def test_rows_hold_their_values(kv_type: str, dim: int) -> None:
    """To half a step of the largest of a block in bytes; in halves of bytes the steps tried let large values be clipped."""
    x = values(dim)
    x[0, 1, 3], x[0, 0, 2] = 0, 1000 * x[0, 0, 2]
    rows = encode(mx.array(x), kv_type)
    assert rows.shape[-1] == kv_row_bytes(kv_type, dim) and rows.dtype == mx.uint8
    wanted, got = np.array(rotated(mx.array(x))), np.array(decode(rows, dim, kv_type, mx.float32))
    for first in range(0, dim, BLOCK):
        off = np.abs(got - wanted)[..., first : first + BLOCK]
        most = np.abs(wanted[..., first : first + BLOCK]).max(axis=-1, keepdims=True)
        assert (off <= most * (0.505 / 127 if kv_type == "q8_0" else 0.3)).all()
    assert not got[0, 1, 3].any()


@pytest.mark.parametrize("kv_type", QUANTISED)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_shows(kv_type: str, odd: float) -> None:
    x = values(64)
    x[0, 0, 0, 40] = odd
    found = np.isnan(np.array(decode(encode(mx.array(x), kv_type), 64, kv_type, mx.float32)))
    assert found[0, 0, 0, 32:].all() and not found[0, 0, 0, :32].any() and not found[0, 1].any() and not found[0, 0, 1:].any()


@pytest.mark.parametrize(
    ("kv_type", "arch", "reference", "cpu"),
    [
        ("q8_0", "llama", 0.03, 1e-4),
        ("q8_0", "deepseek2", 0.03, 1e-4),
        ("q8_0", "gemma2", 0.03, 0.01),
        ("q8_0", "bloom", 0.03, 0.01),
        ("q4_0", "llama", 0.5, 1e-4),
        ("q4_0", "deepseek2", 0.5, 1e-4),
        ("q4_0", "gemma2", 0.5, 0.1),
    ],
)
def test_logits_are_close_to_the_cpus(tmp_path: Path, kv_type: str, arch: str, reference: float, cpu: float) -> None:
    """A value between two quants may get either: where that happens (gemma2, bloom) logits differ by a step of one value."""
    path, found = tiny_model(tmp_path / "m.gguf", arch), {}
    for backend, form in (("cpu", "f32"), ("cpu", kv_type), ("mlx", kv_type)):
        with edgellm.load(path, backend=backend, kv_type=form, context=64) as model:
            found[backend, form] = model.logits(IDS)
    exact, scale = found["cpu", "f32"], np.abs(found["cpu", "f32"]).max()
    assert 1e-3 < np.abs(found["mlx", kv_type] - exact).max() / scale < reference
    assert np.abs(found["mlx", kv_type] - found["cpu", kv_type]).max() / scale < cpu


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_a_ring_that_wraps(tmp_path: Path, arch: str) -> None:
    """Sinks' keys are turned and rounded again; logits stay near those of f32 far past the context."""
    path, ids = tiny_model(tmp_path / "m.gguf", arch), np.random.default_rng(3).integers(3, 96, 90).tolist()
    options: dict[str, Any] = {"backend": "mlx", "context": 24, "sinks": 4}
    with edgellm.load(path, kv_type="f32", **options) as model:
        wanted = model.logits(ids)
    with edgellm.load(path, kv_type="q8_0", **options) as model:
        got = model.logits(ids)
    assert 0 < np.abs(got - wanted).max() / np.abs(wanted).max() < 0.05


@pytest.mark.parametrize("kv_type", QUANTISED)
def test_a_saved_session_continues_with_the_same_bits(tmp_path: Path, kv_type: str) -> None:
    path, greedy = tiny_model(tmp_path / "m.gguf"), {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True, "logprobs": 3}
    options: dict[str, Any] = {"backend": "mlx", "kv_type": kv_type, "context": 64}
    with edgellm.load(path, **options) as model, model.session() as session:
        first = session.generate(IDS, **greedy)
        session.save(tmp_path / "s")
        wanted = session.generate([*IDS, *first.token_ids], **greedy)
    with edgellm.load(path, **options) as model, model.resume(tmp_path / "s") as session:
        got = session.generate([*IDS, *first.token_ids], **greedy)
    assert got.logprobs == wanted.logprobs and got.stats.cached_tokens == wanted.stats.cached_tokens > len(IDS)


def test_values_within_keys_that_come_in_no_pieces_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.backends.mlx import backend

    monkeypatch.setattr(backend, "BLOCK", 48)
    with pytest.raises(BackendError, match=r"rotates 48 numbers.*choose f16 or f32"):
        edgellm.load(tiny_model(tmp_path / "m.gguf", "deepseek2"), backend="mlx", kv_type="q8_0")
