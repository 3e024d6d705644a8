"""Token ids of a rendered conversation: the template's control tokens are tokens, those in messages are text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgellm.chat.provenance import Span
from edgellm.chat.templates import Rendered


class ChatTokenizer(Protocol):
    """The part of a tokenizer that rendering conversations uses."""

    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    def encode_trusted(self, text: str, trusted: Sequence[Span], *, add_special: bool = True) -> list[int]: ...
    def may_form_control(self, text: str) -> bool: ...
    def token_text(self, token: int) -> str: ...
    def token_id(self, text: str) -> int | None: ...


def encode_chat(tokenizer: ChatTokenizer, rendered: Rendered) -> list[int]:
    """Ids of a conversation, with exactly one BOS where the template writes one or the vocabulary asks for one."""
    trusted = rendered.trusted
    if not any(map(tokenizer.may_form_control, rendered.given)):
        trusted = ((0, len(rendered.text)),)  # nothing to guard against, also in templates that lose track of their own text
    ids = tokenizer.encode_trusted(rendered.text, trusted, add_special=False)
    bos = tokenizer.bos_id
    if tokenizer.add_bos and bos is not None and ids[:1] != [bos]:
        return [bos, *ids]
    return ids
