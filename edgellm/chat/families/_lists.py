"""Calls as JSON: {"name": ..., "arguments": {...}}, one after another or in a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.families._format import Mark, called
from edgellm.chat.families._reading import Cut, decoded, skipped
from edgellm.chat.tools import Call, Tool, call_of

BETWEEN = ", \t\r\n"
Read = Callable[[Any], Sequence[Call] | None]  # the calls of one JSON value, None where it is none


def parse(block: str, tools: Sequence[Tool], at: int = 0) -> list[Call] | None:
    """Some models write "parameters" for "arguments". `at`: where the first one begins."""
    calls, at = list[Call](), _skipped(block, at)
    while at < len(block):
        value, at = _decoded(block, at, calls, read)
        found = _calls(value, read)
        if found is None:
            return None
        calls += found
        at = _skipped(block, at)
    return calls


def parse_one(block: str, read: Read) -> list[Call] | None:
    """The calls that `read` finds in a list, or in a single value. Raises ValueError where more follows, Cut."""
    value, end = _decoded(block, skipped(block, 0), [], read)
    if block[end:].strip():
        raise ValueError("is not one value")
    return _calls(value, read)


def _decoded(block: str, at: int, calls: Sequence[Call], read: Read) -> tuple[Any, int]:
    """The value at `at`; Cut has the calls of a list that does not end."""
    try:
        return decoded(block, at, calls)
    except Cut:
        if not block.startswith("[", at):
            raise
    calls, at = [*calls], _skipped(block, at + 1)
    while at < len(block):
        value, end = decoded(block, at, calls)
        found = read(value)
        if found is None:
            raise ValueError("is no call")
        calls += found
        at = _skipped(block, end)
    raise Cut(calls, at)


def _calls(value: Any, read: Read) -> list[Call] | None:
    calls = list[Call]()
    for each in value if isinstance(value, list) else [value]:
        found = read(each)
        if found is None:
            return None
        calls += found
    return calls


def read(value: Any) -> list[Call] | None:
    """The call that a value is."""
    call = call_of(value, "parameters" if isinstance(value, dict) and "arguments" not in value else "arguments")
    return [call] if call else None


def _skipped(block: str, at: int) -> int:
    """Where the next value begins."""
    while at < len(block) and block[at] in BETWEEN:
        at += 1
    return at


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return listed([called(tool, "arguments") for tool in tools])


def listed(calls: Sequence[str]) -> str:
    return '"[" call ("," " "? call)* "]"\ncall: ' + " | ".join(calls)
