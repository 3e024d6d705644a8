"""Any tokenizer.json, its steps drawn at random, gives the ids of the tokenizers library or is refused by a sentence."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sentencepiece
import tokenizers
from tokenizers import Regex, models, trainers
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

from edgellm.checkpoints.tokenizer.reader import PREFIX, UNSAID, read_tokenizer
from edgellm.checkpoints.tokenizer.sentencepiece import _fields
from edgellm.errors import Unsupported
from edgellm.tokenizer import build_tokenizer

Tokenizers = tuple[tokenizers.Tokenizer, dict[str, str]]
PARTS = (
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        "a",
        "the",
        "Hello",
        " world",
        "I'm",
        "HE'LL",
        "1234567",
        "3.14",
        "x_y",
        "foo();",
        "//",
    ),
    *(
        "é",
        "e\u0301",
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
        "\u2581",
        "—",
        "\x00",
        "\x7f",
        "\ufffd",
        "Ⅷ",
        "ａｂ",
        "क्षि",
        " <L> ",
        "<R>\n x",
        " word ",
        "s",
        "word",
        "``",
        "''",
    ),
    *("<N>", "N x", "Hi", "tOk", "\u1680", "\x85", "한국어", "가", "…", "$", "+", "|", "~", "="),
)
CORPUS = ["Hello world the quick brown fox jumps over 1234 dogs, it's I'm fine. café 日本語 Привет 😀 foo(); ½ ﬁ "] * 5 + [
    "".join(PARTS)
] * 3
SPACE = "\u2581"
SPACES = n.Replace(" ", SPACE)
RUNS = n.Replace(Regex(" {2,}"), " ")
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


@functools.cache
def charsmap(rule: str) -> Any:
    """A Precompiled normalizer with sentencepiece's own table."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=made,
        vocab_size=120,
        hard_vocab_limit=False,
        normalization_rule_name=rule,
        minloglevel=3,
        model_type="unigram",
    )
    fields: dict[int, Any] = dict(_fields("", made.getvalue()))
    return n.Precompiled(dict(_fields("", fields[3]))[2])


def bert(source: Random) -> Any:
    accents = source.choice([None, True, False])
    clean, chinese, lower = (source.random() < share for share in (0.8, 0.8, 0.5))
    return n.BertNormalizer(clean_text=clean, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower)


def some_normalizers(source: Random) -> list[Any]:
    bank: list[Callable[[], Any]] = [
        *(n.NFC, n.NFKC, n.NFD, n.NFKD, n.Lowercase, n.StripAccents, n.Nmt),
        lambda: n.Strip(source.random() < 0.5, source.random() < 0.5),
        lambda: RUNS,
        lambda: n.Replace("``", '"'),
        lambda: bert(source),
    ]
    return [source.choice(bank)() for _ in range(source.choice([0, 0, 0, 1, 1, 2, 3]))]


def of_bytes(source: Random) -> tuple[Any, Any, Any, list[Any]]:
    last = p.ByteLevel(add_prefix_space=source.random() < 0.3, use_regex=source.random() < 0.6)
    cut = Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    before: list[list[Any]] = [
        *([], [], [p.Digits(True)], [p.Punctuation("contiguous")], [p.WhitespaceSplit()], [p.Whitespace()], [p.Metaspace()]),
        *([p.Split(Regex(r"\p{N}{1,3}"), "isolated")], [p.Split(cut, "isolated")], [p.Split(cut, "removed")]),
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|bos|>", "<|end|>"], initial_alphabet=p.ByteLevel.alphabet(), show_progress=False
    )
    model = models.BPE(ignore_merges=source.random() < 0.3)
    return model, trainer, p.Sequence([*source.choice(before), last]), some_normalizers(source)


def of_spaces(source: Random) -> tuple[Any, Any, Any, list[Any]]:
    before, cut = some_normalizers(source), p.Split(" ", "merged_with_previous")
    cuts, normalizers = source.choice(
        [
            (None, [n.Prepend(SPACE), SPACES]),
            (None, [SPACES]),
            (cut, [SPACES]),
            (p.Metaspace(prepend_scheme=source.choice(["always", "first", "never"]), split=source.random() < 0.5), []),
            (p.Digits(True), []),
            (None, []),
        ]
    )
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|bos|>", "<|end|>", "<unk>", *BYTE_TOKENS], show_progress=False)
    return models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True), trainer, cuts, [*before, *normalizers]


def of_words(source: Random) -> tuple[Any, Any, Any, list[Any]]:
    cuts = source.choice(
        [p.BertPreTokenizer(), p.BertPreTokenizer(), p.Whitespace(), p.Sequence([p.BertPreTokenizer(), p.Digits(True)])]
    )
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    model = models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=source.choice([100, 20]))
    return model, trainer, cuts, [bert(source)] if source.random() < 0.6 else some_normalizers(source)


