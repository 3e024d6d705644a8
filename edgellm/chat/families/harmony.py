"""Calls of gpt-oss: a message to functions.name in the channel "commentary", its content JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from edgellm.chat.families._format import Format, Mark, inline, literal, named, with_form
from edgellm.chat.tools import Call, Tool

# The recipient stands in the channel's header, or in the role's before it.
HEADER = (
    r"(?:<\|start\|>assistant)?\s*(?:to=functions\.({0}))?\s*<\|channel\|>(?:commentary|analysis)\s*"
    r"(?:to=functions\.({0}))?\s*(?:<\|constrain\|>\s*)?(?:json)?\s*<\|message\|>"
)


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    match = re.match(HEADER.format(named(tools)), block)
    name = match and (match[1] or match[2])
    if match is None or not name:
        return None
    arguments = json.loads(block[match.end() :])
    return [Call(name, arguments)] if isinstance(arguments, dict) else None


def grammar(tools: Sequence[Tool], mark: Mark, budget: int | None, must: bool = False) -> str:
    """Messages of text, the last of which may be a call instead; behind <|start|>assistant, with which the prompt ends."""
    channel, message = mark("<|channel|>"), mark("<|message|>")
    calls = " | ".join(f"({_address(tool.name, channel)}) kind {message} {inline(tool.parameters)}" for tool in tools)
    last = "call" if must else f'{channel} ("commentary" | "final") {message} body | call'
    rules = [
        *(["start: messages"] if must else ["start: plain | messages", "plain: /([^< ](.|\\n)*)?/"]),
        *_messages(last, mark, budget),
        f"call: {calls}",
        f'kind: " "? {mark("<|constrain|>")}? "json" | " "?',
    ]
    return "\n".join(rules) + "\n"


def formed(form: str | None, mark: Mark, budget: int | None) -> str:
    """A grammar of llguidance for answers whose final message is of a form, itself such a grammar; None: of any text."""
    last = f'{mark("<|channel|>")} "final" {mark("<|message|>")} {"@form" if form is not None else "body"}'
    rules = "\n".join(["start: messages", *_messages(last, mark, budget, said=form is None)])
    return json.dumps({"grammars": [{"lark_grammar": rules}]}) if form is None else with_form(rules, form)


def _messages(last: str, mark: Mark, budget: int | None, *, said: bool = True) -> list[str]:
    """Rules of the last message and those before it, thought or `said`. Without control tokens of their own, marks are found by
    lazy rules."""
    channel, message, start, end = (mark(f"<|{name}|>") for name in ("channel", "message", "start", "end"))
    is_token = end.startswith("<[")
    ended = f"body {end}" if is_token else "ended"
    kinds = [f'"analysis" {message} thought'] * (budget != 0) + [f'"commentary" {message} {ended}'] * said
    before = f'{channel} ({" | ".join(kinds)}) {start} "assistant"'
    limit = f"[max_tokens={budget}]" if budget else ""
    return [
        f"messages: ({before})* last" if kinds else "messages: last",
        f"last: {last}",
        "body: /(.|\\n)*/",
        f"thought: thinking {end}\nthinking{limit}: /(.|\\n)*/" if is_token else "thought: ended",
        f"ended[lazy]: /(.|\\n)*/ {literal('<|end|>')}",
    ]


def _address(name: str, channel: str) -> str:
    to = f" to=functions.{name}"
    return f'{literal(to)} {channel} "commentary" | {channel} {literal("commentary" + to)}'


FORMAT = Format(
    "harmony",
    (("<|channel|>", "functions"),),
    ("<|channel|>commentary", "<|start|>assistant to=functions.", " to=functions."),
    parse,
    ("<|call|>", "<|end|>"),
    keeps_opener=True,
    grammar=grammar,
    markers=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>"),
)
