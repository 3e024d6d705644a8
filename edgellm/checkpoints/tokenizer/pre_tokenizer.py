"""Recognises how a tokenizer.json cuts words: by what it does to a probing text, beside each way that GGUF has a name for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from edgellm.checkpoints.tokenizer.tokens import Json, steps
from edgellm.tokenizer.pre_tokenizers import OWN_CUTS, PRE_TOKENIZERS, PreTokenizer, library_cuts

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


def recognise(whole: Json) -> str | None:
    """GGUF's name for the cuts of a tokenizer.json; None where there is no name for them."""
    model = whole.get("model")
    whole_words = isinstance(model, Mapping) and bool(model.get("ignore_merges"))
    try:
        pieces = _pieces(library_cuts(whole.get("pre_tokenizer")))
    except (ValueError, RecursionError):
        return None
    for name in (*COMMON, *PRE_TOKENIZERS):
        row = PRE_TOKENIZERS[name]
        if not row.visible_spaces and row.whole_words == whole_words and _of_row(row) == pieces:
            return name
    return None


def own_cuts(whole: Json) -> dict[str, Any]:
    """Keys that have edgellm cut words as a tokenizer.json says; {} where it cannot."""
    settings, model = whole.get("pre_tokenizer"), whole.get("model")
    last = [*steps(settings, "pretokenizers")][-1:]
    try:
        library_cuts(settings)
    except (ValueError, RecursionError):
        return {}
    if not last or last[0].get("type") != "ByteLevel":
        return {}
    own = {"pre": OWN_CUTS, "pre_tokenizer": json.dumps(settings)}
    return own | {"ignore_merges": isinstance(model, Mapping) and bool(model.get("ignore_merges"))}


@cache
def _of_row(row: PreTokenizer) -> tuple[str, ...]:
    from tokenizers import Regex, pre_tokenizers

    splits: list[Any] = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in row.expressions]
    return _pieces(pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def _pieces(cuts: pre_tokenizers.PreTokenizer) -> tuple[str, ...]:
    return tuple(piece for piece, _ in cuts.pre_tokenize_str(PROBE))
