"""Calls as XML: Qwen3-Coder, Qwen3.5, Nemotron 3 and Step 3.5, with <function=...> and <parameter=...> within <tool_call>."""

from __future__ import annotations

from edgellm.chat.families._tags import Tags

TAGS = Tags("<function={}>\n", "<parameter={}>\n", "\n</parameter>\n", "</function>\n")

FORMAT = TAGS.format(
    "qwen3-coder",
    "tool_call",
    (("<function=", "<tool_call>"),),
    first="<",
    ends=("</function>",),
    bare=("<function={}>", "</function>"),
)
