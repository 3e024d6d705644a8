"""The slots of recurrent states: which of them holds the state after which position, and which are kept to go back to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

StateSlots = npt.NDArray[np.int32]  # (T, 2): slot of the state before a token, -1 for none; slot of the state after it
NO_STATE_SLOTS: StateSlots = np.zeros((0, 2), np.int32)  # of models without recurrent layers


class StateRing:
    """A state replaces the one before it, so a few are kept: those after the newest `rolling` positions, by which a conversation
    can be cut back without a copy, and `snapshots` of earlier ones.

    The state that a step starts from stays until the step counts, so that a step that fails changes nothing.
    """

    __slots__ = ("_held", "_marked", "_reserved", "rolling", "snapshots")

    def __init__(self, rolling: int, snapshots: int) -> None:
        """`rolling`: at least 2."""
        self.rolling, self.snapshots = rolling, snapshots
        self._held: dict[int, int] = {}  # position -> slot, ascending
        self._reserved: dict[int, int] = {}  # of the step that is being computed
        self._marked: list[int] = []  # positions, ascending

    @classmethod
    def restored(cls, rolling: int, snapshots: int, held: Mapping[int, int], marked: Iterable[int]) -> StateRing:
        """One with the contents of another: see the properties of these names."""
        ring = cls(rolling, snapshots)
        ring._held, ring._marked = dict(held), list(marked)
        return ring

    @property
    def held(self) -> Mapping[int, int]:
        """The slots of the states that are there, by the position of the token that they come after."""
        return self._held

    @property
    def marked(self) -> tuple[int, ...]:
        """The positions of snapshots."""
        return tuple(self._marked)

    def place(self, start: int, n: int) -> StateSlots:
        """Slots (n, 2) of the tokens at positions start..start + n - 1.

        The last tokens have a slot each; those before them share the first of these slots.
        """
        source = self._held[start - 1] if start else -1
        keep = min(n, self.rolling - 1)
        self._make_room(keep, start - 1)
        taken = set(self._held.values())
        free = [slot for slot in range(self.rolling + self.snapshots) if slot not in taken][:keep]
        self._reserved = dict(zip(range(start + n - keep, start + n), free, strict=True))
        slots = np.empty((n, 2), np.int32)
        slots[: n - keep, 1], slots[n - keep :, 1] = free[0], free
        slots[0, 0], slots[1:, 0] = source, slots[:-1, 1]
        return slots

    def _make_room(self, keep: int, source: int) -> None:
        """Let go of old states, but not of the one that the next token needs, nor of snapshots."""
        rolling = [position for position in self._held if position not in self._marked]
        excess = len(rolling) + keep - self.rolling
        for position in [position for position in rolling if position != source][: max(0, excess)]:
            del self._held[position]

    def extend(self) -> None:
        """The tokens that got their places last have been computed."""
        self._held.update(self._reserved)
        self._reserved = {}

    def mark(self) -> None:
        """Keep the oldest of the rolling states, until `snapshots` later ones are marked: what follows may end a little earlier
        the next time, as the end of a message does.
        """
        oldest = next((position for position in self._held if position not in self._marked), None)
        if oldest is not None:
            self._marked = sorted([*self._marked, oldest])[-self.snapshots :]

    def lengths(self) -> list[int]:
        """The lengths that a conversation can be cut back to, longest first."""
        return [*sorted((position + 1 for position in self._held), reverse=True), 0]

    def can_truncate(self, length: int) -> bool:
        """True if the state after the first `length` tokens is there."""
        return not length or length - 1 in self._held

    def truncate(self, length: int) -> None:
        """Forget the states after later tokens; only where `can_truncate(length)`."""
        self._held = {position: slot for position, slot in self._held.items() if position < length}
        self._marked = [position for position in self._marked if position < length]
