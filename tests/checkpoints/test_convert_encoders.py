"""Converted embedding models: their tokenizers, with what these put around a text, poolings, dense layers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers
from encoder_variants import encoder_file
from hf_checkpoints import IDS, config_of, tensors_of, write_checkpoint, write_modules, write_safetensors
from story_text import story_text
from tokenizers import normalizers, pre_tokenizers, processors

import edgellm
from edgellm.arch import load_graph
from edgellm.checkpoints.tokenizer.sentencepiece import _fields, read_sentencepiece
from edgellm.errors import EdgeError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.tools.convert import convert
from edgellm.weights import WeightStore

TEXT = "Lily's dog ran 1234 miles!  Wasn't it GREAT? naïve café 😀\n\n\tThe end, 10:45. 日本語 ﬁne Ｗide"


def with_rows(folder: Path, kind: str, rows: int, **config: Any) -> Path:
    """A checkpoint with as many tokens."""
    tables = ("word_embeddings.weight", "tok_embeddings.weight", "embed_tokens.weight")
    name = next(name for name in tensors_of(kind) if name.endswith(tables))
    table = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    return write_checkpoint(folder, kind, tensors={name: table}, vocab_size=rows, **config)


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces(tmp_path: Path, lowercase: bool) -> None:
    made = tokenizers.BertWordPieceTokenizer(lowercase=lowercase, strip_accents=None)
    made.train_from_iterator([story_text(60), "naive café cafe 日"], vocab_size=300, show_progress=False)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))]
    )
    folder = with_rows(tmp_path / "hf", "bert", 310)
    made.save(str(folder / "tokenizer.json"))
    roles = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    settings = {f"{role}_token": text for role, text in roles.items()} | {"do_lower_case": lowercase}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    wanted = made.encode(TEXT).ids
    check(folder, tmp_path / "model.gguf", wanted)
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["added_tokens"].append({"id": 310, "content": "[IMAGE]", "special": True})  # beyond the embedding: ignored
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    check(folder, tmp_path / "beyond.gguf", wanted)
    texts = sorted(made.get_vocab().items(), key=lambda item: item[1])
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("".join(f"{text}\n" for text, _ in texts), encoding="utf-8")
    check(folder, tmp_path / "again.gguf", wanted)


def check(folder: Path, out: Path, wanted: list[int]) -> None:
    done = convert(folder, out, type_name="F32")
    with edgellm.load(done.path, context=32, threads=1, backend="cpu") as model:
        assert model.tokenizer.encode(TEXT, add_special=True) == wanted


def test_unigram(tmp_path: Path) -> None:
    """XLM-R's: a map of characters, runs of blanks that count as one, and both ends marked."""
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(story_text(200).split("\n")),
        model_writer=proto,
        vocab_size=140,
        model_type="unigram",
        character_coverage=1.0,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
        num_threads=1,
    )
    (tmp_path / "spm").write_bytes(proto.getvalue())
    pieces = read_sentencepiece(str(tmp_path / "spm"))
    charsmap = next(dict(_fields("", bytes(value)))[2] for field, value in _fields("", proto.getvalue()) if field == 3)
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *zip(pieces.texts[3:], pieces.scores[3:], strict=True)]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, unk_id=3, byte_fallback=False))
    made.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    folder = with_rows(tmp_path / "hf", "xlm-roberta", 150)
    made.save(str(folder / "tokenizer.json"))
    roles = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({f"{role}_token": text for role, text in roles.items()}))
    check(folder, tmp_path / "model.gguf", made.encode(TEXT).ids)
    with open_gguf(tmp_path / "model.gguf") as gguf:
        assert np.asarray(gguf.metadata["tokenizer.ggml.precompiled_charsmap"]).tobytes() == charsmap
    made.normalizer = normalizers.Lowercase()
    made.save(str(folder / "tokenizer.json"))
    with pytest.raises(Unsupported, match="Lowercase"):
        convert(folder, tmp_path / "other.gguf")


