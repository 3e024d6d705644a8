"""Calls that are still being written: the name, and as much of the arguments as no later text changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple  # Any: JSON

from edgellm.chat.families._reading import DECODER, skipped
from edgellm.chat.tools import Tool, json_of

HEAD = re.compile(
    r'[\s\[{]*(?:"(?:type|tool_call_id)"\s*:\s*"[^"]*"\s*,\s*)?"(?:tool_)?name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,'
    r'\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
ENDING_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")


class Partial(NamedTuple):
    """A call as far as it is written: the arguments that are complete, and a text that is not. `closed`: there are no others."""

    name: str
    arguments: dict[str, Any]
    unfinished: tuple[str, str] | None = None
    closed: bool = False

    @property
    def json(self) -> str:
        """How the JSON of the arguments begins."""
        text = json_of(self.arguments)
        if self.closed:
            return text
        text = text[:-1]
        if self.unfinished is None:
            return text
        key, value = self.unfinished
        value = value[: len(value) - ("\ud800" <= value[-1:] < "\udc00")]  # the other half of a pair may follow
        return f"{text}{', ' if self.arguments else ''}{json_of({key: value})[1:-2]}"

    def rest(self, text: str) -> str:
        """The text behind `json` that makes both the arguments whose JSON is `text`: where a name came twice, all of them again."""
        if text.startswith(self.json) or self.closed:
            return text[len(self.json) :] if text.startswith(self.json) else ""
        ended = '"' if self.unfinished is not None else ""
        return f"{ended}{', ' if self.arguments or self.unfinished else ''}{text[1:]}"


Read = Callable[[str, Sequence[Tool]], Partial | None]


def unended(text: str, end: str) -> str:
    """A text that is being written, without what may begin the mark that ends it."""
    kept = next((n for n in range(min(len(end) - 1, len(text)), 0, -1) if text.endswith(end[:n])), 0)
    return text[: len(text) - kept]


def of_json(block: str, tools: Sequence[Tool]) -> Partial | None:
    """The first call of a block of JSON."""
    head = HEAD.match(block)
    if head is None:
        return None
    return arguments_of(json.loads(head[1]), block, head.end())


def arguments_of(name: str, block: str, at: int) -> Partial | None:
    """A call whose arguments are JSON that begins at `at`; None before it does."""
    at = skipped(block, at)
    if not block.startswith("{", at):
        return None
    arguments, at, unfinished = dict[str, Any](), at + 1, None
    try:
        while True:
            key, at = DECODER.raw_decode(block, skipped(block, at))
            at = skipped(block, at)
            if not isinstance(key, str) or block[at : at + 1] != ":":
                break
            at = skipped(block, at + 1)
            try:
                value, end = DECODER.raw_decode(block, at)
            except ValueError:
                if block[at : at + 1] == '"':
                    unfinished = key, json.loads(ENDING_ESCAPE.sub("", block[at:]) + '"', strict=False)
                break
            if end == len(block):  # a number may go on
                break
            arguments[key], at = value, skipped(block, end)
            if block[at : at + 1] != ",":
                break
            at += 1
    except (ValueError, RecursionError):
        pass
    return Partial(name, arguments, unfinished)


def headed(head: Callable[[Sequence[Tool]], str]) -> Read:
    """Reads a call whose arguments are JSON behind a head, by a regular expression of it that has the name in a group."""

    def read(block: str, tools: Sequence[Tool]) -> Partial | None:
        match = re.match(head(tools), block)
        return arguments_of(next(filter(None, match.groups())), block, match.end()) if match else None

    return read
