"""Conversion of checkpoints to GGUF: the logits of transformers, types, tokenizers, templates, and what is refused."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hf_checkpoints import EMBEDDERS, IDS, KINDS, config_of, tensors_of, write_adapter, write_checkpoint, write_safetensors
from places import DATA
from story_text import story_text
from tokenizer_folders import byte_level, with_vocabulary

import edgellm
from edgellm.checkpoints.tokenizer.pre_tokenizer import recognise
from edgellm.checkpoints.tokenizer.sentencepiece import read_sentencepiece
from edgellm.cli.app import run
from edgellm.errors import BadVocab, EdgeError, OptionError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgellm.tools.convert import TARGETS, convert
from edgellm.tools.hf_lora import convert_lora
from edgellm.weights import WeightStore

GOLD = json.loads((DATA / "hf_gold.json").read_text(encoding="utf-8"))


UNREAD = "settings of config.json"


TEXT = "Lily's dog ran 1234 miles!  Wasn't it GREAT? naïve café 😀\n\n\tThe end, 10:45."


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    done = convert(write_checkpoint(tmp_path / "hf", kind), tmp_path / "model.gguf", type_name="F32")
    with edgellm.load(done.path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
        logits = model.logits(IDS)
    assert np.abs(logits[[5, -1]] - np.array(GOLD[kind])).max() <= 1e-4
    assert not any(UNREAD in note for note in done.notes)


def test_settings_that_nothing_reads_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, with their values, also where the folder is loaded; those that are null, or known to change nothing, are not."""
    more = {"attention_temper": 2.5, "use_rope": False, "scale_emb": None, "hidden_dropout": 0.1, "some_token_id": 7, "_note": 1}
    folder = write_checkpoint(tmp_path / "hf", "llama", **more)
    assert run(["convert", str(folder), str(tmp_path / "model.gguf")]) == 0
    printed = capsys.readouterr().err
    assert printed.count(UNREAD) == 1 and "attention_temper (2.5), use_rope (false);" in printed
    assert not any(key in printed for key in ("scale_emb", "dropout", "token_id", "_note", "hidden_size"))
    with pytest.warns(UserWarning, match="attention_temper"), edgellm.load(folder, context=32, backend="cpu"):
        pass


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_vectors_and_scores_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    done = convert(write_checkpoint(tmp_path / "hf", kind), tmp_path / "model.gguf", type_name="F32")
    with edgellm.load(done.path, context=32, threads=1, backend="cpu") as model:
        vector = model.embed(np.array(IDS), normalize=False)
    wanted = np.array(GOLD[kind])
    assert not any(UNREAD in note for note in done.notes)
    assert np.abs(vector - (chances(wanted) if kind.startswith("qwen3-ranking") else wanted)).max() <= 1e-4


def chances(scores: Any) -> Any:
    """Probabilities from a decoder's scores: that of each label, of a single one that it holds and that it does not."""
    scores = np.append(scores, 0.0) if scores.size == 1 else scores.reshape(-1)
    return np.exp(scores) / np.exp(scores).sum()


@pytest.mark.parametrize("target", [*TARGETS, None])
def test_types_of_matrices_and_vectors(tmp_path: Path, target: str | None) -> None:
    """Matrices get the type where its blocks divide their rows; norms and biases stay F32; the values are the source's."""
    done = convert(write_checkpoint(tmp_path / "hf", "qwen2"), tmp_path / "model.gguf", type_name=target)
    block = 32 if target and target.startswith("Q") else 1
    with open_gguf(done.path) as gguf:
        for name, info in gguf.tensors.items():
            wanted = "F32" if len(info.shape) == 1 else (target or "F32") if info.shape[-1] % block == 0 else "F16"
            assert info.type.name == wanted, name
        assert any(info.type.name == "F16" for info in gguf.tensors.values()) == (target == "F16" or block == 32)
    assert done.type == (target or "F32") and bool(done.notes) and any("F16" in note for note in done.notes) == (block == 32)
    weights = WeightStore(open_gguf(done.path))
    wanted_values = tensors_of("qwen2")["model.layers.1.mlp.up_proj.weight"]
    error = np.abs(weights["blk.1.ffn_up.weight"].array() - wanted_values).max() / np.abs(wanted_values).max()
    assert error < {"F32": 1e-12, None: 1e-12, "F16": 1e-3, "BF16": 4e-3, "Q8_0": 5e-3}.get(target or "F32", 0.1)
    weights.close()


