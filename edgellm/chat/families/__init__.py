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
from edgellm.chat.families._format import (
    JSON_SPACE,
    Format,
    Mark,
    Segment,
    Splitter,
    arguments,
    arguments_rules,
    marked,
    plain,
    with_forms,
)
from edgellm.chat.families._openings import Opening, Openings, ways
from edgellm.chat.families._splitter import CallSplitter
from edgellm.chat.tools import Tool

__all__ = [
    "FORMATS",
    "CallSplitter",
    "Format",
    "Mark",
    "Opening",
    "Openings",
    "Segment",
    "Splitter",
    "call_grammar",
    "find_format",
    "plain",
    "unknown_mark",
    "ways",
    "with_forms",
]

CALL_SPACE = r"CALL_SPACE: /[ \t\r\n]{1,9}/"  # between a call and its closer
MORE_CALLS = re.compile(r" \([^()]*\bcall\)\*|(?<=\bcall)\+")  # in the body of a block
# The first that matches is used: those with more marks come first. Hermes is what most other models are trained on.
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


def call_grammar(format: Format, tools: Sequence[Tool], mark: Mark, *, once: bool = False) -> str:
    """A grammar (Lark) of one block of calls whose arguments follow their schemas. The closer may be missing, as models leave it
    out. `once`: a single call."""
    named = plain(tools)
    body, _, rules = format.body(named, mark).partition("\n")
    more = [rule for tool in named if arguments(tool) in body + rules for rule in arguments_rules(tool)]
    if "JSON_SPACE" in body + rules + "".join(more):
        more.append(JSON_SPACE)
    rules = "\n".join([rules, *more])
    if once:
        body = MORE_CALLS.sub("", body)
    closers = format.follows if format.keeps_closer else () if format.starts else format.closers
    marks = (*format.markers, *format.unseen, *format.openers, *format.closers)
    end = f" CALL_SPACE? ({' | '.join(mark(closer) for closer in closers)})?" if closers else ""
    openers = " | ".join(marked(opener, marks, mark) for opener in format.openers)
    space = "" if any(opener.endswith("=") for opener in format.openers) else "CALL_SPACE? "  # a name follows at once
    begin = "" if format.whole_body else f"({openers}) {space}"
    return "\n".join([f"start: {begin}{body}{end}", *([CALL_SPACE] if begin or end else []), rules]).strip() + "\n"
