"""Calls of gpt-oss: a message to functions.name in the channel "commentary", its content JSON."""
from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.parsers._format import Format
from edgellm.chat.tools import Call, Tool

# The recipient stands in the channel's header, or in the role's before it.
HEADER = re.compile(r"(?:<\|start\|>assistant)?\s*(?:to=functions\.([\w.-]+))?\s*<\|channel\|>(?:commentary|analysis)\s*"
                    r"(?:to=functions\.([\w.-]+))?\s*(?:<\|constrain\|>\s*)?(?:json)?\s*<\|message\|>")


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = HEADER.match(block)
    name = match and (match[1] or match[2])
    if match is None or not name:
        return None
    arguments = json.loads(block[match.end() :])
    return [Call(name, arguments)] if isinstance(arguments, dict) else None


FORMAT = Format("harmony", (("<|channel|>", "functions"),),
                ("<|channel|>commentary", "<|start|>assistant to=functions.", " to=functions."), parse, ("<|call|>", "<|end|>"),
                keeps_opener=True,
                markers=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>"))
