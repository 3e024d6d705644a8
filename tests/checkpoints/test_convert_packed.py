"""GPTQ, AWQ and LoRA: files that hold exactly what the checkpoint means, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hf_checkpoints import config_of, tensors_of, write_adapter, write_checkpoint, write_safetensors

from edgellm.cli.app import run
from edgellm.errors import EdgeError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.tools.convert import convert
from edgellm.tools.hf_lora import convert_lora
from edgellm.weights import WeightStore

Array = npt.NDArray[Any]
WIDE = {"intermediate_size": 64}


def stream(numbers: list[int], bits: int) -> list[int]:
    """Numbers one after the other as 32-bit words, lowest bits first."""
    whole = sum(number << (bits * i) for i, number in enumerate(numbers))
    return [whole >> (32 * i) & 0xFFFFFFFF for i in range(len(numbers) * bits // 32)]


def gptq(q: Array, zeros: Array, bits: int, *, first_form: bool = True) -> dict[str, Array]:
    """AutoGPTQ's words: q (rows, columns) down the inputs, zeros (rows, groups) along the outputs, less 1 in the first form."""
    stored = (zeros - first_form) & ((1 << bits) - 1)
    return {
        "qweight": np.array([stream(row.tolist(), bits) for row in q], np.uint32).T.view(np.int32),
        "qzeros": np.array([stream(group.tolist(), bits) for group in stored.T], np.uint32).view(np.int32),
    }


