"""Checkpoints whose tensors GGUF has in another form: layers that draft, models within models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_checkpoints import DATA, IDS, LAYOUTS, config_of, tensors_of, write_checkpoint, write_safetensors

import edgellm
from edgellm.arch import load_graph
from edgellm.checkpoints.config import find_family, metadata_of
from edgellm.checkpoints.folder import open_mlx_folder
from edgellm.errors import EdgeError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.tools.convert import convert

GOLD: dict[str, list[list[float]]] = json.loads((DATA / "hf_gold.json").read_text(encoding="utf-8"))
BLOCK = "model.layers.0"
WINDOW = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 28}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("kind", "setting", "named", "op"),
    [
        ("gpt2", "activation_function", "gelu", "gelu_erf"),
        ("gpt_bigcode", "activation_function", "gelu", "gelu_erf"),
        ("gpt_bigcode", "activation_function", "gelu_pytorch_tanh", "gelu"),
        ("gpt_neox", "hidden_act", "gelu", "gelu_erf"),
        ("gpt_neox", "hidden_act", "gelu_fast", "gelu"),
    ],
)
def test_the_form_of_gelu_is_that_of_config_json(tmp_path: Path, kind: str, setting: str, named: str, op: str) -> None:
    with open_mlx_folder(write_checkpoint(tmp_path / "hf", kind, **{setting: named})) as folder:
        graph = load_graph(folder)[1]
    assert {node.op for node in graph.nodes if node.op.startswith("gelu")} == {op}


def test_layers_that_draft_are_left_out_and_unknown_ones_refused(tmp_path: Path) -> None:
    more = {"model.layers.2.eh_proj.weight": np.ones((32, 64), np.float32)}
    done = convert(write_checkpoint(tmp_path / "hf", "glm4_moe", tensors=more), tmp_path / "model.gguf", type_name="F32")
    assert any("draft" in note for note in done.notes)
    with pytest.raises(EdgeError, match=r"layers\.2\.eh_proj"):
        convert(write_checkpoint(tmp_path / "hf", "glm4_moe", tensors=more, num_nextn_predict_layers=0), tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("outer", "wrapper", "others"),
    [
        ("smolvlm", "model.text_model.", ("model.connector.proj.weight", "model.vision_model.post_layernorm.weight")),
        ("llava_next", "language_model.model.", ("image_newline", "vision_tower.x.weight")),
        ("llava_next", "model.language_model.", ("model.image_newline", "model.vision_tower.x.weight")),
        ("mimo", "_orig_mod.model.", ("model.mtp.layers.0.eh_proj.weight",)),
    ],
)
def test_wrappers_of_llama(tmp_path: Path, outer: str, wrapper: str, others: tuple[str, ...]) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": outer, "text_config": config_of("llama")}))
    tensors = {name.replace("model.", wrapper, 1): array for name, array in tensors_of("llama").items()}
    write_safetensors(folder / "model.safetensors", tensors | {name: np.ones(4, np.float32) for name in others})
    done = convert(folder, tmp_path / "model.gguf", type_name="F32")
    assert done.notes[0].startswith("the language model alone")
    with edgellm.load(done.path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
        assert np.abs(model.logits(IDS)[[5, -1]] - np.array(GOLD["llama"])).max() <= 1e-4


@pytest.mark.parametrize(
    ("kind", "inner", "outer", "prefix"),
    [
        ("ministral3", "ministral3", "mistral3", "language_model."),
        ("qwen3_5_text", "qwen3_5_text", "qwen3_5", "model.language_model."),
    ],
)
def test_models_within_models(tmp_path: Path, kind: str, inner: str, outer: str, prefix: str) -> None:
    """The language model of one that sees images, by the configuration of its text part."""
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": outer, "text_config": config_of(kind) | {"model_type": inner}}))
    eyes = "model.visual" if prefix.startswith("model") else "vision_tower"
    names = {name: f"{prefix}{name.removeprefix('model.') if prefix.startswith('model') else name}" for name in tensors_of(kind)}
    tensors = {names[name] if name != "lm_head.weight" else name: array for name, array in tensors_of(kind).items()}
    write_safetensors(
        folder / "model.safetensors",
        tensors | {f"{eyes}.patch_embed.proj.weight": np.ones(4, np.float32), "mtp.fc.weight": np.ones(4, np.float32)},
    )
    done = convert(folder, tmp_path / "model.gguf", type_name="F32")
    assert any(eyes.rpartition(".")[2] in note for note in done.notes)
    with edgellm.load(done.path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
        assert np.abs(model.logits(IDS)[[5, -1]] - np.array(GOLD[kind])).max() <= 1e-4


def test_tokenizers_as_large_as_real_ones(tmp_path: Path) -> None:
    """Gemma's has 33 MB and 515,000 merges, each a list of two texts in newer files."""
    folder = write_checkpoint(tmp_path / "hf", "qwen2")
    merges = ",".join(['["a","b"]'] * 515_000)
    text = '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [' + merges + "]}" + " " * (20 << 20) + "}"
    (folder / "tokenizer.json").write_text(text)
    with open_gguf(convert(folder, tmp_path / "model.gguf", pre="gpt-2").path) as gguf:
        assert len(gguf.metadata["tokenizer.ggml.merges"]) == 515_000


