"""Calls of DeepSeek V3, R1 and V3.1: a name and JSON between marks; before V3.1 a type first, and the JSON in a fence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from edgellm.chat.families import _partial
from edgellm.chat.families._format import Format, Mark, arguments, literal, named
from edgellm.chat.families._headed import headed
from edgellm.chat.tools import Call, Tool

OPEN, BEGIN, SEPARATOR, END, CLOSE = MARKERS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
HEAD = rf"\s*{BEGIN}\s*(?:function\s*{SEPARATOR}\s*({{0}})\s*```json\s*|({{0}})\s*{SEPARATOR}\s*(?:```json\s*)?)"
FENCE = "\n```json\n"
BEGUN = re.compile(rf"{BEGIN}[^<{{]*(?:<[^<>{{]*(?:>[^<{{]*)?)?|<[｜▁\w]*")
TAIL = rf"\s*(?:```\s*)?(?:{END}|\Z)|\s*`{{1,2}}\Z"


def parse(block: str, tools: Sequence[Tool]) -> list[Call]:
    head = re.compile(HEAD.format(named(tools, r"[^\s<]+?")))
    return headed(block, head, BEGUN, lambda match, arguments, number: Call(match[1] or match[2], arguments), TAIL)


def body(tools: Sequence[Tool], mark: Mark) -> str:
    calls = [f"{literal(tool.name)} {mark(SEPARATOR)} {arguments(tool)}" for tool in tools]
    return f'call ("\\n"? call)*\ncall: {mark(BEGIN)} ({" | ".join(calls)}) {mark(END)}'


def fenced_body(tools: Sequence[Tool], mark: Mark) -> str:
    fence = literal("\n```")
    calls = [f"{literal(tool.name + FENCE)} {arguments(tool)}" for tool in tools]
    return f'call ("\\n"? call)*\ncall: {mark(BEGIN)} "function" {mark(SEPARATOR)} ({" | ".join(calls)}) {fence} {mark(END)}'


FORMAT = Format(
    "deepseek-v3.1",
    ((OPEN,),),
    (OPEN,),
    parse,
    (CLOSE,),
    markers=MARKERS,
    body=body,
    first="<",
    ends=(END,),
    bare=(BEGIN, END),
    partial=_partial.headed(lambda tools: HEAD.format(named(tools, r"[^\s<]+?"))),
)
FENCED_FORMAT = replace(FORMAT, name="deepseek-v3", detects=((OPEN, "```json"),), body=fenced_body)
