"""Calls of Gemma 4 and FunctionGemma: call:name{key:value,...}, texts between marks of their own instead of quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any  # Any: JSON

from edgellm.chat.families._format import Format, Mark, counted, named
from edgellm.chat.families._gemma_grammar import body_between
from edgellm.chat.families._partial import Partial, unended
from edgellm.chat.tools import Call, Tool

HEAD = r"\s*call:(%s)\s*(?=\{)"
MARKS = ('<|"|>', "<escape>")
PLAIN = re.compile(r"[^,{}\[\]:]+")
DECODER = json.JSONDecoder()


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = re.match(HEAD % named(tools), block)
    if match is None:
        return None
    arguments, at = _value(block, match.end())
    return [Call(match[1], arguments)] if not block[at:].strip() else None


def partial(block: str, tools: Sequence[Tool]) -> Partial | None:
    """A call that is still being written."""
    head, found, unfinished = re.match(HEAD % named(tools), block), dict[str, Any](), None
    if head is None:
        return None
    with suppress(ValueError, RecursionError):
        at = _blanks(block, head.end() + 1)
        while not block.startswith("}", at):
            key, at = _key(block, at)
            start = _blanks(block, at)
            mark = next((mark for mark in MARKS if block.startswith(mark, start)), "")
            if mark and mark not in block[start + len(mark) :]:
                unfinished = key, unended(block[start + len(mark) :], mark)
                break
            value, at = _value(block, start)
            following = _next(block, at, "}")  # a word may go on
            found[key], at = value, following
    return Partial(head[1], found, unfinished)


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends: Gemma's form, or JSON's. Raises ValueError."""
    at = _blanks(text, at)
    if text.startswith("{", at):
        return _pairs(text, at + 1)
    if text.startswith("[", at):
        return _items(text, at + 1)
    if text.startswith('"', at):
        return DECODER.raw_decode(text, at)
    word, at, quoted = _text(text, at)
    if quoted:
        return word, at
    try:
        return json.loads(word), at
    except ValueError:
        return word, at


def _text(text: str, at: int) -> tuple[str, int, bool]:
    """A text between marks, or else a word."""
    for mark in MARKS:
        if text.startswith(mark, at):
            end = text.index(mark, at + len(mark))
            return text[at + len(mark) : end], end + len(mark), True
    plain = PLAIN.match(text, at)
    if plain is None:
        raise ValueError("a value is missing")
    return plain[0].strip(), plain.end(), False


def _pairs(text: str, at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = _blanks(text, at)
    while not text.startswith("}", at):
        key, at = _key(text, at)
        found[key], at = _value(text, at)
        at = _next(text, at, "}")
    return found, at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    """The key at `at`, and where its value begins. Raises ValueError."""
    key, at = DECODER.raw_decode(text, at) if text.startswith('"', at) else _text(text, at)[:2]
    at = _blanks(text, at)
    if not text.startswith(":", at):
        raise ValueError("a colon is missing")
    return key, at + 1


def _items(text: str, at: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _blanks(text, at)
    while not text.startswith("]", at):
        value, at = _value(text, at)
        found.append(value)
        at = _next(text, at, "]")
    return found, at + 1


def _next(text: str, at: int, end: str) -> int:
    """Behind a comma, or at the end."""
    at = _blanks(text, at)
    if text.startswith(",", at):
        return _blanks(text, at + 1)
    if not text.startswith(end, at):
        raise ValueError(f"{end} is missing")
    return at


def _blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _body(tools: Sequence[Tool], mark: Mark) -> str:
    return body_between(MARKS[0], tools, mark)


def _function_body(tools: Sequence[Tool], mark: Mark) -> str:
    return body_between(MARKS[1], tools, mark)


FORMAT = Format(
    "gemma",
    (("<|tool_call>",),),
    ("<|tool_call>",),
    parse,
    ("<tool_call|>",),
    markers=("<|tool_call>", "<tool_call|>", MARKS[0]),
    body=_body,
    cost=counted(",:{[", 40),
    first="c",
    partial=partial,
    ends=("}",),
)
FUNCTION_FORMAT = replace(
    FORMAT,
    name="functiongemma",
    detects=(("<start_function_call>",),),
    openers=("<start_function_call>",),
    closers=("<end_function_call>",),
    markers=("<start_function_call>", "<end_function_call>", MARKS[1]),
    body=_function_body,
)