def test_what_gemma_3_leaves_out() -> None:
    """The text parts of its 4B to 27B models name a few sizes alone."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    family, config = find_family({"model_type": "gemma3", "text_config": text}, "")
    keys = metadata_of(config, family, "")
    wanted = {
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "context_length": 131072,
        "rope.freq_base": 1e6,
        "attention.sliding_window": 1024,
    }
    assert {key: keys[f"gemma3.{key}"] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("kind", "share"), [("glm4", 0.5), ("glm4_moe", 0.5), ("nemotron", 0.5), ("phi", 0.5), ("stablelm", 0.25), ("bamba", 0.5)]
)
def test_the_share_of_a_head_that_is_rotated_where_nothing_is_said(kind: str, share: float) -> None:
    """The default is transformers'."""
    config = {key: value for key, value in config_of(kind).items() if key not in ("partial_rotary_factor", "rope_parameters")}
    family, settings = find_family(config | {"head_dim": 16}, "")
    assert metadata_of(settings, family, "")[f"{family.architecture}.rope.dimension_count"] == 16 * share


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (
            {"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}},
            {"block_count": 32, "attention.head_count": 32, "feed_forward_length": 11008, "attention.layer_norm_rms_epsilon": 1e-5},
        ),
        ({"model_type": "mistral", "num_attention_heads": 40}, {"attention.head_count": 40, "attention.sliding_window": 4096}),
        ({"model_type": "mistral", "sliding_window": None}, {"attention.sliding_window": None}),
        (
            {"model_type": "deepseek_v3", "n_group": 1},
            {"expert_group_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.5},
        ),
        ({"model_type": "falcon", "n_layer": 3}, {"block_count": 3}),
        ({"model_type": "cohere"}, {"rope.freq_base": 500000.0}),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, {"attn_logit_softcapping": None}),
        (
            {"model_type": "gemma3_text", "use_bidirectional_attention": True, "attn_logit_softcapping": 50.0},
            {"attn_logit_softcapping": None},
        ),
        ({"model_type": "falcon_mamba", "layer_norm_epsilon": 1e-5}, {"ssm.dt_b_c_rms_epsilon": 1e-6}),
        ({"model_type": "modernbert", "global_rope_theta": 80000.0}, {"rope.freq_base": 80000.0, "rope.freq_base_swa": 10000.0}),
    ],
)
def test_what_transformers_takes_where_nothing_is_said(config: dict[str, Any], wanted: dict[str, object]) -> None:
    """A setting that is null, or has another name, is said."""
    family, settings = find_family(config, "")
    keys = metadata_of(settings, family, "")
    assert {key: keys.get(f"{family.architecture}.{key}") for key in wanted} == wanted
    assert not settings.unread(family.architecture).keys() & {"sliding_window", "n_group"}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_arrays_are_of_32_bits(kind: str) -> None:
    """llama.cpp reads no others."""
    family, settings = find_family(config_of(kind), "")
    for key, value in metadata_of(settings, family, "").items():
        assert not isinstance(value, np.ndarray) or value.dtype in (np.int32, np.float32, np.bool_), key


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_the_number_of_kinds_of_tokens(tmp_path: Path, kind: str) -> None:
    """llama.cpp takes it for the rows of their table, whatever the tokenizer."""
    done = convert(write_checkpoint(tmp_path / "hf", kind), tmp_path / "model.gguf", type_name="F32")
    with open_gguf(done.path) as gguf:
        assert gguf.metadata["tokenizer.ggml.token_type_count"] == gguf.tensors["token_types.weight"].shape[0]


