"""Values in JSON schemas that llguidance would change: it counts in f64, and writes no control characters as \\uXXXX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any  # JSON

from edgellm.errors import SchemaError, shown

# What llguidance leaves out of texts: \uXXXX is not written (see JSON_OPTIONS), and these have no other form.
UNWRITTEN = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
ESCAPED = re.compile(r"\\(?:v|x(?:0[0-7bBeEfF]|1[\da-fA-F]|7[fF])|u00(?:0[0-7bBeEfF]|1[\da-fA-F]|7[fF]))")
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")  # in a pattern: one character of several, which may do without some
UP, DOWN = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
EXACT, LARGEST = 1 << 53, (1 << 63) - (1 << 10)  # up to which f64 has all whole numbers, and its largest that a bound may be
LONG = re.compile(r"\d{16}|[eE]\+?\d\d")  # in JSON: there may be such numbers


def check_values(part: Mapping[str, Any], path: str) -> None:
    """Raises SchemaError for values of keywords that llguidance would change: it counts in f64."""
    for key, value in part.items():
        place = f"schema{path}[{key!r}]"
        if key in ("const", "enum", "multipleOf"):
            for each in _scalars(value):
                if isinstance(each, str) and (found := UNWRITTEN.search(each)):
                    raise SchemaError(f"{place} has the control character {found[0]!r}, which cannot be enforced; leave it out.")
                if isinstance(each, int | float) and not _is_kept(each):
                    raise SchemaError(
                        f"{place} has {shown(each)}, which cannot be enforced: numbers are 64-bit floats; give it as a text."
                    )
        elif key == "pattern" and isinstance(value, str):
            if found := UNWRITTEN.search(value) or ESCAPED.search(CLASS.sub("", value)):
                raise SchemaError(f"{place} has the control character {found[0]!r}, which cannot be enforced; leave it out.")
        elif isinstance(value, int | float) and ((key in UP and value > LARGEST) or (key in DOWN and value < -LARGEST)):
            raise SchemaError(f"{place} is {shown(value)}, which cannot be enforced; give a bound of less than 2^63.")


def _scalars(value: object) -> Iterator[object]:
    """The texts and numbers in the lists and the values of objects."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _scalars(each)
    else:
        yield value


def _is_kept(number: float) -> bool:
    """True if a whole number comes back from f64, written with as few digits as tell it apart."""
    if isinstance(number, float) and not number.is_integer():
        return True
    try:
        return Decimal(repr(float(number))) == Decimal(number)
    except OverflowError:
        return False


def move_within(part: dict[str, Any]) -> None:
    """Bounds that llguidance would change move inwards, so that every answer keeps to them."""
    for key in (*UP, *DOWN):
        bound = part.get(key)
        if isinstance(bound, bool) or not isinstance(bound, int | float) or abs(bound) <= EXACT:
            continue
        near = float(max(-LARGEST, min(LARGEST, bound)))
        while key in UP and Decimal(repr(near)) < Decimal(bound):
            near = math.nextafter(near, math.inf)
        while key in DOWN and Decimal(repr(near)) > Decimal(bound):
            near = math.nextafter(near, -math.inf)
        part[key] = int(Decimal(repr(near)))
