"""Calls of GigaChat 3, a message of their own with a JSON object, and of GigaChat 3.1, which has a mark for them."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.chat.families import _lists, hermes
from edgellm.chat.families._format import ANY_TEXT, Format, Mark, literal
from edgellm.chat.tools import Call, Tool

ROLE, NEXT = "<|role_sep|>\n", "<|message_sep|>\n\n"  # control tokens, with their new lines or without them
HEAD, MARKED = "function call", "<|function_call|>"


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """{"name": ..., "arguments": {...}}"""
    return hermes.parse(block.strip().removesuffix(NEXT.strip()), tools)


def body(tools: Sequence[Tool], mark: Mark) -> str:
    return f"({' | '.join(_lists.called(tool, 'arguments') for tool in tools)})"


def grammar(tools: Sequence[Tool], mark: Mark, budget: int | None, must: bool = False) -> str:
    """Text, and a call behind it. The control token between messages may end the answer as well, and is not shown."""
    following, role = _written(NEXT, mark), _written(ROLE, mark)
    if following == literal(NEXT):
        rules = ["start: head call" if must else "start: TEXT | head call", f"head[lazy]: TEXT {literal(NEXT + HEAD + ROLE)}"]
    else:
        called = f"{literal(HEAD)} {role} call ({following})?"
        rules = [f"start: TEXT {following} {called}" if must else f"start: TEXT ({following} ({called})?)?"]
    return "\n".join([*rules, ANY_TEXT, f"call: {body(tools, mark)}"]) + "\n"


def _written(text: str, mark: Mark) -> str:
    """A mark in a grammar: the control token that it is, as a whole or without its new lines, or the text."""
    for token in (text, text.rstrip()):
        if mark(token) != literal(token):
            return " ".join([mark(token), *([literal(text.removeprefix(token))] if token != text else [])])
    return literal(text)


FORMAT = Format(
    "gigachat-3",
    (("<|role_sep|>", HEAD),),
    (NEXT + HEAD + ROLE, HEAD + ROLE),
    parse,
    (NEXT,),
    markers=(ROLE, ROLE.rstrip()),
    grammar=grammar,
)
MARKED_FORMAT = Format("gigachat-3.1", (("<|role_sep|>", MARKED),), (MARKED,), parse, markers=(MARKED,), body=body, ends=("}",))
