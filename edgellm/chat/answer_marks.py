"""Answers between marks of their own, as Granite 3.3 and Hunyuan write them behind their thinking: the marks are taken off."""

from __future__ import annotations

from typing import Literal, NamedTuple


class AnswerMarks(NamedTuple):
    """The marks around an answer."""

    open: str
    close: str


RESPONSE = AnswerMarks("<response>", "</response>")  # Granite 3.3, ERNIE 4.5 thinking
ANSWER = AnswerMarks("<answer>", "</answer>")  # Hunyuan
RESPONSE_TOKENS = AnswerMarks("<|START_RESPONSE|>", "<|END_RESPONSE|>")  # Command R7B and A
TEXT_TOKENS = AnswerMarks("<|START_TEXT|>", "<|END_TEXT|>")  # North
# What templates show of them: all texts of one row. Hunyuan A13B's is recognised by its tokens.
_SHOWN = (
    (RESPONSE, RESPONSE),
    (ANSWER, ANSWER),
    (ANSWER, ("<|extra_4|>", "<think>")),
    (RESPONSE_TOKENS, RESPONSE_TOKENS[:1]),
    (TEXT_TOKENS, TEXT_TOKENS[:1]),
)


def answer_marks_of(source: str) -> AnswerMarks | None:
    """The marks around answers of a chat template's model, if any."""
    return next((marks for marks, texts in _SHOWN if all(text in source for text in texts)), None)


class Unwrapper:
    """Takes the marks off an answer that begins with one, piece by piece, with the white space around it. What follows the closing
    mark stays."""

    def __init__(self, marks: AnswerMarks | None, *, formed: bool = False) -> None:
        """`formed`: the answer follows a grammar, which has the opening mark alone; all behind it stays as it is."""
        self._marks, self._formed = marks, formed
        self._part: Literal["start", "begun", "inside", "after", "plain"] = "start" if marks else "plain"
        self._held = ""

    def push(self, text: str) -> str:
        """The part of the answer that is certain by now."""
        text, self._held = self._held + text, ""
        if self._marks is None or self._part == "plain":
            return text
        if self._part == "start":
            begun, opening = text.lstrip(), self._marks.open
            if len(begun) < len(opening) and opening.startswith(begun):
                self._held = text
                return ""
            if not begun.startswith(opening):
                self._part = "plain"
                return text
            self._part, text = "plain" if self._formed else "begun", begun.removeprefix(opening)
        if self._part == "begun":
            text = text.lstrip()
            self._part = "inside" if text else "begun"
        return text if self._part == "plain" else self._inside(text, self._marks.close)

    def _inside(self, text: str, close: str) -> str:
        if self._part == "inside":
            before, mark, text = text.partition(close)
            if not mark:
                n = next((n for n in range(len(close) - 1, 0, -1) if before.endswith(close[:n])), 0)
                shown = before[: len(before) - n].rstrip()
                self._held = before[len(shown) :]
                return shown
            self._part = "after"
            return before.rstrip() + self._inside(text, close)
        if not text.strip():
            self._held = text
            return ""
        self._part = "plain"
        return text

    def flush(self) -> str:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held if self._part in ("start", "inside") else ""
