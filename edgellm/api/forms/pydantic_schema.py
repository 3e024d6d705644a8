"""JSON schemas that Pydantic makes, in words that a grammar enforces; what they mean stays the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any  # Any: JSON

from edgellm.chat.schemas import mapped, resolved

Schema = dict[str, Any]
DECIMAL = "^(?!^[-+.]*$)"  # how Pydantic's patterns of decimals begin
PLAIN_DECIMAL = "^-?[0-9]{1,30}("
MAX_TEXT, MAX_ITEMS, MAX_DEPTH = 200, 20, 8  # of JSON that stands in a text
# Formats of Pydantic's that say how a text is used, and those that are other schemas.
USES = frozenset({"path", "file-path", "directory-path", "binary", "password", "json-string"})
ALIKE: dict[str, Schema] = {
    "ipvanyaddress": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    "ipvanyinterface": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    "ipvanynetwork": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    **{
        f"uuid{version}": {"pattern": f"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$"}
        for version in range(1, 9)
    },
}
SCALARS = {
    "integer": "-?(0|[1-9][0-9]{0,17})",
    "number": r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?",
    "boolean": "(true|false)",
    "null": "null",
    "string": f'"[^"\\\\]{{0,{MAX_TEXT}}}"',
}


def of_pydantic(schema: Schema) -> Schema:
    """A schema that Pydantic made: objects have no other properties unless they say so, sets may repeat what they hold, and formats
    of Pydantic's own mean what they do there."""

    def change(part: Schema) -> Schema:
        found = dict(part)
        if "properties" in found and "additionalProperties" not in found:
            found["additionalProperties"] = False
        found.pop("uniqueItems", None)  # repeated members are one
        kind = found.get("format")
        if kind == "binary" and {"minLength", "maxLength"} & set(found):  # which count bytes
            found["pattern"] = f"^[ -~]{{{found.pop('minLength', 0)},{found.pop('maxLength', '')}}}$"
        if kind in USES:
            del found["format"]
        elif kind in ALIKE:
            found = {key: value for key, value in found.items() if key != "format"} | ALIKE[kind]
        if str(found.get("pattern", "")).startswith(DECIMAL):
            found["pattern"] = "^-?[0-9]{1,30}(\\.[0-9]{1,30})?$"
        if any(str(each.get("pattern", "")).startswith(PLAIN_DECIMAL) for each in found.get("anyOf", ())):
            found["anyOf"] = [each for each in found["anyOf"] if each.get("type") != "string"] or found["anyOf"]
        inner = found.pop("contentSchema", None)
        if found.get("contentMediaType") == "application/json":
            found["pattern"] = f"^{json_pattern({} if inner is None else inner, schema)}$"
        return found

    changed: Schema = mapped(schema, change)
    return changed


def json_pattern(schema: Any, within: Mapping[str, Any], depth: int = 0) -> str:
    """A regular expression for JSON of a schema, in its compact form: properties in their order, required ones at least."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return f"({'|'.join(SCALARS.values())})"
    if "$ref" in schema:
        return json_pattern(resolved(str(schema["$ref"]), within), within, depth + 1)
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return f"({'|'.join(re.escape(json.dumps(value, separators=(',', ':'))) for value in values)})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return f"({'|'.join(json_pattern(each, within, depth + 1) for each in schema[key])})"
    match schema.get("type"):
        case "array":
            item = json_pattern(schema.get("items", {}), within, depth + 1)
            return rf"\[({item}(,{item}){{0,{MAX_ITEMS}}})?\]"
        case "object":
            needed = schema.get("required", ())
            pairs = [
                re.escape(json.dumps(name)) + ":" + json_pattern(each, within, depth + 1)
                for name, each in schema.get("properties", {}).items()
                if name in needed
            ]
            return r"\{" + ",".join(pairs) + r"\}"
        case str(kind) if kind in SCALARS:
            return SCALARS[kind]
        case list() as kinds:
            return f"({'|'.join(SCALARS[kind] for kind in kinds if kind in SCALARS)})"
    return f"({'|'.join(SCALARS.values())})"
