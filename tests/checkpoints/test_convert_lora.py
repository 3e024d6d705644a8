"""PEFT adapters of single experts and of matrices in pieces: the logits of merged weights, beside NVFP4 too; what is refused."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hf_checkpoints import tensors_of, write_checkpoint, write_safetensors
from test_convert_float4 import checkpoints, write
from test_lora import close, logits

from edgellm.errors import BadHParam, BadTensorInfo, EdgeError, OptionError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.formats.safetensors import open_safetensors
from edgellm.tools.convert import convert
from edgellm.tools.hf_lora import convert_lora
from edgellm.weights import WeightStore

Array = npt.NDArray[Any]
BLOCKS = {
    "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
    "lfm2_moe": ("feed_forward", "w1", "w3", "w2"),
}
OTHER_ALPHA, OTHER_RANK = 3, 2


def modules_of(kind: str) -> dict[str, int]:
    """Ranks of the adapted modules: some experts of the second layer, another gate than up and down, and the queries."""
    block, gate, up, down = BLOCKS[kind]
    ranks = {gate: {0: 4, 2: OTHER_RANK}, up: {1: OTHER_RANK}, down: {0: OTHER_RANK, 1: 4, 3: 4}}
    experts = {f"model.layers.1.{block}.experts.{expert}.{part}": rank for part in ranks for expert, rank in ranks[part].items()}
    return experts | {"model.layers.1.self_attn.q_proj": 4}


def write_adapter(
    folder: Path,
    modules: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    more: Mapping[str, Array | None] | None = None,
    **settings: Any,
) -> dict[str, Array]:
    """An adapter for modules of these ranks; returns what it adds to weights, by the rules of PEFT. `more`: tensors that replace
    or join the usual ones, None drops one.
    """
    rng, tensors, added = np.random.default_rng(1), dict[str, Array | None](), dict[str, Array]()
    for module, rank in modules.items():
        rows, columns = shapes[f"{module}.weight"]
        a, b = (rng.normal(0, 0.3, shape).astype(np.float32) for shape in ((rank, columns), (rows, rank)))
        tensors |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
        alpha = OTHER_ALPHA if ".experts.1." in module else 8
        added[f"{module}.weight"] = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank) * b @ a
    folder.mkdir(exist_ok=True)
    tensors |= more or {}
    write_safetensors(folder / "adapter_model.safetensors", {name: array for name, array in tensors.items() if array is not None})
    usual = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "bias": "none",
        "rank_pattern": {r"experts\.\d\.\w+": OTHER_RANK},
        "alpha_pattern": {r"experts\.1\.\w+": OTHER_ALPHA, r"experts\.\d\.\w+": 8},
    }
    (folder / "adapter_config.json").write_text(json.dumps(usual | settings))
    return added


@pytest.mark.parametrize(
    "settings", [{}, {"use_rslora": True}, {"lora_alpha": 0, "alpha_pattern": {r"experts\.1\.\w+": OTHER_ALPHA, r".*": 8}}]
)
@pytest.mark.parametrize("kind", list(BLOCKS))
def test_an_adapter_of_some_experts_is_the_merged_model(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    """Of two ranks, with an alpha of its own for an expert; experts and layers without any are unchanged."""
    source = tensors_of(kind)
    base = write_checkpoint(tmp_path / "base", kind)
    added = write_adapter(tmp_path / "adapter", modules_of(kind), {name: array.shape for name, array in source.items()}, **settings)
    merged = write_checkpoint(tmp_path / "merged", kind, tensors={name: source[name] + change for name, change in added.items()})
    done = convert_lora(tmp_path / "adapter", tmp_path / "adapter.gguf", base=base)
    with open_gguf(done.path) as gguf:
        assert done.n_tensors == len(gguf.tensors) == 8
        assert gguf.tensors["blk.1.ffn_up_exps.weight.lora_a"].shape == (4, 2, 32)
        assert gguf.tensors["blk.1.ffn_down_exps.weight.lora_b"].shape == (4, 32, 4)
        store = WeightStore(gguf)
        for part, experts in (("gate", (0, 2)), ("up", (1,)), ("down", (0, 1, 3))):
            b = store[f"blk.1.ffn_{part}_exps.weight.lora_b"].array()
            assert [expert for expert in range(4) if np.any(b[expert])] == list(experts)
        store.close()
    paths = [Path(convert(one, tmp_path / f"{one.name}.gguf", type_name="F32").path) for one in (base, merged)]
    for backend in ("reference", "cpu"):
        plain, wanted = (logits(path, backend) for path in paths)
        assert close(logits(paths[0], backend, [(Path(done.path), 1.0)]), wanted) and not close(plain, wanted)


@pytest.mark.parametrize(
    "kind",
    [
        "gpt_neox",
        "bloom",
        "falcon-40b",
        "internlm2",
        "granitemoeshared",
        "qwen3_5_text",
        "qwen3_next",
        "bamba",
        "granitemoehybrid-dense",
    ],
)
def test_matrices_that_gguf_orders_or_divides_otherwise(tmp_path: Path, kind: str) -> None:
    """Rows by heads, gate and up in one, a rotation of half a head: an adapter of every matrix."""
    source = tensors_of(kind)
    modules = {
        name.removesuffix(".weight"): 3
        for name, array in source.items()
        if array.ndim == 2 and not re.search(r"embed|norm|shared_expert_gate", name)
    }
    base = write_checkpoint(tmp_path / "base", kind)
    added = write_adapter(tmp_path / "adapter", modules, {name: array.shape for name, array in source.items()})
    merged = write_checkpoint(tmp_path / "merged", kind, tensors={name: source[name] + change for name, change in added.items()})
    adapter = Path(convert_lora(tmp_path / "adapter", tmp_path / "adapter.gguf", base=base).path)
    before, after = (Path(convert(one, tmp_path / f"{one.name}.gguf", type_name="F32").path) for one in (base, merged))
    wanted = logits(after, "reference")
    assert close(logits(before, "reference", [(adapter, 1.0)]), wanted) and not close(logits(before, "reference"), wanted)


@pytest.mark.parametrize("form", ["modelopt", "compressed-tensors"])
@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
def test_an_adapter_beside_nvfp4_adds_what_it_adds_beside_floats(tmp_path: Path, kind: str, form: str) -> None:
    """The numbers of whole matrices, in tensors `.scale`, are none of the adapter's."""
    packed, plain = checkpoints(tmp_path, kind, form, "NVFP4")
    with open_safetensors(plain) as file:
        source = {name: np.array(file.array(name)) for name in file.tensors}
    added = write_adapter(tmp_path / "adapter", modules_of(kind), {name: array.shape for name, array in source.items()})
    merged = write(tmp_path / "merged", kind, {name: array + added.get(name, np.float32(0)) for name, array in source.items()})
    adapter = Path(convert_lora(tmp_path / "adapter", tmp_path / "adapter.gguf", base=packed).path)
    base, whole = (Path(convert(one, tmp_path / f"{one.name}.gguf").path) for one in (packed, merged))
    with open_gguf(base) as gguf:
        assert {"blk.1.attn_q.scale", "blk.1.ffn_gate_exps.scale", "blk.1.ffn_down_exps.scale"} <= gguf.tensors.keys()
    wanted = logits(whole, "reference")
    got = logits(base, "reference", [(adapter, 1.0)])  # with factors of 11 bits
    assert close(got, wanted, 1e-3) and not close(logits(base, "reference"), wanted, 0.05)


