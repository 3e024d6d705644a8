"""Calls of GLM 4.5 and later: a name, then <arg_key> and <arg_value> in turn, within <tool_call>; from 4.7 on without new lines."""

from __future__ import annotations

from dataclasses import replace

from edgellm.chat.families._format import Format
from edgellm.chat.families._tags import COST, Tags

TAGS = Tags("{}\n", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n", before="", closer="</tool_call>")
CLOSE_TAGS = Tags("{}", "<arg_key>{}</arg_key><arg_value>", "</arg_value>", before="", closer="</tool_call>")

FORMAT = Format(
    "glm",
    (("<arg_key>", "<tool_call>"),),
    ("<tool_call>",),
    TAGS.parse,
    ("</tool_call>",),
    markers=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    body=TAGS.body,
    cost=COST,
    values=TAGS.values,
    ends=("</arg_value>", "</tool_call>"),
    parse_last=TAGS.parse_last,
    continues="<arg_key>",
    partial=TAGS.partial,
)
CLOSE_FORMAT = replace(FORMAT, name="glm-4.7", detects=(("</arg_key><arg_value>", "<tool_call>"),), body=CLOSE_TAGS.body)
