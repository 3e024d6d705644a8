"""Tools that a model may call, and the calls that come back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple  # Any: JSON

# White space between JSON's tokens: a blank, or new lines with an indent. Without a bound a model may write blanks for ever. No
# \uXXXX in texts: a key written so would pass for another one.
COMPACT = {"whitespace_flexible": False, "json_allowed_escapes": 'nrbtf\\"'}
JSON_OPTIONS = {"whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})", "json_allowed_escapes": 'nrbtf\\"'}


class Tool(NamedTuple):
    """A function as it is described to a model."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # a JSON schema of an object

    @property
    def message(self) -> dict[str, Any]:
        """In the form that chat templates take."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model asks for. `id` is unique in a conversation."""

    name: str
    arguments: Mapping[str, Any]
    id: str

    @property
    def message(self) -> dict[str, Any]:
        """In the form of an assistant message's `tool_calls`."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": dict(self.arguments)}}


OTHER_KEYS = ("arguments", "parameters", "args", "input")  # of the arguments of a call
IDENTITY = ("name", "type", "id", "tool_call_id", "index")  # keys of a call beside them


class CallDelta(NamedTuple):
    """A piece of a call that is being written: the number of the call in its answer, its id and name, and a piece of the JSON of
    its arguments. The pieces of a call together are its arguments."""

    number: int
    id: str
    name: str
    arguments: str


class Call(NamedTuple):
    """A call as a parser finds it."""

    name: str
    arguments: Mapping[str, Any]


def call_of(value: object, key: str = "arguments") -> Call | None:
    """A call written as {"name": ..., key: {...}}, or as clients get it: {"type": "function", "function": {...}}. The arguments may
    be JSON within a text, null or an empty text, have another name that models give them, or stand beside the call's name."""
    if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping) and "name" not in value:
        value = value["function"]
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    beside = {each: argument for each, argument in value.items() if each not in IDENTITY}
    arguments: object = value.get(next((each for each in (key, *OTHER_KEYS) if each in value), key), beside)
    if arguments in (None, ""):
        arguments = {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    return Call(value["name"], arguments) if isinstance(arguments, Mapping) else None


def json_of(arguments: Mapping[str, Any]) -> str:
    """The JSON of arguments, in which halves of surrogate pairs are joined, or stand as U+FFFD where the other half is missing."""
    text = json.dumps(arguments, ensure_ascii=False)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_finite(value: object) -> bool:
    """True if JSON has all numbers in it. Raises RecursionError."""
    if isinstance(value, Mapping):
        return all(map(is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
