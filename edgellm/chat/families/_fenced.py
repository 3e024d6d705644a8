"""Calls as JSON on a line of their own, in a fence or without one: models of any family write them so now and then."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, called, literal, optional_pair
from edgellm.chat.families._partial import Partial, of_json
from edgellm.chat.families._reading import decoded
from edgellm.chat.tools import Call, Tool, call_of

FENCES = ("", "```json", "```", "```tool_call", "```tool_code")
FENCE = re.compile(r"\s*(```[a-z_]*)?\s*")
KEYS = ("arguments", "parameters")


def format_of(tools: Sequence[Tool]) -> Format:
    """The format for calls of these tools: other JSON is text."""
    names = [json.dumps("".join(tool.name.split()), ensure_ascii=False) for tool in tools]
    forms = [
        f'{fence}{{{kind}"name":{name},"{key}":'
        for fence in FENCES
        for kind in ("", '"type":"function",')
        for name in names
        for key in KEYS
    ]
    return Format(
        "json",
        (),
        (),
        parse,
        ("}",),
        keeps_opener=True,
        keeps_closer=True,
        whole_body=True,
        body=body,
        partial=_partial,
        follows=("```",),
        forms=tuple(forms),
    )


def _partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    head = FENCE.match(block)
    return of_json(block[head.end() :] if head is not None else block, tools)


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "arguments": {...}}, or with "parameters". Raises ValueError, Cut."""
    head = FENCE.match(block)
    assert head is not None  # it matches nothing as well
    value, end = decoded(block, head.end())
    if not isinstance(value, dict) or block[end:].strip(" \r\n\t`"):
        return None
    call = call_of(value, next((key for key in KEYS if key in value), KEYS[0]))
    return [call] if call is not None and any(tool.name == call.name for tool in tools) else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    kind = optional_pair("type", literal('"function"'), first=True)
    calls = [called(tool, key, before=kind, turned=False) for tool in tools for key in KEYS]
    return f"(/```[a-z_]*[ \\n]{{0,4}}/)? ({' | '.join(calls)})"
