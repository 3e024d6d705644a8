"""Folders that run as they are and the files converted from them give the ids of the tokenizers library, whatever their type."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import tokenizers
from hf_checkpoints import LAYOUTS, names_of, tensors_of, write_checkpoint
from story_text import story_text
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

import edgellm
from edgellm.checkpoints.folder import open_mlx_folder
from edgellm.checkpoints.opening import open_model
from edgellm.errors import Unsupported
from edgellm.tokenizer import build_tokenizer
from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgellm.tools.convert import convert

TEXTS = (
    "Hello world",
    "It's 1234567 tests",
    "HE'LL go",
    "x.y();//z",
    "  two  spaces\n\n x",
    "naïve café 😀\t日本語 ﬁne\r\n",
    "",
    "a" * 150,
)
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
SMOL = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
UNNAMED = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[aeiou]+|[^aeiou\s]+|\s+"), "isolated"), BYTES])
PUNCTUATED = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.ByteLevel()])


PARTS = (
    *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "a", "the", "Hello", " world", "I'm", "HE'LL", "1234567", "3.14", "x_y", "foo();"),
    *(
        "//",
        "é",
        "café",
        "日本語",
        "Привет",
        "مرحبا",
        "😀",
        "👩\u200d👧",
        "🇩🇪",
        "ﬁ",
        "½",
        "\xa0",
        "\u2003",
        "\u200b",
        "\u0301",
        "İ",
        "ß",
    ),
    *(
        "<|bos|>",
        "<|end|>",
        "\u2581",
        "—",
        "_",
        "\x00",
        "\x7f",
        "\ufffd",
        "Ⅷ",
        "ａｂ",
        "क्षि",
        "\U0010ffff",
        " <L> ",
        "<R>\n x",
        " word ",
        "s",
    ),
)


def random_texts(name: str, count: int = 40) -> list[str]:
    source = Random(name)
    return ["".join(source.choices(PARTS, k=source.randrange(14))) for _ in range(count)]


def row(name: str) -> Any:
    return pre_tokenizers.Sequence(
        [*(pre_tokenizers.Split(Regex(text), "isolated") for text in PRE_TOKENIZERS[name].expressions), BYTES]
    )


# Model type, cuts, whether BOS is written, whether a word that is a token stays one, whether GGUF has a name for the cuts.
CASES: dict[str, tuple[str, Any, bool, bool, bool]] = {
    "llama 3": ("llama", row("llama-bpe"), True, True, True),
    "SmolLM2": ("llama", SMOL, False, False, True),
    "SmolLM3": ("smollm3", row("dbrx"), False, False, True),
    "OLMo 2": ("olmo2", row("dbrx"), False, False, True),
    "GLM-4": ("glm4", row("glm4"), False, True, True),
    "EXAONE 4": ("exaone4", row("dbrx"), False, False, True),
    "AFM": ("arcee", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), BYTES]), True, False, True),
    "Mistral": ("mistral", row("tekken"), True, True, True),
    "Qwen": ("qwen3", row("qwen2"), False, False, True),
    "phi 3": ("phi3", row("gpt-4o"), False, False, True),
    "GPT-2": ("gpt2", GPT2, False, False, True),
    "DeepSeek": ("qwen2", row("deepseek-v3"), True, False, True),
    "Bloom": ("bloom", row("bloom"), False, False, True),
    "tomorrow's": ("qwen2", UNNAMED, True, False, False),
    "tomorrow's, of words that stay": ("llama", UNNAMED, False, True, False),
    "tomorrow's, without an expression": ("olmo2", PUNCTUATED, False, False, False),
}


def trained(cuts: Any, bos: bool, whole_words: bool) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=whole_words))
    made.pre_tokenizer, made.decoder = cuts, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [story_text(40), *TEXTS * 9],
        trainers.BpeTrainer(vocab_size=400, special_tokens=["<|bos|>", "<|end|>"], initial_alphabet=alphabet, show_progress=False),
    )
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    return made


def folder_of(place: Path, kind: str, made: tokenizers.Tokenizer, **settings: Any) -> Path:
    """A checkpoint of the type `kind` with as many rows as the tokenizer has tokens."""
    rows, old = made.get_vocab_size(), LAYOUTS[kind]["config"].get("vocab_size", 64)
    tables = {
        name: np.random.default_rng(0).standard_normal((rows, *shape[1:])).astype(np.float32)
        for name, shape in names_of(LAYOUTS[kind]["tensors"]).items()
        if shape[0] == old and any(part in name for part in ("embed", "lm_head", "wte.weight"))
    }
    assert tables and tables.keys() <= tensors_of(kind).keys()
    folder = write_checkpoint(place, kind, tensors=tables, vocab_size=rows, bos_token_id=0, eos_token_id=1)
    made.save(str(folder / "tokenizer.json"))
    usual = {"bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "TokenizersBackend"}
    (folder / "tokenizer_config.json").write_text(json.dumps(usual | settings))
    return folder


def ids(path: str | Path, text: str) -> list[int]:
    with open_model(path) as opened:
        return list(build_tokenizer(opened.metadata, file=path).encode(text, add_special=True))


def all_ids(path: str | Path, texts: Sequence[str]) -> list[list[int]]:
    """With special tokens in the texts as such, as tokenizers reads them."""
    with open_model(path) as opened:
        tokenizer = build_tokenizer(opened.metadata, file=path)
        return [tokenizer.encode(text, add_special=True, parse_special=True) for text in texts]


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_tokenizers(tmp_path: Path, name: str) -> None:
    kind, cuts, bos, whole_words, named = CASES[name]
    made = trained(cuts, bos, whole_words)
    folder = folder_of(tmp_path / "hf", kind, made)
    places: list[str | Path] = [folder]
    if named:
        places.append(convert(folder, tmp_path / "model.gguf").path)
    else:
        with pytest.raises(Unsupported, match="--pre"):
            convert(folder, tmp_path / "model.gguf")
    texts = [*TEXTS, *random_texts(name)]
    for place in places:
        assert all_ids(place, texts) == [made.encode(text).ids for text in texts], place


def test_a_folder_answers_with_the_ids_of_its_own_cuts(tmp_path: Path) -> None:
    """Through a loaded model, several texts at a time, with tokens that are not cut."""
    made = trained(UNNAMED, True, False)
    with edgellm.load(folder_of(tmp_path / "hf", "qwen2", made), context=64, backend="cpu", threads=1) as model:
        assert [model.tokenizer.encode(text, add_special=True) for text in TEXTS] == [made.encode(text).ids for text in TEXTS]
        assert model.tokenizer.decode(made.encode(TEXTS[5]).ids) == TEXTS[5]
        assert model.tokenizer.encode("a<|end|>b", parse_special=True, add_special=True) == made.encode("a<|end|>b").ids


SPACES = normalizers.Replace(" ", "\u2581")


def normalised(made: tokenizers.Tokenizer, normalizer: Any) -> tokenizers.Tokenizer:
    made.normalizer = normalizer
    return made


def word_pieces() -> tokenizers.Tokenizer:
    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator([story_text(60), *TEXTS * 9], vocab_size=300, show_progress=False)
    around = [(text, made.token_to_id(text)) for text in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return made


def unigram() -> tokenizers.Tokenizer:
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((letter, -9.0) for letter in sorted(set("".join(TEXTS)) - {" "}))]
    made = tokenizers.Tokenizer(models.Unigram([*pieces, ("\u2581", -3.0), ("\u2581world", -1.0)], unk_id=2))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens(["<s>", "</s>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return made


def visible_spaces() -> tokenizers.Tokenizer:
    texts = ["<|bos|>", "<|end|>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"Helowrd", "ll", "\u2581w"]
    merges = [("l", "l"), ("\u2581", "w")]
    vocab = {text: i for i, text in enumerate(texts)}
    made = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.add_special_tokens(["<|bos|>", "<|end|>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    return made


@pytest.mark.parametrize(
    ("kind", "make", "roles"),
    [
        ("bert", word_pieces, {"unk": "[UNK]", "sep": "[SEP]", "cls": "[CLS]", "bos": None, "eos": None}),
        ("xlm-roberta", unigram, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}),
        ("llama", visible_spaces, {"unk": "<unk>"}),
    ],
)
def test_other_vocabularies(tmp_path: Path, kind: str, make: Any, roles: dict[str, str | None]) -> None:
    made = make()
    folder = folder_of(tmp_path / "hf", kind, made, **{f"{role}_token": text for role, text in roles.items()})
    texts = [*TEXTS, " Hello", "  Hello world", " ", "   ", "\u2581Hello"]
    for place in (folder, convert(folder, tmp_path / "model.gguf").path):
        assert [ids(place, text) for text in texts] == [made.encode(text).ids for text in texts], place


def letters(cuts: Any = None, normalizer: Any = None) -> tokenizers.Tokenizer:
    """Merges of letters and visible spaces, and bytes for all else."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if cuts is not None:
        made.pre_tokenizer = cuts
    if normalizer is not None:
        made.normalizer = normalizer
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<|bos|>", "<|end|>", "<unk>", *byte_tokens], show_progress=False)
    made.train_from_iterator([story_text(40), *TEXTS * 9], trainer)
    whole = json.loads(made.to_str())
    whole["added_tokens"] = whole["added_tokens"][:3]  # bytes are plain tokens
    made = tokenizers.Tokenizer.from_str(json.dumps(whole))
    made.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    return made


