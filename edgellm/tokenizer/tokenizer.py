"""The tokenizer that the engine and apps use: special tokens, spaces and decoding around one kind of encoder."""

from __future__ import annotations

import codecs
import operator
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgellm.errors import BadVocab, OptionError, shown
from edgellm.tokenizer.encoders import Encoder
from edgellm.tokenizer.matcher import LONGEST, compile_matcher
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

SURROGATE = re.compile("[\ud800-\udfff]")
MAX_SPECIAL = 500_000  # characters of all special tokens; the largest vocabularies have 100,000
VISIBLE_SPACE = "▁"  # U+2581
SPACES = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
JOINERS = "\u200c\u200d"
Span = tuple[int, int]  # start and stop of characters


@dataclass(frozen=True, slots=True)
class Manners:
    """Rules for special tokens around text."""

    begin: int | None  # id put before a text, or None
    end: int | None  # id put after it
    eats_left: frozenset[int] = frozenset()  # ids that swallow white space before them
    eats_right: frozenset[int] = frozenset()  # ids that swallow white space after them
    space_once: bool = False  # no space is put before a text that begins with one
    space_first: bool = False  # nor behind a special token
    single: frozenset[int] = frozenset()  # ids that stand for a word by itself, not for a part of one
    compose: bool = False  # characters are composed (NFC) between special tokens
    inside: frozenset[int] = frozenset()  # ids that the encoder finds itself, in the text that it normalised
    space_inside: bool = False  # the encoder puts the space before a text
    leading: tuple[int, ...] = ()  # further ids between `begin` and the text