def test_dynamic_scaling_begins_after_the_trained_length(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    done = convert(write_checkpoint(tmp_path / "hf", "mistral", rope_parameters=rope), tmp_path / "model.gguf", type_name="F32")
    assert any("dynamic rope scaling begins after 128 tokens" in note for note in done.notes)
    with edgellm.load(done.path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
        assert np.abs(model.logits(IDS)[[5, -1]] - np.array(GOLD["mistral"])).max() <= 1e-4


def test_queries_of_mistral_4_grow_after_the_first_context() -> None:
    rope = {
        "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16,
        "rope_type": "yarn",
        "factor": 4.0,
        "mscale": 1,
        "mscale_all_dim": 1,
    }
    family, settings = find_family(config_of("mistral4") | {"rope_parameters": rope}, "")
    assert metadata_of(settings, family, "")["mistral4.attention.temperature_length"] == 16


def test_steps_without_a_limit(tmp_path: Path) -> None:
    """Python writes Infinity into config.json; a finite limit would ask for another graph."""
    folder = write_checkpoint(tmp_path / "hf", "mamba2", time_step_limit=[0.0, float("inf")])
    convert(folder, tmp_path / "model.gguf")
    with pytest.raises(Unsupported, match="time_step_limit"):
        convert(write_checkpoint(folder, "mamba2", time_step_limit=[0.0, 1.0]), tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, "use_sliding_window"),
        ("apertus", {"post_norm": True}, "post_norm"),
        ("cohere2", {"order_of_interleaved_layers": "global_first"}, "order_of"),
        ("granitemoehybrid", {"normalization_function": "layernorm"}, "normalization_function"),
        ("qwen3_next", {"attn_output_gate": False}, "attn_output_gate"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights"),
        ("falcon", {"alibi": True}, "alibi"),
        ("mpt", {"attn_config": {"alibi": False}}, "attn_config.alibi"),
        ("gpt_oss", {"swiglu_limit": 9.0}, "swiglu_limit"),
        ("lfm2", {"conv_bias": True}, "conv_bias"),
        ("deepseek_v2", {"rope_scaling": YARN | {"mscale_all_dim": 0.5}}, "rope_scaling.mscale"),
        ("ernie4_5_moe", {"moe_layer_end_index": 1}, "moe_layer_end_index"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm"),
        ("falcon_h1", {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ("glm4_moe", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("mamba", {"use_bias": True}, "use_bias"),
        ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 4}, "use_sliding_window"),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 2}, "no_rope_layer_interval"),
        ("dots1", {"sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("exaone4", {"sliding_window": 4, "layer_types": ["full_attention"] * 4}, "layer_types"),
        ("olmoe", {"clip_qkv": 2.0}, "clip_qkv"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("qwen3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ("llama", {"rope_parameters": YARN | {"truncate": False}}, "rope_scaling.truncate"),
        ("gpt_oss", {"rope_scaling": YARN, "rope_parameters": None}, "rope_scaling.truncate"),
        ("ministral3", {"rope_parameters": YARN | {"mscale": 0.5, "mscale_all_dim": 1.0}}, "mscale"),
        ("cohere2", {"use_gated_activation": False}, "use_gated_activation"),
        ("llama", {"rope_traditional": True}, "rope_traditional"),
        ("glm4", {"rope_traditional": False}, "rope_traditional"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("qwen2", WINDOW | {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("qwen2_vl", WINDOW | {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("qwen2_moe", WINDOW, "use_sliding_window"),
        ("qwen3_moe", WINDOW, "use_sliding_window"),
        ("mamba", {"use_bcdt_rms": True}, "use_bcdt_rms"),
        ("nemotron_h", {"mamba_hidden_act": "gelu"}, "mamba_hidden_act"),
        ("ernie4_5_moe", {"moe_gate_act": "sigmoid"}, "moe_gate_act"),
        ("llama4_text", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        ("bailing_moe_v2", {"rotary_dim": 2}, "rotary_dim"),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}}, "sliding_attention"),
    ],
)
def test_settings_that_ask_for_another_graph_are_refused(tmp_path: Path, kind: str, config: dict[str, Any], field: str) -> None:
    with pytest.raises(Unsupported, match=field):
        convert(write_checkpoint(tmp_path / "hf", kind, **config), tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("deepseek_v3", {"kv_lora_rank": None}),
        ("deepseek_v3", {"v_head_dim": 13}),
        ("qwen3_next", {"linear_num_key_heads": 3}),
        ("qwen3_5_text", {"linear_num_value_heads": None}),
        ("falcon_h1", {"mamba_n_heads": 7}),
        ("mamba2", {"n_groups": 3}),
        ("bloom", {"num_attention_heads": 5}),
        ("falcon_h1", {"ssm_multipliers": [1.0]}),
        ("lfm2", {"block_multiple_of": "x"}),
        ("nemotron_h", {"hybrid_override_pattern": 3}),
        ("granitemoehybrid", {"layer_types": [1, None, {}]}),
    ],
)
def test_settings_that_do_not_fit_the_tensors_end_in_typed_errors(tmp_path: Path, kind: str, config: dict[str, Any]) -> None:
    with pytest.raises(EdgeError):
        convert(write_checkpoint(tmp_path / "hf", kind, **config), tmp_path / "model.gguf")


def test_mimo_as_the_hub_names_its_settings() -> None:
    """A token of a layer that slides sees itself beside so many as `sliding_window_size` says."""
    written = config_of("mimo_v2_flash")
    others = {
        key: value
        for key, value in written.items()
        if key not in ("layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps")
    }
    hub = others | {
        "hybrid_layer_pattern": [0, 1, 1],
        "moe_layer_freq": [0, 1, 1],
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 12,
        "layernorm_epsilon": 1e-5,
        "rope_theta": 5000000,
        "swa_rope_theta": 10000,
        "partial_rotary_factor": 0.334,
        "sliding_window": 3,
        "sliding_window_size": 3,
        "add_swa_attention_sink_bias": True,
        "topk_method": "noaux_tc",
    }
    found = []
    for config in (written, hub):
        family, settings = find_family(config, "")
        found.append({key: np.asarray(value).tolist() for key, value in metadata_of(settings, family, "").items()})
    assert found[0] == found[1]
    with pytest.raises(Unsupported, match="swa_head_dim"):
        find_family(hub | {"swa_head_dim": 16}, "")


def as_mlx_lm_saves(kind: str, name: str, array: Any) -> dict[str, Any]:
    """A tensor of the hub as mlx_lm writes it, under its names: convolutions with the channel last, experts in one."""
    if name.endswith("conv1d.weight"):
        name, array = name.replace("_conv1d.", "_conv.conv.") if kind == "kimi_linear" else name, array.swapaxes(1, 2)
    elif kind == "qwen3_5_text" and "norm" in name and "linear_attn" not in name:
        array = array + np.float32(1.0)
    elif kind == "gemma4_text" and ".experts." in name:
        parts = {"down": array} if "down" in name else {"gate": array[:, :24], "up": array[:, 24:]}
        return {f"{name.partition('.experts.')[0]}.experts.switch_glu.{part}_proj.weight": each for part, each in parts.items()}
    elif kind == "rwkv7" and "g_norm" in name:
        array = array.reshape(2, 16)
    elif kind == "falcon_h1" and array.ndim == 2:
        mixer = np.repeat(np.float32([0.35, 0.25, 0.17, 0.5, 0.4]), (64, 64, 32, 32, 8))[:, None] * np.float32(1.2)
        factors = {
            "q_proj": 1.1,
            "k_proj": 1.1,
            "embed_tokens": 5.6,
            "lm_head": 0.04,
            "o_proj": 0.9,
            "out_proj": 0.7,
            "gate_proj": 0.9,
            "down_proj": 0.6,
        }
        array = array * (np.float32(factors.get(name.split(".")[-2], 1.0)) if ".in_proj" not in name else mixer)
    return {name.replace("block_sparse_moe", "mlp").replace("gate.e_score", "e_score"): array}


@pytest.mark.parametrize("kind", ["qwen3_5_text", "falcon_h1", "kimi_linear", "gemma4_text", "rwkv7", "mamba", "lfm2"])
def test_the_same_tensors_from_the_hub_and_from_mlx_lm(tmp_path: Path, kind: str) -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    tensors, saved = tensors_of(kind), dict[str, Any]()
    for name, array in tensors.items():
        saved |= as_mlx_lm_saves(kind, name, array)
    for layer in range(1, 4) if kind == "kimi_linear" else ():
        place = f"model.layers.{layer}.mlp"
        for number, part in ((1, "gate"), (2, "down"), (3, "up")):
            each = [saved.pop(f"{place}.experts.{expert}.w{number}.weight") for expert in range(4)]
            saved[f"{place}.switch_mlp.{part}_proj.weight"] = np.stack(each)
    hub, mlx = (write_checkpoint(tmp_path / name, kind) for name in ("hub", "mlx"))
    (mlx / "model.safetensors").unlink()
    mx.save_safetensors(
        str(mlx / "model.safetensors"), {name: mx.array(array) for name, array in saved.items()}, metadata={"format": "mlx"}
    )
    with open_mlx_folder(hub) as wanted, open_mlx_folder(mlx) as found:
        halves = {name for name in wanted.tensors if "gate_up_exps" in name}
        assert wanted.tensors.keys() - halves <= found.tensors.keys()
        for name in wanted.tensors.keys() - halves:
            assert found.tensors[name].shape == wanted.tensors[name].shape, name
            a, b = (folder.raw(name).view(np.float32) for folder in (wanted, found))
            factor = name.replace("weight", "scale")  # where mlx_lm leaves it out
            b = b * found.raw(factor).view(np.float32) if factor in found.tensors.keys() - wanted.tensors.keys() else b
            assert np.allclose(a, b, rtol=1e-6, atol=0), name
        for name in halves:
            a, *b = (found.raw(name.replace("gate_up", part)).reshape(4, -1) for part in ("gate", "up"))
            assert np.array_equal(np.concatenate([a, *b], axis=1).reshape(-1), wanted.raw(name)), name


def test_experts_that_mlx_has_stacked_keep_their_groups(tmp_path: Path) -> None:
    """Matrices as wide as the model are never taken for those that the hub stores the other way round."""
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    sizes = {"hidden_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 1}
    folder = write_checkpoint(tmp_path / "mlx", "qwen3_moe", tensors={}, **sizes, model_type="qwen3_vl_moe_text", num_experts=4)
    (folder / "model.safetensors").unlink()
    parts = mx.quantize(mx.random.normal((4, 64, 64)), group_size=32, bits=4)
    place = f"{BLOCK}.mlp.switch_mlp.down_proj"
    tensors = {f"{place}.{end}": part for end, part in zip(("weight", "scales", "biases"), parts, strict=True)}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization": {"group_size": 32, "bits": 4}}))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "mlx"})
    with open_mlx_folder(folder) as found:
        assert found.tensors["blk.0.ffn_down_exps.weight"].type.name == "MLX affine 4/32"
        assert np.array_equal(found.raw("blk.0.ffn_down_exps.weight"), np.array(parts[0]).reshape(-1).view(np.uint8))


def test_exaone_4_names_its_layers_by_letters() -> None:
    config = config_of("exaone4") | {
        "layer_types": None,
        "sliding_window": 8,
        "sliding_window_pattern": "LLG",
        "num_hidden_layers": 4,
    }
    family, checked = find_family(config, "")
    found = metadata_of(checked, family, "")["exaone4.attention.sliding_window_pattern"]
    assert found.tolist() == [True, True, False, True]