def test_bf16_stays_bf16(tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path / "hf",
        "llama",
        tensors={name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in tensors_of("llama").items()},
    )
    with open_gguf(convert(folder, tmp_path / "model.gguf").path) as gguf:
        assert gguf.tensors["output.weight"].type.name == "BF16" and gguf.tensors["output_norm.weight"].type.name == "F32"
        assert gguf.metadata["general.file_type"] == 32 and gguf.metadata["llama.vocab_size"] == 64


def test_wrappers_and_what_a_language_model_does_not_need(tmp_path: Path) -> None:
    """Gemma 3 with an image tower, and its configuration within another; a second copy of a tied embedding goes too."""
    tensors = {f"language_model.{name}": array for name, array in tensors_of("gemma3_text").items()}
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config_of("gemma3_text")}))
    more = {
        "vision_tower.vision_model.post_layernorm.weight": np.ones(4, np.float32),
        "language_model.lm_head.weight": tensors["language_model.model.embed_tokens.weight"],
    }
    write_safetensors(folder / "model.safetensors", tensors | more)
    done = convert(folder, tmp_path / "model.gguf", type_name="F32")
    assert any("vision_tower" in note for note in done.notes)
    with edgellm.load(done.path, context=64, kv_type="f32", threads=1, backend="cpu") as model:
        assert np.abs(model.logits(IDS)[[5, -1]] - np.array(GOLD["gemma3_text"])).max() <= 1e-4
    with open_gguf(done.path) as gguf:
        assert "output.weight" not in gguf.tensors


QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    ("cuts", "bos", "pre"), [(QWEN2, None, "qwen2"), (QWEN2.replace("N}|", "N}{1,3}|"), "<|a|>", "dbrx"), (None, None, "gpt-2")]
)
def test_byte_level_tokenizers_give_the_same_ids(tmp_path: Path, cuts: str | None, bos: str | None, pre: str) -> None:
    made = byte_level(cuts, special=("<|a|>", "<|end|>"), rows=330, bos=bos)
    folder = with_vocabulary(tmp_path / "hf", "qwen2", 340)
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "eos_token": "<|end|>",
        "bos_token": bos,
        "chat_template": [
            {"name": "default", "template": "{{ messages[0].content }}"},
            {"name": "tool_use", "template": "{{ tools }}"},
        ],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    done = convert(folder, tmp_path / "model.gguf")
    with edgellm.load(done.path, threads=1, backend="cpu") as model:
        assert model.tokenizer.encode(TEXT) == made.encode(TEXT).ids
        assert model.tokenizer.eos_id == 1 and model.tokenizer.add_bos == (bos is not None) and model.has_template
    with open_gguf(done.path) as gguf:
        assert gguf.metadata["tokenizer.ggml.pre"] == pre
        assert gguf.metadata["tokenizer.chat_template.tool_use"] == "{{ tools }}"
        assert list(gguf.metadata["tokenizer.chat_templates"]) == ["tool_use"]


def test_sentencepiece_gives_the_same_ids(tmp_path: Path) -> None:
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(story_text(100).split("\n")),
        model_writer=proto,
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<|im|>", "<|text|>"],
        minloglevel=2,
        num_threads=1,
    )
    folder = with_vocabulary(tmp_path / "hf", "llama", 410)
    (folder / "tokenizer.model").write_bytes(proto.getvalue())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": "<s>",
                "eos_token": "</s>",
                "added_tokens_decoder": {
                    "3": {"content": "<|im|>", "special": True},
                    "4": {"content": "<|text|>", "special": False},
                    "400": {"content": "<|user|>", "special": True},
                },
            }
        )
    )
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 400]}))
    done = convert(folder, tmp_path / "model.gguf")
    with edgellm.load(done.path, threads=1, backend="cpu") as model:
        expected = sentencepiece.SentencePieceProcessor(model_proto=proto.getvalue()).encode(TEXT)
        assert model.tokenizer.encode(TEXT) == [1, *expected]
        assert model.tokenizer.eog_ids == {2, 400} and model.tokenizer.token_text(400) == "<|user|>"
        assert model.tokenizer.token_text(405) == "[PAD405]"
    with open_gguf(done.path) as gguf:
        assert list(gguf.metadata["tokenizer.ggml.token_type"][:5]) == [2, 3, 3, 3, 4]
        assert gguf.metadata["tokenizer.ggml.add_space_prefix"] is True
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": False}))
    with open_gguf(convert(folder, tmp_path / "model.gguf").path) as gguf:
        assert gguf.metadata["tokenizer.ggml.add_space_prefix"] is False


