"""The vocabulary of a GGUF file, checked: token texts, types, scores and the ids with a role."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from edgellm.errors import BadVocab
from edgellm.formats.gguf_values import StringArray
from edgellm.tokenizer.special_texts import END_OF_GENERATION, FILL_IN, FILL_IN_END, FILL_IN_ROLES, NOT_END_BESIDE, WITH_A_ROLE
from edgellm.tokenizer.texts import Texts

PREFIX = "tokenizer.ggml."
MAX_TOKENS = 1 << 24  # no published vocabulary has more than 2^19
LOWEST_SCORE = -3.4e38  # in float32's range
BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")
PLAIN_LOOKING = re.compile(r"[▁_]?[<\[]/?[A-Za-z]+[>\]]")  # could be HTML or a word in brackets
FILL_IN_KEYS = {  # of a role, first to last; the second ones are of older files
    "prefix": ("fim_pre_token_id", "prefix_token_id"),
    "suffix": ("fim_suf_token_id", "suffix_token_id"),
    "middle": ("fim_mid_token_id", "middle_token_id"),
    "pad": ("fim_pad_token_id",),
    "repository": ("fim_rep_token_id",),
    "separator": ("fim_sep_token_id",),
}
END_KEYS = ("eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id")
Metadata = Mapping[str, Any]  # values as the GGUF reader gives them: scalars, strings, arrays


class TokenType(IntEnum):
    """Types of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids with a role, None where the vocabulary has no such token."""

    bos: int | None
    eos: int | None
    unknown: int | None
    separator: int | None
    end: frozenset[int]  # end of generation: one of these ends an answer
    fill_in: Mapping[str, int]  # by role: prefix, suffix, middle, pad, repository, separator; those that it has
    suppressed: frozenset[int]  # never to be sampled, says the file


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token texts, types and scores, all of one length."""

    file: str
    texts: Texts
    types: bytes  # TokenType values
    scores: Sequence[float] | None
    special: SpecialIds
    control: frozenset[int]  # ids that no user's text turns into: CONTROL, UNKNOWN, end of generation

    def __len__(self) -> int:
        return len(self.texts)

    def find(self, text: str) -> int | None:
        """The (last) id of the token with this text."""
        return self.texts.find(text)


class VocabularyReader:
    """Typed, range-checked access to the tokenizer keys of one file; every fault is a BadVocab with file and key."""

    def __init__(self, metadata: Metadata, file: str) -> None:
        self.metadata, self.file = metadata, file

    def fault(self, key: str, message: str) -> BadVocab:
        return BadVocab(message, file=self.file, field=PREFIX + key)

    def string(self, key: str) -> str | None:
        value = self.metadata.get(PREFIX + key)
        if value is None or isinstance(value, str):
            return value
        raise self.fault(key, f"is not a string but {_shown(value)}; convert the model again")

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self.fault(key, f"is not true or false but {_shown(value)}; convert the model again")

    def token_id(self, key: str, count: int, default: int | None = None) -> int | None:
        """The id under `key`, or `default` where the vocabulary reaches that far."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return default if default is not None and default < count else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(key, f"is not a token id but {_shown(value)}; convert the model again")
        if value in (-1, 0xFFFFFFFF):  # how converters write "none"
            return None
        if not 0 <= value < count:
            raise self.fault(key, f"{value} is outside the vocabulary of {count} tokens; convert the model again")
        return value

    def strings(self, key: str) -> Sequence[str] | None:
        """A string array; None where the key is absent."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        if isinstance(value, str) or hasattr(value, "dtype") or not hasattr(value, "__len__"):
            raise self.fault(key, f"is not an array of strings but {_shown(value)}; convert the model again")
        if len(value) > MAX_TOKENS:
            raise self.fault(key, f"has {len(value)} entries, more than any vocabulary")
        if isinstance(value, StringArray):
            return value
        texts = list(value)
        if set(map(type, texts)) - {str}:
            wrong = next(i for i, text in enumerate(texts) if type(text) is not str)
            raise self.fault(key, f"entry {wrong} is not a string but {_shown(texts[wrong])}; convert the model again")
        return texts

    def numbers(self, key: str, count: int, kinds: str) -> list[Any] | None:
        """An array of `count` numbers of 32 bits and NumPy's `kinds`; None where the key is absent or its array is empty."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        if isinstance(value, str) or not hasattr(value, "__len__"):
            raise self.fault(key, f"is not an array of numbers but {_shown(value)}; convert the model again")
        if len(value) == 0:
            return None
        if len(value) != count:
            raise self.fault(key, f"has {len(value)} entries where the vocabulary has {count}; convert the model again")
        if hasattr(value, "dtype") and (value.dtype.kind not in kinds or value.dtype.itemsize != 4):
            raise self.fault(key, f"is an array of {value.dtype}, as no converter writes; convert the model again")
        entries: list[Any] = value.tolist() if hasattr(value, "tolist") else list(value)
        if not isinstance(entries[0], int | float) or isinstance(entries[0], bool):
            raise self.fault(key, f"is not an array of numbers but {_shown(value)}; convert the model again")
        return entries

    def integers(self, key: str) -> list[int]:
        """An array of integers of any length; empty where the key is absent."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return []
        entries = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(entries, list | tuple) or any(isinstance(each, bool) or not isinstance(each, int) for each in entries):
            raise self.fault(key, f"is not an array of integers but {_shown(value)}; convert the model again")
        return list(entries)


