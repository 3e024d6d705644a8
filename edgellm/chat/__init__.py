"""Conversations to text and token ids: the model's own chat template, run in a bounded sandbox, or a built-in one."""

from __future__ import annotations

from edgellm.chat.channels import splitter_of
from edgellm.chat.encode import ChatTokenizer, encode_chat
from edgellm.chat.fallback import find_template, template_variants
from edgellm.chat.shape import shape_of
from edgellm.chat.templates import ChatTemplate, Message, Rendered
from edgellm.chat.thinking import Thinking, ThinkingSplitter, marks_of, opens_thinking, switch, thinking_of

__all__ = [
    "ChatTemplate",
    "ChatTokenizer",
    "Message",
    "Rendered",
    "Thinking",
    "ThinkingSplitter",
    "encode_chat",
    "find_template",
    "marks_of",
    "opens_thinking",
    "shape_of",
    "splitter_of",
    "switch",
    "template_variants",
    "thinking_of",
]