@pytest.mark.parametrize(
    ("more", "config", "kind", "message"),
    [
        ({"mlp.experts.2.gate_proj.lora_B": None}, {}, BadTensorInfo, r"experts\.2\.gate_proj\.lora_A.*do not fit each other"),
        ({"mlp.experts.2.gate_proj.lora_A": None}, {}, BadTensorInfo, r"experts\.2\.gate_proj\.lora_B.*do not fit each other"),
        ({"mlp.experts.2.gate_proj.lora_A": np.ones((4, 32))}, {}, BadTensorInfo, "do not fit each other"),
        ({"mlp.experts.2.gate_proj.lora_A": np.ones((2, 31))}, {}, BadTensorInfo, r"ffn_gate_exps\.weight.*several shapes"),
        (
            {"mlp.experts.2.gate_proj.lora_A.second": np.ones((2, 32))},
            {},
            BadTensorInfo,
            r"second tensor for blk\.1\.ffn_gate_exps",
        ),
        ({}, {"num_experts": 3}, BadTensorInfo, r"experts\.3\.down_proj.*expert 3.*has 3 from 0 on.*--base"),
        ({}, {"num_experts": None}, BadHParam, r"config\.json.*there are None experts"),
        ({}, {"num_experts": "4"}, BadHParam, r"config\.json.*there are 4 experts"),
        ({"mlp.experts.base_layer.lora_A": np.ones((8, 32))}, {}, Unsupported, "base_layer.*merge the adapter"),
    ],
)
def test_experts_that_do_not_fit_are_refused(
    tmp_path: Path, more: dict[str, Array | None], config: dict[str, Any], kind: type[EdgeError], message: str
) -> None:
    base = write_checkpoint(tmp_path / "base", "qwen3_moe", **config)
    shapes = {name: array.shape for name, array in tensors_of("qwen3_moe").items()}
    write_adapter(
        tmp_path / "adapter",
        modules_of("qwen3_moe"),
        shapes,
        more={
            f"base_model.model.model.layers.1.{name}.weight": None if array is None else array.astype(np.float32)
            for name, array in more.items()
        },
    )
    with pytest.raises(kind, match=message):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=base)
    assert not (tmp_path / "m.gguf").exists()


