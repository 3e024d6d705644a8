"""Values of JSON in the types of Python's annotations, and back."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

# What JSON has no word for stands as a text: the format of its schema, how it is read, and how it is written.
TEXTS: dict[type, tuple[dict[str, Any], Callable[[str], Any]]] = {
    datetime.datetime: ({"format": "date-time"}, datetime.datetime.fromisoformat),
    datetime.date: ({"format": "date"}, datetime.date.fromisoformat),
    datetime.time: ({"format": "time"}, datetime.time.fromisoformat),
    uuid.UUID: ({"format": "uuid"}, uuid.UUID),
    ipaddress.IPv4Address: ({"format": "ipv4"}, ipaddress.IPv4Address),
    ipaddress.IPv6Address: ({"format": "ipv6"}, ipaddress.IPv6Address),
    decimal.Decimal: ({"pattern": r"^-?[0-9]{1,30}(\.[0-9]{1,30})?$"}, decimal.Decimal),
    pathlib.Path: ({}, pathlib.Path),
    pathlib.PurePath: ({}, pathlib.PurePath),
    bytes: ({}, str.encode),
}
LISTS: dict[object, Callable[[list[Any]], Any]] = {list: list, Sequence: list, set: set, frozenset: frozenset, tuple: tuple}


def typed(hint: Any, value: Any) -> Any:  # Any: type hints have no common type, nor have values
    """A value of JSON as an annotation names it; one that it says nothing of stays as it is. Raises ValueError, TypeError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Required, NotRequired):
        return typed(arguments[0], value)
    if origin in (Union, types.UnionType):
        return _either(arguments, value)
    if origin is Literal:
        return next((each for each in arguments if isinstance(each, enum.Enum) and each.value == value), value)
    kind = origin or hint
    if kind in LISTS and isinstance(value, list):
        return LISTS[kind](_items(kind, arguments, value))
    if kind in (dict, Mapping) and isinstance(value, Mapping):
        _, of_value = arguments or (str, Any)
        return {typed(arguments[0], key) if arguments else key: typed(of_value, each) for key, each in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _of_class(kind, value) if isinstance(kind, type) else value


def _of_class(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):  # a Pydantic model
        return kind.model_validate(value)
    if kind in TEXTS and isinstance(value, str):
        return TEXTS[kind][1](value)
    if issubclass(kind, enum.Enum):
        return kind(value)
    if isinstance(value, Mapping) and (is_typeddict(kind) or dataclasses.is_dataclass(kind)):
        hints = get_type_hints(kind, include_extras=True)
        found = {key: typed(hints.get(key, Any), each) for key, each in value.items()}
        return found if is_typeddict(kind) else kind(**found)
    return value


def _items(kind: object, arguments: tuple[Any, ...], value: list[Any]) -> list[Any]:
    if not arguments:
        return value
    if kind is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return [typed(each, item) for each, item in zip(arguments, value, strict=True)]
    return [typed(arguments[0], item) for item in value]


def _either(hints: tuple[Any, ...], value: Any) -> Any:
    """As the first of some annotations that fits."""
    for hint in hints:
        try:
            found = typed(hint, value)
        except (ValueError, TypeError):
            continue
        if _fits(hint, found):
            return found
    return value


def _fits(hint: Any, value: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Annotated, Required, NotRequired):
        return _fits(get_args(hint)[0], value)
    if hint is None or origin is type(None):
        return value is None
    if is_typeddict(origin) or origin is Mapping:
        return isinstance(value, Mapping)
    if isinstance(value, bool) and origin in (int, float):
        return False
    return isinstance(value, origin) if isinstance(origin, type) else True


def as_json_value(value: object) -> Any:
    """The JSON of a value that json.dumps does not know: its fields, its members or a text."""
    if callable(dump := getattr(value, "model_dump", None)):  # a Pydantic model
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset | types.GeneratorType):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if callable(convert := getattr(value, "tolist", None)):  # of NumPy
        return convert()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
