"""Calls of gpt-oss: a message to functions.name in the channel "commentary", its content JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, arguments, literal, named
from edgellm.chat.families._partial import Partial, arguments_of
from edgellm.chat.tools import Call, Tool

# The recipient stands in the channel's header, or in the role's before it.
HEADER = (
    r"(?:<\|start\|>assistant)?\s*(?:to=functions\.({0}))?\s*<\|channel\|>(?:commentary|analysis)\s*"
    r"(?:to=functions\.({0}))?\s*(?:<\|constrain\|>\s*)?(?:json)?\s*<\|message\|>"
)


def _head(block: str, tools: Sequence[Tool]) -> tuple[str, int] | None:
    """The name of the call, and where its arguments begin."""
    match = re.match(HEADER.format(named(tools)), block)
    name = match and (match[1] or match[2])
    return (name, match.end()) if match and name else None


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    if (head := _head(block, tools)) is None:
        return None
    arguments = json.loads(block[head[1] :])
    return [Call(head[0], arguments)] if isinstance(arguments, dict) else None


def partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    head = _head(block, tools)
    return arguments_of(head[0], block, head[1]) if head else None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    channel, message = mark("<|channel|>"), mark("<|message|>")
    named_calls = " | ".join(f"({_address(tool.name, channel)}) kind {message} {arguments(tool)}" for tool in tools)
    return "\n".join(
        [
            f'({mark("<|start|>")} "assistant")? ({named_calls})',
            'where: "commentary" | "analysis"',
            f'kind: " "? {mark("<|constrain|>")}? "json" | " "?',
        ]
    )


def _address(name: str, channel: str) -> str:
    to = literal(f" to=functions.{name}")
    return f"{to} {channel} where | {channel} where {to}"


FORMAT = Format(
    "harmony",
    (("<|channel|>", "functions"),),
    ("<|channel|>commentary", "<|channel|>analysis to=", "<|start|>assistant to=functions.", " to=functions."),
    parse,
    ("<|call|>", "<|end|>"),
    keeps_opener=True,
    whole_body=True,
    body=body,
    markers=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>"),
    shows="functions.{}",
    partial=partial,
    ends=("}",),
)