def test_experts_that_are_one_parameter_are_refused(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", "granitemoe")
    write_adapter(
        tmp_path / "adapter",
        {"model.layers.0.block_sparse_moe.input_linear": 4},
        {"model.layers.0.block_sparse_moe.input_linear.weight": (4, 4)},
    )
    with pytest.raises(Unsupported, match=r"input_linear.*merge the adapter"):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=base)


@pytest.mark.parametrize(
    ("settings", "value", "type_name", "message"),
    [
        ({"lora_alpha": float("nan")}, 1, None, "lora_alpha nan"),
        ({"lora_alpha": 10**400}, 1, None, "lora_alpha"),
        ({"alora_invocation_tokens": [1, 2]}, 1, None, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 2]]}, 1, None, "layer_replication"),
        ({}, np.nan, None, "has NaN, Inf or values beyond the range of F32"),
        ({}, 1e5, "F16", "beyond the range of F16"),
    ],
)
def test_adapters_that_would_be_refused_later_are_refused(
    tmp_path: Path, settings: dict[str, Any], value: float, type_name: str | None, message: str
) -> None:
    shapes = {name: array.shape for name, array in tensors_of("mixtral").items()}
    name = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
    write_adapter(tmp_path / "adapter", modules_of("mixtral"), shapes, **settings)
    if value != 1:
        rank, columns = 4, shapes["model.layers.1.self_attn.q_proj.weight"][1]
        more: dict[str, Array | None] = {name: np.full((rank, columns), value, np.float32)}
        write_adapter(tmp_path / "adapter", modules_of("mixtral"), shapes, more=more)
    with pytest.raises(EdgeError, match=message):
        convert_lora(
            tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "mixtral"), type_name=type_name
        )
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("patterns", [{"q_proj(": 2}, {"q_proj": "x"}, ["q_proj"]])
def test_alphas_that_are_none_are_refused(tmp_path: Path, patterns: Any) -> None:
    shapes = {name: array.shape for name, array in tensors_of("mixtral").items()}
    write_adapter(tmp_path / "adapter", modules_of("mixtral"), shapes, alpha_pattern=patterns)
    with pytest.raises(BadHParam, match=r"alpha_pattern.*not a table of alphas"):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "mixtral"))


def adapter_of(folder: Path, kind: str, module: str, *, embeds: bool = False, **settings: Any) -> Array:
    """An adapter of one module of rank 4, alpha 8; returns what it adds to its weight."""
    rng, (rows, columns) = np.random.default_rng(3), tensors_of(kind)[f"{module}.weight"].shape
    rows, columns = (columns, rows) if embeds else (rows, columns)
    a, b = (rng.normal(0, 0.3, shape).astype(np.float32) for shape in ((4, columns), (rows, 4)))
    names = ("embedding_A", "embedding_B") if embeds else ("A.weight", "B.weight")
    folder.mkdir(exist_ok=True)
    path = folder / "adapter_model.safetensors"
    write_safetensors(path, {f"base_model.model.{module}.lora_{name}": half for name, half in zip(names, (a, b), strict=True)})
    usual = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "init_lora_weights": True}
    (folder / "adapter_config.json").write_text(json.dumps(usual | settings))
    return np.asarray(2 * (b @ a).T if embeds else 2 * b @ a, np.float32)


@pytest.mark.parametrize("begun", ["pissa", "pissa_niter_16", "OLoRA", "corda", "loftq", "lora_ga"])
def test_adapters_that_change_the_base_are_refused_by_name(tmp_path: Path, begun: str) -> None:
    adapter_of(tmp_path / "adapter", "llama", "model.layers.0.self_attn.q_proj", init_lora_weights=begun)
    with pytest.raises(Unsupported, match=f"init_lora_weights: is '{begun}'.*merge the adapter"):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "llama"))
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("begun", [True, False, None, "gaussian", "eva", "orthogonal"])
def test_adapters_that_leave_the_base_are_taken(tmp_path: Path, begun: Any) -> None:
    adapter_of(tmp_path / "adapter", "llama", "model.layers.0.self_attn.q_proj", init_lora_weights=begun)
    convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "llama"))


