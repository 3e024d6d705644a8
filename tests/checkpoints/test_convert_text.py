"""`convert`: tokenizers with visible spaces, ends of answers, chat templates and names."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hf_checkpoints import write_checkpoint
from tokenizer_folders import byte_level, with_vocabulary

import edgellm
from edgellm.checkpoints.config import folder_name
from edgellm.errors import Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.tools.convert import convert

TEXT = "Lily's dog ran 1234 miles!  Wasn't it GREAT? naïve café 😀\n\n\tThe end, 10:45."


def test_the_tokenizer_of_gemma_4(tmp_path: Path) -> None:
    """Merges over visible spaces and letters keep the name that llama.cpp has for them; tokens that parsers read are text."""
    folder = write_checkpoint(tmp_path / "hf", "gemma4_text")
    texts = ["<pad>", "<eos>", "<bos>", "<unk>", "<|channel>", "<turn|>", "<0xC3>", "<0xA9>", "▁", "a", "b", "ab", "▁ab"]
    added = [{"id": index, "content": text, "special": True} for index, text in enumerate(texts[:6])]
    model = {
        "type": "BPE",
        "byte_fallback": True,
        "unk_token": "<unk>",
        "vocab": {text: index for index, text in enumerate(texts)},
        "merges": [["a", "b"], ["▁", "ab"]],
    }
    whole = {"model": model, "added_tokens": added, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>"}))
    done = convert(folder, tmp_path / "model.gguf")
    with open_gguf(done.path) as gguf:
        assert gguf.metadata["tokenizer.ggml.model"] == "gemma4" and gguf.metadata["tokenizer.ggml.merges"][0] == "a b"
        assert list(gguf.metadata["tokenizer.ggml.token_type"][:8]) == [3, 3, 3, 3, 4, 3, 6, 6]
    with edgellm.load(done.path, context=64, backend="cpu") as loaded:
        assert list(loaded.tokenizer.encode("ab ab é")) == [2, 11, 12, 8, 6, 7]


VISIBLE = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "ab", "\u2581ab", "<|user|>"]


def visible_spaces(folder: Path, *, around: str = "", first: str = "<s>", **settings: Any) -> Path:
    """A folder whose tokenizer.json joins visible spaces and letters; `around`: the template of its post-processor."""
    vocab = {text: index for index, text in enumerate(VISIBLE)}
    added = [{"id": index, "content": VISIBLE[index], "special": True} for index in (0, 1, 2, len(VISIBLE) - 1)]
    pieces = [
        {"SpecialToken": {"id": text, "type_id": 0}} if "$" not in text else {"Sequence": {"id": "A", "type_id": 0}}
        for text in around.split()
    ]
    whole = {
        "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": vocab, "merges": ["a b", "\u2581 ab"]},
        "added_tokens": [*added, {"id": len(VISIBLE), "content": "<image>", "special": True}],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "post_processor": {"type": "TemplateProcessing", "single": pieces} if around else None,
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"} | settings))
    return folder


@pytest.mark.parametrize(
    ("around", "settings", "wanted"),
    [
        ("", {}, [1, 262]),
        ("", {"tokenizer_class": "TokenizersBackend"}, [262]),
        ("<s> $A", {}, [1, 262]),
        ("$A", {}, [262]),
        ("<s> $A </s>", {}, [1, 262, 2]),
        ("$A </s>", {}, [262, 2]),
        ("$A", {"add_bos_token": True}, [1, 262]),
        ("<s> $A", {"add_eos_token": True}, [1, 262, 2]),
    ],
)
def test_what_visible_spaces_get_around_them(tmp_path: Path, around: str, settings: dict[str, Any], wanted: list[int]) -> None:
    """By the post-processor, where tokenizer_config.json does not say it; an added token without a row of the embedding is none."""
    folder = visible_spaces(with_vocabulary(tmp_path / "hf", "llama", len(VISIBLE)), around=around, **settings)
    done = convert(folder, tmp_path / "model.gguf")
    with edgellm.load(done.path, threads=1, backend="cpu") as model:
        assert model.tokenizer.encode("ab", add_special=True) == wanted


@pytest.mark.parametrize("place", ["generation_config.json", "config.json"])
def test_every_end_of_an_answer(tmp_path: Path, place: str) -> None:
    """GGUF has roles for three; tokenizer_config.json names the first."""
    texts = ["<|endoftext|>", "<|user|>", "<|observation|>"]
    folder = with_vocabulary(tmp_path / "hf", "qwen2", 340, **({"eos_token_id": [0, 1, 2, 1]} if place == "config.json" else {}))
    byte_level(None, special=tuple(texts), rows=330).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": texts[0]}))
    if place != "config.json":
        (folder / place).write_text(json.dumps({"eos_token_id": [0, 1, 2, 1]}))
    done = convert(folder, tmp_path / "model.gguf")
    with edgellm.load(done.path, threads=1, backend="cpu") as model:
        assert model.tokenizer.eog_ids == {0, 1, 2}
    with open_gguf(done.path) as gguf:
        assert [gguf.metadata[f"tokenizer.ggml.{role}_token_id"] for role in ("eos", "eot", "eom")] == [0, 1, 2]


def test_chat_templates_in_files_of_their_own(tmp_path: Path) -> None:
    folder = visible_spaces(with_vocabulary(tmp_path / "hf", "llama", len(VISIBLE)))

    def found() -> dict[str, Any]:
        with open_gguf(convert(folder, tmp_path / "model.gguf").path) as gguf:
            return {
                key.removeprefix("tokenizer.chat_template"): value if isinstance(value, str) else list(value)
                for key, value in gguf.metadata.items()
                if key.startswith("tokenizer.chat_template")
            }

    assert found() == {}
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert found() == {"": "{{ messages }}"}
    (folder / "chat_template.jinja").write_text("{{ messages[0] }}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool-use.jinja").write_text("{{ tools }}")
    assert found() == {"": "{{ messages[0] }}", ".tool_use": "{{ tools }}", "s": ["tool_use"]}


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("hub/models--org--Phi-3-mini/snapshots/0123456789abcdef", "Phi-3-mini"),
        ("models/snapshots/Phi-3", "Phi-3"),
        ("models--gpt2/snapshots/0123/", "gpt2"),
        (r"C:\models\Phi-3", "Phi-3"),
    ],
)
def test_names_of_models(place: str, name: str) -> None:
    """In the hub's cache a folder has the name of a commit."""
    assert folder_name(place) == name


