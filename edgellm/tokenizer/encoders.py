"""The interface of a tokenizer kind: ids of plain text, and how its tokens spell bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the texts of a vocabulary's tokens, which are not control tokens, stand for bytes."""

    byte_tokens: bool = False  # <0x0A> is a byte where the token's type says so
    space: str = ""  # stands for a space
    letters: Mapping[str, int] | None = None  # each stands for a byte, but in tokens that users defined and where others stand too
    unescape: Callable[[str], bytes] | None = None


class Encoder(Protocol):
    """One kind of tokenizer behind `Tokenizer`, which has already taken special tokens out of the text."""

    spelling: Spelling
    space_prefix: bool  # a text at the start, or after a special token, begins with one more space

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each of several texts that hold no special token. Never a control id, whatever a text says."""

    def prepare(self) -> None:
        """Build what `encode` needs; called by `encode` where nobody did before."""
