"""Which tasks the next step carries, and how many tokens of each: decoding first, prompts in pieces beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edgellm.backends.base import SMALLEST_STEP

PIECE = SMALLEST_STEP  # rows of prompts beside a foreground conversation that decodes
BACKGROUND_ROWS = 4  # of all background tasks together beside it: a step of 5 costs 1.4 of one


class Wish(NamedTuple):
    """What a task could do in a step."""

    rows: int  # tokens that wait to be computed; one: it decodes
    foreground: bool = True
    wanted: bool = True  # somebody waits for it; else it may only fill what the others leave
    every_row: bool = False  # whether the logits of every token are wanted
    served: int = 0  # the step in which it took part last


class Limits(NamedTuple):
    """What a step may carry. `pace`: rows that take no longer than a step with prompts should."""

    rows: int
    segments: int
    outputs: int
    pace: int


def plan(wishes: Sequence[Wish], limits: Limits) -> list[tuple[int, int]]:
    """The next step: (index of a wish, rows) in the order of their segments; empty only where there are no wishes.

    Foreground conversations that decode come first, then foreground prompts in the order of `wishes`, then background tasks.
    While one in the foreground decodes, prompts come in small pieces, and the background gets a few rows. Else prompts take what
    the pace allows, and the background rides along. Where there is room for some only, those come that were served longest ago.
    """
    step = _Step(wishes, limits)
    order = sorted(range(len(wishes)), key=lambda index: (not wishes[index].wanted, wishes[index].served))
    decoding = [index for index in order if wishes[index].foreground and wishes[index].rows == 1]
    prompts = sorted(index for index in order if wishes[index].foreground and wishes[index].rows > 1)
    background = [index for index in order if not wishes[index].foreground]
    room = min(limits.rows, limits.segments, limits.outputs)
    if prompts and len(decoding) >= room:  # one place is a prompt's, every other time if there is one only
        prompt_first = room == 1 and wishes[prompts[0]].served <= wishes[decoding[0]].served
        decoding = [] if prompt_first else decoding[: max(1, room - 1)]
    step.add(decoding, len(decoding))
    if step.chosen:
        step.add(prompts, PIECE)
        step.add(background, BACKGROUND_ROWS)
    else:
        riding = [index for index in background if wishes[index].rows == 1]
        reserved = min(len(riding), limits.pace // 2) if prompts else 0
        step.add(prompts, limits.pace - reserved)
        step.add(riding, len(riding))
        step.add([index for index in background if wishes[index].rows > 1], limits.pace - step.rows)
    return step.chosen


class _Step:
    """A step that fills up."""

    def __init__(self, wishes: Sequence[Wish], limits: Limits) -> None:
        self.chosen: list[tuple[int, int]] = []
        self.rows = self._outputs = 0
        self._wishes, self._limits = wishes, limits

    def add(self, indices: Iterable[int], most: int) -> None:
        """Add tasks, as long as the step has room and they take no more than `most` rows together."""
        for index in indices:
            wish = self._wishes[index]
            n = min(wish.rows, most, self._limits.rows - self.rows)
            if wish.every_row:
                n = min(n, self._limits.outputs - self._outputs)
            if n <= 0 or len(self.chosen) == self._limits.segments:
                continue
            outputs = n if wish.every_row else int(n == wish.rows)
            if self._outputs + outputs > self._limits.outputs:
                continue
            self.chosen.append((index, n))
            self.rows, self._outputs, most = self.rows + n, self._outputs + outputs, most - n
