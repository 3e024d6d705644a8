"""The channels of an answer, thinking, text and calls, separated while it is written by a table of marks for each family.

Thinking and text accept anything, the text the answer's form if it has one, a call its family's grammar. Thinking ends at its
closing mark, a call's opener or its budget; text at a call's opener; a call at its closer, or where it is complete. A stop text
ends the answer in the text alone. An end token ends it anywhere but within a call, and in thinking where no form must follow.

The marks are data: `thinking.Marks` of the thinking, `families.Format` of the calls. `Reader` reads an answer's text;
`sampling.channels` keeps its tokens to the same channels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from edgellm.chat.messages import ChannelSplitter
from edgellm.chat.thinking import HARMONY, Marks, ThinkingSplitter, opens_thinking
from edgellm.chat.tools import CallDelta, ToolCall

if TYPE_CHECKING:
    from edgellm.chat.families import Segment, Splitter


class Channel(Enum):
    """Where a part of an answer stands."""

    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"


@dataclass(slots=True)
class Said:
    """The parts of an answer that are certain by now, in their order, each a text of a channel or a call."""

    parts: list[tuple[Channel, str | ToolCall | CallDelta]] = field(default_factory=list)

    def add(self, channel: Channel, part: str | ToolCall | CallDelta) -> None:
        if part:
            self.parts.append((channel, part))


class Reader:
    """Tells an answer's channels apart, piece by piece."""

    def __init__(self, thinking: ThinkingSplitter | None = None, calls: Splitter | None = None) -> None:
        self._thinking, self._calls = thinking, calls
        # Calls stand in the thinking as well, but for gpt-oss, whose thinking is a message of its own.
        self._calls_first = calls is not None and not isinstance(thinking, ChannelSplitter)
        self._steps = re.compile(rf"[^{re.escape(thinking.marks.close[-1])}]*.", re.DOTALL) if thinking is not None else None

    def push(self, text: str) -> Said:
        """The parts that are certain by now."""
        said = Said()
        if not self._calls_first or self._calls is None:
            self._split(text, said)
            return said
        while text:
            step = text
            if self._thinking is not None and self._thinking.thinks and self._steps is not None:
                found = self._steps.match(text)  # up to where the thinking may end
                step = found[0] if found is not None else text
            text = text[len(step) :]
            self._calls.thinking = self._thinking is not None and self._thinking.thinks
            self._separate(self._calls.segments(step), said)
        return said

    def flush(self) -> Said:
        """The text that was held back, at the end of the answer."""
        said = Said()
        if self._calls_first and self._calls is not None:
            self._separate(self._calls.rest(), said)
        if self._thinking is not None:
            thinking, text = self._thinking.flush()
            said.add(Channel.THINKING, thinking)
            self._say(text, said)
        if not self._calls_first and self._calls is not None:
            self._add(self._calls.rest(), said)
        return said

    def _separate(self, segments: list[Segment], said: Said) -> None:
        for segment in segments:
            if not isinstance(segment, str):
                said.add(Channel.CALL, segment)
            elif self._thinking is None:
                said.add(Channel.TEXT, segment)
            else:
                thought = self._thinking.thinks
                self._split(segment, said)
                if thought and not self._thinking.thinks and self._calls is not None:
                    self._calls.restart()

    def _split(self, text: str, said: Said) -> None:
        thinking = ""
        if self._thinking is not None:
            thinking, text = self._thinking.push(text)
        said.add(Channel.THINKING, thinking)
        self._say(text, said)

    def _say(self, text: str, said: Said) -> None:
        if self._calls is None or self._calls_first:
            said.add(Channel.TEXT, text)
        else:
            self._add(self._calls.segments(text), said)

    def _add(self, segments: list[Segment], said: Said) -> None:
        for segment in segments:
            said.add(Channel.TEXT if isinstance(segment, str) else Channel.CALL, segment)


def splitter_of(prompt: str, marks: Marks, *, formed: bool = False, stray: bool = False) -> ThinkingSplitter:
    """The splitter of thinking and answer for a rendered conversation; `formed`: the answer follows a grammar; `stray`: a closing
    mark that comes in the text means nothing."""
    if marks is HARMONY:
        return ChannelSplitter()
    return ThinkingSplitter(inside=opens_thinking(prompt, marks), marks=marks, formed=formed, stray=stray)
