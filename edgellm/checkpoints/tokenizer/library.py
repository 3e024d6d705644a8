"""Finds what a tokenizer.json does that no keys of GGUF say, and makes of it what the tokenizers library runs in their place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any  # Any: JSON

from edgellm.checkpoints.tokenizer.tokens import Json, entries, steps
from edgellm.errors import Unsupported

SPACE = "\u2581"
BERT = {"clean_text": True, "handle_chinese_chars": True}
RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
TRIMMED = [
    {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE},
]
Steps = list[Json]


def unsaid(whole: Json, kind: str) -> str:
    """The name of the first step or token that GGUF's keys of a `kind` of vocabulary do not say, "" for none."""
    normalizers = [*steps(whole.get("normalizer"), "normalizers")]
    cuts = [*steps(whole.get("pre_tokenizer"), "pretokenizers")]
    if kind in UNSAID and (found := UNSAID[kind](normalizers, cuts)):
        return found
    if kind in NEVER and (text := next((text for text in _texts(whole) if NEVER[kind] in text), None)):
        return f"the token {text[:40]!r}"
    normalised = next((each["content"] for each in _normalised(whole) if _changed(whole, each["content"])), None)
    return "" if normalised is None else f"the added token {normalised!r}, which is normalised"


def library_keys(whole: Json, path: str) -> dict[str, Any]:
    """The keys of edgellm's own with which the tokenizers library encodes the texts between control tokens. Raises Unsupported."""
    specials = [each.get("content") for each in entries(whole.get("added_tokens")) if each.get("special")]
    inside, control = [*_normalised(whole)], {text for text in specials if isinstance(text, str)}
    cuts = [*steps(whole.get("pre_tokenizer"), "pretokenizers")]
    if any(each.get("prepend_scheme") == "first" for each in cuts):  # which text is the first is not the library's to know
        if whole.get("normalizer") or len(cuts) > 1:
            raise Unsupported(
                'puts a space before the first text alone (prepend_scheme "first") after other steps, which edgellm cannot do; '
                "take a .gguf file of the model",
                file=path,
                field="pre_tokenizer",
            )
        cuts = [{**cuts[0], "prepend_scheme": "never"}]
    bare = {
        "version": "1.0",
        "normalizer": whole.get("normalizer"),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts} if cuts else None,
        "added_tokens": inside,
        "model": _without(whole["model"], control),
    }
    return {
        "tokenizer_json": json.dumps(bare, ensure_ascii=False),
        **({"inside_token_ids": [each["id"] for each in inside]} if inside else {}),
    }


def _texts(whole: Json) -> Iterator[str]:
    vocab = whole["model"].get("vocab")
    texts = vocab if isinstance(vocab, Mapping) else [each[0] for each in vocab if isinstance(each, list) and each]
    return (text for text in texts if isinstance(text, str))


def composes(whole: Json) -> bool:
    """True if texts are composed (NFC) and nothing else."""
    return [each.get("type") for each in steps(whole.get("normalizer"), "normalizers")] == ["NFC"]


def _normalised(whole: Json) -> Iterator[Json]:
    """Added tokens that are looked for in the normalised text."""
    for each in entries(whole.get("added_tokens")):
        if (
            each.get("normalized")
            and not each.get("special")
            and type(each.get("id")) is int
            and isinstance(each.get("content"), str)
        ):
            yield each


def _changed(whole: Json, text: str) -> bool:
    if not whole.get("normalizer"):
        return False
    from tokenizers import Tokenizer

    bare = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "normalizer": whole["normalizer"]}
    try:
        return bool(Tokenizer.from_str(json.dumps(bare)).normalizer.normalize_str(text) != text)
    except Exception:  # the library raises no narrower class
        return True


def _without(model: Json, control: set[str]) -> Json:
    """A model whose control tokens cannot come out of a text: they have other texts, but for the unknown token."""
    vocab, unknown = model.get("vocab"), (model.get("unk_token"), model.get("unk_id"))
    hidden = {text for text in control if text != unknown[0]}
    if isinstance(vocab, Mapping):
        found: Any = {_hidden(token) if text in hidden else text: token for text, token in vocab.items()}
    else:
        found = [
            [_hidden(i), score] if text in hidden and i != unknown[1] else [text, score]
            for i, (text, score) in enumerate(vocab or ())
        ]
    changed = {**model, "vocab": found}
    if merges := model.get("merges"):
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in (merges if isinstance(merges, list) else [merges])]
        changed["merges"] = [pair for pair in pairs if hidden.isdisjoint([*pair, "".join(pair)])]
    return changed


def _hidden(token: Any) -> str:
    return f"\uf8ff{token}\uf8ff"


def _unsaid_bytes(normalizers: Steps, cuts: Steps) -> str:
    nfc: Json = {"type": "NFC"}
    if normalizers == [nfc]:
        return ""
    return _first(normalizers, lambda each: each == nfc) or _first(normalizers, lambda each: False)


def _unsaid_spaces(normalizers: Steps, cuts: Steps) -> str:
    """SentencePiece's: a space may come before a text, and each becomes visible."""
    prepends, spaces = {"type": "Prepend", "prepend": SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    if normalizers:
        split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        if normalizers not in ([prepends, spaces], [spaces]):
            return _first(normalizers, lambda each: each in (prepends, spaces)) or "normalizer"
        return _first(cuts, lambda each: each == split)
    if [each.get("type") for each in cuts] == ["Metaspace"] and cuts[0].get("replacement", SPACE) == SPACE:
        return ""
    return _first(cuts, lambda each: each.get("type") == "Metaspace") or "pre_tokenizer"


def _unsaid_words(normalizers: Steps, cuts: Steps) -> str:
    usual = [each.get("type") for each in normalizers] == ["BertNormalizer"] and normalizers[0] == {**normalizers[0], **BERT}
    if not usual:
        return _first(normalizers, lambda each: False) or "normalizer"
    return (
        "" if [each.get("type") for each in cuts] == ["BertPreTokenizer"] else _first(cuts, lambda each: False) or "pre_tokenizer"
    )


def _unsaid_unigram(normalizers: Steps, cuts: Steps) -> str:
    """SentencePiece's: characters are replaced, runs of white space become one space, and a space comes before a text."""
    rules = tuple(str(each.get("type")) for each in normalizers)
    words = tuple(str(each.get("type")) for each in cuts)
    if (rules, words) in (((), ("Metaspace",)), (("Precompiled",), ("WhitespaceSplit", "Metaspace"))):
        return ""
    if rules == ("Precompiled", "Replace") and words == ("WhitespaceSplit", "Metaspace") and normalizers[1:] == [RUNS]:
        return ""
    if rules == ("Precompiled", "Strip", "Replace") and words == ("Metaspace",) and normalizers[1:] == TRIMMED:
        return ""
    return (
        _first(normalizers, lambda each: each.get("type") == "Precompiled")
        or _first(cuts, lambda each: each.get("type") in ("Metaspace", "WhitespaceSplit"))
        or "pre_tokenizer"
    )


def _first(found: Steps, said: Any) -> str:
    return next((str(each.get("type"))[:40] for each in found if not said(each)), "")


NEVER = {"llama": "\0", "t5": "\0", "bert": SPACE}  # characters that tokens of a kind cannot have
UNSAID = {"gpt2": _unsaid_bytes, "llama": _unsaid_spaces, "gemma4": _unsaid_spaces, "bert": _unsaid_words, "t5": _unsaid_unigram}
