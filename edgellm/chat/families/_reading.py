"""Reading of blocks that may end too early: white space, JSON, and the calls that are complete before the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.tools import Call, ToolCall

DECODER = json.JSONDecoder(strict=False)  # models write new lines in texts as they are
SPACE = re.compile(r"\s*")
BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}]', re.DOTALL)  # and texts
UNFINISHED = re.compile(  # a number, a word or an escape that may go on, or nothing
    r"\\\w{0,5}|u?[0-9a-fA-F]{0,4}|[-+.\deE]{0,9}|t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?|N(?:a)?|-?I\w{0,8}"
)


class Cut(ValueError):
    """A block that ends within a call, which begins at `at`; `calls` come before it. `needs`: a text without which what follows the
    block cannot complete it. `broken`: something is there that belongs to no call. `begun`: the argument that is cut, its name and
    its text so far, where that is certain."""

    def __init__(
        self,
        calls: Iterable[Call | ToolCall] = (),
        at: int = 0,
        needs: str = "",
        *,
        broken: bool = False,
        begun: tuple[str, str] | None = None,
    ) -> None:
        super().__init__("ends within a call")
        self.calls, self.at, self.needs, self.broken, self.begun = calls, at, needs, broken, begun


def decoded(block: str, at: int, calls: Sequence[Call | ToolCall] = (), begins: int | None = None) -> tuple[Any, int]:
    """The JSON value at `at`, and where it ends. Raises ValueError, and Cut behind `calls` where the block ends first.

    `begins`: where its call begins, if that is not `at`.
    """
    try:
        return DECODER.raw_decode(block, at)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated") or UNFINISHED.fullmatch(block, error.pos):
            raise Cut(calls, at if begins is None else begins) from None
        raise


def skipped(text: str, at: int) -> int:
    """Where white space ends."""
    found = SPACE.match(text, at)
    assert found is not None  # it matches nothing as well
    return found.end()


def unclosed(text: str) -> str:
    """The brackets that JSON lacks at its end; none where it ends within a text, or its brackets do not fit."""
    open_brackets, closers = list[str](), {"{": "}", "[": "]"}
    for match in BRACKETS.finditer(text):
        sign = match[0]
        if sign in closers:
            open_brackets.append(closers[sign])
        elif sign[0] == '"':
            if len(sign) == 1 or sign[-1] != '"':
                return ""
        elif not open_brackets or open_brackets.pop() != sign:
            return ""
    return "".join(reversed(open_brackets))