def read_vocabulary(
    reader: VocabularyReader,
    *,
    bos: int | None = None,
    eos: int | None = None,
    unknown: int | None = None,
    separator: int | None = None,
    bytes_by_text: bool = False,
    text_may_end: bool = False,
) -> Vocabulary:
    """Check the vocabulary arrays. The ids given are the model kind's defaults where the file names none.

    With `bytes_by_text`, "<0x0A>" is a byte token even where the file calls it a normal one. With `text_may_end`, normal tokens
    that end an answer are text all the same, such as RWKV's two newlines.

    Raises BadVocab: arrays missing, of other lengths or types, ids out of range.
    """
    found = reader.strings("tokens")
    if not found:
        raise reader.fault("tokens", "is missing or empty; convert the model again with its tokenizer")
    count, texts = len(found), Texts(found)
    ids = {text: token for text in WITH_A_ROLE if (token := texts.find(text)) is not None}
    bos = reader.token_id("bos_token_id", count, reader.token_id("cls_token_id", count, bos))
    eos = reader.token_id("eos_token_id", count, eos)
    unknown = reader.token_id("unknown_token_id", count, unknown)
    separator = reader.token_id("seperator_token_id", count, separator)  # the key is spelled so in GGUF
    types = _types(reader, texts, bos, eos, unknown)
    if bytes_by_text:
        types = [
            TokenType.BYTE if kind == TokenType.NORMAL and text.startswith("<0x") and BYTE_TEXT.fullmatch(text) else kind
            for text, kind in zip(texts, types, strict=True)
        ]
    scores = reader.numbers("scores", count, "f")
    if scores is not None:  # one that is NaN is behind all others, so that their order holds
        scores = [LOWEST_SCORE if math.isnan(score) else score for score in scores]
    spared = _spared(ids) | _plain_looking(ids, types, eos)
    end = {ids[text] for text in END_OF_GENERATION | FILL_IN_END if text in ids} - spared
    end |= {token for key in END_KEYS if (token := reader.token_id(key, count)) is not None}
    end |= set() if eos is None else {eos}
    if not end and reader.metadata.get(PREFIX + "eos_token_id") is not None:
        raise reader.fault("eos_token_id", "names no token, and no other token ends an answer; convert the model again")
    fill_in = _fill_in(reader, ids, spared, count)
    roles = {ids[text] for text in FILL_IN if text in ids} - spared | set(fill_in.values())
    kinds = np.array(types, np.uint8)
    control = {*np.flatnonzero((kinds == TokenType.CONTROL) | (kinds == TokenType.UNKNOWN)).tolist()} | end | roles
    if text_may_end:
        control = {i for i in control if types[i] != TokenType.NORMAL}
    special = SpecialIds(bos, eos, unknown, separator, frozenset(end), fill_in, _suppressed(reader, count))
    return Vocabulary(
        reader.file, texts, bytes(types), array("d", scores) if scores is not None else None, special, frozenset(control)
    )


