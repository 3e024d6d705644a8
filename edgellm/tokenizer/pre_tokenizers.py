r"""Pre-tokenizers, which cut text into words before BPE, one row per `tokenizer.ggml.pre`: as the models' makers published it.

The expressions are Oniguruma's (what the `tokenizers` package runs): \s \d \b know Unicode, `&&` intersects classes.
Each one of a row cuts the pieces that the ones before it left; what it matches and what lies between both stay pieces.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgellm.patterns import alternatives, check_cuts, expressions

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{SIGNS}|{BLANKS}"
QWEN35 = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{BLANKS}"
)
LLAMA3 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{SIGNS}|{BLANKS}"
JAIS2 = (
    rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{SIGNS}|\s*[\r\n]+|"
    + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"|\s{1,2}(?!\S)|\s{1}"
)
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+", rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
SLASHED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
TEKKEN = rf"{CASED[0]}|{CASED[1]}|\p{{N}}|{SLASHED_SIGNS}|{BLANKS}"
GPT4O = rf"{CASED[0]}{CONTRACTIONS}?|{CASED[1]}{CONTRACTIONS}?|\p{{N}}{{1,3}}|{SLASHED_SIGNS}|{BLANKS}"
KIMI_K2 = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]+[{LOWER}&&[^\p{{Han}}]]*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{SIGNS}|{BLANKS}"
)
YOUTU_WORDS = rf"{CASED[0]}{CONTRACTIONS}?|{CASED[1]}{CONTRACTIONS}?|\p{{N}}|{SLASHED_SIGNS}|{BLANKS}"
ASCII_SIGN = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
DEEPSEEK3_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
DEEPSEEK3_WORDS = rf"{ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
DEEPSEEK3 = rf"{DEEPSEEK3_WORDS}[\r\n]*|{BLANKS}"
SPARK25 = rf"{DEEPSEEK3_WORDS}|[\r\n]|\s+(?!\S)|\s+"
DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"
# The cased letters of Unicode 12, as deepseek-llm's tokenizer.json spells them out.
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴ"
    "ῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
ASIAN = "[一-\u9fff㐀-\u4dbf\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
DEEPSEEK_SIGNS = "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"
YOUTU_CJK = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
DIGIT_GROUPS = r"\d{1,3}(?=(?:\d{3})*\b)"
LINES = r"[^\n]+|[\n]+"


OWN_CUTS = "tokenizer.json"  # as `tokenizer.ggml.pre`: words are cut as tokenizer.ggml.pre_tokenizer says


class UnknownPreTokenizer(UserWarning):
    """`tokenizer.ggml.pre` names an unknown way of cutting words: ids may differ from those of the model's training."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to cut words.

    `whole_words`: a word that is a token stays one, whatever the merges say. `visible_spaces`: tokens are UTF-8 with
    U+2581 for spaces and bytes as "<0x0A>", not GPT-2's byte letters. `long_digits`: the expressions look ahead over
    whole runs of digits. `always_bos`: even where the file says otherwise, as the first gemma 4 files wrongly did.
    `drops_spaces`: tokens are UTF-8 and white space only parts words; `lowercase`: these are made lower case first.
    `settings`: the pre_tokenizer of a tokenizer.json, as JSON, which cuts in the place of `expressions`.
    """

    expressions: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    always_bos: bool = False
    visible_spaces: bool = False
    long_digits: bool = False
    drops_spaces: bool = False
    lowercase: bool = False
    settings: str = ""


_GPT2 = PreTokenizer((GPT2,))
_DIGITS_GPT2 = PreTokenizer((r"\p{N}", GPT2))
_QWEN2 = PreTokenizer((QWEN2,))
_LLAMA3 = PreTokenizer((LLAMA3,))
_LLAMA3_WHOLE = PreTokenizer((LLAMA3,), whole_words=True, add_bos=True)
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3))
_BLOOM = PreTokenizer((BLOOM,))
_GPT4O = PreTokenizer((GPT4O,))
_BAILING = PreTokenizer((rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+",))
_GEMMA4 = PreTokenizer((LINES,), visible_spaces=True, add_bos=True, always_bos=True)
_TINY_AYA = PreTokenizer((DIGIT_GROUPS, GPT4O), long_digits=True)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"), _LLAMA3_WHOLE
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _LLAMA3),
    **dict.fromkeys(("glm4", "glm5"), PreTokenizer((LLAMA3,), whole_words=True)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", rf"{CONTRACTIONS}|{WORDS}|\p{{N}}+|{SIGNS}|{BLANKS}"), whole_words=True),
    "jais-2": PreTokenizer((JAIS2,)),
    "deepseek-llm": PreTokenizer((r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", DEEPSEEK_CJK, r"\p{N}+")),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _DEEPSEEK3),
    "spark2_5": PreTokenizer((r"\p{N}{1,3}", DEEPSEEK3_CJK, SPARK25, r"\p{N}")),
    "youtu": PreTokenizer((YOUTU_CJK, YOUTU_WORDS), whole_words=True),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"), _DIGITS_GPT2),
    **dict.fromkeys(
        (
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ),
        _GPT2,
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"), _QWEN2
    ),
    "qwen35": PreTokenizer((QWEN35,)),
    "ufakzeka": PreTokenizer((rf"{WORDS}|\p{{N}}|{SIGNS}|{BLANKS}",)),
    "laguna": PreTokenizer((LINES, QWEN2)),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _BLOOM),
    "viking": PreTokenizer((BLOOM, r"\p{N}")),
    "tekken": PreTokenizer((TEKKEN,), whole_words=True, add_bos=True),
    "chameleon": PreTokenizer(
        ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2),
        add_bos=True,
    ),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
    "granite-embed-multi-97m": PreTokenizer((GPT4O,), whole_words=True),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _TINY_AYA),
    "kimi-k2": PreTokenizer((KIMI_K2,)),
    "superbpe": PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))"), long_digits=True),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "seed-coder": PreTokenizer((rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{BLANKS}",)),
    "afmoe": PreTokenizer((r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))", ASIAN, DEEPSEEK3), long_digits=True),
    "exaone-moe": PreTokenizer(
        (
            rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+"
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "gemma4": _GEMMA4,
    "granite-embed-multi-311m": _GEMMA4,
    "sarvam-moe": PreTokenizer((LINES,), visible_spaces=True),
    "whitespace": PreTokenizer((r"\S+",), drops_spaces=True),
}


def check_expressions(settings: object) -> None:
    """Raises ValueError for expressions in a part of a tokenizer.json that may take too long."""
    trusted = {part for row in PRE_TOKENIZERS.values() for text in row.expressions for part in alternatives(text)}
    for expression in expressions(settings):
        check_cuts(expression, trusted)


def library_cuts(settings: object) -> pre_tokenizers.PreTokenizer:
    """The tokenizers library's object for the pre_tokenizer of a tokenizer.json, which comes from a foreign file.

    Raises ValueError for one that the library does not know, and for expressions that may take too long.
    """
    from tokenizers import Tokenizer

    check_expressions(settings)
    bare = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": settings}
    try:
        cuts: pre_tokenizers.PreTokenizer | None = Tokenizer.from_str(json.dumps(bare)).pre_tokenizer
    except Exception as error:  # the library raises no narrower class
        raise ValueError("is not a pre_tokenizer that the tokenizers library knows") from error
    if cuts is None:
        raise ValueError("says nothing")
    return cuts


def find_pre_tokenizer(name: str | None, file: str) -> PreTokenizer:
    """The row for `tokenizer.ggml.pre`; the default one, with a warning, where the name is missing or unknown."""
    if name is not None and name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    what = "names no pre-tokenizer (tokenizer.ggml.pre)"
    if name is not None:
        what = f"names the pre-tokenizer {name[:60]!r}, unknown to edgellm"
    warnings.warn(
        f"{file}: {what}; using 'default', so that answers may be worse than the model can give", UnknownPreTokenizer, stacklevel=4
    )
    return PRE_TOKENIZERS["default"]
