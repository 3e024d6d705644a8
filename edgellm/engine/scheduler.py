"""The rows of the next step: decoding first, prompts in pieces beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from edgellm.backends.base import SMALLEST_STEP

PIECE = SMALLEST_STEP  # rows of prompts beside foreground requests that decode, at least
STEP_SECONDS = 0.1  # of a step with prompts beside them: reading speed
MOST_SECONDS = 0.25  # of one where more requests wait for their first token than decode
BACKGROUND_ROWS = 4  # of all background requests together beside it: a 5-row step takes 1.4 times as long as a 1-row step


class Candidate(NamedTuple):
    """A request that could be part of the step."""

    rows: int  # tokens that are not computed yet; one: it decodes
    foreground: bool = True
    awaited: bool = True  # a reader waits for it; others only fill the room that is left
    every_row: bool = False  # the logits of every token are wanted
    last_step: int = 0  # number of the newest step that computed it


class StepLimits(NamedTuple):
    """Upper limits of a step. `prompt_rows`: rows that take no longer than a step with prompts should. `row_seconds`: what a row
    of a step with prompts takes, 0 where that is not known.
    """

    rows: int
    segments: int
    outputs: int
    prompt_rows: int
    row_seconds: float = 0.0

    def piece(self, decoding: int, prompts: int) -> int:
        """Rows of prompts beside requests that decode. Each request has an equal claim to the time, within limits."""
        if not self.row_seconds:
            return PIECE
        seconds = min(max(prompts / max(decoding, 1), 1) * STEP_SECONDS, MOST_SECONDS)
        return max(PIECE, min(int(seconds / self.row_seconds) - decoding, self.prompt_rows))


def plan(candidates: Sequence[Candidate], limits: StepLimits) -> list[tuple[int, int]]:
    """The next step: (index of a candidate, rows) in the order of their segments; empty only without candidates.

    Foreground requests that decode come first, then foreground prompts, then the background. The oldest prompt, the first in
    `candidates`, gets at least half of the rows of prompts; prompts that are far shorter than it share the rest.
    While one in the foreground decodes, prompts come in pieces, and the background gets a few rows. Otherwise prompts take
    `prompt_rows`, and background requests that decode come with them; a prompt in the background comes in pieces, so that the
    foreground soon has its turn. Where there is not room for all, those come that were computed longest ago.
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
        step.add_prompts(prompts, limits.piece(len(step.chosen), len(prompts)))
        step.add(background, BACKGROUND_ROWS)
    else:
        decoding_too = [index for index in background if candidates[index].rows == 1]
        reserved = min(len(decoding_too), limits.prompt_rows // 2) if prompts else 0
        step.add_prompts(prompts, limits.prompt_rows - reserved)
        step.add(decoding_too, len(decoding_too))
        most = limits.prompt_rows if not limits.row_seconds else max(2 * PIECE, limits.piece(len(decoding_too), 0))
        step.add([index for index in background if candidates[index].rows > 1], min(limits.prompt_rows, most) - step.rows)
    return step.chosen


class _Step:
    """A step that is filled up to its limits."""

    def __init__(self, candidates: Sequence[Candidate], limits: StepLimits) -> None:
        self.chosen: list[tuple[int, int]] = []
        self.rows = self._outputs = 0
        self._candidates, self._limits = candidates, limits

    def add_prompts(self, indices: Sequence[int], most: int) -> None:
        """Add prompts, the oldest first: it leaves half of the rows to others that are less than half as long."""
        if not indices:
            return
        oldest, *others = indices
        rows = self._candidates[oldest].rows
        others.sort(key=lambda index: self._candidates[index].rows)
        short = sum(self._candidates[index].rows for index in others if 2 * self._candidates[index].rows < rows)
        before = self.rows
        self.add([oldest], most - min(short, most // 2))
        self.add(others, most - (self.rows - before))

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