def test_every_way_to_cut_words_is_recognised() -> None:
    """Each row of our table is recognised as that row, or as one that cuts the probe in the same way."""
    for name, row in PRE_TOKENIZERS.items():
        if row.visible_spaces:
            continue
        splits: list[Any] = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(text), "isolated") for text in row.expressions]
        whole = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=row.whole_words))
        whole.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [*splits, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        found = recognise(json.loads(whole.to_str()))
        assert found is not None and (found == name or PRE_TOKENIZERS[found].whole_words == row.whole_words)


def test_unknown_cuts_are_refused_unless_a_name_is_given(tmp_path: Path) -> None:
    made = byte_level(r"[aeiou]+|[^aeiou]+", special=("<|end|>",), rows=300)
    folder = with_vocabulary(tmp_path / "hf", "qwen2", 300)
    made.save(str(folder / "tokenizer.json"))
    with pytest.raises(Unsupported, match="--pre"):
        convert(folder, tmp_path / "model.gguf")
    convert(folder, tmp_path / "model.gguf", pre="gpt-2")


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("llama", {"model_type": "rwkv"}, "rwkv"),
        ("llama", {"hidden_act": "relu"}, "relu"),
        ("llama", {"model_type": ["llama"]}, "llama"),
        ("llama", {"model_type": None}, "names no model_type"),
        ("llama", {"num_hidden_layers": 3}, "blk.2"),
        ("llama", {"num_attention_heads": 3}, "head"),
        ("llama", {"rope_parameters": {"rope_type": "linked", "rope_theta": 10000.0}}, "linked"),
        ("llama", {"intermediate_size": 50}, "shape"),
        ("gemma3_text", {"query_pre_attn_scalar": 4}, "query_pre_attn_scalar"),
    ],
)
def test_models_that_would_not_run_are_refused(tmp_path: Path, kind: str, config: dict[str, Any], message: str) -> None:
    folder = write_checkpoint(tmp_path / "hf", kind, **config)
    with pytest.raises(EdgeError, match=message):
        convert(folder, tmp_path / "model.gguf")
    assert os.listdir(tmp_path) == ["hf"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokenizer.model", b"\x0a\xff"),
        ("tokenizer.model", b"\x0a\x05abcde"),
        ("tokenizer.model", b""),
        ("tokenizer.json", b"{"),
        ("model.safetensors", b"nonsense"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 99}}}'),
        ("config.json", b"\xff\xfe"),
    ],
)
def test_damaged_folders_end_in_typed_errors(tmp_path: Path, name: str, data: bytes) -> None:
    folder = write_checkpoint(tmp_path / "hf", "qwen2")
    (folder / name).write_bytes(data)
    with pytest.raises(EdgeError, match=name.partition(".")[0]):
        convert(folder, tmp_path / "model.gguf")
    assert os.listdir(tmp_path) == ["hf"]


def test_values_beyond_f16_are_refused(tmp_path: Path) -> None:
    wide = tensors_of("llama")["lm_head.weight"] * np.float32(1e6)
    folder = write_checkpoint(tmp_path / "hf", "llama", tensors={"lm_head.weight": wide})
    with pytest.raises(Unsupported, match="BF16"):
        convert(folder, tmp_path / "model.gguf", type_name="F16")


@pytest.mark.parametrize("value", [1e7, np.nan, -np.inf])
def test_values_that_blocks_cannot_hold_are_refused(tmp_path: Path, value: float) -> None:
    table = tensors_of("llama")["lm_head.weight"].copy()
    table[3, 5] = value
    folder = write_checkpoint(tmp_path / "hf", "llama", tensors={"lm_head.weight": table})
    for kind in ("Q8_0", "Q4_0"):
        with pytest.raises(Unsupported, match=r"output\.weight: has NaN, Inf or values too large"):
            convert(folder, tmp_path / "model.gguf", type_name=kind)
    assert not (tmp_path / "model.gguf").exists()


