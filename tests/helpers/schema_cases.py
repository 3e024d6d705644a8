"""Thirty JSON schemas of the kinds that programs ask for, each with what makes it hard."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]  # Any: JSON


def record(**properties: Schema) -> Schema:
    """An object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT, INTEGER, NUMBER, BOOLEAN = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
SHORT = {"type": "string", "maxLength": 12}
NODE = {
    "type": "object",
    "properties": {"value": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
TREE = record(name=SHORT, children={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2})
OPERATION = {
    "type": "array",
    "prefixItems": [{"enum": ["+", "*"]}, {"$ref": "#/$defs/e"}, {"$ref": "#/$defs/e"}],
    "items": False,
    "minItems": 3,
}
EXPRESSION = {"anyOf": [NUMBER, OPERATION]}

SCHEMAS: dict[str, Schema] = {
    "text": TEXT,
    "text of bounded length": {"type": "string", "minLength": 3, "maxLength": 8},
    "integer": INTEGER,
    "number": NUMBER,
    "boolean or null": {"type": ["boolean", "null"]},
    "bounds": {"type": "integer", "minimum": -17, "maximum": 42},
    "exclusive bounds": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "multiples": {"type": "integer", "minimum": 0, "maximum": 1000, "multipleOf": 7},
    "enum": {"enum": ["red", "green", 3, None, True, {"a": [1, "ü"]}]},
    "constant": {"const": {"kind": 'a/b\\c"d', "n": [1.5, None]}},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2,4}-[0-9]{3}$"},
    "pattern in the middle": {"type": "string", "pattern": "[0-9]{2}", "maxLength": 10},
    "date": {"type": "string", "format": "date"},
    "several formats": record(
        id={"type": "string", "format": "uuid"},
        at={"type": "string", "format": "date-time"},
        ip={"type": "string", "format": "ipv4"},
        mail={"type": "string", "format": "email"},
    ),
    "list of bounded length": {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 5},
    "tuple": {"type": "array", "prefixItems": [SHORT, INTEGER, BOOLEAN], "items": False, "minItems": 3, "maxItems": 3},
    "tuple with a tail": {"type": "array", "prefixItems": [SHORT], "items": INTEGER, "minItems": 1, "maxItems": 4},
    "record": record(name=SHORT, age={"type": "integer", "minimum": 0, "maximum": 130}, tags={"type": "array", "items": SHORT}),
    "optional keys": {
        "type": "object",
        "properties": {"a": INTEGER, "b": SHORT, "c": BOOLEAN},
        "required": ["b"],
        "additionalProperties": False,
    },
    "nested records": record(who=record(first=SHORT, last=SHORT), where=record(lat=NUMBER, lon=NUMBER)),
    "map": {"type": "object", "additionalProperties": INTEGER, "maxProperties": 3},
    "keys by pattern": {"type": "object", "patternProperties": {"^x_": INTEGER}, "additionalProperties": False},
    "known keys and others": {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": SHORT},
    "union": {"anyOf": [INTEGER, SHORT, {"type": "array", "items": BOOLEAN}]},
    "union told apart by a key": {"oneOf": [record(kind={"const": "circle"}, r=NUMBER), record(kind={"const": "box"}, w=NUMBER)]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"type": "object", "properties": {"b": SHORT}, "required": ["b"]},
        ],
        "additionalProperties": True,
    },
    "linked list": {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    "tree": {"$ref": "#/$defs/tree", "$defs": {"tree": TREE}},
    "expression": {"$ref": "#/$defs/e", "$defs": {"e": EXPRESSION}},
    "anything": {"type": "object", "properties": {"any": True}, "required": ["any"], "additionalProperties": False},
}
assert len(SCHEMAS) == 30
