"""Calls as XML: Qwen3-Coder and Qwen3.5, with <function=...> and <parameter=...> within <tool_call>."""
from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.parsers._format import Format, Mark, inline, literal
from edgellm.chat.parsers._texts import text_terminal
from edgellm.chat.schemas import variants
from edgellm.chat.tools import Call, Tool

END = "\n</parameter>\n"
FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\s*(.*?)\s*</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """Values are texts where the schema says so, else JSON."""
    match = FUNCTION.fullmatch(block)
    if match is None or PARAMETER.sub("", match[2]).strip():
        return None
    name, given = match[1].strip(), {key.strip(): text for key, text in PARAMETER.findall(match[2])}
    known = [each["properties"] for tool in tools if tool.name == name for each in variants(name, tool.parameters)]
    properties = next((each for each in known if set(given) <= set(each)), known[0] if known else {})
    return [Call(name, {key: _value(text, properties.get(key, {})) for key, text in given.items()})]


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and _is_text(schema) and not _is_quoted(text, schema):
        return text
    try:
        return json.loads(text)
    except ValueError:                           # models write Python's words now and then
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" or ("enum" in schema and all(isinstance(each, str) for each in schema["enum"]))


def _is_quoted(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether a text stands as JSON, as the grammar has it where a schema says more than can be said of a bare text."""
    return text.startswith('"') and "enum" not in schema and text_terminal(schema, without=END.strip()) is None


def body(tools: Sequence[Tool], mark: Mark) -> str:
    terminals: dict[str, str] = {}
    calls = " | ".join(_function(tool, each, terminals) for tool in tools
                       for each in variants(tool.name, tool.parameters))
    return "\n".join([f'"\\n" ({calls}) "\\n"', *(f"{name}: {text}" for text, name in terminals.items())])


def _function(tool: Tool, arguments: Mapping[str, Any], terminals: dict[str, str]) -> str:
    parts = [literal(f"<function={tool.name}>\n")]
    for name, schema in arguments["properties"].items():
        parameter = literal(f"<parameter={name}>\n") + " " + _written(schema, tool.parameters, terminals)
        parts.append(parameter if name in arguments["required"] else f"({parameter})?")
    return "(" + " ".join([*parts, literal("</function>")]) + ")"


def _written(schema: Any, within: Mapping[str, Any], terminals: dict[str, str]) -> str:
    """A value in the grammar, with the tag that ends it: a text stands as it is."""
    if isinstance(schema, Mapping) and _is_text(schema):
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"({' | '.join(map(literal, values))}) {literal(END)}"
        if (terminal := text_terminal(schema, without=END.strip(), end=END)) is not None:
            return terminals.setdefault(terminal, f"QWEN_{len(terminals)}")
    return f"{inline(schema, within)} {literal(END)}"


FORMAT = Format("qwen3-coder", (("<function=", "<tool_call>"),), ("<tool_call>",), parse, ("</tool_call>",),
                markers=("<tool_call>", "</tool_call>"), body=body)
