"""Calls as a JSON list between marks: Nemotron Nano 2, Hunyuan A13B and Jamba, Phi-4-mini; xLAM has no marks."""
from __future__ import annotations

import re
from collections.abc import Sequence

from edgellm.chat.parsers import _lists, granite
from edgellm.chat.parsers._format import Format
from edgellm.chat.tools import Call, Tool, call_of

HEAD = re.compile(r"\s*<tool_call>\s*(?:([\w./:-]+)\s*```json\s*)?")
TAIL = re.compile(r"\s*(?:```)?\s*</tool_call>\s*")


def parse_tags(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """A list, or a <tool_call> for each with a name and fenced JSON, or with the whole call."""
    if not block.lstrip().startswith("<tool_call>"):
        return _lists.parse(block, tools)
    at, calls = 0, list[Call]()
    while at < len(block):
        head = HEAD.match(block, at)
        if head is None:
            return None
        value, at = _lists.DECODER.raw_decode(block, head.end())
        call = call_of({"name": head[1], "arguments": value} if head[1] else value)
        tail = TAIL.match(block, at)
        if call is None or tail is None:
            return None
        calls.append(call)
        at = tail.end()
    return calls


def parse_phi(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    return _lists.parse(block.removeprefix(PHI_OPENER).strip().removeprefix("functools"), tools)


PHI_OPENER = "<|tool_call|>"
NEMOTRON = Format("nemotron", (("<TOOLCALL>",),), ("<TOOLCALL>",), _lists.parse, ("</TOOLCALL>",),
                  markers=("<TOOLCALL>", "</TOOLCALL>"), body=_lists.body)
HUNYUAN = Format("hunyuan", (("<tool_calls>",),), ("<tool_calls>",), parse_tags, ("</tool_calls>",),
                 markers=("<tool_calls>", "</tool_calls>", "<tool_call>", "</tool_call>"), body=_lists.body)
PHI = Format("phi", (("<|tool|>", "<|/tool|>"), ("<|/tool_call|>",)), (PHI_OPENER, "functools["), parse_phi,
             ("<|/tool_call|>",), keeps_opener=True, markers=(PHI_OPENER, "<|/tool_call|>"), body=_lists.body, write=granite.write)
XLAM = Format("xlam", (('[{"name": "tool_call_name", "arguments":',), ("xLAM", "tool_call.function | tojson")), ("[",),
              _lists.parse, at_start=True, keeps_opener=True, body=_lists.body)