@pytest.mark.parametrize("module", ["model.embed_tokens", "lm_head"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_tables_of_tokens_and_outputs_of_their_own_are_adapted(tmp_path: Path, kind: str, module: str) -> None:
    added = adapter_of(tmp_path / "adapter", kind, module, embeds="embed" in module)
    base = write_checkpoint(tmp_path / "base", kind, tie_word_embeddings=False)
    change = {f"{module}.weight": tensors_of(kind)[f"{module}.weight"] + added}
    merged = write_checkpoint(tmp_path / "merged", kind, tensors=change, tie_word_embeddings=False)
    adapter = Path(convert_lora(tmp_path / "adapter", tmp_path / "adapter.gguf", base=base).path)
    before, after = (Path(convert(one, tmp_path / f"{one.name}.gguf", type_name="F32").path) for one in (base, merged))
    for backend in ("reference", "cpu"):
        wanted = logits(after, backend)
        assert close(logits(before, backend, [(adapter, 1.0)]), wanted) and not close(logits(before, backend), wanted)


def tied_base(folder: Path, *, weights: bool, **config: Any) -> Path:
    write_checkpoint(folder, "llama", **config)
    tensors = tensors_of("llama")
    write_safetensors(folder / "model.safetensors", {name: array for name, array in tensors.items() if name != "lm_head.weight"})
    if not weights:
        (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize(("module", "other"), [("model.embed_tokens", "the output"), ("lm_head", "the embedding")])
@pytest.mark.parametrize(
    ("weights", "config"),
    [
        (True, {"tie_word_embeddings": True}),
        (True, {"tie_word_embeddings": None}),
        (False, {"tie_word_embeddings": True}),
        (False, {}),
    ],
)
def test_tied_tables_are_refused_when_converting(
    tmp_path: Path, weights: bool, config: dict[str, Any], module: str, other: str
) -> None:
    base = tied_base(tmp_path / "base", weights=weights, **({"tie_word_embeddings": None} | config))
    adapter_of(tmp_path / "adapter", "llama", module, embeds="embed" in module)
    with pytest.raises(Unsupported, match=f"shares its matrix with {other}.*merge the adapter"):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=base)
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    ("name", "shape", "error", "message"),
    [
        ("model.embed_tokens.lora_{}.weight", ((4, 32), (64, 4)), Unsupported, "embed_tokens.*merge the adapter"),
        ("lm_head.lora_embedding_{}", ((4, 64), (32, 4)), Unsupported, "lm_head.*merge the adapter"),
        ("lm_head.modules_to_save.default.{}.weight", ((64, 32), (64, 32)), Unsupported, "modules_to_save.*merge the adapter"),
        ("model.layers.9.self_attn.q_proj.lora_{}.weight", ((4, 32), (32, 4)), Unsupported, r"blk\.9\.attn_q.*merge the adapter"),
        ("model.layers.0.mlp.up_proj.lora_{}.weight", ((4, 32), (40, 4)), BadTensorInfo, r"\(40, 4\), for another model.*--base"),
        ("model.layers.0.mlp.up_proj.lora_{}.weight", ((5000, 32), (48, 5000)), Unsupported, "rank above 4096"),
    ],
)
def test_what_loading_would_refuse_is_refused(
    tmp_path: Path, name: str, shape: tuple[tuple[int, ...], ...], error: type[EdgeError], message: str
) -> None:
    base = write_checkpoint(tmp_path / "base", "llama", tie_word_embeddings=False)
    adapter_of(tmp_path / "adapter", "llama", "lm_head")
    halves = {f"base_model.model.{name.format(letter)}": np.ones(one, np.float32) for letter, one in zip("AB", shape, strict=True)}
    write_safetensors(tmp_path / "adapter" / "adapter_model.safetensors", halves)
    with pytest.raises(error, match=message):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=base)


@pytest.mark.parametrize("pattern", [r"(?:(?:\w|\.)+)+!", r"(a|a)*b|(.*)*!", r"(\w+\.?)+\d!", r"(x+x+)+y", "(((.*)*)*)*!"])
def test_alphas_are_matched_in_bounded_time(tmp_path: Path, pattern: str) -> None:
    adapter_of(tmp_path / "adapter", "llama", "model.layers.0.self_attn.q_proj", alpha_pattern={pattern: 4, "q_proj": 5})
    start = time.process_time()
    convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "llama"))
    assert time.process_time() - start < 5


@pytest.mark.parametrize("pattern", [r"(?!a)q_proj", r"(a)\1", "(" * 99 + ")" * 99, "(a{1000}){1000}", "a" * 5000 + "+"])
def test_expressions_that_are_not_matched_are_refused(tmp_path: Path, pattern: str) -> None:
    adapter_of(tmp_path / "adapter", "llama", "model.layers.0.self_attn.q_proj", alpha_pattern={pattern: 4})
    with pytest.raises(BadHParam, match=r"alpha_pattern.*not a table of alphas"):
        convert_lora(tmp_path / "adapter", tmp_path / "m.gguf", base=write_checkpoint(tmp_path / "base", "llama"))


def test_an_adapter_without_lora_says_what_to_do(tmp_path: Path) -> None:
    adapter_of(tmp_path / "adapter", "llama", "lm_head")
    with pytest.raises(OptionError, match="is a PEFT adapter; give --lora"):
        convert(tmp_path / "adapter", tmp_path / "m.gguf")
