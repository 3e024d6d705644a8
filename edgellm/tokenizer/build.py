"""Makes the right tokenizer for a file's metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace

from edgellm.errors import NoTokenizer, Unsupported
from edgellm.tokenizer.bpe import BpeEncoder
from edgellm.tokenizer.charsmap import checked_charsmap
from edgellm.tokenizer.encoders import Encoder
from edgellm.tokenizer.library import LibraryEncoder
from edgellm.tokenizer.plamo2 import Plamo2Encoder
from edgellm.tokenizer.pre_tokenizers import OWN_CUTS, PreTokenizer, find_pre_tokenizer, library_cuts
from edgellm.tokenizer.rwkv import RwkvEncoder
from edgellm.tokenizer.spm import SpmEncoder, SpmOptions
from edgellm.tokenizer.tokenizer import Manners, Tokenizer
from edgellm.tokenizer.vocabulary import PREFIX, Metadata, TokenType, Vocabulary, VocabularyReader, read_vocabulary
from edgellm.tokenizer.wpm import MAX_WORD, WpmEncoder, WpmOptions

STRIPPING = ("strip_left_token_ids", "strip_right_token_ids")  # keys of edgellm's own
SINGLE, LEADING = "single_word_token_ids", "leading_token_ids"
LIBRARY = "tokenizer_json"  # of edgellm's own as well: what the tokenizers library runs
REFUSAL = "refusal"  # why the tokenizer of a folder cannot be run
Parts = tuple[Vocabulary, Encoder, Manners]


def build_tokenizer(metadata: Metadata, *, file: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes. Checks everything now, builds the encoder on first use.

    Raises NoTokenizer where the file has none, Unsupported for kinds that edgellm cannot run, BadVocab for a
    vocabulary that contradicts itself. Warns UnknownPreTokenizer where the file's way of cutting words is unknown.
    """
    reader = VocabularyReader(metadata, os.fspath(file))
    kind = reader.string("model")
    if refusal := reader.string(REFUSAL):
        raise Unsupported(refusal, file=reader.file)
    if kind is None or kind in ("none", "no_vocab"):
        raise NoTokenizer(f"{reader.file} carries no tokenizer; give token ids instead of text, or take a file with one")
    if kind not in KINDS:
        raise Unsupported(
            f"tokenizers of the kind {kind[:40]!r} cannot be run; edgellm knows {', '.join(KINDS)}",
            file=reader.file,
            field=PREFIX + "model",
        )
    vocabulary, encoder, manners = KINDS[kind](reader)
    if settings := reader.string(LIBRARY):
        encoder = LibraryEncoder(settings, encoder, reader.file)
        inside = frozenset(reader.integers("inside_token_ids"))
        manners = replace(manners, inside=inside, space_inside=not manners.space_first, compose=False)
    return Tokenizer(vocabulary, encoder, manners)


def _spm(reader: VocabularyReader) -> Parts:
    vocabulary = read_vocabulary(reader, bos=1, eos=2, unknown=0, bytes_by_text=True)
    encoder = SpmEncoder(vocabulary, SpmOptions(space_prefix=reader.flag("add_space_prefix", True)))
    return vocabulary, encoder, _manners(reader, vocabulary, add_bos=True)


def _ugm(reader: VocabularyReader) -> Parts:
    vocabulary = read_vocabulary(reader, eos=1, unknown=2)
    options = SpmOptions(
        unigram=True,
        byte_fallback=TokenType.BYTE in vocabulary.types,
        space_prefix=reader.flag("add_space_prefix", False),
        merge_spaces=reader.flag("remove_extra_whitespaces", False),
        charsmap=checked_charsmap(reader),
    )
    manners = _manners(reader, vocabulary, add_bos=False, end=vocabulary.special.eos)
    return vocabulary, SpmEncoder(vocabulary, options), manners


def _rwkv(reader: VocabularyReader) -> Parts:
    vocabulary = read_vocabulary(reader, text_may_end=True)
    return vocabulary, RwkvEncoder(vocabulary), _manners(reader, vocabulary, add_bos=False)


def _plamo2(reader: VocabularyReader) -> Parts:
    vocabulary = read_vocabulary(reader, bos=1, eos=2, unknown=0, bytes_by_text=True)
    return vocabulary, Plamo2Encoder(vocabulary), _manners(reader, vocabulary, add_bos=False)


