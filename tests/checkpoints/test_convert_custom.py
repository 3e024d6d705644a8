"""Checkpoints that are told apart by more than their model type: rerankers, RWKV-7's spellings, experts either way round."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hf_checkpoints import DATA, IDS, tensors_of, write_checkpoint, write_safetensors
from story_text import story_text

import edgellm
from edgellm.checkpoints.opening import open_model
from edgellm.checkpoints.tokenizer.tekken import SPECIAL
from edgellm.errors import BadVocab, EdgeError, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.tokenizer import build_tokenizer
from edgellm.tokenizer.byte_pairs import BYTE_OF_LETTER
from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgellm.tools.convert import convert
from edgellm.tools.verify import verify

GOLD = json.loads((DATA / "hf_gold.json").read_text(encoding="utf-8"))
ANSWERS = [7, 11]  # ids of "yes" and "no"


def write_reranker(folder: Path, mark: str, *, tied: bool = False) -> Path:
    """Qwen3's tiny checkpoint, with a tokenizer that has both answers, marked as a reranker by `mark`."""
    write_checkpoint(
        folder, "qwen3", tie_word_embeddings=tied, **({"_name_or_path": "Qwen/Qwen3-Reranker-0.6B"} if mark == "older" else {})
    )
    if tied:
        headless = {name: array for name, array in tensors_of("qwen3").items() if "lm_head" not in name}
        write_safetensors(folder / "model.safetensors", headless)
    vocabulary = {chr(ord("!") + i): i for i in range(64)} | {"yes": ANSWERS[0], "no": ANSWERS[1]}
    vocabulary = {text: i for text, i in vocabulary.items() if text in ("yes", "no") or i not in ANSWERS}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(folder / "tokenizer.json"))
    if mark == "readme":
        (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Qwen3-Reranker-0.6B\n")
    if mark == "module":
        modules = [
            {"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
            {"idx": 1, "path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"},
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_LogitScore").mkdir()
        (folder / "1_LogitScore" / "config.json").write_text(json.dumps({"true_token_id": 7, "false_token_id": 11}))
    return folder


@pytest.mark.parametrize("mark", ["readme", "older", "module", "qwen3-reranker-0.6b"])
def test_a_reranker_compares_two_tokens(tmp_path: Path, mark: str) -> None:
    """The first score is the probability of "yes" among both answers, by the logits of transformers' causal model."""
    folder = write_reranker(tmp_path / (mark if "-" in mark else "hf"), mark)
    done = convert(folder, tmp_path / "model.gguf", type_name="F32")
    assert [finding.status for finding in verify(done.path) if finding.check == "tensors"] == ["ok"]
    with edgellm.load(done.path, context=32, threads=1, backend="cpu") as model:
        scores = model.embed(np.array(IDS))[0]
    both = np.exp(np.array(GOLD["qwen3"][-1])[ANSWERS])
    assert np.abs(scores - both / both.sum()).max() <= 1e-4
    with open_gguf(done.path) as gguf:
        assert list(gguf.metadata["qwen3.classifier.output_labels"]) == ["yes", "no"] and gguf.metadata["qwen3.pooling_type"] == 4
        assert "{document}" in gguf.metadata["tokenizer.chat_template.rerank"]
        assert "output.weight" not in gguf.tensors and gguf.tensors["cls.output.weight"].shape == (2, 32)


def test_a_reranker_whose_head_is_its_embedding(tmp_path: Path) -> None:
    done = convert(write_reranker(tmp_path / "hf", "readme", tied=True), tmp_path / "model.gguf", type_name="F32")
    table = tensors_of("qwen3")["model.embed_tokens.weight"]
    with open_gguf(done.path) as gguf:
        assert np.array_equal(gguf.raw("cls.output.weight").view("<f4").reshape(2, 32), table[ANSWERS])
        assert gguf.tensors["token_embd.weight"].shape == (64, 32)


def test_rerankers_that_cannot_be_converted(tmp_path: Path) -> None:
    folder = write_reranker(tmp_path / "hf", "module")
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps({"true_token_id": 7, "false_token_id": None}))
    with pytest.raises(Unsupported, match="LogitScore"):
        convert(folder, tmp_path / "model.gguf")
    folder = write_reranker(tmp_path / "readme", "readme")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadVocab, match="yes and no"):
        convert(folder, tmp_path / "model.gguf")


def test_experts_that_multiply_from_either_side(tmp_path: Path) -> None:
    """The hub has those of Qwen3-VL transposed; transformers 5 reads both."""
    tensors = tensors_of("qwen3_vl_moe")
    turned = {name: np.ascontiguousarray(array.swapaxes(1, 2)) for name, array in tensors.items() if ".mlp.experts." in name}
    files = []
    for name, more in (("plain", {}), ("turned", turned)):
        write_checkpoint(tmp_path / "hf", "qwen3_vl_moe", tensors=more)
        files.append(Path(convert(tmp_path / "hf", tmp_path / f"{name}.gguf", type_name="F32").path).read_bytes())
    assert turned and files[0] == files[1]


def test_a_head_that_differs_from_a_tied_embedding_stays(tmp_path: Path) -> None:
    """Some configurations say tied, of one part or another, where the checkpoint has both tables."""
    convert(write_checkpoint(tmp_path / "hf", "llama", tie_word_embeddings=True), tmp_path / "model.gguf", type_name="F32")
    with open_gguf(tmp_path / "model.gguf") as gguf:
        assert np.array_equal(gguf.raw("output.weight").view("<f4").reshape(64, 32), tensors_of("llama")["lm_head.weight"])


def test_mimo_is_qwen2_beside_layers_that_draft(tmp_path: Path) -> None:
    drafting = {"model.mtp_layers.0.input_proj.weight": np.ones((32, 64), np.float32)}
    folder = write_checkpoint(tmp_path / "hf", "qwen2", tensors=drafting, model_type="mimo", num_nextn_predict_layers=1)
    with edgellm.load(folder, context=32, kv_type="f32", threads=1, backend="cpu") as model:
        assert np.abs(model.logits(IDS)[[5, -1]] - np.array(GOLD["qwen2"])).max() <= 1e-4


@pytest.mark.parametrize("kind", ["deepseek_v3", "bailing_moe_v2"])
def test_a_number_on_all_biases_of_experts_changes_nothing(tmp_path: Path, kind: str) -> None:
    """Experts of groups that were not chosen are never taken, even where all others have negative scores."""
    biases = {name: array - np.float32(2.0) for name, array in tensors_of(kind).items() if name.endswith("_bias")}
    folder = write_checkpoint(tmp_path / "hf", kind, tensors=biases)
    with edgellm.load(folder, context=32, kv_type="f32", threads=1, backend="cpu") as model:
        assert biases and np.abs(model.logits(IDS)[[5, -1]] - np.array(GOLD[kind])).max() <= 1e-4


def test_llama_layers_that_slide(tmp_path: Path) -> None:
    """Those that are listed; a window alone does nothing, as in transformers, where Mistral's is for all layers."""
    full, slides, found = "full_attention", "sliding_attention", {}
    for name, kinds in {"none": None, "second": [full, slides], "all": [slides] * 2, "mistral": None}.items():
        own = {"model_type": "mistral"} if name == "mistral" else {"layer_types": kinds}
        folder = write_checkpoint(tmp_path / name, "llama", sliding_window=3, **own)
        for path in (folder, convert(folder, tmp_path / f"{name}.gguf", type_name="F32").path):
            with edgellm.load(path, context=32, kv_type="f32", threads=1, backend="cpu") as model:
                found[name] = model.logits(IDS)
    with open_gguf(tmp_path / "second.gguf") as gguf:
        assert gguf.metadata["llama.attention.sliding_window_pattern"].tolist() == [False, True]
    assert np.abs(found["none"][[5, -1]] - np.array(GOLD["llama"])).max() <= 1e-4
    assert np.array_equal(found["all"], found["mistral"])
    for a, b in (("none", "second"), ("second", "all")):
        assert np.abs(found[a] - found[b])[:3].max() < 1e-5 < 1e-3 < np.abs(found[a] - found[b])[3].max()


def makers_names(tensors: dict[str, Any]) -> dict[str, Any]:
    """RWKV-7's tensors as its makers' own code has them: matrices through short rows lie the other way round."""
    found = {}
    for name, array in tensors.items():
        name = name.replace("layers", "blocks").replace("attn_norm", "ln1").replace("ffn_norm", "ln2")
        name = name.replace("attn.", "attention.")
        name = name.replace("g_norm", "ln_x").replace("ffn.", "feed_forward.").replace("model.norm", "model.ln_out")
        name = name.replace("lm_head", "head").replace("pre_norm", "pre_ln")
        name = re.sub(
            r"attention\.([rkvo])_proj",
            lambda match: "attention." + {"r": "receptance", "k": "key", "v": "value", "o": "output"}[match[1]],
            name,
        )
        name = re.sub(r"_lora\.lora\.2\.bias", "0", name)
        if "_lora" in name:
            name, array = re.sub(r"_lora\.lora\.(\d)\.weight", lambda match: str(int(match[1]) // 2 + 1), name), array.T
            name = re.sub(r"([wavg])3$", r"\g<1>2", name)
        found[name] = np.ascontiguousarray(array)
    return found


def test_both_spellings_of_rwkv7(tmp_path: Path) -> None:
    files = []
    for name, tensors in (("fla", tensors_of("rwkv7")), ("makers", makers_names(tensors_of("rwkv7")))):
        folder = write_checkpoint(tmp_path / "hf", "rwkv7")
        write_safetensors(folder / "model.safetensors", tensors)
        files.append(Path(convert(folder, tmp_path / f"{name}.gguf", type_name="F32").path).read_bytes())
    assert files[0] == files[1] and "model.blocks.1.attention.v2" in makers_names(tensors_of("rwkv7"))
    with open_gguf(tmp_path / "fla.gguf") as gguf:
        assert gguf.tensors["blk.0.time_mix_v1.weight"].shape == (8, 32)  # llama.cpp wants the first layer's, too
        assert gguf.tensors["blk.1.time_mix_lerp_fused.weight"].shape == (6, 1, 1, 32)


def test_the_world_vocabulary(tmp_path: Path) -> None:
    """The longest entry at each place; entries are bytes, or text of more than one."""
    entries: list[Any] = [bytes([i]) if i > 127 else chr(i) for i in range(256)] + ["\n\n", "Lily", " dog", "é", b"\xe2\x80", "'s"]
    rows = len(entries) + 3
    table = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    folder = write_checkpoint(
        tmp_path / "hf", "rwkv7", vocab_size=rows, tensors={"model.embeddings.weight": table, "lm_head.weight": table}
    )
    sizes = [len(entry.encode() if isinstance(entry, str) else entry) for entry in entries]
    path = folder / "rwkv_vocab_v20230424.txt"
    path.write_text("".join(f"{i} {entry!r} {n}\n" for i, (entry, n) in enumerate(zip(entries, sizes, strict=True), 1)), "utf-8")
    done = convert(folder, tmp_path / "model.gguf")
    with edgellm.load(done.path, context=64, backend="cpu") as model:
        ids = model.tokenizer.encode("Lily's dog é\n\n’")
        assert ids == [258, 262, 259, 33, 260, 257, 261, 0x99 + 1]
        assert model.tokenizer.decode(ids) == "Lily's dog é\n\n’" and model.tokenizer.eog_ids == {0, 257}
        assert model.tokenizer.decode(model.tokenizer.encode(story_text(2))) == story_text(2)
    assert {finding.status for finding in verify(done.path)} <= {"ok", "skipped"}
    for line in ("300 'a' 1", "1 'a' 2", "1 a 1", "x 'a' 1", "1 " + "(" * 99 + " 1", "1 7 1"):
        path.write_text(line + "\n")
        with pytest.raises(BadVocab, match="line 1"):
            convert(folder, tmp_path / "other.gguf")


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("rwkv7", {"attn": {"layers": [1]}}, "attn"),
        ("rwkv7", {"value_dim": [32, 64]}, "value_dim"),
        ("rwkv6", {"attention_hidden_size": 64}, "attention_hidden_size"),
        ("rwkv6", {"head_size_divisor": 4}, "head_size_divisor"),
        ("rwkv7", {"norm_eps": 1e-5}, "norm_eps"),
        ("bailing_moe_v2", {"architectures": ["BailingMoeForCausalLM"]}, "use_qk_norm"),
        ("bailing_moe_v2", {"norm_head": True}, "norm_head"),
        ("bailing_moe_v2", {"score_function": "softmax"}, "score_function"),
        ("exaone", {"activation_function": "gelu"}, "hidden_act"),
        ("qwen3_vl_moe", {"text_config": {}}, "token_embd"),
        ("internlm2", {"num_attention_heads": 3}, "wqkv|head"),
        ("minicpm", {"num_hidden_layers": "two"}, "minicpm"),
        ("qwen2_vl", {"rope_scaling": {"type": "mrope", "mrope_section": 3}}, "qwen2_vl"),
    ],
)
def test_other_graphs_and_damage_are_refused(tmp_path: Path, kind: str, config: dict[str, Any], field: str) -> None:
    with pytest.raises(EdgeError, match=field):
        convert(write_checkpoint(tmp_path / "hf", kind, **config), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


TEXT = "Lily's dog ran 1234 miles!  Wasn't it GREAT? naïve café 😀\n\n\tThe end."


def trained(pre: str, size: int, special: list[str]) -> tuple[tokenizers.Tokenizer, list[bytes]]:
    """A tokenizer of the tokenizers library that cuts words as `pre`, and the bytes of its tokens behind the special ones."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=PRE_TOKENIZERS[pre].whole_words))
    splits = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(text), "isolated") for text in PRE_TOKENIZERS[pre].expressions]
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*splits, level])
    made.train_from_iterator(
        [story_text(40)],
        tokenizers.trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, show_progress=False, initial_alphabet=level.alphabet()
        ),
    )
    return made, [bytes(BYTE_OF_LETTER[letter] for letter in made.id_to_token(token)) for token in range(len(special), size)]


@pytest.mark.parametrize("listed", [False, True])
def test_tekken(tmp_path: Path, listed: bool) -> None:
    """The ids of the tokenizers library for the same merges; special tokens come first, those that no file names included."""
    n_special, rows, size = 24, 360, 350
    special = [*SPECIAL, *(f"<SPECIAL_{i}>" for i in range(len(SPECIAL), n_special))]
    made, pieces = trained("tekken", size, special)
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
        for rank, piece in enumerate([*pieces, b"beyond the size"])
    ]
    config = {
        "pattern": PRE_TOKENIZERS["tekken"].expressions[0],
        "default_vocab_size": size,
        "default_num_special_tokens": n_special,
    }
    whole: dict[str, Any] = {"config": config, "vocab": vocab}
    if listed:
        whole["special_tokens"] = [{"rank": i, "token_str": text, "is_control": i != 9} for i, text in enumerate(SPECIAL)]
    table = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    folder = write_checkpoint(
        tmp_path / "hf", "mistral", vocab_size=rows, tensors={"model.embed_tokens.weight": table, "lm_head.weight": table}
    )
    (folder / "tekken.json").write_text(json.dumps(whole))
    done = convert(folder, tmp_path / "model.gguf")
    for path in (done.path, folder):  # the file, and the folder as it runs unconverted
        with open_model(path) as opened:
            tokenizer = build_tokenizer(opened.metadata, file=opened.path)
        assert list(tokenizer.encode(TEXT)) == [1, *made.encode(TEXT).ids]
        assert tokenizer.decode(made.encode(TEXT).ids) == TEXT and 2 in tokenizer.eog_ids
        assert tokenizer.token_text(22) == "<SPECIAL_22>"
    with open_gguf(done.path) as gguf:
        assert gguf.metadata["tokenizer.ggml.pre"] == "tekken"
        assert list(gguf.metadata["tokenizer.ggml.token_type"][[9, 23, 24, size]]) == [4 if listed else 3, 3, 1, 5]
    for change, message in (
        ({"vocab": vocab[1:]}, "rank"),
        ({"vocab": [{"rank": 0, "token_bytes": "a"}]}, "base64"),
        ({"vocab": 3}, "no voc"),
        ({"vocab": [7]}, "token_bytes"),
        ({"special_tokens": 3}, "no voc"),
        ({"special_tokens": [{"rank": 24, "token_str": "x"}]}, "token_str"),
        ({"config": config | {"default_vocab_size": 361}}, "360 rows"),
    ):
        (folder / "tekken.json").write_text(json.dumps(whole | change))
        with pytest.raises(BadVocab, match=message):
            convert(folder, tmp_path / "other.gguf")


def test_kimis_list_of_tiktoken(tmp_path: Path) -> None:
    """tiktoken.model alone, with the module of Kimi's that says how words are cut: special tokens lie behind the listed ones."""
    size, rows = 340, 600
    made, pieces = trained("kimi-k2", size, [])
    table = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    folder = write_checkpoint(
        tmp_path / "hf",
        "llama",
        vocab_size=rows,
        eos_token_id=size + 2,
        tensors={"model.embed_tokens.weight": table, "lm_head.weight": table},
    )
    lines = [f"{base64.b64encode(piece).decode()} {rank}" for rank, piece in enumerate(pieces)]
    (folder / "tiktoken.model").write_text("\n".join([*lines, ""]))
    named = {size: ("[BOS]", True), size + 1: ("<|call|>", False), size + 2: ("<|im_end|>", True)}
    settings = {
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "bos_token": "[BOS]",
        "added_tokens_decoder": {str(token): {"content": text, "special": special} for token, (text, special) in named.items()},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    done = convert(folder, tmp_path / "model.gguf")
    for path in (done.path, folder):
        with open_model(path) as opened:
            assert opened.metadata["tokenizer.ggml.pre"] == "kimi-k2"
            types = list(opened.metadata["tokenizer.ggml.token_type"])
            tokenizer = build_tokenizer(opened.metadata, file=opened.path)
        assert list(tokenizer.encode(TEXT + "<|im_end|>", parse_special=True)) == [*made.encode(TEXT).ids, size + 2]
        assert tokenizer.decode(made.encode(TEXT).ids) == TEXT and size + 2 in tokenizer.eog_ids
        assert [types[i] for i in (0, size, size + 1, size + 255, size + 256)] == [1, 3, 4, 3, 5]
        assert tokenizer.token_text(size + 255) == f"<|reserved_token_{size + 255}|>"
    for wrong, message in ((["IQ== 1"], "rank 0"), (["! 0"], "base64"), (lines * 2, "600 rows")):
        (folder / "tiktoken.model").write_text("\n".join(wrong))
        with pytest.raises(BadVocab, match=message):
            convert(folder, tmp_path / "other.gguf")


def test_lists_of_tiktoken(tmp_path: Path) -> None:
    """Beside a tokenizer.json they are not needed; alone they are refused."""
    folder = write_reranker(tmp_path / "hf", "plain")
    (folder / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")
    convert(folder, tmp_path / "model.gguf")
    with open_gguf(tmp_path / "model.gguf") as gguf:
        assert gguf.metadata["tokenizer.ggml.model"] == "gpt2"
    (folder / "tokenizer.json").unlink()
    for name in ("tokenizer.model", "tiktoken.model"):
        (folder / "tokenizer.model").rename(folder / name)
        with pytest.raises(Unsupported, match=f"{name}.*tokenizer.json"):
            convert(folder, tmp_path / "other.gguf")
        (folder / name).rename(folder / "tokenizer.model")
