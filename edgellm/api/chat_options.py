"""The options of `chat` beside those of every generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict  # tools and template options hold values of many types

from edgellm.api.generation_options import AnyFormKeywords, GenerationKeywords
from edgellm.arguments import as_int, check_flag
from edgellm.errors import OptionError, shown
from edgellm.options.generation import THINK_BUDGET

TAKEN = ("self", "messages", "tools")  # names of `ChatTemplate.render`


class _ChatOnlyKeywords(TypedDict, total=False):
    """The keywords that `chat` has beside those of every generation."""

    tools: Sequence[Callable[..., Any] | Mapping[str, Any]] | None  # what the model may call
    tool_choice: str | Mapping[str, Any] | None  # "auto", "required", "none", or a tool's name, also as OpenAI writes it
    parallel_tool_calls: bool | None  # False: one call at most, behind which the answer ends
    response_format: Mapping[str, Any] | None  # the form of the answer, as OpenAI writes it
    run_tools: bool  # carry its calls out and let it continue
    max_rounds: int  # of calls that are carried out, at most
    template_options: Mapping[str, Any] | None  # what else the template asks for
    think: bool | None  # whether it thinks before it answers; None: as its template has it
    think_budget: int | None  # tokens of thinking at most; then it is closed
    think_message: str | None  # the sentence that closes it then
    continue_final_message: bool  # the last message is the beginning of the answer, where it is the assistant's


class ChatKeywords(GenerationKeywords, _ChatOnlyKeywords, total=False):
    """The keywords of `chat`."""


class AnyFormChatKeywords(AnyFormKeywords, _ChatOnlyKeywords, total=False):
    """The keywords of `chat` but `schema`."""


def form_of(given: object) -> Mapping[str, Any] | bool | None:
    """The schema that OpenAI's `response_format` asks for, None for any text. Raises OptionError."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        described = given.get("json_schema")
        match given.get("type"):
            case "text":
                return None
            case "json_object":
                return schema if isinstance(schema := given.get("schema"), Mapping) else {"type": "object"}
            case "json_schema" if isinstance(described, Mapping) and isinstance(described.get("schema"), Mapping | bool):
                return schema if isinstance(schema := described["schema"], bool) else dict(schema)
    raise OptionError(
        f'response_format={shown(given)} is not possible; give {{"type": "text"}}, {{"type": "json_object"}}, or '
        '{"type": "json_schema", "json_schema": {"schema": ...}}.'
    )


def check_rounds(asked: object) -> int:
    """Rounds of calls. Raises OptionError."""
    number = as_int(asked)
    if number is None or number < 1:
        raise OptionError(option="max_rounds", value=asked, advice="give a number of rounds, 1 or greater")
    return number


def check_template_options(asked: object) -> Mapping[str, Any]:
    """Other variables of the template. Raises OptionError."""
    if asked is None:
        return {}
    if not isinstance(asked, Mapping) or not all(isinstance(name, str) for name in asked):
        raise OptionError(
            f'template_options={shown(asked)} is not a mapping of names to values; give e.g. {{"enable_thinking": False}}.'
        )
    if taken := next((name for name in asked if name in TAKEN), None):
        raise OptionError(f"template_options has {taken!r}, which templates are given by chat itself; leave it out.")
    return asked


def check_think(asked: object) -> bool | None:
    """The value of `think`. Raises OptionError."""
    return None if asked is None else check_flag("think", asked)


def check_message(asked: object, budget: int | None) -> str:
    """The sentence that closes thinking, "" for none. Raises OptionError."""
    if asked is not None and budget is None:
        raise OptionError("think_message needs think_budget, after which it comes; give both.")
    if asked is not None and not isinstance(asked, str):
        raise OptionError("is not a text", option="think_message", value=asked, advice="give a str, or None")
    return asked or ""


def check_budget(asked: object) -> int | None:
    """Tokens of thinking. Raises OptionError."""
    return THINK_BUDGET.number(asked)
