"""Guessing as long as it pays: how many tokens a draft has, and when there is none, by what steps with and without cost."""

from __future__ import annotations

from array import array

from edgellm.sampling.drawing import Chances

MOST = 8  # tokens of a draft
SMOOTHING = 0.2  # of the newest measurement
FIRST_PAUSE, LONGEST_PAUSE = 16, 512  # tokens without drafts once they do not pay; doubled each time
LEAST_STEPS = 3  # drafts before their cost is judged


class Drafter:
    """Proposes tokens for one answer. Times decide how many, so they change the speed and never the answer."""

    def __init__(self) -> None:
        self.drafted = self.accepted = 0
        self.chances: list[Chances] = []  # that the tokens of the last draft were drawn from, where they were drawn
        self._plain: float | None = None  # seconds of a token without a draft
        self._checked: float | None = None  # seconds of a token with one
        self._steps = 0
        self._pause, self._waiting = FIRST_PAUSE, 0
        self._length = MOST // 2

    def propose(self, ids: array[int], room: int) -> list[int]:
        """Up to `room` tokens that may follow `ids`; none where nothing is known or where drafts do not pay."""
        raise NotImplementedError

    def _most(self, room: int) -> int:
        """How many tokens to propose."""
        return 0 if self._plain is None or self._waiting > 0 else min(self._length, room)

    def note(self, drafted: int, produced: int, seconds: float) -> None:
        """A step with a draft of so many tokens (0: none) brought `produced` tokens."""
        if not drafted:
            self._plain = _smoothed(self._plain, seconds)
            self._waiting = max(0, self._waiting - 1)
            return
        self.drafted, self.accepted = self.drafted + drafted, self.accepted + produced - 1
        self._length = min(MOST, self._length + 2) if produced > drafted else max(2, produced)
        self._checked = _smoothed(self._checked, seconds / produced)
        self._steps += 1
        if self._steps >= LEAST_STEPS and self._plain is not None and self._checked > self._plain:
            self._waiting, self._pause = self._pause, min(LONGEST_PAUSE, 2 * self._pause)
            self._checked, self._steps = None, 0
        elif self._steps > 4 * LEAST_STEPS:
            self._pause = FIRST_PAUSE


def _smoothed(value: float | None, new: float) -> float:
    return new if value is None else value + SMOOTHING * (new - value)
