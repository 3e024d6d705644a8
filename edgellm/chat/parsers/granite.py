"""Calls of Granite 3: <|tool_call|> or <tool_call> and a JSON list, to the answer's end."""
from __future__ import annotations

from edgellm.chat.parsers import mistral
from edgellm.chat.parsers._format import Format

FORMAT = Format("granite", (("<|tool_call|>",),), ("<|tool_call|>", "<tool_call>"), mistral.parse, markers=("<|tool_call|>",),
                body=mistral.body)
