"""Calls of GLM 4.5 and later: a name, then <arg_key> and <arg_value> in turn, within <tool_call>; from 4.7 on without new lines."""

from __future__ import annotations

from dataclasses import replace

from edgellm.chat.families._tags import Tags

TAGS = Tags("{}\n", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n", before="", closer="</tool_call>")
CLOSE_TAGS = Tags("{}", "<arg_key>{}</arg_key><arg_value>", "</arg_value>", before="", closer="</tool_call>")

FORMAT = replace(
    TAGS.format("glm", "tool_call", (("<arg_key>", "<tool_call>"),), ends=("</arg_value>", "</tool_call>")),
    markers=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    continues="<arg_key>",
)
CLOSE_FORMAT = replace(FORMAT, name="glm-4.7", detects=(("</arg_key><arg_value>", "<tool_call>"),), body=CLOSE_TAGS.body)
