"""Tries a chat template with the conversations that clients send, and names the ways around its refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgellm.chat import ChatTemplate, shape_of
from edgellm.errors import EdgeError

REFUSES = "does not take this conversation: "
Status = Literal["ok", "rewritten", "refused"]
USER, ANSWER = {"role": "user", "content": "Name a river."}, {"role": "assistant", "content": "The Rhine."}
SYSTEM = {"role": "system", "content": "zqprobe Be brief."}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "zqprobe"}}}
CALL_TEXT = {**CALL, "function": {"name": "weather", "arguments": '{"city": "zqprobe"}'}}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "rain"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "zqprobe", "parameters": CITY}}
PLAIN_TOOL = {"type": "function", "function": {"name": "zqprobe", "description": "The weather."}}


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation as clients send it; `way`: how edgellm rewrites it for a template that does not take it."""

    name: str
    messages: Sequence[Mapping[str, Any]]
    way: str
    tools: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case with the answer of the template: `reason` is the template's own words where it refuses."""

    name: str
    status: Status
    reason: str = ""


CASES = (
    Case("a question", [{**USER, "content": "zqprobe"}], ""),
    Case("a system message", [SYSTEM, USER], ""),
    Case("a system message in mid-conversation", [USER, ANSWER, SYSTEM, USER], "it becomes user text, marked [System: ...]"),
    Case("two system messages", [SYSTEM, SYSTEM, USER], "they become one"),
    Case("the role developer", [{**SYSTEM, "role": "developer"}, USER], "it becomes a system message"),
    Case("two messages of the user in a row", [USER, {**USER, "content": "zqprobe"}], "they become one"),
    Case("content in parts", [{**USER, "content": [{"type": "text", "text": "zqprobe"}]}], "parts are joined"),
    Case("tools", [USER], "", [TOOL]),
    Case("a tool without parameters", [USER], "it gets an empty object of parameters", [PLAIN_TOOL]),
    Case(
        "calls with arguments as an object",
        [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT],
        "arguments become text, or the call is written into the message",
        [TOOL],
    ),
    Case(
        "calls with arguments as text",
        [USER, {"role": "assistant", "content": "", "tool_calls": [CALL_TEXT]}, RESULT],
        "arguments become an object, or the call is written into the message",
        [TOOL],
    ),
    Case(
        "calls and content null",
        [USER, {"role": "assistant", "content": None, "tool_calls": [CALL_TEXT]}, RESULT],
        "content becomes an empty text",
        [TOOL],
    ),
)


def check_template(template: ChatTemplate) -> Iterator[Outcome]:
    """Render every case as it is, and as edgellm renders it."""
    shape = shape_of(template)
    for case in CASES:
        plain, why = _rendered(lambda case=case: template.render(case.messages, tools=case.tools).text)
        ours, reason = _rendered(lambda case=case: shape.render(case.messages, case.tools).text)
        if ours is None or "zqprobe" not in ours:
            yield Outcome(case.name, "refused", reason or "the template leaves this out")
        elif plain == ours:
            yield Outcome(case.name, "ok")
        else:
            yield Outcome(case.name, "rewritten", "; ".join(filter(None, (why, case.way))))


def _rendered(render: Any) -> tuple[str | None, str]:  # Any: a function without arguments
    try:
        return render(), ""
    except EdgeError as error:
        said = " ".join(str(error).split())
        return None, (said.partition(REFUSES)[2] or said)[:200]
