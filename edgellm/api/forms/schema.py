"""JSON schemas: of Python types and signatures, and the check that every keyword of one is enforced."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import itertools
import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from edgellm.api.forms.pydantic_schema import of_pydantic
from edgellm.api.forms.schema_values import LONG, check_values, move_within
from edgellm.api.forms.typed import TEXTS, typed
from edgellm.chat.schemas import ANNOTATIONS, ENFORCED, LISTS, MAPPINGS, MAX_DEPTH, held, mapped, moved, restated
from edgellm.errors import SchemaError, shown

Schema = dict[str, Any]  # Any: JSON

MAX_NESTING = 110  # levels of JSON that llguidance reads, less those of a call around them
PLAIN: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
    list: "array",
}


def check(schema: object) -> None:
    """Raises SchemaError for a keyword that would not be enforced, naming it and where it stands."""
    for path, part in _parts(schema, "", 0):
        for key in part:
            if key not in ENFORCED and key not in ANNOTATIONS and (not str(key).startswith("x-") or key == "x-guidance"):
                raise SchemaError(
                    f"schema{path} has {shown(key)}, which cannot be enforced; leave it out, or say it in other keywords."
                )
        least, required = part.get("minProperties"), part.get("required")
        if isinstance(least, int) and least > max(1, len(required) if isinstance(required, Sequence) else 0):
            raise SchemaError(
                f"schema{path} has minProperties={least} beyond what is required: free keys may repeat, so it cannot "
                "be enforced; name the keys in required."
            )
        check_values(part, path)


def _parts(schema: object, path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema within a schema, with its place."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise SchemaError(f"schema{path} is {shown(schema)}; a JSON schema is a mapping, or True or False.")
    if depth > MAX_DEPTH:
        raise SchemaError(f"the schema nests deeper than {MAX_DEPTH}; give a flatter one, with $defs for what repeats.")
    yield path, schema
    for key, value in schema.items():
        place = f"{path}[{key!r}]"
        if key in MAPPINGS and isinstance(value, Mapping):
            for name, part in value.items():
                yield from _parts(part, f"{place}[{name!r}]", depth + 1)
        elif key in LISTS and isinstance(value, Sequence) and not isinstance(value, str):
            for index, part in enumerate(value):
                yield from _parts(part, f"{place}[{index}]", depth + 1)
        elif key in ("items", "additionalProperties"):
            yield from _parts(value, place, depth + 1)


def depth_of(value: object) -> int:
    """Levels of nested lists and objects, as far as MAX_NESTING + 1."""
    level, depth = [value], 0
    while (level := [each for each in level if isinstance(each, Mapping | list | tuple)]) and depth <= MAX_NESTING:
        children = [child for each in level for child in (each.values() if isinstance(each, Mapping) else each)]
        level, depth = list({id(child): child for child in children}.values()), depth + 1
    return depth


def as_json(schema: object) -> str:
    """A checked schema as JSON text. Raises SchemaError."""
    try:
        if depth_of(schema) > MAX_NESTING:
            raise SchemaError(
                f"the schema nests deeper than {MAX_NESTING} levels; give a flatter one, with $defs for what repeats."
            )
        schema = restated(schema)
        check(schema)
        text = json.dumps(mapped(schema, held), allow_nan=False, ensure_ascii=False)
        text.encode()  # lone surrogates are no JSON
        if not LONG.search(text):
            return text
        copy = json.loads(text)
        for _, part in _parts(copy, "", 0):
            move_within(part)  # type: ignore[arg-type]  # of a copy
        return json.dumps(copy, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(
            f"the schema cannot be written as JSON ({error}); give mappings, lists, texts and finite numbers."
        ) from error


def is_pydantic(given: object) -> bool:
    """True if it is a Pydantic model: known by its methods, so that Pydantic need not be there."""
    return isinstance(given, type) and hasattr(given, "model_json_schema") and hasattr(given, "model_validate_json")


def reader_of(given: object) -> Callable[[str], Any]:
    """A function from an answer to its value: an instance of a Pydantic model, what a TypeAdapter or another type says, for a
    mapping what JSON gives."""
    if is_pydantic(given):
        return given.model_validate_json  # type: ignore[attr-defined, no-any-return]  # is_pydantic has looked
    if _is_adapter(given):
        return given.validate_json  # type: ignore[attr-defined, no-any-return]  # so has this
    return json.loads if isinstance(given, Mapping | bool) else lambda text: typed(given, json.loads(text))


def _is_adapter(given: object) -> bool:
    """True if it is a TypeAdapter of Pydantic."""
    return not isinstance(given, type) and callable(getattr(given, "json_schema", None)) and hasattr(given, "validate_json")


def schema_of(given: object) -> Schema:
    """The JSON schema of a mapping (itself), a Pydantic model, a TypedDict, a dataclass, or another type. Raises SchemaError."""
    if given is False:
        raise SchemaError("schema is False, which no answer fits; give a mapping or a type, or True for any JSON.")
    if given is True:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if _is_adapter(given):
        return of_pydantic(given.json_schema())  # type: ignore[attr-defined]  # _is_adapter has looked
    definitions = _Definitions()
    return definitions.added_to(_of_type(given, definitions))


def parameters_of(function: Callable[..., object]) -> Schema:
    """The schema of a function's arguments by name. Raises SchemaError for types that JSON has no word for."""
    name = name_of(function)
    try:
        hints, signature = hints_of(function), inspect.signature(function)
    except (NameError, TypeError, ValueError) as error:
        raise SchemaError(f"the signature of {name} cannot be read ({error}); give a function with plain type hints.") from error
    definitions = _Definitions()
    properties: dict[str, Schema] = {}
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SchemaError(f"{name} takes {parameter}: give every parameter a name of its own, and no *, ** or /.")
        default = type(parameter.default)  # says what it is where no hint does
        kind = default if default in PLAIN and parameter.default is not None else str
        properties[parameter.name] = _of_type(hints.get(parameter.name, kind), definitions)
    required = [parameter.name for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    return definitions.added_to({"type": "object", "properties": properties, "required": required, "additionalProperties": False})


def name_of(function: Callable[..., object]) -> str:
    """The name of a function, of what a functools.partial calls, or of a callable object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """The annotations of what `name_of` names."""
    while isinstance(function, functools.partial):
        function = function.func
    return get_type_hints(function if inspect.isroutine(function) else type(function).__call__, include_extras=True)


class _Definitions:
    """The $defs of one schema; types of one name have keys of their own."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self.keys: dict[object, str] = {}  # of types that have been read

    def added_to(self, schema: Schema) -> Schema:
        """A schema with the definitions that it refers to."""
        return {**schema, "$defs": self.schemas} if self.schemas else schema

    def free(self, name: str) -> str:
        """A key that no other has."""
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        return next(key for key in names if key not in self.schemas)

    def take(self, schema: Schema) -> Schema:
        """A schema with $defs of its own, which become part of these."""
        own: dict[str, Schema] = schema.pop("$defs", {})
        names = {name: name if self.schemas.get(name) == each else self.free(name) for name, each in own.items()}

        def rename(path: str) -> str:
            return "#/$defs/" + names.get(name := path.removeprefix("#/$defs/"), name)

        self.schemas.update({names[name]: moved(each, rename) for name, each in own.items()})
        found: Schema = moved(schema, rename)
        return found


def _of_type(hint: Any, definitions: _Definitions) -> Schema:  # Any: type hints have no common type
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return {}
    if hint is None:
        return {"type": "null"}
    if isinstance(hint, type) and hint in PLAIN:
        return {"type": PLAIN[hint]}
    if origin is Annotated:
        description = next((text for text in arguments[1:] if isinstance(text, str)), None)
        return _of_type(arguments[0], definitions) | ({"description": description} if description else {})
    if origin in (Required, NotRequired):
        return _of_type(arguments[0], definitions)
    if origin is Literal:
        return {"enum": [each.value if isinstance(each, enum.Enum) else each for each in arguments]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of_type(each, definitions) for each in arguments]}
    if origin in (list, Sequence, set, frozenset):
        return {"type": "array", "items": _of_type(arguments[0], definitions)}
    if origin is tuple or hint is tuple:
        return _of_tuple(arguments, definitions)
    if origin in (dict, Mapping):
        if get_origin(arguments[0]) is Literal:
            each = _of_type(arguments[1], definitions)
            return {"type": "object", "properties": dict.fromkeys(get_args(arguments[0]), each), "additionalProperties": False}
        return {"type": "object", "additionalProperties": _of_type(arguments[1], definitions)}
    if isinstance(hint, type) and hint in TEXTS:
        return {"type": "string", **TEXTS[hint][0]}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if is_pydantic(hint):
        return definitions.take(of_pydantic(hint.model_json_schema()))
    if is_typeddict(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
        return _of_record(hint, definitions)
    raise SchemaError(f"{shown(hint)} has no JSON schema; give a dict, a TypedDict, a dataclass, a Pydantic model or a plain type.")


def _of_tuple(arguments: tuple[Any, ...], definitions: _Definitions) -> Schema:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": _of_type(arguments[0], definitions)}
    if not arguments:
        return {"type": "array"}
    items = [_of_type(each, definitions) for each in arguments]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}


def _of_record(hint: Any, definitions: _Definitions) -> Schema:
    """A reference to a record's definition, so that a type may contain itself."""
    if hint not in definitions.keys:
        name = definitions.keys[hint] = definitions.free(hint.__name__)
        definitions.schemas[name] = {}  # first: it may be asked for while its own fields are read
        hints = get_type_hints(hint, include_extras=True)
        if is_typeddict(hint):
            required = [
                key
                for key, each in hints.items()
                if get_origin(each) is Required or (get_origin(each) is not NotRequired and key in hint.__required_keys__)
            ]
        else:
            required = [
                field.name
                for field in dataclasses.fields(hint)
                if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            ]
            hints = {field.name: hints[field.name] for field in dataclasses.fields(hint) if field.init}
        properties = {key: _of_type(each, definitions) for key, each in hints.items()}
        definitions.schemas[name] = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{definitions.keys[hint]}"}
