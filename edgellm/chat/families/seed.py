"""Calls of Seed-OSS: <function=...> and <parameter=...> within <seed:tool_call>."""

from __future__ import annotations

from edgellm.chat.families._tags import Tags

TAGS = Tags("<function={}>\n", "<parameter={}>", "</parameter>\n", "</function>\n")

FORMAT = TAGS.format(
    "seed", "seed:tool_call", (("<seed:tool_call>",),), first="<", ends=("</function>",), bare=("<function={}>", "</function>")
)