def awq(q: Array, zeros: Array) -> dict[str, Array]:
    """AutoAWQ's words: along the outputs, eight at a time in the order 0, 2, 4, 6, 1, 3, 5, 7."""

    def words(numbers: Array) -> Array:
        packed = np.zeros((len(numbers), numbers.shape[1] // 8), np.uint32)
        for column in range(packed.shape[1]):
            for nibble, place in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                packed[:, column] |= numbers[:, 8 * column + place].astype(np.uint32) << np.uint32(4 * nibble)
        return packed.view(np.int32)

    return {"qweight": words(q.T), "qzeros": words(zeros.T)}


def packed_and_plain(
    folder: Path,
    kind: str,
    method: str,
    bits: int,
    *,
    symmetric: bool,
    group: int = 32,
    shuffled: bool = False,
    powers: bool = False,
    **settings: Any,
) -> tuple[Path, Path]:
    """A packed checkpoint, and a plain one with the values that it means. `powers`: scales are powers of two."""
    rng, packed, plain = np.random.default_rng(0), dict[str, Array](), dict[str, Array]()
    source = tensors_of(kind)
    for name, array in source.items():
        rows, columns = (64 if n == 48 else n for n in (array.shape if array.ndim > 1 else (1, 1)))
        if ".layers." not in name or array.ndim == 1 or rows * bits % 32:
            packed[name] = plain[name] = array
            continue
        groups = columns // group
        q, scales = rng.integers(0, 1 << bits, (rows, columns)), rng.uniform(0.01, 0.02, (rows, groups)).astype(np.float16)
        scales = np.full_like(scales, 2**-6) if powers else scales
        zeros = np.full((rows, groups), 1 << (bits - 1)) if symmetric else rng.integers(1, 1 << bits, (rows, groups))
        order = np.arange(columns) // group
        order = rng.permutation(order) if shuffled else order
        base = name.removesuffix(".weight")
        parts = awq(q, zeros) if method == "awq" else gptq(q, zeros, bits)
        parts |= {"scales": np.ascontiguousarray(scales.T)} | ({"g_idx": order.astype(np.int32)} if method == "gptq" else {})
        packed |= {f"{base}.{part}": value for part, value in parts.items()}
        plain[name] = scales.astype(np.float32)[:, order] * (q - zeros[:, order]).astype(np.float32)
    one = {"quant_method": method, "bits": bits, "group_size": group} | settings
    found = []
    for place, tensors, more in (("packed", packed, {"quantization_config": one}), ("plain", plain, {})):
        (folder / place).mkdir()
        (folder / place / "config.json").write_text(json.dumps(config_of(kind) | WIDE | more))
        write_safetensors(folder / place / "model.safetensors", tensors)
        found.append(folder / place)
    return found[0], found[1]


def arrays(path: str | Path) -> dict[str, Array]:
    weights = WeightStore(open_gguf(path))
    found = {name: weights[name].array().copy() for name in weights.names()}
    weights.close()
    return found


@pytest.mark.parametrize(
    ("kind", "method", "bits", "options", "expected"),
    [
        ("llama", "gptq", 4, {"symmetric": True}, "Q4_0"),
        ("qwen2", "gptq", 4, {"symmetric": False}, "Q8_0"),
        ("qwen2", "gptq", 4, {"symmetric": False, "powers": True}, "Q4_1"),
        ("llama", "gptq", 8, {"symmetric": True}, "Q8_0"),
        ("llama", "gptq", 3, {"symmetric": False}, "Q8_0"),
        ("qwen2", "gptq", 2, {"symmetric": True}, "Q4_1"),
        ("llama", "awq", 4, {"symmetric": False}, "Q8_0"),
        ("qwen2", "awq", 4, {"symmetric": True}, "Q4_0"),
        ("qwen3", "awq", 4, {"symmetric": False, "powers": True}, "Q4_1"),
        ("llama", "gptq", 4, {"symmetric": True, "shuffled": True, "desc_act": True}, "F16"),
        ("qwen2", "gptq", 4, {"symmetric": True, "group": 16}, "F16"),
        ("mixtral", "gptq", 4, {"symmetric": True}, "Q4_0"),
        ("mixtral", "awq", 4, {"symmetric": False}, "Q8_0"),
        ("mixtral", "awq", 4, {"symmetric": False, "powers": True}, "Q4_1"),
    ],
)
def test_every_value_is_the_checkpoints(
    tmp_path: Path, kind: str, method: str, bits: int, options: dict[str, Any], expected: str
) -> None:
    """Names, order of rows and values are those of the plain checkpoint; bit for bit where the type is exact."""
    packed, plain = packed_and_plain(tmp_path, kind, method, bits, **options)
    done = convert(packed, tmp_path / "packed.gguf")
    wanted = arrays(convert(plain, tmp_path / "plain.gguf", type_name="F32").path)
    found = arrays(done.path)
    with open_gguf(done.path) as gguf:
        experts = {info.type.name for name, info in gguf.tensors.items() if "_exps" in name}
        types = {info.type.name for name, info in gguf.tensors.items() if len(info.shape) > 1 and name.startswith("blk.")}
    loose = 2**-11 if expected == "F16" else 0.0
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (np.abs(found[name] - array) <= loose * np.abs(array)).all(), name
    plainer = {"F32"} if bits == 3 or kind == "mixtral" else set()  # matrices whose rows are not whole words, and routers
    smaller = {"Q4_0": set(), "F16": {"Q4_0"}}.get(expected, {"Q4_1", "Q4_0"})  # by chance some allow it
    assert expected in types and types <= {expected} | smaller | plainer
    assert experts <= {expected} and any(expected in note for note in done.notes)
    assert convert(packed, tmp_path / "f16.gguf", type_name="F16").type == "F16"


def test_zeros_of_the_second_form(tmp_path: Path) -> None:
    packed, _ = packed_and_plain(tmp_path, "qwen2", "gptq", 4, symmetric=True)
    first = arrays(convert(packed, tmp_path / "a.gguf", type_name="F32").path)["blk.0.attn_q.weight"]
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (packed / "config.json").write_text(json.dumps(config))
    second = arrays(convert(packed, tmp_path / "b.gguf", type_name="F32").path)["blk.0.attn_q.weight"]
    steps = (second - first) / np.float32(0.015)
    assert (steps > 0).all() and steps.max() < 2  # a zero point less by one: every value more by its scale


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"quant_method": "hqq"}, "hqq"), ({"bits": 5}, "5 bits"), ({"group_size": 7}, "groups"), ({"version": "gemv"}, "GEMM")],
)
def test_other_packings_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    packed, _ = packed_and_plain(tmp_path, "qwen2", "awq", 4, symmetric=True)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] |= settings
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(EdgeError, match=message):
        convert(packed, tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("settings", "scaling"),
    [({}, 2.0), ({"use_rslora": True}, 4.0), ({"alpha_pattern": {"k_proj": 2, "down_proj": 2, "q_proj": 2}}, 0.5)],
)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_an_adapter_adds_what_peft_adds(tmp_path: Path, kind: str, settings: dict[str, Any], scaling: float) -> None:
    """Base file plus alpha / rank * B A by the file's own names is the converted merged checkpoint."""
    base = write_checkpoint(tmp_path / "base", kind)
    added = write_adapter(tmp_path / "adapter", kind, **settings)
    merged = write_checkpoint(
        tmp_path / "merged", kind, tensors={name: tensors_of(kind)[name] + scaling * change for name, change in added.items()}
    )
    done = convert_lora(tmp_path / "adapter", tmp_path / "adapter.gguf", base=base)
    before, after = (arrays(convert(one, tmp_path / "m.gguf").path) for one in (base, merged))
    with open_gguf(done.path) as gguf:
        alpha = gguf.metadata["adapter.lora.alpha"]
        assert gguf.metadata["general.type"] == "adapter" and gguf.metadata["adapter.type"] == "lora"
    halves = arrays(done.path)
    assert len(halves) == 6 == done.n_tensors
    for name, array in before.items():
        if f"{name}.lora_a" in halves:
            array = array + alpha / 4 * halves[f"{name}.lora_b"] @ halves[f"{name}.lora_a"]
        assert np.abs(array - after[name]).max() < 1e-4, name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"r": None}, "lora_alpha"),
    ],
)
def test_adapters_that_gguf_cannot_hold_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    write_adapter(tmp_path / "adapter", "llama", **settings)
    with pytest.raises(EdgeError, match=message):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "llama"))


def test_tensors_without_a_place_are_refused(tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", "llama")
    other = {"base_model.model.x.lora_embedding_A": np.ones((2, 2), np.float32)}
    write_safetensors(tmp_path / "adapter" / "adapter_model.safetensors", other)
    with pytest.raises(Unsupported, match="lora_embedding_A"):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "llama"))


def test_the_command_finds_the_base_that_the_adapter_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_checkpoint(tmp_path / "base", "llama")
    write_adapter(tmp_path / "adapter", "llama", base_model_name_or_path=str(base))
    arguments = ["convert", str(tmp_path / "adapter"), str(tmp_path / "m.gguf")]
    assert run([*arguments, "--lora", "--type", "F16"]) == 0
    assert "llama, F16, 6 tensors" in capsys.readouterr().out
    assert run([*arguments, "--base", str(base)]) == 2
    write_adapter(tmp_path / "adapter", "llama", base_model_name_or_path="nobody/nothing")
    assert run([*arguments, "--lora"]) == 2
    assert "--base" in capsys.readouterr().err
