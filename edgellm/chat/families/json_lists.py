"""Calls as a JSON list between marks: Nemotron Nano 2, Hunyuan A13B and Jamba, Phi-4-mini; xLAM has no marks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgellm.chat.families import _lists, granite
from edgellm.chat.families._format import Format
from edgellm.chat.families._partial import of_json
from edgellm.chat.families._reading import Cut, decoded, skipped
from edgellm.chat.tools import Call, Tool, call_of

PHI_OPENER = "<|tool_call|>"
PHI_HEAD = re.compile(r"(?:<\|tool_call\|>)?\s*(?:functools)?")
HEAD = re.compile(r"<tool_call>\s*(?:([\w./:-]+)\s*```json\s*)?")
TAIL = re.compile(r"\s*(?:```)?\s*</tool_call>\s*")
BEGUN, ENDING = re.compile(r"<tool_call>\s*[\w./:-]*\s*`{0,3}[a-z]*\s*|<[a-z_]*"), re.compile(r"\s*`{0,3}\s*(?:</?[a-z_]*)?")


def parse_tags(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """A list, or a <tool_call> for each with a name and fenced JSON, or with the whole call."""
    calls, at = list[Call](), skipped(block, 0)
    if not block.startswith("<tool_call>", at):
        return _lists.parse(block, tools)
    while at < len(block):
        if BEGUN.fullmatch(block, at):
            raise Cut(calls, at)
        head = HEAD.match(block, at)
        if head is None:
            return None
        value, end = decoded(block, head.end(), calls, at)
        call = call_of({"name": head[1], "arguments": value} if head[1] else value)
        if call is None:
            return None
        tail = TAIL.match(block, end)
        if tail is None:
            if ENDING.fullmatch(block, end):
                raise Cut(calls, at)
            return None
        calls.append(call)
        at = tail.end()
    return calls


def parse_phi(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    head = PHI_HEAD.match(block)
    assert head is not None  # it matches nothing as well
    return _lists.parse(block, tools, head.end())


NEMOTRON = Format(
    "nemotron",
    (("<TOOLCALL>",),),
    ("<TOOLCALL>",),
    _lists.parse,
    ("</TOOLCALL>",),
    markers=("<TOOLCALL>", "</TOOLCALL>"),
    body=_lists.body,
    first="[{",
    partial=of_json,
    ends=("]", "}"),
)
HUNYUAN = Format(
    "hunyuan",
    (("<tool_calls>",),),
    ("<tool_calls>",),
    parse_tags,
    ("</tool_calls>",),
    markers=("<tool_calls>", "</tool_calls>", "<tool_call>", "</tool_call>"),
    body=_lists.body,
    first="[{<",
    partial=of_json,
    ends=("]", "}"),
)
PHI = Format(
    "phi",
    (("<|tool|>", "<|/tool|>"), ("<|/tool_call|>",)),
    (PHI_OPENER, "functools"),
    parse_phi,
    ("<|/tool_call|>",),
    keeps_opener=True,
    first="[{",
    partial=of_json,
    markers=(PHI_OPENER, "<|/tool_call|>"),
    ends=("]", "}"),
    body=_lists.body,
    write=granite.write,
)
XLAM = Format(
    "xlam",
    (('[{"name": "tool_call_name", "arguments":',), ("xLAM", "tool_call.function | tojson")),
    ("[",),
    _lists.parse,
    at_start=True,
    keeps_opener=True,
    whole_body=True,
    shows='"{}"',
    body=_lists.body,
    ends=("]", "}"),
    partial=of_json,
)
