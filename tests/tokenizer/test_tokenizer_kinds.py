"""Unigram, RWKV, PLaMo 2 and whitespace vocabularies: ids by sentencepiece itself or by slow definitions; roles of tokens."""

from __future__ import annotations

import io
import math
import string
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import Clock
from places import TESTS
from test_tokenizer_malformed import with_an_odd_value
from vocabulary_cases import PREFIX, bpe_metadata, spm_metadata, with_tokens

from edgellm.errors import BadVocab
from edgellm.tokenizer import Tokenizer, build_tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁\0"), max_size=40)
SAMPLES = [
    "",
    " ",
    "the world",
    "  The   world's\n\tend ",
    "ﬁne Ⅷ ½ ｆｕｌｌ",
    "naïve café 中文 한국",
    "x\u200by\u00ad",
    "👋🏽",
    "▁a▁",
]


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Protobuf's wire format: numbers of fields, and integers or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint() if key & 7 == 2 else {5: 4, 1: 8}[key & 7]
            yield key >> 3, data[at : at + size]
            at += size


@cache
def trained(**options: Any) -> tuple[Any, dict[str, Any]]:
    """A unigram model of our own prose, and the GGUF keys that a converter writes for it."""
    files = sorted(TESTS.rglob("test_*.py"), key=lambda path: path.name)[:20]
    lines = [line.strip() for path in files for line in path.read_text().splitlines() if line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="unigram",
        vocab_size=600,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    normalizer = dict(next(dict(fields(part)) for number, part in fields(model.getvalue()) if number == 3))
    pieces = range(processor.vocab_size())
    metadata = {
        "model": "t5",
        "tokens": [processor.id_to_piece(i) for i in pieces],
        "eos_token_id": 1,
        "unknown_token_id": 2,
        "scores": np.array([processor.get_score(i) for i in pieces], np.float32),
        "token_type": np.array(
            [3 if processor.is_control(i) else 2 if processor.is_unknown(i) else 6 if processor.is_byte(i) else 1 for i in pieces],
            np.int32,
        ),
        "precompiled_charsmap": np.frombuffer(normalizer.get(2, b""), np.uint8),
        "add_space_prefix": bool(normalizer.get(3, 1)),
        "remove_extra_whitespaces": bool(normalizer.get(4, 1)),
    }
    return processor, {PREFIX + key: value for key, value in metadata.items()}


@pytest.fixture(
    scope="module",
    params=[
        {},
        {"byte_fallback": True, "normalization_rule_name": "identity"},
        {"remove_extra_whitespaces": False},
        {"add_dummy_prefix": False},
    ],
    ids=["plain", "bytes", "spaces", "no-prefix"],
)
def unigram(request: pytest.FixtureRequest) -> tuple[Any, Tokenizer]:
    processor, metadata = trained(**request.param)
    return processor, build_tokenizer(metadata, file="t5")


def test_unigram_ids_are_sentencepieces(unigram: tuple[Any, Tokenizer]) -> None:
    processor, tokenizer = unigram

    @given(TEXTS)
    @settings(max_examples=200, deadline=None)
    def same(text: str) -> None:
        assert tokenizer.encode(text, add_special=False) == processor.encode(text)

    same()
    for text in SAMPLES:
        assert tokenizer.encode(text, add_special=False) == processor.encode(text), text
    assert tokenizer.encode("the")[-1] == tokenizer.eos_id == 1 and not tokenizer.add_bos
    assert tokenizer.decode(tokenizer.encode("the end of it")) == "the end of it"


def test_unigram_replaces_characters_by_the_table() -> None:
    tokenizer = build_tokenizer(trained()[1], file="t5")
    assert tokenizer.decode(tokenizer.encode("ｔｈｅ  ﬁne")) == "the fine"


@pytest.mark.parametrize("damage", ["short", "far child", "far text", "no end", "texts", "floats"])
def test_a_damaged_table_is_refused(damage: str) -> None:
    metadata = trained()[1]
    assert build_tokenizer(metadata, file="t5").encode("the")
    table = metadata[PREFIX + "precompiled_charsmap"].copy()
    size = int.from_bytes(table[:4].tobytes(), "little")
    units = table[4 : 4 + size].view("<u4").copy()
    if damage == "far child":
        units[0] = 0x1FFFFF << 10
    elif damage == "far text":
        units[np.flatnonzero(units >> 31)[0]] = (1 << 31) + len(table)
    table[4 : 4 + size] = units.view(np.uint8)
    wrong: Any = {
        "short": table[: size // 2],
        "no end": np.append(table, np.uint8(65)),
        "texts": "abcd",
        "floats": np.zeros(8, np.float32),
    }.get(damage, table)
    with pytest.raises(BadVocab, match="precompiled_charsmap"):
        build_tokenizer(metadata | {PREFIX + "precompiled_charsmap": wrong}, file="t5")


# --- RWKV -------------------------------------------------------------------------------------------------------------
WORDS = ["the", " the", "th", "e w", "\n\n", "é", "中", "中文", "\\n", "'"]


def literal(data: bytes) -> str:
    return repr(b'"' + data)[3:-1]  # with a double quote in it, Python leaves single ones alone


def rwkv_metadata(**changes: Any) -> dict[str, Any]:
    texts = ["<s>", *(literal(bytes([byte])) for byte in range(256)), *(literal(word.encode()) for word in WORDS)]
    keys = {
        "model": "rwkv",
        "tokens": texts,
        "token_type": [3, *[1] * (len(texts) - 1)],
        "eot_token_id": texts.index(r"\n\n"),
        **changes,
    }
    return {PREFIX + key: value for key, value in keys.items() if value is not None}


@given(TEXTS | st.text("the w\n中文é\\'", max_size=30))
@settings(max_examples=150, deadline=None)
def test_rwkv_takes_the_longest_token(text: str) -> None:
    tokens = {bytes([byte]): byte + 1 for byte in range(256)} | {word.encode(): 257 + i for i, word in enumerate(WORDS)}
    data, at, wanted = text.encode(), 0, []
    while at < len(data):
        longest = max((token for token in tokens if data.startswith(token, at)), key=len)
        wanted.append(tokens[longest])
        at += len(longest)
    tokenizer = build_tokenizer(rwkv_metadata(), file="rwkv")
    assert tokenizer.encode(text) == wanted and tokenizer.decode(wanted) == text


def test_rwkv_ends_with_two_newlines_that_texts_may_have() -> None:
    tokenizer = build_tokenizer(rwkv_metadata(), file="rwkv")
    end = tokenizer.token_id(r"\n\n")
    assert tokenizer.eog_ids == {end} and end in tokenizer.encode("a\n\nb") and tokenizer.decode([end]) == "\n\n"
    assert tokenizer.encode("<s>a", parse_special=True) == [0, ord("a") + 1] and 0 not in tokenizer.encode("<s>a")


def test_rwkv_without_some_bytes_or_all() -> None:
    tokenizer = build_tokenizer(rwkv_metadata(tokens=["<s>", "a"], token_type=[3, 1], eot_token_id=None), file="rwkv")
    assert tokenizer.encode("aéa") == [1, 1]
    with pytest.raises(BadVocab, match="no token that stands for text"):
        build_tokenizer(rwkv_metadata(tokens=["<s>"], token_type=[3], eot_token_id=None), file="rwkv")


# --- PLaMo 2 ----------------------------------------------------------------------------------------------------------
PIECES = {"a": -3.0, "b": -3.0, "ab": -4.5, "abc": -9.0, "bc": -4.0, "c": -2.5, "中文": -5.0, " ": -1.0, "the": -2.0, "cat": 0.5}


def plamo2_metadata(**changes: Any) -> dict[str, Any]:
    control = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"]
    texts = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    keys = {
        "model": "plamo2",
        "tokens": texts,
        "scores": [0.0] * 260 + list(PIECES.values()),
        "token_type": [2, 3, 3, 3] + [6] * 256 + [1] * len(PIECES),
        "add_bos_token": True,
        **changes,
    }
    return {PREFIX + key: value for key, value in keys.items()}


def slow_plamo2(text: str) -> float:
    """The least cost of a cut, by trying all."""
    best = [math.inf] * len(text) + [0.0]
    for at in reversed(range(len(text))):
        best[at] = min([1e7 + best[at + 1], *(best[at + len(p)] - 1e4 * s for p, s in PIECES.items() if text.startswith(p, at))])
    return best[0]


@given(st.text("abc the中文é", max_size=16))
@settings(max_examples=150, deadline=None)
def test_plamo2_finds_the_best_cut(text: str) -> None:
    tokenizer = build_tokenizer(plamo2_metadata(), file="plamo2")
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids) == text
    pieces = [tokenizer.token_text(i) for i in ids]
    characters = sum(piece.startswith("<0x") and not 0x80 <= int(piece[3:5], 16) < 0xC0 for piece in pieces)
    assert sum(-1e4 * PIECES.get(piece, 0) for piece in pieces) + 1e7 * characters == pytest.approx(slow_plamo2(text))


def test_plamo2_prefers_longer_first_tokens_and_drops_a_byte_order_mark() -> None:
    tokenizer = build_tokenizer(plamo2_metadata(), file="plamo2")
    pieces = [tokenizer.token_text(i) for i in tokenizer.encode("\ufeffabc é")]
    assert pieces == ["<|plamo:bos|>", "ab", "c", " ", "<0xC3>", "<0xA9>"]
    metadata = plamo2_metadata(token_type=[2, 3, 3, 3] + [6] * 65 + [1] + [6] * 190 + [1] * len(PIECES))
    metadata[PREFIX + "tokens"][4 + 0x41] = "zz"
    with pytest.raises(BadVocab, match="no token <0x41>"):
        build_tokenizer(metadata, file="x")


# --- white space parts words ------------------------------------------------------------------------------------------
def test_words_between_white_space() -> None:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *string.ascii_letters, "中", "文", "ab", "中文"]
    metadata = {
        PREFIX + key: value
        for key, value in {
            "model": "whitespace",
            "pre": "whitespace",
            "tokens": tokens,
            "token_type": [3] * 4 + [1] * (len(tokens) - 4),
            "merges": ["a b", "中 文"],
            "unknown_token_id": 3,
            "bos_token_id": 0,
            "eos_token_id": 2,
        }.items()
    }
    tokenizer = build_tokenizer(metadata, file="x")
    assert [tokenizer.token_text(i) for i in tokenizer.encode(" abA \n中文\t文!")] == ["ab", "A", "中文", "文", "<unk>"]
    lower = build_tokenizer(metadata | {PREFIX + "normalizer.lowercase": True}, file="x")
    assert [lower.token_text(i) for i in lower.encode("ABa")] == ["ab", "a"]
    assert tokenizer.decode(tokenizer.encode("中文 ab")) == "中文ab"


