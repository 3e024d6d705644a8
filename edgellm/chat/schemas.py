"""JSON schemas of tools' arguments: made plain, resolved, and told apart into the objects that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any  # Any: JSON

from edgellm.errors import SchemaError, shown

Schema = dict[str, Any]
MAX_DEPTH, MAX_VARIANTS = 100, 64
LISTS, MAPPINGS = ("anyOf", "oneOf", "allOf", "prefixItems"), ("properties", "patternProperties", "$defs", "definitions")
JOINTS = ("$ref", "allOf", "anyOf", "oneOf")
VALUES = ("const", "default", "example")  # may be null
# Formats that llguidance enforces; others only describe an argument.
FORMATS = frozenset({"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"})


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _schemas(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, Mapping | bool) for each in value)


def _named_schemas(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(each, Mapping | bool) for name, each in value.items()
    )


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# What values of keywords must be, which grammars are made of.
WANTED: dict[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(LISTS, ("a list of schemas", _schemas)),
    **dict.fromkeys(MAPPINGS, ("names with their schemas", _named_schemas)),
    **dict.fromkeys(("minItems", "maxItems"), ("a number from 0 up", _count)),
    "required": ("a list of names", _texts),
    "type": ("a type, or a list of them", lambda value: isinstance(value, str) or _texts(value)),
    "enum": ("a list of values", lambda value: isinstance(value, list | tuple)),
    "$ref": ("a text such as #/$defs/name", lambda value: isinstance(value, str)),
}


def mapped(schema: Any, change: Callable[[Schema], Schema], depth: int = 0) -> Any:
    """A schema with `change` made to each schema in it, inner ones first."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return schema
    found: Schema = {}
    for key, value in schema.items():
        if key in MAPPINGS and isinstance(value, Mapping):
            value = {name: mapped(part, change, depth + 1) for name, part in value.items()}
        elif key in LISTS and isinstance(value, list | tuple):
            value = [mapped(part, change, depth + 1) for part in value]
        elif key in ("items", "additionalProperties"):
            value = mapped(value, change, depth + 1)
        found[key] = value
    return change(found)


def moved(schema: Any, rename: Callable[[str], str]) -> Any:
    """A schema whose references are renamed."""

    def change(part: Schema) -> Schema:
        return {**part, "$ref": rename(part["$ref"])} if isinstance(part.get("$ref"), str) else part

    return mapped(schema, change)


def arguments_schema(parameters: Mapping[str, Any]) -> Schema:
    """What a grammar is made of: an object's schema without the annotations that tools carry and no grammar needs."""
    found: Schema = mapped(parameters, _plain)
    return found if any(key in found for key in JOINTS) else {**found, "type": "object"}


def check_keywords(name: str, schema: Schema) -> None:
    """Raises SchemaError where a keyword of the schema `arguments_schema` made for a tool has a value that it cannot have."""

    def check(part: Schema) -> Schema:
        for key, value in part.items():
            if key in WANTED and not WANTED[key][1](value):
                raise SchemaError(f"the parameters of {name} have {key!r}: {shown(value)}; give {WANTED[key][0]}.")
        return part

    mapped(schema, check)


def _plain(part: Schema) -> Schema:
    found = {key: value for key, value in part.items() if value is not None or key in VALUES}
    found.pop("strict", None)
    if found.get("propertyNames") in ({"type": "string"}, {}, True):  # as all names are
        del found["propertyNames"]
    if isinstance(found.get("format"), str) and found["format"] not in FORMATS:
        del found["format"]
    if found.pop("nullable", False) is True and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
        if isinstance(found.get("enum"), list):
            found["enum"] = [*dict.fromkeys([*found["enum"], None])]
    return found


def resolved(path: str, within: Mapping[str, Any]) -> Any:
    """What a reference such as #/$defs/name stands for; None where there is nothing."""
    target: Any = within
    for part in path.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(part)
        else:
            target = target[int(part)] if isinstance(target, list) and part.isdecimal() and int(part) < len(target) else None
    return target if path.startswith("#") else None


def variants(name: str, parameters: Mapping[str, Any]) -> list[Schema]:
    """The objects that a tool's arguments may be, each with `properties` and `required`: references are resolved, allOf is merged,
    anyOf makes several. Raises SchemaError."""
    return [_complete(each) for each in _variants(name, parameters, parameters, 0)]


def _variants(name: str, schema: Any, within: Mapping[str, Any], depth: int) -> list[Schema]:
    if not isinstance(schema, Mapping):
        return [{}] if schema is True else []
    if depth > MAX_DEPTH:
        raise SchemaError(f"the parameters of {name} refer to themselves without end; give an object with properties.")
    own = {key: schema[key] for key in ("properties", "required", "additionalProperties") if key in schema}
    parts = [[own]]
    if "$ref" in schema:
        parts.append(_variants(name, resolved(str(schema["$ref"]), within), within, depth + 1))
    parts += [_variants(name, each, within, depth + 1) for each in schema.get("allOf", ())]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            parts.append([found for each in schema[key] for found in _variants(name, each, within, depth + 1)])
    count = 1
    for part in parts:
        count *= len(part)
    if count > MAX_VARIANTS:
        raise SchemaError(f"the parameters of {name} are one of {count} objects, above {MAX_VARIANTS}; give several tools instead.")
    return [_merged(each) for each in product(*parts)]


def _merged(parts: Sequence[Schema]) -> Schema:
    found: Schema = {}
    for part in parts:
        for name, schema in part.get("properties", {}).items():
            properties = found.setdefault("properties", {})
            properties[name] = {"allOf": [properties[name], schema]} if properties.get(name, schema) != schema else schema
        found["required"] = [*dict.fromkeys([*found.get("required", ()), *part.get("required", ())])]
        if "additionalProperties" in part:
            found.setdefault("additionalProperties", part["additionalProperties"])
    return found


def _complete(found: Schema) -> Schema:
    """With a property for all that is required."""
    required = found.get("required", ())
    properties = {**found.get("properties", {}), **{name: True for name in required if name not in found.get("properties", {})}}
    return {**found, "type": "object", "properties": properties, "required": list(required)}
