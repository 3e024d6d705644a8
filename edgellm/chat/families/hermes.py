"""Calls as JSON within <tool_call>: Hermes, Qwen2.5, Qwen3 and many others."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.families import _lists
from edgellm.chat.families._format import Format, Mark, called
from edgellm.chat.families._partial import of_json
from edgellm.chat.families._reading import Cut
from edgellm.chat.families.pythonic import value_of
from edgellm.chat.tools import Call, Tool

MAX_LITERAL = 4096  # characters of a block that is read as Python, which takes longer than JSON
FENCE = re.compile(r"\s*```[a-z_]*\s(.*?)(?:```\s*)?", re.DOTALL)


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "arguments": {...}}, or a list of them; some models put a fence around it, or write "parameters"."""
    if (fence := FENCE.fullmatch(block)) is not None:
        block = fence[1]
    try:
        return _lists.parse_one(block, _lists.read)
    except Cut:
        raise
    except ValueError:
        if len(block) > MAX_LITERAL:
            raise
        # Single quotes, True and None, commas before a bracket: Python reads them.
        value = value_of(block.strip())
        call = _lists.read(value) if isinstance(value, dict) else None
        return [*call] if call and any(tool.name == call[0].name for tool in tools) else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [called(tool, "arguments") for tool in tools]
    return f'("\\n")? ({" | ".join(calls)})'


def write(calls: Sequence[Call]) -> list[str]:
    return [f"\n{json.dumps(call._asdict(), ensure_ascii=False)}\n" for call in calls]


FORMAT = Format(
    "hermes",
    (("<tool_call>",),),
    ("<tool_call>",),
    parse,
    ("</tool_call>",),
    markers=("<tool_call>", "</tool_call>"),
    body=body,
    first="{[`",
    partial=of_json,
    ends=("}", "]"),
    write=write,
)
