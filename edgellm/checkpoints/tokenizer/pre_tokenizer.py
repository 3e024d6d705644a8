"""Recognises how a tokenizer.json cuts words: by what it does to a probing text, beside each way that GGUF has a name for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

# Runs of digits, contractions, capitals within words, signs before line ends and slashes, blanks, scripts that rows treat apart.
PROBE = (
    "Hello, world! It's I'm WE'LL don't 'Tis it'stis 1 12 123 1234 12345678 1,234.5 x86 v2.0 camelCaseWord HTTPServer a_b c/d\n"
    "e//f g.h foo!\n\n  bar?/\r\n\tbaz  \n   qux   \n\n\n(see <tag> [x] {y} a|b c~d e^f g$h i`j `k` k+l m=n #o @p) ...--- !!!\n"
    "naïve café Ünïcödé Straße ÀÉÎ ñandú e\u0301te\u0301 Ελληνικά русский عربى हिन्दी ไทย 中文字符 日本語のテキスト カタカナ 한국어 "
    "ㄅㄆ ①② ½ Ⅷ ٣٤٥ 👍🏽 😀😀 ‘quoted’ “double” – — … ！？，。、 ￥ € © µ ª ǅ ʰ ₂ IMGIMGABCZ <sentinel:3>    four     five\u00a0"
    "nbsp\u2003em  end "
)
COMMON = ("llama-bpe", "qwen2", "gpt-2", "tekken", "gpt-4o", "dbrx", "smollm", "deepseek-v3")  # names to prefer among equals


def recognise(tokenizer: Mapping[str, Any], hint: str = "") -> str | None:  # Any: parsed JSON
    """GGUF's name for the cuts of a parsed tokenizer.json, `hint` where it fits; None where there is no name for them."""
    from tokenizers import Tokenizer

    settings, model = tokenizer.get("pre_tokenizer"), tokenizer.get("model")
    whole_words = isinstance(model, Mapping) and bool(model.get("ignore_merges"))
    bare = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": settings}
    try:
        cuts = Tokenizer.from_str(json.dumps(bare)).pre_tokenizer
    except Exception:  # it raises no narrower class for settings that it does not know
        return None
    if cuts is None:
        return None
    pieces = _pieces(cuts)
    for name in (hint, *COMMON, *PRE_TOKENIZERS):
        row = PRE_TOKENIZERS.get(name)
        if row is not None and not row.visible_spaces and row.whole_words == whole_words and _of_row(row) == pieces:
            return name
    return None


@cache
def _of_row(row: PreTokenizer) -> tuple[str, ...]:
    from tokenizers import Regex, pre_tokenizers

    splits: list[Any] = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in row.expressions]
    return _pieces(pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def _pieces(cuts: pre_tokenizers.PreTokenizer) -> tuple[str, ...]:
    return tuple(piece for piece, _ in cuts.pre_tokenize_str(PROBE))
