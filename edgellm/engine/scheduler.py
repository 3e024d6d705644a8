"""The rows of the next step: decoding first, prompts in pieces beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edgellm.backends.base import SMALLEST_STEP

PIECE = SMALLEST_STEP  # rows of prompts beside a foreground conversation that decodes
BACKGROUND_ROWS = 4  # of all background requests together beside it: a 5-row step takes 1.4 times as long as a 1-row step


class Candidate(NamedTuple):
    """A request that could be part of the step."""

    rows: int  # tokens that are not computed yet; one: it decodes
    foreground: bool = True
    awaited: bool = True  # a reader waits for it; others only fill the room that is left
    every_row: bool = False  # the logits of every token are wanted
    last_step: int = 0  # number of the newest step that computed it


class StepLimits(NamedTuple):
    """Upper limits of a step. `prompt_rows`: rows that take no longer than a step with prompts should."""

    rows: int
    segments: int
    outputs: int
    prompt_rows: int


def plan(candidates: Sequence[Candidate], limits: StepLimits) -> list[tuple[int, int]]:
    """The next step: (index of a candidate, rows) in the order of their segments; empty only without candidates.

    Foreground requests that decode come first, then foreground prompts in the order of `candidates`, then the background.
    While one in the foreground decodes, prompts come in small pieces, and the background gets a few rows. Otherwise prompts take
    `prompt_rows`, and background requests that decode come with them. Where there is not room for all, those come that were
    computed longest ago.
    """
    step = _Step(candidates, limits)
    order = sorted(range(len(candidates)), key=lambda index: (not candidates[index].awaited, candidates[index].last_step))
    decoding = [index for index in order if candidates[index].foreground and candidates[index].rows == 1]
    prompts = sorted(index for index in order if candidates[index].foreground and candidates[index].rows > 1)
    background = [index for index in order if not candidates[index].foreground]
    room = min(limits.rows, limits.segments, limits.outputs)
    if prompts and len(decoding) >= room:  # one place is a prompt's, every other time if there is one only
        prompt_first = room == 1 and candidates[prompts[0]].last_step <= candidates[decoding[0]].last_step
        decoding = [] if prompt_first else decoding[: max(1, room - 1)]
    step.add(decoding, len(decoding))
    if step.chosen:
        step.add(prompts, PIECE)
        step.add(background, BACKGROUND_ROWS)
    else:
        decoding_too = [index for index in background if candidates[index].rows == 1]
        reserved = min(len(decoding_too), limits.prompt_rows // 2) if prompts else 0
        step.add(prompts, limits.prompt_rows - reserved)
        step.add(decoding_too, len(decoding_too))
        step.add([index for index in background if candidates[index].rows > 1], limits.prompt_rows - step.rows)
    return step.chosen


class _Step:
    """A step that is filled up to its limits."""

    def __init__(self, candidates: Sequence[Candidate], limits: StepLimits) -> None:
        self.chosen: list[tuple[int, int]] = []
        self.rows = self._outputs = 0
        self._candidates, self._limits = candidates, limits

    def add(self, indices: Iterable[int], most: int) -> None:
        """Add candidates while the step has room and they take no more than `most` rows together."""
        for index in indices:
            candidate = self._candidates[index]
            n = min(candidate.rows, most, self._limits.rows - self.rows)
            if candidate.every_row:
                n = min(n, self._limits.outputs - self._outputs)
            if n <= 0 or len(self.chosen) == self._limits.segments:
                continue
            outputs = n if candidate.every_row else int(n == candidate.rows)
            if self._outputs + outputs > self._limits.outputs:
                continue
            self.chosen.append((index, n))
            self.rows, self._outputs, most = self.rows + n, self._outputs + outputs, most - n
