"""Tools as callers give them: Python functions or descriptions of them; their calls carried out, round after round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any  # Any: JSON

from edgellm.api.forms.docstrings import docstring_of
from edgellm.api.forms.form import Form, check_grammar
from edgellm.api.forms.schema import as_json, name_of, parameters_of
from edgellm.arguments import check_flag
from edgellm.chat.families import (
    CallSplitter,
    Format,
    Mark,
    Splitter,
    call_grammar,
    find_format,
    plain,
    unknown_mark,
    ways,
    with_forms,
)
from edgellm.chat.schemas import arguments_schema, check_keywords, not_enforced, problem_of
from edgellm.chat.shape import shape_of
from edgellm.chat.templates import ChatTemplate
from edgellm.chat.tools import Tool, ToolCall
from edgellm.errors import OptionError, SchemaError, TemplateError, shown
from edgellm.tokenizer import Tokenizer

Function = Callable[..., Any]
MAX_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a conversation, and how its model writes calls."""

    tools: tuple[Tool, ...]
    functions: Mapping[str, Function]  # those that can be called, by name
    format: Format
    allowed: tuple[Tool, ...] = ()  # those that may be called now
    must: bool = False  # one of them must be
    once: bool = False  # one call is all

    @property
    def not_enforced(self) -> tuple[str, ...]:
        """Keywords of the tools' schemas that arguments may break."""
        return tuple(dict.fromkeys(key for tool in self.tools for key in not_enforced(tool.parameters)))

    def problem_of(self, call: ToolCall) -> str | None:
        """The fault of a call's arguments under its tool's schema; None where none is known."""
        parameters = next((tool.parameters for tool in self.tools if tool.name == call.name), None)
        return problem_of(dict(call.arguments), parameters) if parameters is not None else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """For the chat template."""
        return [tool.message for tool in self.tools]

    def splitter(self) -> Splitter:
        """Finds the calls in one answer."""
        return (self.format.splitter or CallSplitter)(self.format, self.tools)

    def shown(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Control tokens that the answer's text must hold for the parser."""
        return frozenset(token for text in self.format.markers if (token := tokenizer.token_id(text)) is not None)

    def grammars(self, mark: Mark) -> dict[str, str]:
        """The grammars of blocks of calls in the family's format and as JSON, by the format's name. Raises SchemaError."""
        usual = [format for format in ways(self.format, plain(self.allowed or self.tools)) if format.detects or format.forms]
        found = {format.name: self.grammar(format, mark) for format in usual}
        for grammar in found.values():
            check_grammar(grammar, "tools")
        return found

    def grammar(self, format: Format, mark: Mark) -> str:
        """The grammar of blocks of calls in a format. Raises SchemaError."""
        return call_grammar(format, self.allowed or self.tools, mark, once=self.once)

    def first_call(self, mark: Mark) -> Form:
        """A call with which the text begins. Raises SchemaError."""
        grammars = self.grammars(mark)
        named = {f"call_{n}": grammar for n, grammar in enumerate(grammars.values())}
        return Form(with_forms("start: " + " | ".join(f"@{name}" for name in named), **named))


def check_tools(given: object) -> Sequence[object]:
    """A list of tools, of any kind, empty for None. Raises OptionError."""
    if given is None:
        return ()
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise OptionError("tools is not a list; give functions, or descriptions with a name and parameters.")
    return given


def chosen(tools: Toolbox | None, choice: object, parallel: object) -> Toolbox | None:
    """The tools under `tool_choice` and `parallel_tool_calls`; None where none may be called. Raises OptionError."""
    together = True if parallel is None else check_flag("parallel_tool_calls", parallel)
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        choice = function.get("name") if isinstance(function, Mapping) and choice.get("type", "function") == "function" else choice
        named = True
    elif choice is not None and not isinstance(choice, str):
        raise OptionError("is not a text", option="tool_choice", value=choice, advice='give "auto", "required", "none" or a tool')
    else:
        named = choice not in (None, "auto", "required", "none")
    if tools is None:
        if named or choice == "required":
            raise OptionError(f"tool_choice={shown(choice)} needs tools; give them, or leave it out.")
        return None
    if choice == "none" and not named:
        return None
    allowed = tuple(tool for tool in tools.tools if not named or tool.name == choice)
    if not allowed:
        names = ", ".join(tool.name for tool in tools.tools)
        raise OptionError(f'tool_choice={shown(choice)} is not possible; give "auto", "required", "none" or one of {names}.')
    return replace(tools, allowed=allowed, must=named or choice == "required", once=not together)


def toolbox(given: object, template: ChatTemplate, *, strict: bool = False) -> Toolbox | None:
    """The tools that a caller gave, None without any. Raises OptionError, SchemaError, TemplateError (it takes no tools, or
    its format of calls is not known)."""
    tools, functions = list[Tool](), dict[str, Function]()
    for each in check_tools(given):
        if callable(each):
            tools.append(_of_function(each))
            functions[tools[-1].name] = each
        else:
            tools.append(_of_description(each))
            if isinstance(each, Mapping) and callable(each.get("run")):
                functions[tools[-1].name] = each["run"]
    for tool in tools if strict else ():
        if dropped := not_enforced(tool.parameters):
            raise SchemaError(f"the parameters of {tool.name} have {dropped[0]!r}, which cannot be enforced; leave strict out.")
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise OptionError(f"tools names {next(name for name in names if names.count(name) > 1)} twice; give each its own name.")
    if tools and shape_of(template).tools is None:
        raise TemplateError(f"{template.name} doesn't support tools; take another model.")
    if tools and (mark := unknown_mark(template.source)) is not None:
        raise TemplateError(
            f"{template.name} has calls begin with {mark}, a format that is not supported; leave tools out, or take another model."
        )
    return Toolbox(tuple(tools), functions, find_format(template.source)) if tools else None


def _of_function(function: Function) -> Tool:
    """A tool of a signature and its docstring."""
    parameters, described = parameters_of(function), docstring_of(function)
    for name, schema in parameters["properties"].items():
        if text := described.arguments.get(name):
            schema.setdefault("description", text)
    as_json(parameters)
    return Tool(name_of(function), described.summary, parameters)


def _of_description(given: object) -> Tool:
    """OpenAI's form, {"type": "function", "function": {...}}, or what is within it."""
    described = given.get("function", given) if isinstance(given, Mapping) else None
    if not isinstance(described, Mapping) or not isinstance(described.get("name"), str) or not described["name"]:
        raise OptionError(f"tools has {shown(given)}; give a function, or a mapping with name, description and parameters.")
    parameters = described.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    arguments = arguments_schema(parameters) if isinstance(parameters, Mapping) else {}
    check_keywords(described["name"], arguments)
    if not isinstance(parameters, Mapping) or not _is_object(parameters):
        raise SchemaError(f"the parameters of {described['name']} are {shown(parameters)}; give the JSON schema of an object.")
    parameters = {key: value for key, value in parameters.items() if value is not None}
    as_json(arguments)
    return Tool(described["name"], str(described.get("description") or ""), parameters)


def _is_object(parameters: Mapping[str, Any]) -> bool:
    kind = parameters.get("type") or "object"
    return kind == "object" or (isinstance(kind, list | tuple) and "object" in kind)
