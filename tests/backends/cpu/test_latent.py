"""Latent attention: keys that hold their values, in every form of memory; both layouts of files; products head by head."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from isa_levels import ISA_LEVELS, in_turn
from test_cpu_backend import logits, ready, relative
from test_ragged_steps import ready as any_ready
from test_recurrent import feed
from tiny_latent import LATENT, TURNED
from tiny_models import tiny_model
from variants import VARIANTS

import edgellm
from edgellm.memory.layout import plan_memory
from edgellm.memory.sequence import Sequence
from edgellm.memory.sizes import kv_bytes

IDS = np.random.default_rng(6).integers(3, 90, 70).astype(np.int32)


@pytest.mark.parametrize(
    ("name", "kv_type"), in_turn(["deepseek2-lite", "deepseek2-older", "deepseek3", "glm4.7-flash"], ["f32", "f16", "q8_0"])
)
def test_every_form_of_keys(tmp_path: Path, name: str, kv_type: str) -> None:
    """The same bits in pieces of any size, alone and with several threads."""
    ceiling = {"f32": 1e-5, "f16": 5e-3, "q8_0": 0.03}[kv_type]
    path = VARIANTS[name].write(tmp_path / "m.gguf")
    with ready(path, chunk=32, kv_type=kv_type, context=128) as (executable, reference):
        whole = logits(executable, IDS.tolist())
        wanted = reference.logits(IDS)
        errors = np.abs(whole - wanted).max(axis=1)  # by rows: rounding changes a token's experts now and then
        assert np.median(errors) < ceiling * np.abs(wanted).max()
        for chunk in (7, 1):
            np.testing.assert_array_equal(logits(executable, IDS.tolist(), chunk), whole)
    with ready(path, chunk=32, kv_type=kv_type, context=128, threads=3) as (several, _):
        np.testing.assert_array_equal(logits(several, IDS.tolist(), 1), whole)


def test_values_take_no_memory_of_their_own(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf", "deepseek2"), kv_type="f16", context=256) as (executable, reference):
        layout = plan_memory(reference.graph.states, context=256, sinks=4, chunk=8)
        memory = layout.classes[0]
        assert kv_bytes(layout, "f16") == 2 * (32 + memory.ring) * (LATENT + TURNED) * 2
        state, sequence = executable.new_state(), Sequence(executable.layout)
        feed(executable, state, sequence, IDS[:8], 8)
        assert state.nbytes <= kv_bytes(layout, "f16")


@pytest.mark.parametrize("isa", ISA_LEVELS)
@pytest.mark.parametrize(("n_heads", "quant"), [(1, "Q8_0"), (5, "Q4_0"), (16, "F32"), (6, "F16")])
def test_heads_of_any_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isa: str, n_heads: int, quant: str) -> None:
    """Queries of one key go in groups of eight or fewer; more rows than a tile, and the same bits row by row."""
    monkeypatch.setenv("EDGELLM_ISA", isa)
    with ready(tiny_model(tmp_path / "m.gguf", "deepseek2", quant, n_heads=n_heads, n_layers=1), chunk=32, context=128) as (
        executable,
        reference,
    ):
        whole = logits(executable, IDS.tolist())
        assert relative(whole, reference.logits(IDS)) < (1e-5 if quant in ("F32", "F16") else 0.06)
        for chunk in (17, 3, 1):
            np.testing.assert_array_equal(logits(executable, IDS.tolist(), chunk), whole)


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
def test_forks_files_and_cuts(tmp_path: Path, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    within = 0.0 if backend == "cpu" else 1e-4
    with any_ready(tiny_model(tmp_path / "m.gguf", "deepseek2", "Q8_0"), backend=backend) as executable:
        whole = feed(executable, executable.new_state(), Sequence(executable.layout), IDS, 20)
        state, sequence = executable.new_state(), Sequence(executable.layout)
        feed(executable, state, sequence, IDS[:50], 20)
        other, fork, file = state.fork(), sequence.fork(), io.BytesIO()
        state.save(file)
        sequence.truncate(31)
        restored = executable.load_state(io.BytesIO(file.getvalue()))
        for each, places, first in ((state, sequence, 31), (other, fork.fork(), 50), (restored, fork, 50)):
            assert relative(feed(executable, each, places, IDS[first:], 3), whole[first:]) <= within


@pytest.mark.parametrize("name", ["deepseek2-lite", "deepseek2-older", "deepseek3"])
def test_mlx(tmp_path: Path, name: str) -> None:
    pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    path = VARIANTS[name].write(tmp_path / "m.gguf")
    with edgellm.load(path, backend="mlx", kv_type="f32") as model, edgellm.load(path, backend="cpu", kv_type="f32") as other:
        assert relative(model.logits(IDS.tolist()), other.logits(IDS.tolist())) < 2e-5


def test_queries_that_grow(tmp_path: Path) -> None:
    """Mistral Large 3: by the logarithm of their position, the part that is not rotated too."""
    plain = tiny_model(tmp_path / "p.gguf", "deepseek2", n_layers=1)
    grown = tiny_model(
        tmp_path / "g.gguf",
        "deepseek2",
        n_layers=1,
        metadata={"{arch}.attention.temperature_scale": 0.3, "{arch}.attention.temperature_length": 16},
    )
    with ready(plain) as (_, reference), ready(grown) as (executable, own):
        rows = own.logits(IDS)
        assert np.array_equal(rows[:16], reference.logits(IDS)[:16]) and relative(rows[16:], reference.logits(IDS)[16:]) > 1e-3
        assert relative(logits(executable, IDS[:60].tolist()), rows[:60]) < 1e-5