def stood_in(ids: list[int], beyond: Mapping[int, int | None], file: str) -> list[int]:
    """Ids without those that only our own model of the vocabulary has: `beyond` names what stands for each.

    Raises BadVocab where nothing does: the text holds a byte that the vocabulary cannot say.
    """
    if not beyond or beyond.keys().isdisjoint(ids):
        return ids
    known = [beyond.get(token, token) for token in ids]
    found = [token for token in known if token is not None]
    if len(found) < len(known):
        raise BadVocab(
            "has neither a token for a character of the text nor an unknown token; leave the character out, or take another model",
            file=file,
            field=PREFIX + "tokens",
        )
    return found


def _types(reader: VocabularyReader, texts: Sequence[str], bos: int | None, eos: int | None, unknown: int | None) -> list[int]:
    types = reader.numbers("token_type", len(texts), "iu")
    if types is None:  # files of 2023: known by texts and roles only
        types = [TokenType.BYTE if BYTE_TEXT.fullmatch(text) else TokenType.NORMAL for text in texts]
        for token, kind in ((bos, TokenType.CONTROL), (eos, TokenType.CONTROL), (unknown, TokenType.UNKNOWN)):
            if token is not None:
                types[token] = kind
        return types
    kinds = set(types)
    for kind in kinds - set(TokenType):
        where = types.index(kind)
        raise reader.fault("token_type", f"entry {where} is {kind}, which is not a token type; convert the model again")
    if TokenType.BYTE in kinds:
        for i, kind in enumerate(types):
            if kind == TokenType.BYTE and not BYTE_TEXT.fullmatch(texts[i]):
                raise reader.fault(
                    "tokens",
                    f"entry {i} is a byte token but its text is {_shown(texts[i])}; "
                    "such texts read like <0x0A>; convert the model again",
                )
    return types


def _fill_in(reader: VocabularyReader, ids: Mapping[str, int], spared: set[int], count: int) -> dict[str, int]:
    """Fill-in-the-middle tokens by role: as the file names them, else by their text."""
    found: dict[str, int] = {}
    for role, texts in FILL_IN_ROLES.items():
        named = (reader.token_id(key, count) for key in FILL_IN_KEYS[role])
        known = (ids[text] for text in texts if text in ids and ids[text] not in spared)
        token = next((token for token in (*named, *known) if token is not None), None)
        if token is not None:
            found[role] = token
    return found


def _suppressed(reader: VocabularyReader, count: int) -> frozenset[int]:
    """`tokenizer.ggml.suppress_tokens`; ids outside the vocabulary count for nothing, as in llama.cpp."""
    tokens = reader.integers("suppress_tokens")
    return frozenset(token for token in tokens if 0 <= token < count)


def _spared(ids: Mapping[str, int]) -> set[int]:
    """Ids whose text looks like an end but is none in this vocabulary."""
    return {ids[spared] for beside, spared in NOT_END_BESIDE if spared in ids and all(text in ids for text in beside)}


def _plain_looking(ids: Mapping[str, int], types: Sequence[int], eos: int | None) -> set[int]:
    """Tokens such as qwen2's "</s>" that the file calls normal text, in a vocabulary that has its end elsewhere."""
    ends = {eos} | {ids[text] for text in END_OF_GENERATION if text in ids and types[ids[text]] == TokenType.CONTROL}
    if ends == {None}:
        return set()
    return {
        ids[text]
        for text in END_OF_GENERATION | FILL_IN_END | FILL_IN
        if text in ids and PLAIN_LOOKING.fullmatch(text) and types[ids[text]] == TokenType.NORMAL
    }


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    return text if len(text) <= 40 else text[:40] + "…"
