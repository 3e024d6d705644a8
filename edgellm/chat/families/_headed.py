"""Calls as a head that names the tool, the arguments as a JSON object, and a tail, one behind another."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar  # Any: JSON

from edgellm.chat.families._reading import Cut, decoded, skipped
from edgellm.chat.tools import Call, ToolCall

Found = TypeVar("Found", Call, ToolCall)


def headed(
    block: str,
    head: re.Pattern[str],
    begun: re.Pattern[str],
    call: Callable[[re.Match[str], dict[str, Any], int], Found],
    tail: str = "",
) -> list[Found]:
    """The results of `call` for each head, its arguments, and the number of calls before it.

    `begun`: the beginning of a head, with which a block may be cut. Raises ValueError where something else stands between, Cut.
    """
    calls, at, ending = list[Found](), 0, re.compile(tail)
    while at < len(block):
        if begun.fullmatch(block, at):
            raise Cut(calls, at)
        match = head.match(block, at)
        if match is None:
            raise ValueError("is no call")
        arguments, end = decoded(block, match.end(), calls, at)
        ended = ending.match(block, end)
        if ended is None or not isinstance(arguments, dict):
            raise ValueError("is no call")
        calls.append(call(match, arguments, len(calls)))
        at = skipped(block, ended.end())
    return calls
