"""Thinking switched by /think or /no_think in the system message, for templates that look for them there, as Nemotron Nano 2's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgellm.chat.templates import Message
from edgellm.chat.thinking import reads_soft_switch

SWITCHES = {True: "/think", False: "/no_think"}


def with_soft_switch(messages: Sequence[Message], source: str, think: object) -> Sequence[Message]:
    """Messages that turn thinking on or off for the chat template `source`; as they are for None, or where it has another switch.

    The system message gets the switch in place of any other that it holds. One in a later message still counts: users write them.
    """
    if not isinstance(think, bool) or not messages or not reads_soft_switch(source):
        return messages
    first, switch = messages[0], SWITCHES[think]
    if not isinstance(first, Mapping) or first.get("role") != "system":
        return [{"role": "system", "content": switch}, *messages]
    content = first.get("content") or ""
    if not isinstance(content, str):
        return messages  # the template refuses it, or says otherwise
    for other in SWITCHES.values():
        content = content.replace(other, "")
    return [{**first, "content": f"{content.rstrip()} {switch}".lstrip()}, *messages[1:]]
