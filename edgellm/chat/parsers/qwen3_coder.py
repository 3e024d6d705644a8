"""Calls as XML: Qwen3-Coder and Qwen3.5, with <function=...> and <parameter=...> within <tool_call>."""
from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.parsers._format import Format, inline, literal
from edgellm.chat.tools import Call, Tool

FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\s*(.*?)\s*</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """Values are texts where the schema says so, else JSON."""
    match = FUNCTION.fullmatch(block)
    if match is None or PARAMETER.sub("", match[2]).strip():
        return None
    known = next((tool.parameters for tool in tools if tool.name == match[1].strip()), {})
    properties = known.get("properties", {})
    arguments = {name.strip(): _value(text, properties.get(name.strip(), {})) for name, text in PARAMETER.findall(match[2])}
    return [Call(match[1].strip(), arguments)]


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and _is_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:                           # models write Python's words now and then
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" or ("enum" in schema and all(isinstance(each, str) for each in schema["enum"]))


def body(tools: Sequence[Tool]) -> str:
    return '"\\n" (' + " | ".join(map(_function, tools)) + ') "\\n"'


def _function(tool: Tool) -> str:
    required = tool.parameters.get("required", ())
    parts = [literal(f"<function={tool.name}>\n")]
    for name, schema in tool.parameters.get("properties", {}).items():
        written = _written(schema, tool.parameters)
        parameter = " ".join([literal(f"<parameter={name}>\n"), written, literal("\n</parameter>\n")])
        parts.append(parameter if name in required else f"({parameter})?")
    return "(" + " ".join([*parts, literal("</function>")]) + ")"


def _written(schema: Any, within: Mapping[str, Any]) -> str:
    """A value in the grammar: a text stands as it is, and holds no other tag."""
    if isinstance(schema, Mapping) and _is_text(schema):
        return "(" + " | ".join(map(literal, schema["enum"])) + ")" if "enum" in schema else "/[^<]*/"
    return inline(schema, within)


FORMAT = Format("qwen3-coder", (("<function=", "<tool_call>"),), ("<tool_call>",), parse, ("</tool_call>",),
                markers=("<tool_call>", "</tool_call>"), body=body)