def test_nothing_of_the_checkpoint_is_written_over(tmp_path: Path) -> None:
    folder, adapter = write_checkpoint(tmp_path / "hf", "bert"), tmp_path / "adapter"
    write_adapter(adapter, "llama")
    base = write_checkpoint(tmp_path / "base", "llama")
    for write, out in (
        (lambda out: convert(folder, out), folder / "model.safetensors"),
        (lambda out: convert(folder, out), folder / "1_Pooling" / "config.json"),
        (lambda out: convert_lora(adapter, out, base=base), base / "model.safetensors"),
        (lambda out: convert_lora(adapter, out, base=base), adapter / "adapter_config.json"),
    ):
        before = out.read_bytes()
        with pytest.raises(OptionError, match="the source itself"):
            write(out)
        assert out.read_bytes() == before


def test_an_unknown_pre_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", "llama")
    for name in ("nope", ""):
        with pytest.raises(OptionError, match=r"--pre .* is not a pre-tokenizer; give one such as"):
            convert(folder, tmp_path / "model.gguf", pre=name)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = write_checkpoint(tmp_path / "hf", "llama"), tmp_path / "model.gguf"
    assert run(["convert", str(folder), str(out), "--type", "q8_0"]) == 0
    printed = capsys.readouterr()
    assert "llama, Q8_0" in printed.out and "token ids only" in printed.err
    assert run(["convert", str(folder), str(out)]) == 2 and "--force" in capsys.readouterr().err
    assert run(["convert", str(folder), str(folder / "config.json"), "--force"]) == 2
    assert "the source itself" in capsys.readouterr().err
    assert run(["convert", str(folder), str(out), "--json", "--force", "--outtype", "auto"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "F32"
    other = str(tmp_path / "other.gguf")
    assert run(["convert", str(folder), other, "--type", "Q4_K_M"]) == 2
    assert "quantize" in capsys.readouterr().err
    assert run(["convert", str(tmp_path / "absent"), other]) == 3
    for name, wanted in ((None, "has no model.safetensors"), ("pytorch_model.bin", "pickled")):
        (folder / "model.safetensors").unlink() if name is None else (folder / name).write_bytes(b"x")
        assert run(["convert", str(folder), other]) == 3 and wanted in capsys.readouterr().err
    places = {"lm_head.weight": "model-00001-of-00002.safetensors", "model.norm.weight": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert run(["convert", str(folder), other]) == 3 and "2 of 2 files are missing" in capsys.readouterr().err
    assert not Path(other).exists()


def test_wrong_types_are_named() -> None:
    with pytest.raises(OptionError, match="Q8_0"):
        convert("x", "y", type_name="IQ9")


def test_a_file_of_another_kind_is_no_sentencepiece_model() -> None:
    with pytest.raises(BadVocab):
        read_sentencepiece(str(DATA / "hf_gold.json"))


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("qwen3_moe", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("olmoe", {"norm_topk_prob": True}, "norm_topk_prob"),
        ("qwen2_moe", {"norm_topk_prob": True}, "norm_topk_prob"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ("gemma3n_text", {"altup_correct_scale": False}, "altup_correct_scale"),
    ],
)
def test_settings_that_ask_for_another_graph_are_refused(tmp_path: Path, kind: str, config: dict[str, Any], field: str) -> None:
    with pytest.raises(Unsupported, match=field):
        convert(write_checkpoint(tmp_path / "hf", kind, **config), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_experts_of_several_types_are_refused(tmp_path: Path) -> None:
    name = "model.layers.1.block_sparse_moe.experts.2.w1.weight"
    folder = write_checkpoint(tmp_path / "hf", "mixtral", tensors={name: tensors_of("mixtral")[name].astype(np.float16)})
    with pytest.raises(Unsupported, match="not of the type and shape"):
        convert(folder, tmp_path / "model.gguf")


def test_experts_are_tensors_of_three_dimensions(tmp_path: Path) -> None:
    for kind, first in (("mixtral", "w1"), ("granitemoe", "")):
        done = convert(write_checkpoint(tmp_path / kind, kind), tmp_path / f"{kind}.gguf", type_name="Q8_0")
        with open_gguf(done.path) as gguf:
            gate, up = (gguf.tensors[f"blk.0.ffn_{part}_exps.weight"] for part in ("gate", "up"))
            assert gate.shape == up.shape == (4, 48, 32) and gate.type.name == "Q8_0"
        weights, source = WeightStore(open_gguf(done.path)), tensors_of(kind)
        block = "model.layers.0.block_sparse_moe"
        wanted = source[f"{block}.experts.3.{first}.weight"] if first else source[f"{block}.input_linear.weight"][3, :48]
        assert np.abs(weights["blk.0.ffn_gate_exps.weight"].array()[3] - wanted).max() < 0.02
        weights.close()
