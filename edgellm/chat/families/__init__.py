"""The formats in which families of models write tool calls, one file each, chosen by what a chat template contains."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgellm.chat.families import (
    apertus,
    command,
    deepseek,
    dsml,
    functionary,
    gemma,
    gigachat,
    glm,
    granite,
    harmony,
    hermes,
    internlm,
    json_lists,
    kimi,
    lfm2,
    llama3,
    minimax,
    mistral,
    pythonic,
    qwen3_coder,
    recipients,
    seed,
)
from edgellm.chat.families._format import ANY_TEXT, CallSplitter, Format, Mark, literal, plain, with_form
from edgellm.chat.tools import Tool

__all__ = ["FORMATS", "CallSplitter", "Format", "Mark", "find_format", "tool_grammar", "unknown_mark", "with_form"]

# The first that fits is taken: those that are told by more come first. Hermes is what most other models are trained on.
FORMATS = (
    dsml.FORMAT,
    dsml.V4_FORMAT,
    glm.CLOSE_FORMAT,
    glm.FORMAT,
    seed.FORMAT,
    minimax.FORMAT,
    command.FORMAT,
    command.FENCED_FORMAT,
    qwen3_coder.FORMAT,
    json_lists.NEMOTRON,
    json_lists.HUNYUAN,
    json_lists.PHI,
    apertus.FORMAT,
    internlm.FORMAT,
    hermes.FORMAT,
    granite.FORMAT,
    json_lists.XLAM,
    functionary.FORMAT,
    recipients.FORMAT,
    gemma.FORMAT,
    gemma.FUNCTION_FORMAT,
    harmony.FORMAT,
    lfm2.FORMAT,
    gigachat.MARKED_FORMAT,
    gigachat.FORMAT,
    deepseek.FENCED_FORMAT,
    deepseek.FORMAT,
    kimi.FORMAT,
    mistral.NAMED_FORMAT,
    mistral.FORMAT,
    pythonic.FORMAT,
    llama3.FORMAT,
)
# Opening marks of calls by their names: <|tool_call_begin|>, <｜tool▁calls▁begin｜>, <function_calls>, <|START_ACTION|>.
CALL_MARK = re.compile(
    r"<[|｜]?(?!end)[\w:▁-]{0,40}?(?:(?:tool|function)[_▁-]?calls?|start_action|action_start)"
    r"(?P<more>[\w▁-]{0,40})[|｜]?>",
    re.IGNORECASE,
)
NO_OPENING = re.compile(r"end|id$|name|arg|param|resp|result|output|error", re.IGNORECASE)


def find_format(source: str) -> Format:
    """The format that a chat template's source shows."""
    return _shown_format(source) or hermes.FORMAT


def unknown_mark(source: str) -> str | None:
    """With what a chat template's source has calls begin, where that is no format known here."""
    if _shown_format(source) is not None:
        return None
    return next((match[0] for match in CALL_MARK.finditer(source) if not NO_OPENING.search(match["more"])), None)


def _shown_format(source: str) -> Format | None:
    return next((format for format in FORMATS if any(all(text in source for text in texts) for texts in format.detects)), None)


def tool_grammar(format: Format, tools: Sequence[Tool], mark: Mark, think_budget: int | None = None) -> str:
    """A grammar (Lark) for answers of free text and calls whose arguments follow their schemas.

    `think_budget`: tokens of thinking, for formats that mark it themselves.
    """
    tools = plain(tools)
    if format.grammar is not None:
        return format.grammar(tools, mark, think_budget)
    assert format.body is not None  # each has one of the two
    body, _, rules = format.body(tools, mark).partition("\n")
    opener = format.openers[0]
    opening = mark(opener)
    is_token = opening != literal(opener)
    closer = mark(format.closers[0]) if format.closers else ""
    if format.at_start:
        first = format.openers[-1]
        heads = [f"start: TEXT | call_block\nTEXT: /([^\\s{_escaped(first[0])}](.|\\n)*)?/"]
        inner = body if format.keeps_opener else f"{literal(first)} {body} {closer}"
        tag = f"{opening}? " if is_token else ""
        heads.append(f"call_block: {tag}{inner}")
    else:
        trigger = f"TEXT {opening}" if is_token else "head"
        wraps = [f"{mark(first)} TEXT {mark(last)}?" for first, last in format.answers if mark(first) != literal(first)]
        answer = f"TEXT ({' | '.join(wraps)})?" if wraps else "TEXT"
        start = f"call_block* {answer}" if closer else "TEXT | call_block"  # without a closer the answer ends there
        heads = [f"start: {start}\n{ANY_TEXT}", f"call_block: {trigger} {body} {closer}"]
        if not is_token:
            heads.append(f"head[lazy]: TEXT {literal(opener)}")
    return "\n".join([*heads, rules]).strip() + "\n"


def _escaped(letter: str) -> str:
    return "\\" + letter if letter in "[]{}\\" else letter
