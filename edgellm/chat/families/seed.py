"""Calls of Seed-OSS: <function=...> and <parameter=...> within <seed:tool_call>."""

from __future__ import annotations

from edgellm.chat.families._format import Format
from edgellm.chat.families._tags import COST, Tags

TAGS = Tags("<function={}>\n", "<parameter={}>", "</parameter>\n", "</function>\n")

FORMAT = Format(
    "seed",
    (("<seed:tool_call>",),),
    ("<seed:tool_call>",),
    TAGS.parse,
    ("</seed:tool_call>",),
    markers=("<seed:tool_call>", "</seed:tool_call>"),
    body=TAGS.body,
    cost=COST,
    values=TAGS.values,
    first="<",
    partial=TAGS.partial,
    parse_last=TAGS.parse_last,
    ends=("</function>",),
    bare=("<function={}>", "</function>"),
)
