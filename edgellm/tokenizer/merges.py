"""The merges of a BPE vocabulary, of which few are Python objects at a time."""
from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import repeat
from typing import overload

from edgellm.errors import BadVocab
from edgellm.tokenizer.texts import batches


class Merges(Sequence[tuple[str, str]]):
    """Pairs of token texts, the first merged first. Iterating is the fast way to them: 280k pairs at once would be 40 MB."""

    def __init__(self, merges: Sequence[str], file: str) -> None:
        """`merges`: each written "left right". Raises BadVocab for one without a blank."""
        self.longest = 0                     # bytes of the longest text that a merge makes
        self._parts, self._n = list[str](), len(merges)
        for batch in batches(merges):
            part = " ".join(batch)
            if set(map(str.count, batch, repeat(" "))) != {1} or part[0] == " " or part[-1] == " " or "  " in part:
                _refuse(merges, file)
            self.longest = max(self.longest, max(map(len, map(str.encode, batch))) - 1)
            self._parts.append(part)

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for part in self._parts:
            texts = part.split(" ")
            yield from zip(texts[::2], texts[1::2], strict=True)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        return list(self)[index]

    def among(self, known: Container[str]) -> list[tuple[str, str]]:
        """Those of known tokens that make a known one."""
        return [(a, b) for a, b in self if a in known and b in known and a + b in known]


def _refuse(merges: Sequence[str], file: str) -> None:
    i, merge = next((i, merge) for i, merge in enumerate(merges) if merge.count(" ") != 1 or "" in merge.split(" "))
    raise BadVocab(f"entry {i} is {merge[:40]!r}, not two token texts with a blank between; convert the model again", file=file,
                   field="tokenizer.ggml.merges")
