"""What a tokenizer kind provides: ids of plain text, and the bytes that a token stands for."""
from __future__ import annotations

from typing import Protocol


class Encoder(Protocol):
    """One kind of tokenizer behind `Tokenizer`, which has already taken special tokens out of the text."""

    space_prefix: bool                      # a text at the start, or after a special token, begins with one more space

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no special token. Never a control id, whatever the text says."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token that is no control token."""

    def prepare(self) -> None:
        """Build what `encode` needs; called by `encode` where nobody did before."""
