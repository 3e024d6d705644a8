"""JSON schemas as grammars (Lark) of Gemma's way to write values; what it has no way for stands as JSON, which is read as well."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.families._format import MAX_PARTS, Mark, inline, listed_in_any_order, literal
from edgellm.chat.families._texts import SILENT, number_terminal, text_terminal
from edgellm.chat.schemas import argument_of, resolved, variants
from edgellm.chat.tools import Tool

# What is written Gemma's way, by type; a schema with another keyword is written as JSON.
WRITTEN = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
}
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
PLAIN_KEY = re.compile(r"[\w.-]+(?: [\w.-]+)*")


def body_between(quote: str, tools: Sequence[Tool], mark: Mark) -> str:
    """The calls of `tools`, with texts between two marks `quote`."""
    writer = _Writer(quote, mark)
    calls = [f"{literal(f'call:{tool.name}')} {writer.arguments(tool)}" for tool in tools]
    return "\n".join([f"({' | '.join(calls)})", *writer.rules, *writer.terminals])


class _Writer:
    """Collects the rules of one grammar; records and definitions have rules of their own, so that a schema may contain itself."""

    def __init__(self, quote: str, mark: Mark) -> None:
        self._quote, self._mark = quote, mark(quote)
        self.rules: list[str] = []
        self._records: list[str] = []
        self._n_records = 0
        self._named: dict[str, str] = {}
        self._within: Mapping[str, Any] = {}
        self._terminals: dict[str, str] = {}
        self._anything = ""

    @property
    def terminals(self) -> list[str]:
        """Their definitions, and those of objects."""
        return [*self._records, *(f"{name}: {text}" for text, name in self._terminals.items())]

    def arguments(self, tool: Tool) -> str:
        self._within, self._named = tool.parameters, {}
        return self._either([self._value(each) for each in variants(tool.name, tool.parameters)])

    def _value(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return self._any() if schema is True else inline(schema)
        keys = set(schema) - SILENT
        if not keys and "type" not in schema:
            return self._any()
        if keys == {"$ref"}:
            return self._reference(schema["$ref"])
        if keys == {"anyOf"} and "type" not in schema:
            return self._either([self._value(each) for each in schema["anyOf"]])
        if len(keys) == 1 and keys <= {"enum", "const"}:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return self._either([self._constant(each, schema) for each in values])
        if keys & {"allOf", "oneOf", "$ref"} or ("anyOf" in keys):
            allowed = argument_of(schema, self._within)
            if allowed.texts or allowed.others:
                return self._either([self._value(each) for each in (*allowed.texts, *allowed.others)])
        if (number := number_terminal(schema)) is not None:
            return self._terminals.setdefault(number, f"GEMMA_{len(self._terminals)}")
        types = schema.get("type")
        if isinstance(types, list | tuple):
            return self._either([self._value({**schema, "type": each}) for each in types])
        if types in WRITTEN and keys <= WRITTEN[types]:
            return {"string": self._string, "object": self._object, "array": self._array}[types](schema)
        return inline(schema, self._within)

    def _any(self) -> str:
        """Any value at all: one rule, which lists and objects in it come back to."""
        if not self._anything:
            self._anything = self._new_rule()
            self._put(self._anything, self._either([self._value({"type": each}) for each in TYPES]))
        return self._anything

    def _either(self, parts: Sequence[str]) -> str:
        return f"({' | '.join(dict.fromkeys(parts))})"

    def _reference(self, path: str) -> str:
        if path not in self._named:
            self._named[path] = self._new_rule()
            target = resolved(path, self._within)
            self._put(self._named[path], inline({"$ref": path}, self._within) if target is None else self._value(target))
        return self._named[path]

    def _new_rule(self) -> str:
        self.rules.append("")
        return f"gemma_{len(self.rules)}"

    def _put(self, name: str, text: str) -> None:
        self.rules[int(name.removeprefix("gemma_")) - 1] = f"{name}: {text}"

    def _constant(self, value: Any, schema: Mapping[str, Any]) -> str:
        if isinstance(value, str) and value and self._quote not in value:
            return f"{self._mark} {literal(value)} {self._mark}"
        return inline({"const": value})

    def _string(self, schema: Mapping[str, Any]) -> str:
        is_token = self._mark.startswith("<[")
        terminal = text_terminal(schema, without=self._quote, end="" if is_token else self._quote)
        if terminal is None:
            return inline(schema, self._within)
        name = self._terminals.setdefault(terminal, f"GEMMA_{len(self._terminals)}")
        return f"{self._mark} {name} {self._mark}" if is_token else f"{self._mark} {name}"

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if most == 0:
            return '"[" "]"'
        item = self._new_rule()
        self._put(item, self._value(schema.get("items", True)))
        inner = item
        if most != 1:
            inner += f' ("," {item}){{{max(0, least - 1)},{"" if most is None else most - 1}}}'
        return f'"[" {inner} "]"' if least else f'"[" ({inner})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        """Keys in any order, each once at most; those that need not be there may be left out."""
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        if required - set(properties) or len(properties) > MAX_PARTS:
            return inline(schema, self._within)
        if not properties:
            return self._free_object(schema)
        self._n_records += 1
        rule = f"record_{self._n_records}"
        pairs = [(self._pair(name, properties[name]), name in required) for name in properties]
        self._records += listed_in_any_order(rule, pairs, '"{"', '","', '"}"')
        return rule

    def _pair(self, name: str, schema: Any) -> str:
        key = literal(name) if PLAIN_KEY.fullmatch(name) else f"{self._mark} {literal(name)} {self._mark}"
        if not name or self._quote in name:
            key = literal(json.dumps(name))
        rule = self._new_rule()
        self._put(rule, f'{key} ":" {self._value(schema)}')
        return rule

    def _free_object(self, schema: Mapping[str, Any]) -> str:
        others = schema.get("additionalProperties", True)
        if others is False:
            return '"{" "}"'
        pair, text = self._new_rule(), self._string({"type": "string"})
        self._put(pair, f'(/[A-Za-z_][A-Za-z0-9_]*/ | {text}) ":" {self._value(others)}')
        return f'"{{" ({pair} ("," {pair})*)? "}}"'
