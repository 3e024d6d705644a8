"""Tokens that a text continues with: lengths to try at a position, so that vocabularies need no trie of Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

Text = TypeVar("Text", str, bytes)
HEAD = 2  # units of a key by which lengths are kept apart


class Prefixes(Generic[Text]):
    """Keys of a vocabulary, found at a place of a text: at most as many tries as keys with the same beginning have lengths."""

    def __init__(self, keys: Iterable[Text]) -> None:
        found: dict[Text, set[int]] = {}
        for key in keys:
            found.setdefault(key[:HEAD], set()).add(len(key))
        alone = {head for head in found if len(head) < HEAD}
        self._lengths: dict[Text, Sequence[int]] = {
            head: sorted(lengths | ({1} if head[:1] in alone else set()), reverse=True) for head, lengths in found.items()
        }

    def lengths(self, text: Text, at: int) -> Sequence[int]:
        """Lengths, longest first, that a key which begins as `text` does at `at` may have; some may reach past its end."""
        return self._lengths.get(text[at : at + HEAD]) or self._lengths.get(text[at : at + 1], ())
