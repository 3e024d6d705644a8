"""JSON schemas of tools' arguments: simplified, resolved, and split into the objects that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple  # Any: JSON

from edgellm.errors import SchemaError, shown

Schema = dict[str, Any]
MAX_DEPTH, MAX_VARIANTS = 100, 64
LISTS, MAPPINGS = ("anyOf", "oneOf", "allOf", "prefixItems"), ("properties", "patternProperties", "$defs", "definitions")
# What llguidance enforces, and what says nothing about values. All other keywords are refused, or dropped in tools.
ENFORCED = frozenset(
    {
        "type",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "definitions",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "properties",
        "additionalProperties",
        "patternProperties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    }
)
ANNOTATIONS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "$comment",
        "$schema",
        "$id",
        "$anchor",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "contentEncoding",
        "contentMediaType",
    }
)
# What patterns have that llguidance has not: look-around, references back, borders of words.
UNKNOWN_PATTERN = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?[=!<]|\\[1-9bBAZ])")
JOINTS = ("$ref", "allOf", "anyOf", "oneOf")
VALUES = ("const", "default", "example")  # may be null
# Formats that llguidance enforces; others only describe an argument.
FORMATS = frozenset({"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"})


_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    f"02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_CLOCK})"
_HOURS = "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M)?(?:[0-9]{1,4}S)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)"
_DAYS = "(?:[0-9]{1,3}Y(?:[0-9]{1,3}M)?(?:[0-9]{1,4}D)?|[0-9]{1,3}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
# Dates that the calendar has, times without leap seconds, durations that a timedelta holds: llguidance's formats allow others.
HELD = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": f"^P(?:[0-9]{{1,4}}W|{_DAYS}(?:{_HOURS})?|{_HOURS})$",
}


def held(part: Schema) -> Schema:
    """A schema whose dates, times and durations are such as Python has."""
    kind = part.get("format")
    if kind not in HELD:
        return part
    rest = {key: value for key, value in part.items() if key != "format"}
    pattern = {"type": "string", "pattern": HELD[kind]}
    if "pattern" in part:
        return {**rest, "allOf": [*part.get("allOf", ()), pattern]}
    if part.get("type") == "string":
        return {**rest, "pattern": HELD[kind]}
    return {"allOf": [rest, {"anyOf": [pattern, {"type": [each for each in TYPES if each != "string"]}]}]}


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


def restated(schema: Any) -> Any:
    """Tuples of older drafts and names of properties as schemas have them today."""
    return mapped(schema, _today)


def _today(part: Schema) -> Schema:
    if isinstance(part.get("items"), list | tuple) and "prefixItems" not in part:  # as drafts up to 7 write tuples
        rest = {key: value for key, value in part.items() if key not in ("items", "additionalItems")}
        part = {
            **rest,
            "prefixItems": [restated(each) for each in part["items"]],
            "items": restated(part.get("additionalItems", True)),
        }
    names, others = part.get("propertyNames"), part.get("additionalProperties", True)
    if isinstance(names, Mapping) and not {"properties", "patternProperties"} & set(part) and isinstance(others, Mapping | bool):
        said = set(names) - {"type", "title", "description"}
        rest = {key: value for key, value in part.items() if key not in ("propertyNames", "additionalProperties")}
        if said in ({"enum"}, {"const"}):
            each = names["enum"] if "enum" in names else [names["const"]]
            return {**rest, "properties": dict.fromkeys(filter(_is_text, each), others), "additionalProperties": False}
        if said == {"pattern"}:
            return {**rest, "patternProperties": {names["pattern"]: others}, "additionalProperties": False}
        if not said:
            return {**rest, "additionalProperties": others}
    return part


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def arguments_schema(parameters: Mapping[str, Any]) -> Schema:
    """An object's schema for grammars: without the annotations that tools carry and no grammar needs."""
    found: Schema = loosened(parameters)
    return found if any(key in found for key in JOINTS) else {**found, "type": "object"}


def loosened(schema: Any) -> Any:
    """A schema without what no grammar enforces."""
    return mapped(restated(schema), _plain)


def problem_of(value: object, schema: Mapping[str, Any]) -> str | None:
    """The part of a value that breaks a schema, by the package jsonschema; None also where it is not installed."""
    try:
        import jsonschema
    except ImportError:
        return None
    try:
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        error = next(validator(schema).iter_errors(value), None)
    except Exception:  # a schema that jsonschema cannot read, or a pattern of another language
        return None
    return None if error is None else f"{error.message} (at {error.json_path})"


def check_keywords(name: str, schema: Schema) -> None:
    """Raises SchemaError where a keyword of the schema `arguments_schema` made for a tool has a value that it cannot have."""

    def check(part: Schema) -> Schema:
        for key, value in part.items():
            if key in WANTED and not WANTED[key][1](value):
                raise SchemaError(f"the parameters of {name} have {key!r}: {shown(value)}; give {WANTED[key][0]}.")
        return part

    mapped(schema, check)


def not_enforced(parameters: Mapping[str, Any]) -> list[str]:
    """Keywords of a tool's schema that `arguments_schema` leaves out although they say something of values."""
    dropped: dict[str, None] = {}

    def look(part: Schema) -> Schema:
        plain = _plain(part)
        for key, value in part.items():
            kept = key in plain or key in ANNOTATIONS or key in SAYS_NOTHING or value is None
            if not kept and not (key == "uniqueItems" and value is False) and not (key == "items" and "prefixItems" in plain):
                dropped[key] = None
        if "oneOf" in part:
            dropped["oneOf"] = None
        return part

    mapped(restated(parameters), look)
    return list(dropped)