def _bpe(reader: VocabularyReader) -> Parts:
    kind = reader.string("model")
    name = kind if kind in ("gemma4", "whitespace") else reader.string("pre")
    pre = _own_cuts(reader) if name == OWN_CUTS else find_pre_tokenizer(name, reader.file)
    if pre.drops_spaces and reader.flag("normalizer.lowercase", False):
        pre = replace(pre, lowercase=True)
    vocabulary = read_vocabulary(reader, bytes_by_text=pre.visible_spaces)
    merges = reader.strings("merges")
    if merges is None:
        raise reader.fault("merges", "is missing; convert the model again with its tokenizer")
    manners = _manners(reader, vocabulary, add_bos=pre.add_bos, always_bos=pre.always_bos)
    unmerged = frozenset(reader.integers("unmerged_token_ids"))  # of a folder
    return vocabulary, BpeEncoder(vocabulary, pre, merges, unmerged), manners


def _own_cuts(reader: VocabularyReader) -> PreTokenizer:
    """Cuts as the tokenizer.json of a folder says, for which GGUF has no name."""
    settings = reader.string("pre_tokenizer") or ""
    try:
        library_cuts(json.loads(settings))
    except (ValueError, RecursionError) as error:
        raise reader.fault("pre_tokenizer", f"{str(error)[:80]}; convert the model with --pre") from error
    return PreTokenizer((), whole_words=reader.flag("ignore_merges", False), settings=settings)


def _wpm(reader: VocabularyReader) -> Parts:
    vocabulary = read_vocabulary(reader, bos=101, unknown=100, separator=102)
    lowercase = reader.flag("normalizer.lowercase", True)
    longest = reader.metadata.get(PREFIX + "max_input_chars_per_word", MAX_WORD)
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
        raise reader.fault("max_input_chars_per_word", f"is {str(longest)[:40]!r}, not a count; convert the model again")
    encoder = WpmEncoder(vocabulary, WpmOptions(lowercase, reader.flag("normalizer.strip_accents", lowercase), longest))
    special, single = vocabulary.special, frozenset(reader.integers(SINGLE))
    # Both stand around every text: llama.cpp ignores flags, which are wrong at times.
    manners = Manners(special.bos, special.separator, *_eaters(reader, vocabulary), single=single)
    return vocabulary, encoder, manners


KINDS: dict[str, Callable[[VocabularyReader], Parts]] = {
    "llama": _spm,
    "gpt2": _bpe,
    "gemma4": _bpe,
    "whitespace": _bpe,
    "bert": _wpm,
    "t5": _ugm,
    "rwkv": _rwkv,
    "plamo2": _plamo2,
}


def _manners(
    reader: VocabularyReader, vocabulary: Vocabulary, *, add_bos: bool, always_bos: bool = False, end: int | None = None
) -> Manners:
    """The tokens put around texts: by the file's flags, else the kind's habit: `add_bos`, and `end` after a text."""
    special = vocabulary.special
    for key, token in (("add_bos_token", special.bos), ("add_eos_token", special.eos)):
        if reader.metadata.get(PREFIX + key) is not None and reader.flag(key, False) and token is None:
            raise reader.fault(key, "is true but the vocabulary names no such token; convert the model again")
    if not all(0 <= token < len(vocabulary) for token in reader.integers(LEADING)):
        raise reader.fault(LEADING, "has an id that is not in the vocabulary; convert the model again")
    left, right = _eaters(reader, vocabulary)
    begins = always_bos or reader.flag("add_bos_token", add_bos)
    ends = reader.flag("add_eos_token", end is not None)
    return Manners(
        special.bos if begins else None,
        (special.eos if end is None else end) if ends else None,
        left,
        right,
        space_once=reader.flag("space_prefix_once", False),
        space_first=reader.flag("space_prefix_first", False),
        single=frozenset(reader.integers(SINGLE)),
        compose=reader.flag("normalizer.nfc", False),
        leading=tuple(reader.integers(LEADING)),
    )


def _eaters(reader: VocabularyReader, vocabulary: Vocabulary) -> tuple[frozenset[int], frozenset[int]]:
    """Special tokens that swallow white space. Only folders say which, in keys of edgellm's own; else they are known by the model's
    name, as in llama.cpp."""
    left, right = (frozenset(reader.integers(key)) for key in STRIPPING)
    if left or right:
        return left, right
    name, pre = str(reader.metadata.get("general.name", "")).lower(), reader.string("pre") or ""
    architecture = str(reader.metadata.get("general.architecture", ""))
    mask = next((token for text in ("<mask>", "[MASK]") if (token := vocabulary.find(text)) is not None), None)
    masked = pre.startswith("jina-v2") or "modern-bert" in name or architecture in ("nomic-bert-moe", "jina-bert-v3")
    if mask is not None and masked:
        return frozenset({mask}), frozenset()
    if "phi-3" in name or "phi3" in name:
        spared = {vocabulary.find(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        special = {i for i, kind in enumerate(vocabulary.types) if kind == TokenType.USER_DEFINED} | vocabulary.control
        return frozenset(), frozenset(special - spared)
    return frozenset(), frozenset()
