"""The model's tokenizer, built beside the weights while they load, and what generation needs of it."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from edgellm.errors import NoTokenizer, Unsupported
from edgellm.tokenizer import StreamDecoder, Tokenizer, build_tokenizer


class BackgroundTokenizer:
    """Builds the tokenizer of a file's metadata in a thread of its own; callers wait for it."""

    def __init__(self, metadata: Mapping[str, Any], path: str) -> None:  # Any: a value's type is the file's choice
        self._metadata, self._path = metadata, path
        self._tokenizer: Tokenizer | None = None
        self._error: BaseException | None = None
        self._checked = threading.Event()
        self._thread = threading.Thread(target=self._build, name="edgellm-tokenizer")
        self._thread.start()

    def _build(self) -> None:
        try:
            self._tokenizer = build_tokenizer(self._metadata, file=self._path)
            self._checked.set()
            self._tokenizer.prepare()  # 0.2-0.3 s for 150k to 280k merges
            _give_back_memory()
        except BaseException as error:  # raised in the thread that asks for the tokenizer
            self._error = error
        finally:
            self._checked.set()

    def check(self) -> None:
        """Wait until the vocabulary was read. Raises BadVocab; a model without a usable tokenizer still takes ids."""
        self._checked.wait()
        if self._error is not None and not isinstance(self._error, NoTokenizer | Unsupported):
            raise self._error

    def wait(self) -> None:
        """Wait until nothing reads the file's metadata any more."""
        self._thread.join()

    @property
    def exists(self) -> bool:
        """True if text can be given to the model."""
        self._checked.wait()
        return self._tokenizer is not None

    def get(self) -> Tokenizer:
        """The tokenizer. Raises NoTokenizer, Unsupported."""
        self._thread.join()
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._tokenizer is not None
        return self._tokenizer


def _give_back_memory() -> None:
    """Let glibc return what building has freed, 10 to 20 MB; other systems do that by themselves."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


class TokenTexts:
    """A tokenizer as the DRY sampler sees it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _pieces(self) -> Sequence[str]:
        return [self._tokenizer.piece(token).decode("utf-8", "replace") for token in range(self._tokenizer.vocab_size)]

    def pieces(self) -> Sequence[str]:
        """The text of every token, by id."""
        return self._pieces

    def encode(self, text: str) -> Sequence[int]:
        """Ids of plain text, nothing added."""
        return self._tokenizer.encode(text, add_special=False)


def answer_decoder(
    tokenizer: Tokenizer, last_of_prompt: int, *, exact_spaces: bool = False, shown: frozenset[int] = frozenset()
) -> StreamDecoder:
    """A decoder for what follows a prompt. After a special token a text's leading space is the tokenizer's, and goes; where a gap
    is filled in it belongs to the text.

    `exact_spaces`: every space is the answer's own. `shown`: control tokens that are part of the text.
    """
    if exact_spaces or last_of_prompt == tokenizer.fill_in_ids.get("middle"):
        return StreamDecoder(tokenizer, continuation=True, shown=shown)
    after_special = tokenizer.is_control(last_of_prompt) or tokenizer.next_bytes(last_of_prompt, False)[1]
    return StreamDecoder(tokenizer, continuation=not after_special, shown=shown)
