"""Words cut by Python's `re` are those that Oniguruma cuts by the published expressions, of every pre-tokenizer and any text."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest
import tokenizers
from tokenizers import pre_tokenizers

from edgellm.tokenizer import word_cuts
from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgellm.tokenizer.word_cuts import TOKEN, WordCutter, outside

ROWS = {row: name for name, row in reversed(PRE_TOKENIZERS.items()) if not row.drops_spaces}
LETTERS = [
    *map(chr, range(128)),
    *"éÉßǅʰªاहि한中文々〇一龥ぁゟ゠ヿ、。！～‘‟",
    *"　 \u2028\u00a0\u0085\u200b\u200d\u0301٣Ⅷ½𝟘👋🏽€«เ຀ကᄀㄅㄱ…—，۔𐐀Ǆ\ufffd\x80\x81\x82ÿ",
]
SHAPES = ("he's I'LL ", "  \n\n  x", "\t\r\n", "1234567 ", "IMGIMGABZ", "<sentinel:12>", "don't!\n", "ab/cd ", "中文，한국 ")


@cache
def published(expressions: tuple[str, ...]) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(expression), "isolated") for expression in expressions])


def oniguruma(expressions: tuple[str, ...], text: str) -> list[str]:
    return [word for word, _ in published(expressions).pre_tokenize_str(text)]


def words(cutter: WordCutter, text: str) -> list[str]:
    return [word for batch in cutter.words([text]) for word in batch]


def some_text(source: random.Random) -> str:
    kinds = (LETTERS, source.sample(LETTERS, 4), SHAPES, [chr(source.randrange(0xE000, 0x110000)) for _ in range(9)])
    return "".join("".join(source.choices(source.choice(kinds), k=source.randrange(1, 20))) for _ in range(source.randrange(1, 5)))


@pytest.mark.parametrize("row", ROWS, ids=ROWS.values())
def test_words_are_those_of_oniguruma(row) -> None:
    source, cutter = random.Random(1), WordCutter(row.expressions)
    for _ in range(150):
        text = some_text(source)
        assert words(cutter, text) == oniguruma(row.expressions, text)


def test_long_texts_are_cut_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cuts, "AT_ONCE", 7)
    source = random.Random(2)
    for row in ROWS:
        cutter, text = WordCutter(row.expressions), "".join(some_text(source) for _ in range(6))
        assert words(cutter, text) == oniguruma(row.expressions, text)


def test_characters_are_learnt_as_they_come() -> None:
    row = PRE_TOKENIZERS["qwen2"]
    cutter = WordCutter(row.expressions)
    for text in ("ab1", "éa ü١", "éa ü中文字한한글 x٣٤٥", "中文", "\x80\x81a\x80"):
        assert words(cutter, text) == oniguruma(row.expressions, text)


@pytest.mark.parametrize("row", ROWS, ids=ROWS.values())
def test_several_texts_are_cut_each_by_itself(row) -> None:
    source, cutter = random.Random(3), WordCutter(row.expressions)
    for texts in (["a\x81b", "c"], ["a", "b", "c"], *([some_text(source) for _ in range(30)] for _ in range(3))):
        expected = [word for text in texts for word in ["", *oniguruma(row.expressions, text)]]
        assert [word for batch in cutter.words(texts) for word in batch] == expected[1:]


def test_pieces_that_come_again_are_cut_once() -> None:
    text = "x1, y22\n" * 500 + "é中1'll \n" * 300
    for row in ROWS:
        assert words(WordCutter(row.expressions), text) == oniguruma(row.expressions, text)


def test_every_part_of_the_expressions_is_understood() -> None:
    for row in ROWS:
        for expression in row.expressions:
            parts = [token for token in TOKEN.finditer(expression) if not token.lastgroup]
            assert all(re.fullmatch(r"[\x20-\x7e\n]|\\[^A-Za-z]", part[0]) for part in parts), expression


def test_oniguruma_says_what_is_in_a_set() -> None:
    assert outside(r"\p{L}", "1aé中👋") == "1👋" and outside(r"\s", "\x1c \u3000") == "\x1c"
