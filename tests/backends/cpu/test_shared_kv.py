"""Gemma 3n and Gemma 4: layers that attend to the keys of earlier ones, per-layer rows, and what else no other model has."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from test_ragged_steps import Conversation, ready, run
from test_recurrent import close, feed
from tiny_gemmas import GEMMAS
from tiny_models import tiny_model

from edgellm.arch import load_graph
from edgellm.errors import BadHParam
from edgellm.formats.gguf import open_gguf
from edgellm.memory.sequence import Sequence
from edgellm.reference import Reference
from edgellm.weights import WeightStore

N = 90  # tokens: past the windows of 8
IDS = np.random.default_rng(5).integers(3, 90, N).astype(np.int32)
SIZES = {"gemma3n": {"n_layers": 6}, "gemma4": {"n_layers": 6, "n_experts": 4}}


@pytest.mark.parametrize(("backend", "quant"), [("cpu", "F32"), ("cpu", "Q4_0"), ("mlx", "Q4_0")])
@pytest.mark.parametrize("name", GEMMAS)
@pytest.mark.usefixtures("mlx_products")
def test_pieces_cuts_forks_and_files(tmp_path: Path, name: str, backend: str, quant: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    with ready(tiny_model(tmp_path / "m.gguf", name, quant, **SIZES[name]), backend=backend) as executable:
        whole = feed(executable, executable.new_state(), Sequence(executable.layout), IDS, 20)
        for size in (1, 7) if backend == "cpu" else (7,):
            pieces = feed(executable, executable.new_state(), Sequence(executable.layout), IDS, size)
            assert close(backend, pieces, whole), size
        state, sequence = executable.new_state(), Sequence(executable.layout)
        feed(executable, state, sequence, IDS[:50], 20)
        file = io.BytesIO()
        state.save(file)
        other, fork = state.fork(), sequence.fork()
        restored, again = executable.load_state(io.BytesIO(file.getvalue())), sequence.fork()
        sequence.truncate(40)
        for one, at, first in ((state, sequence, 40), (other, fork, 50), (restored, again, 50)):
            assert close(backend, feed(executable, one, at, IDS[first:], 9), whole[first:])


@pytest.mark.parametrize("name", GEMMAS)
def test_conversations_together_are_each_as_alone(tmp_path: Path, name: str) -> None:
    """Past the context, too, where layers that see everything keep their first tokens."""
    steps = [[20, 31], [1, 1], [40, 7], [1, 0], [1, 60], *[[30, 30]] * 12, [1, 1]]
    with ready(tiny_model(tmp_path / "m.gguf", name, **SIZES[name])) as executable:
        together = [Conversation(executable, seed) for seed in (1, 2)]
        run(executable, together, steps)
        for index, one in enumerate(together):
            alone = Conversation(executable, index + 1)
            run(executable, [alone], [[step[index]] for step in steps if step[index]])
            assert np.array_equal(alone.logits, one.logits)


def logits(path: Path) -> np.ndarray:
    gguf = open_gguf(path)
    return Reference(load_graph(gguf)[1], WeightStore(gguf)).logits(IDS[:20])


@pytest.mark.parametrize("name", GEMMAS)
def test_keys_of_layers_that_need_none_are_left_out(name: str, tmp_path: Path) -> None:
    """Converters write what checkpoints have."""
    useless = {f"blk.{layer}.{part}.weight": np.ones((64, 64)) for layer in (4, 5) for part in ("attn_k", "attn_v", "attn_k_norm")}
    assert np.array_equal(
        logits(tiny_model(tmp_path / "a.gguf", name, n_layers=6)),
        logits(tiny_model(tmp_path / "b.gguf", name, n_layers=6, tensors=useless)),
    )


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"attention.shared_kv_layers": 6}, "layer 0 would attend to one before it"),
        ({"attention.shared_kv_layers": 7}, "not in 0..6"),
        ({"attention.head_count": [4, 4, 4, 4, 3, 4], "attention.head_count_kv": [2, 2, 2, 2, 3, 2]}, "3 heads of layer 4 cannot"),
        ({"rope.dimension_count_swa": 15}, "15 rotary dims cannot be paired"),
        ({"embedding_length_per_layer_input": 2**25}, "not in 0"),
    ],
)
def test_bad_keys_are_refused(keys: dict[str, object], why: str, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "gemma4", n_layers=6, metadata={f"{{arch}}.{key}": value for key, value in keys.items()})
    with open_gguf(path) as gguf, pytest.raises(BadHParam, match=why):
        load_graph(gguf)
