"""Calls as XML: Qwen3-Coder, Qwen3.5, Nemotron 3 and Step 3.5, with <function=...> and <parameter=...> within <tool_call>."""

from __future__ import annotations

from edgellm.chat.families._format import Format
from edgellm.chat.families._tags import COST, Tags

TAGS = Tags("<function={}>\n", "<parameter={}>\n", "\n</parameter>\n", "</function>\n")

FORMAT = Format(
    "qwen3-coder",
    (("<function=", "<tool_call>"),),
    ("<tool_call>",),
    TAGS.parse,
    ("</tool_call>",),
    markers=("<tool_call>", "</tool_call>"),
    body=TAGS.body,
    cost=COST,
    values=TAGS.values,
    first="<",
    partial=TAGS.partial,
    parse_last=TAGS.parse_last,
    ends=("</function>",),
    bare=("<function={}>", "</function>"),
)
