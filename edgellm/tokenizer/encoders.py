"""What a tokenizer kind provides: ids of plain text, and the bytes that a token stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Encoder(Protocol):
    """One kind of tokenizer behind `Tokenizer`, which has already taken special tokens out of the text."""

    space_prefix: bool  # a text at the start, or after a special token, begins with one more space

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each of several texts that hold no special token. Never a control id, whatever a text says."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token that is not a control token."""

    def prepare(self) -> None:
        """Build what `encode` needs; called by `encode` where nobody did before."""