def test_the_template_of_a_folder_without_tokenizer_json(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "hf", "llama")
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab", "ba"]),
        model_writer=proto,
        vocab_size=8,
        minloglevel=2,
        model_type="bpe",
        normalization_rule_name="identity",
        hard_vocab_limit=False,
    )
    (folder / "tokenizer.model").write_bytes(proto.getvalue())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    with open_gguf(convert(folder, tmp_path / "model.gguf").path) as gguf:
        assert gguf.metadata["tokenizer.chat_template"] == "{{ messages }}"


def test_normalizers_that_gguf_cannot_say_are_named(tmp_path: Path) -> None:
    made = byte_level(None, special=("<|end|>",), rows=330)
    folder = with_vocabulary(tmp_path / "hf", "qwen2", 330)
    made.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFC()])
    made.save(str(folder / "tokenizer.json"))
    assert not convert(folder, tmp_path / "model.gguf").notes
    with edgellm.load(tmp_path / "model.gguf", threads=1, backend="cpu") as model:
        assert model.tokenizer.encode("cafe\u0301") == model.tokenizer.encode("caf\xe9") == made.encode("cafe\u0301").ids
    made.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFC(), tokenizers.normalizers.Lowercase()])
    made.save(str(folder / "tokenizer.json"))
    with pytest.raises(Unsupported, match=r"tokenizer.json has Lowercase, which GGUF has no keys for; .* --pre"):
        convert(folder, tmp_path / "model.gguf")
    assert any("(Lowercase)" in note for note in convert(folder, tmp_path / "model.gguf", pre="gpt-2").notes)
