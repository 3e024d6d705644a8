"""Drafts by prompt lookup: what followed the newest tokens where they stood before."""

from __future__ import annotations

from array import array

from edgellm.engine.speculate.drafter import Drafter

LOOKUP = 3  # tokens that must have stood before


class NgramDrafter(Drafter):
    """Proposes what the text itself has said."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[int, ...], int] = {}  # the tokens before a place -> the place, the newest one
        self._known = 0  # tokens that are in `_places`

    def propose(self, ids: array[int], room: int) -> list[int]:
        place, most = self._found(ids), self._most(room)
        return [] if place is None else ids[place : place + most].tolist()

    def _found(self, ids: array[int]) -> int | None:
        """Where the newest tokens stood before: the place behind them."""
        for end in range(max(self._known, LOOKUP), len(ids)):
            self._places[tuple(ids[end - LOOKUP : end])] = end
        self._known = len(ids)
        return self._places.get(tuple(ids[-LOOKUP:])) if len(ids) >= LOOKUP else None
