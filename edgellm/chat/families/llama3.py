"""Calls of Llama 3.1 to 3.3: a JSON object as the whole answer, or after <|python_tag|>."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, called, literal, optional_pair
from edgellm.chat.families._partial import of_json
from edgellm.chat.families._reading import decoded
from edgellm.chat.tools import Call, Tool, call_of

TAG = "<|python_tag|>"


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "parameters": {...}}, one or several, between them blanks or semicolons."""
    calls, at = list[Call](), _skipped(block, len(TAG) if block.startswith(TAG) else 0)
    while at < len(block):
        value, at = decoded(block, at, calls)
        call = call_of(value, "parameters" if isinstance(value, dict) and "parameters" in value else "arguments")
        if call is None:
            return None
        calls.append(call)
        at = _skipped(block, at)
    return calls


def _skipped(block: str, at: int) -> int:
    """Where the next call begins."""
    while at < len(block) and block[at] in "; \t\r\n,":
        at += 1
    return at


def body(tools: Sequence[Tool], mark: Mark) -> str:
    kind = optional_pair("type", literal('"function"'), first=True)
    calls = [called(tool, "parameters", before=kind) for tool in tools]
    return f"({mark(TAG)})? ({' | '.join(calls)})"


FORMAT = Format(
    "llama3",
    ((TAG,), ("Environment: ipython",)),
    (TAG, "{"),
    parse,
    at_start=True,
    keeps_opener=True,
    whole_body=True,
    shows='"{}"',
    markers=(TAG,),
    body=body,
    ends=("}",),
    partial=lambda block, tools: of_json(block.removeprefix(TAG), tools),
)