class Tokenizer:
    """Text to ids and back. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, encoder: Encoder, manners: Manners) -> None:
        self.vocabulary, self._encoder, self._manners = vocabulary, encoder, manners
        self._pieces: dict[int, bytes] = {}
        self._n_tokens = len(vocabulary)
        texts, last = vocabulary.texts, vocabulary.texts.shadowed
        added = np.flatnonzero(np.frombuffer(vocabulary.types, np.uint8) == TokenType.USER_DEFINED).tolist()
        ours = [i for i in added if last.get(i, i) not in vocabulary.control and i not in manners.inside]
        if sum(min(len(texts[i]), LONGEST) for i in {*ours, *vocabulary.control}) > MAX_SPECIAL:
            raise BadVocab(
                f"the special tokens have more than {MAX_SPECIAL} characters together, as none of a real model; "
                "convert the model again",
                file=vocabulary.file,
                field="tokenizer.ggml.tokens",
            )
        self._user_defined = compile_matcher(texts[i] for i in ours)
        self._special = compile_matcher([texts[i] for i in ours] + [texts[i] for i in vocabulary.control])
        self._special_ids = {texts[i]: last.get(i, i) for i in (*ours, *vocabulary.control)}
        edges = {text[at] for i in vocabulary.control if (text := texts[i]) for at in (0, -1)}
        self._edges = re.compile("[" + re.escape("".join(sorted(edges))) + "]") if edges else None

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    @property
    def bos_id(self) -> int | None:
        return self.vocabulary.special.bos

    @property
    def eos_id(self) -> int | None:
        return self.vocabulary.special.eos

    @property
    def eog_ids(self) -> frozenset[int]:
        """Ids that end an answer: the file's end tokens, and those known by their text."""
        return self.vocabulary.special.end

    @property
    def fill_in_ids(self) -> Mapping[str, int]:
        """Fill-in-the-middle tokens that the vocabulary has: "prefix", "suffix", "middle", "pad", "repository", "separator"."""
        return self.vocabulary.special.fill_in

    @property
    def suppressed_ids(self) -> frozenset[int]:
        """Ids that the file says are never to be sampled."""
        return self.vocabulary.special.suppressed

    @property
    def add_bos(self) -> bool:
        """True if `encode` puts a BOS before a text."""
        return self._manners.begin is not None

    @property
    def add_eos(self) -> bool:
        """True if `encode` puts an EOS (or separator) after a text."""
        return self._manners.end is not None

    def is_control(self, token: int) -> bool:
        """True for tokens that text from users never becomes, and that decoding leaves out."""
        return token in self.vocabulary.control

    def may_form_control(self, text: str) -> bool:
        """False where `text` has no character that a control token begins or ends with."""
        return self._edges is not None and self._edges.search(text) is not None

    def token_type(self, token: int) -> TokenType:
        """A token's type in the file: normal, control, byte, ... Raises OptionError for an id that is not in the vocabulary."""
        return TokenType(self.vocabulary.types[self._checked(token)])

    def token_text(self, token: int) -> str:
        """A token's text in the file."""
        return self.vocabulary.texts[self._checked(token)]

    def token_id(self, text: str) -> int | None:
        """The id of a token by its exact text in the file, or None."""
        _check_text("token_id", text)
        return self.vocabulary.find(text)

    def prepare(self) -> None:
        """Build the encoder now (0.2-0.3 s for 150k to 280k merges), for example in a thread beside the weights."""
        self._encoder.prepare()

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        `add_special` puts the vocabulary's BOS (and EOS) around where it asks for them. With `parse_special` the texts
        of control tokens become these tokens; without it they are plain text and no control id comes out of `text`.
        """
        return self.encode_trusted(text, ((0, len(text)),) if parse_special else (), add_special=add_special)

    def encode_continuation(self, text: str) -> list[int]:
        """Ids of plain text in the middle of another one: their pieces joined are its bytes, with nothing before them."""
        _check_text("encode_continuation", text)
        data, ids = text.encode("utf-8", "replace"), self._ids(part for part in self._fragments(text, ()) if part != "")
        return ids if b"".join(map(self.piece, ids)) == data else self._longest_pieces(data)

    def _longest_pieces(self, data: bytes) -> list[int]:
        """At each place the longest token that fits, for encoders that change a text or put a space before it."""
        ids, at = list[int](), 0
        while at < len(data):
            lengths = range(min(len(data) - at, self._longest_piece), 0, -1)
            token = next((found for n in lengths if (found := self._by_piece.get(data[at : at + n])) is not None), None)
            if token is None:
                raise OptionError(f"the vocabulary has no token for the byte {data[at]:#x}; take a text without it.")
            ids.append(token)
            at += len(self.piece(token))
        return ids

    @cached_property
    def _by_piece(self) -> dict[bytes, int]:
        control = self.vocabulary.control
        return {piece: token for token in range(len(self.vocabulary)) if token not in control and (piece := self.piece(token))}

    @cached_property
    def _longest_piece(self) -> int:
        return max(map(len, self._by_piece), default=0)

    def encode_trusted(self, text: str, trusted: Sequence[Span], *, add_special: bool = True) -> list[int]:
        """As `encode`, where control tokens are recognised only if they lie entirely within one of the `trusted` spans.

        `trusted`: sorted, non-overlapping (start, stop) character ranges.
        """
        _check_text("encode", text)
        if SURROGATE.search(text):  # one lone surrogate, one replacement character: the spans stay right
            text = SURROGATE.sub("\ufffd", text)
        begin, end = (self._manners.begin, self._manners.end) if add_special else (None, None)
        parts: list[str | int] = [] if begin is None else [begin]
        parts += self._manners.leading if add_special else ()
        after_special = True
        for fragment in self._fragments(text, trusted):
            if isinstance(fragment, int):
                parts.append(fragment)
                after_special = not self._manners.space_first
            elif fragment:
                fragment = unicodedata.normalize("NFC", fragment) if self._manners.compose else fragment
                prefixed = after_special and self._encoder.space_prefix and not self._manners.space_inside
                if prefixed and self._manners.space_once and fragment.startswith((" ", VISIBLE_SPACE)):
                    prefixed = False
                parts.append(" " + fragment if prefixed else fragment)
                after_special = False
        return self._ids(parts if end is None else [*parts, end])

    def _ids(self, parts: Iterable[str | int]) -> list[int]:
        """Ids of texts, with special tokens between them, in their order."""
        parts, out = list(parts), list[int]()
        texts = iter(self._encoder.encode([part for part in parts if isinstance(part, str)]))
        for part in parts:
            out += next(texts) if isinstance(part, str) else [part]
        return out

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of `ids`. Control tokens are left out, or with `skip_special=False` shown by their text.

        The space that encoding puts before a text is taken away again; bytes that are not UTF-8 become U+FFFD. SPM vocabularies
        write spaces as U+2581, so that there a text which holds U+2581 comes back with spaces in its place.
        """
        return self.decode_bytes(ids, skip_special=skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int], *, skip_special: bool = True) -> bytes:
        """As `decode`, before UTF-8."""
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise OptionError(f"{shown(ids)} is not a list of token ids; give whole numbers, as encode returns them.")
        out, after_special = [], True
        for token in ids:
            piece, after_special = self.next_bytes(token, after_special, skip_special=skip_special)
            out.append(piece)
        return b"".join(out)

    def next_bytes(self, token: int, after_special: bool, *, skip_special: bool = True) -> tuple[bytes, bool]:
        """Bytes of one token of a sequence, and whether the next one stands after a special token (or at the start)."""
        piece = self.piece(token)
        if token in self.vocabulary.control:
            # One that is left out stands for nothing: "A", <s>, " B" reads "A B", as llama.cpp prints it.
            return (b"", after_special) if skip_special else (piece, not self._manners.space_first)
        if after_special and self._encoder.space_prefix and piece.startswith(b" "):
            piece = piece[1:]
        return piece, self.vocabulary.types[token] == TokenType.USER_DEFINED and not self._manners.space_first

    def piece(self, token: int) -> bytes:
        """The bytes of one token; of a control token its text."""
        piece = self._pieces.get(token)
        if piece is None:
            token = self._checked(token)
            piece = self._pieces[token] = self._spelled(token, self.vocabulary.texts[token], self.vocabulary.types[token])
        return piece

    def pieces(self) -> list[bytes]:
        """The bytes of every token, in the order of their ids."""
        return [*map(self._spelled, range(self._n_tokens), self.vocabulary.texts, self.vocabulary.types)]

    def _spelled(self, token: int, text: str, kind: int) -> bytes:
        """The bytes of a token of this text and TokenType."""
        spelling = self._encoder.spelling
        if token in self.vocabulary.control:
            return text.encode()
        if kind == TokenType.BYTE and spelling.byte_tokens:
            return bytes([int(text[3:5], 16)])
        if spelling.unescape is not None:
            return spelling.unescape(text)
        if spelling.letters is not None and kind != TokenType.USER_DEFINED:
            try:
                return bytes(map(spelling.letters.__getitem__, text))
            except KeyError:
                pass  # not a byte string: a token that somebody added, or padding
        return (text.replace(spelling.space, " ") if spelling.space else text).encode("utf-8", "surrogateescape")

    def _checked(self, token: int) -> int:
        try:
            token = operator.index(token)
        except TypeError:
            raise OptionError(f"{shown(token)} is not a token id; give whole numbers, as encode returns them.") from None
        if not 0 <= token < self._n_tokens:
            raise OptionError(
                f"token id {token} is outside the vocabulary of {self._n_tokens} tokens; take ids from this model's own tokenizer"
            )
        return token

    def _fragments(self, text: str, trusted: Sequence[Span]) -> Iterable[str | int]:
        """Split off special tokens: everywhere the user-defined ones, control tokens only in trusted spans."""
        pattern = self._special if trusted else self._user_defined
        if pattern is None:
            yield text
            return
        ids, control = self._special_ids, self.vocabulary.control
        start = at = span = 0
        while match := pattern.search(text, at):
            left, right = match.span()
            while span < len(trusted) and trusted[span][1] < right:
                span += 1
            token = ids[match[0]]
            if token in control and not (span < len(trusted) and trusted[span][0] <= left):
                match = self._user_defined.match(text, left) if self._user_defined else None
                if match is None:
                    at = left + 1
                    continue
                right, token = match.end(), ids[match[0]]
            if token in self._manners.single and (_in_word(text[left - 1 : left]) or _in_word(text[right : right + 1])):
                at = left + 1
                continue
            before = text[start:left]
            yield before.rstrip(SPACES) if token in self._manners.eats_left else before
            yield token
            start = at = self._after(text, right) if token in self._manners.eats_right else right
        yield text[start:]

    @staticmethod
    def _after(text: str, at: int) -> int:
        while at < len(text) and text[at] in SPACES:
            at += 1
        return at


def _in_word(char: str) -> bool:
    """True for a character of a word, as Unicode's \\w has it."""
    if not char:
        return False
    kind = unicodedata.category(char)
    return kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or char in JOINERS


class StreamDecoder:
    """Decodes one token after the other; the pieces joined are what `Tokenizer.decode` gives for all ids at once.

    `continuation`: the tokens follow a text (a prompt), so that the first one keeps its leading space.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, continuation: bool = False, skip_special: bool = True, shown: frozenset[int] = frozenset()
    ) -> None:
        """`shown`: control tokens whose text is not left out."""
        self._tokenizer, self._skip_special, self._shown = tokenizer, skip_special, shown
        self._continuation = continuation
        self._after_special = not continuation
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that became complete with this token: "" while a character's bytes are still missing."""
        piece, self._after_special = self._tokenizer.next_bytes(
            token, self._after_special, skip_special=self._skip_special and token not in self._shown
        )
        return self._utf8.decode(piece)

    def flush(self) -> str:
        """The rest at the end: U+FFFD for a character that was cut off. A new sequence may follow."""
        self._after_special = not self._continuation
        return self._utf8.decode(b"", final=True)


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise OptionError(f"{what} takes a text, not {type(text).__name__}.")
