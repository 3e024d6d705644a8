"""Calls in Python's syntax, a list of them as the whole answer: Llama 3.2 and 4, and others."""
from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.parsers._format import Format, Mark, any_of, inline, literal, named
from edgellm.chat.schemas import variants
from edgellm.chat.tools import Call, Tool

OTHERS = r"[^][(){},=\s]+"                      # names that no tool has
BLANKS = re.compile(r"\s*")
AFTER = re.compile(r"\s*(?:,\s*|$)")
SIGNS = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[][(){},]""", re.DOTALL)
WORDS = {"true": True, "false": False, "null": None}


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """[name(argument=value, ...), ...] with literal values; JSON's words for them are taken too. Names need not be Python's."""
    block, at, calls = block.strip(), 0, list[Call]()
    if block.startswith("[") and block.endswith("]"):
        block = block[1:-1].strip()
    while at < len(block):
        match = re.compile(rf"({named(tools, OTHERS)})\s*\(\s*").match(block, at)
        if match is None:
            return None
        known = [key for tool in tools if tool.name == match[1] for each in variants(tool.name, tool.parameters)
                 for key in each["properties"]]
        arguments, at = _arguments(block, match.end(), any_of(known, OTHERS))
        calls.append(Call(match[1], arguments))
        after = AFTER.match(block, at)
        if after is None:
            return None
        at = after.end()
    return calls


def _arguments(text: str, at: int, names: str) -> tuple[dict[str, Any], int]:
    """The arguments that begin at `at`, and where the call ends. Raises ValueError."""
    found: dict[str, Any] = {}
    head = re.compile(rf"({names})\s*=")
    while not text.startswith(")", at):
        match = head.match(text, at)
        if match is None:
            raise ValueError("an argument has no name")
        end = _end(text, match.end())
        found[match[1]] = value_of(text[match.end() : end])
        at = BLANKS.match(text, end + 1).end() if text[end] == "," else end      # type: ignore[union-attr]  # matches always
    return found, at + 1


def value_of(text: str) -> Any:
    """A literal of Python. Raises ValueError, RecursionError."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, MemoryError) as error:
        raise ValueError("is not a literal") from error


def _end(text: str, at: int) -> int:
    """Where a value ends: at a comma or a bracket that belong to none within it. Raises ValueError."""
    depth = 0
    for match in SIGNS.finditer(text, at):
        if match[0] in "([{":
            depth += 1
        elif depth == 0 and match[0] in ",)":
            return match.start()
        elif match[0] in ")]}":
            depth -= 1
    raise ValueError("a call does not end")


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            if isinstance(node.value, bytes | complex) or node.value is Ellipsis:
                raise ValueError("is not JSON")
            return node.value
        case ast.Name(id=name) if name in WORDS:
            return WORDS[name]
        case ast.List() | ast.Tuple():
            return [_value(each) for each in node.elts]
        case ast.Dict():
            return {str(_value(key)): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
    raise ValueError("is not a literal")


def body(tools: Sequence[Tool], mark: Mark) -> str:
    """What stands between the brackets."""
    return 'call (", " call)*\ncall: ' + " | ".join(
        _function(tool, each) for tool in tools for each in variants(tool.name, tool.parameters))


def _function(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Arguments in the order of the schema; those that need not be given may be left out."""
    required = arguments["required"]
    written = {name: f"{literal(name + '=')} {_written(schema, tool.parameters)}"
               for name, schema in arguments["properties"].items()}
    first = [each for name, each in written.items() if name in required]
    optional = [each for name, each in written.items() if name not in required]
    if first:
        inner = ' ", " '.join(first) + "".join(f' (", " {each})?' for each in optional)
    else:
        chains = [" ".join([each, *(f'(", " {later})?' for later in optional[at + 1 :])]) for at, each in enumerate(optional)]
        inner = f"({' | '.join(f'({chain})' for chain in chains)})?" if chains else ""
    return f'({literal(tool.name + "(")} {inner} ")")'


def _written(schema: Any, within: Mapping[str, Any]) -> str:
    if isinstance(schema, Mapping) and schema.get("type") == "boolean":
        return '("True" | "False")'
    return inline(schema, within)


def parse_list(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """What stands between the brackets of a list."""
    return parse(f"[{block}]", tools)


FORMAT = Format("pythonic", (("[func_name1(",),), ("[",), parse_list, ("]",), at_start=True, body=body)