@pytest.mark.parametrize(("kind", "first", "last"), [("modernbert", "[CLS]", "[SEP]"), ("qwen3-embedding", None, "<|end|>")])
def test_byte_level_tokenizers_of_embedding_models(tmp_path: Path, kind: str, first: str | None, last: str) -> None:
    special = ["[CLS]", "[SEP]", "<|end|>", "<|im_end|>"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        [story_text(40)],
        tokenizers.trainers.BpeTrainer(
            vocab_size=320, special_tokens=special, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    around = [(text, special.index(text)) for text in (first, last) if text]
    made.post_processor = processors.TemplateProcessing(single=f"{first + ' ' if first else ''}$A {last}", special_tokens=around)
    folder = with_rows(tmp_path / "hf", kind, 330)
    made.save(str(folder / "tokenizer.json"))
    settings = {"cls_token": "[CLS]", "sep_token": "[SEP]"} if first else {"eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    check(folder, tmp_path / "model.gguf", made.encode(TEXT).ids)


def test_dense_layers_behind_the_pooling(tmp_path: Path) -> None:
    folder, rng, weights = write_checkpoint(tmp_path / "hf", "gemma-embedding"), np.random.default_rng(0), []
    plain = convert(folder, tmp_path / "plain.gguf", type_name="F32").path
    listed = json.loads((folder / "modules.json").read_text())
    for number, shape in ((2, (64, 32)), (3, (16, 64))):
        weights.append(rng.standard_normal(shape).astype(np.float32))
        place = folder / f"{number}_Dense"
        place.mkdir()
        write_safetensors(place / "model.safetensors", {"linear.weight": weights[-1]})
        (place / "config.json").write_text(
            json.dumps(
                {
                    "in_features": shape[1],
                    "out_features": shape[0],
                    "bias": False,
                    "activation_function": "torch.nn.modules.linear.Identity",
                }
            )
        )
        listed.insert(number, {"path": place.name, "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(listed))
    more = convert(folder, tmp_path / "more.gguf", type_name="F32").path
    vectors = []
    for path in (plain, more):
        with edgellm.load(path, context=32, threads=1, backend="cpu") as model:
            vectors.append(model.embed(np.array(IDS), normalize=False))
    assert np.abs(vectors[0] @ weights[0].T @ weights[1].T - vectors[1]).max() < 1e-4
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"activation_function": "torch.nn.modules.activation.Tanh"}))
    with pytest.raises(Unsupported, match="activation"):
        convert(folder, tmp_path / "no.gguf")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[3]",
        "nonsense",
        '[{"type": "a.b.WeightedLayerPooling", "path": ""}]',
        '[{"type": "a.Pooling", "path": "../elsewhere"}]',
    ],
)
def test_modules_that_gguf_has_no_place_for(tmp_path: Path, text: str) -> None:
    folder = write_checkpoint(tmp_path / "hf", "bert")
    (folder / "modules.json").write_text(text)
    with pytest.raises(EdgeError, match=r"modules\.json"):
        convert(folder, tmp_path / "model.gguf")