def _plain(part: Schema) -> Schema:
    found = {key: value for key, value in part.items() if value is not None or key in VALUES}
    if isinstance(found.get("oneOf"), list | tuple) and "anyOf" not in found:  # alternatives may overlap
        found["anyOf"] = found.pop("oneOf")
    if isinstance(found.get("pattern"), str) and UNKNOWN_PATTERN.search(found["pattern"]):
        del found["pattern"]
    if isinstance(found.get("minProperties"), int):
        del found["minProperties"]  # free keys may repeat
    found = {key: value for key, value in found.items() if key in ENFORCED or key in ANNOTATIONS or str(key).startswith("x-")}
    found.pop("x-guidance", None)
    if isinstance(found.get("format"), str) and found["format"] not in FORMATS:
        del found["format"]
    if found.pop("nullable", False) is True and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
        if isinstance(found.get("enum"), list):
            found["enum"] = [*dict.fromkeys([*found["enum"], None])]
    return found


def resolved(path: str, within: Mapping[str, Any]) -> Any:
    """The schema that a reference such as #/$defs/name points to; None where there is nothing."""
    target: Any = within
    for part in path.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(part)
        else:
            target = target[int(part)] if isinstance(target, list) and part.isdecimal() and int(part) < len(target) else None
    return target if path.startswith("#") else None


SAYS_NOTHING = ("strict", "nullable", "additionalItems")
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
SILENT = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$defs",
        "definitions",
    }
)
MAX_ALTERNATIVES, MAX_REFERENCES = 64, 20


class Argument(NamedTuple):
    """The allowed values of an argument: `texts` are the schemas of its strings, `others` those of all else."""

    texts: tuple[Schema, ...]
    others: tuple[Schema, ...]

    def may_be(self, kind: str) -> bool:
        """True if it may be a value of a type other than string."""
        return any(kind in _types(each) for each in self.others)


def argument_of(schema: Any, within: Mapping[str, Any]) -> Argument:
    """The values that a schema allows: references are followed, allOf is merged, anyOf and lists of types are alternatives."""
    texts, others = list[Schema](), list[Schema]()
    for each in _alternatives(schema, within, 0)[:MAX_ALTERNATIVES]:
        values = [each["const"]] if "const" in each else each.get("enum")
        if values is not None:
            words, rest = ([value for value in values if isinstance(value, str) is is_text] for is_text in (True, False))
            texts += [{"type": "string", "enum": words}] * bool(words)
            others += [{"enum": rest}] * bool(rest)
            continue
        kinds = _types(each)
        if "string" in kinds:
            texts.append({**each, "type": "string"})
        if rest := [kind for kind in kinds if kind != "string"]:
            others.append({**each, "type": rest[0] if len(rest) == 1 else rest})
    return Argument(tuple(texts), tuple(others))


def _types(schema: Schema) -> tuple[str, ...]:
    kinds = schema.get("type")
    if "enum" in schema:
        names = {bool: "boolean", type(None): "null", int: "integer", float: "number", dict: "object", list: "array"}
        return tuple({names.get(type(value), "string") for value in schema["enum"]})
    return (kinds,) if isinstance(kinds, str) else tuple(kinds) if kinds is not None else TYPES


def _alternatives(schema: Any, within: Mapping[str, Any], depth: int) -> list[Schema]:
    """The schemas without $ref, allOf and anyOf of which a value fits one."""
    if not isinstance(schema, Mapping):
        return [{}] if schema is True else []
    if depth > MAX_REFERENCES:
        return []
    found: list[Schema] = [{key: value for key, value in schema.items() if key not in JOINTS and key not in SILENT}]
    parts: list[list[Schema]] = [_alternatives(each, within, depth + 1) for each in schema.get("allOf", ())]
    if "$ref" in schema:
        parts.append(_alternatives(resolved(str(schema["$ref"]), within), within, depth + 1))
    parts += [
        [each for part in schema[key] for each in _alternatives(part, within, depth + 1)]
        for key in ("anyOf", "oneOf")
        if key in schema
    ]
    for part in parts:
        found = [both for one in found for other in part if (both := _both(one, other)) is not None][:MAX_ALTERNATIVES]
    return found


def _both(one: Schema, other: Schema) -> Schema | None:
    """The schema of what fits two; None where nothing does."""
    if not one or not other:
        return one or other
    kinds = [kind for kind in TYPES if _fits(kind, one) and _fits(kind, other)]
    if not kinds:
        return None
    listed = [each for each in (one, other) if "enum" in each or "const" in each]
    if len(listed) == 2:
        first, second = ([each["const"]] if "const" in each else each["enum"] for each in listed)
        values = [value for value in first if value in second]
        return {"enum": values} if values else None
    merged: Schema = {**one, **other, "type": kinds[0] if len(kinds) == 1 else kinds}
    clash = any(key in one and one[key] != value for key, value in other.items() if key != "type")
    if listed:
        merged.pop("type")
    return {"type": merged.get("type", kinds), "allOf": [one, other]} if clash else merged


def _fits(kind: str, schema: Schema) -> bool:
    kinds = _types({**schema, "enum": [schema["const"]]} if "const" in schema else schema)
    return kind in kinds or (kind == "integer" and "number" in kinds)


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
