"""The formats in which families of models write tool calls, one file each, chosen by what a chat template contains."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from edgellm.chat.parsers import gemma, granite, harmony, hermes, lfm2, llama3, mistral, pythonic, qwen3_coder
from edgellm.chat.parsers._format import ANY_TEXT, CallSplitter, Format, literal
from edgellm.chat.tools import Tool

__all__ = ["FORMATS", "CallSplitter", "Format", "find_format", "tool_grammar"]

# The first that fits is taken: those that are told by more come first. Hermes is what most other models are trained on.
FORMATS = (qwen3_coder.FORMAT, hermes.FORMAT, granite.FORMAT, gemma.FORMAT, harmony.FORMAT, lfm2.FORMAT, mistral.NAMED_FORMAT,
           mistral.FORMAT, pythonic.FORMAT, llama3.FORMAT)


def find_format(source: str) -> Format:
    """The format that a chat template's source shows."""
    for format in FORMATS:
        if any(all(text in source for text in texts) for texts in format.detects):
            return format
    return hermes.FORMAT


def tool_grammar(format: Format, tools: Sequence[Tool], control_id: Callable[[str], int | None]) -> str | None:
    """A grammar (Lark) for answers of free text and calls whose arguments follow their schemas; None for formats without one.

    `control_id`: the id of a control token by its text.
    """
    if format.body is None:
        return None
    body, _, rules = format.body(tools).partition("\n")
    opener = format.openers[0]
    token = control_id(opener)
    closer = _mark(format.closers[0], control_id) if format.closers else ""
    if format.at_start:
        first = format.openers[-1]
        heads = [f"start: TEXT | call_block\nTEXT: /([^\\s{_escaped(first[0])}](.|\\n)*)?/"]
        inner = body if format.keeps_opener else f"{literal(first)} {body} {closer}"
        tag = f"<[{token}]>? " if token is not None else ""
        heads.append(f"call_block: {tag}{inner}")
    else:
        trigger = f"TEXT <[{token}]>" if token is not None else "head"
        start = "call_block* TEXT" if closer else "TEXT | call_block"        # without a closer the answer ends there
        heads = [f"start: {start}\n{ANY_TEXT}", f"call_block: {trigger} {body} {closer}"]
        if token is None:
            heads.append(f"head[lazy]: TEXT {literal(opener)}")
    return "\n".join([*heads, rules]).strip() + "\n"


def _mark(text: str, control_id: Callable[[str], int | None]) -> str:
    token = control_id(text)
    return f"<[{token}]>" if token is not None else literal(text)


def _escaped(letter: str) -> str:
    return "\\" + letter if letter in "[]{}\\" else letter
