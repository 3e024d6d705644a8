"""Answers of which a conversation has the beginning already: its last message is the assistant's, and the model continues it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgellm.chat.templates import Message, Rendered
from edgellm.chat.thinking import HARMONY, marks_of, opens_thinking


def beginning(messages: Sequence[Message], source: str) -> str:
    """The text that an answer continues; "" for another last message, and for a template whose models can't go on in one."""
    last, marks = messages[-1] if len(messages) > 1 else None, marks_of(source)
    if not isinstance(last, Mapping) or last.get("role") != "assistant" or last.get("tool_calls"):
        return ""
    if marks is not None and (marks is HARMONY or not marks.open):
        return ""
    content = last.get("content")
    if isinstance(content, list | tuple) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else ""


def with_beginning(rendered: Rendered, text: str, source: str) -> Rendered:
    """A rendered conversation that ends with the beginning of the answer, behind thinking that is closed."""
    marks, trusted, prompt = marks_of(source), rendered.trusted, rendered.text
    if marks is not None and opens_thinking(prompt, marks):
        closed = f"{prompt.rstrip()}\n\n{marks.close}\n\n"
        trusted, prompt = (*trusted, (len(prompt.rstrip()), len(closed))), closed
    return replace(rendered, text=prompt + text, trusted=trusted, given=(*rendered.given, text))