def of_pieces(source: Random) -> tuple[Any, Any, Any, list[Any]]:
    table = charsmap(source.choice(["nmt_nfkc", "nfkc", "nmt_nfkc_cf"]))
    albert = [n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), table, RUNS]
    trimmed = [table, n.Strip(False, True), n.Replace(Regex(" {2,}"), SPACE)]
    drawn = some_normalizers(source)
    normalizers = source.choice(
        [[table], [table], trimmed, [table, RUNS], [table, RUNS], [n.Strip(), table, RUNS], albert, drawn, drawn]
    )
    words = p.Sequence([p.WhitespaceSplit(), p.Metaspace()])
    schemes = [p.Metaspace(prepend_scheme=scheme) for scheme in ("always", "first", "never")]
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    return (
        models.Unigram(),
        trainer,
        source.choice([words, words, *schemes, p.Sequence([p.Digits(True), p.Metaspace()])]),
        normalizers,
    )


def added(source: Random) -> list[tokenizers.AddedToken]:
    token = functools.partial(tokenizers.AddedToken, normalized=source.random() < 0.5)
    special = tokenizers.AddedToken("<L>", special=True, lstrip=True)
    kinds = [
        special,
        token("<L>", lstrip=True),
        token("<R>", rstrip=True),
        token("word", single_word=True),
        token("<N>"),
        token("tOk"),
    ]
    return [source.choice(kinds)] if source.random() < 0.5 else []


def drawn(seed: int) -> Tokenizers:
    """A tokenizer and the entries of its tokenizer_config.json."""
    source = Random(seed)
    kind = source.choice([of_bytes, of_bytes, of_spaces, of_words, of_pieces])
    model, trainer, cuts, normalizers = kind(source)
    made = tokenizers.Tokenizer(model)
    if normalizers:
        made.normalizer = n.Sequence(normalizers) if len(normalizers) > 1 else normalizers[0]
    if cuts is not None:
        made.pre_tokenizer = cuts
    made.train_from_iterator(CORPUS, trainer)
    whole = json.loads(made.to_str())
    whole["added_tokens"] = whole["added_tokens"][:3]  # bytes are plain tokens
    made = tokenizers.Tokenizer.from_str(json.dumps(whole))
    made.add_tokens(added(source))
    process, begins = tokenizers.processors.TemplateProcessing, source.random() < 0.5
    if kind is of_words:
        made.post_processor = process(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
        return made, {"unk_token": "[UNK]", "sep_token": "[SEP]", "cls_token": "[CLS]"}
    if kind is of_pieces:
        made.post_processor = process(single="<s> $A </s>" if begins else "$A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
        return made, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if begins:
        made.post_processor = process(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    return made, {"bos_token": "<|bos|>", "eos_token": "<|end|>", **({"unk_token": "<unk>"} if kind is of_spaces else {})}


def outcome(folder: Path, seed: int) -> str:
    made, settings = drawn(seed)
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "TokenizersBackend"}))
    config = {"bos_token_id": 0, "eos_token_id": 1} if "<|bos|>" in settings.values() else {}
    try:
        keys, _ = read_tokenizer(str(folder), config, rows=made.get_vocab_size())
        ours = build_tokenizer({"general.architecture": "llama", **keys}, file=folder)
    except Unsupported as error:
        assert "pre_tokenizer" in str(error)
        return "refused"
    source = Random(seed)
    for _ in range(40):
        text = "".join(source.choices(PARTS, k=source.randrange(14)))
        assert ours.encode(text, parse_special=True) == made.encode(text).ids, (seed, text, keys.get(PREFIX + UNSAID))
    return "by the library" if PREFIX + UNSAID in keys else "by edgellm"


@pytest.mark.parametrize(("first", "count"), [(0, 25), pytest.param(1000, 400, marks=pytest.mark.slow)])
def test_drawn_tokenizers(tmp_path: Path, first: int, count: int) -> None:
    outcomes = [outcome(tmp_path / str(seed), seed) for seed in range(first, first + count)]
    assert {"by the library", "by edgellm"} <= {*outcomes} and outcomes.count("refused") < count / 6


def test_a_step_that_gguf_cannot_say_is_named(tmp_path: Path) -> None:
    """Folders run it, conversion is refused; that a text is composed is said by a key."""
    made, _ = drawn(
        next(seed for seed in range(99) if Random(seed).choice([of_bytes, of_bytes, of_spaces, of_words, of_pieces]) is of_bytes)
    )
    for normalizer, said in ((n.Lowercase(), "Lowercase"), (n.Sequence([n.NFC()]), None)):
        made.normalizer = normalizer
        made.save(str(tmp_path / "tokenizer.json"))
        keys, _ = read_tokenizer(str(tmp_path), {}, rows=made.get_vocab_size())
        assert keys.get(PREFIX + UNSAID) == said
        assert keys.get(PREFIX + "normalizer.nfc", False) == (said is None)
