"""Answers in gpt-oss's harmony format, messages in channels: separated into thinking, answer and calls while they are written."""

from __future__ import annotations

from typing import Literal

from edgellm.chat.thinking import HARMONY, ThinkingSplitter

START, CHANNEL, MESSAGE, END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
BEGINNINGS = (CHANNEL, START, " to=")  # of a header, behind the <|start|>assistant of the prompt
MAX_HEADER = 300  # characters
BETWEEN = "\n\n"  # between messages that were apart


class ChannelSplitter(ThinkingSplitter):
    """Thinking is what stands in the channel "analysis". A call, a message to somebody, stays as it is for the parser of calls."""

    def __init__(self) -> None:
        super().__init__(inside=False, marks=HARMONY)
        self._where: Literal["start", "header", "thinking", "answer", "call", "between"] = "start"
        self._text = ""  # not returned yet
        self._said = set[str]()  # parts that have had a message
        self._apart = False  # the message begun is not the first of its part

    def push(self, text: str) -> tuple[str, str]:
        self._text += text
        thinking, answer = "", ""
        while True:
            before = (self._where, len(self._text))
            part, shown = self._where, self._next()
            if shown and part == "thinking":
                thinking += shown
            else:
                answer += shown
            if (self._where, len(self._text)) == before:
                return thinking, answer

    def flush(self) -> tuple[str, str]:
        held, self._text = self._text, ""
        if self._where == "between":
            held = held.removeprefix(END)
        elif self._where == "header" and held.startswith((CHANNEL, START)):
            held = ""  # the header of a message that was cut
        return (held, "") if self._where == "thinking" else ("", held)

    def _next(self) -> str:
        """The parts of the text that are certain by now."""
        match self._where:
            case "start":
                if any(self._text.startswith(begin) for begin in BEGINNINGS):
                    self._where = "header"
                elif not any(begin.startswith(self._text) for begin in BEGINNINGS):
                    self._where = "answer"
                return ""
            case "header":
                return self._header()
            case "between":
                return self._between()
            case "call":
                text, self._text = self._text, ""
                return text
            case _:
                return self._body()

    def _header(self) -> str:
        header, mark, rest = self._text.partition(MESSAGE)
        if not mark:
            if len(self._text) <= MAX_HEADER:
                return ""
            self._where = "answer"  # it was none
            text, self._text = self._text, ""
            return text
        self._text = rest
        header = header.removeprefix(START + "assistant")
        if "to=" in header:
            self._where = "call"
            return header + mark
        self._where = "thinking" if header.removeprefix(CHANNEL).strip() == "analysis" else "answer"
        self._apart = self._where in self._said
        return ""

    def _body(self) -> str:
        """A message up to its end, or to the next one's beginning; behind an empty line where one came before."""
        part, text = self._where, self._text
        found = [(at, mark) for mark in (END, START, CHANNEL) if (at := text.find(mark)) >= 0]
        if found:
            until, mark = min(found)
            self._where = "between" if mark == END else "header"
        else:
            until = len(text) - max(
                (n for mark in (END, START, CHANNEL) for n in range(1, len(mark)) if text.endswith(mark[:n])), default=0
            )
        shown, self._text = text[:until], text[until:]
        if shown:
            shown, self._apart = BETWEEN * self._apart + shown, False
            self._said.add(part)
        return shown

    def _between(self) -> str:
        """Behind <|end|>: the next message follows, or it was text."""
        rest = self._text.removeprefix(END)
        if rest.startswith(START):
            self._text, self._where = rest, "header"
        elif rest and not START.startswith(rest):
            self._where = "answer"
            text, self._text = self._text, ""
            return text
        return ""
