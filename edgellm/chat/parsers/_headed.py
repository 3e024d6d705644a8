"""Calls as a head that names the tool, the arguments as a JSON object, and a tail, one behind another."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any  # Any: JSON

DECODER = json.JSONDecoder()


def headed(block: str, head: re.Pattern[str], tail: str = r"\s*") -> Iterator[tuple[re.Match[str], dict[str, Any]]]:
    """The heads found, with their arguments. Raises ValueError where something else stands between."""
    at, ending = 0, re.compile(tail)
    while match := head.match(block, at):
        arguments, at = DECODER.raw_decode(block, match.end())
        end = ending.match(block, at)
        if end is None or not isinstance(arguments, dict):
            raise ValueError("is no call")
        at = end.end()
        yield match, arguments
    if block[at:].strip():
        raise ValueError("is no call")
