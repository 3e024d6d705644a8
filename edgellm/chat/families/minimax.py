"""Calls of MiniMax M2: <invoke name=...> and <parameter name=...>, several within one <minimax:tool_call>."""

from __future__ import annotations

from edgellm.chat.families._tags import Tags

TAGS = Tags('<invoke name="{}">\n', '<parameter name="{}">', "</parameter>\n", "</invoke>\n", several=True)

FORMAT = TAGS.format(
    "minimax",
    "minimax:tool_call",
    (("<minimax:tool_call>",),),
    first="<",
    ends=("</invoke>",),
    bare=('<invoke name="{}">', "</invoke>"),
)
