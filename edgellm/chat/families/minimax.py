"""Calls of MiniMax M2: <invoke name=...> and <parameter name=...>, several within one <minimax:tool_call>."""

from __future__ import annotations

from edgellm.chat.families._format import Format
from edgellm.chat.families._tags import COST, Tags

TAGS = Tags('<invoke name="{}">\n', '<parameter name="{}">', "</parameter>\n", "</invoke>\n", several=True)

FORMAT = Format(
    "minimax",
    (("<minimax:tool_call>",),),
    ("<minimax:tool_call>",),
    TAGS.parse,
    ("</minimax:tool_call>",),
    markers=("<minimax:tool_call>", "</minimax:tool_call>"),
    body=TAGS.body,
    cost=COST,
    values=TAGS.values,
    first="<",
    partial=TAGS.partial,
    parse_last=TAGS.parse_last,
    ends=("</invoke>",),
    bare=('<invoke name="{}">', "</invoke>"),
)
