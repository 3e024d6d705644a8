"""Calls of InternLM 2.5 and 3 and of Intern-S1: <|action_start|><|plugin|>, a JSON object, <|action_end|>."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.chat.families import _lists
from edgellm.chat.families._format import Format, Mark, called
from edgellm.chat.families._partial import of_json
from edgellm.chat.families._reading import skipped
from edgellm.chat.tools import Call, Tool

PLUGIN = "<|plugin|>"


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "parameters": {...}}; code for <|interpreter|> is no call."""
    at = skipped(block, 0)
    return _lists.parse(block, tools, at + len(PLUGIN)) if block.startswith(PLUGIN, at) else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return f'{mark(PLUGIN)} "\\n" ({" | ".join(called(tool, "parameters") for tool in tools)})'


FORMAT = Format(
    "internlm",
    (("<|action_start|>", PLUGIN),),
    ("<|action_start|>",),
    parse,
    ("<|action_end|>",),
    markers=("<|action_start|>", PLUGIN, "<|action_end|>"),
    body=body,
    first="<",
    ends=("}",),
    partial=lambda block, tools: of_json(block.lstrip().removeprefix(PLUGIN), tools),
)