def bert(cuts: Any, normalizer: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizer, cuts
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    made.train_from_iterator([story_text(40), *TEXTS * 9], trainer)
    around = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return made


def begun(made: tokenizers.Tokenizer, single: str) -> tokenizers.Tokenizer:
    """Several tokens around a text, as GLM 4 has them."""
    made.add_special_tokens(["[gMASK]", "<sop>"])
    named = [(text, made.token_to_id(text)) for text in ("[gMASK]", "<sop>", "<|bos|>")]
    made.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=single, special_tokens=named)]
    )
    return made


def with_added(made: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Tokens that swallow the white space around them, and one that is a word by itself."""
    left = tokenizers.AddedToken("<L>", special=True, lstrip=True)
    right = tokenizers.AddedToken("<R>", special=True, rstrip=True)
    made.add_tokens([left, right, tokenizers.AddedToken("word", single_word=True, normalized=False)])
    return made


SPACED, LETTERS = pre_tokenizers.Metaspace, {"unk": "<unk>"}
PIECES = {"unk": "[UNK]", "sep": "[SEP]", "cls": "[CLS]", "bos": None, "eos": None}
KINDS: dict[str, tuple[str, Any, dict[str, str | None]]] = {
    **{
        f"Metaspace, {scheme}, {split}": (
            "llama",
            lambda scheme=scheme, split=split: letters(SPACED(prepend_scheme=scheme, split=split)),
            LETTERS,
        )
        for scheme in ("always", "first", "never")
        for split in (True, False)
    },
    "Prepend": ("llama", lambda: letters(None, normalizers.Sequence([normalizers.Prepend("\u2581"), SPACES])), LETTERS),
    "Gemma": ("gemma", lambda: letters(pre_tokenizers.Split(" ", "merged_with_previous"), SPACES), LETTERS),
    "added to bytes": ("llama", lambda: with_added(trained(row("llama-bpe"), True, True)), {}),
    "added to letters": ("llama", lambda: with_added(letters(SPACED(prepend_scheme="first"))), LETTERS),
    **{
        f"{single}, {'BOS' if bos else 'no BOS'}": (
            "glm4" if "gMASK" in single else "llama",
            lambda single=single: begun(trained(row("glm4"), False, False), single),
            {"bos": bos},
        )
        for single in ("[gMASK] <sop> $A", "<|bos|> <sop> $A")
        for bos in ("<|bos|>", None)
    },
    "NFC": ("qwen3", lambda: normalised(trained(row("qwen2"), False, False), normalizers.NFC()), {}),
    **{
        f"BERT {settings}": (
            "bert",
            lambda settings=settings: bert(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(**settings)),
            PIECES,
        )
        for settings in ({"lowercase": True}, {"lowercase": False}, {"lowercase": False, "strip_accents": True})
    },
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_tokenizers_on_random_texts(tmp_path: Path, name: str) -> None:
    kind, make, roles = KINDS[name]
    made = make()
    folder = folder_of(tmp_path / "hf", kind, made, **{f"{role}_token": text for role, text in roles.items()})
    texts = [*TEXTS, *random_texts(name, 60), " Hello", "  Hello", " ", "\u2581Hello"]
    texts += ["<|end|>the", "a word.", "a <L> b <R>  c", *(["word sword word."] if name == "added to bytes" else [])]
    for place in (folder, convert(folder, tmp_path / "model.gguf").path):
        assert all_ids(place, texts) == [made.encode(text).ids for text in texts], place


@pytest.mark.parametrize("longest", [100, 20])
def test_a_long_word_is_one_unknown_token(tmp_path: Path, longest: int) -> None:
    made = word_pieces()
    folder = folder_of(tmp_path / "hf", "bert", made, unk_token="[UNK]", sep_token="[SEP]", cls_token="[CLS]")
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["model"]["max_input_chars_per_word"] = longest
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    made = tokenizers.Tokenizer.from_str(json.dumps(whole))
    texts = ["a" * n + " cat" for n in (1, 19, 20, 21, 99, 100, 101, 5000)]
    for place in (folder, convert(folder, tmp_path / "model.gguf").path):
        assert [ids(place, text) for text in texts] == [made.encode(text).ids for text in texts]
    assert made.encode("a" * (longest + 1)).ids[1:-1] == [made.token_to_id("[UNK]")]


@pytest.mark.parametrize(
    "expression",
    [r"(a+)+$", r"(?:a|a)+!", r"(?:\p{L}|\w)*!", r"(\s*\w*\s*)*x", r"a*a*a*!", r"(a)\1", r"[a", "(" * 99 + ")" * 99, "a" * 9999],
)
def test_expressions_that_may_take_for_ever_are_refused(tmp_path: Path, expression: str) -> None:
    """By the sentence that says so, at once: nothing is matched with them, neither when loading nor when converting."""
    made = trained(UNNAMED, False, False)
    folder = folder_of(tmp_path / "hf", "qwen2", made)
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace(json.dumps(r"[aeiou]+|[^aeiou\s]+|\s+"), json.dumps(expression)))
    start = time.process_time()
    with pytest.raises(Unsupported, match="cuts words in a way"):
        convert(folder, tmp_path / "model.gguf")
    assert time.process_time() - start < 5
    with edgellm.load(folder, context=64, backend="cpu", threads=1) as model:
        start = time.process_time()
        with pytest.raises(Unsupported, match="cuts words in a way"):
            model.generate("a" * 60 + "!", max_tokens=1)
        assert time.process_time() - start < 5
        assert model.logits([3, 5]).shape[0] == 2  # it takes ids
    with open_mlx_folder(folder, pre="gpt-2") as opened:
        assert build_tokenizer(opened.metadata, file=folder).encode("a b")