# --- roles ------------------------------------------------------------------------------------------------------------
def test_fill_in_tokens_by_text_and_by_key() -> None:
    metadata = with_tokens(bpe_metadata(), ("<|fim_prefix|>", 3), ("<|fim_suffix|>", 4), ("<|fim_middle|>", 3), ("<hole>", 3))
    tokenizer = build_tokenizer(metadata, file="x")
    assert {role: tokenizer.token_text(token) for role, token in tokenizer.fill_in_ids.items()} == {
        "prefix": "<|fim_prefix|>",
        "suffix": "<|fim_suffix|>",
        "middle": "<|fim_middle|>",
    }
    hole = tokenizer.token_id("<hole>")
    for key in ("fim_suf_token_id", "suffix_token_id"):
        assert build_tokenizer(metadata | {PREFIX + key: hole}, file="x").fill_in_ids["suffix"] == hole
    assert not build_tokenizer(spm_metadata(), file="x").fill_in_ids
    with pytest.raises(BadVocab, match="fim_pre_token_id"):
        build_tokenizer(metadata | {PREFIX + "fim_pre_token_id": 1 << 20}, file="x")


def test_suppressed_tokens() -> None:
    listed = np.array([3, 5, -1, 1 << 20], np.int32)
    assert build_tokenizer(bpe_metadata(suppress_tokens=listed), file="x").suppressed_ids == {3, 5}
    assert build_tokenizer(bpe_metadata(suppress_tokens=[7]), file="x").suppressed_ids == {7}
    assert not build_tokenizer(bpe_metadata(), file="x").suppressed_ids
    for wrong in ("3", [1.5], [True]):
        with pytest.raises(BadVocab, match="suppress_tokens"):
            build_tokenizer(bpe_metadata(suppress_tokens=wrong), file="x")


@pytest.mark.parametrize("make", [lambda: dict(trained()[1]), rwkv_metadata, plamo2_metadata], ids=["t5", "rwkv", "plamo2"])
@given(st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore::edgellm.tokenizer.UnknownPreTokenizer")
def test_any_value_of_any_key_is_used_or_refused(make: Any, data: st.DataObject) -> None:
    with_an_odd_value(make(), data)


@pytest.mark.parametrize("unit", ["a", " ", "é", "abc ", "\n", "'s"])
def test_time_grows_with_the_length(unit: str) -> None:
    text = unit * ((1 << 17) // len(unit))
    for metadata in (trained()[1], rwkv_metadata(), plamo2_metadata()):
        clock = Clock()
        build_tokenizer(metadata, file="x").encode(text)
        assert clock.seconds() < 3
