"""Text of a growing sequence of tokens: characters come out when their last byte is in."""

from __future__ import annotations

import codecs

from edgellm.tokenizer.tokenizer import Tokenizer


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
        """What is left at the end: U+FFFD for a character that was cut off. A new sequence may follow."""
        self._after_special = not self._continuation
        return self._utf8.decode(b"", final=True)
