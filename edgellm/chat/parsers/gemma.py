"""Calls of Gemma 4 and FunctionGemma: call:name{key:value,...}, texts between marks of their own instead of quotes."""
from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any  # Any: JSON

from edgellm.chat.parsers._format import Format
from edgellm.chat.tools import Call, Tool

HEAD = re.compile(r"\s*call:([\w.-]+)\s*(?=\{)")
MARKS = ('<|"|>', "<escape>")
PLAIN = re.compile(r"[^,{}\[\]:]+")


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = HEAD.match(block)
    if match is None:
        return None
    arguments, at = _value(block, match.end())
    return [Call(match[1], arguments)] if not block[at:].strip() else None


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends. Raises ValueError."""
    at += len(text[at:]) - len(text[at:].lstrip())
    if text.startswith("{", at):
        return _pairs(text, at + 1)
    if text.startswith("[", at):
        return _items(text, at + 1)
    for mark in MARKS:
        if text.startswith(mark, at):
            end = text.index(mark, at + len(mark))
            return text[at + len(mark) : end], end + len(mark)
    plain = PLAIN.match(text, at)
    if plain is None:
        raise ValueError("a value is missing")
    word = plain[0].strip()
    try:
        return json.loads(word), plain.end()
    except ValueError:
        return word, plain.end()


def _pairs(text: str, at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while not text.startswith("}", at):
        key, at = _value(text, at)
        if not text.startswith(":", at):
            raise ValueError("a colon is missing")
        found[str(key)], at = _value(text, at + 1)
        at = _next(text, at, "}")
    return found, at + 1


def _items(text: str, at: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while not text.startswith("]", at):
        value, at = _value(text, at)
        found.append(value)
        at = _next(text, at, "]")
    return found, at + 1


def _next(text: str, at: int, end: str) -> int:
    """Behind a comma, or at the end."""
    if text.startswith(",", at):
        return at + 1
    if not text.startswith(end, at):
        raise ValueError(f"{end} is missing")
    return at


FORMAT = Format("gemma", (("<|tool_call>",), ("<start_function_call>",)), ("<|tool_call>", "<start_function_call>"), parse,
                ("<tool_call|>", "<end_function_call>"),
                markers=("<|tool_call>", "<tool_call|>", '<|"|>', "<start_function_call>", "<end_function_call>", "<escape>"))
