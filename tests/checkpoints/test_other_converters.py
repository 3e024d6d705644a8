"""Files as other converters, or earlier ones, write them: the same logits as those of the files that ours would write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tiny_models import tiny_model

import edgellm

Tensors = dict[str, npt.NDArray[np.float32]]
IDS = [5, 17, 3, 44, 9, 61, 20, 7, 33]


def stored(path: Path) -> Tensors:
    return {
        tensor.name: np.array(tensor.data, np.float32).reshape(tensor.shape[::-1].astype(int))
        for tensor in gguf.GGUFReader(path).tensors
    }


def logits(path: Path, backend: str = "cpu") -> npt.NDArray[np.float32]:
    with edgellm.load(path, backend=backend, kv_type="f32") as model:
        return np.concatenate([model.logits(IDS), model.logits(IDS[:4])])


@pytest.mark.parametrize(
    ("arch", "keys"),
    [
        ("qwen35moe", {"{arch}.feed_forward_length": None}),
        ("qwen3next", {"{arch}.feed_forward_length": None}),
        ("qwen2moe", {"{arch}.expert_feed_forward_length": None, "{arch}.expert_shared_feed_forward_length": None}),
        ("qwen3moe", {"{arch}.expert_feed_forward_length": None}),
    ],
)
def test_keys_that_files_may_lack(tmp_path: Path, arch: str, keys: Mapping[str, Any]) -> None:
    found = [logits(tiny_model(tmp_path / "m.gguf", arch, metadata=metadata)) for metadata in ({}, keys)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("arch", "keys"),
    [
        ("gemma2", {"{arch}.attn_logit_softcapping": 50.0, "{arch}.final_logit_softcapping": 30.0}),
        ("gemma3n", {"{arch}.final_logit_softcapping": 30.0}),
        ("gemma4", {"{arch}.final_logit_softcapping": 30.0}),
    ],
)
def test_gemmas_have_their_caps(tmp_path: Path, arch: str, keys: Mapping[str, float]) -> None:
    found = [
        logits(tiny_model(tmp_path / "m.gguf", arch, metadata=dict.fromkeys(keys, value) if value != "own" else keys))
        for value in ("own", None, 0.0)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2]), "0 says that there is none"


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe", "qwen3next", "glm4"])
@pytest.mark.parametrize("listed", [3, 4])
def test_layers_that_draft_are_left_out(tmp_path: Path, arch: str, listed: int) -> None:
    """A list of recurrent layers may end before them."""
    plain = tiny_model(tmp_path / "plain.gguf", arch, n_layers=3)
    tensors = stored(plain)
    more = {"blk.3" + name[5:]: values for name, values in tensors.items() if name.startswith("blk.0.")}
    more |= {
        f"blk.3.nextn.{name}.weight": np.ones(shape, np.float32)
        for name, shape in (("eh_proj", (64, 128)), ("enorm", 64), ("hnorm", 64), ("shared_head_norm", 64))
    }
    keys: dict[str, Any] = {"{arch}.block_count": 4, "{arch}.nextn_predict_layers": 1}
    if arch != "glm4":
        keys["{arch}.attention.recurrent_layers"] = [f"blk.{layer}.ssm_a" in tensors for layer in range(3)] + [False] * (listed - 3)
    drafting = tiny_model(tmp_path / "drafting.gguf", arch, n_layers=3, metadata=keys, tensors=more)
    np.testing.assert_array_equal(logits(plain), logits(drafting))


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
@pytest.mark.parametrize("arch", ["qwen2", "qwen3moe", "bitnet"])
def test_products_are_scaled(tmp_path: Path, arch: str, backend: str) -> None:
    """As in files of NVFP4: a number for each matrix, or for each expert's."""
    path, rng = tiny_model(tmp_path / "m.gguf", arch), np.random.default_rng(2)
    scaled: Tensors = {}
    for name, values in stored(path).items():
        if name.startswith("blk.") and name.endswith(("_q.weight", "_output.weight", "_up.weight", "_down.weight", "_exps.weight")):
            factors = np.exp2(rng.integers(-2, 2, len(values) if values.ndim == 3 else 1)).astype(np.float32)
            scaled |= {
                name: values / factors.reshape(-1, *[1] * (values.ndim - 1)),
                name[:-6] + "scale": factors,
                name[:-6] + "input_scale": factors + 1,
            }
    assert len(scaled) >= 12
    found = logits(path, backend), logits(tiny_model(tmp_path / "scaled.gguf", arch, tensors=scaled), backend)
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5 * np.abs(found[0]).max())


def test_qwen3_next_with_one_projection(tmp_path: Path) -> None:
    """Its first files have queries, keys, values and gates in one matrix, by heads of keys."""
    path = tiny_model(tmp_path / "m.gguf", "qwen3next", n_layers=3)
    heads, dim = (int(gguf.GGUFReader(path).get_field(f"qwen3next.ssm.{key}").contents()) for key in ("group_count", "state_size"))
    joined: dict[str, npt.NDArray[np.float32] | None] = {}
    for name, values in stored(path).items():
        if name.endswith("attn_qkv.weight"):
            block = name[: -len("attn_qkv.weight")]
            gate = stored(path)[f"{block}attn_gate.weight"]
            parts = [
                part.reshape(heads, -1, values.shape[1])
                for part in (values[: heads * dim], values[heads * dim : 2 * heads * dim], values[2 * heads * dim :], gate)
            ]
            joined |= {
                name: None,
                f"{block}attn_gate.weight": None,
                f"{block}ssm_in.weight": np.concatenate(parts, axis=1).reshape(-1, values.shape[1]),
            }
    assert joined and heads > 1
    other = tiny_model(tmp_path / "joined.gguf", "qwen3next", n_layers=3, tensors=joined)
    np.testing.assert_array_equal(logits(path), logits(other))


def test_glm4_with_sections_pairs_halves(tmp_path: Path) -> None:
    """GLM-4.1V and 4.6V: rows of queries and keys stand in another order."""
    path = tiny_model(tmp_path / "m.gguf", "glm4")
    n_rot = int(gguf.GGUFReader(path).get_field("glm4.rope.dimension_count").contents())
    order = np.r_[0:n_rot:2, 1:n_rot:2, n_rot:16]
    assert 2 < n_rot < 16
    moved: Tensors = {
        name: values.reshape(-1, 16, *values.shape[1:])[:, order].reshape(values.shape)
        for name, values in stored(path).items()
        if ".attn_q." in name or ".attn_k." in name
    }
    np.testing.assert_allclose(
        logits(path),
        logits(
            tiny_model(tmp_path / "sections.gguf", "glm4", tensors=moved, metadata={"{arch}.rope.dimension_sections": [2, 1, 1, 0]})
        ),
        rtol=0,
        atol=1e-5,
    )