def test_poolings_that_cannot_be_said(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", "bert")
    write_modules(folder, "cls_token", pooling_mode_max_tokens=True)
    with pytest.raises(Unsupported, match="max_tokens"):
        convert(folder, tmp_path / "model.gguf")


NOMIC = {
    "blk.{}.attn_qkv": "encoder.layers.{}.attn.Wqkv",
    "blk.{}.attn_output": "encoder.layers.{}.attn.out_proj",
    "blk.{}.attn_output_norm": "encoder.layers.{}.norm1",
    "blk.{}.layer_output_norm": "encoder.layers.{}.norm2",
    "blk.{}.ffn_up": "encoder.layers.{}.mlp.fc1",
    "blk.{}.ffn_down": "encoder.layers.{}.mlp.fc2",
    "token_embd_norm": "emb_ln",
    "blk.{}.ffn_gate_inp": "encoder.layers.{}.mlp.router.layer",
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
}
NOMIC_CONFIG = {
    "model_type": "nomic_bert",
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 6,
    "n_inner": 96,
    "n_positions": 128,
    "prenorm": False,
    "layer_norm_epsilon": 1e-5,
    "rotary_emb_base": 160000,
    "rotary_emb_fraction": 1.0,
    "activation_function": "gelu",
    "num_experts": 4,
    "moe_top_k": 2,
    "moe_every_n_layers": 2,
    "type_vocab_size": 2,
    "qkv_proj_bias": True,
}
JINA = {
    "blk.{}.attn_q": "encoder.layer.{}.attention.self.query",
    "blk.{}.attn_k": "encoder.layer.{}.attention.self.key",
    "blk.{}.attn_v": "encoder.layer.{}.attention.self.value",
    "blk.{}.attn_output": "encoder.layer.{}.attention.output.dense",
    "blk.{}.attn_output_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "blk.{}.ffn_down": "encoder.layer.{}.mlp.wo",
    "blk.{}.layer_output_norm": "encoder.layer.{}.mlp.layernorm",
    "token_embd_norm": "embeddings.LayerNorm",
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
}
JINA_CONFIG = {
    "model_type": "bert",
    "position_embedding_type": "alibi",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "feed_forward_type": "geglu",
}


@pytest.mark.parametrize(
    ("name", "names", "config"), [("nomic-bert-moe+mean", NOMIC, NOMIC_CONFIG), ("jina-bert-v2+mean", JINA, JINA_CONFIG)]
)
def test_names_in_code_of_the_makers_own(tmp_path: Path, name: str, names: dict[str, str], config: dict[str, Any]) -> None:
    """The folder gives the tensors that it was made of: experts as runs of rows, Jina's gates and products in one matrix."""
    plain = WeightStore(open_gguf(encoder_file(tmp_path / "plain.gguf", name)))
    tensors: dict[str, Any] = {}
    for ours in plain.names():
        *block, part, kind = ours.split(".")
        array = plain[ours].array()
        place = f"encoder.layers.{block[1]}.mlp.experts.mlp." if block else ""
        if part.endswith("_exps"):
            w1 = part == "ffn_up_exps"
            tensors[place + ("w1" if w1 else "w2")] = (array if w1 else array.swapaxes(1, 2)).reshape(-1, 64)
        elif part == "ffn_gate":
            up = plain[ours.replace("gate", "up")].array()
            tensors[f"encoder.layer.{block[1]}.mlp.gated_layers.weight"] = np.concatenate([array, up])
        elif part != "ffn_up" or names is NOMIC:
            theirs = names[f"blk.{{}}.{part}" if block else part]
            tensors[f"{theirs.format(block[1] if block else '')}.{kind}"] = array
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    made = WeightStore(open_gguf(convert(folder, tmp_path / "made.gguf", type_name="F32").path))
    assert sorted(made.names()) == sorted(plain.names())
    assert all(np.array_equal(made[ours].array(), plain[ours].array()) for ours in plain.names())
    ids = np.array(IDS)
    with (
        edgellm.load(tmp_path / "plain.gguf", context=32, threads=1, backend="cpu") as model,
        edgellm.load(tmp_path / "made.gguf", context=32, threads=1, backend="cpu") as other,
    ):
        assert np.array_equal(model.embed(ids), other.embed(ids))
    plain.close()
    made.close()


def test_names_of_norms_in_the_first_files(tmp_path: Path) -> None:
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in tensors_of("bert").items()
    }
    folder = write_checkpoint(tmp_path / "hf", "bert")
    new = convert(folder, tmp_path / "new.gguf").path
    write_safetensors(folder / "model.safetensors", {f"bert.{name}": array for name, array in renamed.items()})
    old = convert(folder, tmp_path / "old.gguf").path
    assert Path(new).read_bytes() == Path(old).read_bytes() and config_of("bert")["model_type"] == "bert"


def test_decoders_that_embed_with_an_end_and_both_ways(tmp_path: Path) -> None:
    """gte-Qwen2: tokenizer_config.json asks for the end, config.json for tokens that see the whole text."""
    folder = with_rows(tmp_path / "hf", "qwen3-embedding", 330, is_causal=False)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        [story_text(40)],
        tokenizers.trainers.BpeTrainer(
            vocab_size=320, special_tokens=["<|end|>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "add_eos_token": True}))
    check(folder, tmp_path / "model.gguf", [*made.encode(TEXT).ids, 0])
    with edgellm.load(tmp_path / "model.gguf", context=32, threads=1, backend="cpu") as model:
        assert model.embed(np.array([5, 9, 7]), normalize=False) is not None
    with open_gguf(tmp_path / "model.gguf") as gguf:
        assert gguf.metadata["qwen3.attention.causal"] is False
        _, graph = load_graph(gguf)
    assert not any(state.causal for state in graph.kv_states)


def test_recurrent_layers_cannot_see_the_full_text(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", "mamba", is_causal=False)
    write_modules(folder, "lasttoken")
    with pytest.raises(Unsupported, match="is_causal"):
        convert(folder, tmp_path / "model.gguf")
