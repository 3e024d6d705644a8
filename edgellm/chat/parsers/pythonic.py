"""Calls in Python's syntax, a list of them as the whole answer: Llama 3.2 and 4, and others."""
from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any  # Any: JSON

from edgellm.chat.parsers._format import Format, Mark, inline, literal
from edgellm.chat.tools import Call, Tool

WORDS = {"true": True, "false": False, "null": None}


def parse(block: str, tools: Sequence[Tool]) -> list[Call] | None:
    """[name(argument=value, ...), ...] with literal values; JSON's words for them are taken too."""
    try:
        found = ast.parse(block.strip(), mode="eval").body
    except (SyntaxError, MemoryError):
        return None
    nodes = found.elts if isinstance(found, ast.List) else [found]
    calls = [_call(node) for node in nodes]
    return None if None in calls else [call for call in calls if call]


def _call(node: ast.expr) -> Call | None:
    if not isinstance(node, ast.Call) or node.args or any(each.arg is None for each in node.keywords):
        return None
    name = ast.unparse(node.func)
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    return Call(name, {each.arg: _value(each.value) for each in node.keywords if each.arg})


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
    return 'call (", " call)*\ncall: ' + " | ".join(map(_function, tools))


def _function(tool: Tool) -> str:
    """Arguments in the order of the schema; those that need not be given may be left out."""
    required = tool.parameters.get("required", ())
    written = {name: f"{literal(name + '=')} {_written(schema, tool.parameters)}"
               for name, schema in tool.parameters.get("properties", {}).items()}
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
